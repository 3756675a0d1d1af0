//! Decodes request bodies like kube-apiserver.
//!
//! - [`json`]: JSON text, with the errors of Go (`machinery` reads YAML)
//! - `coerce`: normalisation, like decoding into the Go structs of Kubernetes
//! - `time`, `base64`: scalars with a canonical form

mod base64;
pub(crate) mod coerce;
pub mod json;
pub(crate) mod registered;
pub(crate) mod time;

use machinery::go_json::json_kind;
use machinery::json::Value;
use machinery::{GroupVersion, GroupVersionKind, Status, yaml};

use crate::facts::Type;
use crate::protobuf;
use coerce::Words;

pub use machinery::media::MediaType;
pub use machinery::options::FieldValidation;

/// A decoded object in normal form.
#[derive(Debug)]
pub struct Decoded {
    pub value: Value,
    /// Texts for `Warning` headers.
    pub warnings: Vec<String>,
}

/// The reason why a body cannot be decoded. All variants are client errors (400).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DecodeError {
    /// The kind could not be read.
    Unrecognized { message: String },
    /// The body is malformed for the kind that it names.
    Malformed { found: GroupVersionKind, message: String },
    /// The body is of another API version.
    Version { found: GroupVersion, expected: GroupVersion },
}

impl DecodeError {
    /// Returns the error text without the expected kind, as for DELETE.
    #[must_use]
    pub fn message(&self) -> String {
        match self {
            DecodeError::Unrecognized { message } | DecodeError::Malformed { message, .. } => message.clone(),
            DecodeError::Version { found, expected } => {
                format!("the API version in the data ({found}) does not match the expected API version ({expected})")
            }
        }
    }

    /// Returns the status for a POST or PUT of `body` where an object of `kind` was expected.
    #[must_use]
    pub fn to_status(&self, kind: &str, body: &[u8]) -> Status {
        let message = self.message();
        Status::bad_request(match self {
            DecodeError::Unrecognized { .. } => {
                format!("the object provided is unrecognized (must be of type {kind}): {message} ({})", summary(body))
            }
            DecodeError::Malformed { found, .. } => {
                format!("{} in version {:?} cannot be handled as a {kind}: {message}", found.kind, found.version)
            }
            DecodeError::Version { .. } => message,
        })
    }
}

/// Returns the start of a body: as text if it looks like JSON, otherwise in hexadecimal.
fn summary(body: &[u8]) -> String {
    const LENGTH: usize = 30;
    let start = &body[..body.len().min(LENGTH)];
    let dots = if body.len() > LENGTH { " ..." } else { "" };
    match body.first() {
        None => "<empty>".to_owned(),
        Some(b'{') => format!("{}{dots}", String::from_utf8_lossy(start)),
        Some(_) => {
            let hex: String = start.iter().map(|byte| format!("{byte:02x}")).collect();
            format!("{hex}{dots}")
        }
    }
}

/// A parsed body with its duplicate keys.
pub(crate) struct Parsed {
    pub(crate) value: Value,
    /// `duplicate field "data.k"`, or the YAML parser's words; in order.
    pub(crate) duplicates: Vec<String>,
    /// In YAML the duplicates are one error of several lines.
    pub(crate) yaml: bool,
}

/// A member of a body that stands in another object already, in its normal form.
#[derive(Clone, Copy)]
pub struct KnownMember<'a> {
    pub name: &'a str,
    /// Where its value stands in the body: a text that was decoded before without a complaint.
    pub from: usize,
    pub to: usize,
    /// The object that has the member.
    pub of: &'a Value,
}

impl KnownMember<'_> {
    /// The document with the known member put in its place, unread. None where only the whole text can tell what is in it.
    fn put_into(&self, body: &[u8]) -> Option<json::Document> {
        let known = self.of.get(self.name)?;
        let rest = [body.get(..self.from)?, b"null", body.get(self.to..)?].concat();
        let mut document = json::parse(&rest).ok()?;
        let place = document.value.get_mut(self.name).filter(|value| value.is_null())?;
        *place = known.clone();
        Some(document)
    }
}

/// Parses a document. `known` is a member whose text need not be parsed again.
pub(crate) fn parse(
    body: &[u8],
    media: MediaType,
    wants_duplicates: bool,
    known: Option<KnownMember<'_>>,
) -> Result<Parsed, String> {
    match media {
        MediaType::Json => {
            let document = match known.and_then(|known| known.put_into(body)) {
                Some(document) => document,
                None => json::parse(body)
                    .map_err(|error| format!("couldn't get version/kind; json parse error: {error}"))?,
            };
            let duplicates =
                if document.has_duplicates && wants_duplicates { json::duplicates(body) } else { Vec::new() };
            let duplicates = duplicates.iter().map(|path| format!("duplicate field {path:?}")).collect();
            Ok(Parsed { value: document.value, duplicates, yaml: false })
        }
        MediaType::Protobuf => Err("protobuf is no text".to_owned()),
        MediaType::Yaml => {
            let mut document = yaml::read(body)?;
            // The reference turns YAML into JSON first, which sorts it: what comes first is refused first.
            document.value.sort_all_objects();
            Ok(Parsed { value: document.value, duplicates: document.duplicates, yaml: true })
        }
    }
}

/// Decodes the body of a POST or PUT for an endpoint that speaks `gvk`, whose type is `ty`.
///
/// The object comes out with kind and apiVersion, in its normal form: see [`normalise`]. Defaults are not applied. `known`
/// is a member that is in its normal form already and need not be decoded again.
pub fn decode(
    ty: &Type,
    gvk: &GroupVersionKind,
    body: &[u8],
    media: MediaType,
    validation: FieldValidation,
    known: Option<KnownMember<'_>>,
) -> Result<Decoded, DecodeError> {
    if media == MediaType::Protobuf {
        return from_protobuf(ty, gvk, body);
    }
    let strict = validation != FieldValidation::Ignore;
    let parsed = parse(body, media, strict, known).map_err(|message| DecodeError::Unrecognized { message })?;
    let mut value = parsed.value;
    let found = kind_of(&value, gvk)?;
    if found != *gvk {
        return Err(other_kind(found, gvk));
    }
    let findings = coerce::coerce(ty, &mut value, known.map(|known| known.of), Words::Json)
        .map_err(|message| DecodeError::Malformed { found: found.clone(), message })?;
    name(&mut value, gvk);
    let mut warnings = Vec::new();
    if strict && (!parsed.duplicates.is_empty() || !findings.unknown.is_empty()) {
        if parsed.yaml && validation != FieldValidation::Strict {
            // Each line of the YAML parser is a warning of its own.
            warnings = parsed.duplicates;
            warnings.extend(findings.unknown.iter().map(|path| format!("unknown field {path:?}")));
            return Ok(Decoded { value, warnings });
        }
        let complaints = complaints(body, parsed.duplicates, parsed.yaml, &findings.unknown);
        if validation == FieldValidation::Strict {
            let message = format!("strict decoding error: {}", complaints.join(", "));
            return Err(DecodeError::Malformed { found, message });
        }
        // A header cannot carry line breaks.
        warnings = complaints.into_iter().filter(|text| !text.contains('\n')).collect();
    }
    Ok(Decoded { value, warnings })
}

/// The kind is outside of the message, and a message has neither unknown nor duplicate fields.
fn from_protobuf(ty: &Type, gvk: &GroupVersionKind, body: &[u8]) -> Result<Decoded, DecodeError> {
    let opened = protobuf::open(body).map_err(|message| DecodeError::Unrecognized { message })?;
    let found = kind_named(opened.api_version, opened.kind, gvk)?;
    if found != *gvk {
        return Err(other_kind(found, gvk));
    }
    let read = protobuf::read(ty, opened.raw)
        .and_then(|mut value| coerce::coerce(ty, &mut value, None, Words::Json).map(|_| value));
    let mut value = read.map_err(|message| DecodeError::Malformed { found, message })?;
    name(&mut value, gvk);
    Ok(Decoded { value, warnings: Vec::new() })
}

/// Merges duplicate and unknown fields into one list, in the order of the document.
pub(crate) fn complaints(body: &[u8], duplicates: Vec<String>, yaml: bool, unknown: &[String]) -> Vec<String> {
    let mut unknown: Vec<String> = unknown.iter().map(|path| format!("unknown field {path:?}")).collect();
    if yaml {
        let mut all = Vec::new();
        if !duplicates.is_empty() {
            all.push(format!("yaml: unmarshal errors:\n  {}", duplicates.join("\n  ")));
        }
        all.append(&mut unknown);
        return all;
    }
    if duplicates.is_empty() {
        return unknown;
    }
    // Both at once are rare: a third pass over the text gives their common order.
    let all: Vec<String> = duplicates.into_iter().chain(unknown).collect();
    let path =
        |complaint: &'_ String| complaint.split_once('"').map_or("", |(_, rest)| rest.trim_end_matches('"')).to_owned();
    let paths: Vec<String> = all.iter().map(path).collect();
    let positions = json::key_positions(body, &paths);
    let mut all: Vec<(usize, String)> = all
        .into_iter()
        .zip(positions)
        .map(|(complaint, [first, second])| {
            let is_second = complaint.starts_with("duplicate") && second < usize::MAX;
            (if is_second { second } else { first }, complaint)
        })
        .collect();
    all.sort_by_key(|(position, _)| *position);
    all.truncate(json::COMPLAINTS_MAX);
    all.into_iter().map(|(_, complaint)| complaint).collect()
}

/// Returns the kind that a document names; missing parts are those of the endpoint.
pub(crate) fn kind_of(value: &Value, gvk: &GroupVersionKind) -> Result<GroupVersionKind, DecodeError> {
    const TARGET: &str =
        r#"struct { APIVersion string "json:\"apiVersion,omitempty\""; Kind string "json:\"kind,omitempty\"" }"#;
    let refuse = |message: String| {
        Err(DecodeError::Unrecognized { message: format!("couldn't get version/kind; json parse error: {message}") })
    };
    if !value.is_object() && !value.is_null() {
        let word = json_kind(value);
        return refuse(format!("json: cannot unmarshal {word} into Go value of type {TARGET}"));
    }
    let mut texts = ["", ""];
    for (text, key) in texts.iter_mut().zip(["apiVersion", "kind"]) {
        match value.get(key) {
            None | Some(Value::Null) => {}
            Some(Value::String(found)) => *text = found,
            Some(other) => {
                let word = json_kind(other);
                return refuse(format!("json: cannot unmarshal {word} into Go struct field .{key} of type string"));
            }
        }
    }
    let [api_version, kind] = texts;
    kind_named(api_version, kind, gvk)
}

/// As [`kind_of`], of the names themselves.
fn kind_named(api_version: &str, kind: &str, gvk: &GroupVersionKind) -> Result<GroupVersionKind, DecodeError> {
    let Some(version) = GroupVersion::parse(api_version) else {
        return Err(DecodeError::Unrecognized { message: format!("unexpected GroupVersion string: {api_version}") });
    };
    let version = if api_version.is_empty() { gvk.group_version() } else { version };
    let kind = if kind.is_empty() { &*gvk.kind } else { kind };
    Ok(GroupVersionKind::new(version.group, version.version, kind))
}

fn other_kind(found: GroupVersionKind, expected: &GroupVersionKind) -> DecodeError {
    if found.kind == expected.kind && registered::knows(&found) {
        return DecodeError::Version { found: found.group_version(), expected: expected.group_version() };
    }
    let message = not_that_kind(&found, expected);
    DecodeError::Malformed { found, message }
}

/// Returns the error for an object of another kind.
pub(crate) fn not_that_kind(found: &GroupVersionKind, expected: &GroupVersionKind) -> String {
    if registered::knows(found) {
        let package = match &*expected.group {
            "" => "core",
            group => group.split('.').next().unwrap_or(group),
        };
        format!("converting ({}.{}) to ({package}.{}): unknown conversion", found.version, found.kind, expected.kind)
    } else {
        let version = found.group_version();
        format!(
            "no kind {:?} is registered for version {:?} in scheme \"pkg/api/legacyscheme/scheme.go:30\"",
            found.kind,
            version.to_string()
        )
    }
}

/// Inserts kind and apiVersion as the first members.
pub(crate) fn name(value: &mut Value, gvk: &GroupVersionKind) {
    let Value::Object(map) = value else { return };
    let version = gvk.group_version().to_string();
    if map.get("kind").is_some_and(|k| *k == *gvk.kind) && map.get("apiVersion").is_some_and(|v| *v == version) {
        return;
    }
    map.shift_insert(0, "kind", Value::from(&gvk.kind));
    map.shift_insert(1, "apiVersion", Value::from(version));
}

/// Brings an object into the form in which the reference would write it, in place: fields in the order of the wire,
/// nothing that is left out when empty, everything that is always shown, one form for quantities and times.
///
/// `known` is in its normal form: parts that are the same memory in both are not looked at. The error is the words of a
/// decoder about a value of the wrong type. Unknown fields are dropped; their paths are returned.
pub fn normalise(ty: &Type, value: &mut Value, known: Option<&Value>) -> Result<Vec<String>, String> {
    coerce::coerce(ty, value, known, Words::Json).map(|findings| findings.unknown)
}

/// Makes empty lists and maps that are always shown null, where the reference's storage cannot tell them apart.
///
/// Ownership still sees the difference, so [`crate::managed::track_update`] does this last. What is the same memory as in
/// `known`, a stored state, is not looked at.
pub fn forget_empty(ty: &Type, value: &mut Value, known: Option<&Value>) {
    coerce::forget_empty(ty, value, known);
}

#[cfg(test)]
mod tests;
