//! Who may do what: users, requests to authorize, and decisions about them.
//!
//! - [`identity`] is the user type
//! - [`authorizer`] is the trait of everything that decides, and the text of a refusal
//! - [`selectors`] are those of a list, as attributes of the request
//! - [`union`] asks several authorizers in their order
//! - [`node`] decides on the requests of nodes
//! - [`explain`] has the reasons of decisions by roles, and the roles that a user needs
//! - [`rbac`] decides by roles and their bindings

pub mod authorizer;
pub mod explain;
pub mod identity;
pub mod node;
pub mod rbac;
pub mod selectors;
pub mod union;

pub use authorizer::{Attributes, Authorizer, Decision, ResourceAttributes, RuleList, Verdict, What, forbidden};
pub use identity::User;
pub use rbac::Rbac;
pub use selectors::{FieldTerms, LabelTerms, Selectors};
