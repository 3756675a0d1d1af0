//! Starting a controller on its informers, and what counts as the end of a run.

use std::future::Future;
use std::sync::Arc;

use client::controller::{Action, Controller, ControllerConfig, Run, RunError, Writes};
use client::{Error, Key, ResourceVersion};
use kube::Resource;

use super::owners::uid;
use crate::context::Context;

/// Runs a controller until the context's stop.
pub(crate) async fn run<R, F>(context: Context, controller: Controller, workers: usize, reconcile: R)
where
    R: Fn(Run) -> F + Send + Sync + 'static,
    F: Future<Output = Result<Action, RunError>> + Send + 'static,
{
    let config = ControllerConfig { workers, ..ControllerConfig::default() };
    let warm = match controller.config(config).warm_up() {
        Ok(warm) => warm,
        Err(error) => return tracing::error!(%error, "a controller cannot start"),
    };
    context.informers.start(&context.stop);
    if let Err(error) = warm.run(reconcile, context.stop.clone()).await {
        tracing::error!(%error, "a controller ended");
    }
}

/// Gives a key up after so many failures in a row, until something changes.
pub(crate) fn give_up_after(tries: u32, run: &Run, result: Result<Action, RunError>) -> Result<Action, RunError> {
    match result {
        Err(RunError::Retry(error)) if run.failures >= tries => Err(RunError::Terminal(error)),
        other => other,
    }
}

/// Whether a write was refused because the namespace is going: nothing to do, nothing to tell (PR-8).
pub(crate) fn namespace_is_going(error: &Error) -> bool {
    let causes = error.status().and_then(|status| status.details.as_ref()).map(|details| &details.causes);
    causes.is_some_and(|causes| causes.iter().any(|cause| cause.reason == "NamespaceTerminating"))
}

/// What one run writes for its object, so that the next run begins when the stores have seen it.
#[derive(Clone)]
pub(crate) struct Own {
    writes: Arc<Writes>,
    key: Key,
    uid: String,
}

impl Own {
    /// For the runs of this object.
    pub(crate) fn new<O: Resource>(writes: &Arc<Writes>, object: &O) -> Self {
        Self { writes: writes.clone(), key: Key::of(object), uid: uid(object).to_owned() }
    }

    /// An object was written, and this is what the server made of it.
    pub(crate) fn wrote<K: Resource<DynamicType = ()>>(&self, object: &K) {
        let version = object.meta().resource_version.clone().unwrap_or_default();
        self.writes.record(&self.key, &self.uid, &K::plural(&()), ResourceVersion::from(version));
    }

    /// The key of the object.
    pub(crate) fn key(&self) -> &Key {
        &self.key
    }
}

/// Follows the store of a kind, so that writes to it are waited for.
pub(crate) fn follow<K: client::Object + Resource<DynamicType = ()>>(
    writes: &Writes,
    informer: &client::informer::SharedInformer<K>,
) {
    writes.follow(&K::plural(&()), informer.store());
}
