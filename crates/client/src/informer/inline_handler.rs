//! `InlineHandler`: a handler that the informer polls itself while it keeps up, and a task of its own otherwise.
//!
//! A task costs a wake-up for each event, and with it a second thread: the connection's task becomes ready in the same
//! moment, so the runtime wakes another worker to share the two. At a few hundred events a second that is most of the cost
//! of an event.
//!
//! The handler is one future that is always polled with the waker of its task. So either side may poll it: whatever the
//! handler waits for wakes its task.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// Longest inline call. A handler that runs longer without waiting delays the others, so the next calls are left to its task.
const CALL_MAX: Duration = Duration::from_millis(1);
/// Calls that are left to the task after the first slow call; doubled with each further one. Not for ever: on a busy machine
/// the system sometimes preempts a quick handler in the middle of a call, which is indistinguishable from blocking.
const FIRST_PENALTY: u32 = 1000;

type Handler = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A handler that is polled by its task, or inline by the source of its events.
pub(super) struct InlineHandler {
    /// `None` once the handler has ended. Taken with `try_lock` only.
    handler: Mutex<Option<Handler>>,
    /// The waker of the task.
    waker: OnceLock<Waker>,
    /// Set by a task that found the handler locked: the inline call wakes it afterwards.
    wake_task: AtomicBool,
    /// Calls still to be left to the task.
    penalty: AtomicU32,
    /// Calls to leave to the task after the next slow call.
    next_penalty: AtomicU32,
}

impl InlineHandler {
    pub(super) fn new(handler: impl Future<Output = ()> + Send + 'static) -> Self {
        Self {
            handler: Mutex::new(Some(Box::pin(handler))),
            waker: OnceLock::new(),
            wake_task: AtomicBool::new(false),
            penalty: AtomicU32::new(0),
            next_penalty: AtomicU32::new(FIRST_PENALTY),
        }
    }

    /// Polls the handler once. False if its task has to instead.
    pub(super) fn call(&self) -> bool {
        if self.penalty.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok() {
            return false;
        }
        let Some(waker) = self.waker.get() else { return false };
        let Some(mut handler) = self.handler.try_lock() else { return false };
        let began = Instant::now();
        let ended = poll(&mut handler, &mut Context::from_waker(waker)).is_ready();
        drop(handler);
        if began.elapsed() > CALL_MAX {
            let penalty = self.next_penalty.load(Ordering::Relaxed);
            self.next_penalty.store(penalty.saturating_mul(2), Ordering::Relaxed);
            self.penalty.store(penalty, Ordering::Relaxed);
        }
        if self.wake_task.swap(false, Ordering::SeqCst) || ended {
            waker.wake_by_ref();
        }
        true
    }

    /// The task of the handler.
    pub(super) async fn run(self: Arc<Self>) {
        poll_fn(|cx| {
            self.waker.get_or_init(|| cx.waker().clone());
            if let Some(mut handler) = self.handler.try_lock() {
                return poll(&mut handler, cx);
            }
            self.wake_task.store(true, Ordering::SeqCst);
            // It may have been unlocked between the two.
            match self.handler.try_lock() {
                Some(mut handler) => poll(&mut handler, cx),
                None => Poll::Pending,
            }
        })
        .await;
    }
}

/// Polls the handler, and drops it when it has ended.
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
    struct Events {
        waits: AtomicBool,
        taken: AtomicU32,
    }

    impl Events {
        /// Takes `most` events, and does `work` for each.
        async fn take(self: Arc<Self>, most: u32, work: fn()) {
            while self.taken.load(Ordering::SeqCst) < most {
                poll_fn(|_| if self.waits.swap(false, Ordering::SeqCst) { Poll::Ready(()) } else { Poll::Pending })
                    .await;
                work();
                self.taken.fetch_add(1, Ordering::SeqCst);
            }
        }
    }

    async fn start(most: u32, work: fn()) -> (Arc<Events>, Arc<InlineHandler>, tokio::task::JoinHandle<()>) {
        let events = Arc::<Events>::default();
        let handler = Arc::new(InlineHandler::new(events.clone().take(most, work)));
        assert!(!handler.call(), "its task has not begun");
        let task = tokio::spawn(handler.clone().run());
        tokio::task::yield_now().await;
        (events, handler, task)
    }

    #[tokio::test]
    async fn a_handler_that_keeps_up_is_called_inline() {
        let (events, handler, task) = start(1, || ()).await;
        events.waits.store(true, Ordering::SeqCst);
        assert!(handler.call());
        assert_eq!(events.taken.load(Ordering::SeqCst), 1, "without a wake-up of its task");
        task.await.expect("the task ends with the handler");
    }

    #[tokio::test]
    async fn a_handler_that_took_long_is_left_to_its_task_for_longer_each_time() {
        let (events, handler, task) = start(9, || std::thread::sleep(2 * CALL_MAX)).await;
        events.waits.store(true, Ordering::SeqCst);
        for (long_calls, left) in [(1, FIRST_PENALTY), (2, 2 * FIRST_PENALTY)] {
            assert!(handler.call(), "a slow call is known only afterwards");
            events.waits.store(true, Ordering::SeqCst);
            for _ in 0..left {
                assert!(!handler.call());
            }
            assert_eq!(events.taken.load(Ordering::SeqCst), long_calls);
        }
        task.abort();
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_task_that_finds_its_handler_in_use_is_woken_afterwards() {
        let entered = Arc::new(tokio::sync::Notify::new());
        let (release, released) = std::sync::mpsc::channel::<()>();
        let turn = Arc::<AtomicU32>::default();
        let (turns, inside) = (turn.clone(), entered.clone());
        // Pending once in its task, once in the inline call, and ready in its task.
        let handler = poll_fn(move |_| match turns.fetch_add(1, Ordering::SeqCst) {
            0 => Poll::Pending,
            1 => {
                inside.notify_one();
                released.recv().expect("the test releases it");
                Poll::Pending
            }
            _ => Poll::Ready(()),
        });
        let handler = Arc::new(InlineHandler::new(handler));
        let task = tokio::spawn(handler.clone().run());
        while turn.load(Ordering::SeqCst) == 0 {
            tokio::task::yield_now().await;
        }
        let called = tokio::task::spawn_blocking({
            let handler = handler.clone();
            move || handler.call()
        });
        entered.notified().await;
        handler.waker.get().expect("the task has begun").wake_by_ref();
        while !handler.wake_task.load(Ordering::SeqCst) {
            tokio::task::yield_now().await;
        }
        release.send(()).expect("the handler waits");
        assert!(called.await.expect("it was called"));
        task.await.expect("the task polled it again");
    }
}
