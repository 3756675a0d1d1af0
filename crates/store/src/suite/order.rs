//! One order: a single counter, one revision for each write, and reads that include every acknowledged write.

use std::collections::BTreeSet;

use machinery::Revision;

use super::{Fixture, pod, take_until, text};
use crate::contract::{ListQuery, Write};
use crate::error::WriteError;
use crate::key::Prefix;

pub async fn every_write_gets_a_revision_of_its_own(fixture: Fixture) {
    let mut writers = tokio::task::JoinSet::new();
    for writer in 0..8 {
        let store = fixture.store.clone();
        writers.spawn(async move {
            let mut revisions: Vec<Revision> = Vec::new();
            for write in 0..25 {
                let name = pod(&format!("w{writer}/{write}"));
                revisions.push(store.create(name, text("x")).await.expect("the key is free"));
            }
            assert!(revisions.is_sorted_by(|a, b| a < b), "a caller's own writes go forward: {revisions:?}");
            revisions
        });
    }
    let all: Vec<Revision> = writers.join_all().await.into_iter().flatten().collect();
    let distinct: BTreeSet<Revision> = all.iter().copied().collect();
    assert_eq!(distinct.len(), all.len(), "no two writes share a revision");
    let listed = fixture.list(ListQuery::default()).await;
    assert_eq!(listed.entries.iter().map(|entry| entry.revision).collect::<BTreeSet<_>>(), distinct);
}

pub async fn later_writes_have_greater_revisions(fixture: Fixture) {
    let created = fixture.create("a/1", "1").await;
    let elsewhere = fixture.store.create(super::key("core/nodes/n1"), text("n")).await.expect("the key is free");
    let updated = fixture.update("a/1", "2", created).await;
    let deleted = fixture.delete("a/1", updated).await;
    let again = fixture.create("a/1", "3").await;
    let revisions = [created, elsewhere, updated, deleted, again];
    assert!(revisions.is_sorted_by(|a, b| a < b), "{revisions:?}");
    assert!(!created.is_zero(), "zero is before everything");
}

pub async fn the_current_revision_is_that_of_the_last_acknowledged_write(fixture: Fixture) {
    let created = fixture.create("a/1", "1").await;
    assert_eq!(fixture.store.current_revision().await.expect("readable"), created);
    let deleted = fixture.delete("a/1", created).await;
    assert_eq!(fixture.store.current_revision().await.expect("readable"), deleted);
    assert_eq!(fixture.list(ListQuery::default()).await.revision, deleted);
}

pub async fn reads_see_every_acknowledged_write(fixture: Fixture) {
    let name = pod("a/1");
    assert_eq!(fixture.store.get(&name).await.expect("readable"), None);
    let mut revision = fixture.create("a/1", "0").await;
    for round in 1..100 {
        let value = format!("{round}");
        revision = fixture.update("a/1", &value, revision).await;
        let entry = fixture.store.get(&name).await.expect("readable").expect("present");
        assert_eq!((entry.revision, &entry.value[..]), (revision, value.as_bytes()));
        let listed = fixture.list(ListQuery::prefix(Prefix::new("core/pods/"))).await;
        assert_eq!(listed.entries, vec![entry]);
    }
    fixture.delete("a/1", revision).await;
    assert_eq!(fixture.store.get(&name).await.expect("readable"), None);
    assert_eq!(fixture.list(ListQuery::default()).await.entries, vec![]);
}

pub async fn a_refused_write_changes_nothing(fixture: Fixture) {
    let start = fixture.initial_revision().await;
    let created = fixture.create("a/1", "1").await;
    let before = fixture.store.get(&pod("a/1")).await.expect("readable");
    let again = fixture.store.create(pod("a/1"), text("2")).await;
    assert!(matches!(again, Err(WriteError::Exists(_))), "{again:?}");
    let update = fixture.store.update(pod("a/1"), text("3"), created.next()).await;
    assert!(matches!(update, Err(WriteError::Conflict { .. })), "{update:?}");
    let delete = fixture.store.delete(pod("a/1"), created.next()).await;
    assert!(matches!(delete, Err(WriteError::Conflict { .. })), "{delete:?}");
    assert_eq!(fixture.store.get(&pod("a/1")).await.expect("readable"), before);

    let last = fixture.create("a/2", "4").await;
    let seen = take_until(&mut fixture.watch("", start).await, last).await;
    let seen: Vec<Revision> = seen.iter().map(|change| change.revision).collect();
    assert_eq!(seen, vec![created, last], "a refused write is not in the log");
}

pub async fn several_writes_are_one_after_the_other_in_the_log(fixture: Fixture) {
    let (first, second) = (fixture.create("a/1", "1").await, fixture.create("a/2", "2").await);
    let write = |name, value: Option<&str>, expected| Write { key: pod(name), value: value.map(text), expected };
    let writes = vec![
        write("a/1", None, Some(first)),
        write("a/2", Some("changed"), Some(second)),
        write("a/3", Some("new"), None),
        write("b/1", Some("new"), None),
    ];
    let last = fixture.store.write_all(writes).await.expect("all of them can be made");
    assert_eq!(fixture.store.current_revision().await.expect("readable"), last);
    let seen = take_until(&mut fixture.watch("", second).await, last).await;
    let revisions: BTreeSet<Revision> = seen.iter().map(|change| change.revision).collect();
    assert_eq!((seen.len(), revisions.len()), (4, 4), "each has a revision of its own: {seen:?}");
    let listed = fixture.list(ListQuery::default()).await;
    let names: Vec<&str> = listed.entries.iter().map(|entry| entry.key.as_str()).collect();
    assert_eq!(names, ["core/pods/a/2", "core/pods/a/3", "core/pods/b/1"]);
    assert_eq!(fixture.store.write_all(Vec::new()).await.map(|_| ()).map_err(|error| error.to_string()), Ok(()));
}

pub async fn a_write_among_several_needs_the_current_revision(fixture: Fixture) {
    let created = fixture.create("a/1", "1").await;
    let write = |value: Option<&str>, expected| vec![Write { key: pod("a/1"), value: value.map(text), expected }];
    let refused = fixture.store.write_all(write(Some("2"), Some(created.next()))).await;
    assert!(matches!(refused, Err(WriteError::Conflict { .. })), "{refused:?}");
    let refused = fixture.store.write_all(write(None, Some(created.next()))).await;
    assert!(matches!(refused, Err(WriteError::Conflict { .. })), "{refused:?}");
    let refused = fixture.store.write_all(write(Some("2"), None)).await;
    assert!(matches!(refused, Err(WriteError::Exists(_))), "{refused:?}");
    assert_eq!(fixture.store.get(&pod("a/1")).await.expect("readable").expect("present").revision, created);
}
