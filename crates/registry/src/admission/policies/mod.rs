//! ValidatingAdmissionPolicy and MutatingAdmissionPolicy.
//!
//! ```text
//!   table      policies with their bindings, compiled when they are stored; follows the cache from inside its feed
//!   compiled   one policy, one binding
//!   selection  which of them apply to a request, in the order of their names; params: the objects that bindings refer to
//!   validating, mutating
//!              what they do with it; denial: the answers to requests that they refuse
//!   metrics    counters of both
//!   type_check what does not fit the types of the kinds that a policy names, for its status
//! ```

mod compiled;
mod denial;
pub mod metrics;
mod mutating;
mod params;
mod selection;
mod table;
pub(crate) mod type_check;
mod validating;

use std::sync::Arc;
use std::time::Instant;

use access::Authorizer;
use cel::policy::Run;
use machinery::json::{Map, Value, json};

use self::compiled::{Binding, Policy};
use self::metrics::PolicyMetrics;
use self::table::Table;
use super::matching::Matcher;
use super::plugin::{Attributes, Operation};
use super::trace::{Phase, Step, Verdict};
use super::versioned::Versions;
use crate::read::view::{Outcome, View};
use crate::request::Target;
use crate::settings::Settings;
use crate::storage::Storage;

/// The policies in the cache, before there is anything to evaluate them with.
pub(crate) struct Followed {
    pub(crate) mutating: Arc<Table>,
    pub(crate) validating: Arc<Table>,
}

impl Default for Followed {
    fn default() -> Self {
        Followed { mutating: Arc::new(Table::mutating()), validating: Arc::new(Table::validating()) }
    }
}

/// The policies of a server, and what is needed to evaluate them.
pub(crate) struct Policies {
    mutating: Arc<Table>,
    validating: Arc<Table>,
    /// Whether both kinds are on.
    mutates: bool,
    validates: bool,
    storage: Storage,
    matcher: Matcher,
    versions: Versions,
    authorizer: Arc<dyn Authorizer>,
    metrics: PolicyMetrics,
}

impl Policies {
    pub(crate) fn new(
        followed: Followed,
        storage: &Storage,
        matcher: Matcher,
        versions: Versions,
        settings: &Settings,
    ) -> Self {
        Policies {
            mutating: followed.mutating,
            validating: followed.validating,
            mutates: settings.plugins.includes("MutatingAdmissionPolicy"),
            validates: settings.plugins.includes("ValidatingAdmissionPolicy"),
            storage: storage.clone(),
            matcher,
            versions,
            authorizer: Arc::clone(&settings.authorizer),
            metrics: settings.policy_metrics.clone(),
        }
    }

    /// Compiles a policy that was just written, before its write is answered.
    pub(crate) fn compile(&self, target: &Target, written: &Outcome) {
        let tables = [&self.validating, &self.mutating];
        let Some(table) = tables.into_iter().find(|table| table.holds(&target.kind.collection)) else { return };
        if let View::Stored { item, .. } = &written.view {
            table.compile(item.name());
        }
    }

    /// Whether a mutating policy may apply to a request. Deletes have nothing to change.
    pub(crate) fn may_mutate(&self, attributes: &Attributes<'_>) -> bool {
        self.mutates
            && attributes.operation != Operation::Delete
            && self.mutating.concerns(attributes)
            && !is_exempt(attributes)
    }

    /// Whether a validating policy may apply to a request.
    pub(crate) fn may_validate(&self, attributes: &Attributes<'_>) -> bool {
        self.validates && self.validating.concerns(attributes) && !is_exempt(attributes)
    }
}

/// What the expressions of a policy cost in one request, and the variables that they used.
#[derive(Debug, Default)]
struct Spent {
    cost: u64,
    /// Values, or the texts of errors; kept only for a trace.
    variables: Map,
}

impl Spent {
    /// Adds what one list of expressions cost.
    fn add(&mut self, attributes: &Attributes<'_>, run: &Run<'_, '_>) {
        self.cost = self.cost.saturating_add(run.spent());
        if attributes.ctx.trace.is_some() {
            for (name, value) in run.used_variables() {
                self.variables.insert(name, value.unwrap_or_else(|error| json!({"error": error})));
            }
        }
    }

    fn to_value(&self) -> Value {
        if self.cost == 0 {
            return Value::Null;
        }
        json!({"cost": self.cost, "variables": self.variables})
    }
}

/// Notes what a policy did in the trace of its request, if it has one.
fn note(
    attributes: &Attributes<'_>,
    (phase, round): (Phase, usize),
    policy: &Policy,
    binding: Option<&Arc<Binding>>,
    began: Instant,
    about: Spent,
    verdict: impl FnOnce() -> (Verdict, Value),
) {
    if let Some(trace) = &attributes.ctx.trace {
        let (verdict, patch) = verdict();
        let of = binding.map(|binding| binding.name.clone()).unwrap_or_default();
        let (name, duration) = (policy.name.clone(), began.elapsed());
        trace.push(Step { phase, round, kind: "policy", name, of, verdict, duration, patch, about: about.to_value() });
    }
}

/// Whether policies look at a kind at all. They cannot refuse the removal of a policy that refuses everything, nor answers to
/// questions about access.
pub(super) fn is_exempt(attributes: &Attributes<'_>) -> bool {
    let kind = &attributes.target.kind;
    match kind.gvk.group.as_str() {
        "admissionregistration.k8s.io" => matches!(
            kind.plural.as_str(),
            "validatingadmissionpolicies"
                | "validatingadmissionpolicybindings"
                | "mutatingadmissionpolicies"
                | "mutatingadmissionpolicybindings"
        ),
        "authentication.k8s.io" => matches!(kind.plural.as_str(), "tokenreviews" | "selfsubjectreviews"),
        "authorization.k8s.io" => true,
        _ => false,
    }
}
