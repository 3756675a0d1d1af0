//! The settings of the controllers, and their intervals.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use client::workqueue::Queues;
use clock::WorldClock;

use crate::accounts::token_secrets::TokenSigner;
use crate::certificate_requests::signing::Signer;
use crate::manager;
use crate::nodes::containers::Containers;
use crate::nodes::stages::Stages;
use crate::nodes::usage::Usages;

/// The settings of all controllers.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The controllers that run.
    pub selection: Selection,
    /// Number of simulated nodes.
    pub nodes: usize,
    /// The identity of this process, for the lease and for events.
    pub identity: String,
    /// True if another process may run the same controllers on the same data, so that a lease is needed.
    pub elect: bool,
    /// The certificate authority of the server, for `kube-root-ca.crt` and token secrets.
    pub ca_pem: String,
    /// The intervals of the specification; tests make them shorter.
    pub timing: Timing,
    /// The behaviour of simulated nodes.
    pub stages: Stages,
    /// What the containers of simulated nodes say; the server reads from it.
    pub containers: Arc<Containers>,
    /// What prescribes the usage of pods; the server reads from it.
    pub usages: Arc<Usages>,
    /// PG-1: number of finished pods that are kept.
    pub terminated_pods_max: usize,
    /// The wall clock of all controllers.
    pub clock: WorldClock,
    /// Signs the certificates of approved requests; without it they stay unsigned.
    pub signer: Option<Signer>,
    /// Signs the tokens of secrets; without one the server issues tokens that are bound to them.
    pub token_signer: Option<TokenSigner>,
    /// Whether every certificate request is approved.
    pub approve_all: bool,
    /// Lists the work queues of the controllers.
    pub queues: Queues,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            selection: Selection::default(),
            nodes: 3,
            identity: format!("dogwatch-{}", std::process::id()),
            elect: false,
            ca_pem: String::new(),
            timing: Timing::default(),
            stages: Stages::default(),
            containers: Arc::default(),
            usages: Arc::default(),
            terminated_pods_max: 12_500,
            clock: WorldClock::system(),
            signer: None,
            token_signer: None,
            approve_all: false,
            queues: Queues::default(),
        }
    }
}

impl Settings {
    /// True if there are simulated nodes, so that what they use can be measured.
    #[must_use]
    pub fn simulates_nodes(&self) -> bool {
        self.selection.includes("nodes")
    }

    /// True if every namespace gets a service account, so that pods can be required to have one.
    #[must_use]
    pub fn keeps_service_accounts(&self) -> bool {
        manager::names().contains(&manager::SERVICE_ACCOUNTS) && self.selection.includes(manager::SERVICE_ACCOUNTS)
    }
}

/// Intervals that a client can observe.
#[derive(Debug, Clone, Copy)]
pub struct Timing {
    /// NS-3: delay of the namespace controller after an event.
    pub namespace_start: Duration,
    /// GC-1: interval at which the garbage collector reads discovery.
    pub gc_discovery: Duration,
    /// PG-1: interval of the pod garbage collector.
    pub pod_gc: Duration,
    /// PG-1: time for which a node must be missing before its pods are deleted.
    pub pod_gc_quarantine: Duration,
    /// NL-1: interval of the health checks of nodes.
    pub node_check: Duration,
    /// NL-1: time after which a silent node is Unknown.
    pub node_grace: Duration,
    /// NL-1: the same for a node that has not reported yet.
    pub node_startup_grace: Duration,
    /// NL-3: interval between evictions of nodes in a zone.
    pub node_eviction_every: Duration,
    /// NA-4: interval at which a node renews its lease.
    pub node_lease_renew: Duration,
    /// NA-5: interval at which a node writes an unchanged status.
    pub node_status_every: Duration,
    /// JB-4: delay that gathers the syncs of a job.
    pub job_batch: Duration,
    /// HPA-1: interval at which an autoscaler measures its target.
    pub autoscaling: Duration,
    /// HPA-10: time for which an autoscaler remembers high recommendations.
    pub autoscaling_stabilization: Duration,
    /// HPA-8: time after the start of a pod in which its CPU counts only if it is ready.
    pub autoscaling_initialization: Duration,
    /// HPA-8: time after its start in which the first readiness of a pod is expected.
    pub autoscaling_readiness_delay: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            namespace_start: Duration::from_secs(5),
            gc_discovery: Duration::from_secs(30),
            pod_gc: Duration::from_secs(20),
            pod_gc_quarantine: Duration::from_secs(40),
            node_check: Duration::from_secs(5),
            node_grace: Duration::from_secs(50),
            node_startup_grace: Duration::from_secs(60),
            node_eviction_every: Duration::from_secs(10),
            node_lease_renew: Duration::from_secs(10),
            node_status_every: Duration::from_secs(300),
            job_batch: Duration::from_secs(1),
            autoscaling: Duration::from_secs(15),
            autoscaling_stabilization: Duration::from_secs(300),
            autoscaling_initialization: Duration::from_secs(300),
            autoscaling_readiness_delay: Duration::from_secs(30),
        }
    }
}

/// The controllers that run: all but the named ones, or only these.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Selection {
    /// True if only the named ones run; false if all others do.
    only_named: bool,
    named: BTreeSet<String>,
}

/// A name that is not a controller's.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("there is no controller {0:?}; there are: {known}", known = manager::names().join(", "))]
pub struct UnknownController(String);

impl Selection {
    /// No controller at all.
    #[must_use]
    pub fn none() -> Self {
        Self { only_named: true, named: BTreeSet::new() }
    }

    /// Only what answers certificate requests, which a server does without its controllers too.
    #[must_use]
    pub fn certificates(approve: bool) -> Self {
        let approving = approve.then_some(manager::CERTIFICATE_APPROVING);
        let named = approving.into_iter().chain([manager::CERTIFICATE_SIGNING]).map(str::to_owned).collect();
        Self { only_named: true, named }
    }

    /// Parses `-garbagecollector,-job` (all but these), `deployment,replicaset` (only these), `*,-job` (all but one).
    pub fn parse(text: &str) -> Result<Self, UnknownController> {
        let words: Vec<&str> = text.split(',').map(str::trim).filter(|word| !word.is_empty()).collect();
        let chosen = |word: &&&str| !word.starts_with('-') && **word != "*";
        let only_named = words.iter().any(|word| chosen(&word)) && !words.contains(&"*");
        let wanted = words.iter().filter(|word| chosen(word) == only_named && **word != "*");
        let named: BTreeSet<String> = wanted.map(|word| word.trim_start_matches('-').to_owned()).collect();
        for word in words.iter().map(|word| word.trim_start_matches('-')).filter(|word| *word != "*") {
            if !manager::names().contains(&word) {
                return Err(UnknownController(word.to_owned()));
            }
        }
        Ok(Self { only_named, named })
    }

    /// True if this controller runs.
    #[must_use]
    pub fn includes(&self, name: &str) -> bool {
        self.named.contains(name) == self.only_named
    }
}
