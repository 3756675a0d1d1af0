//! Concurrent writers, watchers and restarts; afterwards every record is compared with the log on disk.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use blackbox::server::Server;
use futures::StreamExt as _;
use http_body_util::BodyExt as _;
use kube::Client;
use kube::client::Body;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde_json::{Value, json};
use store::embedded::{EmbeddedOptions, EmbeddedStore};
use store::{Prefix, Revision, Store};
use testkit::history::{self, Change, Journal, Kind, Label, Listed, Object, RecordedEvent, Selection};
use tokio::sync::watch;

const WRITERS: u64 = 16;
const WATCHERS: u64 = 200;
const WRITES_EACH: u64 = 120;
const NAMESPACES: [&str; 3] = ["default", "kube-public", "kube-system"];
const TIME_LIMIT: Duration = Duration::from_secs(60);

/// Phase of the test.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    Writing,
    /// There are no writes after this revision: read up to it and stop.
    Quiet(u64),
}

#[test]
fn every_watcher_saw_exactly_what_the_log_says() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let mut server = Server::start();
    let client = runtime.block_on(blackbox::writer::client(&server));
    let (stage, stages) = watch::channel(Stage::Writing);
    let progress = Arc::new(AtomicU64::new(0));
    let begin = runtime.block_on(revision_now(&client));

    let watchers: Vec<_> =
        (0..WATCHERS).map(|seed| runtime.spawn(watch_all_along(client.clone(), seed, begin, stages.clone()))).collect();
    let writers: Vec<_> =
        (0..WRITERS).map(|seed| runtime.spawn(write(client.clone(), seed, Arc::clone(&progress)))).collect();

    let total = WRITERS * WRITES_EACH;
    wait_until(|| progress.load(Ordering::Relaxed) > total / 3);
    server.kill_and_restart();
    wait_until(|| progress.load(Ordering::Relaxed) > 2 * total / 3);
    server.stop_and_restart();

    let (mut acknowledged, mut lists) = (Vec::new(), Vec::new());
    for writer in writers {
        let (acks, listed) = runtime.block_on(writer).unwrap();
        acknowledged.extend(acks);
        lists.extend(listed);
    }
    let end = runtime.block_on(revision_now(&client));
    stage.send(Stage::Quiet(end)).unwrap();
    let journals: Vec<Journal> = watchers.into_iter().map(|watcher| runtime.block_on(watcher).unwrap()).collect();

    let data = server.stop_keeping_data();
    let log = runtime.block_on(read_log(&data.path().join("data")));
    // A write that changes nothing is acknowledged, but makes no change.
    assert!(log.len() as u64 >= total * 3 / 4, "what was written is in the log: {}", log.len());
    history::durable(&acknowledged, &log).unwrap();
    history::fresh(&lists).unwrap();
    let received: usize = journals.iter().map(|journal| journal.events.len()).sum();
    assert!(received > 10_000, "the watchers received events: {received}");
    for journal in &journals {
        history::ordered(journal).unwrap();
        history::unique(journal).unwrap();
        history::atomic(journal, &log).unwrap();
        history::gapless(journal, &log).unwrap();
    }
}

fn wait_until(done: impl Fn() -> bool) {
    let deadline = std::time::Instant::now() + TIME_LIMIT * 3;
    while !done() {
        assert!(std::time::Instant::now() < deadline, "the writers do not get on");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Creates, relabels and deletes its own objects, and sometimes lists. Returns the acknowledged writes and the lists.
async fn write(client: Client, seed: u64, progress: Arc<AtomicU64>) -> (Vec<(Object, u64)>, Vec<Listed>) {
    let mut rng = StdRng::seed_from_u64(seed);
    let (mut acknowledged, mut lists, mut newest) = (Vec::new(), Vec::new(), 0);
    let mut done = 0;
    while done < WRITES_EACH {
        let namespace = NAMESPACES[rng.random_range(0..NAMESPACES.len())];
        let name = format!("w{seed}-{}", rng.random_range(0..6));
        let path = format!("/api/v1/namespaces/{namespace}/configmaps");
        let app = ["a", "b", "c"][rng.random_range(0..3)];
        let labels = json!({"app": app, "turn": rng.random_range(0..9).to_string()});
        let metadata = json!({"name": name, "labels": labels});
        let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata});
        let answer = match rng.random_range(0..10) {
            0..2 => call(&client, "DELETE", &format!("{path}/{name}"), None).await,
            2..6 => call(&client, "POST", &path, Some(&object)).await,
            _ => call(&client, "PUT", &format!("{path}/{name}"), Some(&object)).await,
        };
        let answer = match answer {
            Some((200..=201, answer)) => answer,
            Some(_) => continue,
            None => {
                tokio::time::sleep(Duration::from_millis(20)).await;
                continue;
            }
        };
        done += 1;
        progress.fetch_add(1, Ordering::Relaxed);
        if let Some(revision) = revision_of(&answer) {
            newest = newest.max(revision);
            acknowledged.push((Object { namespace: namespace.to_owned(), name }, revision));
        }
        if rng.random_range(0..8) == 0
            && let Some((200, list)) = call(&client, "GET", &path, None).await
            && let Some(revision) = revision_of(&list)
        {
            lists.push(Listed { revision, acknowledged: newest });
        }
    }
    (acknowledged, lists)
}

/// Watches with its own selector from before the first write to after the last: sometimes slow, sometimes cut off, always
/// resumed from the last revision it received.
async fn watch_all_along(client: Client, seed: u64, begin: u64, mut stages: watch::Receiver<Stage>) -> Journal {
    let mut rng = StdRng::seed_from_u64(1000 + seed);
    let (selection, query) = selection(&mut rng);
    let slow = rng.random_range(0..4) == 0;
    let mut journal = Journal { selection, initial: None, after: begin, events: Vec::new() };
    let scope = journal.selection.namespace.as_ref().map(|ns| format!("/namespaces/{ns}")).unwrap_or_default();
    let path = format!("/api/v1{scope}/configmaps?watch=true&allowWatchBookmarks=true{query}");
    let mut last = begin;
    if rng.random_range(0..3) == 0 {
        last = 0;
    }
    loop {
        let stage = *stages.borrow_and_update();
        let quiet = stage != Stage::Writing;
        if let Stage::Quiet(end) = stage
            && last >= end
        {
            return journal;
        }
        let from = if last == 0 { String::new() } else { format!("&resourceVersion={last}") };
        // Two seconds before its end a watch gets a bookmark, even without matching events.
        let until = if quiet { "&timeoutSeconds=4" } else { "" };
        let Some(mut lines) = open(&client, &format!("{path}{from}{until}")).await else {
            tokio::time::sleep(Duration::from_millis(30)).await;
            continue;
        };
        let lifetime = Duration::from_millis(rng.random_range(200..3000));
        let cut = tokio::time::sleep(if quiet { TIME_LIMIT } else { lifetime });
        tokio::pin!(cut);
        let mut initial = (last == 0).then(Vec::new);
        loop {
            let line = tokio::select! {
                line = lines.next() => line,
                () = &mut cut => break,
                _ = stages.changed(), if !quiet => break,
            };
            let Some(line) = line else { break };
            if slow && rng.random_range(0..20) == 0 {
                tokio::time::sleep(Duration::from_millis(rng.random_range(1..60))).await;
            }
            take(&line, &mut journal, &mut initial, &mut last);
        }
    }
}

/// Records one event.
fn take(line: &str, journal: &mut Journal, initial: &mut Option<Vec<(Object, u64)>>, last: &mut u64) {
    let event: Value = serde_json::from_str(line).expect("an event is a line of JSON");
    let revision = revision_of(&event["object"]).unwrap_or_else(|| panic!("no revision in {line}"));
    let metadata = &event["object"]["metadata"];
    let text = |member: &str| metadata[member].as_str().unwrap_or_default().to_owned();
    let object = Object { namespace: text("namespace"), name: text("name") };
    let kind = match event["type"].as_str() {
        Some("ADDED") => Kind::Added,
        Some("MODIFIED") => Kind::Modified,
        Some("DELETED") => Kind::Deleted,
        Some("BOOKMARK") => {
            if let Some(state) = initial.take() {
                assert_eq!(metadata["annotations"]["k8s.io/initial-events-end"], "true", "{line}");
                // Only the first complete initial state starts the journal: a watcher that was cut off before starts over.
                journal.initial = Some((state, revision));
                journal.after = revision;
            }
            assert!(revision >= *last, "a bookmark at {revision} after {last}");
            *last = revision;
            return;
        }
        other => panic!("{other:?} in {line}"),
    };
    match initial {
        Some(state) => state.push((object, revision)),
        None => {
            journal.events.push(RecordedEvent { kind, object, revision });
            *last = revision;
        }
    }
}

fn selection(rng: &mut StdRng) -> (Selection, String) {
    let mut selection = Selection::default();
    let mut query = String::new();
    if rng.random_range(0..2) == 0 {
        selection.namespace = Some(NAMESPACES[rng.random_range(0..NAMESPACES.len())].to_owned());
    }
    match rng.random_range(0..6) {
        0 => {
            let value = ["a", "b", "c"][rng.random_range(0..3)];
            selection.label = Some(Label::Is("app".into(), value.into()));
            query = format!("&labelSelector=app%3D{value}");
        }
        1 => {
            selection.label = Some(Label::IsNot("app".into(), "a".into()));
            query = "&labelSelector=app!%3Da".into();
        }
        2 => {
            selection.label = Some(Label::Exists("turn".into()));
            query = "&labelSelector=turn".into();
        }
        3 => {
            let name = format!("w{}-{}", rng.random_range(0..WRITERS), rng.random_range(0..6));
            query = format!("&fieldSelector=metadata.name%3D{name}");
            selection.name = Some(name);
        }
        _ => {}
    }
    (selection, query)
}

/// A stream of lines; `None` if the server is down.
async fn open(client: &Client, path: &str) -> Option<impl futures::Stream<Item = String> + Unpin + use<>> {
    let request = http::Request::get(path).body(Body::empty()).expect("a valid path");
    let response = tokio::time::timeout(TIME_LIMIT, client.send(request)).await.expect("a response in time").ok()?;
    if response.status() != 200 {
        return None;
    }
    let body = response.into_body();
    Some(Box::pin(futures::stream::unfold((body, Vec::<u8>::new()), |(mut body, mut pending)| async move {
        loop {
            if let Some(end) = pending.iter().position(|byte| *byte == b'\n') {
                let rest = pending.split_off(end + 1);
                let line = String::from_utf8(std::mem::replace(&mut pending, rest)).expect("JSON is UTF-8");
                return Some((line, (body, pending)));
            }
            // A stream that is cut off within an event ends there: the resumed one repeats the event.
            pending.extend_from_slice(body.frame().await?.ok()?.data_ref()?);
        }
    })))
}

async fn call(client: &Client, method: &str, path: &str, body: Option<&Value>) -> Option<(u16, Value)> {
    let request = http::Request::builder().method(method).uri(path).header("Content-Type", "application/json");
    let bytes = body.map(|body| body.to_string().into_bytes()).unwrap_or_default();
    let request = request.body(Body::from(bytes)).expect("a valid request");
    let asked = async {
        let response = client.send(request).await.ok()?;
        let code = response.status().as_u16();
        let bytes = response.into_body().collect().await.ok()?.to_bytes();
        Some((code, serde_json::from_slice(&bytes).ok()?))
    };
    tokio::time::timeout(TIME_LIMIT, asked).await.expect("a response in time")
}

fn revision_of(object: &Value) -> Option<u64> {
    object["metadata"]["resourceVersion"].as_str()?.parse().ok()
}

async fn revision_now(client: &Client) -> u64 {
    let (_, list) = call(client, "GET", "/api/v1/configmaps", None).await.expect("the server answers");
    revision_of(&list).expect("a list has a revision")
}

/// The log in the files of the stopped server.
async fn read_log(data: &std::path::Path) -> Vec<Change> {
    let store = EmbeddedStore::open(EmbeddedOptions::new(data)).expect("the server has released its data");
    let prefix = Prefix::new("core/configmaps/");
    let end = store.current_revision().await.unwrap();
    let mut changes = store.watch(prefix, Revision::ZERO).await.expect("history reaches back to the beginning");
    let mut log = Vec::new();
    loop {
        let batch = changes.next().await.expect("the store is open").unwrap();
        for change in &batch.changes {
            let mut parts = change.key.as_str().rsplit('/');
            let (name, namespace) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
            let labels = change.value.as_ref().map(|value| {
                let object: Value = serde_json::from_slice(value).expect("the store holds JSON");
                let labels = object["metadata"]["labels"].as_object().cloned().unwrap_or_default();
                labels
                    .into_iter()
                    .map(|(k, v)| (k, v.as_str().unwrap_or_default().to_owned()))
                    .collect::<BTreeMap<_, _>>()
            });
            let object = Object { namespace: namespace.to_owned(), name: name.to_owned() };
            log.push(Change { revision: change.revision.0, object, labels });
        }
        if batch.revision >= end {
            return log;
        }
    }
}
