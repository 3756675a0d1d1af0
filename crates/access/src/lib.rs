//! Who may do what: users, requests to authorize, and decisions about them.
//!
//! - [`identity`] is the user type
//! - [`authorizer`] is the trait of everything that decides, and the text of a refusal

pub mod authorizer;
pub mod identity;

pub use authorizer::{Attributes, Authorizer, Decision, ResourceAttributes, Verdict, What, forbidden};
pub use identity::User;
