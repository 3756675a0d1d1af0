//! Reading verbs, and how answers are shown.
//!
//! - [`get`], [`list`], [`watch`]: the verbs
//! - [`past`]: the same as of an earlier revision
//! - [`view`]: an object or a list as an answer; [`watch_view`]: an open watch
//! - [`form`]: the form a client negotiated; [`segments`]: the bytes of an answer; `protobuf`: that form

pub mod form;
pub(crate) mod get;
pub(crate) mod list;
pub(crate) mod past;
mod protobuf;
pub mod segments;
pub mod view;
pub(crate) mod watch;
pub mod watch_view;
