//! Typed values to and from JSON values, by way of their text.
//!
//! `serde_json::{to_value, from_value}` compile an encoder and a decoder of their own for every type below a pod template,
//! besides those of requests and informers: a tenth of this crate's code for five calls.

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Error, Value};

pub(crate) fn to_value<T: Serialize>(typed: &T) -> Value {
    serde_json::to_vec(typed).and_then(|text| serde_json::from_slice(&text)).unwrap_or_default()
}

pub(crate) fn from_value<T: DeserializeOwned>(value: &Value) -> Result<T, Error> {
    serde_json::from_slice(value.to_string().as_bytes())
}
