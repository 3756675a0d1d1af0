//! `Reflector`: keeps a target equal to the server's state, by one list and then a watch.
//!
//! - `machine`: the states and their transitions
//! - `staging`: the set that a relist builds before it replaces the old one
//! - `config`: the parameters and their defaults
//! - `metrics`: the counters

mod config;
mod machine;
mod metrics;
mod staging;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use futures::future::BoxFuture;
use thiserror::Error;
use tokio_util::sync::CancellationToken;

pub use config::ReflectorConfig;
pub use metrics::{Counter, ReflectorMetrics};

use crate::list_watch::ListerWatcher;
use crate::queue::Delta;
use crate::{Error, Key, Object, RawObject, Stored, TransportKind};
use machine::Machine;

/// The receiver of a reflector's changes.
pub trait Target<K: ?Sized>: Send + Sync + 'static {
    /// Applies one change. May wait (a full queue); dropping the future abandons the change.
    fn apply(&self, delta: Delta<K>) -> BoxFuture<'_, Result<(), TargetError>>;
    /// The object of that key, if the target has it. A relist keeps objects that did not change.
    fn known(&self, key: &Key) -> Option<Arc<K>>;
    /// Called when the resync timer fires; false skips this resync.
    fn should_resync(&self) -> bool {
        true
    }
}

/// A target could not apply a change.
#[derive(Debug, Clone, Error)]
#[error("{0}")]
pub struct TargetError(pub String);

/// The phase of a reflector in which an error occurred.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// A list failed.
    List,
    /// A watch could not be opened.
    Open,
    /// The server ended a running watch with an error, or its bytes could not be read.
    Stream,
}

/// An error of a reflector, passed to its [`ProblemHandler`]. The reflector itself continues.
#[derive(Debug, Clone)]
pub struct Problem {
    /// The phase.
    pub phase: Phase,
    /// The error.
    pub error: Error,
}

/// Called for every problem, in-stream errors included (client-go reports only failed lists and opens, RF-8).
pub type ProblemHandler = Arc<dyn Fn(&Problem) + Send + Sync>;

/// Changes an object before it is stored; an error drops the object (DQ-4).
pub type Transform<K> = Arc<dyn Fn(K) -> Result<K, String> + Send + Sync>;

/// Makes the stored form of a wire object; `None` if the transform dropped it.
pub(crate) type Decode<K> = Arc<dyn Fn(&RawObject) -> Result<Option<Arc<K>>, serde_json::Error> + Send + Sync>;

fn decode<K: Object>(transform: Option<Transform<K>>) -> Decode<K> {
    Arc::new(move |raw| Ok(decode_one(raw, transform.as_ref())?.map(Arc::new)))
}

/// The same for a target that does not know the type.
pub(crate) fn decode_erased<K: Object>(transform: Option<Transform<K>>) -> Decode<dyn Stored> {
    Arc::new(move |raw| Ok(decode_one(raw, transform.as_ref())?.map(|object| Arc::new(object) as Arc<dyn Stored>)))
}

fn decode_one<K: Object>(raw: &RawObject, transform: Option<&Transform<K>>) -> Result<Option<K>, serde_json::Error> {
    let object = K::from_raw(raw)?;
    let Some(transform) = transform else { return Ok(Some(object)) };
    match transform(object) {
        Ok(object) => Ok(Some(object)),
        Err(error) => {
            tracing::warn!(key = %raw.key, %error, "the transform dropped an object");
            Ok(None)
        }
    }
}

/// Keeps a [`Target`] equal to the objects of a [`ListerWatcher`].
///
/// Most programs use a [`SharedInformer`](crate::informer::SharedInformer), which runs one of these. A reflector alone can
/// fill a store that has no handlers:
///
/// ```no_run
/// use std::sync::Arc;
///
/// use client::list_watch::ApiListWatch;
/// use client::reflector::{Reflector, ReflectorConfig};
/// use client::store::Store;
/// use k8s_openapi::api::core::v1::Node;
/// use tokio_util::sync::CancellationToken;
///
/// # async fn run(client: kube::Client) {
/// let (nodes, writer) = Store::<Node>::new();
/// let source = Arc::new(ApiListWatch::all::<Node>(client));
/// let reflector = Reflector::new(source, Arc::new(writer), ReflectorConfig::default());
/// tokio::spawn(reflector.run(CancellationToken::new()));
/// println!("{} nodes at version {}", nodes.len(), nodes.version());
/// # }
/// ```
pub struct Reflector<K: ?Sized> {
    machine: Machine<K>,
    metrics: Arc<ReflectorMetrics>,
}

impl<K: Object> Reflector<K> {
    /// Creates a reflector that has not started.
    pub fn new(source: Arc<dyn ListerWatcher>, target: Arc<dyn Target<K>>, config: ReflectorConfig) -> Self {
        Self::with_decode(source, target, config, decode(None))
    }

    /// Sets a function that changes every object before it reaches the target. Each wire object passes exactly once.
    pub fn transform(mut self, transform: Option<Transform<K>>) -> Self {
        self.machine.set_decode(decode(transform));
        self
    }
}

impl<K: Stored + ?Sized> Reflector<K> {
    pub(crate) fn with_decode(
        source: Arc<dyn ListerWatcher>,
        target: Arc<dyn Target<K>>,
        config: ReflectorConfig,
        decode: Decode<K>,
    ) -> Self {
        let metrics = Arc::new(ReflectorMetrics::default());
        Self { machine: Machine::new(source, target, config, metrics.clone(), decode), metrics }
    }

    /// Replaces the default handler, which logs problems.
    pub fn on_problem(mut self, handler: Option<ProblemHandler>) -> Self {
        if let Some(handler) = handler {
            self.machine.on_problem = handler;
        }
        self
    }

    /// The counters of this reflector.
    pub fn metrics(&self) -> Arc<ReflectorMetrics> {
        self.metrics.clone()
    }

    /// Runs until `stop`, which interrupts a request, a pause and a wait for the target.
    pub async fn run(mut self, stop: CancellationToken) {
        let _ = stop.run_until_cancelled(self.machine.run()).await;
    }
}

/// The default of [`Reflector::on_problem`] (RF-9): an expired version and a connection that the server ended are part of a
/// normal day and logged at debug level, everything else is an error. The clean end of a watch is not a problem at all.
pub fn log_problem(problem: &Problem) {
    let Problem { phase, error } = problem;
    if error.is_expired() || matches!(error, Error::Transport { kind: TransportKind::Eof, .. }) {
        tracing::debug!(?phase, %error, "list-watch starts over");
    } else {
        tracing::error!(?phase, %error, "list-watch failed, will retry");
    }
}
