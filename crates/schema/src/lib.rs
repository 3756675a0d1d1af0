//! What the kinds look like, as data: names, scope, verbs, fields, defaults, columns; and what follows from it.
//!
//! - [`kind`]: one served kind
//! - [`kinds`]: all of them: the table of the built-in ones, and the registry that custom resources join

pub mod kind;
pub mod kinds;
