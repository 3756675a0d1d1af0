//! A body that is sent at a limited speed, for tests of clients that wait.

use std::future::Future as _;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf as _, Bytes};
use tokio::time::{Sleep, sleep};

use crate::wire::chunk::Chunk;

/// Time between two pieces.
const INTERVAL: Duration = Duration::from_millis(50);

/// The rest of a body, and when its next piece is sent.
pub(crate) struct SlowChunk {
    rest: Chunk,
    piece_bytes: usize,
    next: Pin<Box<Sleep>>,
}

impl SlowChunk {
    pub(crate) fn new(rest: Chunk, bytes_per_second: u64) -> Self {
        let pieces_per_second = 1000 / INTERVAL.as_millis() as u64;
        let piece_bytes = (bytes_per_second / pieces_per_second).max(1).try_into().unwrap_or(usize::MAX);
        SlowChunk { rest, piece_bytes, next: Box::pin(sleep(INTERVAL)) }
    }

    pub(crate) fn remaining(&self) -> usize {
        self.rest.remaining()
    }

    pub(crate) fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Chunk>> {
        if !self.rest.has_remaining() {
            return Poll::Ready(None);
        }
        ready!(self.next.as_mut().poll(cx));
        self.next = Box::pin(sleep(INTERVAL));
        let bytes = self.piece_bytes.min(self.rest.remaining());
        let piece: Bytes = self.rest.copy_to_bytes(bytes);
        Poll::Ready(Some(Chunk::from(piece)))
    }
}
