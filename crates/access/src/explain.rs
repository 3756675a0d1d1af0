//! Why a request is allowed or refused by roles, and which roles a user needs.
//!
//! - [`why`]: the binding and rule that allow a request, or how near each binding of the user comes
//! - [`manifest`]: roles and bindings as objects that can be applied
//! - [`least`]: the smallest roles for what a user did, what its present roles lack, and what they grant beyond it

pub mod least;
pub mod manifest;
pub mod why;

pub use least::{Action, Usage};
pub use why::{Explanation, NearMiss};
