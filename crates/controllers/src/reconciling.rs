//! Running a controller on its informers, and the outcomes of a run.

use std::future::Future;
use std::sync::Arc;

use client::Error;
use client::controller::{Action, Controller, ControllerConfig, Run, RunError};
use futures::FutureExt;
use futures::future::BoxFuture;

use crate::context::Context;

type Reconcile = Arc<dyn Fn(Run) -> BoxFuture<'static, Result<Action, RunError>> + Send + Sync>;

/// Runs a controller until the context's stop.
pub(crate) fn run<R, F>(
    context: Context,
    controller: Controller,
    workers: usize,
    reconcile: R,
) -> BoxFuture<'static, ()>
where
    R: Fn(Run) -> F + Send + Sync + 'static,
    F: Future<Output = Result<Action, RunError>> + Send + 'static,
{
    // Boxed, so that queue, workers and retries are compiled once and not for each controller.
    run_boxed(context, controller, workers, Arc::new(move |run| reconcile(run).boxed()))
}

fn run_boxed(context: Context, controller: Controller, workers: usize, reconcile: Reconcile) -> BoxFuture<'static, ()> {
    let run = async move {
        context.settings.queues.add(context.name, &controller.queue());
        let config = ControllerConfig { workers, ..ControllerConfig::default() };
        let warm = match controller.config(config).warm_up() {
            Ok(warm) => warm,
            // Its informers have stopped because everything stops.
            Err(_) if context.stop.is_cancelled() => return,
            Err(error) => return tracing::error!(%error, "a controller cannot start"),
        };
        context.informers.start(&context.stop);
        // A controller that is stopped before its stores are filled has not failed.
        if let Err(error) = warm.run(move |run| reconcile(run), context.stop.clone()).await
            && !context.stop.is_cancelled()
        {
            tracing::error!(%error, "a controller ended");
        }
    };
    run.boxed()
}

/// Stops retrying a key after this number of failures in a row, until something changes.
pub(crate) fn give_up_after(tries: u32, run: &Run, result: Result<Action, RunError>) -> Result<Action, RunError> {
    match result {
        Err(RunError::Retry(error)) if run.failures >= tries => Err(RunError::Terminal(error)),
        other => other,
    }
}

/// True if a write was refused because its namespace is being deleted: nothing to do and nothing to report (PR-8).
pub(crate) fn is_namespace_terminating(error: &Error) -> bool {
    let causes = error.status().and_then(|status| status.details.as_ref()).map(|details| &details.causes);
    causes.is_some_and(|causes| causes.iter().any(|cause| cause.reason == "NamespaceTerminating"))
}

/// The message of the server's `Status`, without our advice: the text that events and conditions quote.
pub(crate) fn server_message(error: &Error) -> String {
    error.status().map_or_else(|| error.to_string(), |status| status.message.clone())
}
