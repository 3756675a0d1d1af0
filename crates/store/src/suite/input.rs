//! Accepted and refused keys and values.

use bytes::Bytes;

use super::{Fixture, key, pod, text};
use crate::contract::ListQuery;
use crate::error::{KeyError, ReadError, WatchError, WriteError};
use crate::key::{KEY_BYTES_MAX, Key, Prefix};

pub async fn a_key_of_the_longest_length_works(fixture: Fixture) {
    let start = "core/pods/";
    let longest = key(&format!("{start}{}", "x".repeat(KEY_BYTES_MAX - start.len())));
    let revision = fixture.store.create(longest.clone(), text("1")).await.expect("the key is allowed");
    let entry = fixture.store.get(&longest).await.expect("readable").expect("present");
    assert_eq!((&entry.key, entry.revision), (&longest, revision));
    // Longer and empty keys are refused by `Key::new`, so no engine gets them.
    assert!(matches!(Key::new(format!("{longest}x")), Err(KeyError::TooLong { .. })));
    assert!(matches!(Key::new(""), Err(KeyError::Empty)));
}

pub async fn keys_are_any_text(fixture: Fixture) {
    let mut odd =
        ["core/pods/a/ünï", "core/pods/a/%_*?", "core/pods/a/'\"; --", "core/pods/a/ \t\n", "core/pods/a/日本"];
    for name in odd {
        fixture.store.create(key(name), text(name)).await.expect("the key is allowed");
    }
    odd.sort_unstable();
    let listed = fixture.list(ListQuery::prefix(Prefix::new("core/pods/a/"))).await;
    let names: Vec<&str> = listed.entries.iter().map(|entry| entry.key.as_str()).collect();
    assert_eq!(names, odd);
    let found = fixture.list(ListQuery::prefix(Prefix::new("core/pods/a/%"))).await;
    assert_eq!(found.entries.len(), 1, "a percent sign is a percent sign");
}

pub async fn an_empty_value_is_a_value(fixture: Fixture) {
    let start = fixture.initial_revision().await;
    let revision = fixture.store.create(pod("a/1"), Bytes::new()).await.expect("allowed");
    let entry = fixture.store.get(&pod("a/1")).await.expect("readable").expect("an empty value is not a delete");
    assert_eq!((entry.revision, entry.value), (revision, Bytes::new()));
    let seen = super::take(&mut fixture.watch("", start).await, 1).await;
    assert_eq!(seen[0].value, Some(Bytes::new()));
}

pub async fn values_are_any_bytes(fixture: Fixture) {
    let value: Bytes = (0..=255_u8).cycle().take(100_000).collect();
    fixture.store.create(pod("a/1"), value.clone()).await.expect("allowed");
    assert_eq!(fixture.store.get(&pod("a/1")).await.expect("readable").expect("present").value, value);
}

pub async fn the_largest_value_works_and_a_larger_one_is_refused(fixture: Fixture) {
    let max = fixture.value_bytes_max;
    let largest = Bytes::from(vec![b'x'; max]);
    let revision = fixture.store.create(pod("a/1"), largest.clone()).await.expect("the largest value is allowed");
    let entry = fixture.store.get(&pod("a/1")).await.expect("readable").expect("present");
    assert!(entry.value == largest, "the largest value is returned whole");
    let larger = Bytes::from(vec![b'y'; max + 1]);
    for refused in [
        fixture.store.create(pod("a/2"), larger.clone()).await,
        fixture.store.update(pod("a/1"), larger.clone(), revision).await,
    ] {
        let Err(WriteError::TooLarge { bytes, max: reported }) = refused else { panic!("{refused:?}") };
        assert_eq!((bytes, reported), (max + 1, max));
    }
    assert_eq!(fixture.store.current_revision().await.expect("readable"), revision);
}

pub async fn an_empty_store_answers(fixture: Fixture) {
    let current = fixture.initial_revision().await;
    assert_eq!(fixture.store.get(&pod("a/1")).await.expect("readable"), None);
    let listed = fixture.list(ListQuery::default()).await;
    assert_eq!((listed.revision, listed.entries.len(), listed.remaining), (current, 0, 0));
    assert!(fixture.store.oldest_revision(&Prefix::everything()).await.expect("readable") <= current);
    let mut changes = fixture.watch("", current).await;
    let revision = fixture.create("a/1", "1").await;
    assert_eq!(super::take(&mut changes, 1).await[0].revision, revision);
}

pub async fn statistics_count_objects(fixture: Fixture) {
    let one = fixture.create("a/1", "1").await;
    fixture.create("a/2", "22").await;
    let one = fixture.update("a/1", "333", one).await;
    let last = fixture.delete("a/1", one).await;
    let stats = fixture.store.stats().await.expect("readable");
    assert_eq!((stats.objects, stats.revision), (1, last));
}

pub async fn a_closed_store_refuses_politely(fixture: Fixture) {
    let revision = fixture.create("a/1", "1").await;
    fixture.store.close().await;
    fixture.store.close().await;
    let create = fixture.store.create(pod("a/2"), text("2")).await;
    assert!(matches!(create, Err(WriteError::Unavailable(_))), "{create:?}");
    let get = fixture.store.get(&pod("a/1")).await;
    assert!(matches!(get, Err(ReadError::Unavailable(_))), "{get:?}");
    let list = fixture.store.list(ListQuery::default()).await;
    assert!(matches!(list, Err(ReadError::Unavailable(_))), "{list:?}");
    match fixture.store.watch(Prefix::everything(), revision).await {
        Err(WatchError::Unavailable(_)) => {}
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("a closed store started a watch"),
    }
}
