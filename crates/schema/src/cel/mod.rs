//! Rules in CEL: `x-kubernetes-validations` of a custom resource's schema, compiled once and asked at every write.

mod validator;

pub use validator::{Outcome, Validator};
