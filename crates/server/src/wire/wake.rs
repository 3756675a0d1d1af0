//! Wakers that stand between a connection's task and what it polls, so that the task is polled less often.
//!
//! Both keep one rule: no wake is lost. A wake that does not reach the task at once is reported by the next call of its
//! owner, which acts on it before the task sleeps.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::task::{Context, Wake, Waker};

use futures::task::AtomicWaker;

/// Wakes the task, except between [`hold`](Self::hold) and [`release`](Self::release): a wake in that time is only
/// recorded. A task that wakes itself while it runs is polled once more, mostly for nothing.
///
/// ```text
///        hold            wake
///  OPEN ──────► HELD ──────────► HELD_WITH_WAKE
///   ▲ wake:      │ release: false     │ release: true, the owner polls again
///   │ the task   │                    │
///   └────────────┴────────────────────┘
/// ```
///
/// Invariants: `hold` registers the task before the state changes, so every later wake finds a task; the owner holds the
/// gate at least once before it hands out [`context`](Self::context).
pub(crate) struct WakeGate {
    state: Arc<GateState>,
    waker: Waker,
}

#[derive(Default)]
struct GateState {
    state: AtomicU8,
    task: AtomicWaker,
}

const OPEN: u8 = 0;
const HELD: u8 = 1;
const HELD_WITH_WAKE: u8 = 2;

impl Default for WakeGate {
    fn default() -> Self {
        let state = Arc::<GateState>::default();
        WakeGate { waker: Waker::from(Arc::clone(&state)), state }
    }
}

impl WakeGate {
    /// Records wakes from now on, for the task of `cx`.
    pub(crate) fn hold(&self, cx: &Context<'_>) {
        self.state.task.register(cx.waker());
        self.state.state.store(HELD, Ordering::SeqCst);
    }

    /// Lets wakes through again. Returns whether there was one since [`hold`](Self::hold).
    pub(crate) fn release(&self) -> bool {
        self.state.state.swap(OPEN, Ordering::SeqCst) == HELD_WITH_WAKE
    }

    /// The context to poll with: its waker passes the gate.
    pub(crate) fn context(&self) -> Context<'_> {
        Context::from_waker(&self.waker)
    }
}

impl Wake for GateState {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let recorded = self.state.compare_exchange(HELD, HELD_WITH_WAKE, Ordering::SeqCst, Ordering::SeqCst);
        if recorded == Err(OPEN) {
            self.task.wake();
        }
    }
}

/// Whether a socket may have something to read. Most polls of a watch are for events, and reading the socket costs as much
/// as finding the event, so it is read only after its own waker fired.
///
/// Invariant: when [`take_ready`](Self::take_ready) returns true, the caller reads the socket with
/// [`waker`](Self::waker) until it is pending; otherwise nothing would wake the task for the next byte.
#[derive(Default)]
pub(crate) struct ReadReadiness {
    reader: Arc<ReadWaker>,
    /// The task that `reader` wakes.
    task: Option<Waker>,
}

/// The waker that the socket is read with.
#[derive(Default)]
struct ReadWaker {
    /// No wake since the last [`ReadReadiness::take_ready`].
    is_idle: AtomicBool,
    task: AtomicWaker,
}

impl ReadReadiness {
    /// Returns whether the socket must be read: its waker fired since the last call, or this is the first call of a task.
    pub(crate) fn take_ready(&mut self, cx: &Context<'_>) -> bool {
        let has_fired = !self.reader.is_idle.swap(true, Ordering::SeqCst);
        let is_new_task = self.task.as_ref().is_none_or(|task| !task.will_wake(cx.waker()));
        if is_new_task {
            self.task = Some(cx.waker().clone());
        }
        // A wake takes the registered waker with it. One that arrives here, before the next is registered, wakes no task;
        // the caller reads next and finds what it was for.
        if has_fired || is_new_task {
            self.reader.task.register(cx.waker());
        }
        has_fired || is_new_task
    }

    /// The waker to read the socket with.
    pub(crate) fn waker(&self) -> Waker {
        Waker::from(Arc::clone(&self.reader))
    }
}

impl Wake for ReadWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.is_idle.store(false, Ordering::SeqCst);
        self.task.wake();
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::sync::Barrier;
    use std::sync::atomic::AtomicUsize;

    use super::*;

    /// A task that counts how often it is woken.
    #[derive(Default)]
    pub(crate) struct CountingTask(AtomicUsize);

    impl CountingTask {
        pub(crate) fn new() -> (Arc<Self>, Waker) {
            let task = Arc::<CountingTask>::default();
            let waker = Waker::from(Arc::clone(&task));
            (task, waker)
        }

        pub(crate) fn wakes(&self) -> usize {
            self.0.load(Ordering::SeqCst)
        }
    }

    impl Wake for CountingTask {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    #[test]
    fn a_held_wake_is_reported_and_a_later_one_wakes_the_task() {
        let (task, waker) = CountingTask::new();
        let gate = WakeGate::default();
        gate.hold(&Context::from_waker(&waker));
        gate.waker.wake_by_ref();
        gate.waker.wake_by_ref();
        assert_eq!((gate.release(), task.wakes()), (true, 0));
        gate.waker.wake_by_ref();
        assert_eq!(task.wakes(), 1);
        gate.hold(&Context::from_waker(&waker));
        assert!(!gate.release(), "each wake is reported once");
    }

    #[test]
    fn no_wake_from_another_thread_is_lost_at_the_gate() {
        const ROUNDS: usize = 20_000;
        let (task, waker) = CountingTask::new();
        let (gate, barrier) = (WakeGate::default(), Barrier::new(2));
        gate.hold(&Context::from_waker(&waker));
        gate.release();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for _ in 0..ROUNDS {
                    barrier.wait();
                    gate.waker.wake_by_ref();
                    barrier.wait();
                }
            });
            for round in 0..ROUNDS {
                let before = task.wakes();
                barrier.wait();
                gate.hold(&Context::from_waker(&waker));
                let was_reported = gate.release();
                barrier.wait();
                assert!(was_reported || task.wakes() > before, "round {round}");
                // As the task does when it is polled again.
                gate.hold(&Context::from_waker(&waker));
                gate.release();
            }
        });
    }

    #[test]
    fn a_socket_is_read_at_first_and_after_its_waker_fired() {
        let (task, waker) = CountingTask::new();
        let cx = Context::from_waker(&waker);
        let mut readiness = ReadReadiness::default();
        assert!(readiness.take_ready(&cx));
        assert!(!readiness.take_ready(&cx));
        for wakes in 1..=3 {
            readiness.waker().wake();
            assert_eq!(task.wakes(), wakes);
            assert!(readiness.take_ready(&cx));
            assert!(!readiness.take_ready(&cx));
        }
    }

    #[test]
    fn a_socket_that_moves_to_another_task_is_read_there_and_wakes_it() {
        let (old, new) = (CountingTask::new(), CountingTask::new());
        let mut readiness = ReadReadiness::default();
        assert!(readiness.take_ready(&Context::from_waker(&old.1)));
        assert!(readiness.take_ready(&Context::from_waker(&new.1)));
        readiness.waker().wake();
        assert_eq!((old.0.wakes(), new.0.wakes()), (0, 1));
    }
}
