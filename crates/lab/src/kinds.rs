//! The kinds of the lab, as data: `kinds/*.yaml` have the form of the `spec` of a CustomResourceDefinition.

use std::sync::{Arc, LazyLock};

use bytes::Bytes;
use cache::{FieldSpec, Spec};
use machinery::Revision;
use machinery::json::json;
use schema::custom::installed;
use schema::kind::{Kind, SelectableField, Subresource};
use schema::kinds::Kinds;

/// The group of all kinds of the lab.
pub const GROUP: &str = "lab.dogwatch.dev";
/// The collection of the clock in the store.
pub(crate) const CLOCKS: &str = "lab.dogwatch.dev/clocks";
/// The collection of faults in the store.
pub(crate) const FAULTS: &str = "lab.dogwatch.dev/faults";
pub(crate) const WATCHERS: &str = "lab.dogwatch.dev/watchers";
pub(crate) const REQUESTS: &str = "lab.dogwatch.dev/requests";
pub(crate) const SETTLEMENTS: &str = "lab.dogwatch.dev/settlements";
pub(crate) const CHANGES: &str = "lab.dogwatch.dev/changes";
pub(crate) const WORLDS: &str = "lab.dogwatch.dev/worlds";
pub(crate) const CHECKPOINTS: &str = "lab.dogwatch.dev/checkpoints";

/// A kind with the verbs that it serves.
struct Source {
    definition: &'static str,
    /// In the order of discovery.
    verbs: &'static [&'static str],
    /// Members of the status by which objects can be selected, under their short names.
    fields: &'static [&'static str],
}

const ALL: &[&str] = &["delete", "deletecollection", "get", "list", "patch", "create", "update", "watch"];

const CREATED: &[&str] = &["create", "delete", "get", "list", "watch"];

const SOURCES: [Source; 8] = [
    Source {
        definition: include_str!("kinds/change.yaml"),
        verbs: &["get", "list", "watch"],
        fields: &["kind", "resource", "name", "namespace", "uid", "user", "userAgent", "manager", "type", "request"],
    },
    Source { definition: include_str!("kinds/checkpoint.yaml"), verbs: CREATED, fields: &[] },
    Source {
        definition: include_str!("kinds/clock.yaml"),
        verbs: &["get", "list", "patch", "update", "watch"],
        fields: &[],
    },
    Source { definition: include_str!("kinds/fault.yaml"), verbs: ALL, fields: &[] },
    Source {
        definition: include_str!("kinds/request.yaml"),
        verbs: &["get", "list", "watch"],
        fields: &["userAgent", "user", "verb", "resource", "subresource", "code", "name", "namespace"],
    },
    Source { definition: include_str!("kinds/settlement.yaml"), verbs: &["create"], fields: &[] },
    Source {
        definition: include_str!("kinds/watcher.yaml"),
        verbs: &["delete", "get", "list", "watch"],
        fields: &["resource", "namespace", "user", "userAgent", "protocol"],
    },
    Source { definition: include_str!("kinds/world.yaml"), verbs: CREATED, fields: &[] },
];

/// The kinds of the lab.
#[must_use]
pub fn all() -> &'static [Arc<Kind>] {
    static KINDS: LazyLock<Vec<Arc<Kind>>> = LazyLock::new(|| SOURCES.iter().flat_map(read).collect());
    &KINDS
}

/// Whether a kind is one of the lab.
#[must_use]
pub fn is_own(kind: &Kind) -> bool {
    kind.gvk.group == GROUP
}

/// These kinds and those of the lab.
#[must_use]
pub fn beside(kinds: &Kinds) -> Kinds {
    kinds.with_all(all().iter().cloned())
}

/// These kinds and those of the lab of a world beside `main`, which has no worlds and checkpoints of its own.
#[must_use]
pub fn of_world(kinds: &Kinds) -> Kinds {
    let is_of_main = |kind: &Kind| matches!(kind.collection.as_str(), WORLDS | CHECKPOINTS);
    kinds.with_all(all().iter().filter(|kind| !is_of_main(kind)).cloned())
}

fn read(source: &Source) -> Vec<Arc<Kind>> {
    let spec = match machinery::yaml::read(source.definition.as_bytes()) {
        Ok(document) => document.value,
        Err(error) => unreachable!("a kind of the lab cannot be read: {error}"),
    };
    let names = spec["names"].clone();
    let plural = names["plural"].as_str().unwrap_or_default().to_owned();
    let definition = json!({
        // No definition that a client creates can have this name.
        "metadata": {"name": format!("lab:{plural}"), "uid": format!("lab:{plural}")},
        "status": {"acceptedNames": names, "conditions": [{"type": "Established", "status": "True"}]},
        "spec": spec,
    });
    let made = match installed::install(&Bytes::from(definition.to_string()), Revision::ZERO, None) {
        Ok(installed) => installed.kinds,
        Err(error) => unreachable!("a kind of the lab cannot be installed: {error}"),
    };
    made.into_iter().map(|kind| Arc::new(adjusted(Kind::clone(&kind), source))).collect()
}

fn adjusted(mut kind: Kind, source: &Source) -> Kind {
    kind.verbs = source.verbs.iter().map(|verb| (*verb).to_owned()).collect();
    kind.fields.extend(source.fields.iter().map(|name| SelectableField {
        label: (*name).to_owned(),
        paths: vec![vec!["status".to_owned(), (*name).to_owned()]],
        absent: String::new(),
    }));
    if kind.plural == "checkpoints" {
        let verbs = vec!["create".to_owned()];
        kind.subresources.push(Subresource { name: "rewind".to_owned(), gvk: kind.gvk.clone(), verbs });
    }
    kind
}

/// The selectable fields of a kind of the lab, as its registry has them.
pub(crate) fn spec(collection: &str) -> Spec {
    let kind = all().iter().find(|kind| kind.collection == collection);
    let fields = kind.into_iter().flat_map(|kind| &kind.fields).filter(|field| !field.label.starts_with("metadata."));
    let spec = |field: &SelectableField| FieldSpec {
        label: field.label.clone(),
        paths: field.paths.clone(),
        absent: field.absent.clone(),
    };
    Spec::new(fields.map(spec).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lab_1_every_kind_of_the_lab_is_served_with_its_verbs() {
        let served: Vec<(&str, usize)> = all().iter().map(|kind| (kind.plural.as_str(), kind.verbs.len())).collect();
        let expected = [
            ("changes", 3),
            ("checkpoints", 5),
            ("clocks", 5),
            ("faults", 8),
            ("requests", 3),
            ("settlements", 1),
            ("watchers", 4),
            ("worlds", 5),
        ];
        assert_eq!(served, expected);
        assert!(all().iter().all(|kind| kind.gvk.group == GROUP && !kind.namespaced));
    }

    #[test]
    fn wld_4_worlds_and_checkpoints_are_kinds_of_main_only() {
        let kinds = of_world(&Kinds::default());
        let served: Vec<&str> = kinds.iter().map(|kind| kind.plural.as_str()).collect();
        assert_eq!(served, ["changes", "clocks", "faults", "requests", "settlements", "watchers"]);
    }

    #[test]
    fn definitions_are_whole() {
        for source in &SOURCES {
            let value = machinery::yaml::read(source.definition.as_bytes()).unwrap().value;
            assert_eq!(value["group"], GROUP);
        }
    }
}
