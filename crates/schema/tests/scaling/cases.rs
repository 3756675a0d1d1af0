//! Inputs of growing size for each parser, validator, patch, merge and renderer. Each has about the size of its number.

use std::fmt::Display;
use std::hint::black_box;

use machinery::json::{Value, json};
use machinery::media::MediaType;
use machinery::{GroupVersionKind, Revision};
use schema::decode::{self, FieldValidation};
use schema::facts::{Type, Types};
use schema::kind::Kind;
use schema::managed::{self, Subject, Writer};
use schema::patch::{self, Target};

#[path = "custom_cases.rs"]
mod custom_cases;

/// A step whose cost must be proportional to the size of its input.
pub(crate) struct Case {
    pub(crate) name: &'static str,
    /// Prepares an input of a size; the function that is returned is measured.
    pub(crate) prepare: fn(usize) -> Step,
}

pub(crate) type Step = Box<dyn FnMut()>;

const fn case(name: &'static str, prepare: fn(usize) -> Step) -> Case {
    Case { name, prepare }
}

/// All steps.
pub(crate) fn all() -> impl Iterator<Item = &'static Case> {
    CASES.iter().chain(custom_cases::CASES)
}

const CASES: &[Case] = &[
    case("unknown fields", |n| decode_body("ConfigMap", &object("ConfigMap", &join(n, |i| format!(r#""f{i}":1"#))))),
    case("one field again and again", |n| {
        decode_body("ConfigMap", &object("ConfigMap", &join(n, |_| r#""immutable":true"#.to_owned())))
    }),
    case("repeated keys", |n| {
        let keys = join(n, |i| format!(r#""k{}":"v""#, i % (n / 2)));
        decode_body("ConfigMap", &object("ConfigMap", &format!(r#""data":{{{keys}}}"#)))
    }),
    case("repeated keys below a long one", |n| {
        let (long, keys) = ("x".repeat(n), join(n, |i| format!(r#""k{}":"v""#, i % (n / 2))));
        decode_body("ConfigMap", &object("ConfigMap", &format!(r#""{long}":{{{keys}}}"#)))
    }),
    case("one key again and again below a long one", |n| {
        let (long, keys) = ("x".repeat(n), join(n, |_| r#""p":{"a":1,"a":1}"#.to_owned()));
        decode_body("ConfigMap", &object("ConfigMap", &format!(r#""{long}":{{{keys}}}"#)))
    }),
    case("repeated and unknown keys", |n| {
        let keys = join(n, |i| format!(r#""f{i}":1,"g{i}":1,"g{i}":2"#));
        decode_body("ConfigMap", &object("ConfigMap", &keys))
    }),
    case("keys of data", |n| create("", "v1", "configmaps", "ConfigMap", data(n))),
    case("bad keys of data", |n| {
        let keys = join(n, |i| format!(r#""*{i}":"v""#));
        create("", "v1", "configmaps", "ConfigMap", format!(r#""data":{{{keys}}}"#))
    }),
    case("labels", |n| {
        create("", "v1", "configmaps", "ConfigMap", metadata("labels", n, |i| format!(r#""k{i}":"v""#)))
    }),
    case("bad labels", |n| {
        create("", "v1", "configmaps", "ConfigMap", metadata("labels", n, |i| format!(r#""*{i}":"*""#)))
    }),
    case("owner references", |n| {
        let owners = join(n, |i| format!(r#"{{"apiVersion":"v1","kind":"Pod","name":"a{i}","uid":"{i}"}}"#));
        create(
            "",
            "v1",
            "configmaps",
            "ConfigMap",
            format!(r#""metadata":{{"name":"x","ownerReferences":[{owners}]}}"#),
        )
    }),
    case("finalizers", |n| create("", "v1", "configmaps", "ConfigMap", finalizers(n))),
    case("containers", |n| pod(&containers(n))),
    case("containers of one name", |n| {
        pod(&format!(r#""containers":[{}]"#, join(n, |_| r#"{"name":"a","image":"i"}"#.to_owned())))
    }),
    case("variables", |n| container(&format!(r#""env":[{}]"#, join(n, |i| format!(r#"{{"name":"a{i}"}}"#))))),
    case("variables of one name", |n| {
        container(&format!(r#""env":[{}]"#, join(n, |_| r#"{"name":"a","value":"$(a)"}"#.to_owned())))
    }),
    case("ports", |n| {
        container(&format!(r#""ports":[{}]"#, join(n, |i| format!(r#"{{"containerPort":{}}}"#, i % 65535 + 1))))
    }),
    case("ports of one number", |n| {
        container(&format!(r#""ports":[{}]"#, join(n, |_| r#"{"containerPort":80}"#.to_owned())))
    }),
    case("ports of one number on many addresses", |n| {
        let port =
            |i: usize| format!(r#"{{"containerPort":80,"hostPort":80,"hostIP":"10.0.{}.{}"}}"#, i / 250, i % 250);
        container(&format!(r#""ports":[{}]"#, join(n, port)))
    }),
    case("volumes, mounts and devices", |n| {
        let volumes = join(n, |i| format!(r#"{{"name":"v{i}","emptyDir":{{}}}}"#));
        let mounts = join(n, |i| format!(r#"{{"name":"v{i}","mountPath":"/m{i}"}}"#));
        let devices = join(n, |i| format!(r#"{{"name":"v{i}","devicePath":"/d{i}"}}"#));
        pod(&format!(
            r#""volumes":[{volumes}],"containers":[{{"name":"c","image":"i","volumeMounts":[{mounts}],"volumeDevices":[{devices}]}}]"#
        ))
    }),
    case("tolerations", |n| {
        pod(&format!(
            r#""containers":[{{"name":"c","image":"i"}}],"tolerations":[{}]"#,
            join(n, |i| format!(r#"{{"key":"a{i}"}}"#))
        ))
    }),
    case("spread constraints", |n| {
        let constraint =
            |i: usize| format!(r#"{{"maxSkew":1,"topologyKey":"k{i}","whenUnsatisfiable":"DoNotSchedule"}}"#);
        pod(&format!(
            r#""containers":[{{"name":"c","image":"i"}}],"topologySpreadConstraints":[{}]"#,
            join(n, constraint)
        ))
    }),
    case("a quantity of many digits", |n| {
        container(&format!(r#""resources":{{"requests":{{"cpu":"{}"}}}}"#, "9".repeat(8 * n)))
    }),
    case("a number of many digits", |n| {
        decode_body("ConfigMap", &object("ConfigMap", &format!(r#""immutable":{}"#, "9".repeat(8 * n))))
    }),
    case("ports of a service", |n| {
        let ports = join(n, |i| format!(r#"{{"name":"p{i}","port":{}}}"#, i % 65535 + 1));
        create(
            "",
            "v1",
            "services",
            "Service",
            format!(r#""metadata":{{"name":"x"}},"spec":{{"selector":{{"a":"b"}},"ports":[{ports}]}}"#),
        )
    }),
    case("managers that are sent", |n| create("", "v1", "configmaps", "ConfigMap", managers(n, "Update"))),
    case("appliers that are sent", |n| create("", "v1", "configmaps", "ConfigMap", managers(n, "Apply"))),
    case("YAML: fields", |n| yaml(&lines(n, |i| format!("f{i}: 1")))),
    case("YAML: one field again and again", |n| yaml(&lines(n, |_| "immutable: true".to_owned()))),
    case("YAML: flow entries", |n| yaml(&format!("[{}]", "a: b, ".repeat(n)))),
    case("YAML: colons", |n| yaml(&format!("{{{}", ":".repeat(8 * n)))),
    case("YAML: open brackets", |n| yaml(&format!("a: {}", "[".repeat(8 * n)))),
    case("YAML: dashes", |n| yaml(&"- ".repeat(4 * n))),
    case("YAML: question marks", |n| yaml(&"? ".repeat(4 * n))),
    case("YAML: anchors", |n| yaml(&format!("a: [{}]", join(n, |i| format!("&a{i} x"))))),
    case("YAML: aliases", |n| yaml(&format!("a: &a [x, x]\nb: [{}]", join(n, |_| "*a".to_owned())))),
    case("YAML: merge keys", |n| {
        yaml(&format!("a: &a {{{}}}\n{}", join(20, |i| format!("k{i}: v")), lines(n, |i| format!("b{i}: {{<<: *a}}"))))
    }),
    case("YAML: one long word", |n| yaml(&format!("a: {}", "x".repeat(20 * n)))),
    case("YAML: a word of many lines", |n| yaml(&format!("a: x\n{}", "  y\n".repeat(4 * n)))),
    case("YAML: blanks", |n| yaml(&format!("a:\n{}", " ".repeat(20 * n)))),
    case("YAML: escapes", |n| yaml(&format!("a: \"{}\"", "\\x41".repeat(4 * n)))),
    case("YAML: comments", |n| yaml(&"#\n".repeat(8 * n))),
    case("YAML: directives", |n| yaml(&"%TAG !a! a\n".repeat(n))),
    case("YAML: documents", |n| yaml(&"---\n".repeat(4 * n))),
    case("YAML: quoted keys of a flow map", |n| yaml(&format!("{{{}}}", join(n, |i| format!(r#""k{i}": "v""#))))),
    case("YAML: written", |n| {
        let value = json(&object("ConfigMap", &data(n)));
        Box::new(move || drop(black_box(machinery::yaml::to_yaml(&value))))
    }),
    case("label selector of many keys", |n| selector(join(n, |i| format!("!k{i}")))),
    case("label selector of one key", |n| selector(join(n, |i| format!("k!=v{i}")))),
    case("label selector of one term", |n| selector(join(n, |_| "!k"))),
    case("label selector of a long set", |n| selector(format!("k in ({})", join(n, |i| format!("v{i}"))))),
    case("field selector", |n| {
        let text = join(n, |i| format!("k{i}!=v"));
        Box::new(move || drop(black_box(machinery::fields::Selector::parse(&text))))
    }),
    case("merge patch of a map", |n| patch_with(n, "merge", &|_| format!("{{{}}}", data(n)))),
    case("merge patch that removes", |n| {
        patch_with(n, "merge", &|_| format!(r#"{{"data":{{{}}}}}"#, join(n, |i| format!(r#""k{i}":null"#))))
    }),
    case("strategic merge that removes", |n| {
        patch_with(n, "strategic", &|_| format!(r#"{{"data":{{{}}}}}"#, join(n, |i| format!(r#""k{i}":null"#))))
    }),
    case("strategic merge that removes twice", |n| {
        let twice = |i| format!(r#""$deleteFromPrimitiveList/k{i}":null,"k{i}":"w""#);
        patch_with(n, "strategic", &|_| format!(r#"{{"data":{{{}}}}}"#, join(n, twice)))
    }),
    case("strategic merge of containers", |n| {
        patch_with(n, "strategic", &|_| format!(r#"{{"spec":{{{}}}}}"#, containers(n)))
    }),
    case("strategic merge of new containers", |n| {
        patch_with(n, "strategic", &|_| {
            format!(r#"{{"spec":{{"containers":[{}]}}}}"#, join(n, |i| format!(r#"{{"name":"new{i}","image":"i"}}"#)))
        })
    }),
    case("strategic merge with an order", |n| {
        patch_with(n, "strategic", &|_| {
            let names = join(n, |i| format!(r#"{{"name":"a{i}"}}"#));
            format!(r#"{{"spec":{{"containers":[{names}],"$setElementOrder/containers":[{names}]}}}}"#)
        })
    }),
    case("strategic merge with many orders", |n| {
        patch_with(n, "strategic", &|_| {
            let order = |i: usize| {
                let letters = "ephemeralcontainers".chars().enumerate();
                let name: String =
                    letters.map(|(at, c)| if i >> at & 1 == 1 { c.to_ascii_uppercase() } else { c }).collect();
                format!(r#""$setElementOrder/{name}":[]"#)
            };
            format!(r#"{{"spec":{{{}}}}}"#, join(n, order))
        })
    }),
    case("strategic merge that deletes", |n| {
        patch_with(n, "strategic", &|_| {
            let names = join(n, |i| format!(r#"{{"name":"a{i}","$patch":"delete"}}"#));
            format!(r#"{{"spec":{{"containers":[{names}]}}}}"#)
        })
    }),
    case("strategic merge of finalizers", |n| {
        patch_with(n, "strategic", &|_| {
            format!(r#"{{"metadata":{{"finalizers":[{}]}}}}"#, join(n, |i| format!(r#""a.b/{}""#, i + n / 2)))
        })
    }),
    case("strategic merge that deletes finalizers", |n| {
        patch_with(n, "strategic", &|_| {
            let names = join(n, |i| format!(r#""a.b/{}""#, i + n / 2));
            format!(r#"{{"metadata":{{"$deleteFromPrimitiveList/finalizers":[{names}]}}}}"#)
        })
    }),
    case("strategic merge that retains", |n| {
        patch_with(n, "strategic", &|_| {
            let names = join(n, |i| format!(r#""k{i}""#));
            format!(r#"{{"data":{{"$retainKeys":[{names}],{}}}}}"#, join(n, |i| format!(r#""k{i}":"w""#)))
        })
    }),
    case("JSON patch of adds at the front", |n| {
        operations(n, |_| r#"{"op":"add","path":"/spec/containers/0","value":{"name":"z","image":"i"}}"#.to_owned())
    }),
    case("JSON patch of moves of items", |n| {
        operations(n, |_| r#"{"op":"move","from":"/spec/containers/0","path":"/spec/containers/-"}"#.to_owned())
    }),
    case("JSON patch of moves of a list", |n| {
        operations(n, |i| match i % 2 {
            0 => r#"{"op":"move","from":"/spec/containers","path":"/spec/x"}"#.to_owned(),
            _ => r#"{"op":"move","from":"/spec/x","path":"/spec/containers"}"#.to_owned(),
        })
    }),
    case("JSON patch of removals", |n| operations(n, |i| format!(r#"{{"op":"remove","path":"/data/k{i}"}}"#))),
    case("JSON patch of tests", |n| {
        operations(n, |_| r#"{"op":"test","path":"/metadata/labels/a","value":"b"}"#.to_owned())
    }),
    case("JSON patch of copies", |n| {
        operations(n, |i| format!(r#"{{"op":"copy","from":"/metadata/labels","path":"/data/c{i}"}}"#))
    }),
    case("apply of many fields", |n| apply("configmaps", "ConfigMap", data(n))),
    case("apply of many containers", |n| apply("pods", "Pod", format!(r#""spec":{{{}}}"#, containers(n)))),
    case("apply of a set", |n| apply("configmaps", "ConfigMap", finalizers(n))),
    case("apply to many managers", |n| {
        let kind = kind("", "v1", "configmaps");
        let ty = ty(&kind);
        let mut live = json(&object("ConfigMap", &format!(r#"{},{}"#, managers(n, "Apply"), data(n))));
        let config = json(&object(
            "ConfigMap",
            &format!(r#""metadata":{{"name":"x"}},{}"#, data(n).replace(":\"v\"", ":\"w\"")),
        ));
        live["metadata"]["uid"] = json!("u");
        Box::new(move || {
            let subject = Subject::new(&kind, &ty);
            let applied = managed::apply(&subject, Some(&live), &config, &writer("z"), false);
            if let Err(error) = applied {
                black_box(error.to_status());
            }
            let _ = black_box(managed::apply(&subject, Some(&live), &config, &writer("z"), true));
        })
    }),
    case("an update of a map of many", |n| {
        update("configmaps", "ConfigMap", &data(n), &data(n).replace(":\"v\"", ":\"w\""))
    }),
    case("an update that removes many", |n| update("configmaps", "ConfigMap", &data(n), r#""data":{"k0":"v"}"#)),
    case("an update of containers", |n| {
        let old = format!(r#""spec":{{{}}}"#, containers(n));
        update("pods", "Pod", &old, &old.replace("\"image\":\"i\"", "\"image\":\"j\""))
    }),
    case("protobuf", |n| {
        let ty = ty(&kind("", "v1", "pods"));
        let value = json(&object("Pod", &format!(r#""spec":{{{}}}"#, containers(n))));
        Box::new(move || {
            let message = schema::protobuf::write(&ty, &value).unwrap_or_default();
            drop(black_box(schema::protobuf::read(&ty, &message)));
        })
    }),
    case("columns of a pod", |n| {
        let kind = kind("", "v1", "pods");
        let status = join(n, |i| format!(r#"{{"name":"a{i}","ready":true,"restartCount":1}}"#));
        let value = json(&object(
            "Pod",
            &format!(
                r#""spec":{{{}}},"status":{{"containerStatuses":[{status}],"initContainerStatuses":[{status}]}}"#,
                containers(n)
            ),
        ));
        Box::new(move || drop(black_box(schema::columns::row(&kind, &value, 0))))
    }),
    case("definition of many properties", |n| definition(&properties(n, |_| r#""type":"string""#.to_owned()), 1)),
    case("definition of many rules", |n| {
        let rule = |i: usize| {
            format!(r#""type":"string","maxLength":10,"x-kubernetes-validations":[{{"rule":"self.size() < {i}"}}]"#)
        };
        definition(&properties(n / 8, rule), 1)
    }),
    case("definition of a long rule", |n| {
        let rule = format!("self.a == 1{}", " || self.a == 2".repeat(n / 2));
        definition(
            &format!(
                r#"{{"type":"object","properties":{{"a":{{"type":"integer"}}}},"x-kubernetes-validations":[{{"rule":"{rule}"}}]}}"#
            ),
            1,
        )
    }),
    case("definition of many patterns", |n| {
        definition(&properties(n / 8, |i| format!(r#""type":"string","pattern":"^a{i}[a-z]+$""#)), 1)
    }),
    case("definition of many versions", |n| definition(r#"{"type":"object"}"#, n / 4)),
    case("definition of many list keys", |n| {
        let keys = join(n, |i| format!(r#""k{i}""#));
        let properties = properties(n, |_| r#""type":"string","default":"a""#.to_owned());
        definition(
            &format!(
                r#"{{"type":"object","properties":{{"l":{{"type":"array","x-kubernetes-list-type":"map","x-kubernetes-list-map-keys":[{keys}],"items":{properties}}}}}}}"#
            ),
            1,
        )
    }),
    case("definition of list keys that are unknown", |n| {
        let keys = join(n, |i| format!(r#""k{i}""#));
        definition(
            &format!(
                r#"{{"type":"object","properties":{{"l":{{"type":"array","x-kubernetes-list-type":"map","x-kubernetes-list-map-keys":[{keys}],"items":{{"type":"object"}}}}}}}}"#
            ),
            1,
        )
    }),
    case("custom object: unknown fields", |n| custom(r#"{"type":"object"}"#, join(n, |i| format!(r#""f{i}":1"#)))),
    case("custom object: a set", |n| {
        custom(
            r#"{"type":"object","properties":{"l":{"type":"array","x-kubernetes-list-type":"set","items":{"type":"string"}}}}"#,
            format!(r#""l":[{}]"#, join(n, |i| format!(r#""a{i}""#))),
        )
    }),
    case("custom object: a list with keys", |n| {
        custom(
            r#"{"type":"object","properties":{"l":{"type":"array","x-kubernetes-list-type":"map","x-kubernetes-list-map-keys":["n"],"items":{"type":"object","properties":{"n":{"type":"string"}}}}}}"#,
            format!(r#""l":[{}]"#, join(n, |i| format!(r#"{{"n":"a{i}"}}"#))),
        )
    }),
    case("custom object: values of a long enum", |n| {
        let words = join(n, |i| format!(r#""a{i}""#));
        custom(
            &format!(
                r#"{{"type":"object","properties":{{"l":{{"type":"array","items":{{"type":"string","enum":[{words}]}}}}}}}}"#
            ),
            format!(r#""l":[{words}]"#),
        )
    }),
    case("custom object: required fields", |n| {
        let words = join(n, |i| format!(r#""a{i}""#));
        custom(
            &format!(r#"{{"type":"object","required":[{words}],"x-kubernetes-preserve-unknown-fields":true}}"#),
            join(n, |i| format!(r#""a{i}":1"#)),
        )
    }),
    case("custom object: many properties", |n| {
        custom(&properties(n, |_| r#""type":"integer","default":1"#.to_owned()), join(n, |i| format!(r#""p{i}":1"#)))
    }),
];

fn join<T: Display>(n: usize, piece: impl Fn(usize) -> T) -> String {
    (0..n).map(|i| piece(i).to_string()).collect::<Vec<_>>().join(",")
}

fn lines(n: usize, piece: impl Fn(usize) -> String) -> String {
    (0..n).map(|i| piece(i) + "\n").collect()
}

fn json(text: &str) -> Value {
    machinery::json::from_str(text).unwrap_or_else(|error| panic!("{error}: {}", &text[..text.len().min(300)]))
}

/// Returns an object of the core group with further members.
fn object(kind: &str, members: &str) -> String {
    let name = if members.contains("\"metadata\":") { "" } else { r#","metadata":{"name":"x"}"# };
    format!(r#"{{"apiVersion":"v1","kind":"{kind}"{name},{members}}}"#)
}

fn data(n: usize) -> String {
    format!(r#""data":{{{}}}"#, join(n, |i| format!(r#""k{i}":"v""#)))
}

fn metadata(field: &str, n: usize, piece: impl Fn(usize) -> String) -> String {
    format!(r#""metadata":{{"name":"x","{field}":{{{}}}}}"#, join(n, piece))
}

fn finalizers(n: usize) -> String {
    format!(r#""metadata":{{"name":"x","finalizers":[{}]}}"#, join(n, |i| format!(r#""a.b/{i}""#)))
}

fn containers(n: usize) -> String {
    format!(r#""containers":[{}]"#, join(n, |i| format!(r#"{{"name":"a{i}","image":"i"}}"#)))
}

fn managers(n: usize, operation: &str) -> String {
    let entry = |i: usize| {
        format!(
            r#"{{"manager":"m{i}","operation":"{operation}","apiVersion":"v1","time":"2020-01-01T00:00:00Z","fieldsType":"FieldsV1","fieldsV1":{{"f:data":{{"f:k{i}":{{}}}}}}}}"#
        )
    };
    format!(r#""metadata":{{"name":"x","managedFields":[{}]}}"#, join(n, entry))
}

fn properties(n: usize, schema: impl Fn(usize) -> String) -> String {
    format!(r#"{{"type":"object","properties":{{{}}}}}"#, join(n, |i| format!(r#""p{i}":{{{}}}"#, schema(i))))
        .replace("\"p", "\"k")
        .replace("\"kroperties\"", "\"properties\"")
        .replace("\"kattern\"", "\"pattern\"")
}

fn kind(group: &str, version: &str, plural: &str) -> Kind {
    let kind = schema::kinds::builtin().get(group, version, plural);
    Kind::clone(kind.unwrap_or_else(|| panic!("no {plural} in {group}")))
}

fn ty(kind: &Kind) -> Type {
    Types::get().kind(&kind.gvk).unwrap_or_else(|| panic!("no type of {}", kind.gvk))
}

fn writer(manager: &str) -> Writer<'_> {
    Writer { manager, subresource: "", time: "2024-01-01T00:00:00Z" }
}

fn decode_body(kind: &str, body: &str) -> Step {
    let gvk = GroupVersionKind::new("", "v1", kind);
    let ty = Types::get().kind(&gvk).unwrap_or_else(|| panic!("no {kind}"));
    let body = body.to_owned().into_bytes();
    Box::new(move || {
        for validation in [FieldValidation::Warn, FieldValidation::Strict] {
            drop(black_box(decode::decode(&ty, &gvk, &body, MediaType::Json, validation, None)));
        }
    })
}

fn yaml(text: &str) -> Step {
    let text = text.to_owned().into_bytes();
    Box::new(move || drop(black_box(machinery::yaml::read(&text))))
}

/// Parses a selector, and matches as many objects as it has terms.
fn selector(text: String) -> Step {
    let objects = text.split(',').count();
    Box::new(move || {
        let selector = machinery::labels::Selector::parse(&text).unwrap_or_else(|error| panic!("{error}"));
        let labels = [("a", "b"), ("k", "v0"), ("z", "")];
        let matched = (0..objects).filter(|_| selector.matches_sorted(&labels)).count();
        black_box((matched, selector.to_string()));
    })
}

/// All steps of a create.
fn create(
    group: &'static str,
    version: &'static str,
    plural: &'static str,
    name: &'static str,
    members: String,
) -> Step {
    let kind = kind(group, version, plural);
    let ty = ty(&kind);
    let body = object(name, &members).into_bytes();
    Box::new(move || {
        let decoded = decode::decode(&ty, &kind.gvk, &body, MediaType::Json, FieldValidation::Warn, None);
        let Ok(decoded) = decoded else { return };
        black_box(write(&kind, &ty, decoded.value));
    })
}

fn write(kind: &Kind, ty: &Type, mut object: Value) -> Value {
    schema::defaults::apply(kind, &mut object, None);
    schema::strategy::admit_create(kind, &mut object);
    schema::strategy::prepare_for_create(kind, &mut object);
    let errors = schema::validation::validate_create(kind, &object, false);
    black_box(machinery::Status::invalid(&machinery::GroupResource::new("", "things"), "x", &errors));
    black_box(schema::warnings::on_write(kind, &object, None, false));
    managed::track_update(&Subject::new(kind, ty), None, &mut object, &writer("a"));
    object
}

fn pod(spec: &str) -> Step {
    create("", "v1", "pods", "Pod", format!(r#""spec":{{{spec}}}"#))
}

fn container(members: &str) -> Step {
    pod(&format!(r#""containers":[{{"name":"c","image":"i",{members}}}]"#))
}

/// An object with a map, a list with keys and a set of `n`, as stored; its type is made of several kinds.
fn patch_with(n: usize, sort: &'static str, patch: &dyn Fn(usize) -> String) -> Step {
    let patch = patch(n);
    let (plural, members) = match patch.contains("\"spec\"") {
        true => ("pods", format!(r#""spec":{{{}}}"#, containers(n))),
        false => ("configmaps", format!("{},{}", finalizers(n), data(n))),
    };
    let kind = kind("", "v1", plural);
    let ty = ty(&kind);
    let current = json(&object(&kind.gvk.kind, &members));
    let patch = patch.into_bytes();
    Box::new(move || {
        let target =
            Target { ty: &ty, gvk: &kind.gvk, custom: false, version: None, validation: FieldValidation::Warn };
        drop(match sort {
            "merge" => black_box(patch::merge::apply(&target, &current, &patch)),
            _ => black_box(patch::strategic::apply(&target, &current, &patch)),
        });
    })
}

/// A JSON patch of many operations on an object with a large map and a large list.
fn operations(n: usize, operation: impl Fn(usize) -> String) -> Step {
    let gvk = GroupVersionKind::new("example.com", "v1", "Thing");
    let ty = Types::get().object_meta();
    let current = json(&object(
        "Thing",
        &format!(r#""metadata":{{"name":"x","labels":{{"a":"b"}}}},"spec":{{{}}},{}"#, containers(n), data(n)),
    ));
    let patch = format!("[{}]", join((n / 2).min(10_000), operation)).into_bytes();
    Box::new(move || {
        let target = Target { ty: &ty, gvk: &gvk, custom: true, version: None, validation: FieldValidation::Warn };
        let patched = black_box(patch::json::apply(&target, &current, &patch));
        assert!(patched.is_ok(), "{patched:?}");
    })
}

/// A first apply, the same again by another manager, and one that removes all.
fn apply(plural: &'static str, name: &'static str, members: String) -> Step {
    let kind = kind("", "v1", plural);
    let ty = ty(&kind);
    let config = json(&object(name, &members));
    let nothing = json(&object(name, r#""metadata":{"name":"x"}"#));
    Box::new(move || {
        let subject = Subject::new(&kind, &ty);
        let Ok(mut applied) = managed::apply(&subject, None, &config, &writer("a"), false) else { return };
        applied["metadata"]["uid"] = json!("u");
        let _ = black_box(managed::apply(&subject, Some(&applied), &config, &writer("b"), true));
        let _ = black_box(managed::apply(&subject, Some(&applied), &nothing, &writer("a"), true));
    })
}

fn update(plural: &'static str, name: &'static str, old: &str, new: &str) -> Step {
    let kind = kind("", "v1", plural);
    let ty = ty(&kind);
    let mut old = write(&kind, &ty, json(&object(name, old)));
    old["metadata"]["uid"] = json!("u");
    let mut new = json(&object(name, new));
    new["metadata"]["uid"] = json!("u");
    Box::new(move || {
        let mut new = new.clone();
        schema::strategy::prepare_for_update(&kind, &mut new, &old);
        let errors = schema::validation::validate_update(&kind, &new, &old, &mut Vec::new());
        black_box(machinery::Status::invalid(&machinery::GroupResource::new("", "things"), "x", &errors));
        for manager in ["a", "b"] {
            managed::track_update(&Subject::new(&kind, &ty), Some(&old), &mut new, &writer(manager));
        }
        black_box(&new);
    })
}

fn definition_text(schema: &str, versions: usize) -> String {
    let version = |i: usize| {
        let first = i == 0;
        format!(r#"{{"name":"v{}","served":true,"storage":{first},"schema":{{"openAPIV3Schema":{schema}}}}}"#, i + 1)
    };
    format!(
        r#"{{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{{"name":"things.example.com"}},"spec":{{"group":"example.com","scope":"Namespaced","names":{{"plural":"things","singular":"thing","kind":"Thing","listKind":"ThingList"}},"versions":[{}]}},"status":{{"acceptedNames":{{"plural":"things","singular":"thing","kind":"Thing","listKind":"ThingList"}},"conditions":[{{"type":"NamesAccepted","status":"True"}},{{"type":"Established","status":"True"}}],"storedVersions":["v1"]}}}}"#,
        join(versions, version)
    )
}

/// Validates, installs and publishes a definition.
fn definition(schema: &str, versions: usize) -> Step {
    let kind = kind("apiextensions.k8s.io", "v1", "customresourcedefinitions");
    let ty = ty(&kind);
    let definition = json(&definition_text(schema, versions));
    Box::new(move || {
        let written = write(&kind, &ty, definition.clone());
        let text = bytes::Bytes::from(machinery::json::to_string(&written));
        let installed = schema::custom::installed::install(&text, Revision(1), None);
        drop(black_box(installed));
    })
}

/// All steps of a create of a custom object.
fn custom(schema: &str, members: String) -> Step {
    let text = definition_text(schema, 1);
    let installed = schema::custom::installed::install(&text.into(), Revision(1), None);
    let installed = installed.unwrap_or_else(|error| panic!("{error}"));
    let kind = installed.kinds.first().cloned().unwrap_or_else(|| panic!("no kind"));
    let body = object("Thing", &members).replace("\"v1\"", "\"example.com/v1\"").into_bytes();
    Box::new(move || {
        let Some(definition) = &kind.definition else { return };
        let version = definition.version();
        for validation in [FieldValidation::Warn, FieldValidation::Strict] {
            let decoded = schema::custom::decode::decode(version, &kind.gvk, &body, MediaType::Json, validation);
            let Ok(decoded) = decoded else { continue };
            let mut value = decoded.value;
            schema::custom::decode::fill_defaults(version, &mut value);
            let errors = schema::validation::validate_create(&kind, &value, false);
            black_box(machinery::Status::invalid(&machinery::GroupResource::new("", "things"), "x", &errors));
            let errors = schema::validation::validate_update(&kind, &value, &value, &mut Vec::new());
            black_box(errors);
            managed::track_update(&Subject::new(&kind, &version.ty), None, &mut value, &writer("a"));
            black_box(schema::columns::row(&kind, &value, 0));
        }
    })
}
