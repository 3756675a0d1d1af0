//! The watches that run now.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use cache::{Backlog, Item};
use jiff::Timestamp;
use machinery::json::{Value, json};
use machinery::{Revision, timestamp};
use server::observation::Opened;

use super::clients::{Client, shortened};

/// Closed watches that are remembered for those who follow the list.
const CLOSED_MAX: usize = 1024;

/// A watch that is open.
pub(crate) struct OpenWatch {
    pub(crate) number: u64,
    /// Its place in the order of what opened and closed.
    pub(crate) sequence: u64,
    since: Timestamp,
    client: Arc<Client>,
    opened: Opened,
    sent: AtomicU64,
    events: AtomicU64,
    bytes: AtomicU64,
    cut: AtomicBool,
}

impl OpenWatch {
    pub(crate) fn new(number: u64, sequence: u64, since: Timestamp, client: Arc<Client>, opened: Opened) -> Self {
        let start = opened.scope.as_ref().map_or(0, |(_, revision)| revision.0);
        OpenWatch {
            number,
            sequence,
            since,
            client,
            opened,
            sent: AtomicU64::new(start),
            events: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            cut: AtomicBool::new(false),
        }
    }

    pub(crate) fn note_sent(&self, revision: Revision, events: usize, bytes: usize) {
        if revision > Revision::ZERO {
            self.sent.fetch_max(revision.0, Ordering::Relaxed);
            self.client.note_delivered(revision);
        }
        self.events.fetch_add(events as u64, Ordering::Relaxed);
        self.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    pub(crate) fn is_cut(&self) -> bool {
        self.cut.load(Ordering::Acquire)
    }

    pub(crate) fn cut(&self) {
        self.cut.store(true, Ordering::Release);
    }

    pub(crate) fn backlog(&self) -> Backlog {
        let sent = Revision(self.sent.load(Ordering::Relaxed));
        self.opened.scope.as_ref().map_or_else(Backlog::default, |(scope, _)| scope.backlog(sent))
    }

    pub(crate) fn name(&self) -> String {
        format!("watch-{:010}", self.number)
    }

    pub(crate) fn agent(&self) -> &str {
        &self.client.agent
    }

    pub(crate) fn created(&self) -> Timestamp {
        self.since
    }

    /// The status of the object that shows it. `lag_ms` is the age of the first change of the backlog.
    pub(crate) fn status(&self, backlog: &Backlog, lag_ms: u64) -> Value {
        let request = &self.opened.request;
        let mut status = json!({
            "protocol": self.opened.protocol,
            "since": timestamp::seconds(self.since),
            "lastRevision": self.sent.load(Ordering::Relaxed),
            "revisionsBehind": backlog.changes,
            "bytesBehind": backlog.bytes,
            "lagMs": lag_ms,
            "eventsSent": self.events.load(Ordering::Relaxed),
            "bytesSent": self.bytes.load(Ordering::Relaxed),
        });
        let (labels, fields) = (&self.opened.labels, &self.opened.fields);
        let separator = if labels.is_empty() || fields.is_empty() { "" } else { " " };
        let selector = format!("{labels}{separator}{fields}");
        let texts: [(&str, &str); 9] = [
            ("group", &request.group),
            ("resource", &request.resource),
            ("namespace", &request.namespace),
            ("name", &request.name),
            ("selector", &selector),
            ("labelSelector", labels),
            ("fieldSelector", fields),
            ("user", &self.client.user),
            ("userAgent", &self.client.agent),
        ];
        for (member, text) in texts.into_iter().filter(|(_, text)| !text.is_empty()) {
            status[member] = json!(shortened(text));
        }
        status
    }
}

/// All open watches, and those that closed a short while ago.
#[derive(Default)]
pub(crate) struct Watchers {
    pub(crate) open: BTreeMap<u64, Arc<OpenWatch>>,
    /// With the sequence of their end, oldest first.
    closed: VecDeque<(u64, Closed)>,
    /// The sequence of the last one that was forgotten.
    floor: u64,
}

/// A watch that has ended.
#[derive(Clone)]
pub(crate) struct Closed {
    pub(crate) number: u64,
    pub(crate) opened: u64,
    pub(crate) item: Arc<Item>,
}

impl Watchers {
    pub(crate) fn close(&mut self, sequence: u64, closed: Closed) {
        self.open.remove(&closed.number);
        self.closed.push_back((sequence, closed));
        while self.closed.len() > CLOSED_MAX
            && let Some((sequence, _)) = self.closed.pop_front()
        {
            self.floor = sequence;
        }
    }

    /// What closed after a sequence; none if that is not remembered.
    pub(crate) fn closed_after(&self, sequence: u64) -> Option<Vec<Closed>> {
        let from = self.closed.partition_point(|(closed, _)| *closed <= sequence);
        (sequence >= self.floor).then(|| self.closed.range(from..).map(|(_, closed)| closed.clone()).collect())
    }

    pub(crate) fn by_name(&self, wanted: &str) -> Option<Arc<OpenWatch>> {
        let number = wanted.strip_prefix("watch-")?.parse().ok()?;
        self.open.get(&number).filter(|watch| watch.name() == wanted).cloned()
    }
}
