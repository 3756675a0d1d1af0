//! Three members, of which one is lost, hangs and returns, with concurrent writers and watches.
//!
//! Members are lost by SIGKILL, except with the few releases of etcd that do not survive it: those are stopped.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use store::etcd::testing::{EtcdCluster, EtcdServer, survives_kill};
use store::etcd::{EtcdOptions, EtcdStore};
use store::{Change, Key, ListQuery, Prefix, Revision, Store, WriteError};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

const TIME_LIMIT: Duration = Duration::from_secs(60);
const WRITERS: usize = 4;

/// A store with the list of members rotated, so that it prefers another one.
async fn store(cluster: &EtcdCluster, turn: usize) -> Arc<EtcdStore> {
    let mut urls = cluster.urls();
    urls.rotate_left(turn);
    let options = EtcdOptions { compaction: false, request_timeout: Duration::from_secs(2), ..EtcdOptions::new(urls) };
    Arc::new(EtcdStore::connect(options).await.expect("the cluster answers"))
}

/// The outcomes of the writes of one writer. Every value is written once, so it identifies its write.
#[derive(Default)]
struct Journal {
    acknowledged: BTreeMap<Revision, String>,
    unknown: BTreeSet<String>,
    refused: BTreeSet<String>,
}

/// Creates, updates and deletes keys of its own until it is stopped.
async fn write(store: Arc<EtcdStore>, writer: usize, acknowledged: Arc<AtomicUsize>, stop: Arc<AtomicBool>) -> Journal {
    let mut journal = Journal::default();
    for step in 0.. {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        let key = Key::new(format!("core/pods/w{writer}/{}", step % 5)).unwrap();
        let Ok(current) = store.get(&key).await else { continue };
        let value = format!("{writer}.{step}");
        let bytes = Bytes::from(value.clone());
        let (value, outcome) = match current {
            None => (value, store.create(key, bytes).await),
            // A delete has no value; the removed revision identifies it.
            Some(entry) if step % 7 == 6 => (format!("-{}", entry.revision), store.delete(key, entry.revision).await),
            Some(entry) => (value, store.update(key, bytes, entry.revision).await),
        };
        match outcome {
            Ok(revision) => {
                journal.acknowledged.insert(revision, value);
                acknowledged.fetch_add(1, Ordering::Relaxed);
            }
            Err(WriteError::Unknown(_)) => {
                journal.unknown.insert(value);
            }
            Err(WriteError::Unavailable(_)) => {
                journal.refused.insert(value);
                // Paces the loop while no member answers.
                sleep(Duration::from_millis(20)).await;
            }
            // An earlier write of unknown outcome took effect between the read and this one.
            Err(WriteError::Exists(_) | WriteError::Conflict { .. }) if !journal.unknown.is_empty() => {
                journal.refused.insert(value);
            }
            Err(other) => panic!("{other}"),
        }
    }
    journal
}

/// Every change of a watch, until the log has reached the revision in `end`, once that is set.
async fn watch(store: Arc<EtcdStore>, after: Revision, mut end: tokio::sync::watch::Receiver<Revision>) -> Vec<Change> {
    let mut changes = store.watch(Prefix::new("core/"), after).await.expect("the revision is retained");
    let mut seen = Vec::new();
    let mut reached = after;
    loop {
        let last = *end.borrow_and_update();
        if !last.is_zero() && reached >= last {
            return seen;
        }
        tokio::select! {
            _ = end.changed() => {}
            batch = timeout(TIME_LIMIT, changes.next()) => {
                let batch = batch.expect("progress in time").expect("open").expect("sound");
                assert!(batch.revision >= reached, "{} after {reached}", batch.revision);
                assert!(batch.changes.iter().all(|change| reached < change.revision && change.revision <= batch.revision));
                reached = batch.revision;
                seen.extend(batch.changes);
            }
        }
    }
}

/// Waits until this many more writes are acknowledged.
async fn more(acknowledged: &AtomicUsize, count: usize, after: &str) {
    let target = acknowledged.load(Ordering::Relaxed) + count;
    let deadline = Instant::now() + TIME_LIMIT;
    while acknowledged.load(Ordering::Relaxed) < target {
        assert!(Instant::now() < deadline, "writing does not go on after {after}");
        sleep(Duration::from_millis(10)).await;
    }
}

fn lose(member: &mut EtcdServer) {
    if survives_kill() {
        member.kill();
    } else {
        member.stop();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_acknowledged_is_lost_when_members_are() {
    let mut cluster = EtcdCluster::start(3, &["--election-timeout", "600"]).await;
    let stores = [store(&cluster, 0).await, store(&cluster, 1).await, store(&cluster, 2).await];
    let start = stores[0].current_revision().await.unwrap();

    let (end, ended) = tokio::sync::watch::channel(Revision::ZERO);
    let mut watchers = JoinSet::new();
    for store in &stores {
        watchers.spawn(watch(store.clone(), start, ended.clone()));
    }
    let acknowledged = Arc::new(AtomicUsize::new(0));
    let stop = Arc::new(AtomicBool::new(false));
    let mut writers = JoinSet::new();
    for writer in 0..WRITERS {
        writers.spawn(write(stores[writer % 3].clone(), writer, acknowledged.clone(), stop.clone()));
    }

    more(&acknowledged, 100, "the start").await;
    let leader = cluster.leader().await;
    lose(&mut cluster.members[leader]);
    more(&acknowledged, 150, "the leader was lost").await;
    cluster.members[leader].restart();
    cluster.leader().await;
    more(&acknowledged, 50, "the leader came back").await;

    // Each store's first member, so that each loses the one it is connected to.
    for member in 0..3 {
        lose(&mut cluster.members[member]);
        more(&acknowledged, 50, "a member was lost").await;
        cluster.members[member].restart();
        let alone = EtcdOptions { compaction: false, ..EtcdOptions::new([&cluster.members[member].url]) };
        cluster.members[member].connect(alone).await;
    }

    // A member that hangs keeps its connections and answers nothing.
    let leader = cluster.leader().await;
    cluster.members[leader].freeze();
    more(&acknowledged, 100, "the leader froze").await;
    cluster.members[leader].thaw();
    more(&acknowledged, 50, "the frozen one came back").await;

    stop.store(true, Ordering::Relaxed);
    let journals = timeout(TIME_LIMIT, writers.join_all()).await.expect("the writers stop");
    let last = stores[0].current_revision().await.unwrap();
    end.send_replace(last);
    let watched = timeout(TIME_LIMIT, watchers.join_all()).await.expect("every watch reaches the end");

    verify(&watched, &journals);
    let listed = stores[1].list(ListQuery { at: Some(last), ..ListQuery::default() }).await.unwrap();
    let state = replay(watched[0].iter().filter(|change| change.revision <= last));
    assert_eq!(
        listed.entries.iter().map(|entry| (entry.key.clone(), entry.revision)).collect::<BTreeMap<_, _>>(),
        state
    );
}

/// Verifies that a watch is ordered, unique and without gaps, and has only changes that were written.
fn verify(watched: &[Vec<Change>], journals: &[Journal]) {
    // A write of unknown outcome may take effect late, beyond the revision at which some watches stopped.
    let shortest = watched.iter().map(Vec::len).min().unwrap();
    for seen in watched {
        assert_eq!(seen[..shortest], watched[0][..shortest], "all watches see the same");
    }
    let seen = watched.iter().max_by_key(|seen| seen.len()).unwrap();
    assert!(seen.is_sorted_by(|a, b| a.revision < b.revision), "each revision once and in order");
    replay(seen);
    let name = |change: &Change| match (&change.value, &change.previous) {
        (Some(value), _) => String::from_utf8(value.to_vec()).unwrap(),
        (None, previous) => format!("-{}", previous.as_ref().expect("a delete has the previous entry").revision),
    };
    let mut by_revision: BTreeMap<Revision, String> =
        seen.iter().map(|change| (change.revision, name(change))).collect();
    for journal in journals {
        for (revision, value) in &journal.acknowledged {
            assert_eq!(by_revision.remove(revision).as_ref(), Some(value), "acknowledged at {revision}");
        }
    }
    for (revision, value) in by_revision {
        let of_unknown = journals.iter().any(|journal| journal.unknown.contains(&value));
        let of_refused = journals.iter().any(|journal| journal.refused.contains(&value));
        assert!(of_unknown, "{value} at {revision} was not acknowledged; reported as not written: {of_refused}");
    }
}

/// The state after changes, each of which must match the state before it.
fn replay<'c>(changes: impl IntoIterator<Item = &'c Change>) -> BTreeMap<Key, Revision> {
    let mut state = BTreeMap::new();
    for change in changes {
        let before = change.previous.as_ref().map(|previous| previous.revision);
        assert_eq!(state.get(&change.key).copied(), before, "no gap before {}", change.revision);
        if change.is_delete() {
            state.remove(&change.key);
        } else {
            state.insert(change.key.clone(), change.revision);
        }
    }
    state
}
