//! Pod templates: whether two are the same, and the short name of one.

use k8s_openapi::api::core::v1::PodTemplateSpec;
use serde::Serialize;
use serde_json::Value;

/// The label that tells the pods of one template from those of another.
pub(crate) const HASH_LABEL: &str = "pod-template-hash";

/// Whether two templates describe the same pods; the hash label is not part of the description (DP-10). Absent and empty are
/// the same.
pub(crate) fn same(a: &PodTemplateSpec, b: &PodTemplateSpec) -> bool {
    if a == b {
        return true;
    }
    described(a) == described(b)
}

fn described(template: &PodTemplateSpec) -> Value {
    let mut value = serde_json::to_value(template).unwrap_or_default();
    if let Some(labels) = value.pointer_mut("/metadata/labels").and_then(Value::as_object_mut) {
        labels.remove(HASH_LABEL);
    }
    without_empty(&mut value);
    value
}

/// Fields that are maps, or hold nothing that means something by being there.
const MAPS: [&str; 9] =
    ["annotations", "labels", "limits", "matchLabels", "metadata", "nodeSelector", "overhead", "requests", "resources"];

/// Removes lists and maps that are empty, at every depth. An empty object in any other field is something: `emptyDir: {}`.
pub(crate) fn without_empty(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.values_mut().for_each(without_empty);
            fields.retain(|name, field| match field {
                Value::Null => false,
                Value::Array(items) => !items.is_empty(),
                Value::Object(fields) => !fields.is_empty() || !MAPS.contains(&name.as_str()),
                _ => true,
            });
        }
        Value::Array(items) => items.iter_mut().for_each(without_empty),
        _ => {}
    }
}

/// A short name for a value: equal values have the same for ever, since objects are named by it. `collisions` leads to
/// another name when two different values met (DP-11, DP-15).
///
/// 32 bits of FNV-1a over the JSON with sorted fields, written with the letters of generated names:
///
/// ```text
/// 2166136261 -> 65bb57b6b5
/// ```
pub(crate) fn hash<T: Serialize>(value: &T, collisions: Option<i32>) -> String {
    let mut hasher = Fnv(0x811c_9dc5);
    let mut value = serde_json::to_value(value).unwrap_or_default();
    without_empty(&mut value);
    feed(&mut hasher, &value);
    if let Some(count) = collisions {
        hasher.add(&count.to_le_bytes());
    }
    encode(hasher.0)
}

struct Fnv(u32);

impl Fnv {
    fn add(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u32::from(*byte)).wrapping_mul(0x0100_0193);
        }
    }
}

fn feed(hasher: &mut Fnv, value: &Value) {
    match value {
        Value::Object(fields) => {
            let mut sorted: Vec<_> = fields.iter().collect();
            sorted.sort_unstable_by_key(|(name, _)| *name);
            hasher.add(b"{");
            for (name, field) in sorted {
                hasher.add(name.as_bytes());
                hasher.add(b":");
                feed(hasher, field);
            }
            hasher.add(b"}");
        }
        Value::Array(items) => {
            hasher.add(b"[");
            for item in items {
                feed(hasher, item);
                hasher.add(b",");
            }
            hasher.add(b"]");
        }
        scalar => hasher.add(scalar.to_string().as_bytes()),
    }
}

/// Letters that make no words.
const LETTERS: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";

fn encode(hash: u32) -> String {
    hash.to_string().bytes().map(|digit| char::from(LETTERS[usize::from(digit) % LETTERS.len()])).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn template(value: Value) -> PodTemplateSpec {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn dp_10_templates_are_the_same_whatever_their_hash_label() {
        let plain = template(json!({"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c"}]}}));
        let labelled = template(
            json!({"metadata": {"labels": {"a": "b", HASH_LABEL: "x"}, "annotations": {}}, "spec": {"containers": [{"name": "c"}], "volumes": []}}),
        );
        let other = template(json!({"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "d"}]}}));
        assert!(same(&plain, &labelled));
        assert!(!same(&plain, &other));
        let volume =
            |source: &str| template(json!({"spec": {"containers": [], "volumes": [{"name": "v", source: {}}]}}));
        assert!(!same(&volume("emptyDir"), &volume("downwardAPI")), "an empty source is a source");
    }

    #[test]
    fn dp_11_the_hash_of_a_template_never_changes() {
        let one = template(
            json!({"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}),
        );
        // Objects of existing clusters are named by these: a different value here gives every Deployment a second name.
        assert_eq!(hash(&one, None), "fc4f7ccdf");
        assert_eq!(hash(&one, Some(1)), "56899c8968");
        assert_eq!(encode(2_166_136_261), "65bb57b6b5");
        assert!(hash(&json!(u64::MAX), None).len() <= 10);
    }
}
