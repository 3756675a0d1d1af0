//! Responses of a server, as the watch connections of `client` read them.

use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};

use client::watch_connection::exchange;
use http_body::Body;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Inputs longer than this may be refused in some pieces and not in others: the limits on heads and lines are checked after
/// each read.
const SAME_RESULT_BYTES_MAX: usize = 16 << 10;

/// A connection that delivers bytes in pieces, and accepts every request.
struct Pieces<'a> {
    rest: &'a [u8],
    /// Decides the sizes: 0 for the whole rest at once.
    random: u64,
    /// Reads that returned nothing because all bytes were delivered.
    reads_at_end: u32,
}

impl<'a> Pieces<'a> {
    fn new(bytes: &'a [u8], seed: u8) -> Self {
        Self { rest: bytes, random: u64::from(seed), reads_at_end: 0 }
    }

    fn next_size(&mut self) -> usize {
        if self.random == 0 {
            return self.rest.len();
        }
        // Marsaglia's xorshift64: never 0 again.
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        // One byte half of the time: the places that matter are between two bytes.
        if self.random & 1 == 0 { 1 } else { (self.random >> 8) as usize % 40 + 1 }
    }
}

impl AsyncRead for Pieces<'_> {
    fn poll_read(mut self: Pin<&mut Self>, _: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<std::io::Result<()>> {
        assert!(buffer.remaining() > 0, "a read into no space would be taken for the end");
        if self.rest.is_empty() {
            self.reads_at_end += 1;
            assert_eq!(self.reads_at_end, 1, "the end of the connection is final");
            return Poll::Ready(Ok(()));
        }
        let size = self.next_size().min(buffer.remaining()).min(self.rest.len());
        let (piece, rest) = self.rest.split_at(size);
        buffer.put_slice(piece);
        self.rest = rest;
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Pieces<'_> {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<std::io::Result<usize>> {
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

/// The outcome of a response: the status, the body, and how both ended.
#[derive(Debug, PartialEq)]
struct Outcome {
    status: Option<u16>,
    body: Vec<u8>,
    error: Option<String>,
}

fn read(bytes: &[u8], seed: u8) -> Outcome {
    let request = http::Request::get("https://h/api/v1/pods?watch=1").body(()).expect("a valid request").into_parts().0;
    let cx = &mut Context::from_waker(Waker::noop());
    let mut outcome = Outcome { status: None, body: Vec::new(), error: None };
    let Poll::Ready(head) = pin!(exchange(Pieces::new(bytes, seed), &request)).poll(cx) else {
        panic!("the connection is always ready");
    };
    let body = match head {
        Ok(response) => {
            outcome.status = Some(response.status().as_u16());
            response.into_body()
        }
        Err(error) => {
            outcome.error = Some(error.to_string());
            return outcome;
        }
    };
    let mut body = pin!(body);
    loop {
        match body.as_mut().poll_frame(cx) {
            Poll::Ready(Some(Ok(frame))) => {
                let data = frame.into_data().expect("trailers are dropped");
                assert!(!data.is_empty(), "an empty part is not progress");
                outcome.body.extend_from_slice(&data);
                assert!(outcome.body.len() <= bytes.len(), "a body is part of its response");
            }
            Poll::Ready(Some(Err(error))) => {
                outcome.error = Some(error.to_string());
                return outcome;
            }
            Poll::Ready(None) => return outcome,
            Poll::Pending => panic!("the connection is always ready"),
        }
    }
}

/// An HTTP/1.1 response to a watch. The first byte decides how the rest is split into pieces.
pub fn watch_response(data: &[u8]) {
    let [seed, bytes @ ..] = data else { return };
    let outcome = read(bytes, *seed);
    if bytes.len() <= SAME_RESULT_BYTES_MAX {
        assert_eq!(outcome, read(bytes, 0), "{:?}", String::from_utf8_lossy(bytes));
    }
}
