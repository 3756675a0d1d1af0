//! Admission: plugins that change or refuse a write by looking at other objects.
//!
//! - [`chain`]: all plugins in the order in which they run, and the phases of a write
//! - [`plugin`]: the trait of a plugin, and the request as a plugin sees it
//! - [`matching`]: which requests webhooks and policies apply to; [`rounds`]: which of them run twice
//! - [`conditions`]: `matchConditions` of both; [`evaluation`]: what all expressions of a request have in common;
//!   [`request_value`]: the request as they see it
//! - [`versioned`]: objects in the version that a rule names; [`changes`]: which step set which field; [`trace`]: what each did
//! - [`policies`]: policies of expressions; [`damaged_rules`]: policies and webhooks that cannot be read
//! - [`selection`]: the plugins that run; [`step_metrics`]: how long they take
//! - one module for each plugin, or for two that differ only in their kind

mod bound_pods;
mod certificates;
pub(crate) mod chain;
pub(crate) mod changes;
pub(crate) mod conditions;
mod damaged_rules;
mod default_classes;
pub(crate) mod evaluation;
mod limit_ranger;
pub(crate) mod matching;
mod mountable_secrets;
mod namespace_lifecycle;
mod node_restriction;
mod optional;
pub mod plugin;
pub mod pod_security;
pub mod policies;
mod priority;
pub(crate) mod request_value;
pub(crate) mod rounds;
mod runtime_class;
pub mod selection;
mod service_account;
mod static_defaults;
pub(crate) mod step_metrics;
pub mod trace;
pub(crate) mod versioned;
mod volume_claim_resize;
pub mod webhooks;
