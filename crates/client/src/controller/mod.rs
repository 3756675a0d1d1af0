//! `Controller`: from events to keys, from keys to reconcile runs.
//!
//! - `source`: which keys an event is about (the object itself, its owners, or what a function says)
//! - `predicate`: which events count
//! - `writes`: not acting on a store that has not seen this controller's own writes
//! - `objects`: owner references, finalizers, create-or-patch
//!
//! A reconcile run gets a name and nothing else. It reads what is from the stores, so it does not matter how many
//! events were folded into one run, or whether the object is gone (CT-9).

mod objects;
mod predicate;
mod source;
#[cfg(test)]
mod tests;
mod writes;

use std::collections::HashSet;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures::FutureExt;
use parking_lot::Mutex;
use thiserror::Error;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

pub use objects::{
    AlreadyOwned, FinalizerStep, add_finalizer, create_or_patch, finalizer_step, merge_patch, remove_finalizer,
    set_controller_reference,
};
pub use predicate::Predicate;
pub use source::OwnerMatch;
pub use writes::Writes;

use crate::informer::{InformerError, SharedInformer};
use crate::metrics::{Counter, Durations};
use crate::workqueue::{Priority, RateLimiter, Work, WorkQueue};
use crate::{Key, Object};
use source::{Keys, Source, StartedSource};

/// How a controller behaves.
#[derive(Debug, Clone, Copy)]
pub struct ControllerConfig {
    /// Runs at the same time; never two of the same key.
    pub workers: usize,
    /// All sources must be ready within this.
    pub sync_timeout: Duration,
    /// A run that takes longer is given up and retried.
    pub run_timeout: Option<Duration>,
    /// How long current runs may take after the stop.
    pub stop_grace: Duration,
}

impl Default for ControllerConfig {
    fn default() -> Self {
        Self {
            workers: 1,
            sync_timeout: Duration::from_secs(120),
            run_timeout: None,
            stop_grace: Duration::from_secs(30),
        }
    }
}

/// One reconcile run.
#[derive(Debug, Clone)]
pub struct Run {
    /// What to look at.
    pub key: Key,
    /// Unique within the controller, also in the log context.
    pub id: u64,
    /// How often this key has failed in a row.
    pub failures: u32,
}

/// How a run ended well.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Action {
    after: Option<Duration>,
    priority: Option<Priority>,
}

impl Action {
    /// Nothing to do until something changes.
    pub fn done() -> Self {
        Self::default()
    }

    /// Again after this time, even if nothing changes.
    pub fn after(delay: Duration) -> Self {
        Self { after: Some(delay), priority: None }
    }

    /// With this priority, instead of the one of this run.
    pub fn with_priority(mut self, priority: Priority) -> Self {
        self.priority = Some(priority);
        self
    }
}

/// How a run failed.
#[derive(Debug, Error)]
pub enum RunError {
    /// Try again, later and later.
    #[error("{0}")]
    Retry(String),
    /// Trying again is of no use until something changes.
    #[error("{0}")]
    Terminal(String),
}

impl RunError {
    /// An error that is worth another try.
    pub fn retry(error: impl std::fmt::Display) -> Self {
        Self::Retry(error.to_string())
    }

    /// An error that is not.
    pub fn terminal(error: impl std::fmt::Display) -> Self {
        Self::Terminal(error.to_string())
    }
}

impl From<crate::Error> for RunError {
    fn from(error: crate::Error) -> Self {
        Self::retry(error)
    }
}

/// What a controller counted.
#[derive(Debug, Default)]
pub struct ControllerMetrics {
    /// Runs that ended well.
    pub succeeded: Counter,
    /// Runs that asked for another after a while.
    pub requeued: Counter,
    /// Runs that failed.
    pub failed: Counter,
    /// Runs that failed for good.
    pub terminal: Counter,
    /// Runs that panicked.
    pub panics: Counter,
    /// Runs that took too long.
    pub timeouts: Counter,
    /// Runs put off because a store had not seen this controller's writes.
    pub stale: Counter,
    /// How long runs took.
    pub durations: Durations,
}

/// A controller could not run.
#[derive(Debug, Error)]
pub enum ControllerError {
    /// A source could not be joined.
    #[error("controller {controller}: {error}")]
    Source {
        /// Which controller.
        controller: String,
        /// Why.
        error: InformerError,
    },
    /// The sources were not ready in time. Were their informers started, and may this user list and watch them?
    #[error(
        "controller {controller}: the caches were not ready within {after:?}; were the informers started, and may this user list and watch?"
    )]
    NotSynced {
        /// Which controller.
        controller: String,
        /// The limit.
        after: Duration,
    },
    /// Runs did not end in time after the stop, and were cut off.
    #[error("controller {controller}: {runs} runs were cut off after the stop")]
    CutOff {
        /// Which controller.
        controller: String,
        /// How many.
        runs: usize,
    },
}

/// A controller that is being put together.
pub struct Controller {
    name: String,
    config: ControllerConfig,
    queue: WorkQueue<Key>,
    sources: Vec<Box<dyn Source>>,
    writes: Option<Arc<Writes>>,
    metrics: Arc<ControllerMetrics>,
}

impl Controller {
    /// A controller without sources.
    pub fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            config: ControllerConfig::default(),
            queue: WorkQueue::new(),
            sources: Vec::new(),
            writes: None,
            metrics: Arc::default(),
        }
    }

    /// How it behaves.
    pub fn config(mut self, config: ControllerConfig) -> Self {
        self.config = config;
        self
    }

    /// How long failing keys wait.
    pub fn limiter(mut self, limiter: impl RateLimiter<Key>) -> Self {
        self.queue = WorkQueue::with_limiter(limiter);
        self
    }

    /// Runs for the objects of this informer.
    pub fn on<K: Object>(self, informer: &SharedInformer<K>, predicate: Predicate<K>) -> Self {
        self.source(informer, predicate, Keys::Own)
    }

    /// Runs for the owners of the objects of this informer.
    pub fn owned<K: Object>(self, informer: &SharedInformer<K>, owner: OwnerMatch, predicate: Predicate<K>) -> Self {
        self.source(informer, predicate, Keys::Owners(owner))
    }

    /// Runs for whatever a function makes of the objects of this informer.
    pub fn mapped<K: Object>(
        self,
        informer: &SharedInformer<K>,
        map: impl Fn(&K) -> Vec<Key> + Send + Sync + 'static,
        predicate: Predicate<K>,
    ) -> Self {
        self.source(informer, predicate, Keys::Mapped(Arc::new(map)))
    }

    fn source<K: Object>(mut self, informer: &SharedInformer<K>, predicate: Predicate<K>, keys: Keys<K>) -> Self {
        self.sources.push(source::of(informer.clone(), predicate, keys));
        self
    }

    /// Puts off a run until the stores have seen what earlier runs wrote.
    pub fn read_your_writes(mut self, writes: Arc<Writes>) -> Self {
        self.writes = Some(writes);
        self
    }

    /// The queue, to add keys from elsewhere.
    pub fn queue(&self) -> WorkQueue<Key> {
        self.queue.clone()
    }

    /// The counters.
    pub fn metrics(&self) -> Arc<ControllerMetrics> {
        self.metrics.clone()
    }

    /// Joins the sources without running anything, so that caches are warm when leadership comes (CT-8).
    pub fn warm_up(self) -> Result<WarmController, ControllerError> {
        let mut started = Vec::with_capacity(self.sources.len());
        for source in self.sources {
            let joined = source.start(self.queue.clone());
            let joined = joined.map_err(|error| ControllerError::Source { controller: self.name.clone(), error })?;
            started.push(joined);
        }
        let core = Core {
            name: self.name,
            config: self.config,
            queue: self.queue,
            writes: self.writes,
            put_off: Mutex::default(),
            metrics: self.metrics,
            next_run: AtomicU64::new(1),
        };
        Ok(WarmController { core: Arc::new(core), sources: started })
    }

    /// Joins the sources, waits for them, and runs `reconcile` for every key until `stop`.
    pub async fn run<R, F>(self, reconcile: R, stop: CancellationToken) -> Result<(), ControllerError>
    where
        R: Fn(Run) -> F + Send + Sync + 'static,
        F: Future<Output = Result<Action, RunError>> + Send + 'static,
    {
        self.warm_up()?.run(reconcile, stop).await
    }
}

/// A controller whose sources fill its queue.
pub struct WarmController {
    core: Arc<Core>,
    sources: Vec<Box<dyn StartedSource>>,
}

struct Core {
    name: String,
    config: ControllerConfig,
    queue: WorkQueue<Key>,
    writes: Option<Arc<Writes>>,
    /// Keys for which somebody waits until the stores have caught up.
    put_off: Mutex<HashSet<Key>>,
    metrics: Arc<ControllerMetrics>,
    next_run: AtomicU64,
}

impl WarmController {
    /// Waits for the sources, then runs `reconcile` for every key until `stop`. After the stop no new run begins;
    /// current ones may end within the grace.
    pub async fn run<R, F>(self, reconcile: R, stop: CancellationToken) -> Result<(), ControllerError>
    where
        R: Fn(Run) -> F + Send + Sync + 'static,
        F: Future<Output = Result<Action, RunError>> + Send + 'static,
    {
        let core = &self.core;
        let all = async {
            for source in &self.sources {
                if !source.synced().await {
                    return false;
                }
            }
            true
        };
        match stop.run_until_cancelled(tokio::time::timeout(core.config.sync_timeout, all)).await {
            None => return Ok(()),
            Some(Ok(true)) => {}
            Some(_) => {
                let (controller, after) = (core.name.clone(), core.config.sync_timeout);
                return Err(ControllerError::NotSynced { controller, after });
            }
        }
        let reconcile = Arc::new(reconcile);
        let mut workers = JoinSet::new();
        for _ in 0..core.config.workers.max(1) {
            workers.spawn(core.clone().work(reconcile.clone(), stop.clone()));
        }
        stop.cancelled().await;
        core.queue.shut_down();
        let ended = async { while workers.join_next().await.is_some() {} };
        if tokio::time::timeout(core.config.stop_grace, ended).await.is_err() {
            let runs = workers.len();
            workers.shutdown().await;
            return Err(ControllerError::CutOff { controller: core.name.clone(), runs });
        }
        Ok(())
    }
}

/// Leaves the sources, however the controller ends.
impl Drop for WarmController {
    fn drop(&mut self) {
        for source in &self.sources {
            source.leave();
        }
    }
}

impl Core {
    async fn work<R, F>(self: Arc<Self>, reconcile: Arc<R>, stop: CancellationToken)
    where
        R: Fn(Run) -> F + Send + Sync + 'static,
        F: Future<Output = Result<Action, RunError>> + Send + 'static,
    {
        let mut waits = JoinSet::new();
        while let Some(Some(work)) = stop.run_until_cancelled(self.queue.get()).await {
            while waits.try_join_next().is_some() {}
            if let Some(wait) = self.put_off(work.item()) {
                waits.spawn(wait);
                continue;
            }
            self.run_one(work, &*reconcile).await;
        }
    }

    /// If the stores are behind this controller's writes: a future that brings the key back when they are not.
    fn put_off(self: &Arc<Self>, key: &Key) -> Option<impl Future<Output = ()> + Send + use<>> {
        let writes = self.writes.as_ref()?;
        let wait = writes.behind(key)?;
        self.metrics.stale.inc();
        let first = self.put_off.lock().insert(key.clone());
        let (core, key) = (self.clone(), key.clone());
        Some(async move {
            if first {
                wait.await;
                core.put_off.lock().remove(&key);
                core.queue.add(key);
            }
        })
    }

    async fn run_one<R, F>(&self, work: Work<Key>, reconcile: &R)
    where
        R: Fn(Run) -> F + Send + Sync + 'static,
        F: Future<Output = Result<Action, RunError>> + Send + 'static,
    {
        let key = work.item().clone();
        let id = self.next_run.fetch_add(1, Ordering::Relaxed);
        let run = Run { key: key.clone(), id, failures: self.queue.retries(&key) };
        let span = tracing::info_span!("reconcile", controller = %self.name, %key, run = id);
        let began = tokio::time::Instant::now();
        let running = AssertUnwindSafe(async { reconcile(run).await }).catch_unwind().instrument(span.clone());
        let outcome = match self.config.run_timeout {
            Some(limit) => tokio::time::timeout(limit, running).await.ok(),
            None => Some(running.await),
        };
        self.metrics.durations.observe(began.elapsed());
        let _in_span = span.enter();
        match outcome {
            Some(Ok(Ok(action))) => self.succeed(work, action),
            Some(Ok(Err(RunError::Terminal(error)))) => {
                self.metrics.terminal.inc();
                tracing::error!(%error, "reconcile failed for good");
                work.succeed();
            }
            Some(Ok(Err(RunError::Retry(error)))) => self.fail(work, &error),
            Some(Err(_)) => {
                self.metrics.panics.inc();
                self.fail(work, "the reconciler panicked");
            }
            None => {
                self.metrics.timeouts.inc();
                self.fail(work, "the run took too long");
            }
        }
    }

    fn succeed(&self, work: Work<Key>, action: Action) {
        self.metrics.succeeded.inc();
        let priority = action.priority.unwrap_or(work.priority());
        let key = work.item().clone();
        self.queue.forget(&key);
        if let Some(after) = action.after {
            self.metrics.requeued.inc();
            self.queue.add_after_with_priority(key, after, priority);
        }
    }

    fn fail(&self, work: Work<Key>, error: &str) {
        self.metrics.failed.inc();
        tracing::warn!(%error, "reconcile failed, will retry");
        work.retry();
    }
}
