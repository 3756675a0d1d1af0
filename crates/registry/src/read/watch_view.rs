//! An open watch: events as lines of JSON or frames of protobuf, bookmarks, and an end.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use cache::{Cache, EventKind, Filter, Item, Output, WatchEnd, WatchScope, Watcher};
use machinery::json::{Value, json};
use machinery::object_meta::INITIAL_EVENTS_END;
use machinery::{Clock, Revision, Status};
use schema::kind::Kind;
use tokio::time::{Instant, Sleep};

use super::protobuf;
use crate::computed::{ComputedEvent, ComputedWatch};
use crate::conversion_webhook::Converter;
use crate::read::form::{Encoding, Form, IncludeObject, Shape};
use crate::read::view;

/// Interval of bookmarks, for watches that allow them.
const BOOKMARK_INTERVAL: Duration = Duration::from_secs(60);
/// Time before its deadline at which a watch gets its last bookmark.
const BOOKMARK_BEFORE_END: Duration = Duration::from_secs(2);

/// The terms of a watch that a client requests, apart from its filter.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WatchTerms {
    pub(crate) bookmarks: bool,
    /// Whether a bookmark marks the end of the initial events (if bookmarks are allowed at all).
    pub(crate) mark_initial_end: bool,
    pub(crate) timeout: Duration,
    /// The revision the watch starts from; a bookmark that is no newer is not sent.
    pub(crate) from: Revision,
}

/// One open watch.
pub struct WatchView {
    kind: Arc<Kind>,
    cache: Arc<Cache>,
    source: Source,
    form: Form,
    terms: WatchTerms,
    /// End of the watch.
    deadline: Instant,
    /// Time of the next bookmark; none once the deadline is too near.
    bookmark_due: Option<Instant>,
    wake_up: Deadline,
    /// Tables have their columns in the first event only.
    columns_sent: bool,
    /// Whether events in protobuf are preceded by their length; a WebSocket frames them itself.
    lengths: bool,
    /// For a kind whose versions a webhook converts.
    converter: Option<Arc<Converter>>,
    /// Events that are being converted, to be rendered afterwards.
    converting: Option<(Converting, Output)>,
    clock: Clock,
    /// Frames say what their events are about while this is true.
    notes: Option<Arc<AtomicBool>>,
}

type Converting = Pin<Box<dyn Future<Output = Result<(), Status>> + Send>>;

enum Source {
    Watching(Watcher),
    /// Objects that are not stored.
    Computed(Box<dyn ComputedWatch>, Filter),
    /// Sends this as its only event.
    Refused(Box<Status>),
    Over,
}

/// Events that are sent together.
#[derive(Debug, Default)]
pub struct Frames {
    pub segments: Vec<Bytes>,
    /// For each event, the index in `segments` behind its last piece.
    pub ends: Vec<usize>,
    /// The stream ends after this.
    pub last: bool,
    /// The task is woken when there is more: it need not poll before that.
    pub settled: bool,
    /// Total bytes.
    pub bytes: usize,
    /// The revision of the newest event; zero for an error.
    pub revision: Revision,
    /// What each event is about; none unless the watch [notes](WatchView::note_events) it.
    pub notes: Option<Box<EventNotes>>,
    /// The stream breaks off after this, without a proper end.
    pub broken: bool,
}

/// What the events of some frames are about, in their order. In a box, since most frames have none.
#[derive(Debug, Default)]
pub struct EventNotes(pub Vec<EventNote>);

/// What an event is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventNote {
    /// `ADDED`, `MODIFIED`, `DELETED`, `BOOKMARK` or `ERROR`.
    pub kind: &'static str,
    /// Empty for an event that is about no object.
    pub namespace: String,
    pub name: String,
    pub revision: Revision,
}

impl Frames {
    fn push(&mut self, pieces: impl IntoIterator<Item = Bytes>) {
        for piece in pieces {
            self.bytes += piece.len();
            self.segments.push(piece);
        }
        self.ends.push(self.segments.len());
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }
}

impl WatchView {
    pub(crate) fn new(kind: Arc<Kind>, cache: Arc<Cache>, watcher: Watcher, terms: WatchTerms, clock: Clock) -> Self {
        Self::with(kind, cache, Source::Watching(watcher), terms, clock)
    }

    /// A watch of objects that are not stored.
    pub(crate) fn computed(
        kind: Arc<Kind>,
        cache: Arc<Cache>,
        (watch, filter): (Box<dyn ComputedWatch>, Filter),
        terms: WatchTerms,
        clock: Clock,
    ) -> Self {
        Self::with(kind, cache, Source::Computed(watch, filter), terms, clock)
    }

    /// What the watch is about and the revision that it begins after; none if it is refused or its objects are not stored.
    #[must_use]
    pub fn scope(&self) -> Option<(WatchScope, Revision)> {
        match &self.source {
            Source::Watching(watcher) => Some((watcher.scope(), watcher.cursor())),
            Source::Computed(..) | Source::Refused(_) | Source::Over => None,
        }
    }

    /// A watch that was accepted and has a refusal as its only event.
    pub(crate) fn refused(kind: Arc<Kind>, cache: Arc<Cache>, status: Status, terms: WatchTerms, clock: Clock) -> Self {
        Self::with(kind, cache, Source::Refused(Box::new(status)), terms, clock)
    }

    fn with(kind: Arc<Kind>, cache: Arc<Cache>, source: Source, terms: WatchTerms, clock: Clock) -> Self {
        let now = Instant::now();
        let last_bookmark = terms.timeout.checked_sub(BOOKMARK_BEFORE_END).filter(|left| !left.is_zero());
        let bookmark_due = last_bookmark.filter(|_| terms.bookmarks).map(|left| now + left.min(BOOKMARK_INTERVAL));
        WatchView {
            kind,
            cache,
            source,
            form: Form::default(),
            terms,
            deadline: now + terms.timeout,
            bookmark_due,
            wake_up: Deadline::default(),
            columns_sent: false,
            lengths: true,
            converter: None,
            converting: None,
            clock,
            notes: None,
        }
    }

    /// Makes frames say what their events are about while `when` is true; before the first poll.
    pub fn note_events(&mut self, when: Arc<AtomicBool>) {
        self.notes = Some(when);
    }

    fn note(&self, frames: &mut Frames, kind: &'static str, item: Option<&Item>, revision: Revision) {
        if self.notes.as_ref().is_some_and(|when| when.load(Ordering::Relaxed)) {
            let text = |part: fn(&Item) -> &str| item.map(part).unwrap_or_default().to_owned();
            frames.notes.get_or_insert_default().0.push(EventNote {
                kind,
                namespace: text(Item::namespace),
                name: text(Item::name),
                revision,
            });
        }
    }

    /// Delays events until a webhook has converted their objects.
    pub(crate) fn convert_with(&mut self, converter: Arc<Converter>) {
        self.converter = Some(converter);
    }

    /// Renders events, or starts to convert them if a webhook does that.
    fn accept(&mut self, output: Output, frames: &mut Frames) {
        let Some(converter) = self.converter.clone() else {
            return self.show(output, frames);
        };
        let items: Vec<Arc<Item>> = match &output {
            Output::Initial(items) => items.iter().map(Arc::clone).collect(),
            Output::Live(deliveries) => deliveries.iter().map(|delivery| Arc::clone(delivery.item())).collect(),
            Output::InitialEnd(_) => Vec::new(),
        };
        let kind = Arc::clone(&self.kind);
        let converting = async move { converter.prepare(&kind, &items).await };
        self.converting = Some((Box::pin(converting), output));
    }

    /// Renders events that have been converted; false while they are not.
    fn poll_converting(&mut self, cx: &mut Context<'_>, frames: &mut Frames) -> bool {
        let Some((converting, _)) = &mut self.converting else { return true };
        match converting.as_mut().poll(cx) {
            Poll::Pending => false,
            Poll::Ready(done) => {
                match (done, self.converting.take()) {
                    (Ok(()), Some((_, output))) => self.show(output, frames),
                    (Err(status), _) => self.fail(&status, frames),
                    (Ok(()), None) => {}
                }
                true
            }
        }
    }

    /// Sets the form of events, JSON or protobuf; before the first poll.
    pub fn set_form(&mut self, form: Form) {
        self.form = form;
    }

    /// Leaves out the lengths of protobuf events, for a transport that frames them itself.
    pub fn leave_out_lengths(&mut self) {
        self.lengths = false;
    }

    /// Ends the watch with an error as its last event.
    pub fn end_with(&mut self, status: Status) {
        self.converting = None;
        self.source = Source::Refused(Box::new(status));
    }

    /// The kind of the watched objects, for metrics.
    #[must_use]
    pub fn kind(&self) -> &Arc<Kind> {
        &self.kind
    }

    /// All events that are ready, up to about `bytes_max`; `None` when the watch is over.
    pub fn poll_frames(&mut self, cx: &mut Context<'_>, bytes_max: usize) -> Poll<Option<Frames>> {
        // First, so that a watch that is never idle ends in time too; its client resumes from the last event it got.
        let refused = matches!(self.source, Source::Refused(_));
        let now = Instant::now();
        if !refused && now >= self.deadline {
            self.source = Source::Over;
        }
        let mut frames = Frames::default();
        while frames.bytes < bytes_max && !frames.last {
            if !self.poll_converting(cx, &mut frames) {
                break;
            }
            match &mut self.source {
                Source::Over => break,
                Source::Refused(status) => {
                    let status = status.clone();
                    self.fail(&status, &mut frames);
                }
                Source::Watching(watcher) => match watcher.poll_next(cx) {
                    Poll::Pending => break,
                    Poll::Ready(Ok(output)) => {
                        let (caught_up, wakes) = (watcher.is_live(), watcher.has_registered_waker());
                        self.accept(output, &mut frames);
                        let due = self.next_due();
                        frames.settled = wakes
                            && self.converting.is_none()
                            && now + TIMER_SLACK < due
                            && self.wake_up.is_set(due, cx);
                        // Nothing else is ready: the caller sends this and polls again.
                        if caught_up && !frames.is_empty() {
                            break;
                        }
                    }
                    Poll::Ready(Err(end)) => self.finish(end, &mut frames),
                },
                Source::Computed(watch, filter) => match watch.poll_next(cx) {
                    Poll::Pending => break,
                    Poll::Ready(Ok(mut events)) => {
                        events.retain(|event| match event {
                            ComputedEvent::Object(_, item) => filter.admits(item),
                            ComputedEvent::InitialEnd(_) => true,
                        });
                        self.show_computed(events, &mut frames);
                    }
                    Poll::Ready(Err(end)) => self.finish(end, &mut frames),
                },
            }
        }
        if !frames.is_empty() {
            return Poll::Ready(Some(frames));
        }
        if matches!(self.source, Source::Over) {
            return Poll::Ready(None);
        }
        if let Some((revision, bookmark)) = self.due_bookmark(now) {
            frames.push([bookmark]);
            frames.revision = revision;
            self.note(&mut frames, "BOOKMARK", None, revision);
            return Poll::Ready(Some(frames));
        }
        if self.wake_up.poll(self.next_due(), now, cx).is_ready() {
            // Time has passed since `now`: poll again.
            cx.waker().wake_by_ref();
        }
        Poll::Pending
    }

    /// The next time at which there is something to do without an event.
    fn next_due(&self) -> Instant {
        self.bookmark_due.map_or(self.deadline, |due| due.min(self.deadline))
    }

    /// The next frames, for callers that await.
    pub async fn frames(&mut self, bytes_max: usize) -> Option<Frames> {
        std::future::poll_fn(|cx| self.poll_frames(cx, bytes_max)).await
    }

    fn show(&mut self, output: Output, frames: &mut Frames) {
        match output {
            Output::Initial(items) => {
                for item in items {
                    self.show_object(EventKind::Added, &item, frames);
                }
            }
            Output::Live(deliveries) => {
                for delivery in deliveries {
                    self.show_object(delivery.kind, delivery.item(), frames);
                }
            }
            Output::InitialEnd(revision) => {
                if self.terms.bookmarks && self.terms.mark_initial_end {
                    let bookmark = self.bookmark(revision, true);
                    frames.push([bookmark]);
                    frames.revision = frames.revision.max(revision);
                    self.note(frames, "BOOKMARK", None, revision);
                }
            }
        }
    }

    fn show_computed(&mut self, events: Vec<ComputedEvent>, frames: &mut Frames) {
        for event in events {
            match event {
                ComputedEvent::Object(kind, item) => self.show_object(kind, &item, frames),
                ComputedEvent::InitialEnd(revision) => self.show(Output::InitialEnd(revision), frames),
            }
        }
    }

    fn show_object(&mut self, kind: EventKind, item: &Item, frames: &mut Frames) {
        self.note(frames, name(kind), Some(item), item.revision());
        frames.revision = frames.revision.max(item.revision());
        if self.form.encoding == Encoding::Protobuf {
            match protobuf::stored(&self.kind, item, self.form.shape) {
                Ok(object) => frames.push(object.event(name(kind), self.lengths)),
                Err(status) => self.fail(&status, frames),
            }
            return;
        }
        let opening = opening(kind);
        let shown = match self.form.shape {
            Shape::Plain => view::encoded(&self.kind, item).map(|encoded| encoded.whole().clone()),
            Shape::Partial(version) => view::encoded(&self.kind, item).and_then(|encoded| {
                let metadata = encoded.metadata().map_err(Status::internal)?;
                let head =
                    format!(r#"{{"kind":"PartialObjectMetadata","apiVersion":"{}","metadata":"#, version.api_version());
                Ok([head.as_bytes(), &metadata, b"}"].concat().into())
            }),
            Shape::Table { version, include } => view::value(&self.kind, item).map(|value| {
                let metadata = json!({"resourceVersion": item.revision().to_string()});
                let rows = vec![view::row(&self.kind, &value, version, include, self.clock.now())];
                Bytes::from(
                    view::table(version, columns_once(&mut self.columns_sent, &self.kind), metadata, rows).to_string(),
                )
            }),
        };
        match shown {
            Ok(object) => frames.push([Bytes::from_static(opening), object, Bytes::from_static(b"}\n")]),
            Err(status) => self.fail(&status, frames),
        }
    }

    /// Sends an error as the last event.
    fn fail(&mut self, status: &Status, frames: &mut Frames) {
        let event = self.event("ERROR", &status.to_value());
        frames.push([event]);
        // An object that cannot be shown has been noted as what it would have been.
        if let Some(notes) = &mut frames.notes {
            notes.0.truncate(frames.ends.len().saturating_sub(1));
        }
        self.note(frames, "ERROR", None, Revision::ZERO);
        frames.last = true;
        self.source = Source::Over;
    }

    /// An event of an object that is not stored.
    fn event(&self, kind: &str, object: &Value) -> Bytes {
        if self.form.encoding != Encoding::Protobuf {
            return format!("{{\"type\":\"{kind}\",\"object\":{object}}}\n").into();
        }
        // An object that cannot be encoded is at least an event of its type.
        let shown = protobuf::made(object, Shape::Plain).unwrap_or_default();
        shown.event(kind, self.lengths).concat().into()
    }

    fn finish(&mut self, end: WatchEnd, frames: &mut Frames) {
        self.source = Source::Over;
        let status = match end {
            WatchEnd::Ended => return,
            WatchEnd::Expired { asked, oldest } => Status::watch_expired(asked, oldest),
            WatchEnd::Failed(why) => Status::internal(why),
        };
        self.fail(&status, frames);
    }

    fn due_bookmark(&mut self, now: Instant) -> Option<(Revision, Bytes)> {
        self.bookmark_due.filter(|due| now >= *due)?;
        let last = self.deadline.checked_sub(BOOKMARK_BEFORE_END).unwrap_or(now);
        self.bookmark_due = (now < last).then(|| (now + BOOKMARK_INTERVAL).min(last));
        // Events that are being converted have been taken and not sent: a bookmark would promise too much.
        if self.converting.is_some() {
            return None;
        }
        // Read first: every event up to here that does not wait for this watch has been taken.
        let reached = self.cache.revision();
        let revision = match &self.source {
            Source::Watching(watcher) => watcher.bookmark(reached)?,
            Source::Computed(watch, _) => watch.revision(),
            Source::Refused(_) | Source::Over => return None,
        };
        (revision > self.terms.from).then(|| (revision, self.bookmark(revision, false)))
    }

    fn bookmark(&mut self, revision: Revision, initial_end: bool) -> Bytes {
        let mut metadata = json!({"resourceVersion": revision.to_string()});
        if initial_end {
            metadata["annotations"] = json!({INITIAL_EVENTS_END: "true"});
        }
        let object = match self.form.shape {
            Shape::Plain => {
                let mut object = empty_object(&self.kind);
                object["metadata"] = metadata;
                object
            }
            Shape::Partial(version) => view::partial(&json!({"metadata": metadata}), version),
            Shape::Table { version, include } => {
                let mut object = empty_object(&self.kind);
                object["metadata"] = metadata;
                let table_metadata = json!({"resourceVersion": revision.to_string()});
                // A client that wants no objects must be able to read the mark too.
                let include = if initial_end { IncludeObject::Metadata } else { include };
                let rows = vec![view::row(&self.kind, &object, version, include, self.clock.now())];
                view::table(version, columns_once(&mut self.columns_sent, &self.kind), table_metadata, rows)
            }
        };
        self.event("BOOKMARK", &object)
    }
}

/// Wakes a watch at a time. Once set, its timer is not polled before that: it is out of the processor's caches at each event,
/// and every event to every watcher passes here.
#[derive(Default)]
struct Deadline {
    sleep: Option<Pin<Box<Sleep>>>,
    /// The time it is set to, and the task that it wakes.
    set: Option<(Instant, Waker)>,
}

/// Timers have 1 ms resolution; closer than this, poll the timer.
const TIMER_SLACK: Duration = Duration::from_millis(5);

impl Deadline {
    /// Whether the task is woken at that time; it may have been already.
    fn is_set(&self, at: Instant, cx: &Context<'_>) -> bool {
        self.set.as_ref().is_some_and(|(set, waker)| *set == at && waker.will_wake(cx.waker()))
    }

    /// Ready at that time; before, the task is woken then.
    fn poll(&mut self, at: Instant, now: Instant, cx: &mut Context<'_>) -> Poll<()> {
        if now + TIMER_SLACK < at && self.is_set(at, cx) {
            return Poll::Pending;
        }
        let sleep = match &mut self.sleep {
            Some(sleep) => {
                if sleep.deadline() != at {
                    sleep.as_mut().reset(at);
                }
                sleep
            }
            None => self.sleep.insert(Box::pin(tokio::time::sleep_until(at))),
        };
        let elapsed = sleep.as_mut().poll(cx);
        self.set = elapsed.is_pending().then(|| (at, cx.waker().clone()));
        elapsed
    }
}

/// The column definitions the first time, none afterwards.
fn columns_once(sent: &mut bool, kind: &Kind) -> Option<Value> {
    (!std::mem::replace(sent, true)).then(|| schema::columns::definitions(kind))
}

fn opening(kind: EventKind) -> &'static [u8] {
    match kind {
        EventKind::Added => br#"{"type":"ADDED","object":"#,
        EventKind::Modified => br#"{"type":"MODIFIED","object":"#,
        EventKind::Deleted => br#"{"type":"DELETED","object":"#,
    }
}

fn name(kind: EventKind) -> &'static str {
    match kind {
        EventKind::Added => "ADDED",
        EventKind::Modified => "MODIFIED",
        EventKind::Deleted => "DELETED",
    }
}

/// An empty object of a kind, with the members that the kind always has.
fn empty_object(kind: &Kind) -> Value {
    let mut object = json!({"kind": kind.gvk.kind, "apiVersion": kind.group_version().to_string(), "metadata": {}});
    if !kind.custom {
        // An object that cannot be normalised is left as it is.
        let _ = crate::body::normalise(kind, &mut object, None);
    }
    object
}
