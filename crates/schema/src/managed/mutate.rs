//! Apply configurations of mutating policies: merged like those of server-side apply, without ownership.

use machinery::json::Value;

use super::check::check;
use super::element::Element;
use super::entries;
use super::merge::merge;
use super::update::{Subject, list};
use crate::decode::coerce::{Words, coerce};
use crate::decode::{self, forget_empty};
use crate::facts::{Form, Listing, NodeId, Shapes};

/// Merges a configuration into an object. Nothing is removed, and nothing is replaced as a whole. The error is its text.
pub fn merge_unowned(subject: &Subject<'_>, live: &Value, config: &Value) -> Result<Value, String> {
    let (shapes, root) = (subject.ty.shapes(), subject.ty.root());
    check(shapes, root, config).map_err(|why| format!("failed to convert patch object to typed object: {why}"))?;
    let mut atomic = Vec::new();
    find_atomic(shapes, root, config, &mut Vec::new(), &mut atomic);
    if !atomic.is_empty() {
        let paths = atomic.join(", ");
        return Err(format!("invalid ApplyConfiguration: may not mutate atomic arrays, maps or structs: {paths}"));
    }
    let mut base = live.clone();
    let managed = list(live).cloned();
    entries::take(&mut base);
    let mut merged = merge(shapes, root, &base, config);
    if let (Some(managed), Some(metadata)) = (managed, merged.get_mut("metadata").and_then(Value::as_object_mut)) {
        metadata.insert("managedFields", managed);
    }
    if !subject.custom {
        coerce(subject.ty, &mut merged, None, Words::Converter).map_err(|why| {
            let gvk = subject.gvk;
            format!("unable to convert unstructured object to {}/{}, Kind={}: {why}", gvk.group, gvk.version, gvk.kind)
        })?;
        decode::name(&mut merged, subject.gvk);
    }
    forget_empty(subject.ty, &mut merged, None);
    Ok(merged)
}

/// Collects the paths of lists, maps and structs that a configuration could only replace as a whole.
fn find_atomic(shapes: &Shapes, id: NodeId, value: &Value, path: &mut Vec<Element>, found: &mut Vec<String>) {
    let shown = |path: &[Element]| path.iter().map(ToString::to_string).collect::<String>();
    match (&shapes.node(id).form, value) {
        (Form::Object(object), Value::Object(map)) => {
            if object.atomic {
                found.push(shown(path));
            }
            for (name, value) in map {
                // Entries of maps are not looked into.
                if let Some(field) = object.fields.iter().find(|field| field.name == name.as_str()) {
                    path.push(Element::field(name));
                    find_atomic(shapes, field.node, value, path, found);
                    path.pop();
                }
            }
        }
        (Form::List(list), Value::Array(items)) => {
            if list.listing == Listing::Atomic {
                found.push(shown(path));
            }
            for (at, item) in items.iter().enumerate() {
                path.push(Element::Index(i64::try_from(at).unwrap_or(i64::MAX)));
                find_atomic(shapes, list.item, item, path, found);
                path.pop();
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use machinery::json::json;

    use super::*;
    use crate::facts::Types;
    use crate::kinds::builtin;

    fn merged(plural: &str, live: Value, config: Value) -> Result<Value, String> {
        let kind = builtin().get("", "v1", plural).unwrap();
        let ty = Types::get().kind(&kind.gvk).unwrap();
        merge_unowned(&Subject::new(kind, &ty), &live, &config)
    }

    fn pod(spec: Value) -> Value {
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "managedFields": [{"manager": "m"}]}, "spec": spec})
    }

    #[test]
    fn map_4_lists_are_merged_by_key_and_nothing_is_removed() {
        let live = pod(json!({"containers": [{"name": "a", "image": "i"}], "nodeName": "n"}));
        let config = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"labels": {"l": "v"}}, "spec": {
            "containers": [{"name": "b", "image": "j"}, {"name": "a", "env": [{"name": "E", "value": "1"}]}]}});
        let result = merged("pods", live, config).unwrap();
        assert_eq!(result["metadata"]["managedFields"][0]["manager"], "m");
        assert_eq!(result["metadata"]["labels"], json!({"l": "v"}));
        assert_eq!(result["spec"]["nodeName"], "n");
        let containers = result["spec"]["containers"].as_array().unwrap();
        assert_eq!(containers.len(), 2);
        let a = containers.iter().find(|container| container["name"] == "a").unwrap();
        assert_eq!((&a["image"], &a["env"]), (&json!("i"), &json!([{"name": "E", "value": "1"}])));
    }

    #[test]
    fn map_4_atomic_parts_and_unknown_fields_are_refused() {
        let live = || pod(json!({"containers": [{"name": "a", "image": "i"}]}));
        let config = |spec: Value| json!({"apiVersion": "v1", "kind": "Pod", "spec": spec});
        for (spec, why) in [
            (
                json!({"containers": [{"name": "a", "args": ["x"]}]}),
                "invalid ApplyConfiguration: may not mutate atomic arrays, maps or structs: .spec.containers[0].args",
            ),
            (
                json!({"nope": 1}),
                "failed to convert patch object to typed object: .spec.nope: field not declared in schema",
            ),
        ] {
            assert_eq!(merged("pods", live(), config(spec)), Err(why.to_owned()));
        }
    }
}
