//! Rules in CEL: `x-kubernetes-validations` of a custom resource's schema, compiled once and asked at every write.
//!
//! An expression goes through these files: [`lexer`], [`parser`] and [`macros`] make a tree of its text; [`checker`] finds
//! the types and [`literal_checks`] what constants give away; [`estimate`] says what it may cost; [`plan`] makes it ready
//! and [`evaluate`] asks it, while [`meter`] counts. [`program`] is all of that behind one face, [`rules`] and
//! [`validator`] apply it to a schema, [`policy`] checks those that other objects carry.
//!
//! Nothing here trusts the text or the object: trees, types, costs, patterns and made-up values are all bounded, and a
//! bound that is met is an error like any other.

mod ast;
mod checker;
mod escape;
mod estimate;
mod evaluate;
mod field_path;
mod format_string;
mod formats;
mod functions;
mod lexer;
mod library;
mod lists;
mod literal;
mod literal_checks;
mod macros;
mod meter;
mod network;
mod numbers;
mod parser;
mod plan;
pub mod policy;
mod price;
mod program;
mod rules;
mod semver;
mod shape;
mod source;
mod strings;
mod time;
mod types;
mod url;
mod validator;
mod value;

pub use program::{Answer, Environment, Output, Program, Refusal};
pub use source::{Issue, Issues};
pub use validator::{Outcome, Validator};
