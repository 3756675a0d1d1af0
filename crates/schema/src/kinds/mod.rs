//! All served kinds: lookup by path, by kind and by group, in discovery order.
//!
//! - this file: [`Kinds`], the set of kinds, and [`builtin`], those that ship with the binary
//! - `table.rs`: parses `builtin.tsv`, the built-in kinds as data
//! - `version.rs`: the order of versions

use std::sync::{Arc, LazyLock};

use crate::kind::Kind;

mod table;
mod version;

pub use version::compare_versions;

/// A set of kinds. Clones share it; adding or removing a kind creates a new set that shares the unchanged groups.
#[derive(Clone, Debug, Default)]
pub struct Kinds {
    /// The core group first, then the other built-in groups by priority, then the groups of custom resources by name.
    groups: Arc<[Arc<Group>]>,
}

/// An API group.
#[derive(Clone, Debug)]
pub struct Group {
    /// Empty for the core group.
    pub name: String,
    /// The preferred one first.
    pub versions: Vec<Version>,
    /// Ships with the binary, which fixes its position and the order of its versions.
    builtin: bool,
}

/// A version of a group.
#[derive(Clone, Debug)]
pub struct Version {
    pub name: String,
    /// Sorted by plural name.
    pub kinds: Vec<Arc<Kind>>,
}

impl Group {
    #[must_use]
    pub fn version(&self, name: &str) -> Option<&Version> {
        self.versions.iter().find(|version| version.name == name)
    }

    /// Returns whether it ships with the binary; custom resources may have been added to it.
    #[must_use]
    pub fn is_builtin(&self) -> bool {
        self.builtin
    }

    /// Returns the version for clients that name none.
    #[must_use]
    pub fn preferred(&self) -> Option<&Version> {
        self.versions.first()
    }
}

impl Version {
    #[must_use]
    pub fn get(&self, plural: &str) -> Option<&Arc<Kind>> {
        self.kinds.binary_search_by(|kind| kind.plural.as_str().cmp(plural)).ok().map(|at| &self.kinds[at])
    }
}

/// Returns the kinds that ship with the binary.
pub fn builtin() -> &'static Kinds {
    static BUILTIN: LazyLock<Kinds> = LazyLock::new(|| {
        let mut kinds = Kinds::default();
        for kind in table::read(table::BUILTIN) {
            kinds = kinds.insert(Arc::new(kind), true);
        }
        kinds
    });
    &BUILTIN
}

impl Kinds {
    /// Returns the kind served below `/apis/{group}/{version}/…{plural}`; the core group is the empty string.
    #[must_use]
    pub fn get(&self, group: &str, version: &str, plural: &str) -> Option<&Arc<Kind>> {
        self.group(group)?.version(version)?.get(plural)
    }

    #[must_use]
    pub fn by_kind(&self, group: &str, version: &str, kind: &str) -> Option<&Arc<Kind>> {
        self.group(group)?.version(version)?.kinds.iter().find(|k| k.gvk.kind == kind)
    }

    #[must_use]
    pub fn group(&self, name: &str) -> Option<&Group> {
        self.groups.iter().find(|group| group.name == name).map(|group| &**group)
    }

    /// Iterates over the groups in discovery order, the core group first.
    pub fn groups(&self) -> impl Iterator<Item = &Group> {
        self.groups.iter().map(|group| &**group)
    }

    /// Iterates over every kind in every version, in discovery order.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Kind>> {
        self.groups().flat_map(|group| &group.versions).flat_map(|version| &version.kinds)
    }

    /// Iterates over the kinds whose objects share one collection of the store: versions of one resource, and both kinds of events.
    pub fn in_collection<'a>(&'a self, collection: &'a str) -> impl Iterator<Item = &'a Arc<Kind>> {
        self.iter().filter(move |kind| kind.stored() && kind.collection == collection)
    }

    /// Returns this set with one more kind; a kind of the same group, version and plural is replaced.
    #[must_use]
    pub fn with(&self, kind: Kind) -> Kinds {
        self.insert(Arc::new(kind), false)
    }

    /// As [`Kinds::with`], for a shared kind.
    #[must_use]
    pub fn with_shared(&self, kind: Arc<Kind>) -> Kinds {
        self.insert(kind, false)
    }

    /// Returns this set with more kinds: as [`Kinds::with`] for each of them, and copies what changes only once.
    #[must_use]
    pub fn with_all(&self, kinds: impl IntoIterator<Item = Arc<Kind>>) -> Kinds {
        let mut groups = self.groups.to_vec();
        kinds.into_iter().for_each(|kind| insert(&mut groups, kind, false));
        Kinds { groups: groups.into() }
    }

    /// Returns this set without the kinds for which `leave` returns true, and without versions and groups that become empty.
    #[must_use]
    pub fn without(&self, mut leave: impl FnMut(&Kind) -> bool) -> Kinds {
        let groups = self.groups.iter().filter_map(|group| {
            if !group.versions.iter().flat_map(|version| &version.kinds).any(|kind| leave(kind)) {
                return Some(Arc::clone(group));
            }
            let mut versions = group.versions.clone();
            for version in &mut versions {
                version.kinds.retain(|kind| !leave(kind));
            }
            versions.retain(|version| !version.kinds.is_empty());
            (!versions.is_empty()).then(|| Arc::new(Group { versions, ..Group::clone(group) }))
        });
        Kinds { groups: groups.collect() }
    }

    fn insert(&self, kind: Arc<Kind>, builtin: bool) -> Kinds {
        let mut groups = self.groups.to_vec();
        insert(&mut groups, kind, builtin);
        Kinds { groups: groups.into() }
    }
}

fn insert(groups: &mut Vec<Arc<Group>>, kind: Arc<Kind>, builtin: bool) {
    let at = match groups.iter().position(|group| group.name == kind.gvk.group) {
        Some(at) => at,
        None => {
            let at = if builtin {
                groups.iter().position(|group| !group.builtin)
            } else {
                groups.iter().position(|group| !group.builtin && group.name > kind.gvk.group)
            };
            let at = at.unwrap_or(groups.len());
            groups.insert(at, Arc::new(Group { name: kind.gvk.group.clone(), versions: Vec::new(), builtin }));
            at
        }
    };
    let group = Arc::make_mut(&mut groups[at]);
    let found = if group.builtin {
        let at = group.versions.iter().position(|version| version.name == kind.gvk.version);
        at.ok_or(group.versions.len())
    } else {
        // In the order of versions: a definition may have very many.
        group.versions.binary_search_by(|version| compare_versions(&version.name, &kind.gvk.version))
    };
    let version = match found {
        Ok(at) => at,
        Err(at) => {
            group.versions.insert(at, Version { name: kind.gvk.version.clone(), kinds: Vec::new() });
            at
        }
    };
    let kinds = &mut group.versions[version].kinds;
    match kinds.binary_search_by(|k| k.plural.cmp(&kind.plural)) {
        Ok(at) => kinds[at] = kind,
        Err(at) => kinds.insert(at, kind),
    }
}

#[cfg(test)]
mod tests {
    use machinery::GroupVersionKind;

    use super::*;
    use machinery::json::json;

    fn custom(group: &str, version: &str, plural: &str) -> Kind {
        let mut kind = Kind::clone(builtin().get("apps", "v1", "deployments").unwrap());
        kind.gvk = GroupVersionKind::new(group, version, "Custom");
        kind.plural = plural.to_owned();
        kind
    }

    #[test]
    fn built_in_kinds_are_found_by_path_and_by_kind() {
        let kinds = builtin();
        let pods = kinds.get("", "v1", "pods").unwrap();
        assert_eq!(
            (pods.singular.as_str(), pods.list_kind.as_str(), pods.collection.as_str()),
            ("pod", "PodList", "core/pods")
        );
        assert_eq!(pods.subresource("eviction").unwrap().gvk, GroupVersionKind::new("policy", "v1", "Eviction"));
        assert!(pods.rules.graceful && pods.rules.generation && pods.rules.delete_returns_object);
        assert!(kinds.by_kind("apps", "v1", "Deployment").unwrap().subresource("scale").is_some());
        assert!(kinds.get("apps", "v1beta1", "deployments").is_none());
        assert_eq!(kinds.iter().count(), 68);
    }

    #[test]
    fn collections_are_shared_where_two_kinds_show_the_same_objects() {
        let of = |name| builtin().in_collection(name).map(|k| k.group_version().to_string()).collect::<Vec<_>>();
        assert_eq!(of("core/events"), ["v1", "events.k8s.io/v1"]);
        assert_eq!(of("autoscaling/horizontalpodautoscalers"), ["autoscaling/v2", "autoscaling/v1"]);
        assert!(of("core/bindings").is_empty(), "a binding is never stored");
        let v1 = builtin().get("autoscaling", "v1", "horizontalpodautoscalers").unwrap();
        assert_eq!(v1.storage.to_string(), "autoscaling/v2");
    }

    #[test]
    fn groups_keep_their_priority_and_custom_groups_come_last_by_name() {
        let kinds = builtin().with(custom("z.example.com", "v1", "zs")).with(custom("a.example.com", "v1alpha1", "as"));
        let kinds = kinds.with(custom("a.example.com", "v1", "as")).with(custom("a.example.com", "v2beta1", "as"));
        let names: Vec<_> = kinds.groups().map(|g| g.name.as_str()).collect();
        assert_eq!(&names[..3], ["", "apiregistration.k8s.io", "apps"]);
        assert_eq!(&names[names.len() - 2..], ["a.example.com", "z.example.com"]);
        let versions: Vec<_> = kinds.group("a.example.com").unwrap().versions.iter().map(|v| v.name.as_str()).collect();
        assert_eq!(versions, ["v1", "v2beta1", "v1alpha1"]);

        let fewer = kinds.without(|kind| kind.gvk.group == "a.example.com");
        assert!(fewer.group("a.example.com").is_none() && kinds.group("a.example.com").is_some());
    }

    #[test]
    fn selectable_fields_read_the_stored_object() {
        let pods = builtin().get("", "v1", "pods").unwrap();
        let pod =
            json!({"metadata": {"name": "a"}, "spec": {"nodeName": "n"}, "status": {"podIPs": [{"ip": "10.0.0.9"}]}});
        let value = |label: &str| pods.selectable(label).map(|f| f.value(&pod).into_owned());
        assert_eq!(value("spec.host").as_deref(), Some("n"));
        assert_eq!(value("spec.hostNetwork").as_deref(), Some("false"));
        assert_eq!(value("status.podIP").as_deref(), Some("10.0.0.9"));
        assert_eq!(value("status.podIPs").as_deref(), Some(""));
        assert_eq!(value("spec.containers"), None);
        let jobs = builtin().get("batch", "v1", "jobs").unwrap();
        assert_eq!(jobs.selectable("status.successful").unwrap().value(&json!({"status": {"succeeded": 3}})), "3");
        let event = json!({"reportingComponent": "kubelet", "source": {"component": ""}});
        let events = builtin().get("", "v1", "events").unwrap();
        assert_eq!(events.selectable("source").unwrap().value(&event), "kubelet");
    }
}
