//! Bodies of requests and responses.
//!
//! A response body is empty, one piece made of shared slices, or a watch: a stream that ends when the watch does, when the
//! server stops, or when the client disconnects (hyper drops it then, and with it everything the watch holds).

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Buf as _, Bytes};
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt as _;
use http_body_util::combinators::UnsyncBoxBody;
use hyper::body::Incoming;
use machinery::Status;
use registry::{Frames, WatchView};
use tokio::time::Instant;

use crate::fairness::Place;
use crate::wire::chunk::{Chunk, Unsent};
use crate::wire::drain::Ticket;
use crate::wire::slow::SlowChunk;

/// A source of encoded watch events.
pub trait EventSource: Send + 'static {
    /// Returns all pending events up to `bytes_max` (at least one event), none when the watch has ended.
    fn poll_frames(&mut self, cx: &mut Context<'_>, bytes_max: usize) -> Poll<Option<Frames>>;

    /// Makes an error the last event, if these are events of this server's own objects.
    fn end_with(&mut self, _: Status) {}
}

impl EventSource for WatchView {
    fn poll_frames(&mut self, cx: &mut Context<'_>, bytes_max: usize) -> Poll<Option<Frames>> {
        WatchView::poll_frames(self, cx, bytes_max)
    }

    fn end_with(&mut self, status: Status) {
        WatchView::end_with(self, status);
    }
}

/// Notified of everything that a watch sends; dropped with the watch.
pub trait Observer: Send + 'static {
    fn sent(&mut self, frames: &Frames);
}

/// The body of a response.
#[derive(Default)]
pub struct ResponseBody {
    content: Content,
    /// The place of the request among those in flight, which it keeps until the response is sent.
    place: Option<Place>,
    /// Dropped with the body: slots of limits, counted requests.
    held: Held,
}

pub(crate) type Held = Option<Box<dyn std::any::Any + Send>>;

#[derive(Default)]
enum Content {
    #[default]
    Empty,
    Whole(Chunk),
    Slow(Box<SlowChunk>),
    Watch(Box<WatchBody>),
}

/// The body of a watch.
pub struct WatchBody {
    source: Box<dyn EventSource>,
    observer: Box<dyn Observer>,
    drain: Ticket,
    bytes_max: usize,
    ended: bool,
    broken: bool,
}

/// A response ends before it is complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the connection was cut")]
pub struct Broken;

impl WatchBody {
    #[must_use]
    pub fn new(source: Box<dyn EventSource>, observer: Box<dyn Observer>, drain: Ticket, bytes_max: usize) -> Self {
        WatchBody { source, observer, drain, bytes_max, ended: false, broken: false }
    }

    /// Returns the next events; none when the watch has ended.
    pub fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Frames>> {
        if self.ended {
            return Poll::Ready(None);
        }
        match self.source.poll_frames(cx, self.bytes_max) {
            Poll::Ready(Some(mut frames)) => {
                self.ended = frames.last;
                self.broken = frames.broken;
                frames.settled &= !frames.last && self.drain.is_waiting(cx);
                self.observer.sent(&frames);
                Poll::Ready(Some(frames))
            }
            Poll::Ready(None) => {
                self.ended = true;
                Poll::Ready(None)
            }
            // Pending events are sent first: a stopping server ends only a watch that has none.
            Poll::Pending if self.drain.poll_begun(cx) => {
                self.ended = true;
                Poll::Ready(None)
            }
            Poll::Pending => Poll::Pending,
        }
    }

    /// Whether the watch broke off, so that its client must not see a proper end.
    pub(crate) fn is_broken(&self) -> bool {
        self.broken
    }
}

impl ResponseBody {
    #[must_use]
    pub fn empty() -> Self {
        ResponseBody::default()
    }

    pub fn whole(content: impl Into<Chunk>) -> Self {
        ResponseBody { content: Content::Whole(content.into()), place: None, held: None }
    }

    #[must_use]
    pub fn watch(watch: WatchBody) -> Self {
        ResponseBody { content: Content::Watch(Box::new(watch)), place: None, held: None }
    }

    /// Keeps a value until the body is dropped.
    #[must_use]
    pub fn holding(mut self, held: impl std::any::Any + Send) -> Self {
        self.held = match self.held.take() {
            None => Some(Box::new(held)),
            Some(before) => Some(Box::new((before, held))),
        };
        self
    }

    /// Keeps a value until the bytes of the body are sent, or the watch has ended.
    #[must_use]
    pub(crate) fn until_sent(mut self, unsent: impl Unsent + 'static) -> Self {
        match &mut self.content {
            Content::Empty | Content::Slow(_) | Content::Watch(_) => {
                let unsent: Box<dyn Unsent> = Box::new(unsent);
                self.holding(unsent)
            }
            Content::Whole(chunk) => {
                chunk.keep(unsent);
                self
            }
        }
    }

    /// Sends a body of one piece at a limited speed.
    pub(crate) fn slow_down(&mut self, bytes_per_second: u64) {
        if let Content::Whole(chunk) = &mut self.content {
            let rest = std::mem::take(chunk);
            self.content = Content::Slow(Box::new(SlowChunk::new(rest, bytes_per_second)));
        }
    }

    /// Keeps the place of the request in flight; a watch does not need one.
    pub(crate) fn set_place(&mut self, place: Option<Place>) {
        if !self.is_watch() {
            self.place = place;
        }
    }

    pub(crate) fn take_place(&mut self) -> Option<Place> {
        self.place.take()
    }

    /// The size of a body that is not a watch, for metrics.
    #[must_use]
    pub fn whole_len(&self) -> Option<usize> {
        match &self.content {
            Content::Empty => Some(0),
            Content::Whole(chunk) => Some(chunk.remaining()),
            Content::Slow(slow) => Some(slow.remaining()),
            Content::Watch(_) => None,
        }
    }

    /// The content of a body that is one piece.
    #[must_use]
    pub(crate) fn whole_chunk(&self) -> Option<&Chunk> {
        match &self.content {
            Content::Whole(chunk) => Some(chunk),
            Content::Empty | Content::Slow(_) | Content::Watch(_) => None,
        }
    }

    /// Returns the content of a body that is not a watch, or the body unchanged.
    pub fn into_whole(self) -> Result<Chunk, Self> {
        match self.content {
            Content::Empty => Ok(Chunk::default()),
            Content::Whole(chunk) => Ok(chunk),
            Content::Slow(_) | Content::Watch(_) => Err(self),
        }
    }

    /// Returns a watch and the values to keep for its lifetime, or the body unchanged.
    pub(crate) fn into_watch(self) -> Result<(WatchBody, Held), Self> {
        match self.content {
            Content::Watch(watch) => Ok((*watch, self.held)),
            _ => Err(self),
        }
    }

    #[must_use]
    pub fn is_watch(&self) -> bool {
        matches!(self.content, Content::Watch(_))
    }

    fn poll_chunk(&mut self, cx: &mut Context<'_>) -> Poll<Option<Chunk>> {
        match &mut self.content {
            Content::Empty => Poll::Ready(None),
            Content::Whole(chunk) => {
                let chunk = std::mem::take(chunk);
                self.content = Content::Empty;
                Poll::Ready(chunk.has_remaining().then_some(chunk))
            }
            Content::Slow(slow) => slow.poll_next(cx),
            Content::Watch(watch) => watch.poll_next(cx).map(|frames| frames.map(|frames| frames.segments.into())),
        }
    }

    fn is_broken(&self) -> bool {
        matches!(&self.content, Content::Watch(watch) if watch.is_broken())
    }
}

impl std::fmt::Debug for ResponseBody {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ResponseBody").field("whole_len", &self.whole_len()).finish_non_exhaustive()
    }
}

impl Body for ResponseBody {
    type Data = Chunk;
    type Error = Broken;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Chunk>, Broken>>> {
        let this = self.get_mut();
        this.poll_chunk(cx).map(|chunk| match chunk {
            Some(chunk) => Some(Ok(Frame::data(chunk))),
            None => this.is_broken().then_some(Err(Broken)),
        })
    }

    fn is_end_stream(&self) -> bool {
        self.whole_len() == Some(0)
    }

    fn size_hint(&self) -> SizeHint {
        self.whole_len().map_or_else(SizeHint::default, |len| SizeHint::with_exact(len as u64))
    }
}

/// A response body for a caller in the same process: yields its slices as plain `Bytes`, without a copy.
#[derive(Debug)]
pub struct BytesBody {
    body: ResponseBody,
    chunk: Chunk,
}

impl From<ResponseBody> for BytesBody {
    fn from(body: ResponseBody) -> Self {
        BytesBody { body, chunk: Chunk::default() }
    }
}

impl Body for BytesBody {
    type Data = Bytes;
    type Error = Broken;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Broken>>> {
        let this = self.get_mut();
        loop {
            if let Some(bytes) = this.chunk.pop() {
                return Poll::Ready(Some(Ok(Frame::data(bytes))));
            }
            match this.body.poll_chunk(cx) {
                Poll::Ready(Some(chunk)) => this.chunk = chunk,
                Poll::Ready(None) => return Poll::Ready(this.body.is_broken().then_some(Err(Broken))),
                Poll::Pending => return Poll::Pending,
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        !self.chunk.has_remaining() && self.body.is_end_stream()
    }
}

/// The body of a request, from a connection or from a caller in the same process.
pub struct RequestBody {
    source: Source,
    /// The last frame was read, or the connection broke.
    ended: bool,
}

enum Source {
    Connection(Incoming),
    Whole(Option<Bytes>),
    Other(UnsyncBoxBody<Bytes, Box<dyn std::error::Error + Send + Sync>>),
}

/// A request body could not be read.
#[derive(Debug, PartialEq, Eq)]
pub enum BodyError {
    TooLarge,
    /// The bodies of all requests together are too large.
    NoBudget,
    /// The body arrived more slowly than the limit.
    TooSlow,
    /// The client disconnected or broke the framing.
    Broken(String),
}

/// The terms on which a body is read.
pub struct ReadTerms<'a> {
    pub bytes_max: usize,
    /// Time before `bytes_per_second_min` is enforced.
    pub grace: Duration,
    pub bytes_per_second_min: usize,
    /// Charges bytes before they are kept; false refuses them.
    pub charge: &'a mut (dyn FnMut(usize) -> bool + Send),
}

impl RequestBody {
    /// Wraps a body of any other type.
    pub fn other<B>(body: B) -> Self
    where
        B: Body<Data = Bytes> + Send + 'static,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        RequestBody { source: Source::Other(body.map_err(Into::into).boxed_unsync()), ended: false }
    }

    /// Returns whether a connection has nothing of the body left to read.
    #[must_use]
    pub fn is_read(&self) -> bool {
        match &self.source {
            Source::Connection(body) => self.ended || body.is_end_stream(),
            Source::Whole(_) | Source::Other(_) => true,
        }
    }

    /// Reads the whole body. A body that declares a greater length than the limit is refused without reading it.
    pub async fn read(&mut self, terms: ReadTerms<'_>) -> Result<Bytes, BodyError> {
        let read = match &mut self.source {
            Source::Whole(bytes) => Some(bytes.take().unwrap_or_default())
                .filter(|bytes| bytes.len() <= terms.bytes_max)
                .ok_or(BodyError::TooLarge),
            Source::Connection(body) => collect(body, terms).await,
            Source::Other(body) => collect(body, terms).await,
        };
        self.ended = matches!(read, Ok(_) | Err(BodyError::Broken(_)));
        read
    }

    /// Reads and drops the rest of the body of a refused request, as far as the limits allow: most clients read the response
    /// only after they have sent everything, and would see a broken connection instead. Returns whether nothing is left.
    pub async fn discard(&mut self, bytes_max: usize, time_max: Duration) -> bool {
        if self.is_read() {
            return true;
        }
        let Source::Connection(body) = &mut self.source else { return true };
        if body.size_hint().lower() > bytes_max as u64 {
            return false;
        }
        let reading = async {
            let mut left = bytes_max;
            while let Some(frame) = body.frame().await {
                let Ok(frame) = frame else { return true };
                let bytes = frame.data_ref().map_or(0, Bytes::len);
                if bytes > left {
                    return false;
                }
                left -= bytes;
            }
            true
        };
        self.ended = tokio::time::timeout(time_max, reading).await.unwrap_or(false);
        self.ended
    }
}

async fn collect<B>(body: &mut B, terms: ReadTerms<'_>) -> Result<Bytes, BodyError>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: std::fmt::Display,
{
    let ReadTerms { bytes_max, grace, bytes_per_second_min, charge } = terms;
    if body.size_hint().lower() > bytes_max as u64 {
        return Err(BodyError::TooLarge);
    }
    let began = Instant::now();
    let mut first = Bytes::new();
    let mut whole: Vec<u8> = Vec::new();
    loop {
        let received = first.len() + whole.len();
        let earned = Duration::from_secs_f64(received as f64 / bytes_per_second_min.max(1) as f64);
        let frame = match tokio::time::timeout_at(began + grace + earned, body.frame()).await {
            Ok(Some(frame)) => frame,
            Ok(None) => break,
            Err(_) => return Err(BodyError::TooSlow),
        };
        let frame = frame.map_err(|error| BodyError::Broken(error.to_string()))?;
        let Ok(data) = frame.into_data() else { continue };
        if received + data.len() > bytes_max {
            return Err(BodyError::TooLarge);
        }
        if !charge(data.len()) {
            return Err(BodyError::NoBudget);
        }
        // Most bodies have one frame and are not copied.
        if received == 0 {
            first = data;
        } else {
            if whole.is_empty() {
                // Not the declared length, which need not be true: the vector grows with what was received.
                whole.reserve(2 * (first.len() + data.len()));
                whole.extend_from_slice(&std::mem::take(&mut first));
            }
            whole.extend_from_slice(&data);
        }
    }
    Ok(if whole.is_empty() { first } else { whole.into() })
}

impl From<Incoming> for RequestBody {
    fn from(body: Incoming) -> Self {
        RequestBody { source: Source::Connection(body), ended: false }
    }
}

impl From<Bytes> for RequestBody {
    fn from(bytes: Bytes) -> Self {
        RequestBody { source: Source::Whole(Some(bytes)), ended: true }
    }
}

impl Default for RequestBody {
    fn default() -> Self {
        RequestBody { source: Source::Whole(None), ended: true }
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use super::*;
    use crate::wire::drain::Drain;
    use std::sync::Arc;

    struct Script(Vec<Frames>);

    impl EventSource for Script {
        fn poll_frames(&mut self, _: &mut Context<'_>, _: usize) -> Poll<Option<Frames>> {
            match self.0.is_empty() {
                true => Poll::Pending,
                false => Poll::Ready(Some(self.0.remove(0))),
            }
        }
    }

    struct Ignore;

    impl Observer for Ignore {
        fn sent(&mut self, _: &Frames) {}
    }

    fn frames(parts: &[&'static str], last: bool) -> Frames {
        let segments: Vec<Bytes> = parts.iter().map(|part| Bytes::from_static(part.as_bytes())).collect();
        let bytes = segments.iter().map(Bytes::len).sum();
        Frames { ends: vec![segments.len()], segments, last, bytes, ..Frames::default() }
    }

    fn watch(script: Vec<Frames>, drain: &Arc<Drain>) -> BytesBody {
        let watch = WatchBody::new(Box::new(Script(script)), Box::new(Ignore), drain.ticket(), 1024);
        ResponseBody::watch(watch).into()
    }

    #[tokio::test]
    async fn a_watch_ends_after_its_last_event() {
        let drain = Arc::new(Drain::default());
        let body = watch(vec![frames(&["a", "b"], false), frames(&["c"], true)], &drain);
        assert_eq!(body.collect().await.unwrap().to_bytes(), "abc");
    }

    #[tokio::test]
    async fn a_silent_watch_ends_when_the_server_stops() {
        let drain = Arc::new(Drain::default());
        let body = watch(vec![frames(&["a"], false)], &drain);
        let read = tokio::spawn(async move { body.collect().await.unwrap().to_bytes() });
        tokio::task::yield_now().await;
        drain.begin();
        assert_eq!(read.await.unwrap(), "a");
    }

    #[tokio::test]
    async fn what_a_body_holds_is_dropped_with_it() {
        let held = Arc::new(());
        let body = ResponseBody::whole(Bytes::from_static(b"x")).holding(Arc::clone(&held)).holding(7);
        assert_eq!(Arc::strong_count(&held), 2);
        drop(body);
        assert_eq!(Arc::strong_count(&held), 1);
    }

    #[tokio::test]
    async fn request_bodies_are_bounded() {
        let stream = |parts: &'static [&'static str]| {
            let frames = parts.iter().map(|part| Ok::<_, Infallible>(Frame::data(Bytes::from_static(part.as_bytes()))));
            RequestBody::other(http_body_util::StreamBody::new(futures::stream::iter(frames)))
        };
        assert_eq!(read(stream(&["ab", "cd", "e"]), 5).await, Ok(Bytes::from_static(b"abcde")));
        assert_eq!(read(stream(&["abcde"]), 5).await, Ok(Bytes::from_static(b"abcde")));
        assert_eq!(read(stream(&["ab", "cd", "ef"]), 5).await, Err(BodyError::TooLarge));
        assert_eq!(read(RequestBody::default(), 5).await, Ok(Bytes::new()));
        assert_eq!(read(RequestBody::from(Bytes::from_static(b"abcdef")), 5).await, Err(BodyError::TooLarge));
    }

    async fn read(mut body: RequestBody, bytes_max: usize) -> Result<Bytes, BodyError> {
        let grace = Duration::from_secs(10);
        body.read(ReadTerms { bytes_max, grace, bytes_per_second_min: 10, charge: &mut |_| true }).await
    }

    /// A body of one byte each time that this many seconds have passed.
    fn dripping(seconds: u64) -> RequestBody {
        let frames = futures::stream::unfold((), move |()| async move {
            tokio::time::sleep(Duration::from_secs(seconds)).await;
            Some((Ok::<_, Infallible>(Frame::data(Bytes::from_static(b" "))), ()))
        });
        RequestBody::other(http_body_util::StreamBody::new(Box::pin(frames)))
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_drips_is_refused_after_the_grace() {
        let began = Instant::now();
        assert_eq!(read(dripping(1), 1000).await, Err(BodyError::TooSlow));
        // Ten seconds of grace, and a tenth of a second for each byte that came.
        assert_eq!(began.elapsed().as_secs(), 11);
        assert_eq!(read(dripping(0), 1000).await, Err(BodyError::TooLarge), "fast enough, and without end");
    }

    #[tokio::test]
    async fn bytes_are_charged_before_they_are_kept() {
        let frames = ["ab", "cd", "ef"].map(|part| Ok::<_, Infallible>(Frame::data(Bytes::from(part))));
        let mut body = RequestBody::other(http_body_util::StreamBody::new(futures::stream::iter(frames)));
        let mut left = 5_usize;
        let mut charge = |bytes: usize| {
            left = left.saturating_sub(bytes);
            left > 0
        };
        let terms =
            ReadTerms { bytes_max: 100, grace: Duration::from_secs(1), bytes_per_second_min: 1, charge: &mut charge };
        assert_eq!(body.read(terms).await, Err(BodyError::NoBudget));
    }
}
