//! Settings of a registry.

use std::net::Ipv4Addr;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use access::authorizer::AlwaysAllow;
use access::node::Graph;
use access::{Authorizer, Rbac};
use cache::Observer;
use machinery::Clock;
use schema::kinds::{self, Kinds};

use crate::admission::pod_security::configuration::PodSecurityConfiguration;
use crate::admission::pod_security::metrics::PodSecurityMetrics;
use crate::admission::policies::metrics::PolicyMetrics;
use crate::admission::selection::PluginSelection;
use crate::admission::webhooks::client::HookCaller;
use crate::admission::webhooks::faults::Faults;
use crate::admission::webhooks::metrics::WebhookMetrics;
use crate::admission::webhooks::recorder::Recorder;
use crate::computed::Computed;
use crate::conversion_webhook::Webhooks;
use crate::orders::Orders;

/// Settings of a registry.
#[derive(Clone)]
pub struct Settings {
    /// The kinds that are served from the start.
    pub kinds: Kinds,
    /// Whether the registry begins with nothing: no namespaces, roles, flows and services of the API itself.
    pub is_bare: bool,
    /// Code that follows some collections, beside the registry's own.
    pub observers: Vec<Arc<dyn Observer>>,
    /// Kinds whose objects are computed and not stored.
    pub computed: Option<Arc<dyn Computed>>,
    /// Does what writes of some kinds ask for.
    pub orders: Option<Arc<dyn Orders>>,
    pub cache: cache::Config,
    /// Shortest timeout of a watch that names none; the longest is twice that.
    pub watch_timeout_min: Duration,
    /// How long an Event is kept after its last write.
    pub event_ttl: Duration,
    /// The network of service addresses, and the bits of its prefix.
    pub service_range: Ipv4Addr,
    pub service_range_bits: u8,
    pub node_ports: RangeInclusive<u16>,
    /// Whether a pod must have a service account, and gets its token. Only where a controller creates the accounts.
    pub service_accounts: bool,
    /// Whether the types of admission policies are checked. A controller does that in the reference, so that a server without
    /// controllers does not.
    pub policy_types: bool,
    /// Calls the webhooks that convert custom resources; none refuses requests that need one.
    pub webhooks: Option<Arc<dyn Webhooks>>,
    /// Calls admission webhooks; without it every call fails.
    pub hooks: Option<Arc<dyn HookCaller>>,
    /// Counts calls of admission webhooks.
    pub webhook_metrics: WebhookMetrics,
    pub policy_metrics: PolicyMetrics,
    pub pod_security_metrics: PodSecurityMetrics,
    /// Faults of admission webhooks, for tests of their failure policies.
    pub webhook_faults: Arc<Faults>,
    /// Whether policies and webhooks become managers of the fields that they set.
    pub own_mutations: bool,
    /// Keeps every review of an admission webhook in a file.
    pub review_recorder: Option<Arc<Recorder>>,
    /// Decides what a write needs beyond the right to its verb: the grants of a role, `approve`, policies that ask.
    pub authorizer: Arc<dyn Authorizer>,
    /// Levels of pods in namespaces without labels, and exemptions from them.
    pub pod_security: PodSecurityConfiguration,
    /// The admission plugins that run beside, or not among, those that are on by default.
    pub plugins: PluginSelection,
    /// The graph of the Node authorizer, which the registry keeps up to date; none without that authorizer.
    pub node_graph: Option<Arc<Graph>>,
    /// The roles and bindings of the cluster, which the registry keeps as new as their objects.
    pub roles: Arc<Rbac>,
    pub clock: Clock,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            kinds: kinds::builtin().clone(),
            is_bare: false,
            observers: Vec::new(),
            computed: None,
            orders: None,
            cache: cache::Config::default(),
            watch_timeout_min: Duration::from_secs(1800),
            event_ttl: Duration::from_secs(3600),
            service_range: Ipv4Addr::new(10, 96, 0, 0),
            service_range_bits: 16,
            node_ports: 30000..=32767,
            service_accounts: false,
            policy_types: true,
            webhooks: None,
            hooks: None,
            webhook_metrics: WebhookMetrics::default(),
            policy_metrics: PolicyMetrics::default(),
            pod_security_metrics: PodSecurityMetrics::default(),
            webhook_faults: Arc::default(),
            own_mutations: false,
            review_recorder: None,
            authorizer: Arc::new(AlwaysAllow),
            roles: Arc::default(),
            pod_security: PodSecurityConfiguration::default(),
            plugins: PluginSelection::default(),
            node_graph: None,
            clock: Clock::system(),
        }
    }
}
