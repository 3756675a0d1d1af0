//! Running a function over a subscription.

use std::future::Future;
use std::marker::PhantomData;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use tokio::sync::watch;

use super::hub::Hub;
use super::mailbox::{Mailbox, Synced, decided};
use super::shared::{Notice, Subscriber};
use crate::reflector::Counter;

/// Pause after a panic of a handler, before its next event.
const PANIC_PAUSE: Duration = Duration::from_secs(1);

/// Counters of a handler.
#[derive(Debug, Default)]
pub struct HandlerStats {
    /// Number of events handled.
    pub handled: Counter,
    /// Number of events on which the handler panicked.
    pub panics: Counter,
}

/// A registered handler. Dropping this does not remove the handler.
pub struct HandlerHandle<K> {
    pub(super) id: u64,
    pub(super) hub: Arc<Hub>,
    pub(super) mailbox: Arc<Mailbox>,
    pub(super) synced: watch::Receiver<Synced>,
    pub(super) stats: Arc<HandlerStats>,
    pub(super) stored: PhantomData<fn() -> K>,
}

impl<K> HandlerHandle<K> {
    /// True once the handler has returned from the last initial object (SI-10).
    pub fn has_synced(&self) -> bool {
        *self.synced.borrow() == Synced::Yes
    }

    /// Waits until the handler has synced; false if it is removed or the informer stops first.
    pub async fn wait_synced(&self) -> bool {
        decided(self.synced.clone()).await
    }

    /// Number of events that wait for the handler.
    pub fn backlog(&self) -> usize {
        self.mailbox.len()
    }

    /// The counters of the handler.
    pub fn stats(&self) -> &HandlerStats {
        &self.stats
    }

    /// Removes the handler: it finishes its current event and receives no other. May be called any number of times.
    pub fn remove(&self) {
        self.hub.leave(self.id);
    }
}

/// Calls `handle` for one event at a time until the subscription ends. After a panic the event is skipped and the handler
/// pauses (SI-14).
pub(super) async fn run<H, F>(mut subscriber: Subscriber, mut handle: H, stats: Arc<HandlerStats>)
where
    H: FnMut(Notice) -> F + Send + 'static,
    F: Future<Output = ()> + Send,
{
    while let Some(notice) = subscriber.next().await {
        // Two references. Formatting would cost more, for a text that only a panic needs.
        let copy = notice.clone();
        // The closure itself may panic before it returns a future.
        let outcome = AssertUnwindSafe(async { handle(notice).await }).catch_unwind().await;
        stats.handled.inc();
        if outcome.is_err() {
            stats.panics.inc();
            tracing::error!(event = ?copy, "a handler panicked; the event is skipped");
            tokio::select! {
                () = tokio::time::sleep(PANIC_PAUSE) => {}
                () = subscriber.closed() => {}
            }
        }
    }
}
