//! `Reflector`: keeps a target equal to what the server has, by listing once and watching ever after.
//!
//! - `machine`: the states and what moves between them
//! - `staging`: the set that a relist builds before it replaces the old one
//! - `config`: every figure, with its default
//! - `metrics`: what the reflector counts

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
use crate::{Error, Key, Object};
use machine::Machine;

/// Where a reflector puts what it learns.
pub trait Target<K>: Send + Sync + 'static {
    /// Takes one change. May wait (a full queue); dropping the future abandons the change.
    fn apply(&self, delta: Delta<K>) -> BoxFuture<'_, Result<(), TargetError>>;
    /// The object of that key, if the target has it. Lets a relist keep objects that did not change.
    fn known(&self, key: &Key) -> Option<Arc<K>>;
    /// Asked when the resync timer fires.
    fn should_resync(&self) -> bool {
        true
    }
}

/// A target could not take a change.
#[derive(Debug, Clone, Error)]
#[error("{0}")]
pub struct TargetError(pub String);

/// Where in its loop a reflector met an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// A list failed.
    List,
    /// A watch could not be opened.
    Open,
    /// The server ended a running watch with an error, or its bytes could not be read.
    Stream,
}

/// An error of a reflector, for whoever wants to know. The reflector itself goes on.
#[derive(Debug, Clone)]
pub struct Problem {
    /// Where it happened.
    pub phase: Phase,
    /// What happened.
    pub error: Error,
}

/// Told of every problem, in-stream errors included (client-go tells only of failed lists and opens, RF-8).
pub type ProblemHandler = Arc<dyn Fn(&Problem) + Send + Sync>;

/// Changes an object before it is stored; an error drops the object (DQ-4).
pub type Transform<K> = Arc<dyn Fn(K) -> Result<K, String> + Send + Sync>;

/// Keeps a [`Target`] equal to what a [`ListerWatcher`] shows.
pub struct Reflector<K> {
    machine: Machine<K>,
    metrics: Arc<ReflectorMetrics>,
}

impl<K: Object> Reflector<K> {
    /// A reflector that has not started.
    pub fn new(source: Arc<dyn ListerWatcher>, target: Arc<dyn Target<K>>, config: ReflectorConfig) -> Self {
        let metrics = Arc::new(ReflectorMetrics::default());
        Self { machine: Machine::new(source, target, config, metrics.clone()), metrics }
    }

    /// Changes every object before it reaches the target. Each wire object passes exactly once.
    pub fn transform(mut self, transform: Option<Transform<K>>) -> Self {
        self.machine.set_transform(transform);
        self
    }

    /// Replaces the default of logging problems.
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

    /// Runs until `stop`. Stopping interrupts whatever is under way: a request, a pause, a target that makes it wait.
    pub async fn run(mut self, stop: CancellationToken) {
        let _ = stop.run_until_cancelled(self.machine.run()).await;
    }
}

/// The default of [`Reflector::on_problem`] (RF-9).
fn log_problem(problem: &Problem) {
    let error = &problem.error;
    if error.is_expired() || error.is_broken_connection() && problem.phase == Phase::Stream {
        tracing::debug!(phase = ?problem.phase, %error, "list-watch starts over");
    } else {
        tracing::warn!(phase = ?problem.phase, %error, "list-watch failed, will retry");
    }
}
