//! Turns of connections that send much: a client that reads as fast as the server writes would otherwise keep a thread of the
//! server for megabytes, while the requests of others that wait for this thread are not looked at.

use std::task::{Context, Poll, ready};

/// Bytes that a connection sends in one turn: about 0.2 ms of encryption.
const TURN_BYTES: usize = 256 * 1024;

/// What a connection sent in its turn.
#[derive(Debug, Default)]
pub(crate) struct Turn {
    sent: usize,
}

impl Turn {
    /// Writes, unless the turn is over: then other tasks of this thread come first.
    pub(crate) fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        write: impl FnOnce(&mut Context<'_>) -> Poll<std::io::Result<usize>>,
    ) -> Poll<std::io::Result<usize>> {
        if self.sent >= TURN_BYTES {
            self.sent = 0;
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        // A socket that takes no more ends the turn as well.
        let sent = std::mem::take(&mut self.sent);
        let written = ready!(write(cx))?;
        self.sent = sent + written;
        Poll::Ready(Ok(written))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::task::Waker;

    #[test]
    fn a_turn_ends_after_its_bytes_and_when_the_socket_is_full() {
        let mut cx = Context::from_waker(Waker::noop());
        let mut turn = Turn::default();
        let mut write = |bytes: usize| turn.poll_write(&mut cx, |_| Poll::Ready(Ok(bytes))).map(|written| written.ok());
        for _ in 0..4 {
            assert_eq!(write(TURN_BYTES / 4), Poll::Ready(Some(TURN_BYTES / 4)));
        }
        assert_eq!(write(1), Poll::Pending, "others come first");
        assert_eq!(write(TURN_BYTES - 1), Poll::Ready(Some(TURN_BYTES - 1)));
        assert!(turn.poll_write(&mut cx, |_| Poll::Pending).is_pending());
        for _ in 0..2 {
            let written = turn.poll_write(&mut cx, |_| Poll::Ready(Ok(TURN_BYTES / 2)));
            assert!(written.is_ready(), "a new turn begins when the socket takes more");
        }
    }
}
