//! The pool for heavy requests: threads for work of more than about five milliseconds, so that it delays no other request.
//!
//! Handlers of small requests run where their connection is polled. A large body, a large object, a long selector or a list
//! that must be rendered anew takes the processor for longer than that; such a request runs on a second runtime, whose
//! threads give way to those that poll connections:
//!
//! ```text
//! body is read ──► waiting (heavy_waiting_max) ──► bytes are free (heavy_bytes_max) ──► runs on a thread of the pool
//! ```
//!
//! What runs at the same time is bounded by the bytes that it works on and not by its number: a request that waits for the
//! disk does not keep others waiting, and memory grows with the bytes. Dropping the caller's future aborts the request at its
//! next await; its bytes stay taken until then.

use std::future::Future;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::{Arc, OnceLock};

use machinery::Status;
use tokio::runtime::Runtime;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinHandle;

use crate::limits::{Limits, Slot};
use crate::metrics::Metrics;
use crate::request::waiting::WritePlaces;
use crate::webhooks::own;

/// Bytes of one permit.
const UNIT: usize = 1024;
/// Users are distinguished by the hash of their name; those with the same hash share a half of the pool.
const USERS: usize = 64;
const THREADS_MIN: usize = 2;
/// How much lower than that of the process the priority of the pool's threads is. At five, the scheduler of Linux gives a thread a
/// third of the time of others that have work, and those take the processor from it as soon as they wake. Where nothing else has
/// work it changes nothing. Far lower ones would let programs on the same machine starve large requests.
#[cfg(target_os = "linux")]
const NICE: i32 = 5;

/// The pool. Its threads start with the first heavy request.
pub(crate) struct HeavyPool {
    runtime: OnceLock<Option<Runtime>>,
    permits: Arc<Semaphore>,
    permits_max: usize,
    /// Permits of each user: half of all.
    users: Vec<Arc<Semaphore>>,
    hasher: RandomState,
    metrics: Arc<Metrics>,
}

impl HeavyPool {
    #[must_use]
    pub(crate) fn new(limits: &Limits, metrics: &Arc<Metrics>) -> Self {
        let permits_max = (limits.heavy_bytes_max / UNIT).clamp(2, Semaphore::MAX_PERMITS);
        HeavyPool {
            runtime: OnceLock::new(),
            permits: Arc::new(Semaphore::new(permits_max)),
            permits_max,
            users: (0..USERS).map(|_| Arc::new(Semaphore::new(permits_max / 2))).collect(),
            hasher: RandomState::new(),
            metrics: Arc::clone(metrics),
        }
    }

    /// Runs a future on the pool. A user of none is exempt from the share of one user.
    ///
    /// Fails with 429 when too many requests wait already.
    pub(crate) async fn run<T, F>(&self, user: Option<&str>, bytes: usize, work: F) -> Result<T, Status>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, Status>> + Send + 'static,
    {
        let permits = self.acquire(user, bytes).await?;
        self.spawn(async move {
            let result = work.await;
            drop(permits);
            result
        })
        .await
    }

    /// As [`HeavyPool::run`], for a write: its bytes are free while it waits for a webhook.
    pub(crate) async fn run_write<T, F>(
        &self,
        user: Option<&str>,
        bytes: usize,
        places: Arc<WritePlaces>,
        work: F,
    ) -> Result<T, Status>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, Status>> + Send + 'static,
    {
        places.hold(self.acquire(user, bytes).await?);
        self.spawn(async move {
            let result = work.await;
            places.release();
            result
        })
        .await
    }

    async fn spawn<T, F>(&self, work: F) -> Result<T, Status>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, Status>> + Send + 'static,
    {
        let Some(runtime) = self.runtime.get_or_init(runtime) else { return work.await };
        Task(runtime.spawn(own::within_same_calls(work))).await
    }

    async fn acquire(&self, user: Option<&str>, bytes: usize) -> Result<Permits, Status> {
        let waiting = &self.metrics.heavy_waiting;
        let slot = match user {
            Some(user) => waiting.take_for(user, 1),
            None => waiting.take(),
        };
        let Some(_waiting) = slot else {
            self.metrics.refused(waiting.name());
            return Err(Status::too_many_requests("too many large requests are waiting, please try again later", 1));
        };
        let permits = bytes.div_ceil(UNIT).clamp(1, self.permits_max);
        let closed = |_| Status::internal("the pool for heavy requests is closed");
        let own = match user {
            None => None,
            Some(user) => {
                let share = &self.users[self.hasher.hash_one(user) as usize % USERS];
                let permits = permits.min(self.permits_max / 2) as u32;
                Some(Arc::clone(share).acquire_many_owned(permits).await.map_err(closed)?)
            }
        };
        let all = Arc::clone(&self.permits).acquire_many_owned(permits as u32).await.map_err(closed)?;
        Ok(Permits { _own: own, _all: all, _counted: self.metrics.heavy_bytes.force(permits * UNIT) })
    }
}

/// The bytes of a heavy request.
#[derive(Debug)]
pub(crate) struct Permits {
    _own: Option<OwnedSemaphorePermit>,
    _all: OwnedSemaphorePermit,
    _counted: Slot,
}

fn runtime() -> Option<Runtime> {
    let threads = std::thread::available_parallelism().map_or(THREADS_MIN, usize::from).max(THREADS_MIN);
    let built = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(threads)
        .thread_name("dogwatch-heavy")
        .on_thread_start(give_way)
        .enable_all()
        .build();
    built.map_err(|error| tracing::error!(%error, "heavy requests have no threads of their own")).ok()
}

/// Lowers the priority of the calling thread. On Linux it belongs to a thread, elsewhere to the whole process.
fn give_way() {
    #[cfg(target_os = "linux")]
    if let Err(error) = rustix::process::getpriority_process(None)
        .and_then(|own| rustix::process::setpriority_process(None, own.saturating_add(NICE)))
    {
        tracing::warn!(%error, "the threads for heavy requests have the priority of all others");
    }
}

impl Drop for HeavyPool {
    fn drop(&mut self) {
        if let Some(Some(runtime)) = self.runtime.take() {
            // Does not wait for the threads: a server may be dropped on a thread that must not block.
            runtime.shutdown_background();
        }
    }
}

/// A task of the pool, aborted when dropped.
struct Task<T>(JoinHandle<Result<T, Status>>);

impl<T> Future for Task<T> {
    type Output = Result<T, Status>;

    fn poll(self: std::pin::Pin<&mut Self>, cx: &mut std::task::Context<'_>) -> std::task::Poll<Self::Output> {
        std::pin::Pin::new(&mut self.get_mut().0).poll(cx).map(|joined| match joined {
            Ok(result) => result,
            // The caller's handler of panics reports it.
            Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
            Err(_) => Err(Status::service_unavailable("the server is stopping")),
        })
    }
}

impl<T> Drop for Task<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::sync::{mpsc, oneshot};

    use super::*;

    const MIB: usize = 1024 * 1024;

    fn pool(limits: &Limits) -> (Arc<HeavyPool>, Arc<Metrics>) {
        let metrics = Arc::new(Metrics::new(limits));
        (Arc::new(HeavyPool::new(limits, &metrics)), metrics)
    }

    #[tokio::test]
    async fn work_that_never_yields_does_not_keep_the_caller_waiting() {
        let (pool, metrics) = pool(&Limits::default());
        let (release, held) = std::sync::mpsc::channel::<()>();
        let (began, mut has_begun) = mpsc::channel(1);
        let busy = {
            let pool = Arc::clone(&pool);
            let work = async move {
                began.send(std::thread::current().name().map(str::to_owned)).await.unwrap();
                // Blocks its thread until the test is done: on the thread of the test, nothing below could run.
                held.recv().unwrap();
                Ok(7)
            };
            tokio::spawn(async move { pool.run(Some("alice"), MIB, work).await })
        };
        assert_eq!(has_begun.recv().await.unwrap().as_deref(), Some("dogwatch-heavy"));
        assert_eq!(metrics.heavy_bytes.taken(), MIB);
        let timed_out = tokio::time::timeout(Duration::ZERO, std::future::pending::<()>()).await;
        assert!(timed_out.is_err(), "time-outs fire");
        assert_eq!(pool.run(Some("bob"), MIB, async { Ok(8) }).await.unwrap(), 8);
        release.send(()).unwrap();
        assert_eq!(busy.await.unwrap().unwrap(), 7);
        assert_eq!(metrics.heavy_bytes.taken(), 0);
    }

    #[cfg(target_os = "linux")]
    #[tokio::test]
    async fn its_threads_give_way_and_the_callers_do_not() {
        let (pool, _) = pool(&Limits::default());
        let priority = || rustix::process::getpriority_process(None).map_err(Status::internal);
        let before = priority().unwrap();
        let within = pool.run(None, 1, async move { priority() }).await.unwrap();
        // The lowest priority is 19.
        assert_eq!(within, (before + NICE).min(19));
        assert_eq!(priority().unwrap(), before);
    }

    #[tokio::test]
    async fn a_dropped_request_is_aborted() {
        let (pool, metrics) = pool(&Limits::default());
        let (held, dropped) = oneshot::channel::<()>();
        let work = async move {
            let _held = held;
            std::future::pending::<Result<(), Status>>().await
        };
        let outcome = tokio::time::timeout(Duration::from_millis(1), pool.run(None, 1, work)).await;
        assert!(outcome.is_err());
        assert!(dropped.await.is_err(), "the work was dropped");
        while metrics.heavy_bytes.taken() > 0 {
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test]
    async fn one_user_has_half_and_the_others_need_not_wait() {
        let limits = Limits { heavy_bytes_max: 8 * MIB, heavy_waiting_max: 8, ..Limits::default() };
        let (pool, metrics) = pool(&limits);
        let mut alice = tokio::task::JoinSet::new();
        for _ in 0..4 {
            let pool = Arc::clone(&pool);
            alice.spawn(async move { pool.run(Some("alice"), 3 * MIB, std::future::pending::<Result<(), _>>()).await });
        }
        while metrics.heavy_bytes.taken() < 3 * MIB || metrics.heavy_waiting.taken() < 3 {
            tokio::task::yield_now().await;
        }
        // One of a few names has another hash than alice.
        let others = ["bob", "carol", "dave", "erin"].map(|user| {
            let pool = Arc::clone(&pool);
            Box::pin(async move { pool.run(Some(user), 4 * MIB, async move { Ok(user) }).await })
        });
        let (first, _, _) = futures::future::select_all(others).await;
        assert!(first.is_ok());
        // The others are aborted, which takes a moment; of alice's one goes on running.
        while metrics.heavy_bytes.taken() > 3 * MIB {
            tokio::task::yield_now().await;
        }
        assert_eq!(metrics.heavy_bytes.taken(), 3 * MIB);
    }

    #[tokio::test]
    async fn too_many_waiting_requests_are_refused_with_429() {
        let (pool, metrics) = pool(&Limits { heavy_waiting_max: 0, ..Limits::default() });
        let refused = pool.run(None, 1, async { Ok(()) }).await.unwrap_err();
        assert_eq!((refused.code, refused.retry_after_seconds()), (429, Some(1)));
        assert_eq!(metrics.heavy_waiting.taken(), 0);
    }

    #[tokio::test]
    async fn a_panic_reaches_the_caller() {
        use futures::FutureExt as _;
        let (pool, _) = pool(&Limits::default());
        let work = async { if true { panic!("of the work") } else { Ok(()) } };
        let panic = std::panic::AssertUnwindSafe(pool.run(None, 1, work)).catch_unwind().await.unwrap_err();
        assert_eq!(panic.downcast_ref::<&str>(), Some(&"of the work"));
    }
}
