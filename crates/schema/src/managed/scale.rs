//! Ownership through the scale subresource: the one field of a Scale is a field of its parent, at another path.
//!
//! A write to a Scale is handled like any other, on a Scale with the managedFields of [`of_parent`]; if it changed the number of
//! replicas, the parent then gets the managedFields of [`to_parent`].

use std::collections::{BTreeMap, HashMap};

use machinery::json::Value;

use super::element::Element;
use super::entries::{self, Entry, Fields, Operation};
use super::set::Set;
use super::update::list;

const SCALE_VERSION: &str = "autoscaling/v1";

fn single(path: &[&str]) -> (Vec<Element>, Set) {
    let path: Vec<Element> = path.iter().map(|name| Element::field(name)).collect();
    let mut set = Set::default();
    set.insert(&path);
    (path, set)
}

/// Returns the managedFields of a Scale: the managers of the parent that own its replicas, which are at `path` (`spec`,
/// `replicas`) in `version`.
#[must_use]
pub fn of_parent(parent: &Value, version: &str, path: &[&str]) -> Option<Value> {
    let (path, _) = single(path);
    let (_, replicas) = single(&["spec", "replicas"]);
    let mut owners = entries::stored(list(parent)).ok()?;
    owners.retain_mut(|owner| owner.api_version == version && owner.fields.read().has(&path));
    let owners = owners.into_iter().map(|owner| Entry {
        api_version: SCALE_VERSION.to_owned(),
        fields: Fields::Read(replicas.clone()),
        ..owner
    });
    entries::encode(owners.collect())
}

/// Returns the managedFields of the parent after its replicas were written through `scale`. A new manager has no time, as in
/// the reference.
#[must_use]
pub fn to_parent(parent: &Value, scale: &Value, version: &str, path: &[&str]) -> Option<Value> {
    let (path, set) = single(path);
    let (replicas, _) = single(&["spec", "replicas"]);
    let owners = entries::stored(list(parent)).unwrap_or_default();
    let mut scalers = entries::sent(list(scale)).unwrap_or_default();
    scalers.retain_mut(|scaler| scaler.fields.read().has(&replicas));
    let manager = |entry: &Entry| (entry.manager.clone(), entry.operation, entry.subresource.clone());
    // By manager, the first of several last.
    let mut by_manager: BTreeMap<_, Vec<usize>> = BTreeMap::new();
    for (at, scaler) in scalers.iter().enumerate().rev() {
        by_manager.entry(manager(scaler)).or_default().push(at);
    }
    let mut scalers: Vec<Option<Entry>> = scalers.into_iter().map(Some).collect();
    let mut kept = Vec::with_capacity(owners.len() + 1);
    for mut owner in owners {
        if owner.api_version == version && owner.fields.read().has(&path) {
            match by_manager.get_mut(&manager(&owner)).and_then(Vec::pop) {
                Some(at) => scalers[at] = None,
                None => owner.fields.subtract(&set),
            }
        }
        if !owner.fields.is_empty() {
            kept.push(owner);
        }
    }
    for scaler in scalers.into_iter().flatten() {
        kept.push(Entry { api_version: version.to_owned(), time: None, fields: Fields::Read(set.clone()), ..scaler });
    }
    // Entries of one manager in two versions are merged.
    let mut merged: Vec<Entry> = Vec::with_capacity(kept.len());
    let mut positions: HashMap<String, usize> = HashMap::with_capacity(kept.len());
    for entry in kept {
        let at = *positions.entry(entry.identity()).or_insert(merged.len());
        match merged.get_mut(at) {
            Some(other) if other.operation == Operation::Update => {
                let before = std::mem::take(other.fields.read());
                other.fields = Fields::Read(before.union(entry.fields.into_set()));
            }
            _ => merged.push(entry),
        }
    }
    entries::encode(merged)
}

#[cfg(test)]
mod tests {
    use machinery::json::json;

    use super::*;

    fn entry(manager: &str, operation: &str, version: &str, subresource: &str, fields: Value) -> Value {
        let mut entry = json!({"manager": manager, "operation": operation, "apiVersion": version,
            "time": "2024-01-01T00:00:00Z", "fieldsType": "FieldsV1", "fieldsV1": fields});
        if !subresource.is_empty() {
            entry["subresource"] = json!(subresource);
        }
        entry
    }

    #[test]
    fn replicas_go_there_and_back() {
        let both = json!({"f:spec": {"f:paused": {}, "f:replicas": {}}});
        let parent = json!({"metadata": {"managedFields": [
            entry("a", "Apply", "apps/v1", "", both), entry("b", "Update", "apps/v1", "", json!({"f:spec": {"f:paused": {}}}))]}});
        let path = ["spec", "replicas"];
        let list = of_parent(&parent, "apps/v1", &path).unwrap();
        assert_eq!(list, json!([entry("a", "Apply", "autoscaling/v1", "", json!({"f:spec": {"f:replicas": {}}}))]));
        // Another one takes the replicas over.
        let scaled = entry("s", "Update", "autoscaling/v1", "scale", json!({"f:spec": {"f:replicas": {}}}));
        let scale = json!({"metadata": {"managedFields": [scaled]}});
        let list = to_parent(&parent, &scale, "apps/v1", &path).unwrap();
        assert_eq!(list[0]["fieldsV1"], json!({"f:spec": {"f:paused": {}}}));
        let scaler = list.as_array().unwrap().iter().find(|e| e["manager"] == "s").unwrap();
        assert_eq!(scaler["apiVersion"], "apps/v1");
        assert_eq!(scaler["subresource"], "scale");
        assert!(scaler.get("time").is_none());
        assert_eq!(list.as_array().unwrap().len(), 3);
    }

    #[test]
    fn replicas_without_an_owner_stay_so() {
        let parent = json!({"metadata": {"managedFields": [entry("a", "Apply", "apps/v1", "", json!({"f:spec": {"f:paused": {}}}))]}});
        assert_eq!(of_parent(&parent, "apps/v1", &["spec", "replicas"]), None);
    }
}
