//! Compaction: history is removed, current entries stay, and reads below the floor fail as compacted.

use super::{Fixture, pod, state_of, take, text};
use crate::contract::ListQuery;
use crate::error::{ReadError, WatchError};
use crate::key::Prefix;

pub async fn what_is_current_stays(fixture: Fixture) {
    let history = fixture.history().await;
    let (end, state) = history.last().expect("there is a history");
    fixture.store.compact(*end).await.expect("the revision is current");
    let listed = fixture.list(ListQuery::default()).await;
    assert_eq!(&state_of(&listed), state);
    assert_eq!(listed.revision, *end);
    for (name, (revision, value)) in state {
        let entry = fixture.store.get(&super::key(name)).await.expect("readable").expect("present");
        assert_eq!((entry.revision, entry.value), (*revision, text(value)));
    }
}

pub async fn the_oldest_revision_follows(fixture: Fixture) {
    let history = fixture.history().await;
    let prefixes =
        [Prefix::everything(), Prefix::new("core/pods/"), Prefix::new("core/pods/a/"), Prefix::new("core/nodes/")];
    for prefix in &prefixes {
        assert!(fixture.store.oldest_revision(prefix).await.expect("readable") <= history[0].0);
    }
    for (at, _) in [&history[10], &history[25]] {
        fixture.store.compact(*at).await.expect("the revision is retained");
        for prefix in &prefixes {
            assert_eq!(fixture.store.oldest_revision(prefix).await.expect("readable"), *at, "{prefix:?}");
        }
    }
}

pub async fn older_states_are_compacted_and_later_ones_exact(fixture: Fixture) {
    let history = fixture.history().await;
    let (at, _) = history[20];
    fixture.store.compact(at).await.expect("the revision is retained");
    for (revision, state) in &history[1..] {
        let outcome = fixture.store.list(ListQuery { at: Some(*revision), ..ListQuery::default() }).await;
        if *revision < at {
            let Err(ReadError::Compacted { asked, oldest }) = outcome else { panic!("at {revision}: {outcome:?}") };
            assert_eq!((asked, oldest), (*revision, at));
        } else {
            assert_eq!(&state_of(&outcome.expect("retained")), state, "at {revision}");
        }
    }
}

pub async fn a_watch_from_before_is_compacted_and_later_ones_complete(fixture: Fixture) {
    let history = fixture.history().await;
    let all = take(&mut fixture.watch("", history[0].0).await, history.len() - 1).await;
    let (at, _) = history[20];
    fixture.store.compact(at).await.expect("the revision is retained");
    for (position, (revision, _)) in history.iter().enumerate() {
        let outcome = fixture.store.watch(Prefix::new("core/pods/"), *revision).await;
        if *revision < at {
            match outcome {
                Err(WatchError::Compacted { asked, oldest }) => assert_eq!((asked, oldest), (*revision, at)),
                Err(other) => panic!("after {revision}: {other}"),
                Ok(_) => panic!("a watch started after {revision}, which is compacted"),
            }
        } else {
            let mut changes = outcome.expect("retained");
            assert_eq!(take(&mut changes, all.len() - position).await, all[position..], "after {revision}");
        }
    }
}

pub async fn a_deleted_key_stays_deleted_and_revisions_go_on(fixture: Fixture) {
    let created = fixture.create("a/1", "1").await;
    let deleted = fixture.delete("a/1", created).await;
    fixture.store.compact(deleted).await.expect("the revision is current");
    assert_eq!(fixture.store.get(&pod("a/1")).await.expect("readable"), None);
    assert_eq!(fixture.store.current_revision().await.expect("readable"), deleted);
    assert_eq!(fixture.list(ListQuery::default()).await.entries, vec![]);
    let again = fixture.create("a/1", "2").await;
    assert!(again > deleted);
    let seen = take(&mut fixture.watch("core/pods/", deleted).await, 1).await;
    assert_eq!((seen[0].revision, &seen[0].previous), (again, &None));
}

pub async fn compacting_again_is_harmless(fixture: Fixture) {
    let history = fixture.history().await;
    let (at, _) = history[20];
    for again in [at, at, history[10].0, at] {
        fixture.store.compact(again).await.expect("what is compacted stays compacted");
        assert_eq!(fixture.store.oldest_revision(&Prefix::everything()).await.expect("readable"), at);
    }
}

pub async fn the_future_cannot_be_compacted(fixture: Fixture) {
    let current = fixture.create("a/1", "1").await;
    let asked = machinery::Revision(current.0 + 1_000);
    let refused = fixture.store.compact(asked).await;
    let Err(ReadError::Future { asked: reported, current: now }) = refused else { panic!("{refused:?}") };
    assert_eq!((reported, now), (asked, current));
    fixture.watch("core/pods/", current).await;
}
