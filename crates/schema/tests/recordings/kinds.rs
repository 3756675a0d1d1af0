//! Defaults, preparation and validation of recorded creates and updates, without a server.

use std::collections::HashMap;

use machinery::json::{Value, json};
use schema::decode::{self, FieldValidation, MediaType};
use schema::facts::Types;
use schema::kind::Kind;
use schema::{defaults, kinds, strategy, validation};

use super::{scenarios, steps, text};

const NOW: &str = "2026-01-01T00:00:00Z";
const UID: &str = "11111111-2222-3333-4444-555555555555";

struct Target {
    kind: &'static Kind,
    namespace: Option<String>,
    name: String,
    sub: String,
}

fn target(path: &str) -> Option<Target> {
    let (path, query) = path.split_once('?').unwrap_or((path, ""));
    if query.contains("dryRun") || query.contains("fieldValidation=Strict") {
        return None;
    }
    let segments: Vec<&str> = path.split('/').filter(|s| !s.is_empty()).collect();
    let (group, version, rest) = match segments.as_slice() {
        ["api", version, rest @ ..] => ("", *version, rest),
        ["apis", group, version, rest @ ..] => (*group, *version, rest),
        _ => return None,
    };
    let (namespace, rest) = match rest {
        ["namespaces", name, rest @ ..] if !rest.is_empty() && !["status", "finalize"].contains(&rest[0]) => {
            (Some((*name).to_owned()), rest)
        }
        rest => (None, rest),
    };
    let kind = kinds::builtin().get(group, version, rest.first()?)?;
    let segment = |at: usize| rest.get(at).copied().unwrap_or_default().to_owned();
    Some(Target { kind, namespace, name: segment(1), sub: segment(2) })
}

fn merge(target: &mut Value, patch: &Value) {
    let Some(patch) = patch.as_object() else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = json!({});
    }
    let fields = target.as_object_mut().unwrap();
    for (key, value) in patch {
        if value.is_null() {
            fields.remove(key);
        } else {
            merge(fields.entry(key.clone()).or_insert(Value::Null), value);
        }
    }
}

fn decoded(kind: &Kind, body: &Value) -> Option<Value> {
    let ty = Types::get().kind(&kind.gvk)?;
    let bytes = serde_json::to_vec(body).unwrap();
    decode::decode(&ty, &kind.gvk, &bytes, MediaType::Json, FieldValidation::Ignore, None).ok().map(|d| d.value)
}

/// Masks values that may differ, like the recording.
fn normal(value: &mut Value, key: &str) {
    match value {
        Value::Object(map) => {
            for name in ["managedFields", "resourceVersion", "nodePort", "healthCheckNodePort"] {
                map.remove(name);
            }
            if map.get("clusterIP").is_none_or(|address| address != "None") && key == "spec" {
                for name in ["clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy"] {
                    map.remove(name);
                }
            }
            for (key, value) in map.iter_mut() {
                normal(value, key);
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| normal(item, "")),
        Value::String(text) => {
            let is_time = text.len() >= 20 && text.ends_with('Z') && text[..4].chars().all(|c| c.is_ascii_digit());
            if is_time {
                *value = "$TIME".into();
            }
        }
        _ => {}
    }
}

fn causes(errors: &[machinery::FieldError]) -> Vec<(String, String, String)> {
    errors.iter().map(|e| (e.field.clone(), e.kind.reason().to_owned(), e.body())).collect()
}

fn expected_causes(body: &Value) -> Vec<(String, String, String)> {
    let list = body["details"]["causes"].as_array().cloned().unwrap_or_default();
    let word = |cause: &Value, key: &str| cause[key].as_str().unwrap_or_default().to_owned();
    list.iter().map(|cause| (word(cause, "field"), word(cause, "reason"), word(cause, "message"))).collect()
}

#[derive(Default)]
struct Score {
    right: usize,
    nearly: usize,
    wrong: Vec<String>,
}

impl Score {
    fn causes(&mut self, what: &str, body: &Value, expected: &Value, errors: &[machinery::FieldError]) {
        let (mut got, mut want) = (causes(errors), expected_causes(expected));
        got.sort();
        want.sort();
        let short = |list: &[(String, String, String)]| -> Vec<(String, String)> {
            list.iter().map(|(field, reason, _)| (field.clone(), reason.clone())).collect()
        };
        if got == want {
            self.right += 1;
        } else if short(&got) == short(&want) {
            self.nearly += 1;
            if std::env::var_os("SHOW_NEARLY").is_some() {
                println!("NEARLY {what}\n   want {want:?}\n   got  {got:?}");
            }
        } else {
            self.wrong.push(format!("{what}\n   body {body}\n   want {want:?}\n   got  {got:?}"));
        }
    }

    /// Removes warnings about the body text and pod security, which other crates add.
    fn warnings(&mut self, what: &str, body: &Value, answer: &Value, got: &[String]) {
        let list = answer["warnings"].as_array().cloned().unwrap_or_default();
        let expected: Vec<String> = list
            .iter()
            .filter_map(|text| {
                text.as_str()?.strip_prefix("299 - \"")?.strip_suffix('"').map(|t| t.replace("\\\"", "\""))
            })
            .filter(|text| {
                !["unknown field", "duplicate field", "PodSecurity"].iter().any(|other| text.contains(other))
            })
            .collect();
        if expected == got {
            self.right += 1;
        } else {
            self.wrong.push(format!("{what}\n   body {body}\n   want {expected:?}\n   got  {got:?}"));
        }
    }

    fn object(&mut self, what: &str, body: &Value, mut expected: Value, mut got: Value) {
        normal(&mut expected, "");
        normal(&mut got, "");
        if expected == got {
            self.right += 1;
        } else {
            self.wrong.push(format!("{what}\n   body {body}\n   want {expected}\n   got  {got}"));
        }
    }

    fn report(self, what: &str, least: usize) {
        let all = self.right + self.nearly + self.wrong.len();
        if all == 0 {
            return;
        }
        for wrong in &self.wrong {
            println!("{wrong}");
        }
        let percent = (self.right + self.nearly) * 100 / all;
        println!(
            "{what}: {all} compared, {} equal, {} but for words, {} differ: {percent} %",
            self.right,
            self.nearly,
            self.wrong.len()
        );
        assert!(percent >= least, "{what}: {percent} % agree, {least} % did before");
    }
}

fn prepare_new(target: &Target, body: &Value) -> Option<Value> {
    let mut object = decoded(target.kind, body)?;
    defaults::apply(target.kind, &mut object, None);
    let metadata = object.as_object_mut()?.entry("metadata").or_insert(json!({})).as_object_mut()?;
    for name in ["selfLink", "deletionTimestamp", "deletionGracePeriodSeconds", "managedFields", "resourceVersion"] {
        metadata.remove(name);
    }
    metadata.insert("uid", UID.into());
    metadata.insert("creationTimestamp", NOW.into());
    if let (true, Some(namespace)) = (target.kind.namespaced, &target.namespace) {
        let namespace = if namespace == "$NS" { "ns" } else { namespace };
        metadata.insert("namespace", namespace.into());
    }
    strategy::admit_create(target.kind, &mut object);
    strategy::prepare_for_create(target.kind, &mut object);
    allocate(target.kind, &mut object);
    Some(object)
}

/// Sets the fields of services that the server allocates.
fn allocate(kind: &Kind, object: &mut Value) {
    if kind.gvk.kind != "Service" || !kind.gvk.group.is_empty() {
        return;
    }
    let spec = &mut object["spec"];
    if spec["type"] == "LoadBalancer"
        && spec["externalTrafficPolicy"] == "Local"
        && spec["healthCheckNodePort"].is_null()
    {
        spec["healthCheckNodePort"] = 30000.into();
    }
}

/// Replaces the placeholders of a recording.
fn concrete(value: &Value) -> Value {
    let mut text = value.to_string();
    for (word, meaning) in [
        ("$NS", "ns"),
        ("$ID", "abcdef"),
        ("$UID", UID),
        ("$TIME", NOW),
        ("$IP", "10.96.0.5"),
        ("\"$PORT\"", "30001"),
        ("$RV", "7"),
    ] {
        text = text.replace(word, meaning);
    }
    serde_json::from_str(&text).unwrap()
}

#[test]
fn kinds_agree() {
    let (mut creates, mut refusals, mut updates) = (Score::default(), Score::default(), Score::default());
    let mut said = Score::default();
    for scenario in scenarios("kinds.json") {
        let scenario = concrete(&scenario);
        let name = text(&scenario, "name").to_owned();
        let mut stored: HashMap<(String, String), Value> = HashMap::new();
        for step in steps(&scenario) {
            let (answer, body) = (&step["answer"], &step["body"]);
            let status = answer["status"].as_u64().unwrap_or(0);
            let Some(target) = target(text(step, "path")) else { continue };
            let key = |name: &str| (target.kind.collection.clone(), name.to_owned());
            let invalid = status == 422
                && answer["body"]["reason"] == "Invalid"
                && answer["body"]["details"]["kind"] == target.kind.gvk.kind.as_str();
            let what = format!("{name}: {} {}", text(step, "method"), text(step, "path"));
            if step["method"] == "POST" && target.name.is_empty() && body.is_object() && body.get("$raw").is_none() {
                if let (201, Some(object)) = (status, answer["body"]["metadata"]["name"].as_str()) {
                    stored.insert(key(object), answer["body"].clone());
                }
                let Some(got) = prepare_new(&target, body) else { continue };
                let errors = validation::validate_create(target.kind, &got, false);
                if invalid {
                    refusals.causes(&what, body, &answer["body"], &errors);
                } else if status == 201 && target.kind.stored() {
                    if errors.is_empty() {
                        said.warnings(&what, body, answer, &schema::warnings::on_write(target.kind, &got, None, false));
                        creates.object(&what, body, answer["body"].clone(), got);
                    } else {
                        creates.causes(&what, body, &json!({}), &errors);
                    }
                }
                continue;
            }
            let Some(old) = stored.get(&key(&target.name)).cloned() else { continue };
            if !["", "status", "resize", "ephemeralcontainers", "finalize", "approval"].contains(&target.sub.as_str()) {
                continue;
            }
            let new = match (text(step, "method"), text(&step["headers"], "Content-Type")) {
                ("PUT", _) => body.clone(),
                ("PATCH", "application/merge-patch+json") => {
                    let mut new = old.clone();
                    merge(&mut new, body);
                    new
                }
                _ => {
                    if status == 200 && step["method"] != "GET" {
                        stored.insert(key(&target.name), answer["body"].clone());
                    }
                    continue;
                }
            };
            if status == 200 {
                stored.insert(key(&target.name), answer["body"].clone());
            }
            let Some(mut new) = decoded(target.kind, &new) else { continue };
            defaults::apply(target.kind, &mut new, None);
            for field in [
                "resourceVersion",
                "uid",
                "creationTimestamp",
                "deletionTimestamp",
                "deletionGracePeriodSeconds",
                "namespace",
            ] {
                let kept = &old["metadata"][field];
                if !kept.is_null() && (new["metadata"][field].is_null() || field != "uid" && field != "namespace") {
                    new["metadata"][field] = kept.clone();
                }
            }
            let (kind, sub) = (target.kind, target.sub.as_str());
            let errors = if sub.is_empty() {
                strategy::admit_update(kind, &mut new, &old);
                strategy::prepare_for_update(kind, &mut new, &old);
                allocate(kind, &mut new);
                validation::validate_update(kind, &new, &old, &mut Vec::new())
            } else {
                strategy::prepare_for_subresource_update(kind, sub, &mut new, &old, NOW);
                validation::validate_subresource_update(kind, sub, &new, &old, &mut Vec::new())
            };
            if invalid {
                updates.causes(&what, body, &answer["body"], &errors);
            } else if status == 200 {
                if errors.is_empty() {
                    if sub.is_empty() {
                        said.warnings(&what, body, answer, &schema::warnings::on_write(kind, &new, Some(&old), false));
                    }
                    updates.object(&what, body, answer["body"].clone(), new);
                } else {
                    updates.causes(&what, body, &json!({}), &errors);
                }
            }
        }
    }
    said.report("warnings", 98);
    creates.report("creates", 96);
    refusals.report("refusals", 96);
    updates.report("updates", 96);
}
