//! What becomes of a bootstrap object that is already there. Nothing that was added is removed.

use machinery::json::{Map, Value};

use super::AUTO_UPDATE;
use crate::rbac::covering::missing_rules;
use crate::rbac::objects::rules;

/// What is to be done about an object that exists.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    Keep,
    /// Replace it by this state of it.
    Update(Value),
    /// Delete it and create the wanted one: the role of a binding cannot change.
    Recreate,
}

/// Compares an object with the one that a cluster should have.
#[must_use]
pub fn reconcile(existing: &Value, wanted: &Value) -> Step {
    if existing["metadata"]["annotations"][AUTO_UPDATE] == "false" {
        return Step::Keep;
    }
    if existing["roleRef"] != wanted["roleRef"] {
        return Step::Recreate;
    }
    let mut next = existing.clone();
    for members in ["annotations", "labels"] {
        add_members(&mut next["metadata"], members, &wanted["metadata"][members]);
    }
    if wanted.get("roleRef").is_some() {
        add_items(&mut next, "subjects", &wanted["subjects"]);
    } else {
        let missing = missing_rules(&rules(existing), &rules(wanted));
        if !missing.is_empty() {
            let missing: Vec<Value> = missing.iter().map(|rule| rule.to_value()).collect();
            add_items(&mut next, "rules", &missing.into());
        }
        if wanted["aggregationRule"].is_null() {
            if let Some(members) = next.as_object_mut() {
                members.shift_remove("aggregationRule");
            }
        } else {
            let selectors = &wanted["aggregationRule"]["clusterRoleSelectors"];
            add_items(&mut next["aggregationRule"], "clusterRoleSelectors", selectors);
        }
    }
    if next == *existing { Step::Keep } else { Step::Update(next) }
}

/// Adds the members that are missing to a map in `owner`. A value that is there stays.
fn add_members(owner: &mut Value, map: &str, wanted: &Value) {
    let mut all: Map = owner[map].as_object().cloned().unwrap_or_default();
    let before = all.len();
    for (key, value) in wanted.as_object().into_iter().flatten() {
        if all.get(key.as_str()).is_none() {
            all.insert(key.as_str(), value.clone());
        }
    }
    if all.len() > before {
        owner[map] = all.into();
    }
}

/// Adds the items that are missing to a list in `owner`.
fn add_items(owner: &mut Value, list: &str, wanted: &Value) {
    let mut all: Vec<Value> = owner[list].as_array().map(|items| items.to_vec()).unwrap_or_default();
    let before = all.len();
    for item in wanted.as_array().into_iter().flat_map(|items| items.iter()) {
        if !all.contains(item) {
            all.push(item.clone());
        }
    }
    if all.len() > before {
        owner[list] = all.into();
    }
}

#[cfg(test)]
mod tests {
    use machinery::json::json;

    use super::super::objects;
    use super::*;

    fn wanted(resource: &str, name: &str) -> Value {
        objects().unwrap().into_iter().find(|object| object.resource == resource && object.name == name).unwrap().value
    }

    fn updated(existing: &Value, wanted: &Value) -> Value {
        match reconcile(existing, wanted) {
            Step::Update(next) => next,
            step => panic!("{step:?}"),
        }
    }

    #[test]
    fn az_116_what_is_as_it_should_be_stays() {
        for object in objects().unwrap() {
            assert_eq!(reconcile(&object.value, &object.value), Step::Keep, "{}", object.name);
        }
    }

    #[test]
    fn az_116_missing_rules_come_back_and_extra_ones_stay() {
        let role = wanted("clusterroles", "system:aggregate-to-admin");
        let mut existing = role.clone();
        let extra = json!({"verbs": ["get"], "apiGroups": ["example.com"], "resources": ["widgets"]});
        existing["rules"] = json!([extra]);
        existing["metadata"]["labels"] = json!({"mine": "yes"});
        existing["metadata"]["annotations"] = json!({AUTO_UPDATE: "maybe"});
        let next = updated(&existing, &role);
        assert_eq!(next["rules"][0], extra);
        let added = next["rules"].as_array().unwrap().len();
        assert_eq!(added, 1 + 1 + 2 * 8, "one rule for each missing piece");
        assert_eq!(next["metadata"]["labels"]["mine"], "yes");
        assert_eq!(next["metadata"]["labels"]["kubernetes.io/bootstrapping"], "rbac-defaults");
        assert_eq!(next["metadata"]["annotations"][AUTO_UPDATE], "maybe", "a value that is there stays");
        assert_eq!(reconcile(&next, &role), Step::Keep);
    }

    #[test]
    fn az_116_an_annotation_protects_an_object() {
        let role = wanted("clusterroles", "system:discovery");
        let mut existing = role.clone();
        existing["rules"] = Value::Null;
        existing["metadata"]["annotations"][AUTO_UPDATE] = json!("false");
        assert_eq!(reconcile(&existing, &role), Step::Keep);
        let binding = wanted("clusterrolebindings", "cluster-admin");
        let mut existing = binding.clone();
        existing["roleRef"]["name"] = json!("view");
        existing["metadata"]["annotations"][AUTO_UPDATE] = json!("false");
        assert_eq!(reconcile(&existing, &binding), Step::Keep);
    }

    #[test]
    fn az_116_selectors_subjects_and_role_references() {
        let role = wanted("clusterroles", "view");
        let mut existing = role.clone();
        let own = json!({"matchLabels": {"mine": "yes"}});
        existing["aggregationRule"]["clusterRoleSelectors"] = json!([own]);
        let next = updated(&existing, &role);
        let selectors = next["aggregationRule"]["clusterRoleSelectors"].as_array().unwrap();
        assert_eq!((selectors.len(), &selectors[0]), (2, &own));

        let plain = wanted("clusterroles", "cluster-admin");
        let mut existing = plain.clone();
        existing["aggregationRule"] = json!({"clusterRoleSelectors": [own]});
        assert!(updated(&existing, &plain).get("aggregationRule").is_none(), "it collects nothing");

        let binding = wanted("clusterrolebindings", "system:public-info-viewer");
        let mut existing = binding.clone();
        let carol = json!({"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": "carol"});
        existing["subjects"] = json!([carol]);
        let subjects = updated(&existing, &binding)["subjects"].clone();
        assert_eq!((subjects.as_array().unwrap().len(), &subjects[0]), (3, &carol));
        existing["roleRef"]["name"] = json!("view");
        assert_eq!(reconcile(&existing, &binding), Step::Recreate);
    }
}
