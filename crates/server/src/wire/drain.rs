//! Notifies open watches and connections that the server is stopping: a flag, and the tasks to wake when it is set.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Waker};

use parking_lot::Mutex;

/// Begins once, when the server starts to stop.
#[derive(Debug, Default)]
pub struct Drain {
    begun: AtomicBool,
    next_id: AtomicU64,
    /// One entry for each ticket that was polled. Locked when a watch opens, closes or moves to another task, not
    /// when it sends.
    waiting: Mutex<HashMap<u64, Waker>>,
}

impl Drain {
    pub fn begin(&self) {
        self.begun.store(true, Ordering::SeqCst);
        let waiting = std::mem::take(&mut *self.waiting.lock());
        for waker in waiting.into_values() {
            waker.wake();
        }
    }

    #[must_use]
    pub fn has_begun(&self) -> bool {
        self.begun.load(Ordering::SeqCst)
    }

    #[must_use]
    pub fn ticket(self: &Arc<Self>) -> Ticket {
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        Ticket { drain: Arc::clone(self), id, registered: None }
    }
}

/// Wakes one task when draining begins.
#[derive(Debug)]
pub struct Ticket {
    drain: Arc<Drain>,
    id: u64,
    registered: Option<Waker>,
}

impl Ticket {
    /// Returns whether the task is registered to be woken when draining begins; it may have been woken already.
    #[must_use]
    pub fn is_waiting(&self, cx: &Context<'_>) -> bool {
        self.registered.as_ref().is_some_and(|waker| waker.will_wake(cx.waker()))
    }

    /// Returns whether draining has begun; if not, registers the task to be woken when it does.
    pub fn poll_begun(&mut self, cx: &Context<'_>) -> bool {
        if self.drain.has_begun() {
            return true;
        }
        if !self.is_waiting(cx) {
            self.drain.waiting.lock().insert(self.id, cx.waker().clone());
            self.registered = Some(cx.waker().clone());
            // Draining may have begun after the first check and before the registration, without waking this task.
            return self.drain.has_begun();
        }
        false
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if self.registered.is_some() {
            self.drain.waiting.lock().remove(&self.id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::poll_fn;
    use std::task::Poll;

    #[tokio::test]
    async fn a_waiting_ticket_is_woken() {
        let drain = Arc::new(Drain::default());
        let mut ticket = drain.ticket();
        let waiting = tokio::spawn(async move {
            poll_fn(|cx| if ticket.poll_begun(cx) { Poll::Ready(()) } else { Poll::Pending }).await;
        });
        while drain.waiting.lock().is_empty() {
            tokio::task::yield_now().await;
        }
        drain.begin();
        waiting.await.unwrap();
    }

    #[tokio::test]
    async fn a_dropped_ticket_leaves_nothing() {
        let drain = Arc::new(Drain::default());
        let mut ticket = drain.ticket();
        poll_fn(|cx| Poll::Ready(ticket.poll_begun(cx))).await;
        assert_eq!(drain.waiting.lock().len(), 1);
        drop(ticket);
        assert_eq!(drain.waiting.lock().len(), 0);
    }
}
