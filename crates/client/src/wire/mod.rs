//! Bytes and queries: what a list or watch request says, and how its body is cut into objects.
//!
//! - `params`: the query string of both verbs
//! - `frames`: a watch body, one JSON document a line
//! - `items`: a list body, one item at a time, without holding the whole answer

mod frames;
mod items;
mod params;

pub(crate) use frames::watch_items;
pub(crate) use items::list_items;
pub use params::{Params, VersionMatch};
