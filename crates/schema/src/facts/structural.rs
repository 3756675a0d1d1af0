//! Builds the type of a custom kind from its structural schema, so that apply works like for built-in kinds.

use std::borrow::Cow;
use std::collections::HashMap;
use std::hash::{Hash as _, Hasher as _};
use std::sync::Arc;

use machinery::json::Value;

use super::Types;
use super::shape::{Field, Form, List, Listing, Node, NodeId, Object, Scalar, Shapes, Special, Type};

/// Deeper values merge as a whole.
const DEPTH_MAX: usize = 64;

impl Type {
    /// Returns the type for an `openAPIV3Schema`; without one, everything is allowed and granular.
    #[must_use]
    pub fn of_schema(schema: Option<&Value>) -> Type {
        let mut graph = Graph { shapes: Shapes::default(), meta: None, known: HashMap::new() };
        let preserve = schema.is_none_or(|schema| is_set(schema, "x-kubernetes-preserve-unknown-fields"));
        let root = graph.object(schema.unwrap_or(&Value::Null), true, Above { preserve, keys: &[], depth: 0 });
        graph.shapes.nodes.shrink_to_fit();
        Type::new(Arc::new(graph.shapes), root, true)
    }
}

struct Graph {
    shapes: Shapes,
    /// The copied `metadata`.
    meta: Option<NodeId>,
    /// Nodes by the hash of their form; equal ones are shared.
    known: HashMap<u64, Vec<NodeId>>,
}

/// Context of a schema, from the schemas above it.
#[derive(Clone, Copy)]
struct Above<'s> {
    /// Unknown fields are preserved.
    preserve: bool,
    /// The keys of the list that the value is an item of.
    keys: &'s [Value],
    depth: usize,
}

impl Above<'_> {
    fn below(self) -> Self {
        Above { keys: &[], depth: self.depth + 1, ..self }
    }
}

impl Graph {
    fn add(&mut self, form: Form) -> NodeId {
        let hash = {
            let mut hasher = std::hash::DefaultHasher::new();
            form.hash(&mut hasher);
            hasher.finish()
        };
        let alike = self.known.entry(hash).or_default();
        if let Some(known) = alike.iter().find(|id| self.shapes.node(**id).form == form) {
            return *known;
        }
        let id = self.shapes.add(Node { name: Cow::Borrowed(""), form });
        alike.push(id);
        id
    }

    fn node(&mut self, schema: &Value, above: Above<'_>) -> NodeId {
        if above.depth > DEPTH_MAX {
            return self.add(Form::Any { atomic: true });
        }
        let preserve = above.preserve || is_set(schema, "x-kubernetes-preserve-unknown-fields");
        let above = Above { preserve, ..above };
        let scalar = match schema.get("type").and_then(Value::as_str) {
            Some("object") => {
                let embedded = is_set(schema, "x-kubernetes-embedded-resource");
                return self.object(schema, embedded, above);
            }
            Some("array") => return self.list(schema, above),
            Some("integer" | "number") => Scalar::Number,
            Some("boolean") => Scalar::Bool,
            Some("string") => match schema.get("format").and_then(Value::as_str) {
                None | Some("" | "byte") => Scalar::String,
                Some(_) => Scalar::Untyped,
            },
            _ if schema.get("properties").is_some() => return self.object(schema, false, above),
            _ if is_set(schema, "x-kubernetes-int-or-string") => Scalar::Untyped,
            _ => return self.add(Form::Any { atomic: false }),
        };
        self.add(Form::Scalar(scalar))
    }

    fn object(&mut self, schema: &Value, resource: bool, above: Above<'_>) -> NodeId {
        let mut fields = Vec::new();
        let keys: std::collections::HashSet<&str> = above.keys.iter().filter_map(Value::as_str).collect();
        let properties = schema.get("properties").and_then(Value::as_object);
        for (name, property) in properties.into_iter().flatten() {
            if resource && name == "metadata" {
                continue;
            }
            let node = self.node(property, above.below());
            // Presets are only used for keys.
            let is_key = keys.contains(name.as_str());
            fields.push(field(name.to_string(), node, property.get("default").filter(|_| is_key).cloned()));
        }
        if resource {
            let meta = self.meta();
            fields.push(field("metadata".to_owned(), meta, None));
            for name in ["apiVersion", "kind"] {
                if !fields.iter().any(|f| f.name == name) {
                    let node = self.add(Form::Scalar(Scalar::String));
                    fields.push(field(name.to_owned(), node, None));
                }
            }
        }
        fields.sort_by(|a, b| a.name.cmp(&b.name));
        fields.shrink_to_fit();
        let rest = match schema.get("additionalProperties") {
            Some(Value::Bool(false)) => None,
            Some(Value::Bool(true)) => Some(self.add(Form::Any { atomic: false })),
            Some(values) => Some(self.node(values, above.below())),
            None if above.preserve || properties.is_none_or(machinery::json::Map::is_empty) => {
                Some(self.add(Form::Any { atomic: false }))
            }
            None => None,
        };
        let atomic = schema.get("x-kubernetes-map-type").and_then(Value::as_str) == Some("atomic");
        let mut object = Object { fields, rest, atomic, ..Object::default() };
        object.index(|_| false);
        self.add(Form::Object(object))
    }

    fn list(&mut self, schema: &Value, above: Above<'_>) -> NodeId {
        let keys = schema.get("x-kubernetes-list-map-keys").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        let (listing, keys) = match schema.get("x-kubernetes-list-type").and_then(Value::as_str) {
            Some("set") => (Listing::Set, &[][..]),
            Some("map") => {
                let names = keys.iter().filter_map(Value::as_str).map(|key| Cow::Owned(key.to_owned()));
                (Listing::Map(names.collect()), keys)
            }
            _ => (Listing::Atomic, &[][..]),
        };
        let item = match schema.get("items") {
            Some(items) => self.node(items, Above { keys, ..above.below() }),
            None => self.add(Form::Any { atomic: true }),
        };
        self.add(Form::List(List { item, listing, wrapped: false }))
    }

    /// Copies the type of `metadata` from the built-in kinds.
    fn meta(&mut self) -> NodeId {
        if let Some(meta) = self.meta {
            return meta;
        }
        let meta = Types::get().object_meta();
        let copy = self.copy(meta.shapes(), meta.root(), &mut HashMap::new());
        self.meta = Some(copy);
        copy
    }

    fn copy(&mut self, from: &Shapes, id: NodeId, done: &mut HashMap<NodeId, NodeId>) -> NodeId {
        if let Some(copied) = done.get(&id) {
            return *copied;
        }
        let at = self.shapes.add(from.node(id).clone());
        done.insert(id, at);
        let mut node = from.node(id).clone();
        match &mut node.form {
            Form::List(list) => list.item = self.copy(from, list.item, done),
            Form::Object(object) => {
                for field in &mut object.fields {
                    field.node = self.copy(from, field.node, done);
                }
                object.rest = object.rest.map(|rest| self.copy(from, rest, done));
            }
            _ => {}
        }
        self.shapes.nodes[at.0 as usize] = node;
        at
    }
}

fn is_set(schema: &Value, name: &str) -> bool {
    schema.get(name).and_then(Value::as_bool) == Some(true)
}

fn field(name: String, node: NodeId, preset: Option<Value>) -> Field {
    Field {
        name: Cow::Owned(name),
        node,
        pointer: true,
        omit_empty: false,
        omit_zero: false,
        shown: false,
        protobuf: Box::default(),
        special: Special { preset, ..Special::default() }.kept(),
    }
}

#[cfg(test)]
mod tests {
    use machinery::json::json;

    use super::*;

    #[test]
    fn lists_maps_and_free_parts() {
        let thing = Type::of_schema(Some(
            &json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {
                "set": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
                "map": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k", "p"],
                        "items": {"type": "object", "properties": {"k": {"type": "string"}, "p": {"type": "string", "default": "d"}}}},
                "one": {"type": "object", "x-kubernetes-map-type": "atomic", "additionalProperties": {"type": "string"}},
                "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
                "port": {"x-kubernetes-int-or-string": true},
            }}}}),
        ));
        let spec = thing.field("spec").unwrap();
        let Form::List(list) = &spec.field("map").unwrap().node().form.clone() else { panic!("a list") };
        assert_eq!(list.listing, Listing::Map(vec!["k".into(), "p".into()]));
        let Form::Object(item) = &spec.field("map").unwrap().item().unwrap().node().form.clone() else {
            panic!("object")
        };
        assert_eq!(item.field("p").unwrap().preset(), Some(&json!("d")));
        let Form::Object(one) = &spec.field("one").unwrap().node().form.clone() else { panic!("an object") };
        assert!(one.atomic);
        assert!(spec.field("free").unwrap().field("anything").is_some());
        assert!(spec.field("nope").is_none());
        assert!(matches!(spec.field("port").unwrap().node().form, Form::Scalar(Scalar::Untyped)));
        assert!(thing.field("metadata").unwrap().field("ownerReferences").is_some());
    }

    #[test]
    fn equal_parts_are_one_and_only_keys_have_presets() {
        let block = json!({"type": "object", "properties": {"k": {"type": "string", "default": "d"}, "n": {"type": "integer"}}});
        let list = json!({"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"], "items": block});
        let properties = json!({"a": block, "b": block, "c": list, "d": list});
        let thing = Type::of_schema(Some(&json!({"type": "object", "properties": properties})));
        let node = |name: &str| thing.field(name).unwrap().root();
        assert!(node("a") == node("b") && node("c") == node("d"));
        let preset = |of: Type| match &of.node().form {
            Form::Object(object) => object.field("k").unwrap().preset().cloned(),
            other => panic!("an object, not {other:?}"),
        };
        assert_eq!(preset(thing.field("c").unwrap().item().unwrap()), Some(json!("d")));
        assert_eq!(preset(thing.field("a").unwrap()), None);
    }
}
