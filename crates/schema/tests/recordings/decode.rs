//! Decoding does not change recorded responses, and fails with the recorded error texts.

use machinery::json::Value;
use machinery::{GroupVersion, GroupVersionKind};
use schema::decode::{self, FieldValidation, MediaType};
use schema::facts::Types;

use crate::{scenarios, steps, text};

/// Replaces placeholders of recorded times and ports.
pub(crate) fn with_times(value: &mut Value) {
    match value {
        Value::String(text) if text == "$TIME" => *text = "2024-01-02T03:04:05Z".into(),
        Value::String(text) if text.starts_with('$') && text.to_lowercase().contains("port") => *value = 30000.into(),
        Value::Array(items) => items.iter_mut().for_each(with_times),
        Value::Object(map) => {
            for (key, value) in map.iter_mut() {
                let is_micro = matches!(key.as_str(), "eventTime" | "lastObservedTime" | "renewTime" | "acquireTime");
                if is_micro && *value == "$TIME" {
                    *value = "2024-01-02T03:04:05.000000Z".into();
                }
                with_times(value);
            }
        }
        _ => {}
    }
}

fn gvk(object: &Value) -> Option<GroupVersionKind> {
    let version = GroupVersion::parse(object["apiVersion"].as_str()?)?;
    Some(GroupVersionKind::new(version.group, version.version, object["kind"].as_str()?))
}

/// Returns the first difference between two values.
pub(crate) fn difference(left: &Value, right: &Value) -> String {
    match (left, right) {
        (Value::Object(l), Value::Object(r)) => {
            let keys = l.keys().chain(r.keys());
            let at = keys.filter(|key| l.get(key) != r.get(key)).min();
            at.map_or(String::new(), |key| format!(".{key}{}", difference(&left[key], &right[key])))
        }
        (Value::Array(l), Value::Array(r)) if l.len() == r.len() => {
            let at = (0..l.len()).find(|at| l[*at] != r[*at]).unwrap_or(0);
            format!("[{at}]{}", difference(&l[at], &r[at]))
        }
        _ => format!(": {left} is not {right}"),
    }
}

#[test]
fn answers_are_normal() {
    let mut compared = 0;
    let mut differences = Vec::new();
    for file in ["wire.json", "kinds.json", "patches.json"] {
        for scenario in scenarios(file) {
            for step in steps(&scenario) {
                let mut answer = step["answer"]["body"].clone();
                with_times(&mut answer);
                let Some(ty) = gvk(&answer).and_then(|gvk| Types::get().kind(&gvk)) else { continue };
                if answer.get("items").is_some() || text(&answer, "kind") == "Table" {
                    continue;
                }
                let mut normal = answer.clone();
                match decode::normalise(&ty, &mut normal, None) {
                    // A micro time whose digits are masked in the recording.
                    Err(error) if error.contains("as \\\".000000\\\"") || error.contains(".000000") => continue,
                    Err(error) => differences.push(format!("{}: {error}", text(&scenario, "name"))),
                    Ok(_) if normal != answer => {
                        differences.push(format!("{}: {}", text(&scenario, "name"), difference(&answer, &normal)));
                    }
                    Ok(_) => {}
                }
                compared += 1;
            }
        }
    }
    assert!(differences.is_empty(), "{} of {compared}:\n{}", differences.len(), differences.join("\n"));
}

#[test]
fn refusals_read_the_same() {
    let mut differences = Vec::new();
    for file in ["wire.json", "kinds.json"] {
        for scenario in scenarios(file) {
            for step in steps(&scenario) {
                let message = text(&step["answer"]["body"], "message");
                let kind = message.split(" cannot be handled as a ").nth(1).and_then(|rest| rest.split(':').next());
                let kind = kind.or_else(|| message.split("(must be of type ").nth(1)?.split(')').next());
                let Some(kind) = kind else { continue };
                let path: Vec<&str> = text(step, "path").split('/').collect();
                let gvk = match path.as_slice() {
                    [_, "api", version, ..] => GroupVersionKind::new("", *version, kind),
                    [_, "apis", group, version, ..] => GroupVersionKind::new(*group, *version, kind),
                    _ => continue,
                };
                let Some(ty) = Types::get().kind(&gvk) else { continue };
                let body = match step["body"].get("$raw") {
                    Some(raw) => raw.as_str().unwrap_or_default().to_owned(),
                    None if step["body"].is_null() => String::new(),
                    None => step["body"].to_string(),
                };
                let yaml = text(&step["headers"], "Content-Type") == "application/yaml";
                let media = if yaml { MediaType::Yaml } else { MediaType::Json };
                let strict = text(step, "path").contains("fieldValidation=Strict");
                let validation = if strict { FieldValidation::Strict } else { FieldValidation::Warn };
                let ours = match decode::decode(&ty, &gvk, body.as_bytes(), media, validation, None) {
                    Ok(_) => "(accepted)".to_owned(),
                    Err(error) => error.to_status(kind, body.as_bytes()).message.to_string(),
                };
                // The recording masks whole times, also inside of the layout.
                let hide = |text: &str| {
                    text.replace("2006-01-02T15:04:05.000000Z", "$TIME")
                        .replace("2006-01-02T15:04:05Z", "$TIME")
                        .replace("2024-01-02T03:04:05Z", "$TIME")
                };
                if hide(&ours) != message {
                    differences.push(format!("{}:\n  {message}\n  {ours}", text(&scenario, "name")));
                }
            }
        }
    }
    assert!(differences.is_empty(), "{}:\n{}", differences.len(), differences.join("\n"));
}
