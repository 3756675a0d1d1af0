//! What the kinds look like, as data: names, scope, verbs, fields, defaults, columns; and what follows from it.
//!
//! - [`kind`]: one served kind, and the table of them

pub mod kind;
