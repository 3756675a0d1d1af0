//! Optimistic writes: they succeed only if the key is unchanged, and a refusal has the current entry.

use machinery::Revision;

use super::{Fixture, pod, text};
use crate::entry::Entry;
use crate::error::WriteError;

pub async fn a_taken_key_cannot_be_created_and_the_current_entry_is_returned(fixture: Fixture) {
    let revision = fixture.create("a/1", "mine").await;
    let refused = fixture.store.create(pod("a/1"), text("yours")).await;
    let Err(WriteError::Exists(current)) = refused else { panic!("{refused:?}") };
    assert_eq!(current, Entry { key: pod("a/1"), revision, value: text("mine") });
}

pub async fn an_update_needs_the_current_revision_and_returns_the_current_entry(fixture: Fixture) {
    let created = fixture.create("a/1", "1").await;
    let updated = fixture.update("a/1", "2", created).await;
    let current = Some(Entry { key: pod("a/1"), revision: updated, value: text("2") });
    for expected in [created, updated.next(), Revision::ZERO] {
        let refused = fixture.store.update(pod("a/1"), text("3"), expected).await;
        let Err(WriteError::Conflict { key, expected: reported, current: found }) = refused else {
            panic!("{refused:?}")
        };
        assert_eq!((key, reported, &found), (pod("a/1"), expected, &current));
    }
    fixture.update("a/1", "3", updated).await;
}

pub async fn a_delete_needs_the_current_revision_and_returns_the_current_entry(fixture: Fixture) {
    let created = fixture.create("a/1", "1").await;
    let updated = fixture.update("a/1", "2", created).await;
    let refused = fixture.store.delete(pod("a/1"), created).await;
    let Err(WriteError::Conflict { current, .. }) = refused else { panic!("{refused:?}") };
    assert_eq!(current, Some(Entry { key: pod("a/1"), revision: updated, value: text("2") }));
    fixture.delete("a/1", updated).await;
}

pub async fn an_absent_key_cannot_be_updated_or_deleted(fixture: Fixture) {
    let absent =
        |outcome: &Result<Revision, WriteError>| matches!(outcome, Err(WriteError::Conflict { current: None, .. }));
    let created = fixture.create("a/1", "1").await;
    let deleted = fixture.delete("a/1", created).await;
    for expected in [created, deleted] {
        for name in ["a/1", "a/never"] {
            let update = fixture.store.update(pod(name), text("2"), expected).await;
            assert!(absent(&update), "{update:?}");
            let delete = fixture.store.delete(pod(name), expected).await;
            assert!(absent(&delete), "{delete:?}");
        }
    }
}

pub async fn a_deleted_key_can_be_created_again(fixture: Fixture) {
    let first = fixture.create("a/1", "1").await;
    let deleted = fixture.delete("a/1", first).await;
    let second = fixture.create("a/1", "2").await;
    assert!(second > deleted);
    let stale = fixture.store.update(pod("a/1"), text("3"), first).await;
    assert!(matches!(stale, Err(WriteError::Conflict { current: Some(_), .. })), "{stale:?}");
}

pub async fn of_racing_updates_exactly_one_wins(fixture: Fixture) {
    let mut revision = fixture.create("a/1", "start").await;
    for round in 0..10 {
        let mut racers = tokio::task::JoinSet::new();
        for racer in 0..8 {
            let store = fixture.store.clone();
            racers.spawn(async move { store.update(pod("a/1"), text(&format!("{round}.{racer}")), revision).await });
        }
        let outcomes = racers.join_all().await;
        let won: Vec<Revision> = outcomes.iter().filter_map(|outcome| outcome.as_ref().ok()).copied().collect();
        let &[winner] = &won[..] else { panic!("one of eight wins: {outcomes:?}") };
        for outcome in outcomes {
            if let Err(refused) = outcome {
                let WriteError::Conflict { current: Some(current), .. } = refused else { panic!("{refused:?}") };
                assert_eq!(current.revision, winner, "the loser learns who won");
            }
        }
        revision = winner;
    }
}

pub async fn of_racing_creates_exactly_one_wins(fixture: Fixture) {
    for round in 0..10 {
        let mut racers = tokio::task::JoinSet::new();
        for racer in 0..8 {
            let store = fixture.store.clone();
            let name = pod(&format!("a/{round}"));
            racers.spawn(async move { store.create(name, text(&format!("{racer}"))).await });
        }
        let outcomes = racers.join_all().await;
        assert_eq!(outcomes.iter().filter(|outcome| outcome.is_ok()).count(), 1, "{outcomes:?}");
        assert_eq!(
            outcomes.iter().filter(|outcome| matches!(outcome, Err(WriteError::Exists(_)))).count(),
            7,
            "{outcomes:?}"
        );
    }
}
