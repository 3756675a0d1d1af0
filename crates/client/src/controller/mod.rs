//! `Controller`: from events to keys, from keys to reconcile runs.
//!
//! - `source`: the keys that an event leads to (of the object itself, of its owners, or of a function)
//! - `predicate`: conditions on events
//! - `writes`: defers a run until the stores have this controller's own writes
//! - `objects`: owner references, finalizers, create-or-patch
//!
//! A reconcile run gets a name and nothing else. It reads the current state from the stores, so it does not matter how many
//! events were merged into one run, or whether the object still exists (CT-9).

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

use clock::WorldClock;
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
use crate::workqueue::{RateLimiter, Work, WorkQueue, default_limiter};
use crate::{Key, Object};
use source::{Keys, Source, StartedSource};

/// The configuration of a controller.
#[derive(Debug, Clone, Copy)]
pub struct ControllerConfig {
    /// Number of concurrent runs; never two of the same key.
    pub workers: usize,
    /// All sources must be ready within this.
    pub sync_timeout: Duration,
    /// A run that takes longer is aborted and retried.
    pub run_timeout: Option<Duration>,
    /// Time that current runs may take after the stop.
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
    /// The key to reconcile.
    pub key: Key,
    /// Number of the run within the controller, also in the log context.
    pub id: u64,
    /// Number of consecutive failures of this key.
    pub failures: u32,
}

/// The result of a successful run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Action {
    after: Option<Duration>,
}

impl Action {
    /// Nothing to do until something changes.
    pub fn done() -> Self {
        Self::default()
    }

    /// Again after this time, even if nothing changes.
    pub fn after(delay: Duration) -> Self {
        Self { after: Some(delay) }
    }
}

/// The failure of a run.
#[derive(Debug, Error)]
pub enum RunError {
    /// Retry with increasing delays.
    #[error("{0}")]
    Retry(String),
    /// Do not retry until something changes.
    #[error("{0}")]
    Terminal(String),
}

impl RunError {
    /// An error to retry.
    pub fn retry(error: impl std::fmt::Display) -> Self {
        Self::Retry(error.to_string())
    }

    /// An error not to retry.
    pub fn terminal(error: impl std::fmt::Display) -> Self {
        Self::Terminal(error.to_string())
    }
}

impl From<crate::Error> for RunError {
    fn from(error: crate::Error) -> Self {
        Self::retry(error)
    }
}

/// The counters of a controller.
#[derive(Debug, Default)]
pub struct ControllerMetrics {
    /// Number of successful runs.
    pub succeeded: Counter,
    /// Number of runs that requested another after a delay.
    pub requeued: Counter,
    /// Number of failed runs.
    pub failed: Counter,
    /// Number of runs that failed with a terminal error.
    pub terminal: Counter,
    /// Number of runs that panicked.
    pub panics: Counter,
    /// Number of runs that took too long.
    pub timeouts: Counter,
    /// Number of runs deferred because a store had not reached this controller's writes.
    pub stale: Counter,
    /// Duration of runs.
    pub durations: Durations,
}

/// A controller could not run.
#[derive(Debug, Error)]
pub enum ControllerError {
    /// A source could not be joined.
    #[error("controller {controller}: {error}")]
    Source {
        /// The name of the controller.
        controller: String,
        /// The cause.
        error: InformerError,
    },
    /// The sources were not ready in time. Were their informers started, and may this user list and watch them?
    #[error(
        "controller {controller}: the caches were not ready within {after:?}; were the informers started, and may this user list and watch?"
    )]
    NotSynced {
        /// The name of the controller.
        controller: String,
        /// The limit.
        after: Duration,
    },
    /// Runs did not end in time after the stop, and were aborted.
    #[error("controller {controller}: {runs} runs were cut off after the stop")]
    CutOff {
        /// The name of the controller.
        controller: String,
        /// Number of runs.
        runs: usize,
    },
}

/// A controller before its start.
///
/// ```no_run
/// use client::controller::{Action, Controller, OwnerMatch, Predicate, Run, RunError};
/// use client::informer::InformerFactory;
/// use k8s_openapi::api::apps::v1::ReplicaSet;
/// use k8s_openapi::api::core::v1::Pod;
/// use tokio_util::sync::CancellationToken;
///
/// # async fn run(client: kube::Client) -> Result<(), client::controller::ControllerError> {
/// let factory = InformerFactory::new(client);
/// let (sets, pods) = (factory.informer::<ReplicaSet>(), factory.informer::<Pod>());
/// let stop = CancellationToken::new();
/// factory.start(&stop);
/// let store = sets.store();
/// Controller::new("replica sets")
///     .on(&sets, Predicate::generation_changed())
///     .owned(&pods, OwnerMatch::of::<ReplicaSet>(&()).controller_only(), Predicate::any())
///     .run(
///         move |run: Run| {
///             let set = store.get(&run.key);
///             async move {
///                 // … compare the set with its pods, and create or delete pods …
///                 println!("{}: {}", run.key, if set.is_some() { "exists" } else { "is deleted" });
///                 Ok::<_, RunError>(Action::done())
///             }
///         },
///         stop,
///     )
///     .await
/// # }
/// ```
pub struct Controller {
    name: String,
    config: ControllerConfig,
    clock: WorldClock,
    queue: WorkQueue<Key>,
    sources: Vec<Box<dyn Source>>,
    writes: Option<Arc<Writes>>,
    metrics: Arc<ControllerMetrics>,
}

impl Controller {
    /// Creates a controller without sources.
    pub fn new(name: &str) -> Self {
        Self::on_clock(name, WorldClock::system())
    }

    /// Creates one whose delays follow a clock that may be stopped or moved.
    pub fn on_clock(name: &str, clock: WorldClock) -> Self {
        Self {
            name: name.to_owned(),
            config: ControllerConfig::default(),
            queue: WorkQueue::with_limiter_and_clock(default_limiter(), clock.clone()),
            clock,
            sources: Vec::new(),
            writes: None,
            metrics: Arc::default(),
        }
    }

    /// Sets the configuration.
    pub fn config(mut self, config: ControllerConfig) -> Self {
        self.config = config;
        self
    }

    /// Sets the limiter that delays failing keys.
    pub fn limiter(mut self, limiter: impl RateLimiter<Key>) -> Self {
        self.queue = WorkQueue::with_limiter_and_clock(limiter, self.clock.clone());
        self
    }

    /// Adds the objects of an informer as a source.
    pub fn on<K: Object>(self, informer: &SharedInformer<K>, predicate: Predicate<K>) -> Self {
        self.source(informer, predicate, Keys::Own)
    }

    /// Adds the owners of an informer's objects as a source.
    pub fn owned<K: Object>(self, informer: &SharedInformer<K>, owner: OwnerMatch, predicate: Predicate<K>) -> Self {
        self.source(informer, predicate, Keys::Owners(owner))
    }

    /// Adds the keys that `map` returns for an informer's objects as a source.
    pub fn mapped<K: Object>(
        self,
        informer: &SharedInformer<K>,
        map: impl Fn(&K) -> Vec<Key> + Send + Sync + 'static,
        predicate: Predicate<K>,
    ) -> Self {
        self.source(informer, predicate, Keys::Mapped(Arc::new(map)))
    }

    fn source<K: Object>(mut self, informer: &SharedInformer<K>, predicate: Predicate<K>, keys: Keys<K>) -> Self {
        self.sources.push(source::new(informer.clone(), predicate, keys));
        self
    }

    /// Defers a run until the stores have reached the writes of earlier runs.
    pub fn read_your_writes(mut self, writes: Arc<Writes>) -> Self {
        self.writes = Some(writes);
        self
    }

    /// The queue, for keys from other sources.
    pub fn queue(&self) -> WorkQueue<Key> {
        self.queue.clone()
    }

    /// The counters.
    pub fn metrics(&self) -> Arc<ControllerMetrics> {
        self.metrics.clone()
    }

    /// Joins the sources without starting a run, so that caches are warm before leadership (CT-8).
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
            deferred: Mutex::default(),
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
    /// Keys that are deferred until the stores have caught up.
    deferred: Mutex<HashSet<Key>>,
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
            if let Some(wait) = self.defer(work.item()) {
                waits.spawn(wait);
                continue;
            }
            self.run_one(work, &*reconcile).await;
        }
    }

    /// If the stores are behind this controller's writes: a future that adds the key again when they are not.
    fn defer(self: &Arc<Self>, key: &Key) -> Option<impl Future<Output = ()> + Send + use<>> {
        let writes = self.writes.as_ref()?;
        let wait = writes.behind(key)?;
        self.metrics.stale.inc();
        let first = self.deferred.lock().insert(key.clone());
        let (core, key) = (self.clone(), key.clone());
        Some(async move {
            if first {
                wait.await;
                core.deferred.lock().remove(&key);
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
        let priority = work.priority();
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
