//! Which controllers there are, how they are started, and who leads.

use std::sync::Arc;
use std::time::Duration;

use client::informer::{InformerConfig, InformerFactory};
use client::leader::{ApiLease, ElectionConfig, Elector, Outcome};
use client::reflector::ReflectorConfig;
use futures::future::BoxFuture;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::accounts;
use crate::cleanup;
use crate::context::{Clients, Context};
use crate::nodes;
use crate::policies;
use crate::scheduler;
use crate::services;
use crate::settings::Settings;
use crate::workloads;

/// Runs until the context's stop.
type Start = fn(Context) -> BoxFuture<'static, ()>;

/// The controller that gives every namespace a service account.
pub(crate) const SERVICE_ACCOUNTS: &str = "serviceaccount";

/// Every controller by the name it is switched off by.
const CONTROLLERS: &[(&str, Start)] = &[
    ("garbagecollector", |context| Box::pin(cleanup::garbage::run(context))),
    ("namespace", |context| Box::pin(cleanup::namespaces::run(context))),
    (SERVICE_ACCOUNTS, |context| Box::pin(accounts::default_account::run(context))),
    ("serviceaccount-token", |context| Box::pin(accounts::token_secrets::run(context))),
    ("endpoint", |context| Box::pin(services::endpoints::run(context))),
    ("endpointslice", |context| Box::pin(services::slice_controller::run(context))),
    ("root-ca-cert-publisher", |context| Box::pin(accounts::root_certificate::run(context))),
    ("scheduler", scheduler::start),
    ("nodes", nodes::fleet::start),
    ("nodelifecycle", nodes::lifecycle::start),
    ("tainteviction", nodes::evictions::start),
    ("podgc", nodes::pod_gc::start),
    ("persistentvolume-binder", |context| Box::pin(policies::volumes::run(context))),
    ("pvc-protection", |context| Box::pin(policies::protection::claims(context))),
    ("pv-protection", |context| Box::pin(policies::protection::volumes(context))),
    ("disruption", |context| Box::pin(policies::disruption::run(context))),
    ("horizontalpodautoscaling", |context| Box::pin(policies::autoscaling::run(context))),
    ("deployment", workloads::deployment::deployments),
    ("replicaset", workloads::replicas::replica_sets),
    ("replicationcontroller", workloads::replicas::replication_controllers),
    ("statefulset", workloads::stateful_set::stateful_sets),
    ("daemonset", workloads::daemon_set::daemon_sets),
    ("job", workloads::job::jobs),
    ("cronjob", workloads::cron_job::cron_jobs),
    ("ttl-after-finished", workloads::ttl::ttl_after_finished),
];

/// The names of all controllers.
#[must_use]
pub fn names() -> Vec<&'static str> {
    CONTROLLERS.iter().map(|(name, _)| *name).collect()
}

/// Runs the controllers until `stop`. Where others may run on the same data, only while this process holds the lease.
pub async fn run(clients: impl Into<Clients>, settings: Settings, stop: CancellationToken) {
    let (clients, settings) = (clients.into(), Arc::new(settings));
    if !settings.elect {
        return lead(clients, settings, stop).await;
    }
    while !stop.is_cancelled() {
        let lease = ApiLease::new(clients.controllers.clone(), "kube-system", "dogwatch-controllers");
        // A candidate looks every 1.5–1.8 s and waits for 12 s after it saw the last renewal: of a leader that was killed
        // it takes over within 16 s.
        let config = ElectionConfig {
            lease_duration: Duration::from_secs(12),
            renew_deadline: Duration::from_secs(8),
            retry_period: Duration::from_millis(1500),
            ..ElectionConfig::new(&settings.identity)
        };
        let elector = match Elector::new(Arc::new(lease), config) {
            Ok(elector) => elector,
            Err(error) => {
                tracing::error!(%error, "the controllers cannot take part in an election");
                return;
            }
        };
        let (clients, settings) = (clients.clone(), settings.clone());
        let leading = |guard: client::leader::LeaderGuard| lead(clients, settings, guard.token());
        if !matches!(elector.run(leading, stop.clone()).await, Outcome::Lost) {
            return;
        }
    }
}

async fn lead(clients: Clients, settings: Arc<Settings>, stop: CancellationToken) {
    // Managed fields are a third of an object, and no controller reads them.
    let reflector = ReflectorConfig { without_managed_fields: true, ..ReflectorConfig::default() };
    let config = InformerConfig { reflector, ..InformerConfig::default() };
    let informers = Arc::new(InformerFactory::new(clients.controllers.clone()).config(config));
    let context = Context {
        client: clients.controllers.clone(),
        clients,
        informers: informers.clone(),
        settings,
        stop: stop.clone(),
        tasks: TaskTracker::new(),
    };
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
