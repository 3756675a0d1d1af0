//! Requests: authentication, authorization, routing, and a handler for each verb.
//!
//! - [`request_info`] reads verb and resource from the path, [`deadline`] the time limit from the query
//! - [`authentication`] finds the user, [`impersonation`] the one it acts for; `access` decides what that user may do
//! - [`routing`] finds the target, [`operation`] decides what is done with it, [`handlers`] has one module for each verb
//! - [`heavy`] has the threads for requests that take long, [`costly`] finds those whose size does not show it
//! - [`negotiation`] chooses the encoding of the response; [`reply`] builds it, [`warnings`] adds its `Warning` headers
//! - [`discovery`], [`openapi`], [`health`] and [`version`] serve the paths that are not resources

pub mod authentication;
pub(crate) mod costly;
pub mod deadline;
pub mod discovery;
pub(crate) mod disturbed_watch;
pub(crate) mod handlers;
pub mod health;
pub(crate) mod heavy;
pub mod impersonation;
pub mod negotiation;
pub mod openapi;
pub mod operation;
pub mod reply;
pub mod request_info;
pub mod routing;
pub(crate) mod traces;
pub mod version;
pub(crate) mod waiting;
pub mod warnings;
