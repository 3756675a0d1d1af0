//! One open watch as a client sees it: events as lines of JSON or frames of protobuf, bookmarks, and an end.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use cache::{Cache, EventKind, Item, Output, WatchEnd, Watcher};
use machinery::json::{Value, json};
use machinery::object_meta::INITIAL_EVENTS_END;
use machinery::{Clock, Revision, Status};
use schema::kind::Kind;
use tokio::time::{Instant, Sleep};

use super::protobuf;
use crate::conversion_webhook::Converter;
use crate::read::form::{Encoding, Form, IncludeObject, Shape};
use crate::read::view;

/// How often a watch that allows bookmarks gets one.
const BOOKMARK_INTERVAL: Duration = Duration::from_secs(60);
/// How long before its deadline a watch gets its last bookmark.
const BOOKMARK_BEFORE_END: Duration = Duration::from_secs(2);

/// What a client asked of a watch beside what it selects.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WatchTerms {
    pub(crate) bookmarks: bool,
    /// Whether the end of the initial events is to be marked (if bookmarks are allowed at all).
    pub(crate) mark_initial_end: bool,
    pub(crate) timeout: Duration,
    /// The revision asked for; a bookmark that says no more is not sent.
    pub(crate) from: Revision,
}

/// One open watch.
pub struct WatchView {
    kind: Arc<Kind>,
    cache: Arc<Cache>,
    source: Source,
    form: Form,
    terms: WatchTerms,
    /// When the watch ends.
    deadline: Instant,
    /// When the next bookmark is due; none once the deadline is too near.
    bookmark_due: Option<Instant>,
    alarm: Alarm,
    /// Tables show their columns once.
    columns_sent: bool,
    /// Whether events in protobuf say their length; a WebSocket does that itself.
    lengths: bool,
    /// For a kind whose versions a webhook converts.
    converter: Option<Arc<Converter>>,
    /// What is being converted, to be shown afterwards.
    converting: Option<(Converting, Output)>,
    clock: Clock,
}

type Converting = Pin<Box<dyn Future<Output = Result<(), Status>> + Send>>;

enum Source {
    Watching(Watcher),
    /// Says this and ends.
    Refused(Box<Status>),
    Over,
}

/// Events that go out together.
#[derive(Debug, Default)]
pub struct Frames {
    pub segments: Vec<Bytes>,
    /// For each event, the index in `segments` behind its last piece.
    pub ends: Vec<usize>,
    /// The stream ends after this.
    pub last: bool,
    /// The task is woken when there is more: it need not ask again before that.
    pub settled: bool,
    /// Bytes in all.
    pub bytes: usize,
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

    /// A watch that was accepted and then says only why it cannot be.
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
            alarm: Alarm::default(),
            columns_sent: false,
            lengths: true,
            converter: None,
            converting: None,
            clock,
        }
    }

    /// For a kind whose versions a webhook converts: events wait until it has answered.
    pub(crate) fn convert_with(&mut self, converter: Arc<Converter>) {
        self.converter = Some(converter);
    }

    /// Begins to convert what came, if a webhook has to be asked.
    fn take_in(&mut self, output: Output, frames: &mut Frames) {
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

    /// Shows what has been converted; false while that goes on.
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

    /// In which form events are shown: JSON or protobuf; set before the first poll.
    pub fn set_form(&mut self, form: Form) {
        self.form = form;
    }

    /// For a transport that keeps events apart by itself.
    pub fn leave_out_lengths(&mut self) {
        self.lengths = false;
    }

    /// The resource this watch is of, for metrics.
    #[must_use]
    pub fn kind(&self) -> &Arc<Kind> {
        &self.kind
    }

    /// All events that are ready, up to about `bytes_max`; `None` when the watch is over.
    pub fn poll_frames(&mut self, cx: &mut Context<'_>, bytes_max: usize) -> Poll<Option<Frames>> {
        // First, so that a watch that is never idle ends in time too; what it has not been told it resumes with.
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
                        let (caught_up, listens) = (watcher.is_live(), watcher.has_registered_waker());
                        self.take_in(output, &mut frames);
                        let due = self.next_due();
                        frames.settled =
                            listens && self.converting.is_none() && now + RINGING < due && self.alarm.is_set(due, cx);
                        // That was all; whoever asked comes back when it is sent, and is waited for then.
                        if caught_up && !frames.is_empty() {
                            break;
                        }
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
        if let Some(bookmark) = self.due_bookmark(now) {
            frames.push([bookmark]);
            return Poll::Ready(Some(frames));
        }
        if self.alarm.poll(self.next_due(), now, cx).is_ready() {
            // It is later than when this began: look again.
            cx.waker().wake_by_ref();
        }
        Poll::Pending
    }

    /// When there is something to do though nothing happens.
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
                }
            }
        }
    }

    fn show_object(&mut self, kind: EventKind, item: &Item, frames: &mut Frames) {
        if self.form.encoding == Encoding::Protobuf {
            match protobuf::stored(&self.kind, item, self.form.shape) {
                Ok(object) => frames.push(object.event(name(kind), self.lengths)),
                Err(status) => self.fail(&status, frames),
            }
            return;
        }
        let opening = opening(kind);
        let shown = match self.form.shape {
            Shape::Plain => view::shown(&self.kind, item).map(|encoded| encoded.whole().clone()),
            Shape::Partial(version) => view::shown(&self.kind, item).and_then(|encoded| {
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

    /// The last event of all.
    fn fail(&mut self, status: &Status, frames: &mut Frames) {
        let event = self.event("ERROR", &status.to_value());
        frames.push([event]);
        frames.last = true;
        self.source = Source::Over;
    }

    /// An event of an object that is not stored.
    fn event(&self, kind: &str, object: &Value) -> Bytes {
        if self.form.encoding != Encoding::Protobuf {
            return format!("{{\"type\":\"{kind}\",\"object\":{object}}}\n").into();
        }
        // What cannot be shown is at least an event of its kind.
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

    fn due_bookmark(&mut self, now: Instant) -> Option<Bytes> {
        self.bookmark_due.filter(|due| now >= *due)?;
        let last = self.deadline.checked_sub(BOOKMARK_BEFORE_END).unwrap_or(now);
        self.bookmark_due = (now < last).then(|| (now + BOOKMARK_INTERVAL).min(last));
        // What is being converted has been handed out and not been sent: a bookmark would promise too much.
        if self.converting.is_some() {
            return None;
        }
        // Read first: what has been reached by now and is not waiting for this watch has been handed out.
        let reached = self.cache.revision();
        let Source::Watching(watcher) = &self.source else { return None };
        let revision = watcher.bookmark(reached)?;
        (revision > self.terms.from).then(|| self.bookmark(revision, false))
    }

    fn bookmark(&mut self, revision: Revision, initial_end: bool) -> Bytes {
        let mut metadata = json!({"resourceVersion": revision.to_string()});
        if initial_end {
            metadata["annotations"] = json!({INITIAL_EVENTS_END: "true"});
        }
        let object = match self.form.shape {
            Shape::Plain => {
                let mut object = zero(&self.kind);
                object["metadata"] = metadata;
                object
            }
            Shape::Partial(version) => view::partial(&json!({"metadata": metadata}), version),
            Shape::Table { version, include } => {
                let mut zero = zero(&self.kind);
                zero["metadata"] = metadata;
                let table_metadata = json!({"resourceVersion": revision.to_string()});
                // Even a client that wants no objects must be able to read the mark.
                let include = if initial_end { IncludeObject::Metadata } else { include };
                let rows = vec![view::row(&self.kind, &zero, version, include, self.clock.now())];
                view::table(version, columns_once(&mut self.columns_sent, &self.kind), table_metadata, rows)
            }
        };
        self.event("BOOKMARK", &object)
    }
}

/// Wakes a watch when it is time for something. Once set it is not looked at again before that: its memory is out of the
/// processor's caches each time an event comes, and every event to every watcher passes here.
#[derive(Default)]
struct Alarm {
    sleep: Option<Pin<Box<Sleep>>>,
    /// For when it is set, and whom it wakes.
    set: Option<(Instant, Waker)>,
}

/// A timer rings on the millisecond: that near to it, it is asked.
const RINGING: Duration = Duration::from_millis(5);

impl Alarm {
    /// Whether the task is woken then; it may have been already.
    fn is_set(&self, at: Instant, cx: &Context<'_>) -> bool {
        self.set.as_ref().is_some_and(|(set, waker)| *set == at && waker.will_wake(cx.waker()))
    }

    /// Ready when the time has come; else the task is woken then.
    fn poll(&mut self, at: Instant, now: Instant, cx: &mut Context<'_>) -> Poll<()> {
        if now + RINGING < at && self.is_set(at, cx) {
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
        let rung = sleep.as_mut().poll(cx);
        self.set = rung.is_pending().then(|| (at, cx.waker().clone()));
        rung
    }
}

/// The column definitions the first time, nothing afterwards.
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

/// An object of which nothing is known but its kind, with the members its kind always shows.
fn zero(kind: &Kind) -> Value {
    let mut object = json!({"kind": kind.gvk.kind, "apiVersion": kind.group_version().to_string(), "metadata": {}});
    if !kind.custom {
        // An unknown kind or an object that cannot be brought in order is shown as it is.
        let _ = crate::body::normalise(kind, &mut object, None);
    }
    object
}
