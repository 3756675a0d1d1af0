//! The query of a list or watch request, and the decoding of its response into objects.
//!
//! - `params`: the query string of both verbs
//! - `frames`: a watch body, one JSON document on each line
//! - `items`: a list body, one item at a time, without holding the whole response

mod frames;
mod items;
mod params;

pub(crate) use frames::watch_items;
pub(crate) use items::list_items;
pub use params::{Params, VersionMatch};
