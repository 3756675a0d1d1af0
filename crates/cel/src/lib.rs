//! CEL, the Common Expression Language, with the library, error texts and costs of Kubernetes v1.36.
//!
//! Compiles and evaluates `x-kubernetes-validations` of custom resource schemas, and type-checks the expressions of
//! admission policies and device selectors.
//!
//! An expression passes through these modules:
//!
//! 1. `lexer`, `parser` and `macros` build the syntax tree (`ast`) and expand macros
//! 2. `checker` resolves types and overloads against `functions`; `literal_checks` rejects constants without a value
//! 3. `cost` bounds the cost from the sizes that the schema allows (`shape`)
//! 4. `plan` resolves constants, variables and functions once; `evaluate` runs the plan and counts its actual cost
//!
//! `program` combines these steps. `rules` and `validator` apply programs to a schema and its objects; [`policy`]
//! checks expressions without evaluating them. [`pattern`] (Go's regular expressions) and [`interner`] are public
//! because `schema` compiles structural schemas with them too.
//!
//! # Bounds
//!
//! Expressions and objects are not trusted. The size of trees, types, costs, patterns and computed values is bounded;
//! exceeding a bound is an ordinary error.
//!
//! # Why not a published crate
//!
//! `cel` 0.13 and `kube-cel` 0.8 have only a coarse cost model. A definition is accepted or refused by its estimated
//! cost, and a write by its actual cost, so clients see both. Here 726 recorded expressions agree with Kubernetes v1.36
//! in result, error text, estimated cost and actual cost, and 64 recorded schemas and objects agree in errors, warnings
//! and cost. The tables are `tests/recorded/expressions.tsv` and `tests/recorded/objects.jsonl`; the declared functions
//! are `src/functions.tsv`.

mod access;
mod ast;
mod checker;
mod cost;
mod escape;
mod evaluate;
mod field_path;
mod format_string;
mod formats;
mod functions;
pub mod interner;
mod lexer;
mod library;
mod lists;
mod literal;
mod literal_checks;
mod macros;
mod network;
mod numbers;
mod parser;
mod patch;
pub mod pattern;
mod plan;
pub mod policy;
mod program;
mod rules;
mod run;
mod semver;
mod shape;
mod source;
mod strings;
mod time;
mod types;
mod url;
mod validator;
mod value;

pub use program::{CompileError, Environment, Evaluation, Output, Program};
pub use source::{Issue, Issues};
pub use validator::{Outcome, Validator};
