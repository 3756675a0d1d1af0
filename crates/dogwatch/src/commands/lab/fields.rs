//! The fields in which two values differ.

use machinery::json::{Value, json};

/// A field that one of two values has, or both have with other contents.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct FieldChange {
    /// `spec.replicas`, `spec.ports[0].port`.
    pub(super) path: String,
    pub(super) before: Option<Value>,
    pub(super) after: Option<Value>,
}

impl FieldChange {
    pub(super) fn value(&self) -> Value {
        let mut value = json!({"path": self.path});
        for (name, side) in [("before", &self.before), ("after", &self.after)] {
            if let Some(side) = side {
                value[name] = side.clone();
            }
        }
        value
    }

    pub(super) fn line(&self) -> String {
        let side = |value: &Option<Value>| value.as_ref().map_or_else(|| "(none)".to_owned(), Value::to_string);
        format!("{}: {} -> {}", self.path, side(&self.before), side(&self.after))
    }
}

/// The differences of two values, in the order of their fields.
pub(super) fn changes(before: &Value, after: &Value) -> Vec<FieldChange> {
    let mut found = Vec::new();
    compare("", Some(before), Some(after), &mut found);
    found
}

fn compare(path: &str, before: Option<&Value>, after: Option<&Value>, found: &mut Vec<FieldChange>) {
    match (before, after) {
        (Some(one), Some(other)) if one == other => {}
        (Some(Value::Object(one)), Some(Value::Object(other))) => {
            let added = other.keys().filter(|name| !one.contains_key(name));
            let mut names: Vec<&str> = one.keys().chain(added).map(|name| name.as_ref()).collect();
            names.sort_unstable();
            for name in names {
                let path = if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") };
                compare(&path, one.get(name), other.get(name), found);
            }
        }
        (Some(Value::Array(one)), Some(Value::Array(other))) => {
            for at in 0..one.len().max(other.len()) {
                compare(&format!("{path}[{at}]"), one.get(at), other.get(at), found);
            }
        }
        _ => found.push(FieldChange { path: path.to_owned(), before: before.cloned(), after: after.cloned() }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wld_10_fields_are_named_by_their_path() {
        let before = json!({"spec": {"replicas": 1, "ports": [{"port": 80}], "gone": true}, "same": {"a": 1}});
        let after = json!({"spec": {"replicas": 2, "ports": [{"port": 80}, {"port": 81}]}, "same": {"a": 1}});
        let lines: Vec<String> = changes(&before, &after).iter().map(FieldChange::line).collect();
        assert_eq!(
            lines,
            ["spec.gone: true -> (none)", "spec.ports[1]: (none) -> {\"port\":81}", "spec.replicas: 1 -> 2",]
        );
        assert!(changes(&before, &before).is_empty());
    }
}
