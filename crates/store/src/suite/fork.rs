//! Forks: a store that begins as another one was, and has its own history from there.

use machinery::Revision;

use super::{Fixture, brief, pod, state_of, take, take_until, text};
use crate::contract::ListQuery;
use crate::error::ReadError;
use crate::key::Prefix;

pub async fn a_fork_begins_as_its_origin_and_both_go_on_by_themselves(fixture: Fixture) {
    let history = fixture.history().await;
    let (end, state) = history.last().expect("there is a history");
    let fork = fixture.store.fork(None).await.expect("the store is readable");
    assert_eq!(fork.current_revision().await.expect("readable"), *end, "revisions go on from there");
    assert_eq!(&state_of(&fork.list(ListQuery::default()).await.expect("readable")), state);

    let here = fixture.create("only/here", "1").await;
    let there = fork.create(pod("only/there"), text("1")).await.expect("the key is free");
    assert!(here > *end && there > *end, "{here} and {there} after {end}");
    assert_eq!(fixture.store.get(&pod("only/there")).await.expect("readable"), None);
    assert_eq!(fork.get(&pod("only/here")).await.expect("readable"), None);
    let objects = fork.stats().await.expect("readable").objects;
    assert_eq!(objects, state.len() as u64 + 1);
    fork.close().await;
    assert!(fixture.store.get(&pod("only/here")).await.expect("still open").is_some());
}

pub async fn an_older_state_can_be_forked(fixture: Fixture) {
    let history = fixture.history().await;
    for (at, state) in history.iter().skip(1).step_by(7) {
        let fork = fixture.store.fork(Some(*at)).await.expect("the revision is retained");
        let listed = fork.list(ListQuery::default()).await.expect("readable");
        assert_eq!((listed.revision, &state_of(&listed)), (*at, state));
        let stats = fork.stats().await.expect("readable");
        let bytes: usize = state.values().map(|(_, value)| value.len()).sum();
        assert_eq!((stats.objects, stats.object_bytes), (state.len() as u64, bytes as u64));
        let next = fork.create(pod("new/1"), text("1")).await.expect("the key is free");
        assert_eq!(fork.current_revision().await.expect("readable"), next);
        assert!(next > *at, "{next} after {at}");
    }
}

pub async fn a_watch_of_the_origin_resumes_in_the_fork(fixture: Fixture) {
    let history = fixture.history().await;
    let (at, _) = history[history.len() / 2];
    let fork = fixture.store.fork(Some(at)).await.expect("the revision is retained");
    let mut watch = fork.watch(Prefix::everything(), at).await.expect("a fork can be watched from its revision");
    let created = fork.create(pod("new/1"), text("1")).await.expect("the key is free");
    let deleted = fork.delete(pod("new/1"), created).await.expect("the revision is current");
    let seen: Vec<Revision> = take(&mut watch, 2).await.iter().map(|change| brief(change).0).collect();
    assert_eq!(seen, [created, deleted], "nothing of what the origin did after the fork");
}

pub async fn what_cannot_be_read_cannot_be_forked(fixture: Fixture) {
    let history = fixture.history().await;
    let (end, _) = history[history.len() - 1];
    fixture.store.compact(history[20].0).await.expect("the revision is retained");
    let lost = fixture.store.fork(Some(history[10].0)).await.err();
    assert!(matches!(lost, Some(ReadError::Compacted { .. })), "{lost:?}");
    let future = fixture.store.fork(Some(end.next())).await.err();
    assert!(matches!(future, Some(ReadError::Future { .. })), "{future:?}");
    assert!(fixture.store.fork(Some(history[20].0)).await.is_ok());
}

pub async fn an_older_state_can_be_restored_by_new_revisions(fixture: Fixture) {
    let history = fixture.history().await;
    let (end, _) = history[history.len() - 1];
    let mut watch = fixture.watch("", end).await;
    let (at, state) = &history[history.len() / 2];
    let wanted = fixture.list(ListQuery { at: Some(*at), ..ListQuery::default() }).await;
    let restored = fixture.store.restore(wanted.entries.clone()).await.expect("no other client writes");
    assert!(restored.revision > end && !restored.is_unchanged(), "{restored:?} after {end}");
    let listed = fixture.list(ListQuery::default()).await;
    let values = |state: &super::State| -> Vec<(String, String)> {
        state.iter().map(|(key, (_, value))| (key.clone(), value.clone())).collect()
    };
    assert_eq!(values(&state_of(&listed)), values(state));
    let seen = take_until(&mut watch, restored.revision).await;
    let deleted = seen.iter().filter(|change| change.is_delete()).count();
    let added = seen.iter().filter(|change| change.previous.is_none()).count();
    assert_eq!((deleted, added), (restored.deleted, restored.added));
    assert_eq!(seen.len(), restored.deleted + restored.modified + restored.added);
    let again = fixture.store.restore(wanted.entries).await.expect("no other client writes");
    assert!(again.is_unchanged(), "{again:?}");
    assert_eq!(
        fixture.store.current_revision().await.expect("readable"),
        restored.revision,
        "no write without a change"
    );
}
