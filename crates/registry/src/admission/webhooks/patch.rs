//! The patch of a mutating webhook, applied to the object in the version of the review.

use machinery::Status;
use machinery::go_json::{self, json_kind};
use machinery::json::{self, Value};
use machinery::options::FieldValidation;
use schema::patch::{PatchError, Target};

use super::super::matching::Matched;
use super::super::plugin::{Attributes, Operation};
use super::answer::{Answer, JSON_PATCH};
use super::call::CallError;
use crate::body;
use crate::subresources::connection;

/// The operations of an answer; none if it changes nothing.
pub(super) fn operations(answer: &Answer) -> Result<Option<Value>, CallError> {
    if answer.patch.is_empty() {
        return Ok(None);
    }
    let undecodable = |why: String| CallError::Failed {
        why: format!("received undecodable patch in webhook response: {why}"),
        code: 503,
    };
    let patch = json::from_slice(&answer.patch)
        .map_err(|error| undecodable(go_json::syntax_error(&answer.patch).unwrap_or_else(|| error.to_string())))?;
    let patch = patch.parsed().into_owned();
    let wrong = |found: &Value, wanted: &str| {
        undecodable(format!("json: cannot unmarshal {} into Go value of type jsonpatch.{wanted}", json_kind(found)))
    };
    match &patch {
        Value::Null => return Ok(None),
        Value::Array(operations) if operations.is_empty() => return Ok(None),
        Value::Array(operations) => {
            if let Some(other) = operations.iter().find(|operation| !operation.is_object() && !operation.is_null()) {
                return Err(wrong(other, "Operation"));
            }
        }
        other => return Err(wrong(other, "Patch")),
    }
    Ok(Some(patch))
}

/// The object after the patch, decoded as its kind. Fields that the kind does not have are dropped.
pub(super) fn apply(
    attributes: &Attributes<'_>,
    matched: &Matched,
    current: &Value,
    answer: &Answer,
) -> Result<Value, CallError> {
    if answer.patch_type != JSON_PATCH {
        let why = format!("unsupported patch type {}", machinery::go_text::quote(&answer.patch_type));
        return Err(CallError::Failed { why, code: 400 });
    }
    let mut current = current.clone();
    current.parse_raw();
    let fatal = |error: PatchError| {
        CallError::Fatal(Status::internal(match error {
            PatchError::Unprocessable => schema::patch::json::reason(&current, &answer.patch),
            PatchError::Invalid { detail, .. } => detail,
            PatchError::Malformed(why) | PatchError::TooLarge(why) => why,
            other => other.to_status().message,
        }))
    };
    if attributes.operation == Operation::Connect {
        let patched = schema::patch::json::apply_untyped(&current, &answer.patch).map_err(fatal)?;
        return connection::decode(patched).map_err(|why| CallError::Fatal(Status::internal(why)));
    }
    let (gvk, kind) = (matched.kind(attributes), matched.resource(attributes));
    let is_own = *gvk == kind.gvk;
    let ty = if is_own { body::type_of_kind(kind) } else { body::type_of(gvk) }.map_err(CallError::Fatal)?;
    let definition = kind.definition.as_ref().filter(|_| is_own);
    let target = Target {
        ty: &ty,
        gvk,
        custom: definition.is_some(),
        version: definition.map(|definition| definition.version()),
        validation: FieldValidation::Ignore,
    };
    let patched = schema::patch::json::apply(&target, &current, &answer.patch).map_err(fatal)?;
    if definition.is_some() {
        body::check_kind(kind, &patched.value).map_err(|status| CallError::Fatal(Status::internal(status.message)))?;
    }
    Ok(patched.value)
}

/// Gives an object of the matched version its defaults again.
pub(super) fn apply_defaults(attributes: &Attributes<'_>, matched: &Matched, object: &mut Value) {
    let kind = matched.resource(attributes);
    if *matched.kind(attributes) == kind.gvk {
        schema::defaults::apply(kind, object, None);
    }
}

/// The operations with their members sorted, as audit annotations show them.
pub(super) fn sorted(mut operations: Value) -> Value {
    for operation in operations.as_array_mut().into_iter().flatten() {
        if let Some(members) = operation.as_object_mut() {
            members.sort_keys();
        }
    }
    operations
}
