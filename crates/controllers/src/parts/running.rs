//! Starting a controller on its informers, and what counts as the end of a run.

use std::future::Future;

use client::Error;
use client::controller::{Action, Controller, ControllerConfig, Run, RunError};

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
        // Its informers have stopped because everything stops.
        Err(_) if context.stop.is_cancelled() => return,
        Err(error) => return tracing::error!(%error, "a controller cannot start"),
    };
    context.informers.start(&context.stop);
    // One that is stopped before its caches are full has not failed.
    if let Err(error) = warm.run(reconcile, context.stop.clone()).await
        && !context.stop.is_cancelled()
    {
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

/// What the server said, without our advice: the text that events and conditions quote.
pub(crate) fn message_of(error: &Error) -> String {
    error.status().map_or_else(|| error.to_string(), |status| status.message.clone())
}
