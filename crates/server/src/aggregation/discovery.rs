//! Discovery of a server that passes some group versions on: its own groups and those of the others in one order.
//!
//! Groups are in the order of their highest priority, then by name; versions in that of their own. A version whose server cannot be
//! used is listed too, as stale, so that a client can tell it from one that does not exist.

use std::sync::Arc;

use machinery::json::{Value, json};
use registry::api_services::priorities::{self, Priority};
use registry::api_services::{RemoteService, RemoteServices};
use registry::discovery;
use registry::kinds::{Kinds, compare_versions};

use super::{Aggregator, Documents};

/// The group of APIServices comes first.
const FIRST: &str = "apiregistration.k8s.io";
const FIRST_PRIORITY: i64 = 20_001;

/// The documents for one state of kinds and servers.
pub(crate) struct MergedDiscovery {
    kinds: Arc<Kinds>,
    remotes: Arc<RemoteServices>,
    documents: Arc<Documents>,
    /// `/apis` as an `APIGroupList`.
    pub(crate) groups: Value,
    /// `/apis` in the aggregated form.
    pub(crate) aggregated: Value,
}

impl MergedDiscovery {
    /// `/apis/{group}`; none if no server has the group.
    pub(crate) fn group(&self, name: &str) -> Option<Value> {
        let groups = self.groups["groups"].as_array()?;
        let found = groups.iter().find(|group| group["name"] == name)?;
        let mut body = json!({"kind": "APIGroup", "apiVersion": "v1"});
        for (member, value) in found.as_object()?.iter() {
            body[member.as_str()] = value.clone();
        }
        Some(body)
    }
}

impl Aggregator {
    /// The merged documents; none if this server serves everything itself.
    pub(crate) fn discovery(&self, kinds: &Arc<Kinds>) -> Option<Arc<MergedDiscovery>> {
        let remotes = self.remotes()?;
        let documents = Arc::clone(&self.documents.read());
        let mut merged = self.merged.lock();
        if let Some(held) = &*merged
            && Arc::ptr_eq(&held.kinds, kinds)
            && Arc::ptr_eq(&held.remotes, &remotes)
            && Arc::ptr_eq(&held.documents, &documents)
        {
            return Some(Arc::clone(held));
        }
        let made = Arc::new(MergedDiscovery {
            groups: merge_groups(discovery::groups(kinds), &remotes),
            aggregated: merge_aggregated(discovery::aggregated_groups(kinds), &remotes, &documents),
            kinds: Arc::clone(kinds),
            remotes,
            documents,
        });
        *merged = Some(Arc::clone(&made));
        Some(made)
    }
}

/// A group with its versions, and what they are sorted by.
struct Group {
    name: String,
    priority: i64,
    versions: Vec<(String, i64, Value)>,
}

impl Group {
    fn local(name: &str) -> Self {
        let priority = if name == FIRST { FIRST_PRIORITY } else { 0 };
        Group { name: name.to_owned(), priority, versions: Vec::new() }
    }

    fn insert(&mut self, version: &str, priority: Priority, value: Value) {
        self.versions.retain(|(held, ..)| held != version);
        self.versions.push((version.to_owned(), priority.version, value));
        self.priority = self.priority.max(priority.group);
    }
}

fn local_priority(group: &str, version: &str) -> Priority {
    priorities::builtin(group, version).unwrap_or(if group == FIRST {
        Priority { group: FIRST_PRIORITY, version: 10 }
    } else {
        priorities::CUSTOM
    })
}

/// Adds the versions of other servers to the groups of this one, and sorts both.
fn merge(
    local: impl Iterator<Item = (String, Vec<(String, Value)>)>,
    remotes: &RemoteServices,
    entry: impl Fn(&RemoteService) -> Value,
) -> Vec<Group> {
    let mut groups: Vec<Group> = local
        .map(|(name, versions)| {
            let mut group = Group::local(&name);
            for (version, value) in versions {
                group.insert(&version, local_priority(&name, &version), value);
            }
            group
        })
        .collect();
    for remote in remotes.iter().filter(|remote| !remote.group.is_empty()) {
        let at = match groups.iter().position(|group| group.name == remote.group) {
            Some(at) => at,
            None => {
                groups.push(Group::local(&remote.group));
                groups.len() - 1
            }
        };
        if let Some(group) = groups.get_mut(at) {
            group.insert(&remote.version, remote.priority, entry(remote));
        }
    }
    for group in &mut groups {
        group.versions.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| compare_versions(&a.0, &b.0)));
    }
    groups.sort_by(|a, b| b.priority.cmp(&a.priority).then_with(|| a.name.cmp(&b.name)));
    groups
}

fn named(groups: &Value, name: fn(&Value) -> &Value) -> Vec<(String, Vec<(String, Value)>)> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let items = groups.as_array().into_iter().flat_map(|items| items.iter());
    items
        .map(|group| {
            let versions = group["versions"].as_array().into_iter().flat_map(|versions| versions.iter());
            (text(name(group)), versions.map(|version| (text(&version["version"]), version.clone())).collect())
        })
        .collect()
}

fn merge_groups(mut list: Value, remotes: &RemoteServices) -> Value {
    let local = named(&list["groups"], |group| &group["name"]);
    let entry = |remote: &RemoteService| json!({"groupVersion": format!("{}/{}", remote.group, remote.version), "version": remote.version});
    let groups = merge(local.into_iter(), remotes, entry);
    list["groups"] = groups
        .into_iter()
        .map(|group| {
            let versions: Vec<Value> = group.versions.into_iter().map(|(_, _, value)| value).collect();
            let preferred = versions.first().cloned().unwrap_or_default();
            json!({"name": group.name, "versions": versions, "preferredVersion": preferred})
        })
        .collect();
    list
}

fn merge_aggregated(mut list: Value, remotes: &RemoteServices, documents: &Documents) -> Value {
    let local = named(&list["items"], |group| &group["metadata"]["name"]);
    let entry = |remote: &RemoteService| {
        let mut entry = json!({"version": remote.version});
        if let Some(document) = documents.get(&remote.name) {
            entry["resources"] = document.resources.clone();
        }
        entry["freshness"] = if remote.available { "Current" } else { "Stale" }.into();
        entry
    };
    let groups = merge(local.into_iter(), remotes, entry);
    list["items"] = groups
        .into_iter()
        .map(|group| {
            let versions: Vec<Value> = group.versions.into_iter().map(|(_, _, value)| value).collect();
            json!({"metadata": {"name": group.name}, "versions": versions})
        })
        .collect();
    list
}
