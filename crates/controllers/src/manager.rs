//! Which controllers there are, how they are started, and who leads.

use std::sync::Arc;

use client::informer::InformerFactory;
use client::leader::{ApiLease, ElectionConfig, Elector, Outcome};
use futures::future::BoxFuture;
use kube::Client;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::context::Context;
use crate::settings::Settings;

/// Runs until the context's stop.
type Start = fn(Context) -> BoxFuture<'static, ()>;

/// Every controller by the name it is switched off by.
const CONTROLLERS: &[(&str, Start)] = &[];

/// The names of all controllers.
#[must_use]
pub fn names() -> Vec<&'static str> {
    CONTROLLERS.iter().map(|(name, _)| *name).collect()
}

/// Runs the controllers until `stop`. Where others may run on the same data, only while this process holds the lease.
pub async fn run(client: Client, settings: Settings, stop: CancellationToken) {
    let settings = Arc::new(settings);
    if !settings.elect {
        return lead(client, settings, stop).await;
    }
    while !stop.is_cancelled() {
        let lease = ApiLease::new(client.clone(), "kube-system", "dogwatch-controllers");
        let config = ElectionConfig::new(&settings.identity);
        let elector = match Elector::new(Arc::new(lease), config) {
            Ok(elector) => elector,
            Err(error) => {
                tracing::error!(%error, "the controllers cannot take part in an election");
                return;
            }
        };
        let (client, settings) = (client.clone(), settings.clone());
        let leading = |guard: client::leader::LeaderGuard| lead(client, settings, guard.token());
        if !matches!(elector.run(leading, stop.clone()).await, Outcome::Lost) {
            return;
        }
    }
}

async fn lead(client: Client, settings: Arc<Settings>, stop: CancellationToken) {
    let informers = Arc::new(InformerFactory::new(client.clone()));
    let context =
        Context { client, informers: informers.clone(), settings, stop: stop.clone(), tasks: TaskTracker::new() };
    let running = TaskTracker::new();
    for (name, start) in CONTROLLERS {
        if context.settings.selection.includes(name) {
            running.spawn(start(context.clone()));
        }
    }
    running.close();
    running.wait().await;
    stop.cancelled().await;
    context.tasks.close();
    context.tasks.wait().await;
    informers.shutdown().await;
}
