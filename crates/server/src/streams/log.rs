//! Logs of containers: the options of a request, and the body of its response.

use std::task::{Context, Poll};

use bytes::{Bytes, BytesMut};
use futures::future::BoxFuture;
use jiff::{SignedDuration, Timestamp};
use machinery::Status;
use machinery::query::Query;
use registry::Frames;
use tokio::io::{AsyncRead as _, ReadBuf};

use super::containers::LogOptions;
use super::pipes::PipeReader;
use crate::wire::body::{EventSource, Observer};

/// Bytes of a log that are read at once.
const PIECE_BYTES: usize = 16 * 1024;

/// The options of a query whose values were validated.
pub(super) fn options(query: &Query, now: Timestamp) -> Result<LogOptions, Status> {
    let positive = |name: &str| -> Result<Option<u64>, Status> {
        Ok(query.integer(name)?.and_then(|number| u64::try_from(number).ok()))
    };
    let truth = |name: &str| query.truth(name).unwrap_or_default();
    let seconds = query.integer("sinceSeconds")?;
    let since = match (seconds, query.get("sinceTime").filter(|text| !text.is_empty())) {
        (Some(seconds), _) => now.checked_sub(SignedDuration::from_secs(seconds)).ok(),
        (None, Some(text)) => Some(text.parse::<Timestamp>().map_err(|_| {
            let text = machinery::go_text::quote(text);
            Status::bad_request(format!("parsing time {text} as \"2006-01-02T15:04:05Z07:00\": cannot parse {text}"))
        })?),
        (None, None) => None,
    };
    Ok(LogOptions {
        follow: truth("follow"),
        previous: truth("previous"),
        timestamps: truth("timestamps"),
        since,
        tail_lines: positive("tailLines")?,
        limit_bytes: positive("limitBytes")?,
    })
}

/// The body of a log: runs the future that writes it, and yields what is written.
pub(super) struct LogBody {
    pub(super) writing: Option<BoxFuture<'static, ()>>,
    pub(super) reader: PipeReader,
}

impl EventSource for LogBody {
    fn poll_frames(&mut self, cx: &mut Context<'_>, _: usize) -> Poll<Option<Frames>> {
        if let Some(writing) = &mut self.writing
            && writing.as_mut().poll(cx).is_ready()
        {
            self.writing = None;
        }
        let mut piece = BytesMut::zeroed(PIECE_BYTES);
        let mut buffer = ReadBuf::new(&mut piece);
        match std::pin::Pin::new(&mut self.reader).poll_read(cx, &mut buffer) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(Ok(())) if !buffer.filled().is_empty() => {
                let segment = Bytes::copy_from_slice(buffer.filled());
                let bytes = segment.len();
                Poll::Ready(Some(Frames { segments: vec![segment], ends: vec![1], bytes, ..Frames::default() }))
            }
            Poll::Ready(_) => Poll::Ready(None),
        }
    }
}

/// Keeps a value for as long as the log is sent.
pub(super) struct Kept<T>(pub(super) T);

impl<T: Send + 'static> Observer for Kept<T> {
    fn sent(&mut self, _: &Frames) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sp_10_options_of_logs() {
        let now: Timestamp = "2026-01-02T03:04:05Z".parse().unwrap();
        let read = |query: &str| options(&Query::parse(query), now);
        assert_eq!(read("").unwrap(), LogOptions::default());
        let all = read("follow=true&previous=1&timestamps=true&tailLines=0&limitBytes=9&sinceSeconds=5").unwrap();
        assert!(all.follow && all.previous && all.timestamps);
        assert_eq!((all.tail_lines, all.limit_bytes), (Some(0), Some(9)));
        assert_eq!(all.since, Some("2026-01-02T03:04:00Z".parse().unwrap()));
        assert_eq!(read("sinceTime=2026-01-01T00:00:00Z").unwrap().since, "2026-01-01T00:00:00Z".parse().ok());
        assert_eq!(read("sinceTime=yesterday").unwrap_err().code, 400);
    }
}
