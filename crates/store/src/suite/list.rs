//! Lists: in key order, in pages, and at exact revisions.

use machinery::Revision;

use super::{Fixture, key, pod, state_of, text};
use crate::contract::ListQuery;
use crate::entry::Snapshot;
use crate::error::ReadError;
use crate::key::Prefix;

fn names(snapshot: &Snapshot) -> Vec<&str> {
    snapshot.entries.iter().map(|entry| entry.key.as_str()).collect()
}

async fn create_all(fixture: &Fixture, names: &[&str]) {
    for name in names {
        fixture.store.create(key(name), text(name)).await.expect("the key is free");
    }
}

pub async fn entries_come_in_the_order_of_their_keys(fixture: Fixture) {
    let unordered =
        ["core/pods/b/1", "core/pods/a/2", "core/pods/a/10", "core/pods/a-b/1", "core/pods/ä/1", "core/pods/A/1"];
    create_all(&fixture, &unordered).await;
    let mut ordered = unordered;
    ordered.sort_unstable();
    let listed = fixture.list(ListQuery::prefix(Prefix::new("core/pods/"))).await;
    assert_eq!(names(&listed), ordered);
    assert_eq!(listed.remaining, 0);
    for entry in &listed.entries {
        assert_eq!(entry.value, text(entry.key.as_str()));
        assert!(entry.revision <= listed.revision);
    }
}

pub async fn a_prefix_bounds_a_list(fixture: Fixture) {
    let all = ["apps/deployments/a/1", "core/nodes/n1", "core/pods/a/1", "core/pods/ab/1", "core/podtemplates/a/1"];
    create_all(&fixture, &all).await;
    for prefix in ["", "core/", "core/pods/", "core/pods/a/", "core/pods/a", "core/pods/c/", "zz/", "apps/"] {
        let expected: Vec<&str> = all.into_iter().filter(|name| name.starts_with(prefix)).collect();
        assert_eq!(names(&fixture.list(ListQuery::prefix(Prefix::new(prefix))).await), expected, "{prefix:?}");
    }
}

pub async fn pages_join_to_the_whole_and_count_what_remains(fixture: Fixture) {
    let all: Vec<String> = (0..23).map(|number| format!("core/pods/a/{number:02}")).collect();
    for name in &all {
        fixture.store.create(key(name), text("x")).await.expect("the key is free");
    }
    create_all(&fixture, &["core/nodes/n1", "core/pods/b/1"]).await;
    for limit in [1, 7, 22, 23, 24] {
        let mut joined = Vec::new();
        let mut start_after = None;
        loop {
            let query = ListQuery { start_after, limit, ..ListQuery::prefix(Prefix::new("core/pods/a/")) };
            let page = fixture.list(query).await;
            joined.extend(page.entries.iter().map(|entry| entry.key.as_str().to_owned()));
            assert_eq!(page.remaining as usize, all.len() - joined.len(), "limit {limit}");
            assert!(page.entries.len() <= limit);
            if page.remaining == 0 {
                break;
            }
            start_after = joined.last().cloned();
        }
        assert_eq!(joined, all, "limit {limit}");
    }
}

pub async fn a_page_may_start_after_any_text(fixture: Fixture) {
    let all = ["core/pods/a/1", "core/pods/a/3", "core/pods/b/1"];
    create_all(&fixture, &all).await;
    for after in ["", "core", "core/pods/a/1", "core/pods/a/2", "core/pods/a/3", "core/pods/a/9", "core/pods/b/1", "zz"]
    {
        for prefix in ["core/pods/a/", "core/pods/", ""] {
            let expected: Vec<&str> =
                all.into_iter().filter(|name| *name > after && name.starts_with(prefix)).collect();
            let query = ListQuery { start_after: Some(after.to_owned()), ..ListQuery::prefix(Prefix::new(prefix)) };
            assert_eq!(names(&fixture.list(query).await), expected, "{prefix:?} after {after:?}");
        }
    }
}

pub async fn every_retained_revision_can_be_listed_exactly(fixture: Fixture) {
    let history = fixture.history().await;
    // Skips the state before the first write, which not every engine can list.
    for (revision, state) in &history[1..] {
        let query = ListQuery { at: Some(*revision), ..ListQuery::prefix(Prefix::new("core/pods/")) };
        let snapshot = fixture.list(query).await;
        assert_eq!(snapshot.revision, *revision);
        assert_eq!(&state_of(&snapshot), state, "at {revision}");
    }
}

pub async fn pages_at_one_revision_ignore_later_writes(fixture: Fixture) {
    let mut revisions = Vec::new();
    for number in 0..10 {
        revisions.push(fixture.create(&format!("a/{number}"), "old").await);
    }
    let prefix = Prefix::new("core/pods/a/");
    let first = fixture.list(ListQuery { limit: 4, ..ListQuery::prefix(prefix.clone()) }).await;
    fixture.delete("a/4", revisions[4]).await;
    fixture.update("a/5", "new", revisions[5]).await;
    fixture.create("a/55", "new").await;
    let query =
        ListQuery { prefix, start_after: Some(pod("a/3").as_str().to_owned()), limit: 4, at: Some(first.revision) };
    let second = fixture.list(query).await;
    assert_eq!(names(&second), ["core/pods/a/4", "core/pods/a/5", "core/pods/a/6", "core/pods/a/7"]);
    assert!(second.entries.iter().all(|entry| entry.value == text("old")));
    assert_eq!((second.revision, second.remaining), (first.revision, 2));
}

pub async fn a_list_of_the_future_is_refused(fixture: Fixture) {
    let current = fixture.create("a/1", "1").await;
    let asked = Revision(current.0 + 1_000);
    let refused = fixture.store.list(ListQuery { at: Some(asked), ..ListQuery::default() }).await;
    let Err(ReadError::Future { asked: reported, current: now }) = refused else { panic!("{refused:?}") };
    assert_eq!((reported, now), (asked, current));
}
