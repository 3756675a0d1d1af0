//! Normalises the metadata of objects and of embedded objects: unknown fields are removed, malformed ones are refused.

use machinery::field_error::{FieldError, Path};
use machinery::json::{Map, Value};

use super::structural::Schema;
use crate::decode::coerce::{Words, coerce};
use crate::facts::Types;

/// Handling of a field with the wrong type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Malformed {
    /// Refuse a request.
    Refused,
    /// Remove the field from a stored object.
    Dropped,
}

/// Normalises `metadata` of an object. Returns the paths of unknown fields, relative to the object.
pub(crate) fn metadata(object: &mut Map, malformed: Malformed) -> Result<Vec<String>, String> {
    let Some(metadata) = object.get_mut("metadata") else { return Ok(Vec::new()) };
    let ty = Types::get().object_meta();
    let before = (malformed == Malformed::Dropped).then(|| metadata.clone());
    let findings = match (coerce(&ty, metadata, None, Words::Json), before) {
        (Ok(findings), _) => findings,
        (Err(why), None) => return Err(why),
        (Err(_), Some(before)) => {
            // Keeps the fields that are well-formed on their own.
            let mut kept = Map::new();
            for (key, value) in before.as_object().into_iter().flatten() {
                let mut alone = Value::Object(Map::from_iter([(key.clone(), value.clone())]));
                if coerce(&ty, &mut alone, None, Words::Json).is_ok()
                    && let Value::Object(alone) = alone
                {
                    kept.extend(alone);
                }
            }
            *metadata = Value::Object(kept);
            coerce(&ty, metadata, None, Words::Json).map_err(|why| format!("metadata could not be read: {why}"))?
        }
    };
    if let Value::Object(members) = metadata
        && members.get("creationTimestamp").is_some_and(Value::is_null)
    {
        members.shift_remove("creationTimestamp");
    }
    Ok(findings.unknown.into_iter().map(|path| format!("metadata.{path}")).collect())
}

/// Normalises the metadata of every embedded object. The paths are relative to the root.
pub(crate) fn coerce_below(
    value: &mut Value,
    schema: &Schema,
    malformed: Malformed,
) -> Result<Vec<String>, FieldError> {
    let mut unknown = Vec::new();
    if schema.embeds {
        walk(value, schema, malformed, &Path::root(), &mut unknown)?;
        unknown.sort();
    }
    Ok(unknown)
}

/// Normalises the metadata of embedded objects in a value at `path`; malformed metadata is an error.
pub(crate) fn coerce_at(value: &mut Value, schema: &Schema, path: &Path<'_>) -> Result<(), FieldError> {
    walk(value, schema, Malformed::Refused, path, &mut Vec::new())
}

fn walk(
    value: &mut Value,
    schema: &Schema,
    malformed: Malformed,
    path: &Path<'_>,
    unknown: &mut Vec<String>,
) -> Result<(), FieldError> {
    if !schema.embeds {
        return Ok(());
    }
    match value {
        Value::Object(map) => {
            if schema.embedded {
                for name in ["apiVersion", "kind"] {
                    match (map.get(name), malformed) {
                        (None | Some(Value::String(_)), _) => {}
                        (Some(_), Malformed::Dropped) => {
                            map.shift_remove(name);
                        }
                        (Some(other), Malformed::Refused) => {
                            return Err(FieldError::invalid(path.child(name), other, "must be a string"));
                        }
                    }
                }
                let sent = map.get("metadata").cloned();
                match metadata(map, malformed) {
                    Ok(found) => unknown.extend(found.into_iter().map(|field| {
                        let at = path.to_string();
                        if at.is_empty() { field } else { format!("{at}.{field}") }
                    })),
                    Err(_) if malformed == Malformed::Dropped => {}
                    Err(why) => {
                        return Err(FieldError::invalid(path.child("metadata"), sent.unwrap_or_default(), why));
                    }
                }
            }
            for (key, value) in map.iter_mut() {
                if let Some(known) = schema.property(key) {
                    walk(value, known, malformed, &path.child(key), unknown)?;
                } else if let Some(rest) = schema.rest() {
                    walk(value, rest, malformed, &path.key(key), unknown)?;
                }
            }
        }
        Value::Array(items) => {
            if let Some(schema) = schema.items.as_deref() {
                for (index, item) in items.iter_mut().enumerate() {
                    walk(item, schema, malformed, &path.index(index), unknown)?;
                }
            }
        }
        _ => {}
    }
    Ok(())
}
