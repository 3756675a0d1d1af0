//! Who runs a handler: the informer itself while the handler keeps up, otherwise a task of its own.
//!
//! A task costs a wake-up for each event, and with it a second thread: the connection's task becomes ready in the same
//! moment, so the runtime wakes another worker to share the two. At a few hundred events a second that is most of what an
//! event costs.
//!
//! The handler is one future, and its task's waker is the only one it ever sees. So it does not matter who polls it: what
//! it waits for, whatever that is, wakes its task.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// A handler that took longer than this without waiting is left to its task: others must not wait for it again soon.
const CALL_MAX: Duration = Duration::from_millis(1);
/// So often it is left to its task the first time, and twice as often each time after. Not for ever: on a busy machine a
/// quick handler is sometimes put aside by the system in the middle of a call, and nobody can tell that from blocking.
const LEFT_AT_FIRST: u32 = 1000;

type Handler = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A handler that two may run: its task, and whoever has mail for it.
pub(super) struct Carrier {
    /// Unset once the handler has ended. Only ever tried, never waited for.
    handler: Mutex<Option<Handler>>,
    /// Of the task.
    waker: OnceLock<Waker>,
    /// The task found the handler in use: whoever uses it wakes the task afterwards.
    again: AtomicBool,
    /// So many more calls are the task's.
    left_to_task: AtomicU32,
    /// So many they will be after the next long call.
    left_next: AtomicU32,
}

impl Carrier {
    pub(super) fn new(handler: impl Future<Output = ()> + Send + 'static) -> Self {
        Self {
            handler: Mutex::new(Some(Box::pin(handler))),
            waker: OnceLock::new(),
            again: AtomicBool::new(false),
            left_to_task: AtomicU32::new(0),
            left_next: AtomicU32::new(LEFT_AT_FIRST),
        }
    }

    /// Runs the handler as far as it goes without waiting. False if its task has to.
    pub(super) fn call(&self) -> bool {
        if self.left_to_task.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok() {
            return false;
        }
        let Some(waker) = self.waker.get() else { return false };
        let Some(mut handler) = self.handler.try_lock() else { return false };
        let began = Instant::now();
        let ended = poll(&mut handler, &mut Context::from_waker(waker)).is_ready();
        drop(handler);
        if began.elapsed() > CALL_MAX {
            let left = self.left_next.load(Ordering::Relaxed);
            self.left_next.store(left.saturating_mul(2), Ordering::Relaxed);
            self.left_to_task.store(left, Ordering::Relaxed);
        }
        if self.again.swap(false, Ordering::SeqCst) || ended {
            waker.wake_by_ref();
        }
        true
    }

    /// The task.
    pub(super) async fn run(self: Arc<Self>) {
        poll_fn(|cx| {
            self.waker.get_or_init(|| cx.waker().clone());
            if let Some(mut handler) = self.handler.try_lock() {
                return poll(&mut handler, cx);
            }
            self.again.store(true, Ordering::SeqCst);
            // It may have been let go between the two.
            match self.handler.try_lock() {
                Some(mut handler) => poll(&mut handler, cx),
                None => Poll::Pending,
            }
        })
        .await;
    }
}

/// Polls the handler, and forgets it when it has ended.
fn poll(handler: &mut Option<Handler>, cx: &mut Context<'_>) -> Poll<()> {
    let Some(running) = handler else { return Poll::Ready(()) };
    let polled = running.as_mut().poll(cx);
    if polled.is_ready() {
        *handler = None;
    }
    polled
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Default)]
    struct Mail {
        waits: AtomicBool,
        taken: AtomicU32,
    }

    impl Mail {
        /// Takes mail until there was so much, and for each does `work`.
        async fn take(self: Arc<Self>, most: u32, work: fn()) {
            while self.taken.load(Ordering::SeqCst) < most {
                poll_fn(|_| if self.waits.swap(false, Ordering::SeqCst) { Poll::Ready(()) } else { Poll::Pending })
                    .await;
                work();
                self.taken.fetch_add(1, Ordering::SeqCst);
            }
        }
    }

    async fn carried(most: u32, work: fn()) -> (Arc<Mail>, Arc<Carrier>, tokio::task::JoinHandle<()>) {
        let mail = Arc::<Mail>::default();
        let carrier = Arc::new(Carrier::new(mail.clone().take(most, work)));
        assert!(!carrier.call(), "its task has not begun");
        let task = tokio::spawn(carrier.clone().run());
        tokio::task::yield_now().await;
        (mail, carrier, task)
    }

    #[tokio::test]
    async fn a_handler_that_keeps_up_is_called_where_the_mail_is() {
        let (mail, carrier, task) = carried(1, || ()).await;
        mail.waits.store(true, Ordering::SeqCst);
        assert!(carrier.call());
        assert_eq!(mail.taken.load(Ordering::SeqCst), 1, "without its task, which nobody woke");
        task.await.expect("the task ends with the handler");
    }

    #[tokio::test]
    async fn a_handler_that_took_long_is_left_to_its_task_for_longer_each_time() {
        let (mail, carrier, task) = carried(9, || std::thread::sleep(2 * CALL_MAX)).await;
        mail.waits.store(true, Ordering::SeqCst);
        for (long_calls, left) in [(1, LEFT_AT_FIRST), (2, 2 * LEFT_AT_FIRST)] {
            assert!(carrier.call(), "nobody can know before");
            mail.waits.store(true, Ordering::SeqCst);
            for _ in 0..left {
                assert!(!carrier.call());
            }
            assert_eq!(mail.taken.load(Ordering::SeqCst), long_calls);
        }
        task.abort();
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_task_that_finds_its_handler_in_use_is_woken_afterwards() {
        let entered = Arc::new(tokio::sync::Notify::new());
        let (release, released) = std::sync::mpsc::channel::<()>();
        let turn = Arc::<AtomicU32>::default();
        let (turns, inside) = (turn.clone(), entered.clone());
        // Waits once for its task to begin, once in the hands of the caller, and ends in its task.
        let handler = poll_fn(move |_| match turns.fetch_add(1, Ordering::SeqCst) {
            0 => Poll::Pending,
            1 => {
                inside.notify_one();
                released.recv().expect("the test lets go");
                Poll::Pending
            }
            _ => Poll::Ready(()),
        });
        let carrier = Arc::new(Carrier::new(handler));
        let task = tokio::spawn(carrier.clone().run());
        while turn.load(Ordering::SeqCst) == 0 {
            tokio::task::yield_now().await;
        }
        let called = tokio::task::spawn_blocking({
            let carrier = carrier.clone();
            move || carrier.call()
        });
        entered.notified().await;
        carrier.waker.get().expect("the task has begun").wake_by_ref();
        while !carrier.again.load(Ordering::SeqCst) {
            tokio::task::yield_now().await;
        }
        release.send(()).expect("the handler waits");
        assert!(called.await.expect("it was called"));
        task.await.expect("its task took its turn after all");
    }
}
