//! Many clients that request all objects at once: after all were disconnected, and as streaming lists.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::Instant;

use machinery::object_meta::INITIAL_EVENTS_END;
use tokio::task::JoinSet;

use crate::progress::Progress;
use crate::report::Case;
use crate::sample::Latencies;
use crate::stage::{Meter, Stage, megabytes, revision};
use crate::target::Target;
use crate::trouble::Trouble;
use crate::wire::{Connection, Protocol, Request, Stream};

/// The annotation at the end of a streaming list, as text.
static END_MARK: LazyLock<Vec<u8>> = LazyLock::new(|| format!("\"{INITIAL_EVENTS_END}\":\"true\"").into_bytes());

/// Bytes of a stream that are kept, to report why it ended.
const KEPT_BYTES: usize = 4096;

/// The counters of all clients of a measurement.
#[derive(Default)]
struct Shared {
    latencies: Latencies,
    bytes: AtomicU64,
}

/// All informers have listed and watch; all are disconnected at once; all list again.
pub(super) async fn relist_storm(stage: &mut Stage) -> Result<(), Trouble> {
    let (objects, number, protocol) = (stage.sizes().objects, stage.sizes().informers, stage.options.protocol);
    stage.populate(objects).await?;
    let server = stage.server().await?;
    let (target, pods, processes) = (server.target.clone(), server.pods(), server.processes.clone());
    let mut case = Case::new("relist-storm", format!("{number} informers"), "informer").with("objects", server.made());
    let shared = Arc::new(Shared::default());
    let progress = Progress::new("relist-storm", 2 * number as u64);
    let (streams, trouble) = storm(&target, protocol, &pods, number, &shared, &progress).await;
    if let Some(trouble) = trouble {
        return Err(trouble);
    }
    drop(streams);

    let shared = Arc::new(Shared::default());
    let meter = Meter::start(&processes);
    let (streams, trouble) = storm(&target, protocol, &pods, number, &shared, &progress).await;
    meter.end(&mut case, streams.len() as u64);
    let bytes = shared.bytes.load(Ordering::Relaxed);
    finish(stage, case, &shared, bytes, number, trouble).await
}

async fn storm(
    target: &Target,
    protocol: Protocol,
    pods: &str,
    number: usize,
    shared: &Arc<Shared>,
    progress: &Progress,
) -> (Vec<Stream>, Option<Trouble>) {
    let started = Instant::now();
    let mut tasks = JoinSet::new();
    for _ in 0..number {
        let (target, pods, shared, progress) = (target.clone(), pods.to_owned(), Arc::clone(shared), progress.clone());
        tasks.spawn(async move {
            let mut connection = Connection::open(&target, protocol).await?;
            let list = connection.must("list", &Request::get(format!("{pods}?resourceVersion=0"))).await?;
            shared.bytes.fetch_add(list.bytes, Ordering::Relaxed);
            let revision = revision(&list)?;
            let stream = connection.watch(&format!("{pods}?watch=true&resourceVersion={revision}")).await?;
            // All were due at once.
            shared.latencies.record(started.elapsed());
            progress.add(1);
            Ok::<_, Trouble>(stream)
        });
    }
    let (mut streams, mut trouble) = (Vec::new(), None);
    for came in tasks.join_all().await {
        match came {
            Ok(stream) => streams.push(stream),
            Err(met) => trouble = Some(met),
        }
    }
    (streams, trouble)
}

/// Streaming lists, many at once.
pub(super) async fn watchlist(stage: &mut Stage) -> Result<(), Trouble> {
    let (objects, number, protocol) = (stage.sizes().objects, stage.sizes().informers, stage.options.protocol);
    stage.populate(objects).await?;
    let server = stage.server().await?;
    let (target, pods, processes) = (server.target.clone(), server.pods(), server.processes.clone());
    let mut case = Case::new("watchlist", format!("{number} informers"), "informer").with("objects", server.made());
    let path = format!(
        "{pods}?watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true\
         &timeoutSeconds=3000"
    );
    let shared = Arc::new(Shared::default());
    let progress = Progress::new("watchlist", number as u64);
    let meter = Meter::start(&processes);
    let started = Instant::now();
    let mut tasks = JoinSet::new();
    for _ in 0..number {
        let (target, path, shared, progress) = (target.clone(), path.clone(), Arc::clone(&shared), progress.clone());
        tasks.spawn(async move {
            let connection = Connection::open(&target, protocol).await?;
            let mut stream = connection.watch(&path).await?;
            let (mut tail, mut begun) = (Vec::new(), Vec::new());
            let mut complete = false;
            while !complete {
                let more = stream.read(|piece| {
                    shared.bytes.fetch_add(piece.len() as u64, Ordering::Relaxed);
                    begun.extend_from_slice(&piece[..piece.len().min(KEPT_BYTES - begun.len())]);
                    complete |= ends(&mut tail, piece);
                });
                if !more.await? {
                    return Err(cut_short(&begun));
                }
            }
            shared.latencies.record(started.elapsed());
            progress.add(1);
            Ok::<_, Trouble>(())
        });
    }
    let mut trouble = None;
    for came in tasks.join_all().await {
        trouble = trouble.or(came.err());
    }
    meter.end(&mut case, shared.latencies.count());
    let bytes = shared.bytes.load(Ordering::Relaxed);
    finish(stage, case, &shared, bytes, number, trouble).await
}

async fn finish(
    stage: &mut Stage,
    mut case: Case,
    shared: &Shared,
    bytes: u64,
    number: usize,
    trouble: Option<Trouble>,
) -> Result<(), Trouble> {
    case.latency = shared.latencies.summary();
    case.figure("mb_each", megabytes(bytes) / case.operations.max(1) as f64);
    case.figure("mb_per_s", megabytes(bytes) / case.seconds);
    if trouble.is_none() {
        let floor = stage.floor_of_answers(number, number as u64, bytes / case.operations.max(1)).await?;
        case.over_floor(floor);
    }
    stage.record_until(case, trouble)
}

/// The error of a stream that ended before its end mark: the message of an ERROR event if there is one.
fn cut_short(begun: &[u8]) -> Trouble {
    let first = begun.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let event: serde_json::Value = serde_json::from_slice(first).unwrap_or_default();
    let said = event["object"]["message"].as_str().filter(|_| event["type"] == "ERROR");
    let message = said.unwrap_or("it ended a stream before everything was sent").to_owned();
    Trouble::Refused { what: "stream what is there".to_owned(), message }
}

/// True if `piece` completes the end mark, which may arrive in two pieces. `tail` is the end of the bytes before.
fn ends(tail: &mut Vec<u8>, piece: &[u8]) -> bool {
    if memchr::memmem::find(piece, &END_MARK).is_some() {
        return true;
    }
    tail.extend_from_slice(&piece[..piece.len().min(END_MARK.len())]);
    if memchr::memmem::find(tail, &END_MARK).is_some() {
        return true;
    }
    if piece.len() >= END_MARK.len() {
        tail.clear();
        tail.extend_from_slice(&piece[piece.len() - END_MARK.len()..]);
    }
    false
}

#[cfg(test)]
mod tests {
    use super::{END_MARK, cut_short, ends};

    #[test]
    fn the_error_of_a_stream_has_the_message_of_the_server() {
        let error = b"{\"type\":\"ERROR\",\"object\":{\"kind\":\"Status\",\"message\":\"too old\"}}\n";
        assert_eq!(cut_short(error).to_string(), "the server refused to stream what is there: too old");
        assert!(cut_short(b"{\"type\":\"ADDED\"").to_string().ends_with("before everything was sent"));
    }

    #[test]
    fn the_end_is_seen_however_it_arrives() {
        let body = [b"{\"type\":\"ADDED\"}\n{\"annotations\":{", &END_MARK[..], b"}}\n"].concat();
        for piece in 1..=body.len() {
            let mut tail = Vec::new();
            let seen = body.chunks(piece).any(|part| ends(&mut tail, part));
            assert!(seen, "in pieces of {piece}");
        }
        let mut tail = Vec::new();
        assert!(!body[..body.len() - 6].chunks(3).any(|part| ends(&mut tail, part)));
    }
}
