//! A watch to which a lab may do something: its events pass here one by one.
//!
//! While nothing is disturbed, frames pass untouched. Otherwise each event waits in a queue for what was decided about it. The queue is
//! short: a watch that is held or slow is not read any further, so it falls behind as one with a slow client does.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};
use std::time::Duration;

use access::identity::User;
use bytes::Bytes;
use http::{HeaderMap, header};
use machinery::{Revision, Status};
use registry::{EventNote, Frames};
use tokio::sync::watch;
use tokio::time::{Instant, Sleep};

use crate::disturbance::{Disturbances, Disturbed, Step, expired};
use crate::observation::WatchRecord;
use crate::request::request_info::ResourceInfo;
use crate::wire::body::EventSource;

/// Events that wait at most; the watch is not read any further then.
const WAITING_MAX: usize = 1024;
/// How long an event waits for a newer one of the same object that replaces it.
const MERGE_WINDOW: Duration = Duration::from_millis(100);
/// How often a watch that sees the past looks whether it may see more.
const HORIZON_INTERVAL: Duration = Duration::from_millis(20);
const MODIFIED: &[u8] = br#"{"type":"MODIFIED","object":"#;
const ADDED: &[u8] = br#"{"type":"ADDED","object":"#;

/// The parts of a request that decide whether it is disturbed.
pub(crate) fn disturbed(world: &Arc<str>, resource: &ResourceInfo, headers: &HeaderMap, user: &User) -> Disturbed {
    let name = if resource.name.is_empty() { &resource.selected_name } else { &resource.name };
    Disturbed {
        world: Arc::clone(world),
        verb: resource.verb.as_str(),
        group: resource.group.clone(),
        resource: resource.resource.clone(),
        subresource: resource.subresource.clone(),
        namespace: resource.namespace.clone(),
        name: name.clone(),
        user: user.name.clone(),
        agent: agent(headers).to_owned(),
    }
}

pub(crate) fn agent(headers: &HeaderMap) -> &str {
    headers.get(header::USER_AGENT).and_then(|agent| agent.to_str().ok()).unwrap_or_default()
}

/// The events of a watch, as a lab lets them pass.
pub(crate) struct DisturbedWatch {
    events: Box<dyn EventSource>,
    request: Disturbed,
    disturbances: Arc<dyn Disturbances>,
    record: Arc<dyn WatchRecord>,
    changed: Pin<Box<dyn Future<Output = watch::Receiver<u64>> + Send>>,
    waiting: VecDeque<Waiting>,
    wake_up: Option<Pin<Box<Sleep>>>,
    /// When the last event at a limited speed is sent.
    paced_until: Option<Instant>,
    /// The watch itself has ended; what waits is still sent.
    is_over: bool,
    /// The last revision that passed.
    revision: Revision,
}

/// An event that was not sent yet.
struct Waiting {
    pieces: Vec<Bytes>,
    note: EventNote,
    step: Step,
    due: Option<Instant>,
    /// The stream ends after it.
    is_last: bool,
}

impl DisturbedWatch {
    pub(crate) fn new(
        events: Box<dyn EventSource>,
        request: Disturbed,
        disturbances: Arc<dyn Disturbances>,
        record: Arc<dyn WatchRecord>,
        revision: Revision,
    ) -> Self {
        let mut changes = disturbances.changes();
        // What is disturbed already is looked at first of all.
        changes.mark_changed();
        DisturbedWatch {
            events,
            request,
            changed: next_change(changes),
            disturbances,
            record,
            waiting: VecDeque::new(),
            wake_up: None,
            paced_until: None,
            is_over: false,
            revision,
        }
    }

    fn is_active(&self) -> bool {
        self.disturbances.active().load(Ordering::Relaxed)
    }

    /// Ends the watch with the error that its revision is too old.
    fn expire(&mut self) {
        self.waiting.clear();
        self.is_over = false;
        self.events.end_with(expired(self.revision));
    }

    /// Takes the events of the watch that are ready, and decides what happens to each.
    fn take(&mut self, frames: Frames) {
        let now = Instant::now();
        let mut notes = frames.notes.map_or_else(Vec::new, |notes| notes.0).into_iter();
        let (mut from, count) = (0, frames.ends.len());
        for (number, end) in frames.ends.into_iter().enumerate() {
            let pieces = frames.segments.get(from..end).unwrap_or_default().to_vec();
            from = end;
            let note = notes.next();
            let step = note.as_ref().map_or(Step::Send, |note| self.disturbances.of_event(&self.request, note));
            let note = note.unwrap_or(EventNote {
                kind: "",
                namespace: String::new(),
                name: String::new(),
                revision: Revision::ZERO,
            });
            let due = match &step {
                Step::After(delay) => Some(now + *delay),
                Step::Merge => Some(now + MERGE_WINDOW),
                Step::Pace(bytes_per_second) => {
                    let bytes: usize = pieces.iter().map(Bytes::len).sum();
                    let takes = Duration::from_secs_f64(bytes as f64 / (*bytes_per_second).max(1) as f64);
                    self.paced_until = Some(self.paced_until.unwrap_or(now).max(now) + takes);
                    self.paced_until
                }
                _ => None,
            };
            let is_last = frames.last && number + 1 == count;
            self.put(Waiting { pieces, note, step, due, is_last });
        }
    }

    fn put(&mut self, mut event: Waiting) {
        if event.step == Step::Drop && !event.is_last {
            return;
        }
        let is_same = |earlier: &Waiting| {
            (&earlier.note.namespace, &earlier.note.name) == (&event.note.namespace, &event.note.name)
        };
        if event.step == Step::Merge
            && let Some(at) = self.waiting.iter().position(|earlier| earlier.step == Step::Merge && is_same(earlier))
            && let Some(earlier) = self.waiting.remove(at)
        {
            // The window of the first change counts, so that an object that never rests is sent too.
            event.due = earlier.due;
            // A client that was not told of the object must not be told of its changes, nor of its end.
            match event.note.kind {
                "DELETED" if earlier.note.kind == "ADDED" => return,
                "MODIFIED" if earlier.note.kind == "ADDED" => {
                    event.note.kind = "ADDED";
                    if let Some(opening) = event.pieces.first_mut().filter(|opening| ***opening == *MODIFIED) {
                        *opening = Bytes::from_static(ADDED);
                    }
                }
                _ => {}
            }
        }
        self.waiting.push_back(event);
    }

    /// Moves the events that may be sent now into frames. `None` if the watch ends here.
    fn send(&mut self, cx: &mut Context<'_>, bytes_max: usize) -> Option<Frames> {
        let mut frames = Frames::default();
        let horizon = self.disturbances.horizon(&self.request);
        while frames.bytes < bytes_max
            && !frames.last
            && let Some(mut event) = self.waiting.pop_front()
        {
            if horizon.is_some_and(|horizon| event.note.revision > horizon) {
                // The horizon moves with time or with other writes, so it is looked at again soon.
                let due = event.due.replace(Instant::now() + HORIZON_INTERVAL);
                let _ = self.is_due(&event, cx);
                event.due = due;
                self.waiting.push_front(event);
                break;
            }
            let stays = match &event.step {
                Step::Hold => self.disturbances.holds(&self.request),
                Step::After(_) | Step::Merge | Step::Pace(_) => !self.is_due(&event, cx),
                Step::Send | Step::Drop | Step::Cut { .. } | Step::Expire => false,
            };
            if stays {
                self.waiting.push_front(event);
                break;
            }
            match event.step {
                Step::Expire => {
                    self.expire();
                    // The error is ready at once.
                    cx.waker().wake_by_ref();
                    break;
                }
                Step::Cut { abruptly: false } => {
                    self.is_over = true;
                    self.waiting.clear();
                    return (!frames.is_empty()).then_some(frames);
                }
                Step::Cut { abruptly: true } => {
                    let mut whole = Bytes::from(event.pieces.concat());
                    let half = whole.split_to(whole.len() / 2);
                    push(&mut frames, vec![half]);
                    (frames.last, frames.broken) = (true, true);
                    self.waiting.clear();
                    break;
                }
                Step::Drop => {}
                Step::Send | Step::Hold | Step::After(_) | Step::Merge | Step::Pace(_) => {
                    self.revision = self.revision.max(event.note.revision);
                    push(&mut frames, event.pieces);
                    frames.revision = frames.revision.max(event.note.revision);
                }
            }
            frames.last = event.is_last;
        }
        Some(frames)
    }

    /// Whether an event may be sent; otherwise the task is woken when it may.
    fn is_due(&mut self, event: &Waiting, cx: &mut Context<'_>) -> bool {
        let Some(due) = event.due else { return true };
        let sleep = match &mut self.wake_up {
            Some(sleep) => {
                sleep.as_mut().reset(due);
                sleep
            }
            None => self.wake_up.insert(Box::pin(tokio::time::sleep_until(due))),
        };
        sleep.as_mut().poll(cx).is_ready()
    }

    /// Whether more events may be taken from the watch.
    fn has_room(&self) -> bool {
        let is_held = self.waiting.front().is_some_and(|event| event.step == Step::Hold);
        !self.is_over && !is_held && self.waiting.len() < WAITING_MAX
    }
}

fn push(frames: &mut Frames, pieces: Vec<Bytes>) {
    for piece in pieces {
        frames.bytes += piece.len();
        frames.segments.push(piece);
    }
    frames.ends.push(frames.segments.len());
}

fn next_change(mut changes: watch::Receiver<u64>) -> Pin<Box<dyn Future<Output = watch::Receiver<u64>> + Send>> {
    Box::pin(async move {
        if changes.changed().await.is_err() {
            // The lab is gone, and nothing changes any more.
            std::future::pending::<()>().await;
        }
        changes
    })
}

impl EventSource for DisturbedWatch {
    fn poll_frames(&mut self, cx: &mut Context<'_>, bytes_max: usize) -> Poll<Option<Frames>> {
        while let Poll::Ready(changes) = self.changed.as_mut().poll(cx) {
            self.changed = next_change(changes);
            if self.record.is_cut() {
                return Poll::Ready(None);
            }
            match self.disturbances.of_stream(&self.request) {
                Step::Cut { abruptly } if abruptly => {
                    let frames = Frames { last: true, broken: true, ..Frames::default() };
                    return Poll::Ready(Some(frames));
                }
                Step::Cut { .. } => return Poll::Ready(None),
                Step::Expire => self.expire(),
                _ => {}
            }
        }
        if self.waiting.is_empty() && !self.is_active() {
            return self.events.poll_frames(cx, bytes_max);
        }
        let mut is_pending = false;
        while self.has_room() && !is_pending {
            match self.events.poll_frames(cx, bytes_max) {
                Poll::Ready(Some(frames)) => self.take(frames),
                Poll::Ready(None) => self.is_over = true,
                Poll::Pending => is_pending = true,
            }
        }
        match self.send(cx, bytes_max) {
            None => Poll::Ready(None),
            Some(frames) if !frames.is_empty() || frames.last => Poll::Ready(Some(frames)),
            Some(_) if self.is_over && self.waiting.is_empty() => Poll::Ready(None),
            Some(_) => {
                if !is_pending && self.has_room() {
                    cx.waker().wake_by_ref();
                }
                Poll::Pending
            }
        }
    }

    fn end_with(&mut self, status: Status) {
        self.waiting.clear();
        self.events.end_with(status);
    }
}
