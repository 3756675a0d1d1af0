//! Admission: plugins that change or refuse a write by looking at other objects.
//!
//! - [`chain`]: all plugins in the order in which they run, and the phases of a write
//! - [`plugin`]: the trait of a plugin, and the request as a plugin sees it
//! - one module for each plugin, or for two that differ only in their kind

pub(crate) mod chain;
mod default_classes;
mod limit_ranger;
mod namespace_lifecycle;
pub mod plugin;
mod pod_security;
mod priority;
mod runtime_class;
mod service_account;
mod static_defaults;
mod volume_claim_resize;
pub mod webhooks;
