//! Bodies of requests and responses.
//!
//! A response body is empty, one piece made of shared slices, or a watch: a stream that ends when the watch does, when the
//! server stops, or when the client disconnects (hyper drops it then, and with it everything the watch holds).

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Buf as _, Bytes};
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt as _;
use http_body_util::combinators::UnsyncBoxBody;
use hyper::body::Incoming;
use registry::{Frames, WatchView};

use crate::wire::chunk::Chunk;
use crate::wire::drain::Ticket;

/// A source of encoded watch events.
pub trait EventSource: Send + 'static {
    /// Returns all pending events up to `bytes_max` (at least one event), none when the watch has ended.
    fn poll_frames(&mut self, cx: &mut Context<'_>, bytes_max: usize) -> Poll<Option<Frames>>;
}

impl EventSource for WatchView {
    fn poll_frames(&mut self, cx: &mut Context<'_>, bytes_max: usize) -> Poll<Option<Frames>> {
        WatchView::poll_frames(self, cx, bytes_max)
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
    /// Dropped with the body: slots of limits, counted requests.
    held: Held,
}

pub(crate) type Held = Option<Box<dyn std::any::Any + Send>>;

#[derive(Default)]
enum Content {
    #[default]
    Empty,
    Whole(Chunk),
    Watch(Box<WatchBody>),
}

/// The body of a watch.
pub struct WatchBody {
    source: Box<dyn EventSource>,
    observer: Box<dyn Observer>,
    drain: Ticket,
    bytes_max: usize,
    ended: bool,
}

impl WatchBody {
    #[must_use]
    pub fn new(source: Box<dyn EventSource>, observer: Box<dyn Observer>, drain: Ticket, bytes_max: usize) -> Self {
        WatchBody { source, observer, drain, bytes_max, ended: false }
    }

    /// Returns the next events; none when the watch has ended.
    pub fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Frames>> {
        if self.ended {
            return Poll::Ready(None);
        }
        match self.source.poll_frames(cx, self.bytes_max) {
            Poll::Ready(Some(mut frames)) => {
                self.ended = frames.last;
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
}

impl ResponseBody {
    #[must_use]
    pub fn empty() -> Self {
        ResponseBody::default()
    }

    pub fn whole(content: impl Into<Chunk>) -> Self {
        ResponseBody { content: Content::Whole(content.into()), held: None }
    }

    #[must_use]
    pub fn watch(watch: WatchBody) -> Self {
        ResponseBody { content: Content::Watch(Box::new(watch)), held: None }
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

    /// The size of a body that is not a watch, for metrics.
    #[must_use]
    pub fn whole_len(&self) -> Option<usize> {
        match &self.content {
            Content::Empty => Some(0),
            Content::Whole(chunk) => Some(chunk.remaining()),
            Content::Watch(_) => None,
        }
    }

    /// Returns the content of a body that is not a watch, or the body unchanged.
    pub fn into_whole(self) -> Result<Chunk, Self> {
        match self.content {
            Content::Empty => Ok(Chunk::default()),
            Content::Whole(chunk) => Ok(chunk),
            Content::Watch(_) => Err(self),
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
            Content::Watch(watch) => watch.poll_next(cx).map(|frames| frames.map(|frames| frames.segments.into())),
        }
    }
}

impl std::fmt::Debug for ResponseBody {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ResponseBody").field("whole_len", &self.whole_len()).finish_non_exhaustive()
    }
}

impl Body for ResponseBody {
    type Data = Chunk;
    type Error = Infallible;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Chunk>, Infallible>>> {
        self.get_mut().poll_chunk(cx).map(|chunk| chunk.map(|chunk| Ok(Frame::data(chunk))))
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
    type Error = Infallible;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let this = self.get_mut();
        loop {
            if let Some(bytes) = this.chunk.pop() {
                return Poll::Ready(Some(Ok(Frame::data(bytes))));
            }
            match this.body.poll_chunk(cx) {
                Poll::Ready(Some(chunk)) => this.chunk = chunk,
                Poll::Ready(None) => return Poll::Ready(None),
                Poll::Pending => return Poll::Pending,
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        !self.chunk.has_remaining() && self.body.is_end_stream()
    }
}

/// The body of a request, from a connection or from a caller in the same process.
pub struct RequestBody(Source);

enum Source {
    Connection(Incoming),
    Whole(Option<Bytes>),
    Other(UnsyncBoxBody<Bytes, Box<dyn std::error::Error + Send + Sync>>),
}

/// A request body could not be read.
#[derive(Debug, PartialEq, Eq)]
pub enum BodyError {
    TooLarge,
    /// The client disconnected or broke the framing.
    Broken(String),
}

impl RequestBody {
    /// Wraps a body of any other type.
    pub fn other<B>(body: B) -> Self
    where
        B: Body<Data = Bytes> + Send + 'static,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        RequestBody(Source::Other(body.map_err(Into::into).boxed_unsync()))
    }

    /// Reads the whole body, up to the limit. A body that declares a greater length is refused without reading it.
    pub async fn read(self, bytes_max: usize) -> Result<Bytes, BodyError> {
        match self.0 {
            Source::Whole(bytes) => {
                Some(bytes.unwrap_or_default()).filter(|bytes| bytes.len() <= bytes_max).ok_or(BodyError::TooLarge)
            }
            Source::Connection(body) => collect(body, bytes_max).await,
            Source::Other(body) => collect(body, bytes_max).await,
        }
    }
}

async fn collect<B>(mut body: B, bytes_max: usize) -> Result<Bytes, BodyError>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: std::fmt::Display,
{
    if body.size_hint().lower() > bytes_max as u64 {
        discard(&mut body, bytes_max).await;
        return Err(BodyError::TooLarge);
    }
    let mut first = Bytes::new();
    let mut whole: Vec<u8> = Vec::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| BodyError::Broken(error.to_string()))?;
        let Ok(data) = frame.into_data() else { continue };
        if first.len() + whole.len() + data.len() > bytes_max {
            discard(&mut body, bytes_max).await;
            return Err(BodyError::TooLarge);
        }
        // Most bodies have one frame and are not copied.
        if first.is_empty() && whole.is_empty() {
            first = data;
        } else {
            if whole.is_empty() {
                whole.reserve(body.size_hint().lower() as usize + first.len() + data.len());
                whole.extend_from_slice(&std::mem::take(&mut first));
            }
            whole.extend_from_slice(&data);
        }
    }
    Ok(if whole.is_empty() { first } else { whole.into() })
}

/// Reads and drops the rest of a body that is too large: most clients read the response only after they have sent
/// everything, and would see a broken connection instead. Bodies above four times the limit are not read.
async fn discard<B>(body: &mut B, bytes_max: usize)
where
    B: Body<Data = Bytes> + Unpin,
{
    let mut left = bytes_max.saturating_mul(4);
    if body.size_hint().lower() > left as u64 {
        return;
    }
    while let Some(Ok(frame)) = body.frame().await {
        left = left.saturating_sub(frame.data_ref().map_or(0, Bytes::len));
        if left == 0 {
            return;
        }
    }
}

impl From<Incoming> for RequestBody {
    fn from(body: Incoming) -> Self {
        RequestBody(Source::Connection(body))
    }
}

impl From<Bytes> for RequestBody {
    fn from(bytes: Bytes) -> Self {
        RequestBody(Source::Whole(Some(bytes)))
    }
}

impl Default for RequestBody {
    fn default() -> Self {
        RequestBody(Source::Whole(None))
    }
}

#[cfg(test)]
mod tests {
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
        Frames { ends: vec![segments.len()], segments, last, settled: false, bytes }
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
        assert_eq!(stream(&["ab", "cd", "e"]).read(5).await, Ok(Bytes::from_static(b"abcde")));
        assert_eq!(stream(&["abcde"]).read(5).await, Ok(Bytes::from_static(b"abcde")));
        assert_eq!(stream(&["ab", "cd", "ef"]).read(5).await, Err(BodyError::TooLarge));
        assert_eq!(RequestBody::default().read(5).await, Ok(Bytes::new()));
        assert_eq!(RequestBody::from(Bytes::from_static(b"abcdef")).read(5).await, Err(BodyError::TooLarge));
    }
}
