//! Decodes request bodies and stored objects of custom kinds.
//!
//! ```text
//!   request:  text ─► value ─► metadata read ─► pruned ─► nulls dropped ─► embedded objects read ─► (defaults)
//!   storage:  the same with the schema of the stored version; malformed metadata is dropped instead of refused
//! ```

use machinery::json::{Number, Value};
use machinery::{GroupVersion, GroupVersionKind};

use super::definition::Version;
use super::embedded::{self, Malformed};
use super::{fill, prune};
use crate::decode::{DecodeError, Decoded, FieldValidation, MediaType, parse};

/// Decodes the body of a POST or PUT. The kind is not compared: validation reports an object of another kind.
pub fn decode(
    version: &Version,
    gvk: &GroupVersionKind,
    body: &[u8],
    media: MediaType,
    validation: FieldValidation,
) -> Result<Decoded, DecodeError> {
    let strict = validation != FieldValidation::Ignore;
    let parsed = parse(body, media, strict, None).map_err(|message| DecodeError::Unrecognized { message })?;
    let mut value = parsed.value;
    let missing = || {
        let message = format!("Object 'Kind' is missing in '{}'", String::from_utf8_lossy(body));
        DecodeError::Unrecognized { message }
    };
    // Reports a body that is not an object.
    crate::decode::kind_of(&value, gvk)?;
    let text = |name: &str| value.get(name).and_then(Value::as_str).unwrap_or_default();
    let (api_version, kind) = (text("apiVersion").to_owned(), text("kind").to_owned());
    if kind.is_empty() {
        return Err(missing());
    }
    let found = GroupVersion::parse(&api_version).unwrap_or_default();
    if found != gvk.group_version() {
        return Err(DecodeError::Version { found, expected: gvk.group_version() });
    }
    let found = GroupVersionKind::new(found.group, found.version, kind);
    let refuse = |message: String| DecodeError::Malformed { found: found.clone(), message };
    let unknown = if found == *gvk { from_request(version, &mut value).map_err(refuse)? } else { Vec::new() };
    let mut warnings = Vec::new();
    if strict && (!parsed.duplicates.is_empty() || !unknown.is_empty()) {
        let unknown = unknown.iter().map(|path| format!("unknown field {path:?}"));
        let problems: Vec<String> = if parsed.yaml && validation == FieldValidation::Strict {
            let duplicates = (!parsed.duplicates.is_empty())
                .then(|| format!("yaml: unmarshal errors:\n  {}", parsed.duplicates.join("\n  ")));
            duplicates.into_iter().chain(unknown).collect()
        } else {
            parsed.duplicates.into_iter().chain(unknown).collect()
        };
        if validation == FieldValidation::Strict {
            return Err(refuse(format!("strict decoding error: {}", problems.join(", "))));
        }
        warnings = problems;
    }
    Ok(Decoded { value, warnings })
}

/// Prunes and normalises an object that a client sent, without applying defaults. Returns the paths of removed fields,
/// or the reason why the value is not an object of the kind.
pub fn from_request(version: &Version, value: &mut Value) -> Result<Vec<String>, String> {
    coerce(version, value, Malformed::Refused)
}

/// Prunes and normalises a stored object by the schema of its stored version, and applies defaults.
pub fn from_storage(version: &Version, value: &mut Value) {
    // Malformed metadata is dropped, so there is no error.
    let _ = coerce(version, value, Malformed::Dropped);
    fill::fill(value, &version.schema);
}

/// Applies the defaults of the schema.
pub fn fill_defaults(version: &Version, value: &mut Value) {
    fill::fill(value, &version.schema);
}

/// Normalises the metadata of an object: its fields in wire order.
pub fn normalise_metadata(value: &mut Value) -> Result<(), String> {
    let Value::Object(object) = value else { return Ok(()) };
    embedded::metadata(object, Malformed::Refused).map(|_| ())
}

/// Prunes an object after its conversion to a version.
pub fn converted(version: &Version, value: &mut Value) {
    let _ = coerce(version, value, Malformed::Dropped);
}

fn coerce(version: &Version, value: &mut Value, malformed: Malformed) -> Result<Vec<String>, String> {
    let Value::Object(object) = value else { return Ok(Vec::new()) };
    let mut unknown = embedded::metadata(object, malformed)?;
    if has_whole_float(value) {
        write_as_integer(value);
    }
    unknown.extend(prune::prune(value, &version.schema));
    prune::drop_nulls(value, &version.schema);
    unknown.extend(embedded::coerce_below(value, &version.schema, malformed).map_err(|error| error.to_string())?);
    Ok(unknown)
}

/// Reports whether a value contains an integer written as a fraction or with an exponent.
fn has_whole_float(value: &Value) -> bool {
    match value {
        Value::Number(number) => whole(number).is_some(),
        Value::Array(items) => items.iter().any(has_whole_float),
        Value::Object(map) => map.values().any(has_whole_float),
        _ => false,
    }
}

/// Converts integers to plain notation, like Kubernetes: `1e3` is stored as `1000`.
fn write_as_integer(value: &mut Value) {
    match value {
        Value::Number(number) => {
            if let Some(whole) = whole(number) {
                *value = whole.into();
            }
        }
        Value::Array(items) => items.iter_mut().for_each(write_as_integer),
        Value::Object(map) => map.values_mut().for_each(write_as_integer),
        _ => {}
    }
}

fn whole(number: &Number) -> Option<i64> {
    let float = number.as_f64().filter(|_| number.is_f64())?;
    #[expect(clippy::cast_possible_truncation, reason = "the range is checked first")]
    (float.fract() == 0.0 && float.abs() < 9e15).then_some(float as i64)
}

#[cfg(test)]
mod tests {
    use machinery::json::json;

    use super::*;

    fn version() -> Version {
        Version::compile(Some(&json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {
            "n": {"type": "number"}, "s": {"type": "string", "default": "d"},
            "r": {"type": "object", "x-kubernetes-embedded-resource": true, "x-kubernetes-preserve-unknown-fields": true}}}}})))
    }

    fn decoded(body: &str, validation: FieldValidation) -> Result<Decoded, DecodeError> {
        let gvk = GroupVersionKind::new("example.com", "v1", "Thing");
        decode(&version(), &gvk, body.as_bytes(), MediaType::Json, validation)
    }

    #[test]
    fn unknown_fields_go_with_a_word() {
        let body =
            r#"{"apiVersion":"example.com/v1","kind":"Thing","metadata":{"name":"x","odd":1},"spec":{"n":1e3,"u":1}}"#;
        let decoded = decoded(body, FieldValidation::Warn).unwrap();
        assert_eq!(decoded.value["spec"].to_string(), r#"{"n":1000}"#);
        assert_eq!(decoded.warnings, [r#"unknown field "metadata.odd""#, r#"unknown field "spec.u""#]);
        let strict = super::tests::decoded(body, FieldValidation::Strict).unwrap_err().message();
        assert!(strict.starts_with("strict decoding error: unknown field"), "{strict}");
    }

    #[test]
    fn what_is_no_object_of_the_version_is_refused() {
        let refused = |body: &str| decoded(body, FieldValidation::Ignore).unwrap_err().message();
        assert!(refused(r#"{"apiVersion":"example.com/v1"}"#).starts_with("Object 'Kind' is missing in"));
        assert!(refused(r#"{"kind":"Thing"}"#).contains("does not match the expected API version"));
        let wrong = r#"{"apiVersion":"example.com/v1","kind":"Thing","metadata":{"name":1}}"#;
        assert_eq!(refused(wrong), "json: cannot unmarshal number into Go struct field ObjectMeta.name of type string");
        let inside = r#"{"apiVersion":"example.com/v1","kind":"Thing","spec":{"r":{"kind":5}}}"#;
        assert_eq!(refused(inside), "spec.r.kind: Invalid value: 5: must be a string");
    }

    #[test]
    fn a_stored_object_loses_what_cannot_be_read_and_gets_defaults() {
        let mut stored = json!({"metadata": {"name": "x", "labels": 5}, "spec": {"gone": 1, "r": {"kind": 5}}});
        from_storage(&version(), &mut stored);
        assert_eq!(stored, json!({"metadata": {"name": "x"}, "spec": {"r": {}, "s": "d"}}));
    }
}
