//! Seams to parts of the schema crate.

use machinery::media::PatchType;
use machinery::options::FieldValidation;
use machinery::{FieldError, GroupVersionKind, Status};
use schema::decode::Decoded;
use schema::kind::Kind;
use serde_json::Value;

use crate::request::PatchBody;

pub(crate) fn validate_create(kind: &Kind, object: &Value) -> Vec<FieldError> {
    let _ = (kind, object);
    Vec::new()
}
pub(crate) fn validate_update(_kind: &Kind, _new: &Value, _old: &Value) -> Vec<FieldError> {
    Vec::new()
}
pub(crate) fn validate_subresource(_kind: &Kind, _door: &str, _new: &Value, _old: &Value) -> Vec<FieldError> {
    Vec::new()
}
pub(crate) fn patch(
    gvk: &GroupVersionKind,
    current: &Value,
    body: &PatchBody,
    _v: FieldValidation,
) -> Result<Decoded, Status> {
    fn merge(into: &mut Value, patch: &Value) {
        let Value::Object(patch) = patch else {
            *into = patch.clone();
            return;
        };
        if !into.is_object() {
            *into = serde_json::json!({});
        }
        for (k, v) in patch {
            if v.is_null() {
                into.as_object_mut().unwrap().shift_remove(k);
            } else {
                merge(into.as_object_mut().unwrap().entry(k.clone()).or_insert(Value::Null), v);
            }
        }
    }
    if body.kind != PatchType::Merge {
        return Err(Status::router_unsupported_media_type());
    }
    let patch: Value = serde_json::from_slice(&body.bytes).map_err(|e| Status::bad_request(e.to_string()))?;
    let mut value = current.clone();
    merge(&mut value, &patch);
    let ty = crate::body::type_of(gvk)?;
    schema::decode::normalise(&ty, &mut value).map_err(Status::bad_request)?;
    Ok(Decoded { value, warnings: Vec::new() })
}
