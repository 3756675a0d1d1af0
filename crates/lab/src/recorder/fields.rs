//! Which fields of an object changed, as paths: `spec.template.spec.containers[name=web].image`.

use machinery::json::{Map, Value};

/// Paths that are kept of one change.
const PATHS_MAX: usize = 64;
/// Paths in the one-line summary.
const SUMMARY_MAX: usize = 4;
/// Members by which entries of a list are named, where all have one and each another.
const KEYS: [&str; 3] = ["name", "type", "key"];

/// The fields that a change added, changed and removed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct FieldChanges {
    pub(crate) added: Vec<Box<str>>,
    pub(crate) changed: Vec<Box<str>>,
    pub(crate) removed: Vec<Box<str>>,
    /// There were more.
    pub(crate) truncated: bool,
}

impl FieldChanges {
    /// Compares two states of an object. What each write changes anyway is left out: the revision, and managed fields.
    pub(crate) fn between(old: &Value, new: &Value) -> Self {
        let mut changes = FieldChanges::default();
        changes.compare(&mut String::new(), old, new);
        changes
    }

    pub(crate) fn bytes(&self) -> usize {
        let paths = [&self.added, &self.changed, &self.removed];
        paths.iter().flat_map(|paths| paths.iter()).map(|path| path.len() + size_of::<Box<str>>()).sum()
    }

    /// The fields in one line: `~status.replicas, +spec.paused`.
    pub(crate) fn summary(&self) -> String {
        let marked = [("+", &self.added), ("~", &self.changed), ("-", &self.removed)];
        let all: Vec<String> =
            marked.iter().flat_map(|(mark, paths)| paths.iter().map(move |path| format!("{mark}{path}"))).collect();
        let more = all.len().saturating_sub(SUMMARY_MAX);
        let shown = all.get(..SUMMARY_MAX.min(all.len())).unwrap_or_default().join(", ");
        if more == 0 { shown } else { format!("{shown} and {more} more") }
    }

    fn push(&mut self, which: fn(&mut Self) -> &mut Vec<Box<str>>, path: &str) {
        if self.added.len() + self.changed.len() + self.removed.len() >= PATHS_MAX {
            self.truncated = true;
            return;
        }
        which(self).push(path.into());
    }

    fn compare(&mut self, path: &mut String, old: &Value, new: &Value) {
        match (old, new) {
            _ if old == new => {}
            (Value::Object(old), Value::Object(new)) => self.compare_members(path, old, new),
            (Value::Array(old), Value::Array(new)) => self.compare_entries(path, old, new),
            _ => self.push(|changes| &mut changes.changed, path),
        }
    }

    fn compare_members(&mut self, path: &mut String, old: &Map, new: &Map) {
        for (name, value) in new {
            let whole = within(path, |path| {
                if !path.is_empty() {
                    path.push('.');
                }
                path.push_str(name);
            });
            if !is_bookkeeping(path) {
                match old.get(name) {
                    Some(before) => self.compare(path, before, value),
                    None => self.push(|changes| &mut changes.added, path),
                }
            }
            path.truncate(whole);
        }
        for (name, _) in old.iter().filter(|(name, _)| new.get(name).is_none()) {
            let whole = within(path, |path| {
                if !path.is_empty() {
                    path.push('.');
                }
                path.push_str(name);
            });
            if !is_bookkeeping(path) {
                self.push(|changes| &mut changes.removed, path);
            }
            path.truncate(whole);
        }
    }

    fn compare_entries(&mut self, path: &mut String, old: &[Value], new: &[Value]) {
        let Some(key) = KEYS.into_iter().find(|key| is_key(key, old) && is_key(key, new)) else {
            for at in 0..old.len().max(new.len()) {
                let whole = within(path, |path| path.push_str(&format!("[{at}]")));
                match (old.get(at), new.get(at)) {
                    (Some(before), Some(after)) => self.compare(path, before, after),
                    (None, _) => self.push(|changes| &mut changes.added, path),
                    (_, None) => self.push(|changes| &mut changes.removed, path),
                }
                path.truncate(whole);
            }
            return;
        };
        let named = |entries: &[Value], wanted: &Value| entries.iter().position(|entry| entry[key] == *wanted);
        for entry in new {
            let whole = within(path, |path| path.push_str(&entry_name(key, entry)));
            match named(old, &entry[key]).and_then(|at| old.get(at)) {
                Some(before) => self.compare(path, before, entry),
                None => self.push(|changes| &mut changes.added, path),
            }
            path.truncate(whole);
        }
        for entry in old.iter().filter(|entry| named(new, &entry[key]).is_none()) {
            let whole = within(path, |path| path.push_str(&entry_name(key, entry)));
            self.push(|changes| &mut changes.removed, path);
            path.truncate(whole);
        }
    }
}

/// Extends a path; returns the length to which it is cut again.
fn within(path: &mut String, extend: impl FnOnce(&mut String)) -> usize {
    let whole = path.len();
    extend(path);
    whole
}

fn is_bookkeeping(path: &str) -> bool {
    matches!(path, "metadata.resourceVersion" | "metadata.managedFields")
}

fn entry_name(key: &str, entry: &Value) -> String {
    format!("[{key}={}]", entry[key].as_str().unwrap_or_default())
}

/// Whether each entry has a text of its own under a key.
fn is_key(key: &str, entries: &[Value]) -> bool {
    let mut seen: Vec<&str> = Vec::with_capacity(entries.len());
    // Long lists are compared by index: finding their entries by key would take quadratic time.
    entries.len() <= 64
        && entries.iter().all(|entry| match entry[key].as_str() {
            Some(text) if !seen.contains(&text) => {
                seen.push(text);
                true
            }
            _ => false,
        })
}

#[cfg(test)]
mod tests {
    use machinery::json::json;

    use super::*;

    #[test]
    fn see_3_fields_are_named_by_path_and_key() {
        let old = json!({"metadata": {"name": "web", "resourceVersion": "1", "managedFields": [1]},
            "spec": {"replicas": 1, "paused": true, "args": ["a", "b"],
                "containers": [{"name": "web", "image": "a"}, {"name": "old"}]}});
        let new = json!({"metadata": {"name": "web", "resourceVersion": "2", "labels": {"a": "b"}},
            "spec": {"replicas": 2, "args": ["a", "c", "d"],
                "containers": [{"name": "new"}, {"name": "web", "image": "b"}]}});
        let changes = FieldChanges::between(&old, &new);
        let texts = |paths: &[Box<str>]| paths.iter().map(|path| path.to_string()).collect::<Vec<_>>();
        assert_eq!(texts(&changes.added), ["metadata.labels", "spec.args[2]", "spec.containers[name=new]"]);
        assert_eq!(texts(&changes.changed), ["spec.replicas", "spec.args[1]", "spec.containers[name=web].image"]);
        assert_eq!(texts(&changes.removed), ["spec.containers[name=old]", "spec.paused"]);
        assert!(
            changes.summary().starts_with("+metadata.labels, +spec.args[2]")
                && changes.summary().ends_with("and 4 more")
        );
    }

    #[test]
    fn a_large_change_is_cut_short() {
        let object = |value: u64| {
            let members = (0..1000).map(|at| (format!("m{at}"), json!(value)));
            Value::Object(members.collect())
        };
        let changes = FieldChanges::between(&object(1), &object(2));
        assert!(changes.truncated && changes.changed.len() == PATHS_MAX);
    }
}
