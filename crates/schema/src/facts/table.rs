//! Reads `types.tsv`: one line per type, numbered by the count of type lines before it.
//!
//! ```text
//! S <name> <scalar> [values]               a scalar, or `raw` / `json`; what a string may be, separated by |
//! L <name> <item> a|s|m:<key>,<key> [w]    a list: atomic, a set, a map by keys; w: in protobuf a message of its own
//! M <name> <value> a|g                     a map: atomic, granular
//! O <name> a|g [definition] [unions]       an object; its fields follow, each on a line that starts with a tab:
//!   <name> <type> <flags> <number> <wire> <patch strategy> <merge key> <preset> <embedded structs> <published>
//!                                          flags: p pointer, e omitempty, z omitzero; number: 3, 2.1 or -
//!                                          published: r required, l list type, m map type, n no default, d=<default>
//! C <type> a|g                             that type with another merge behaviour
//! E <name> <object> bool|array|strings     an object, or its short form
//! K <group> <version> <kind> <type>        a kind
//! ```
//!
//! Values, definition, unions and published are for OpenAPI documents only; `openapi` reads them on demand.
//!
//! The text is part of the binary and generated, so a malformed line panics; a test reads the whole table.

use std::borrow::Cow;

use super::shape::{
    Either, Field, Form, List, Listing, Node, NodeId, Object, Other, Scalar, Shapes, Special, Strategy,
};

type Kinds = Vec<(&'static str, &'static str, &'static str, NodeId)>;

pub(super) fn read(text: &'static str) -> (Shapes, Kinds) {
    let mut nodes: Vec<Node> = Vec::with_capacity(1200);
    let mut copies: Vec<(usize, usize, bool)> = Vec::new();
    let mut kinds = Kinds::with_capacity(160);
    for line in text.lines() {
        let mut columns = line.split('\t');
        let tag = columns.next().unwrap_or_default();
        let mut next = || columns.next().unwrap_or_default();
        match tag {
            "" => {
                let field = field(&mut next);
                match nodes.last_mut().map(|node| &mut node.form) {
                    Some(Form::Object(object)) => object.fields.push(field),
                    _ => panic!("types.tsv: a field outside an object: {line}"),
                }
            }
            "S" => {
                let name = Cow::Borrowed(next());
                nodes.push(Node { name, form: scalar(next()) });
            }
            "L" => {
                let name = Cow::Borrowed(next());
                let item = number(next());
                let listing = listing(next());
                nodes.push(Node { name, form: Form::List(List { item, listing, wrapped: next() == "w" }) });
            }
            "M" => {
                let name = Cow::Borrowed(next());
                let rest = Some(number(next()));
                let atomic = next() == "a";
                nodes.push(Node { name, form: Form::Object(Object { rest, atomic, ..Object::default() }) });
            }
            "O" => {
                let name = Cow::Borrowed(next());
                let atomic = next() == "a";
                nodes.push(Node { name, form: Form::Object(Object { atomic, ..Object::default() }) });
            }
            "E" => {
                let name = Cow::Borrowed(next());
                let object = number(next());
                let other = match next() {
                    "bool" => Other::Bool,
                    "array" => Other::Objects,
                    _ => Other::Strings,
                };
                nodes.push(Node { name, form: Form::Either(Either { object, other }) });
            }
            "C" => {
                copies.push((nodes.len(), number(next()).0 as usize, next() == "a"));
                nodes.push(Node { name: Cow::Borrowed(""), form: Form::Raw });
            }
            "K" => kinds.push((next(), next(), next(), number(next()))),
            comment if comment.starts_with('#') => {}
            _ => panic!("types.tsv: what is {line:?}"),
        }
    }
    let shown: Vec<OmitEmpty> = nodes.iter().map(OmitEmpty::new).collect();
    for node in &mut nodes {
        if let Form::Object(object) = &mut node.form {
            object.index(|field| is_shown(field, &shown));
        }
    }
    for (at, original, atomic) in copies {
        let mut copy = nodes[original].clone();
        if let Form::Object(object) = &mut copy.form {
            object.atomic = atomic;
        }
        nodes[at] = copy;
    }
    kinds.sort_unstable_by_key(|(g, v, k, _)| (*g, *v, *k));
    (Shapes { nodes, ..Shapes::default() }, kinds)
}

/// The effect of omitempty on a type.
#[derive(Clone, Copy, PartialEq, Eq)]
enum OmitEmpty {
    /// A struct is never empty.
    Never,
    IfEmpty,
}

impl OmitEmpty {
    fn new(node: &Node) -> OmitEmpty {
        match &node.form {
            Form::Object(object) if object.rest.is_none() => OmitEmpty::Never,
            Form::Scalar(Scalar::Time | Scalar::MicroTime | Scalar::Quantity | Scalar::IntOrString)
            | Form::Scalar(Scalar::Duration)
            | Form::Raw
            | Form::Any { .. }
            | Form::Either(_) => OmitEmpty::Never,
            _ => OmitEmpty::IfEmpty,
        }
    }
}

fn is_shown(field: &Field, shown: &[OmitEmpty]) -> bool {
    if field.omit_zero {
        return false;
    }
    !field.omit_empty || (!field.pointer && shown[field.node.0 as usize] == OmitEmpty::Never)
}

fn field(next: &mut impl FnMut() -> &'static str) -> Field {
    let name = Cow::Borrowed(next());
    let node = number(next());
    let flags = next();
    let protobuf = match next() {
        "-" => Box::default(),
        path => path.split('.').map(|n| n.parse().expect("types.tsv: a protobuf number")).collect(),
    };
    let _wire = next();
    let strategies = next();
    let merge_key = next();
    let preset = next();
    let within = next();
    let has = |wanted: &str| strategies.split(',').any(|s| s == wanted);
    Field {
        name,
        node,
        pointer: flags.contains('p'),
        omit_empty: flags.contains('e'),
        omit_zero: flags.contains('z'),
        shown: false,
        protobuf,
        special: Special {
            strategy: Strategy {
                merge: has("merge"),
                replace: has("replace"),
                retain_keys: has("retainKeys"),
                merge_key: (!merge_key.is_empty()).then_some(Cow::Borrowed(merge_key)),
            },
            within: Cow::Borrowed(within),
            preset: (!preset.is_empty()).then(|| serde_json::from_str(preset).expect("types.tsv: a preset is JSON")),
        }
        .kept(),
    }
}

fn number(text: &str) -> NodeId {
    NodeId(text.parse().expect("types.tsv: the number of a type"))
}

fn listing(text: &'static str) -> Listing {
    match text {
        "a" => Listing::Atomic,
        "s" => Listing::Set,
        keys => {
            let keys = keys.strip_prefix("m:").expect("types.tsv: a list is a, s or m:");
            Listing::Map(keys.split(',').map(Cow::Borrowed).collect())
        }
    }
}

fn scalar(text: &str) -> Form {
    Form::Scalar(match text {
        "string" => Scalar::String,
        "bool" => Scalar::Bool,
        "int32" => Scalar::Int32,
        "int64" => Scalar::Int64,
        "float64" => Scalar::Float64,
        "bytes" => Scalar::Bytes,
        "time" => Scalar::Time,
        "microtime" => Scalar::MicroTime,
        "duration" => Scalar::Duration,
        "quantity" => Scalar::Quantity,
        "intorstring" => Scalar::IntOrString,
        "raw" => return Form::Raw,
        "json" => return Form::Any { atomic: false },
        other => panic!("types.tsv: what scalar is {other:?}"),
    })
}
