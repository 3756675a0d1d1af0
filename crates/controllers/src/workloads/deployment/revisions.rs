//! The annotations that connect a deployment and its replica sets: revision, history, and the scale they were made for.

use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::arithmetic::Budget;
use crate::owners::name;
use crate::workloads::template;

pub(super) const REVISION: &str = "deployment.kubernetes.io/revision";
pub(super) const HISTORY: &str = "deployment.kubernetes.io/revision-history";
pub(super) const DESIRED: &str = "deployment.kubernetes.io/desired-replicas";
pub(super) const MOST: &str = "deployment.kubernetes.io/max-replicas";
pub(super) const ROLLBACK: &str = "deprecated.deployment.rollback.to";
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// Annotations that belong to one object and are not copied to the other (DP-13).
pub(super) const NOT_COPIED: [&str; 6] = [LAST_APPLIED, REVISION, HISTORY, DESIRED, MOST, ROLLBACK];

/// The history of revisions is not longer than this.
const HISTORY_LENGTH: usize = 2000;

/// An annotation.
pub(super) fn annotation<'a>(meta: &'a ObjectMeta, name: &str) -> Option<&'a str> {
    meta.annotations.as_ref()?.get(name).map(String::as_str)
}

/// Sets an annotation; true if it had another value.
pub(super) fn annotate(meta: &mut ObjectMeta, name: &str, value: &str) -> bool {
    if annotation(meta, name) == Some(value) {
        return false;
    }
    meta.annotations.get_or_insert_default().insert(name.to_owned(), value.to_owned());
    true
}

/// The revision of a replica set; 0 without one, none if it is not a number.
pub(super) fn revision(set: &ReplicaSet) -> Option<i64> {
    annotation(&set.metadata, REVISION).map_or(Some(0), |text| text.parse().ok())
}

/// A count in an annotation.
pub(super) fn count(set: &ReplicaSet, name: &str) -> Option<i32> {
    annotation(&set.metadata, name)?.parse().ok().filter(|count| *count >= 0)
}

/// Writes down for which scale the set was sized; true if something changed.
pub(super) fn note_scale(set: &mut ReplicaSet, budget: Budget) -> bool {
    let desired = annotate(&mut set.metadata, DESIRED, &budget.replicas.to_string());
    let most = annotate(&mut set.metadata, MOST, &budget.most().to_string());
    desired || most
}

/// Gives the new replica set the deployment's annotations and its revision; true if something changed. A set that had a lower
/// revision before is one that was rolled back to: its old number goes into its history (DP-19).
pub(super) fn note_revision(set: &mut ReplicaSet, deployment: &Deployment, revision: i64) -> bool {
    let mut changed = false;
    for (name, value) in deployment.metadata.annotations.iter().flatten() {
        if !NOT_COPIED.contains(&name.as_str()) {
            changed |= annotate(&mut set.metadata, name, value);
        }
    }
    let old = annotation(&set.metadata, REVISION).map(str::to_owned);
    let old_number = match old.as_deref() {
        None | Some("") => 0,
        // Not ours to mend.
        Some(text) => match text.parse::<i64>() {
            Ok(number) => number,
            Err(_) => return false,
        },
    };
    if old_number >= revision {
        return changed;
    }
    annotate(&mut set.metadata, REVISION, &revision.to_string());
    if let Some(old) = old {
        let history = annotation(&set.metadata, HISTORY).unwrap_or_default();
        if let Some(longer) = appended(history, &old) {
            annotate(&mut set.metadata, HISTORY, &longer);
        }
    }
    true
}

/// The history with one more entry; the oldest make room.
fn appended(history: &str, entry: &str) -> Option<String> {
    if history.is_empty() {
        return Some(entry.to_owned());
    }
    let mut kept = history;
    while kept.len() + 1 + entry.len() > HISTORY_LENGTH {
        kept = kept.split_once(',').map_or("", |(_, rest)| rest);
        if kept.is_empty() {
            return (entry.len() <= HISTORY_LENGTH).then(|| entry.to_owned());
        }
    }
    Some(format!("{kept},{entry}"))
}

/// The name of a replica set: the deployment's and the template's, cut so that a name it stays (DP-11).
pub(super) fn set_name(deployment: &str, hash: &str) -> String {
    const LONGEST: usize = 253;
    let room = LONGEST - 1 - hash.len();
    // Names are ASCII, so that every cut is at a character.
    let cut = deployment.get(..room).unwrap_or(deployment);
    format!("{cut}-{hash}")
}

/// The replica set of the deployment's template: the oldest whose template is the same (DP-10), and all others. Both come in
/// the order of their creation.
pub(super) fn split<S: AsRef<ReplicaSet>>(deployment: &Deployment, mut sets: Vec<S>) -> (Option<S>, Vec<S>) {
    sets.sort_by(|a, b| by_age(a.as_ref(), b.as_ref()));
    let wanted = deployment.spec.as_ref().map(|spec| &spec.template);
    let is_new = |set: &S| {
        let actual = set.as_ref().spec.as_ref().and_then(|spec| spec.template.as_ref());
        wanted.zip(actual).is_some_and(|(wanted, actual)| template::same(wanted, actual))
    };
    let new = sets.iter().position(is_new).map(|index| sets.remove(index));
    (new, sets)
}

/// The order of creation; of one second, that of names.
pub(super) fn by_age(a: &ReplicaSet, b: &ReplicaSet) -> std::cmp::Ordering {
    let created = |set: &ReplicaSet| set.metadata.creation_timestamp.as_ref().map(|time| time.0);
    created(a).cmp(&created(b)).then_with(|| name(a).cmp(name(b)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::sync::Arc;

    fn deployment(annotations: serde_json::Value) -> Deployment {
        serde_json::from_value(json!({"metadata": {"annotations": annotations}})).unwrap()
    }

    #[test]
    fn dp_13_annotations_are_copied_except_those_of_one_object() {
        let from = deployment(
            json!({"a": "1", REVISION: "7", LAST_APPLIED: "{}", DESIRED: "1", MOST: "1", HISTORY: "1", ROLLBACK: "0"}),
        );
        let mut set = ReplicaSet::default();
        assert!(note_revision(&mut set, &from, 3));
        assert!(note_scale(&mut set, Budget { replicas: 3, surge: 1, unavailable: 0 }));
        let expected = json!({"a": "1", REVISION: "3", DESIRED: "3", MOST: "4"});
        assert_eq!(serde_json::to_value(&set.metadata.annotations).unwrap(), expected);
        assert!(
            !note_revision(&mut set, &from, 3)
                && !note_scale(&mut set, Budget { replicas: 3, surge: 1, unavailable: 0 })
        );
    }

    #[test]
    fn dp_19_a_rollback_keeps_the_old_numbers() {
        let from = deployment(json!({}));
        let mut set = ReplicaSet::default();
        for revision in [1, 3, 6] {
            assert!(note_revision(&mut set, &from, revision));
        }
        assert_eq!(annotation(&set.metadata, HISTORY), Some("1,3"));
        assert!(!note_revision(&mut set, &from, 2), "a revision never falls");
        annotate(&mut set.metadata, REVISION, "many");
        assert!(!note_revision(&mut set, &from, 9), "what is not a number is left alone");
        assert_eq!(revision(&set), None);
    }

    #[test]
    fn dp_19_the_history_of_revisions_is_bounded() {
        let long = (0..1000).map(|_| "1").collect::<Vec<_>>().join(",");
        let longer = appended(&long, "22").unwrap();
        assert!(longer.len() <= HISTORY_LENGTH && longer.ends_with(",1,22"), "{}", longer.len());
        assert_eq!(appended("", "1").as_deref(), Some("1"));
        assert_eq!(appended(&"9".repeat(2000), "1").as_deref(), Some("1"));
    }

    #[test]
    fn dp_11_a_long_name_is_cut() {
        assert_eq!(set_name("web", "abc"), "web-abc");
        let name = set_name(&"w".repeat(253), "abcdefghij");
        assert_eq!(name.len(), 253);
        assert!(name.ends_with("w-abcdefghij"));
    }

    #[test]
    fn dp_10_the_oldest_set_with_the_same_template_is_the_new_one() {
        let set = |name: &str, image: &str, created: &str| -> Arc<ReplicaSet> {
            let template = json!({"metadata": {"labels": {"a": "b", "pod-template-hash": name}}, "spec": {"containers": [{"name": "c", "image": image}]}});
            Arc::new(
                serde_json::from_value(json!({
                    "metadata": {"name": name, "creationTimestamp": created},
                    "spec": {"selector": {}, "template": template}
                }))
                .unwrap(),
            )
        };
        let wanted: Deployment = serde_json::from_value(json!({
            "metadata": {},
            "spec": {"selector": {}, "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "2"}]}}}
        })).unwrap();
        let sets = vec![
            set("younger", "2", "2026-01-03T00:00:00Z"),
            set("other", "1", "2026-01-01T00:00:00Z"),
            set("older", "2", "2026-01-02T00:00:00Z"),
        ];
        let (new, old) = split(&wanted, sets);
        assert_eq!(new.map(|set| name(&*set).to_owned()).as_deref(), Some("older"));
        assert_eq!(old.iter().map(|set| name(&**set)).collect::<Vec<_>>(), ["other", "younger"]);
    }
}
