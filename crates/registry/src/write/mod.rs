//! Writing verbs, and the steps that they share.
//!
//! ```text
//!   POST             body ─► Draft ─► create ─┐
//!   PUT, PATCH, SSA  body ─► change ─► update ─┼─► commit ─► store
//!   DELETE                             delete ─┘
//! ```
//!
//! - [`draft`]: an object under way, with what is known of it; [`templates`]: specs that were sent before
//! - [`create`], [`update`], [`patch`], [`apply`], [`delete`], [`delete_collection`]: the verbs
//! - [`rights`], [`param_rights`], [`claim_rights`]: rights that a write needs beyond the one to its verb
//! - [`managed_versions`]: owners that wrote in a version which is gone
//! - [`commit`]: the only code that writes objects to the store

pub(crate) mod apply;
pub(crate) mod claim_rights;
pub(crate) mod commit;
pub(crate) mod create;
pub(crate) mod delete;
pub(crate) mod delete_collection;
pub(crate) mod draft;
pub(crate) mod managed_versions;
pub(crate) mod param_rights;
pub(crate) mod patch;
pub(crate) mod rights;
pub(crate) mod templates;
pub(crate) mod update;
