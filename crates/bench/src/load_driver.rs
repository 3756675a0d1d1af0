//! `LoadDriver`: sends requests on many connections, as fast as the server responds or at a fixed rate.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::task::JoinSet;

use crate::progress::Progress;
use crate::sample::Latencies;
use crate::target::Target;
use crate::trouble::Trouble;
use crate::wire::{Connection, Protocol, Request};

/// Open connections that send requests.
pub(crate) struct LoadDriver {
    connections: Vec<Connection>,
}

/// Requests `first` to `first + count`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Load {
    pub(crate) first: u64,
    pub(crate) count: u64,
    /// Requests per second. Each request is then due at a moment of its own, and its latency counts from there: a server that
    /// stalls does not hide the requests that were due meanwhile. `None`: a connection sends when it has its last response.
    pub(crate) rate: Option<f64>,
}

/// The measurements of a load, and the failure that ended it early.
pub(crate) struct LoadResult {
    pub(crate) latencies: Latencies,
    pub(crate) bytes: u64,
    pub(crate) trouble: Option<Trouble>,
    driver: LoadDriver,
}

impl LoadResult {
    pub(crate) fn done(&self) -> u64 {
        self.latencies.count()
    }

    /// Returns the driver for another load, or the failure.
    pub(crate) fn into_driver(self) -> Result<LoadDriver, Trouble> {
        self.trouble.map_or(Ok(self.driver), Err)
    }
}

/// Creates the request of a number that is due at a moment.
pub(crate) type RequestFactory = Arc<dyn Fn(u64, Instant) -> Request + Send + Sync>;

struct Shared {
    load: Load,
    request: RequestFactory,
    progress: Progress,
    started: Instant,
    next: AtomicU64,
    stop: AtomicBool,
    bytes: AtomicU64,
    latencies: Latencies,
}

impl LoadDriver {
    pub(crate) async fn open(target: &Target, protocol: Protocol, connections_wanted: usize) -> Result<Self, Trouble> {
        let mut connections = Vec::new();
        for _ in 0..connections_wanted.max(1) {
            connections.push(Connection::open(target, protocol).await?);
        }
        Ok(LoadDriver { connections })
    }

    pub(crate) async fn drive(self, load: Load, progress: &Progress, request: RequestFactory) -> LoadResult {
        let shared = Arc::new(Shared {
            load,
            request,
            progress: progress.clone(),
            started: Instant::now(),
            next: AtomicU64::new(0),
            stop: AtomicBool::new(false),
            bytes: AtomicU64::new(0),
            latencies: Latencies::new(),
        });
        let mut tasks = JoinSet::new();
        for connection in self.connections {
            tasks.spawn(Arc::clone(&shared).send_all(connection));
        }
        let (mut connections, mut trouble) = (Vec::new(), None);
        for (connection, failure) in tasks.join_all().await {
            connections.push(connection);
            trouble = trouble.or(failure);
        }
        let bytes = shared.bytes.load(Ordering::Relaxed);
        let latencies = Arc::into_inner(shared).map(|shared| shared.latencies).unwrap_or_default();
        LoadResult { latencies, bytes, trouble, driver: LoadDriver { connections } }
    }
}

impl Shared {
    async fn send_all(self: Arc<Self>, mut connection: Connection) -> (Connection, Option<Trouble>) {
        while !self.stop.load(Ordering::Relaxed) {
            let turn = self.next.fetch_add(1, Ordering::Relaxed);
            if turn >= self.load.count {
                break;
            }
            let due = match self.load.rate {
                None => Instant::now(),
                Some(rate) => {
                    let due = self.started + Duration::from_secs_f64(turn as f64 / rate);
                    tokio::time::sleep_until(due.into()).await;
                    due
                }
            };
            let request = (self.request)(self.load.first + turn, due);
            let trouble = match connection.ask(&request).await {
                Ok(answer) if answer.succeeded() => {
                    self.latencies.record(due.elapsed());
                    self.bytes.fetch_add(answer.bytes, Ordering::Relaxed);
                    self.progress.add(1);
                    continue;
                }
                Ok(answer) => {
                    let what = format!("{} {}", request.method, request.path);
                    Trouble::refused(what, answer.status, &answer.kept)
                }
                Err(trouble) => trouble,
            };
            self.stop.store(true, Ordering::Relaxed);
            return (connection, Some(trouble));
        }
        (connection, None)
    }
}
