//! Kinds whose small writes took long: those that follow run on the pool for heavy requests.
//!
//! The cost of most writes follows from their size, which is known before they begin. That of rules does not: expressions of a
//! definition or of a policy may take half a second for a small object, within their limits, and so may the alternatives of a
//! schema. The first such write shows it, so each small one is measured while it runs where its connection is polled:
//!
//! ```text
//! small write ──► is its kind known as costly? ── no ──► runs here, measured ──► longer than COSTLY_MIN: known for COSTLY_HOLD
//!                                              └─ yes ─► runs on the pool, measured in the same way
//! ```
//!
//! At most one such write on each thread is in the way of others, once.

use std::collections::HashMap;
use std::future::Future;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// Time of the processor without an await from which on a write is in the way of others.
const COSTLY_MIN: Duration = Duration::from_millis(5);
/// How long the writes of a kind run on the pool after the last costly one.
const COSTLY_HOLD: Duration = Duration::from_secs(60);

/// The kinds with costly writes, by the name of their collection. There are at most as many as kinds.
#[derive(Default)]
pub(crate) struct CostlyKinds {
    /// Whether there are any: every small write asks.
    any: AtomicBool,
    until: Mutex<HashMap<String, Instant>>,
}

impl CostlyKinds {
    /// Whether a recent write of this collection was costly.
    pub(crate) fn contains(&self, collection: &str) -> bool {
        if !self.any.load(Ordering::Acquire) {
            return false;
        }
        let mut until = self.until.lock();
        let now = Instant::now();
        until.retain(|_, until| *until > now);
        self.any.store(!until.is_empty(), Ordering::Release);
        until.contains_key(collection)
    }

    /// Runs a write of a collection, and notes it if it is costly.
    pub(crate) async fn measure<F: Future>(&self, collection: &str, write: F) -> F::Output {
        let mut write = pin!(write);
        let mut is_costly = false;
        let output = std::future::poll_fn(|cx| {
            let (began, used) = (std::time::Instant::now(), processor_time());
            let polled = write.as_mut().poll(cx);
            // On a busy machine time passes without work, so that the processor's is what counts; it is not read twice for
            // the many writes that need neither.
            is_costly |= began.elapsed() >= COSTLY_MIN && processor_time().saturating_sub(used) >= COSTLY_MIN;
            polled
        });
        let output = output.await;
        if is_costly {
            self.until.lock().insert(collection.to_owned(), Instant::now() + COSTLY_HOLD);
            self.any.store(true, Ordering::Release);
        }
        output
    }
}

/// The time that the processor has spent on the calling thread.
fn processor_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.try_into().unwrap_or(0), time.tv_nsec.try_into().unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Uses the processor for longer than a small write may.
    fn work() {
        let began = processor_time();
        while processor_time() - began < COSTLY_MIN * 2 {
            std::hint::spin_loop();
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_kind_is_costly_for_a_while_after_a_write_that_was() {
        let kinds = CostlyKinds::default();
        assert!(!kinds.contains("a"));
        assert_eq!(kinds.measure("a", async { 7 }).await, 7);
        // Time that passes while a write waits for the disk or a webhook does not count.
        kinds.measure("a", tokio::time::sleep(COSTLY_MIN * 10)).await;
        assert!(!kinds.contains("a"));
        kinds.measure("a", async { work() }).await;
        assert!(kinds.contains("a") && !kinds.contains("b"));
        tokio::time::advance(COSTLY_HOLD / 2).await;
        kinds.measure("b", async { work() }).await;
        tokio::time::advance(COSTLY_HOLD / 2).await;
        assert!(!kinds.contains("a") && kinds.contains("b"));
        tokio::time::advance(COSTLY_HOLD).await;
        assert!(!kinds.contains("b") && kinds.until.lock().is_empty());
    }

    #[tokio::test]
    async fn a_thread_that_sleeps_does_not_use_the_processor() {
        let kinds = CostlyKinds::default();
        kinds.measure("a", async { std::thread::sleep(COSTLY_MIN * 2) }).await;
        assert!(!kinds.contains("a"));
    }
}
