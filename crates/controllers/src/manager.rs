//! The table of controllers, their start, and the election of the process that runs them.

use std::sync::Arc;
use std::time::Duration;

use client::informer::{InformerConfig, InformerFactory};
use client::leader::{ApiLease, ElectionConfig, Elector, Outcome};
use client::reflector::ReflectorConfig;
use futures::FutureExt;
use futures::future::BoxFuture;
use k8s_openapi::api::apps::v1::ReplicaSet;
use k8s_openapi::api::core::v1::ReplicationController;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::accounts;
use crate::autoscaling;
use crate::certificate_requests as certificates;
use crate::cleanup;
use crate::context::Context;
use crate::identities::{Clients, Identity};
use crate::nodes;
use crate::policies;
use crate::scheduler;
use crate::services;
use crate::settings::Settings;
use crate::workloads;

/// A controller: runs until the context's stop.
type Start = fn(Context) -> BoxFuture<'static, ()>;

/// The controller that creates the service account `default` of every namespace.
pub(crate) const SERVICE_ACCOUNTS: &str = "serviceaccount";

/// The controllers that approve certificate requests and sign certificates.
pub(crate) const CERTIFICATE_APPROVING: &str = "csrapproving";
pub(crate) const CERTIFICATE_SIGNING: &str = "csrsigning";
const CERTIFICATES: Identity<'static> = Identity::Account("certificate-controller");

/// Every controller under the name that `--controllers` selects it by, with the user as which it writes.
static CONTROLLERS: [(&str, Identity<'static>, Start); 28] = [
    ("garbagecollector", Identity::Account("generic-garbage-collector"), |context| {
        cleanup::garbage::run(context).boxed()
    }),
    ("namespace", Identity::Account("namespace-controller"), |context| cleanup::namespaces::run(context).boxed()),
    (SERVICE_ACCOUNTS, Identity::Account("service-account-controller"), |context| {
        accounts::default_account::run(context).boxed()
    }),
    ("serviceaccount-token", Identity::Manager, |context| accounts::token_secrets::run(context).boxed()),
    ("endpoint", Identity::Account("endpoint-controller"), |context| services::endpoints::run(context).boxed()),
    ("endpointslice", Identity::Account("endpointslice-controller"), |context| {
        services::slice_controller::run(context).boxed()
    }),
    ("root-ca-cert-publisher", Identity::Account("root-ca-cert-publisher"), |context| {
        accounts::root_certificate::run(context).boxed()
    }),
    ("scheduler", Identity::Scheduler, |context| scheduler::run(context).boxed()),
    ("nodes", Identity::Nodes, |context| nodes::fleet::run(context).boxed()),
    ("nodelifecycle", Identity::Account("node-controller"), |context| nodes::lifecycle::run(context).boxed()),
    ("tainteviction", Identity::Account("node-controller"), |context| nodes::evictions::run(context).boxed()),
    ("podgc", Identity::Account("pod-garbage-collector"), |context| nodes::pod_gc::run(context).boxed()),
    ("persistentvolume-binder", Identity::Account("persistent-volume-binder"), |context| {
        policies::volumes::run(context).boxed()
    }),
    ("pvc-protection", Identity::Account("pvc-protection-controller"), |context| {
        policies::protection::run_claims(context).boxed()
    }),
    ("pv-protection", Identity::Account("pv-protection-controller"), |context| {
        policies::protection::run_volumes(context).boxed()
    }),
    ("disruption", Identity::Account("disruption-controller"), |context| policies::disruption::run(context).boxed()),
    ("horizontalpodautoscaling", Identity::Account("horizontal-pod-autoscaler"), |context| {
        autoscaling::run(context).boxed()
    }),
    ("deployment", Identity::Account("deployment-controller"), |context| workloads::deployment::run(context).boxed()),
    ("replicaset", Identity::Account("replicaset-controller"), |context| {
        workloads::replicas::run::<ReplicaSet>(context).boxed()
    }),
    ("replicationcontroller", Identity::Account("replication-controller"), |context| {
        workloads::replicas::run::<ReplicationController>(context).boxed()
    }),
    ("statefulset", Identity::Account("statefulset-controller"), |context| {
        workloads::stateful_set::run(context).boxed()
    }),
    ("daemonset", Identity::Account("daemon-set-controller"), |context| workloads::daemon_set::run(context).boxed()),
    ("job", Identity::Account("job-controller"), |context| workloads::job::run(context).boxed()),
    ("cronjob", Identity::Account("cronjob-controller"), |context| workloads::cron_job::run(context).boxed()),
    ("ttl-after-finished", Identity::Account("ttl-after-finished-controller"), |context| {
        workloads::ttl::run(context).boxed()
    }),
    (CERTIFICATE_APPROVING, CERTIFICATES, |context| certificates::approving::run(context).boxed()),
    (CERTIFICATE_SIGNING, CERTIFICATES, |context| certificates::signing::run(context).boxed()),
    ("csrcleaner", CERTIFICATES, |context| certificates::cleaning::run(context).boxed()),
];

/// The lease of the process that runs the controllers: the one that the manager's role lets it hold.
const LEASE: &str = "kube-controller-manager";

/// The names of all controllers.
#[must_use]
pub fn names() -> Vec<&'static str> {
    CONTROLLERS.iter().map(|(name, ..)| *name).collect()
}

/// The users as which controllers act, some of them more than once.
pub fn identities() -> impl Iterator<Item = Identity<'static>> {
    CONTROLLERS.iter().map(|(_, identity, _)| *identity).chain([Identity::Manager])
}

/// Runs the controllers until `stop`; where other processes may run them on the same data, only while this process holds the
/// lease.
///
/// Boxed, so that all controllers are compiled in this crate and not where the future is polled.
pub fn run(clients: impl Into<Clients>, settings: Settings, stop: CancellationToken) -> BoxFuture<'static, ()> {
    run_elected(clients.into(), Arc::new(settings), stop)
}

fn run_elected(clients: Clients, settings: Arc<Settings>, stop: CancellationToken) -> BoxFuture<'static, ()> {
    elect_and_lead(clients, settings, stop).boxed()
}

async fn elect_and_lead(clients: Clients, settings: Arc<Settings>, stop: CancellationToken) {
    if !settings.elect {
        return lead(clients, settings, stop).await;
    }
    while !stop.is_cancelled() {
        let lease = ApiLease::new(clients.get(Identity::Manager), "kube-system", LEASE);
        // A candidate polls every 1.5–1.8 s and waits for 12 s after the last renewal it saw: it takes over from a killed
        // leader within 16 s.
        let config = ElectionConfig {
            lease_duration: Duration::from_secs(12),
            renew_deadline: Duration::from_secs(8),
            retry_period: Duration::from_millis(1500),
            ..ElectionConfig::new(&settings.identity)
        };
        let elector = match Elector::new(Arc::new(lease), config) {
            Ok(elector) => elector.with_clock(settings.clock.reading()),
            Err(error) => {
                tracing::error!(%error, "the controllers cannot take part in the election");
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
    let reader = clients.get(Identity::Manager);
    let reflector = ReflectorConfig { without_managed_fields: true, ..ReflectorConfig::default() };
    let config = InformerConfig { reflector, ..InformerConfig::default() };
    let informers = Arc::new(InformerFactory::new(reader.clone()).config(config));
    let context = Context {
        name: "",
        client: reader.clone(),
        reader,
        clients,
        informers: informers.clone(),
        clock: settings.clock.clone(),
        settings,
        stop: stop.clone(),
        tasks: TaskTracker::new(),
    };
    let running = TaskTracker::new();
    for (name, identity, start) in &CONTROLLERS {
        if context.settings.selection.includes(name) {
            let client = context.clients.get(*identity);
            let clock = context.clock.named(name);
            running.spawn(start(Context { name, client, clock, ..context.clone() }));
        }
    }
    running.close();
    running.wait().await;
    stop.cancelled().await;
    context.tasks.close();
    context.tasks.wait().await;
    informers.shutdown().await;
}
