//! The history of a workload's pods, read afterwards from the store's log, so that no moment between two reads is missed.
//!
//! All kinds share one order of versions, so the changes of several kinds are one sequence. It is printed when a
//! promise was broken: which set was scaled, the counts at that moment, which pods were deleted.

use std::collections::HashMap;
use std::fmt::Debug;

use futures::{StreamExt, TryStreamExt};
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::apps::v1::ReplicaSet;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, ListParams, WatchEvent, WatchParams};
use kube::{Client, Resource, ResourceExt};
use serde::de::DeserializeOwned;

/// Changes before the worst moment that are printed.
const TOLD: usize = 80;

/// The beginning of a history: the pods of that moment.
pub(crate) struct Beginning {
    pods: Vec<Pod>,
    version: u64,
}

impl Beginning {
    pub(crate) async fn now(client: &Client) -> Self {
        let pods = Api::<Pod>::namespaced(client.clone(), "default");
        let list = pods.list(&ListParams::default()).await.expect("the server answers");
        Self { version: number(list.metadata.resource_version.as_deref()), pods: list.items }
    }

    /// The changes since.
    pub(crate) async fn until_now(&self, client: &Client) -> History {
        let mut pods: HashMap<String, Pod> = self.pods.iter().map(|pod| (pod.name_any(), pod.clone())).collect();
        let mut available = count(&pods);
        let mut moments = Vec::new();
        let mut made = 0;
        let sets = changes::<ReplicaSet>(client, self.version).await;
        let mut sets = sets.into_iter().map(|change| (change.version, tell_set(&change))).peekable();
        for change in changes::<Pod>(client, self.version).await {
            while let Some((version, text)) = sets.next_if(|(version, _)| *version < change.version) {
                moments.push(Moment { version, available, text });
            }
            match change.verb {
                Verb::Deleted => pods.remove(&change.object.name_any()),
                _ => pods.insert(change.object.name_any(), change.object.clone()),
            };
            made += usize::from(change.verb == Verb::Added);
            available = count(&pods);
            moments.push(Moment { version: change.version, available, text: tell_pod(&change) });
        }
        History { moments, made }
    }
}

/// One change and the number of available pods after it.
struct Moment {
    version: u64,
    available: usize,
    text: String,
}

pub(crate) struct History {
    moments: Vec<Moment>,
    /// Number of pods created.
    pub(crate) made: usize,
}

impl History {
    /// The fewest pods that were available at any time.
    pub(crate) fn fewest_available(&self) -> usize {
        self.moments.iter().map(|moment| moment.available).min().expect("something happened")
    }

    /// # Panics
    /// If fewer pods were available at any time, with the story that led there.
    pub(crate) fn assert_available(&self, at_least: usize) {
        let Some(first) = self.moments.iter().position(|moment| moment.available < at_least) else { return };
        let story: Vec<String> = self.moments[first.saturating_sub(TOLD)..=first]
            .iter()
            .map(|moment| format!("{:>7} {:>3} available  {}", moment.version, moment.available, moment.text))
            .collect();
        let fewest = self.fewest_available();
        panic!("{fewest} pods were available, {at_least} should be; it began so:\n{}", story.join("\n"));
    }
}

/// True if a pod serves: what clients of a service would find.
pub(crate) fn is_available(pod: &Pod) -> bool {
    let status = pod.status.clone().unwrap_or_default();
    let ready = status.conditions.iter().flatten().any(|c| c.type_ == "Ready" && c.status == "True");
    ready && status.phase.as_deref() == Some("Running") && pod.metadata.deletion_timestamp.is_none()
}

fn count(pods: &HashMap<String, Pod>) -> usize {
    pods.values().filter(|pod| is_available(pod)).count()
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verb {
    Added,
    Modified,
    Deleted,
}

struct Change<K> {
    verb: Verb,
    version: u64,
    object: K,
}

/// The changes of a kind since a version, up to now.
async fn changes<K>(client: &Client, from: u64) -> Vec<Change<K>>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + Debug + DeserializeOwned + Send + 'static,
{
    let api = Api::<K>::namespaced(client.clone(), "default");
    let last = api.list(&ListParams::default()).await.expect("the server answers").metadata.resource_version;
    let last = number(last.as_deref());
    // The list may be newer than the last change of this kind: then the end of the stream is the end of the history.
    let params = WatchParams::default().timeout(5);
    let mut events = api.watch(&params, &from.to_string()).await.expect("the history is there").boxed();
    let mut changes = Vec::new();
    while let Ok(Some(event)) = events.try_next().await {
        let (verb, object) = match event {
            WatchEvent::Added(object) => (Verb::Added, object),
            WatchEvent::Modified(object) => (Verb::Modified, object),
            WatchEvent::Deleted(object) => (Verb::Deleted, object),
            WatchEvent::Bookmark(_) => continue,
            WatchEvent::Error(error) => panic!("the history has a gap: {error:?}"),
        };
        let version = number(object.meta().resource_version.as_deref());
        changes.push(Change { verb, version, object });
        if version >= last {
            break;
        }
    }
    changes
}

fn number(version: Option<&str>) -> u64 {
    version.and_then(|version| version.parse().ok()).expect("a version is a number")
}

fn tell_set(change: &Change<ReplicaSet>) -> String {
    let set = &change.object;
    let wanted = set.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1);
    let status = set.status.clone().unwrap_or_default();
    format!(
        "{:?} set {} wants {wanted}; its status: {} replicas, {} available, generation {} of {}",
        change.verb,
        set.name_any(),
        status.replicas,
        status.available_replicas.unwrap_or(0),
        status.observed_generation.unwrap_or(0),
        set.metadata.generation.unwrap_or(0),
    )
}

fn tell_pod(change: &Change<Pod>) -> String {
    let pod = &change.object;
    let status = pod.status.clone().unwrap_or_default();
    let node = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()).unwrap_or("no node");
    let leaving = if pod.metadata.deletion_timestamp.is_some() { ", leaving" } else { "" };
    let ready = if is_available(pod) { ", available" } else { "" };
    let phase = status.phase.unwrap_or_default();
    format!("{:?} pod {} on {node}: {phase}{ready}{leaving}", change.verb, pod.name_any())
}
