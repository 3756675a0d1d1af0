//! Resumable watches: every later change once, in order, with no gap, and progress while there are no changes.

use std::collections::BTreeMap;
use std::time::Duration;

use machinery::Revision;
use tokio::time::timeout;

use super::{Fixture, TIME_LIMIT, brief, key, lossy, pod, state_of, take, take_until, text};
use crate::contract::ListQuery;
use crate::error::WatchError;
use crate::key::Prefix;

pub async fn every_change_comes_once_in_order_with_what_was_before(fixture: Fixture) {
    let start = fixture.initial_revision().await;
    let mut live = fixture.watch("core/pods/", start).await;
    let created = fixture.create("a/1", "1").await;
    let updated = fixture.update("a/1", "2", created).await;
    let deleted = fixture.delete("a/1", updated).await;
    let again = fixture.create("a/1", "3").await;
    let name = || "core/pods/a/1".to_owned();
    let expected = vec![
        (created, name(), Some("1".to_owned()), None),
        (updated, name(), Some("2".to_owned()), Some(created)),
        (deleted, name(), None, Some(updated)),
        (again, name(), Some("3".to_owned()), None),
    ];
    for (how, changes) in
        [("live", take(&mut live, 4).await), ("later", take(&mut fixture.watch("", start).await, 4).await)]
    {
        assert_eq!(changes.iter().map(brief).collect::<Vec<_>>(), expected, "{how}");
        let previous = changes[2].previous.as_ref().expect("a delete has the previous entry");
        assert_eq!((&previous.key, &previous.value[..]), (&pod("a/1"), b"2".as_slice()), "{how}");
        assert!(changes[2].is_delete() && !changes[3].is_delete());
    }
}

pub async fn a_watch_resumes_after_any_revision(fixture: Fixture) {
    let history = fixture.history().await;
    let start = history[0].0;
    let all = take(&mut fixture.watch("", start).await, history.len() - 1).await;
    assert_eq!(
        all.iter().map(|change| change.revision).collect::<Vec<_>>(),
        history[1..].iter().map(|(revision, _)| *revision).collect::<Vec<_>>()
    );
    for (position, (revision, _)) in history.iter().enumerate() {
        let rest = take(&mut fixture.watch("core/pods/", *revision).await, all.len() - position).await;
        assert_eq!(rest, all[position..], "after {revision}");
    }
}

pub async fn a_watch_misses_nothing_of_concurrent_writers(fixture: Fixture) {
    const WRITERS: usize = 8;
    const WRITES: usize = 60;
    let start = fixture.initial_revision().await;
    let mut watches = tokio::task::JoinSet::new();
    for _ in 0..3 {
        let mut changes = fixture.watch("core/pods/", start).await;
        watches.spawn(async move { take(&mut changes, WRITERS * WRITES).await });
    }
    let mut writers = tokio::task::JoinSet::new();
    for writer in 0..WRITERS {
        let store = fixture.store.clone();
        writers.spawn(async move {
            let name = pod(&format!("a/{writer}"));
            let mut revision = None;
            let mut acknowledged = Vec::new();
            for write in 0..WRITES {
                let value = text(&format!("{writer}.{write}"));
                let done = match revision {
                    None => store.create(name.clone(), value).await,
                    Some(expected) => store.update(name.clone(), value, expected).await,
                };
                let done = done.expect("the only writer of this key");
                acknowledged.push((done, format!("{writer}.{write}")));
                revision = Some(done);
            }
            acknowledged
        });
    }
    let mut acknowledged: Vec<(Revision, String)> = writers.join_all().await.into_iter().flatten().collect();
    acknowledged.sort();
    for seen in watches.join_all().await {
        let seen: Vec<(Revision, String)> = seen
            .iter()
            .map(|change| (change.revision, change.value.as_deref().map(lossy).unwrap_or_default()))
            .collect();
        assert_eq!(seen, acknowledged);
    }
}

pub async fn a_watch_sees_its_prefix_and_nothing_else(fixture: Fixture) {
    let start = fixture.initial_revision().await;
    let prefixes = ["", "core/", "core/pods/", "core/pods/a/", "core/pods/ab/", "core/podtemplates/", "apps/"];
    let mut live = Vec::new();
    for prefix in prefixes {
        live.push((prefix, fixture.watch(prefix, start).await));
    }
    let keys = [
        "core/pods/a/1",
        "core/pods/ab/1",
        "core/podtemplates/a/1",
        "apps/deployments/a/1",
        "core/nodes/n1",
        "core/pods/a/2",
    ];
    let mut last = start;
    for name in keys {
        last = fixture.store.create(key(name), text(name)).await.expect("the key is free");
    }
    for (prefix, mut changes) in live {
        let expected: Vec<&str> = keys.into_iter().filter(|name| name.starts_with(prefix)).collect();
        for (how, seen) in [
            ("live", take_until(&mut changes, last).await),
            ("later", take_until(&mut fixture.watch(prefix, start).await, last).await),
        ] {
            let seen: Vec<&str> = seen.iter().map(|change| change.key.as_str()).collect();
            assert_eq!(seen, expected, "{how} below {prefix:?}");
        }
    }
}

pub async fn a_slow_watch_misses_nothing_and_delays_no_other(fixture: Fixture) {
    const WRITES: usize = 3_000;
    let start = fixture.initial_revision().await;
    let mut slow = fixture.watch("core/pods/", start).await;
    let mut brisk = fixture.watch("core/pods/", start).await;
    let mut revisions = Vec::new();
    let mut writers = tokio::task::JoinSet::new();
    for writer in 0..10 {
        let store = fixture.store.clone();
        writers.spawn(async move {
            let mut revisions = Vec::new();
            for write in 0..WRITES / 10 {
                let name = pod(&format!("a/{writer}-{write}"));
                revisions.push(store.create(name, text("some value of some length")).await.expect("the key is free"));
            }
            revisions
        });
    }
    let seen = take(&mut brisk, WRITES).await;
    revisions.extend(writers.join_all().await.into_iter().flatten());
    revisions.sort();
    assert_eq!(seen.iter().map(|change| change.revision).collect::<Vec<_>>(), revisions);
    assert_eq!(take(&mut slow, WRITES).await, seen, "the one that did not read gets the same");
}

pub async fn a_batch_says_how_far_it_reaches(fixture: Fixture) {
    let history = fixture.history().await;
    let end = history.last().expect("there is a history").0;
    let mut changes = fixture.watch("core/pods/", history[0].0).await;
    let mut reached = history[0].0;
    while reached < end {
        let batch = timeout(TIME_LIMIT, changes.next()).await.expect("in time").expect("open").expect("sound");
        assert!(batch.revision >= reached, "never back: {} after {reached}", batch.revision);
        for change in &batch.changes {
            assert!(reached < change.revision && change.revision <= batch.revision, "{change:?} in {}", batch.revision);
        }
        assert!(batch.changes.is_sorted_by(|a, b| a.revision < b.revision));
        reached = batch.revision;
    }
}

pub async fn progress_comes_while_the_log_moves_elsewhere(fixture: Fixture) {
    let start = fixture.create("a/1", "1").await;
    let mut quiet = fixture.watch("core/pods/", start).await;
    let store = fixture.store.clone();
    let elsewhere = tokio::spawn(async move {
        let mut count = 0;
        loop {
            count += 1;
            store.create(key(&format!("core/events/a/{count}")), text("e")).await.expect("the key is free");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    });
    let mut reached = start;
    for _ in 0..2 {
        let moved = fixture.store.current_revision().await.expect("readable");
        while reached < moved || reached == start {
            let batch =
                timeout(TIME_LIMIT, quiet.next()).await.expect("progress in time").expect("open").expect("sound");
            assert_eq!(batch.changes, vec![], "nothing happened below the prefix");
            assert!(batch.revision >= reached);
            reached = batch.revision;
        }
    }
    elsewhere.abort();
    let resumed = fixture.watch("core/pods/", reached).await;
    drop(resumed);
}

pub async fn progress_comes_while_nothing_happens(fixture: Fixture) {
    let created = fixture.create("a/1", "1").await;
    let mut idle = fixture.watch("core/pods/", created).await;
    for _ in 0..2 {
        let batch = timeout(TIME_LIMIT, idle.next()).await.expect("progress in time").expect("open").expect("sound");
        assert_eq!(batch.changes, vec![]);
        assert!(batch.revision >= created);
    }
    let updated = fixture.update("a/1", "2", created).await;
    assert_eq!(take(&mut idle, 1).await[0].revision, updated, "progress does not swallow what follows");
}

pub async fn a_list_followed_by_a_watch_has_no_gap(fixture: Fixture) {
    let store = fixture.store.clone();
    let writer = tokio::spawn(async move {
        let mut last = Revision::ZERO;
        for step in 0..300_u32 {
            let name = pod(&format!("a/{}", step % 7));
            let value = text(&format!("{step}"));
            last = match store.get(&name).await.expect("readable") {
                None => store.create(name, value).await.expect("sole writer"),
                Some(entry) if step % 5 == 0 => store.delete(name, entry.revision).await.expect("sole writer"),
                Some(entry) => store.update(name, value, entry.revision).await.expect("sole writer"),
            };
        }
        last
    });
    let mut readers = Vec::new();
    while !writer.is_finished() {
        let snapshot = fixture.list(ListQuery::prefix(Prefix::new("core/pods/"))).await;
        let changes = fixture.watch("core/pods/", snapshot.revision).await;
        if readers.len() < 20 {
            readers.push((snapshot, changes));
        }
        tokio::task::yield_now().await;
    }
    let last = writer.await.expect("the writer finishes");
    let end = fixture.list(ListQuery::prefix(Prefix::new("core/pods/"))).await;
    for (snapshot, mut changes) in readers {
        let mut state = state_of(&snapshot);
        if snapshot.revision < last {
            for change in take_until(&mut changes, last).await {
                let current = state.get(change.key.as_str()).map(|(revision, _)| *revision);
                assert_eq!(change.previous.as_ref().map(|previous| previous.revision), current, "no gap");
                match &change.value {
                    Some(value) => {
                        state.insert(change.key.as_str().to_owned(), (change.revision, lossy(value)));
                    }
                    None => {
                        state.remove(change.key.as_str());
                    }
                }
            }
        }
        assert_eq!(state, state_of(&end), "list at {} plus watch", snapshot.revision);
    }
}

pub async fn a_watch_of_the_future_is_refused(fixture: Fixture) {
    let current = fixture.create("a/1", "1").await;
    let asked = Revision(current.0 + 1_000);
    match fixture.store.watch(Prefix::everything(), asked).await {
        Err(WatchError::Future { asked: told, current: now }) => assert_eq!((told, now), (asked, current)),
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("a watch started after a revision that has not happened"),
    }
}

pub async fn a_watch_ends_when_the_store_closes(fixture: Fixture) {
    let start = fixture.initial_revision().await;
    let mut watches = BTreeMap::new();
    for prefix in ["", "core/pods/", "core/nodes/"] {
        watches.insert(prefix, fixture.watch(prefix, start).await);
    }
    fixture.create("a/1", "1").await;
    fixture.store.close().await;
    for (prefix, mut changes) in watches {
        let ended = async { while let Some(Ok(_)) = changes.next().await {} };
        timeout(TIME_LIMIT, ended).await.unwrap_or_else(|_| panic!("the watch below {prefix:?} goes on"));
    }
}
