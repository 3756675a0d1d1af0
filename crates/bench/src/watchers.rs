//! Many watches at once, read without decoding.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;

use crate::frames::{DUE, Field, Lines};
use crate::progress::Progress;
use crate::sample::Latencies;
use crate::stage::clock;
use crate::target::Target;
use crate::trouble::Trouble;
use crate::wire::{Connection, Protocol, Stream};

/// Number of concurrent handshakes.
const OPENING: usize = 32;
/// Time without an event after which no more are expected.
const SILENCE: Duration = Duration::from_secs(10);

/// The counters of all watchers of a measurement.
pub(crate) struct Seen {
    /// Number of events with a due time, and of lines of the floor.
    pub(crate) events: AtomicU64,
    pub(crate) bytes: AtomicU64,
    /// Number of watches that the server ended.
    pub(crate) closed: AtomicU64,
    /// ERROR events.
    pub(crate) errors: AtomicU64,
    pub(crate) latencies: Latencies,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Hold,
    Read,
    Stop,
}

pub(crate) struct Watchers {
    pub(crate) seen: Arc<Seen>,
    state: watch::Sender<State>,
    tasks: JoinSet<()>,
}

/// The distribution of watches over connections.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Spread {
    pub(crate) watchers: usize,
    pub(crate) connections: usize,
    pub(crate) protocol: Protocol,
}

impl Spread {
    /// A connection for each.
    pub(crate) fn own(watchers: usize, protocol: Protocol) -> Self {
        Spread { watchers, connections: watchers, protocol }
    }

    pub(crate) fn per_connection(self) -> usize {
        self.watchers.div_ceil(self.connections.max(1))
    }
}

impl Watchers {
    /// Opens all watches; `path` returns the path of each.
    pub(crate) async fn open(
        target: &Target,
        spread: Spread,
        path: impl Fn(usize) -> String + Send + Sync + 'static,
    ) -> Result<Self, Trouble> {
        let (state, _) = watch::channel(State::Read);
        Self::open_in(target, spread, path, state).await
    }

    /// Opens watches that read nothing until [`Watchers::read`].
    pub(crate) async fn open_held(
        target: &Target,
        spread: Spread,
        path: impl Fn(usize) -> String + Send + Sync + 'static,
    ) -> Result<Self, Trouble> {
        let (state, _) = watch::channel(State::Hold);
        Self::open_in(target, spread, path, state).await
    }

    async fn open_in(
        target: &Target,
        spread: Spread,
        path: impl Fn(usize) -> String + Send + Sync + 'static,
        state: watch::Sender<State>,
    ) -> Result<Self, Trouble> {
        if spread.protocol == Protocol::Http1 && spread.connections < spread.watchers {
            return Err(Trouble::impossible("over HTTP/1.1 every watch needs a connection of its own"));
        }
        let seen = Arc::new(Seen {
            events: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            closed: AtomicU64::new(0),
            errors: AtomicU64::new(0),
            latencies: Latencies::new(),
        });
        let progress = Progress::new("opening watches", spread.watchers as u64);
        let (path, turns) = (Arc::new(path), Arc::new(Semaphore::new(OPENING)));
        let per_connection = spread.per_connection();
        let mut opening = JoinSet::new();
        for first in (0..spread.watchers).step_by(per_connection.max(1)) {
            let last = (first + per_connection).min(spread.watchers);
            let (target, path, progress) = (target.clone(), Arc::clone(&path), progress.clone());
            let turns = Arc::clone(&turns);
            opening.spawn(async move {
                let _turn = turns.acquire_owned().await;
                let mut streams = Vec::new();
                let mut connection = Some(Connection::open(&target, spread.protocol).await?);
                for number in first..last {
                    let Some(now) = connection.take() else { break };
                    connection = now.share();
                    streams.push(now.watch(&path(number)).await?);
                    progress.add(1);
                }
                Ok::<_, Trouble>(streams)
            });
        }
        let mut tasks = JoinSet::new();
        for opened in opening.join_all().await {
            for stream in opened? {
                tasks.spawn(follow(stream, Arc::clone(&seen), state.subscribe()));
            }
        }
        Ok(Watchers { seen, state, tasks })
    }

    pub(crate) fn read(&self) {
        self.state.send_replace(State::Read);
    }

    pub(crate) fn events(&self) -> u64 {
        self.seen.events.load(Ordering::Relaxed)
    }

    /// Waits until `expected` events have arrived, or none for a while.
    pub(crate) async fn settle(&self, expected: u64) {
        let (mut last, mut changed) = (self.events(), Instant::now());
        while self.events() < expected && changed.elapsed() < SILENCE {
            tokio::time::sleep(Duration::from_millis(2)).await;
            if self.events() != last {
                (last, changed) = (self.events(), Instant::now());
            }
            if self.seen.closed.load(Ordering::Relaxed) >= self.tasks.len() as u64 {
                return;
            }
        }
    }

    /// Closes all of them.
    pub(crate) async fn end(mut self) -> Arc<Seen> {
        self.state.send_replace(State::Stop);
        while self.tasks.join_next().await.is_some() {}
        Arc::clone(&self.seen)
    }
}

async fn follow(mut stream: Stream, seen: Arc<Seen>, mut state: watch::Receiver<State>) {
    if state.wait_for(|state| *state != State::Hold).await.is_err() {
        return;
    }
    let (due, mut lines) = (Field::new(DUE), Lines::default());
    loop {
        let read = stream.read(|piece| {
            seen.bytes.fetch_add(piece.len() as u64, Ordering::Relaxed);
            lines.feed(piece, |line| {
                if let Some(due) = due.number(line) {
                    let late = clock(Instant::now()).saturating_sub(due);
                    seen.latencies.record(Duration::from_nanos(late));
                    seen.events.fetch_add(1, Ordering::Relaxed);
                } else if line.starts_with(b"x") {
                    seen.events.fetch_add(1, Ordering::Relaxed);
                } else if line.starts_with(br#"{"type":"ERROR""#) {
                    seen.errors.fetch_add(1, Ordering::Relaxed);
                }
            });
        });
        tokio::select! {
            biased;
            going_on = read => if !going_on.unwrap_or(false) {
                seen.closed.fetch_add(1, Ordering::Relaxed);
                return;
            },
            _ = state.wait_for(|state| *state == State::Stop) => return,
        }
    }
}
