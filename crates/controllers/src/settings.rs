//! What the person who starts the controllers can choose, and every interval they go by.

use std::collections::BTreeSet;
use std::time::Duration;

use machinery::clock::Clock;

use crate::manager;
use crate::nodes::stages::Stages;

/// Which controllers run, and how.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Which controllers run.
    pub selection: Selection,
    /// How many nodes are simulated.
    pub nodes: usize,
    /// Who this process is, for the lease and for events.
    pub identity: String,
    /// Whether another process may run the same controllers on the same data, so that a lease must decide.
    pub elect: bool,
    /// The certificate authority of the server, for `kube-root-ca.crt` and token secrets.
    pub ca_pem: String,
    /// The intervals of the specification; tests make them shorter.
    pub timing: Timing,
    /// How simulated nodes behave.
    pub stages: Stages,
    /// PG-1: how many finished pods are kept.
    pub terminated_pods_max: usize,
    /// The wall clock of all controllers.
    pub clock: Clock,
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
            terminated_pods_max: 12_500,
            clock: Clock::system(),
        }
    }
}

impl Settings {
    /// Whether every namespace gets a service account, so that pods can be asked to have one.
    #[must_use]
    pub fn keeps_service_accounts(&self) -> bool {
        manager::names().contains(&manager::SERVICE_ACCOUNTS) && self.selection.includes(manager::SERVICE_ACCOUNTS)
    }
}

/// Intervals that a client can observe.
#[derive(Debug, Clone, Copy)]
pub struct Timing {
    /// NS-3: how long after an event the namespace controller starts.
    pub namespace_start: Duration,
    /// GC-1: how often the garbage collector reads discovery.
    pub gc_discovery: Duration,
    /// PG-1: how often pods without a node are looked for.
    pub pod_gc: Duration,
    /// PG-1: how long a node may be missing before its pods go.
    pub pod_gc_quarantine: Duration,
    /// NL-1: how often the health of nodes is looked at.
    pub node_check: Duration,
    /// NL-1: how long a node may be silent.
    pub node_grace: Duration,
    /// NL-1: how long a node may take until it says something for the first time.
    pub node_startup_grace: Duration,
    /// NL-3: how often one node of a zone may be emptied.
    pub node_eviction_every: Duration,
    /// NA-4: how often a node renews its lease.
    pub node_lease_renew: Duration,
    /// NA-5: how often a node writes its status though nothing changed.
    pub node_status_every: Duration,
    /// JB-4: syncs of a job are batched to this.
    pub job_batch: Duration,
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
        }
    }
}

/// Which controllers run: all, less the ones that were named.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Selection {
    /// Whether the ones that are not named run.
    only_named: bool,
    named: BTreeSet<String>,
}

/// A name that no controller has.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("there is no controller {0:?}; there are: {known}", known = manager::names().join(", "))]
pub struct UnknownController(String);

impl Selection {
    /// No controller at all.
    #[must_use]
    pub fn none() -> Self {
        Self { only_named: true, named: BTreeSet::new() }
    }

    /// Reads `-garbagecollector,-job` (all but these), `deployment,replicaset` (only these), `*,-job` (all but one).
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

    /// Whether this controller runs.
    #[must_use]
    pub fn includes(&self, name: &str) -> bool {
        self.named.contains(name) == self.only_named
    }
}
