//! Watches of what is recorded.

use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};
use std::time::Duration;

use cache::{EventKind, Start, WatchEnd};
use machinery::Revision;
use machinery::json::Value;
use registry::computed::{ComputedEvent, ComputedWatch};
use tokio::sync::watch;
use tokio::time::{Sleep, sleep};

use super::Recorder;
use super::objects::{SPECS, STEP_MAX};
use super::watchers::OpenWatch;

/// How long a change waits for who made it. What the server does of its own has no writer.
const WRITER_WAIT: Duration = Duration::from_secs(1);
/// How often the figures of open watches are looked at.
const WATCHERS_INTERVAL: Duration = Duration::from_secs(1);

/// Waits until something was recorded.
struct Wake(Pin<Box<dyn Future<Output = watch::Receiver<()>> + Send>>);

impl Wake {
    fn new(changes: watch::Receiver<()>) -> Self {
        Wake(Box::pin(next(changes)))
    }

    /// Ready if something was recorded since the last call; otherwise the task is woken.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let changes = std::task::ready!(self.0.as_mut().poll(cx));
        self.0 = Box::pin(next(changes));
        Poll::Ready(())
    }
}

async fn next(mut changes: watch::Receiver<()>) -> watch::Receiver<()> {
    if changes.changed().await.is_err() {
        // The recorder is gone, and nothing is recorded any more.
        std::future::pending::<()>().await;
    }
    changes
}

/// A place in the rows of one kind.
struct Cursor {
    recorder: Weak<Recorder>,
    /// Everything up to here was returned.
    sequence: u64,
    /// The initial objects end with this sequence, if they are to be returned.
    initial_end: Option<u64>,
    wake: Option<Wake>,
}

impl Cursor {
    fn new(recorder: Weak<Recorder>, start: Start, changes: fn(&Recorder) -> &watch::Sender<()>) -> Self {
        let (now, wake) = recorder.upgrade().map_or((0, None), |recorder| {
            let wake = Wake::new(changes(&recorder).subscribe());
            (recorder.sequence.load(Ordering::Relaxed), Some(wake))
        });
        let (sequence, initial_end) = match start {
            Start::Initial => (0, Some(now)),
            Start::Now => (now, None),
            Start::After(revision) => (revision.0, None),
        };
        Cursor { recorder, sequence, initial_end, wake }
    }

    /// Pending until something was recorded.
    fn poll_wake(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.wake.as_mut().map_or(Poll::Pending, |wake| wake.poll(cx))
    }

    /// The end of the initial objects, once they were returned.
    fn take_initial_end(&mut self) -> Option<ComputedEvent> {
        let end = self.initial_end.take()?;
        self.sequence = self.sequence.max(end);
        Some(ComputedEvent::InitialEnd(Revision(end)))
    }

    fn expired(&self, floor: u64) -> Option<WatchEnd> {
        let is_lost = self.initial_end.is_none() && self.sequence < floor;
        is_lost.then_some(WatchEnd::Expired { asked: Revision(self.sequence), oldest: Revision(floor) })
    }
}

/// A watch of requests.
pub(super) struct FollowRequests(Cursor);

impl FollowRequests {
    pub(super) fn new(recorder: Weak<Recorder>, start: Start) -> Self {
        FollowRequests(Cursor::new(recorder, start, |recorder| &recorder.requested))
    }
}

impl ComputedWatch for FollowRequests {
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Result<Vec<ComputedEvent>, WatchEnd>> {
        let cursor = &mut self.0;
        loop {
            let Some(recorder) = cursor.recorder.upgrade() else { return Poll::Ready(Err(WatchEnd::Ended)) };
            let (rows, floor) = {
                let requests = recorder.requests.lock();
                (requests.after(cursor.sequence, STEP_MAX), requests.floor())
            };
            if let Some(end) = cursor.expired(floor) {
                return Poll::Ready(Err(end));
            }
            if let Some(last) = rows.last() {
                cursor.sequence = last.sequence;
                let items = rows.iter().filter_map(|row| SPECS.request(row));
                return Poll::Ready(Ok(items.map(|item| ComputedEvent::Object(EventKind::Added, item)).collect()));
            }
            if let Some(end) = cursor.take_initial_end() {
                return Poll::Ready(Ok(vec![end]));
            }
            if cursor.poll_wake(cx).is_pending() {
                return Poll::Pending;
            }
        }
    }

    fn revision(&self) -> Revision {
        Revision(self.0.sequence)
    }
}

/// A watch of changes. A change is returned once it is known who made it.
pub(super) struct FollowChanges {
    cursor: Cursor,
    /// The change that has no writer yet, and when it is returned without one.
    waiting: Option<(u64, Pin<Box<Sleep>>)>,
}

impl FollowChanges {
    pub(super) fn new(recorder: Weak<Recorder>, start: Start) -> Self {
        FollowChanges { cursor: Cursor::new(recorder, start, |recorder| &recorder.changed), waiting: None }
    }

    /// Whether a change without a writer has been waited for long enough.
    fn is_due(&mut self, sequence: u64, cx: &mut Context<'_>) -> bool {
        if self.waiting.as_ref().is_none_or(|(waiting, _)| *waiting != sequence) {
            self.waiting = Some((sequence, Box::pin(sleep(WRITER_WAIT))));
        }
        self.waiting.as_mut().is_none_or(|(_, sleep)| sleep.as_mut().poll(cx).is_ready())
    }
}

impl ComputedWatch for FollowChanges {
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Result<Vec<ComputedEvent>, WatchEnd>> {
        loop {
            let Some(recorder) = self.cursor.recorder.upgrade() else { return Poll::Ready(Err(WatchEnd::Ended)) };
            let (mut rows, floor) = {
                let changes = recorder.changes.lock();
                (changes.after(self.cursor.sequence, STEP_MAX), changes.floor())
            };
            if let Some(end) = self.cursor.expired(floor) {
                return Poll::Ready(Err(end));
            }
            // What was there when the watch began does not wait.
            let initial_end = self.cursor.initial_end.unwrap_or_default();
            let unknown = rows.iter().position(|row| row.writer.is_none() && row.sequence > initial_end);
            if let Some(at) = unknown {
                let sequence = rows.get(at).map_or(0, |row| row.sequence);
                let is_due = self.is_due(sequence, cx);
                rows.truncate(if is_due { at + 1 } else { at });
            }
            if let Some(last) = rows.last() {
                self.cursor.sequence = last.sequence;
                let items = rows.iter().filter_map(|row| SPECS.change(row));
                return Poll::Ready(Ok(items.map(|item| ComputedEvent::Object(EventKind::Added, item)).collect()));
            }
            if let Some(end) = self.cursor.take_initial_end() {
                return Poll::Ready(Ok(vec![end]));
            }
            if self.cursor.poll_wake(cx).is_pending() {
                return Poll::Pending;
            }
        }
    }

    fn revision(&self) -> Revision {
        Revision(self.cursor.sequence)
    }
}

/// A watch of watches: what opened, what closed, and once in a while how far the others are.
pub(super) struct FollowWatchers {
    cursor: Cursor,
    /// The figures of each watch that was returned.
    known: HashMap<u64, Value>,
    tick: Pin<Box<Sleep>>,
    is_first: bool,
}

impl FollowWatchers {
    pub(super) fn new(recorder: Weak<Recorder>, start: Start) -> Self {
        let cursor = Cursor::new(recorder, start, |recorder| &recorder.watched);
        FollowWatchers { cursor, known: HashMap::new(), tick: Box::pin(sleep(WATCHERS_INTERVAL)), is_first: true }
    }

    fn figures(watch: &OpenWatch) -> Value {
        watch.status(&watch.backlog(), 0)
    }

    /// Events for everything that is not as it was returned last.
    fn differences(&mut self, recorder: &Recorder) -> Result<Vec<ComputedEvent>, WatchEnd> {
        let (open, closed, now) = {
            let watchers = recorder.watchers.lock();
            let open: Vec<Arc<OpenWatch>> = watchers.open.values().cloned().collect();
            let now = recorder.sequence.load(Ordering::Relaxed);
            (open, watchers.closed_after(self.cursor.sequence), now)
        };
        let asked = Revision(self.cursor.sequence);
        let closed = closed.ok_or(WatchEnd::Expired { asked, oldest: Revision(now) })?;
        if std::mem::take(&mut self.is_first) && self.cursor.initial_end.is_none() {
            let before = open.iter().filter(|watch| watch.sequence <= self.cursor.sequence);
            self.known = before.map(|watch| (watch.number, Self::figures(watch))).collect();
            self.known
                .extend(closed.iter().filter(|watch| watch.opened <= asked.0).map(|watch| (watch.number, Value::Null)));
        }
        let mut events = Vec::new();
        for watch in closed {
            if self.known.remove(&watch.number).is_some() {
                events.push(ComputedEvent::Object(EventKind::Deleted, watch.item));
            }
        }
        for watch in open {
            let figures = Self::figures(&watch);
            let kind = match self.known.get(&watch.number) {
                Some(before) if *before == figures => continue,
                Some(_) => EventKind::Modified,
                None => EventKind::Added,
            };
            let sequence = if kind == EventKind::Added { watch.sequence } else { now };
            self.known.insert(watch.number, figures);
            events.extend(recorder.watcher(&watch, sequence).map(|item| ComputedEvent::Object(kind, item)));
        }
        self.cursor.sequence = self.cursor.sequence.max(now);
        events.extend(self.cursor.take_initial_end());
        Ok(events)
    }
}

impl ComputedWatch for FollowWatchers {
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Result<Vec<ComputedEvent>, WatchEnd>> {
        let mut is_due = self.is_first;
        loop {
            while self.cursor.poll_wake(cx).is_ready() {
                is_due = true;
            }
            while self.tick.as_mut().poll(cx).is_ready() {
                self.tick = Box::pin(sleep(WATCHERS_INTERVAL));
                is_due = true;
            }
            if !std::mem::take(&mut is_due) {
                return Poll::Pending;
            }
            let Some(recorder) = self.cursor.recorder.upgrade() else { return Poll::Ready(Err(WatchEnd::Ended)) };
            match self.differences(&recorder) {
                Ok(events) if events.is_empty() => {}
                result => return Poll::Ready(result),
            }
        }
    }

    fn revision(&self) -> Revision {
        Revision(self.cursor.sequence)
    }
}
