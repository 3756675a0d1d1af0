//! Watches: every change after a revision, once and in order, across lost connections and members.
//!
//! A watch has one etcd stream at a time, on a connection of its own. Its only state is the revision up to which every
//! change has been delivered: when a stream ends, the next one starts there, on the next member.
//!
//! **Start of a stream.** etcd refuses a start below its compaction, but accepts one exactly at it, although a delete at
//! that revision may be removed. So a stream over history starts at the last delivered revision and skips that change. Only
//! if that revision is the current one, it starts after it, which etcd serves without delay.
//!
//! **Progress.** By the contract, a watch reports progress at least every second. Newer members get a progress request
//! ([`Progress::Requested`]). Members before 3.4.31 and 3.5.13 may answer with a revision whose changes are not delivered
//! yet. For them, the stream covers the whole prefix and reads the current revision; if that stays ahead of the stream
//! (because of writes outside the prefix), it writes a record below the prefix, which etcd then delivers in order like any
//! change ([`Progress::Written`]).

mod stream;

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
use super::timeline::Timeline;
use crate::contract::{Batch, Changes, PROGRESS_INTERVAL};
use crate::entry::Change;
use crate::error::{EngineError, ReadError, WatchError};
use crate::key::Prefix;
use stream::{Progress, WatchStream};

/// Silence of a stream before its progress is checked. The answer must arrive within [`PROGRESS_INTERVAL`].
const QUIET: Duration = Duration::from_millis(400);

/// Time for existing changes to arrive before the progress record is written.
const GRACE: Duration = Duration::from_millis(150);

/// Silence of a stream that is behind, before the watch moves to another member.
const STALE: Duration = Duration::from_secs(8);

/// The pause before the second reconnect in a row; it doubles up to [`PAUSE_MAX`].
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
            timeline: self.timeline.clone(),
            prefix,
            reached: after,
            stream: None,
            failures: 0,
            ended: false,
        };
        Ok(Changes::new(futures::stream::unfold(watching, |mut watching| async move {
            let batch = watching.next().await?;
            Some((batch, watching))
        })))
    }
}

/// One watch, across its streams.
struct Watching {
    cluster: Arc<Cluster>,
    keyspace: Keyspace,
    floor: Arc<AtomicU64>,
    timeline: Arc<Timeline>,
    prefix: Prefix,
    /// Every change up to and including this revision has been delivered. Never decreases.
    reached: Revision,
    /// The member of the current stream, or of the next one.
    member: usize,
    stream: Option<WatchStream>,
    /// Streams in a row that delivered nothing.
    failures: u32,
    closing: watch::Receiver<bool>,
    ended: bool,
}

/// The result of one step of a watch.
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
                // An error means that the cluster was dropped, which is the same as closed.
                _ = closing.wait_for(|closed| *closed) => {
                    self.ended = true;
                    self.stream = None;
                    return None;
                }
                step = self.step() => step,
            };
            match step {
                Step::Deliver(batch) => return Some(Ok(batch)),
                Step::Continue => {}
                Step::End(error) => {
                    self.ended = true;
                    self.stream = None;
                    return Some(Err(error));
                }
            }
        }
    }

    async fn step(&mut self) -> Step {
        let Some(stream) = &mut self.stream else { return self.reconnect().await };
        tokio::select! {
            biased;
            answer = stream.answers.message() => match answer {
                Ok(Some(answer)) => self.take(answer),
                Ok(None) => self.drop_stream(&Fault::Lost("the member ended the stream".to_owned())),
                Err(status) => {
                    let fault = fault::from_status(self.cluster.url(self.member), &status);
                    self.drop_stream(&fault)
                }
            },
            () = sleep_until(stream.check_at) => self.check_progress().await,
        }
    }

    async fn reconnect(&mut self) -> Step {
        if self.failures > 1 {
            sleep((PAUSE_MIN * (1 << self.failures.min(8))).min(PAUSE_MAX)).await;
        }
        let opening = WatchStream::open(&self.cluster, &self.keyspace, &self.prefix, self.member, self.reached);
        let opened = timeout(self.cluster.request_timeout(), opening)
            .await
            .unwrap_or_else(|_| Err(Fault::Lost(format!("{}: no watch in time", self.cluster.url(self.member)))));
        match opened {
            Ok(stream) => {
                self.stream = Some(stream);
                Step::Continue
            }
            Err(fault) => self.drop_stream(&fault),
        }
    }

    /// Drops the stream. Ends the watch if another stream cannot help.
    fn drop_stream(&mut self, fault: &Fault) -> Step {
        let token = self.stream.take().and_then(|stream| stream.token);
        match fault {
            Fault::Corrupt(reason) => return Step::End(WatchError::Corrupt(reason.clone())),
            Fault::Refused(reason) | Fault::OtherCluster(reason) => {
                return Step::End(WatchError::Unavailable(EngineError::new(reason.clone())));
            }
            Fault::Compacted => return self.compacted(Revision(self.floor.load(Ordering::Relaxed))),
            // If the stream could not be opened, the refused token is the one of all calls, which replace it.
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

    /// Ends the watch: history from `reached` on is compacted.
    fn compacted(&self, oldest: Revision) -> Step {
        self.floor.fetch_max(oldest.0, Ordering::Relaxed);
        let oldest = oldest.max(self.reached.next());
        Step::End(WatchError::Compacted { asked: self.reached, oldest })
    }

    fn take(&mut self, answer: WatchResponse) -> Step {
        let Some(stream) = &mut self.stream else { return Step::Continue };
        stream.check_at = Instant::now() + QUIET;
        if answer.compact_revision > 0 {
            return self.compacted(revision(answer.compact_revision));
        }
        if answer.canceled {
            let url = self.cluster.url(self.member);
            let fault = fault::from_answer(url, tonic::Code::Unknown, &answer.cancel_reason);
            return self.drop_stream(&fault);
        }
        if answer.fragment {
            stream.advanced_at = Instant::now();
            stream.fragments.extend(answer.events);
            return Step::Continue;
        }
        let mut events = std::mem::take(&mut stream.fragments);
        if events.is_empty() {
            events = answer.events;
        } else {
            events.extend(answer.events);
        }
        if events.is_empty() {
            return match (stream.progress, answer.header) {
                (Progress::Requested, Some(header)) => self.advance(revision(header.revision)),
                _ => Step::Continue,
            };
        }
        self.deliver(events)
    }

    /// Reports progress: there are no matching changes up to `revision`.
    fn advance(&mut self, revision: Revision) -> Step {
        self.failures = 0;
        if revision < self.reached {
            // This member lags behind the previous one.
            return Step::Continue;
        }
        self.reached = revision;
        self.timeline.advance(revision);
        if let Some(stream) = &mut self.stream {
            stream.advanced_at = Instant::now();
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
                // A compaction between this change and its delivery has removed the previous value.
                return self.compacted(at);
            }
            let value = (!is_delete).then(|| kv.value.into());
            changes.push(Change { key, revision: at, value, previous });
        }
        if last == self.reached {
            return Step::Continue;
        }
        self.failures = 0;
        self.reached = last;
        self.timeline.advance(last);
        if let Some(stream) = &mut self.stream {
            stream.advanced_at = Instant::now();
        }
        Step::Deliver(Batch { changes, revision: last })
    }

    /// Checks the progress of a silent stream.
    async fn check_progress(&mut self) -> Step {
        let Some(stream) = &mut self.stream else { return Step::Continue };
        if stream.advanced_at.elapsed() > STALE {
            let fault = Fault::Lost(format!("{}: the watch is silent", self.cluster.url(self.member)));
            return self.drop_stream(&fault);
        }
        stream.check_at = Instant::now() + QUIET;
        if stream.progress == Progress::Requested {
            stream.request_progress();
            return Step::Continue;
        }
        let url = self.cluster.url(self.member);
        // The events of this stream wait meanwhile, so the read goes to its own member and has a short time limit.
        let current = match timeout(PROGRESS_INTERVAL, stream.current_revision(url, &self.keyspace)).await {
            Ok(Ok(current)) => current,
            Ok(Err(fault)) => return self.drop_stream(&fault),
            Err(_) => return Step::Continue,
        };
        if current <= self.reached {
            stream.behind = false;
            return self.advance(self.reached);
        }
        if std::mem::replace(&mut stream.behind, true) {
            // The result is ignored: if the record was written, the stream delivers it.
            let _ = timeout(PROGRESS_INTERVAL, stream.write_progress_record(url, &self.keyspace)).await;
            stream.behind = false;
        } else {
            stream.check_at = Instant::now() + GRACE;
        }
        Step::Continue
    }
}

/// The revision at which etcd is compacted. etcd reveals it only to a watch that starts below it, so there must be one.
pub(super) async fn compaction_floor(cluster: &Arc<Cluster>, keyspace: &Keyspace) -> Result<Revision, Fault> {
    let asking = async {
        let mut member = cluster.preferred();
        loop {
            match stream::compacted_revision(cluster, keyspace, member).await {
                Err(fault) if fault.is_transient() => {
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
