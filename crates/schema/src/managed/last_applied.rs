//! Migration from client-side `kubectl apply` to server-side apply: an annotation holds the last applied configuration.

use machinery::go_text;
use machinery::json::{Map, Value};

use super::apply::still_as_stated;
use super::set::Set;
use super::update::Subject;

/// The manager for which the annotation is used.
pub(super) const MANAGER: &str = "kubectl";

const ANNOTATION: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// Most bytes of all annotations of an object together.
const ANNOTATIONS_BYTES_MAX: usize = 256 * 1024;

fn annotation(object: &Value) -> Option<&str> {
    let annotations = object.pointer("/metadata/annotations")?.as_object()?;
    annotations.get(ANNOTATION).and_then(Value::as_str).filter(|text| !text.is_empty())
}

/// Returns the fields that the client applied itself and that are unchanged since: taking them over is not a conflict.
pub(super) fn allowed(subject: &Subject<'_>, live: &Value) -> Option<Set> {
    let stated: Value = serde_json::from_str(annotation(live)?).ok()?;
    let version = subject.gvk.group_version().to_string();
    if stated.get("apiVersion").and_then(Value::as_str) != Some(version.as_str()) {
        return None;
    }
    still_as_stated(subject, live, &stated)
}

/// Updates the annotation, if there is one.
pub(super) fn rewrite(object: &mut Value, config: &Value) {
    if annotation(object).is_none() {
        return;
    }
    let mut stated = config.clone();
    if let Some(Value::Object(annotations)) = stated.pointer_mut("/metadata/annotations") {
        annotations.shift_remove(ANNOTATION);
    }
    stated.sort_all_objects();
    let text = format!("{}\n", go_text::json(&stated));
    let Some(Value::Object(annotations)) = object.pointer_mut("/metadata/annotations") else { return };
    annotations.insert(ANNOTATION, Value::from(text));
    if size(annotations) > ANNOTATIONS_BYTES_MAX {
        annotations.shift_remove(ANNOTATION);
    }
}

fn size(annotations: &Map) -> usize {
    annotations.iter().map(|(key, value)| key.len() + value.as_str().map_or(0, str::len)).sum()
}
