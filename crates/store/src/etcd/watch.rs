//! Watching: every change after a revision, once and in order, over connections and members that come and go.
//!
//! A watch has one etcd stream at a time, over a connection of its own. All it has to remember is the revision up to
//! which everything has been delivered: when a stream ends, the next one starts there, on the next member.
//!
//! **Where a stream starts.** etcd refuses a start below its compaction, but accepts one exactly at it, although a
//! delete at that revision may be gone. So a stream over history starts at the revision that was delivered last and skips
//! what it has; only if that revision is the current one does it start after it, which etcd serves without delay.
//!
//! **Progress.** The contract lets nobody wait for more than a second to learn that nothing happened. Newer members are
//! asked ([`Progress::Asked`]). Members before 3.4.31 and 3.5.13 may answer with a revision whose changes are still under
//! way, so they are not: there the stream spans the whole prefix, the current revision is read, and if it is ahead of the
//! stream although nothing comes (others write outside the prefix), a record below the prefix is written, which the
//! stream then delivers in order like any change ([`Progress::Marked`]).

mod line;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use machinery::Revision;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::EtcdStore;
use super::cluster::Cluster;
use super::fault::{self, Fault};
use super::keyspace::{Keyspace, revision};
use super::messages::{Event, EventType, WatchResponse};
use crate::contract::{Batch, Changes, PROGRESS_INTERVAL};
use crate::entry::Change;
use crate::error::{EngineError, ReadError, WatchError};
use crate::key::Prefix;
use line::{Line, Progress};

/// How long a stream is silent before it is asked how far it is. The answer must arrive within [`PROGRESS_INTERVAL`].
const QUIET: Duration = Duration::from_millis(400);

/// How long changes that exist may be under way before a marker is written.
const GRACE: Duration = Duration::from_millis(150);

/// How long a stream may fall behind in silence before another member is asked.
const STALE: Duration = Duration::from_secs(8);

/// The pause before the second attempt to reconnect in a row; it doubles up to [`PAUSE_MAX`].
const PAUSE_MIN: Duration = Duration::from_millis(25);
const PAUSE_MAX: Duration = Duration::from_secs(1);

impl EtcdStore {
    pub(super) async fn start_watch(&self, prefix: Prefix, after: Revision) -> Result<Changes, WatchError> {
        self.probe(after).await.map_err(|error| match error {
            ReadError::Compacted { asked, oldest } => WatchError::Compacted { asked, oldest },
            ReadError::Future { asked, current } => WatchError::Future { asked, current },
            ReadError::Corrupt(reason) => WatchError::Corrupt(reason),
            ReadError::Unavailable(error) => WatchError::Unavailable(error),
        })?;
        let watching = Watching {
            member: self.cluster.preferred(),
            closing: self.cluster.closing(),
            cluster: self.cluster.clone(),
            keyspace: self.keyspace.clone(),
            floor: self.floor.clone(),
            prefix,
            reached: after,
            line: None,
            failures: 0,
            ended: false,
        };
        Ok(Changes::new(futures::stream::unfold(watching, |mut watching| async move {
            let batch = watching.next().await?;
            Some((batch, watching))
        })))
    }
}

/// One watch, whatever stream carries it at the moment.
struct Watching {
    cluster: Arc<Cluster>,
    keyspace: Keyspace,
    floor: Arc<AtomicU64>,
    prefix: Prefix,
    /// Everything up to and including this revision has been delivered. It never goes back.
    reached: Revision,
    /// The member of the current stream, or of the next one.
    member: usize,
    line: Option<Line>,
    /// Streams in a row that brought nothing.
    failures: u32,
    closing: watch::Receiver<bool>,
    ended: bool,
}

/// What one step of a watch came to.
enum Step {
    Deliver(Batch),
    Continue,
    End(WatchError),
}

impl Watching {
    async fn next(&mut self) -> Option<Result<Batch, WatchError>> {
        if self.ended {
            return None;
        }
        let mut closing = self.closing.clone();
        loop {
            let step = tokio::select! {
                biased;
                // An error means that the cluster is gone, which closes it too.
                _ = closing.wait_for(|closed| *closed) => {
                    self.ended = true;
                    self.line = None;
                    return None;
                }
                step = self.step() => step,
            };
            match step {
                Step::Deliver(batch) => return Some(Ok(batch)),
                Step::Continue => {}
                Step::End(error) => {
                    self.ended = true;
                    self.line = None;
                    return Some(Err(error));
                }
            }
        }
    }

    async fn step(&mut self) -> Step {
        let Some(line) = &mut self.line else { return self.reconnect().await };
        tokio::select! {
            biased;
            answer = line.answers.message() => match answer {
                Ok(Some(answer)) => self.take(answer),
                Ok(None) => self.hang_up(&Fault::Lost("the member ended the stream".to_owned())),
                Err(status) => {
                    let fault = fault::from_status(self.cluster.url(self.member), &status);
                    self.hang_up(&fault)
                }
            },
            () = sleep_until(line.ask_at) => self.ask().await,
        }
    }

    async fn reconnect(&mut self) -> Step {
        if self.failures > 1 {
            sleep((PAUSE_MIN * (1 << self.failures.min(8))).min(PAUSE_MAX)).await;
        }
        let opening = Line::open(&self.cluster, &self.keyspace, &self.prefix, self.member, self.reached);
        let opened = timeout(self.cluster.request_timeout(), opening)
            .await
            .unwrap_or_else(|_| Err(Fault::Lost(format!("{}: no watch in time", self.cluster.url(self.member)))));
        match opened {
            Ok(line) => {
                self.line = Some(line);
                Step::Continue
            }
            Err(fault) => self.hang_up(&fault),
        }
    }

    /// Leaves the stream: for another one if that may help, for good if not.
    fn hang_up(&mut self, fault: &Fault) -> Step {
        let token = self.line.take().and_then(|line| line.token);
        match fault {
            Fault::Corrupt(reason) => return Step::End(WatchError::Corrupt(reason.clone())),
            Fault::Refused(reason) => return Step::End(WatchError::Unavailable(EngineError::new(reason.clone()))),
            Fault::Compacted => return self.overtaken(Revision(self.floor.load(Ordering::Relaxed))),
            // A stream that could not be opened says the same about the token every call uses: those replace it.
            Fault::Token(_) if token.is_some() => self.cluster.forget_token(token.as_ref()),
            _ => {}
        }
        self.failures = self.failures.saturating_add(1);
        if self.failures == 1 || self.failures.is_power_of_two() {
            tracing::warn!(reached = %self.reached, failures = self.failures, "an etcd watch reconnects: {fault}");
        }
        self.member = self.cluster.after(self.member);
        Step::Continue
    }

    /// History from `reached` on is gone.
    fn overtaken(&self, oldest: Revision) -> Step {
        self.floor.fetch_max(oldest.0, Ordering::Relaxed);
        let oldest = oldest.max(self.reached.next());
        Step::End(WatchError::Compacted { asked: self.reached, oldest })
    }

    fn take(&mut self, answer: WatchResponse) -> Step {
        let Some(line) = &mut self.line else { return Step::Continue };
        line.ask_at = Instant::now() + QUIET;
        if answer.compact_revision > 0 {
            return self.overtaken(revision(answer.compact_revision));
        }
        if answer.canceled {
            let url = self.cluster.url(self.member);
            let fault = fault::from_answer(url, tonic::Code::Unknown, &answer.cancel_reason);
            return self.hang_up(&fault);
        }
        if answer.fragment {
            line.heard = Instant::now();
            line.fragments.extend(answer.events);
            return Step::Continue;
        }
        let mut events = std::mem::take(&mut line.fragments);
        if events.is_empty() {
            events = answer.events;
        } else {
            events.extend(answer.events);
        }
        if events.is_empty() {
            return match (line.progress, answer.header) {
                (Progress::Asked, Some(header)) => self.advance(revision(header.revision)),
                _ => Step::Continue,
            };
        }
        self.deliver(events)
    }

    /// Nothing of interest happened up to `revision`.
    fn advance(&mut self, revision: Revision) -> Step {
        self.failures = 0;
        if revision < self.reached {
            // A member that lags behind the one before it.
            return Step::Continue;
        }
        self.reached = revision;
        if let Some(line) = &mut self.line {
            line.heard = Instant::now();
        }
        Step::Deliver(Batch { changes: Vec::new(), revision })
    }

    fn deliver(&mut self, events: Vec<Event>) -> Step {
        let mut changes = Vec::with_capacity(events.len());
        let mut last = self.reached;
        for Event { kind, kv, prev_kv } in events {
            let Some(kv) = kv else { continue };
            let at = revision(kv.mod_revision);
            if at <= self.reached {
                continue;
            }
            last = last.max(at);
            let Some(key) = self.keyspace.key(&kv.key).filter(|key| self.prefix.contains(key)) else { continue };
            let is_delete = kind == EventType::Delete as i32;
            let is_create = !is_delete && kv.create_revision == kv.mod_revision;
            let previous = prev_kv.and_then(|kv| self.keyspace.entry(kv));
            if previous.is_none() && !is_create {
                // A compaction passed between this change and its delivery, and took what was there before it.
                return self.overtaken(at);
            }
            let value = (!is_delete).then(|| kv.value.into());
            changes.push(Change { key, revision: at, value, previous });
        }
        if last == self.reached {
            return Step::Continue;
        }
        self.failures = 0;
        self.reached = last;
        if let Some(line) = &mut self.line {
            line.heard = Instant::now();
        }
        Step::Deliver(Batch { changes, revision: last })
    }

    /// The stream has been quiet: find out how far it is.
    async fn ask(&mut self) -> Step {
        let Some(line) = &mut self.line else { return Step::Continue };
        if line.heard.elapsed() > STALE {
            let fault = Fault::Lost(format!("{}: the watch is silent", self.cluster.url(self.member)));
            return self.hang_up(&fault);
        }
        line.ask_at = Instant::now() + QUIET;
        if line.progress == Progress::Asked {
            line.ask_progress();
            return Step::Continue;
        }
        let url = self.cluster.url(self.member);
        // The events of this stream wait meanwhile, so it asks its own member, and not for long.
        let current = match timeout(PROGRESS_INTERVAL, line.current(url, &self.keyspace)).await {
            Ok(Ok(current)) => current,
            Ok(Err(fault)) => return self.hang_up(&fault),
            Err(_) => return Step::Continue,
        };
        if current <= self.reached {
            line.behind = false;
            return self.advance(self.reached);
        }
        if std::mem::replace(&mut line.behind, true) {
            // Whether it was written is seen on the stream.
            let _ = timeout(PROGRESS_INTERVAL, line.mark(url, &self.keyspace)).await;
            line.behind = false;
        } else {
            line.ask_at = Instant::now() + GRACE;
        }
        Step::Continue
    }
}

/// The revision etcd is compacted at, which it tells only to a watch that starts below. Call it when there is one.
pub(super) async fn compaction_floor(cluster: &Arc<Cluster>, keyspace: &Keyspace) -> Result<Revision, Fault> {
    let asking = async {
        let mut member = cluster.preferred();
        loop {
            match line::floor(cluster, keyspace, member).await {
                Err(fault) if fault.is_passing() => {
                    member = cluster.after(member);
                    sleep(PAUSE_MIN).await;
                }
                done => return done,
            }
        }
    };
    timeout(cluster.request_timeout(), asking)
        .await
        .unwrap_or_else(|_| Err(Fault::Unsent(format!("{}: no watch in time", cluster.urls()))))
}
