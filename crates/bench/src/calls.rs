//! Many callers at once: as fast as the server answers, or at a rate that does not wait for it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::task::JoinSet;

use crate::progress::Progress;
use crate::sample::Latencies;
use crate::target::Target;
use crate::trouble::Trouble;
use crate::wire::{Connection, Protocol, Request};

/// Open connections, ready to ask.
pub(crate) struct Callers {
    connections: Vec<Connection>,
}

/// Requests `first` to `first + count`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Load {
    pub(crate) first: u64,
    pub(crate) count: u64,
    /// With a rate each request is due at a moment of its own, and its latency counts from there: a server that stalls
    /// does not hide what would have been asked meanwhile. Without one, a caller asks when it has its last answer.
    pub(crate) rate: Option<f64>,
}

pub(crate) struct Driven {
    pub(crate) latencies: Latencies,
    pub(crate) bytes: u64,
    pub(crate) trouble: Option<Trouble>,
    callers: Callers,
}

impl Driven {
    pub(crate) fn done(&self) -> u64 {
        self.latencies.count()
    }

    /// The callers again, unless there was trouble.
    pub(crate) fn end(self) -> Result<Callers, Trouble> {
        self.trouble.map_or(Ok(self.callers), Err)
    }
}

/// The request of a number, which was due at a moment.
pub(crate) type Make = Arc<dyn Fn(u64, Instant) -> Request + Send + Sync>;

struct Shared {
    load: Load,
    make: Make,
    progress: Progress,
    started: Instant,
    next: AtomicU64,
    stop: AtomicBool,
    bytes: AtomicU64,
    latencies: Latencies,
}

impl Callers {
    pub(crate) async fn open(target: &Target, protocol: Protocol, callers: usize) -> Result<Self, Trouble> {
        let mut connections = Vec::new();
        for _ in 0..callers.max(1) {
            connections.push(Connection::open(target, protocol).await?);
        }
        Ok(Callers { connections })
    }

    pub(crate) async fn drive(self, load: Load, progress: &Progress, make: Make) -> Driven {
        let shared = Arc::new(Shared {
            load,
            make,
            progress: progress.clone(),
            started: Instant::now(),
            next: AtomicU64::new(0),
            stop: AtomicBool::new(false),
            bytes: AtomicU64::new(0),
            latencies: Latencies::new(),
        });
        let mut tasks = JoinSet::new();
        for connection in self.connections {
            tasks.spawn(Arc::clone(&shared).caller(connection));
        }
        let (mut connections, mut trouble) = (Vec::new(), None);
        for (connection, met) in tasks.join_all().await {
            connections.push(connection);
            trouble = trouble.or(met);
        }
        let bytes = shared.bytes.load(Ordering::Relaxed);
        let latencies = Arc::into_inner(shared).map(|shared| shared.latencies).unwrap_or_default();
        Driven { latencies, bytes, trouble, callers: Callers { connections } }
    }
}

impl Shared {
    async fn caller(self: Arc<Self>, mut connection: Connection) -> (Connection, Option<Trouble>) {
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
            let request = (self.make)(self.load.first + turn, due);
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
