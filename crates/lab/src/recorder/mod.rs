//! What was seen of a server: requests, changes and watches, as objects that are computed when they are read.
//!
//! The recorder is on the path of every request, so it only appends rows; what a reader is shown is made for the reader.
//!
//! - `requests`: the requests of the recent past; `clients`: who sent them
//! - `changes`: the revisions of objects with who made them; `fields`: which fields they changed
//! - `watchers`: the watches that run now
//! - `objects`: these as objects; `follow`: watches of these objects; `restored`: those of another server

mod changes;
mod clients;
mod fields;
mod follow;
mod objects;
mod requests;
mod restored;
mod watchers;

use std::fmt;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use bytes::Bytes;
use cache::{Collection, Collections, Event, Observer};
use jiff::Timestamp;
use machinery::json::{Value, json};
use machinery::{Clock, Revision};
use parking_lot::Mutex;
use registry::{Frames, WriteObserver};
use server::observation::{self, Answered, Opened, WatchRecord, WriteRecord, Written};
use tokio::sync::watch;

pub(crate) use changes::Change;
use changes::{Changes, Writer};
use clients::{Clients, shortened};
use objects::SPECS;
use requests::{Request, Requests};
pub use restored::Rows;
use watchers::{Closed, OpenWatch, Watchers};

/// Bytes that the recorder takes at most.
const BYTES_MAX: usize = 20 << 20;
/// Bytes that the recorders of all worlds beside `main` take at most, as long as each has the least that is of use.
const WORLDS_BYTES_MAX: usize = 256 << 20;
const WORLD_BYTES_MIN: usize = 128 << 10;
/// What changes may take however much requests do: many requests must not make the lab forget who changed what.
const CHANGES_BYTES_MIN: usize = 2 << 20;
/// Requests that are kept unless a flag says otherwise.
pub const REQUESTS_DEFAULT: usize = 10_000;

/// What the recorders of all worlds beside `main` may take together. Each has an equal part: a test that makes many worlds must not take
/// the memory of the machine, and a world alone has as much as `main`.
#[derive(Clone, Debug, Default)]
pub(crate) struct Share(Arc<()>);

impl Share {
    fn bytes_max(&self) -> usize {
        // One is that of the lab which hands them out.
        let recorders = Arc::strong_count(&self.0).saturating_sub(1).max(1);
        (WORLDS_BYTES_MAX / recorders).clamp(WORLD_BYTES_MIN, BYTES_MAX)
    }
}

/// Records what the server of a world does.
pub(crate) struct Recorder {
    /// Itself, for the records that it hands out.
    own: Weak<Recorder>,
    /// Numbers requests and watches.
    number: AtomicU64,
    /// The order of everything that is recorded; the revision of these objects.
    sequence: AtomicU64,
    clients: Mutex<Clients>,
    requests: Mutex<Requests>,
    changes: Mutex<Changes>,
    /// Bytes of requests, for the limit of changes.
    requests_bytes: AtomicUsize,
    watchers: Mutex<Watchers>,
    /// None for `main`, which has all that a recorder may take.
    share: Option<Share>,
    /// Wakes those who follow requests, changes and watchers.
    requested: watch::Sender<()>,
    changed: watch::Sender<()>,
    watched: watch::Sender<()>,
    /// Makes every watch of the server look whether it is cut.
    disturbed: Arc<watch::Sender<u64>>,
    /// Who made the revisions of a recording, if that is replayed.
    restored: OnceLock<Arc<Rows>>,
    clock: Clock,
}

impl Recorder {
    /// Keeps so many requests and changes. `disturbed` makes the watches of the server look whether they are cut.
    #[must_use]
    pub(crate) fn new(
        rows_max: usize,
        disturbed: Arc<watch::Sender<u64>>,
        clock: Clock,
        share: Option<Share>,
    ) -> Arc<Self> {
        Arc::new_cyclic(|own| Recorder {
            own: Weak::clone(own),
            number: AtomicU64::new(0),
            sequence: AtomicU64::new(0),
            clients: Mutex::default(),
            requests: Mutex::new(Requests::new(rows_max)),
            changes: Mutex::new(Changes::new(rows_max)),
            requests_bytes: AtomicUsize::new(0),
            watchers: Mutex::default(),
            share,
            requested: watch::Sender::default(),
            changed: watch::Sender::default(),
            watched: watch::Sender::default(),
            disturbed,
            restored: OnceLock::new(),
            clock,
        })
    }

    fn next_number(&self) -> u64 {
        self.number.fetch_add(1, Ordering::Relaxed) + 1
    }

    fn next_sequence(&self) -> u64 {
        self.sequence.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Releases old states of objects while everything together takes too much. Comparing them takes a while, so that it
    /// happens after a write is answered, and without a lock.
    fn shrink(&self) {
        let bytes_max = self.bytes_max();
        let left = bytes_max.saturating_sub(self.requests_bytes.load(Ordering::Relaxed));
        let bytes_max = left.max(CHANGES_BYTES_MIN.min(bytes_max / 8));
        loop {
            let rows = self.changes.lock().oldest_states(bytes_max);
            if rows.is_empty() {
                return;
            }
            for row in rows {
                let condensed = row.condensed();
                self.changes.lock().condense(row.sequence, condensed);
            }
        }
    }

    /// Bytes that this recorder may take.
    fn bytes_max(&self) -> usize {
        self.share.as_ref().map_or(BYTES_MAX, Share::bytes_max)
    }

    /// Bytes of everything that is recorded.
    #[cfg(test)]
    fn bytes(&self) -> usize {
        self.requests.lock().bytes() + self.changes.lock().bytes()
    }

    /// Wakes the caller for each change from now on; and the place of the last one so far.
    pub(crate) fn follow_changes(&self) -> (watch::Receiver<()>, u64) {
        let changed = self.changed.subscribe();
        (changed, self.sequence.load(Ordering::Relaxed))
    }

    pub(crate) fn changes_after(&self, sequence: u64) -> Vec<Change> {
        self.changes.lock().after(sequence, usize::MAX)
    }

    /// How long ago the last change was that counts.
    pub(crate) fn quiet_for(&self, counts: impl Fn(&Change) -> bool) -> Duration {
        let last = self.changes.lock().last(counts).map(|row| row.created());
        let age = last.map_or(i64::MAX, |last| self.clock.now().as_millisecond() - last.as_millisecond());
        Duration::from_millis(age.try_into().unwrap_or_default()).min(Duration::from_secs(3600))
    }

    /// The watches of some clients that were not sent all that concerns them, each described.
    pub(crate) fn watches_behind(&self, concerns: impl Fn(&str) -> bool) -> Vec<Value> {
        let mut behind = Vec::new();
        for watch in self.open_watches() {
            let backlog = watch.backlog();
            if backlog.changes > 0 && concerns(watch.agent()) {
                let lag_ms = backlog.oldest.map_or(0, |revision| self.age_ms(revision));
                let mut status = watch.status(&backlog, lag_ms);
                status["watcher"] = json!(watch.name());
                behind.push(status);
            }
        }
        behind
    }

    /// The newest revision that is at least so old; none if no recorded change is younger.
    pub(crate) fn revision_before(&self, ago: Duration) -> Option<Revision> {
        let now = self.clock.now();
        let limit = now.checked_sub(ago).unwrap_or(Timestamp::MIN);
        self.changes.lock().revision_at(limit)
    }

    /// The age of a change in milliseconds; zero if it is not known.
    fn age_ms(&self, revision: Revision) -> u64 {
        let Some(change) = self.changes.lock().get(revision) else { return 0 };
        let age = self.clock.now().as_millisecond() - change.created().as_millisecond();
        age.try_into().unwrap_or_default()
    }
}

/// Wakes those who follow something, if there are any.
fn wake(followers: &watch::Sender<()>) {
    if followers.receiver_count() > 0 {
        followers.send_replace(());
    }
}

impl observation::Recorder for Recorder {
    fn write_begins(&self, user: &str, agent: &str, field_manager: &str) -> Arc<dyn WriteRecord> {
        let client = self.clients.lock().find(user, agent);
        let manager = schema::managed::manager(field_manager, agent);
        let writer = Writer {
            after: client.delivered(),
            client,
            manager: shortened(&manager).into(),
            request: self.next_number(),
        };
        Arc::new(WriteUnderWay {
            recorder: Weak::clone(&self.own),
            writer: Arc::new(writer),
            revisions: Mutex::default(),
            body: OnceLock::new(),
        })
    }

    fn answered(&self, answered: Answered<'_>) {
        let client = self.clients.lock().find(answered.user, answered.agent);
        let written = answered.write.as_ref().map(|write| write.written());
        let number = written.as_ref().map_or_else(|| self.next_number(), |written| written.number);
        let is_write = written.is_some();
        let mut row = Request::new(answered, written, client, self.clock.now());
        row.number = number;
        let bytes = {
            let mut requests = self.requests.lock();
            // Under the lock, so that the rows are in this order.
            row.sequence = self.next_sequence();
            requests.push(row, self.share.as_ref().map(Share::bytes_max));
            requests.bytes()
        };
        self.requests_bytes.store(bytes, Ordering::Relaxed);
        wake(&self.requested);
        if is_write {
            self.shrink();
        }
    }

    fn watch_opened(&self, mut opened: Opened) -> Arc<dyn WatchRecord> {
        for text in [&mut opened.labels, &mut opened.fields] {
            *text = shortened(text).to_owned();
        }
        let client = self.clients.lock().find(&opened.request.user, &opened.request.agent);
        let watch = {
            let mut watchers = self.watchers.lock();
            let (number, sequence) = (self.next_number(), self.next_sequence());
            let watch = Arc::new(OpenWatch::new(number, sequence, self.clock.now(), client, opened));
            watchers.open.insert(number, Arc::clone(&watch));
            watch
        };
        wake(&self.watched);
        Arc::new(WatchUnderWay { recorder: Weak::clone(&self.own), watch })
    }
}

/// A write that is not answered yet.
struct WriteUnderWay {
    recorder: Weak<Recorder>,
    writer: Arc<Writer>,
    revisions: Mutex<Vec<Revision>>,
    body: OnceLock<Bytes>,
}

impl fmt::Debug for WriteUnderWay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("WriteUnderWay").field(&self.writer.request).finish()
    }
}

impl WriteObserver for WriteUnderWay {
    fn committed(&self, revision: Revision) {
        self.revisions.lock().push(revision);
        if let Some(recorder) = self.recorder.upgrade() {
            recorder.changes.lock().attribute(revision, &self.writer);
            wake(&recorder.changed);
        }
    }
}

impl WriteRecord for WriteUnderWay {
    fn set_body(&self, body: &Bytes) {
        let _ = self.body.set(body.clone());
    }

    fn written(&self) -> Written {
        let mut revisions = std::mem::take(&mut *self.revisions.lock());
        revisions.sort_unstable();
        Written { number: self.writer.request, revisions, body: self.body.get().cloned().unwrap_or_default() }
    }
}

/// A watch that has not ended.
struct WatchUnderWay {
    recorder: Weak<Recorder>,
    watch: Arc<OpenWatch>,
}

impl WatchRecord for WatchUnderWay {
    fn sent(&self, frames: &Frames) {
        self.watch.note_sent(frames.revision, frames.ends.len(), frames.bytes);
    }

    fn is_cut(&self) -> bool {
        self.watch.is_cut()
    }

    fn closed(&self) {
        let Some(recorder) = self.recorder.upgrade() else { return };
        {
            let mut watchers = recorder.watchers.lock();
            let sequence = recorder.next_sequence();
            if let Some(item) = SPECS.closed_watcher(&self.watch, sequence) {
                let (number, opened) = (self.watch.number, self.watch.sequence);
                watchers.close(sequence, Closed { number, opened, item });
            }
        }
        wake(&recorder.watched);
    }
}

/// Follows the objects of the cluster.
impl Observer for Recorder {
    fn observes(&self, _: &str) -> bool {
        true
    }

    fn loaded(&self, _: &Collections, _: &Collection, _: Revision) {}

    fn changed(&self, _: &Collections, events: &[Arc<Event>]) {
        let now = self.clock.now();
        let mut changes = self.changes.lock();
        for event in events {
            changes.push(self.change_of(event, now));
        }
        drop(changes);
        wake(&self.changed);
    }
}

#[cfg(test)]
mod tests;
