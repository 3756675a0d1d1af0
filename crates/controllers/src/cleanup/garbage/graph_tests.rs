//! The graph by itself: the nodes that each change puts in the queues.

use std::sync::Arc;

use client::{Object, RawObject};
use serde_json::{Value, json};

use super::graph::{Graph, Identity, Kind, Wake};
use super::tracked::{Owner, Tracked, Uid};

fn kind(name: &str) -> Kind {
    Kind::new("v1", name)
}

/// `ns/name` with its UID equal to its name, owned by these.
fn object(key: &str, owners: &[&str], more: Value) -> Tracked {
    let (namespace, name) = key.split_once('/').map_or((None, key), |(ns, name)| (Some(ns), name));
    let owners: Vec<Value> = owners
        .iter()
        .map(|owner| {
            let (owner, blocks) = owner.strip_suffix('!').map_or((*owner, false), |owner| (owner, true));
            json!({"apiVersion": "v1", "kind": "Owner", "name": owner, "uid": owner, "blockOwnerDeletion": blocks})
        })
        .collect();
    let mut object = json!({"metadata": {
        "name": name, "namespace": namespace, "uid": name, "resourceVersion": "1", "ownerReferences": owners,
    }});
    for (member, value) in more.as_object().into_iter().flatten() {
        object["metadata"][member.as_str()] = value.clone();
    }
    Tracked::from_raw(&RawObject::from_json(object.to_string().into()).unwrap()).unwrap()
}

fn plain(key: &str, owners: &[&str]) -> Tracked {
    object(key, owners, json!({}))
}

fn deleting(key: &str, owners: &[&str], finalizers: &[&str]) -> Tracked {
    object(key, owners, json!({"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": finalizers}))
}

fn to_delete(wake: &Wake) -> Vec<&str> {
    wake.delete.iter().map(|uid| &**uid).collect()
}

fn uid(name: &str) -> Uid {
    name.into()
}

#[test]
fn gc_2_a_node_knows_its_owners_and_dependents() {
    let mut graph = Graph::default();
    assert_eq!(graph.observe(&kind("Owner"), None, &plain("n/o", &[])), Wake::default());
    assert_eq!(graph.observe(&kind("Child"), None, &plain("n/c", &["o"])), Wake::default());
    let dependents = graph.dependents(&uid("o"));
    assert_eq!(dependents.len(), 1);
    assert_eq!(dependents[0].identity.key.as_str(), "n/c");
    assert!(!graph.view(&uid("o")).unwrap().is_virtual);
    // The owner's reference is removed, and then its virtual node has no dependents.
    graph.observe(&kind("Child"), Some(&plain("n/c", &["o"])), &plain("n/c", &[]));
    assert!(!graph.view(&uid("o")).unwrap().has_dependents);
}

#[test]
fn gc_3_an_owner_that_is_not_there_yet_is_virtual_until_it_is_seen() {
    let mut graph = Graph::default();
    let wake = graph.observe(&kind("Child"), None, &plain("n/c", &["o"]));
    assert_eq!(to_delete(&wake), ["o"], "the owner is looked for");
    assert!(graph.view(&uid("o")).unwrap().is_virtual);
    assert_eq!(graph.observe(&kind("Owner"), None, &plain("n/o", &[])), Wake::default());
    assert!(!graph.view(&uid("o")).unwrap().is_virtual);
    assert!(graph.view(&uid("o")).unwrap().has_dependents);
}

#[test]
fn gc_3_an_owner_that_a_live_read_does_not_find_wakes_its_dependents() {
    let mut graph = Graph::default();
    graph.observe(&kind("Child"), None, &plain("n/c", &["o"]));
    let identity = graph.view(&uid("o")).unwrap().identity;
    let wake = graph.found_absent(&identity);
    assert_eq!(to_delete(&wake), ["c"]);
    assert!(graph.view(&uid("o")).is_none());
    let owner = plain("n/c", &["o"]).owners()[0].clone();
    assert!(graph.is_absent(&owner, Some("n")), "it is not asked for again");
    assert!(!graph.is_absent(&owner, Some("m")));
}

#[test]
fn gc_3_dependents_that_disagree_where_their_owner_is_are_told_apart() {
    let mut graph = Graph::default();
    graph.observe(&kind("Child"), None, &plain("a/c1", &["o"]));
    let wake = graph.observe(&kind("Child"), None, &plain("b/c2", &["o"]));
    assert_eq!(to_delete(&wake), ["c2"], "it may name an owner in another namespace");
    let first = graph.view(&uid("o")).unwrap().identity;
    assert_eq!(first.key.as_str(), "a/o");
    let wake = graph.found_absent(&first);
    assert_eq!(to_delete(&wake), ["c1"]);
    assert_eq!(wake.delete_later, [uid("o")], "then it is looked for in the other namespace");
    assert_eq!(graph.view(&uid("o")).unwrap().identity.key.as_str(), "b/o");
    // Absence at the first coordinates does not mean absence at the others.
    assert!(graph.found_absent(&first).delete_later.is_empty());
    assert_eq!(graph.view(&uid("o")).unwrap().identity.key.as_str(), "b/o");
}

#[test]
fn gc_4_a_deletion_wakes_dependents_and_owners_that_wait() {
    let mut graph = Graph::default();
    graph.observe(&kind("Owner"), None, &plain("n/o", &[]));
    graph.observe(&kind("Child"), None, &plain("n/c", &["o"]));
    graph.observe(&kind("Grandchild"), None, &plain("n/g", &["c"]));
    let wake = graph.observe_deletion(&kind("Child"), &plain("n/c", &["o"]));
    assert_eq!(to_delete(&wake), ["g"], "the owner does not wait");
    graph.observe(&kind("Child"), None, &plain("n/d", &["o"]));
    let waiting = deleting("n/o", &[], &["foregroundDeletion"]);
    graph.observe(&kind("Owner"), Some(&plain("n/o", &[])), &waiting);
    let wake = graph.observe_deletion(&kind("Child"), &plain("n/d", &["o"]));
    assert_eq!(to_delete(&wake), ["o"]);
}

#[test]
fn gc_4_absent_owners_are_remembered_up_to_a_number() {
    let mut graph = Graph::default();
    let owner = |at: usize| Owner {
        api_version: "v1".into(),
        kind: "Owner".into(),
        name: "o".into(),
        uid: at.to_string().into(),
        blocks: false,
    };
    for at in 0..600 {
        graph.note_absent(Identity::of_owner(&owner(at), Some("n")));
    }
    assert!(!graph.is_absent(&owner(99), Some("n")));
    assert!(graph.is_absent(&owner(100), Some("n")));
}

#[test]
fn gc_7_only_dependents_that_block_are_waited_for() {
    let mut graph = Graph::default();
    graph.observe(&kind("Owner"), None, &plain("n/o", &[]));
    graph.observe(&kind("Child"), None, &plain("n/blocks", &["o!"]));
    graph.observe(&kind("Child"), None, &plain("n/does-not", &["o"]));
    let wake = graph.observe(&kind("Owner"), Some(&plain("n/o", &[])), &deleting("n/o", &[], &["foregroundDeletion"]));
    assert_eq!(to_delete(&wake), ["blocks", "does-not", "o"], "all of them are worth a look");
    let names = |graph: &Graph| -> Vec<String> {
        graph.blocking_dependents(&uid("o")).iter().map(|view| view.identity.key.name().to_owned()).collect()
    };
    assert_eq!(names(&graph), ["blocks"]);
    let wake = graph.observe(&kind("Child"), Some(&plain("n/blocks", &["o!"])), &plain("n/blocks", &["o"]));
    assert_eq!(to_delete(&wake), ["o"], "it no longer blocks");
    assert!(names(&graph).is_empty());
}

#[test]
fn gc_7_nobody_waits_for_itself() {
    let mut graph = Graph::default();
    graph.observe(&kind("Owner"), None, &plain("n/o", &["o!"]));
    assert!(graph.blocking_dependents(&uid("o")).is_empty());
    let wake = graph.observe_deletion(&kind("Owner"), &plain("n/o", &["o!"]));
    assert!(graph.view(&uid("o")).is_none() && to_delete(&wake) == ["o"]);
}

#[test]
fn gc_8_an_orphaning_owner_is_woken_once() {
    let mut graph = Graph::default();
    graph.observe(&kind("Owner"), None, &plain("n/o", &[]));
    let orphaning = deleting("n/o", &[], &["orphan"]);
    let wake = graph.observe(&kind("Owner"), Some(&plain("n/o", &[])), &orphaning);
    assert_eq!(wake.orphan, [uid("o")]);
    let wake = graph.observe(&kind("Owner"), Some(&orphaning), &orphaning);
    assert_eq!(wake, Wake::default());
    // A deletion that began before this process started.
    let mut graph = Graph::default();
    assert_eq!(graph.observe(&kind("Owner"), None, &orphaning).orphan, [uid("o")]);
}

#[test]
fn gc_9_an_owner_in_another_namespace_is_reported() {
    let mut graph = Graph::default();
    graph.observe(&kind("Owner"), None, &plain("a/o", &[]));
    let wake = graph.observe(&kind("Child"), None, &plain("b/c", &["o"]));
    assert_eq!(to_delete(&wake), ["c"]);
    assert_eq!(wake.misplaced.len(), 1);
    // The same when the dependent is seen first.
    let mut graph = Graph::default();
    graph.observe(&kind("Child"), None, &plain("b/c", &["o"]));
    let wake = graph.observe(&kind("Owner"), None, &plain("a/o", &[]));
    assert_eq!((to_delete(&wake), wake.misplaced.len()), (vec!["c"], 1));
    // Owners without a namespace may own what is in one.
    let mut graph = Graph::default();
    graph.observe(&kind("Owner"), None, &plain("o", &[]));
    assert_eq!(graph.observe(&kind("Child"), None, &plain("b/c", &["o"])), Wake::default());
}

#[test]
fn gc_2_virtual_owners_go_with_the_last_who_names_them() {
    let mut graph = Graph::default();
    let child = plain("n/c", &["o"]);
    graph.observe(&kind("Child"), None, &child);
    assert_eq!(graph.len(), 2);
    graph.observe_deletion(&kind("Child"), &child);
    assert_eq!(graph.len(), 0);
    let _: &Arc<[Owner]> = child.owners();
}
