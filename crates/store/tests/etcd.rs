//! The behaviour suite on a real etcd, and the behaviour specific to this engine.

use std::time::Duration;

use bytes::Bytes;
use store::contract::{PROGRESS_INTERVAL, VALUE_BYTES_MAX};
use store::error::OpenError;
use store::etcd::testing::EtcdServer;
use store::etcd::{EtcdOptions, EtcdStore};
use store::suite::{Fixture, TIME_LIMIT};
use store::{Changes, Key, ListQuery, Prefix, Retention, Revision, Store, WriteError};
use tokio::sync::{OnceCell, Semaphore, SemaphorePermit};

/// One etcd for all checks. They run one at a time, since some compare etcd's revision, which all of them advance.
static SERVER: OnceCell<EtcdServer> = OnceCell::const_new();
static TURN: Semaphore = Semaphore::const_new(1);

async fn server() -> (&'static EtcdServer, SemaphorePermit<'static>) {
    let turn = TURN.acquire().await.expect("never closed");
    let request_bytes = format!("--max-request-bytes={}", VALUE_BYTES_MAX + 1024 * 1024);
    (SERVER.get_or_init(|| async { EtcdServer::start(&[&request_bytes]).await }).await, turn)
}

/// Options with an unused prefix.
fn options(server: &EtcdServer) -> EtcdOptions {
    static NEXT: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(0);
    let prefix = format!("/check-{}/", NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed));
    EtcdOptions {
        prefix,
        compaction: false,
        request_timeout: Duration::from_secs(30),
        ..EtcdOptions::new([&server.url])
    }
}

async fn fixture() -> Fixture {
    let (server, turn) = server().await;
    let store = EtcdStore::connect(options(server)).await.expect("etcd answers");
    Fixture::new(store).keeping(turn)
}

store::behaviour_suite!(fixture);

fn pod(name: &str) -> Key {
    Key::new(format!("core/pods/default/{name}")).unwrap()
}

async fn next(changes: &mut Changes) -> store::Batch {
    tokio::time::timeout(TIME_LIMIT, changes.next()).await.expect("in time").expect("open").expect("sound")
}

#[tokio::test]
async fn an_etcd_that_is_not_there_is_named() {
    let options = EtcdOptions { request_timeout: Duration::from_millis(200), ..EtcdOptions::new(["127.0.0.1:1"]) };
    let Err(error) = EtcdStore::connect(options).await else { panic!("there is no such etcd") };
    assert!(matches!(&error, OpenError::Unreachable { .. }), "{error:?}");
    let sentence = error.to_string();
    assert!(sentence.starts_with("cannot reach http://127.0.0.1:1: "), "{sentence}");
    assert!(sentence.contains("refused"), "{sentence}");
}

#[tokio::test]
async fn one_endpoint_that_answers_is_enough() {
    let (server, _turn) = server().await;
    let endpoints = vec!["127.0.0.1:1".to_owned(), "127.0.0.1:2".to_owned(), server.url.clone()];
    let store = EtcdStore::connect(EtcdOptions { endpoints, ..options(server) }).await.expect("the third answers");
    let revision = store.create(pod("a"), Bytes::new()).await.expect("nothing was sent to the others");
    let mut changes = store.watch(Prefix::everything(), Revision(revision.0 - 1)).await.unwrap();
    assert_eq!(next(&mut changes).await.changes[0].key, pod("a"));
}

#[tokio::test]
async fn endpoints_of_two_clusters_are_refused() {
    let (server, _turn) = server().await;
    let mut other = EtcdServer::start(&["--initial-cluster-token", "other"]).await;
    let endpoints = vec![other.url.clone(), server.url.clone()];
    let store = EtcdStore::connect(EtcdOptions { endpoints, ..options(server) }).await.unwrap();
    other.kill();
    let error = store.get(&pod("a")).await.expect_err("another cluster answers");
    assert!(error.to_string().contains("another etcd cluster"), "{error}");
    let written = store.create(pod("a"), Bytes::new()).await;
    assert!(matches!(written, Err(WriteError::Unavailable(_))), "{written:?}");
}

#[tokio::test]
async fn a_long_list_comes_in_pages_of_one_revision() {
    let (server, _turn) = server().await;
    let store = EtcdStore::connect(options(server)).await.unwrap();
    let value = Bytes::from(vec![b'x'; 20_000]);
    let creates = (0..900).map(|number| store.create(pod(&format!("{number:04}")), value.clone()));
    futures::future::try_join_all(creates).await.unwrap();
    let all = store.list(ListQuery::default()).await.unwrap();
    assert_eq!((all.entries.len(), all.remaining), (900, 0));
    assert!(all.entries.is_sorted_by(|a, b| a.key < b.key));
    let most = store.list(ListQuery { limit: 700, at: Some(all.revision), ..ListQuery::default() }).await.unwrap();
    assert_eq!((&most.entries[..], most.remaining), (&all.entries[..700], 200));
}

#[tokio::test]
async fn progress_comes_while_others_write_outside_the_prefix() {
    let (server, _turn) = server().await;
    let [store, other] = [options(server), options(server)].map(EtcdStore::connect);
    let (store, other) = (store.await.unwrap(), other.await.unwrap());
    let start = store.current_revision().await.unwrap();
    let mut changes = store.watch(Prefix::new("core/pods/"), start).await.unwrap();
    next(&mut changes).await;
    for round in 0..3 {
        let written = other.create(pod(&format!("{round}")), Bytes::new()).await.unwrap();
        let mut reached = Revision::ZERO;
        while reached < written {
            let batch = next(&mut changes).await;
            assert_eq!(batch.changes, []);
            reached = batch.revision;
        }
    }
    assert_eq!(store.list(ListQuery::default()).await.unwrap().entries, [], "the engine's records are not objects");
    assert_eq!(store.stats().await.unwrap().objects, 0);
}

#[tokio::test]
async fn two_servers_share_one_store() {
    let (server, _turn) = server().await;
    let shared = options(server);
    let (one, two) = (EtcdStore::connect(shared.clone()).await.unwrap(), EtcdStore::connect(shared).await.unwrap());
    let start = two.current_revision().await.unwrap();
    let mut changes = two.watch(Prefix::everything(), start).await.unwrap();
    let revision = one.create(pod("a"), Bytes::from_static(b"1")).await.unwrap();
    assert_eq!(two.current_revision().await.unwrap(), revision);
    assert_eq!(two.get(&pod("a")).await.unwrap().unwrap().revision, revision);
    let batch = loop {
        let batch = next(&mut changes).await;
        if !batch.changes.is_empty() {
            break batch;
        }
    };
    assert_eq!((batch.revision, &batch.changes[0].key), (revision, &pod("a")));
}

#[tokio::test]
async fn servers_take_turns_to_compact() {
    let (server, _turn) = server().await;
    let retention = Retention {
        age_min: Duration::from_millis(100),
        changes_min: 5,
        interval: Duration::from_millis(20),
        ..Retention::default()
    };
    let shared = EtcdOptions { compaction: true, retention, ..options(server) };
    let stores = [EtcdStore::connect(shared.clone()).await.unwrap(), EtcdStore::connect(shared).await.unwrap()];
    let start = stores[0].create(pod("a"), Bytes::new()).await.unwrap();
    let mut last = start;
    for round in 0..20 {
        last = stores[round % 2].update(pod("a"), Bytes::new(), last).await.unwrap();
    }
    let everything = Prefix::everything();
    let deadline = tokio::time::Instant::now() + TIME_LIMIT;
    while stores[1].oldest_revision(&everything).await.unwrap() < start {
        assert!(tokio::time::Instant::now() < deadline, "no compaction in time");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    // In an idle log, the servers' own record must not keep the log advancing.
    let mut settled = stores[0].current_revision().await.unwrap();
    loop {
        tokio::time::sleep(Duration::from_millis(300)).await;
        let current = stores[0].current_revision().await.unwrap();
        if std::mem::replace(&mut settled, current) == current {
            break;
        }
        assert!(tokio::time::Instant::now() < deadline, "the log advances without a write");
    }
    let oldest = stores[0].oldest_revision(&everything).await.unwrap();
    assert!(oldest.0 + 5 <= settled.0, "the last changes stay: {oldest} of {settled}");
    assert_eq!(stores[0].get(&pod("a")).await.unwrap().unwrap().revision, last);
    for store in &stores {
        store.close().await;
    }
}

#[tokio::test]
async fn a_full_etcd_refuses_writes_and_serves_reads() {
    let server = EtcdServer::start(&["--quota-backend-bytes", "1000000"]).await;
    let store = EtcdStore::connect(options(&server)).await.unwrap();
    let start = store.current_revision().await.unwrap();
    let mut written = Vec::new();
    let mut unknown = 0;
    let full = loop {
        let name = format!("{:04}", written.len() + unknown);
        match store.create(pod(&name), Bytes::from(vec![7; 100_000])).await {
            Ok(revision) => written.push(revision),
            // etcd may apply the write that fills it although it reports an error; the outcome is then unknown.
            Err(WriteError::Unknown(_)) if unknown == 0 => unknown += 1,
            Err(error) => break error,
        }
        assert!(written.len() < 1000, "a megabyte has no end");
    };
    assert!(matches!(&full, WriteError::Full(reason) if reason.contains("quota")), "{full:?}");
    let listed = store.list(ListQuery::default()).await.unwrap();
    assert_eq!(listed.entries.len(), written.len() + unknown);
    written = listed.entries.iter().map(|entry| entry.revision).collect();
    let mut changes = store.watch(Prefix::everything(), start).await.unwrap();
    let mut seen = Vec::new();
    while seen.len() < written.len() {
        seen.extend(next(&mut changes).await.changes.iter().map(|change| change.revision));
    }
    assert_eq!(seen, written);
}

#[tokio::test]
async fn a_value_that_only_etcd_finds_too_large_is_too_large() {
    let server = EtcdServer::start(&["--max-request-bytes", "100000"]).await;
    let store = EtcdStore::connect(options(&server)).await.unwrap();
    for bytes in [200_000, 2_000_000] {
        let refused = store.create(pod("a"), Bytes::from(vec![7; bytes])).await;
        let Err(WriteError::TooLarge { bytes: reported, max }) = refused else { panic!("{refused:?}") };
        assert!(reported == bytes && max < bytes, "{reported} {max}");
    }
    assert_eq!(store.get(&pod("a")).await.unwrap(), None);
}

#[tokio::test]
async fn a_backup_restores_with_every_revision() {
    let server = EtcdServer::start(&[]).await;
    let plain = EtcdOptions { compaction: false, ..EtcdOptions::new([&server.url]) };
    let store = EtcdStore::connect(plain.clone()).await.unwrap();
    let start = store.current_revision().await.unwrap();
    let created = store.create(pod("a"), Bytes::from_static(b"1")).await.unwrap();
    let updated = store.update(pod("a"), Bytes::from_static(b"2"), created).await.unwrap();

    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("copy.db");
    store.backup(&file).await.unwrap();
    let again = store.backup(&file).await.expect_err("a backup replaces nothing");
    assert!(again.to_string().contains("exists already"), "{again}");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "no half files");
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    }
    store.update(pod("a"), Bytes::from_static(b"3"), updated).await.expect("not in the backup");

    let copy = EtcdServer::restore(&file).await;
    let copy = EtcdStore::connect(EtcdOptions { endpoints: vec![copy.url.clone()], ..plain }).await.unwrap();
    let entry = copy.get(&pod("a")).await.unwrap().unwrap();
    assert_eq!((entry.revision, &entry.value[..]), (updated, b"2".as_slice()));
    let mut changes = copy.watch(Prefix::everything(), start).await.unwrap();
    let revisions: Vec<_> = next(&mut changes).await.changes.iter().map(|change| change.revision).collect();
    assert_eq!(revisions, [created, updated]);
}

#[tokio::test]
async fn an_idle_watch_is_heard_of_within_the_interval() {
    let (server, _turn) = server().await;
    let store = EtcdStore::connect(options(server)).await.unwrap();
    let start = store.current_revision().await.unwrap();
    let mut changes = store.watch(Prefix::everything(), start).await.unwrap();
    next(&mut changes).await;
    // The best of several: a busy machine may delay one, but not make all of them late.
    let mut shortest = Duration::MAX;
    for _ in 0..5 {
        let before = tokio::time::Instant::now();
        next(&mut changes).await;
        shortest = shortest.min(before.elapsed());
    }
    assert!(shortest <= PROGRESS_INTERVAL, "{shortest:?}");
}

#[tokio::test]
async fn a_wiped_etcd_is_noticed_and_nothing_is_written_or_called_fresh_until_a_restart() {
    let mut server = EtcdServer::start(&[]).await;
    let options = EtcdOptions { compaction: false, ..EtcdOptions::new([&server.url]) };
    let store = server.connect(options.clone()).await;
    for number in 0..20 {
        store.create(pod(&number.to_string()), Bytes::new()).await.unwrap();
    }
    let before = store.current_revision().await.unwrap();
    assert!(store.health().await.iter().all(|check| check.problem.is_none()));
    let mut changes = store.watch(Prefix::everything(), before).await.unwrap();
    server.wipe();
    drop(server.connect(options.clone()).await);

    let refused = store.current_revision().await.expect_err("it is below an acknowledged write");
    assert!(refused.to_string().contains("went back"), "{refused}");
    let refused = store.create(pod("new"), Bytes::new()).await.expect_err("revisions would repeat");
    assert!(matches!(&refused, WriteError::Unavailable(_)), "{refused}");
    let health = store.health().await;
    let failed: Vec<_> = health.iter().filter(|check| check.problem.is_some()).collect();
    assert!(matches!(&failed[..], [check] if check.name == "etcd-revision"), "{health:?}");
    assert!(failed[0].problem.as_ref().is_some_and(|problem| problem.needs_restart));
    let ended = tokio::time::timeout(TIME_LIMIT, async {
        loop {
            if let Err(error) = changes.next().await.expect("it ends with an error") {
                return error;
            }
        }
    });
    let ended = ended.await.expect("the watch ends");
    assert!(matches!(ended, store::WatchError::Corrupt(_)), "{ended}");
    let listed = store.list(ListQuery::default()).await.expect("what is there now can be read");
    assert!(listed.entries.is_empty() && listed.revision < before);
    let again = server.connect(options).await;
    again.create(pod("new"), Bytes::new()).await.expect("a restart accepts the new state");
}

#[tokio::test]
async fn an_etcd_that_does_not_answer_is_unhealthy_until_it_does() {
    let mut server = EtcdServer::start(&[]).await;
    let store = server.connect(EtcdOptions { compaction: false, ..EtcdOptions::new([&server.url]) }).await;
    server.kill();
    let health = store.health().await;
    assert!(health.iter().any(|check| check.name == "etcd" && check.problem.is_some()), "{health:?}");
    server.restart();
    let recovered = async {
        while store.health().await.iter().any(|check| check.problem.is_some()) {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(TIME_LIMIT, recovered).await.expect("healthy again");
}
