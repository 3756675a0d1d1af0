//! Which policy or webhook set which fields of an object, so that a refusal by validation can name it.

use machinery::Status;
use machinery::json::Value;
use schema::managed::{Subject, Writer, track_update};

use super::plugin::Attributes;
use super::trace::difference;
use crate::body;
use crate::meta;

/// Most steps that are remembered for one request.
const STEPS_MAX: usize = 64;
/// Longest name in the name of a manager, which has at most 128 bytes.
const MANAGER_CHARS_MAX: usize = 100;
/// Most fields that are named in one refusal.
const NAMED_MAX: usize = 16;

/// The changes of one mutating phase. Most phases have none.
#[derive(Debug, Default)]
pub(crate) struct Changes {
    steps: Vec<Change>,
    /// Whether the steps become owners of what they set.
    owned: bool,
}

#[derive(Debug)]
struct Change {
    /// `webhook "a.example.com"`
    step: String,
    /// The fields, as validation writes them: `spec.containers[0].image`.
    paths: Vec<String>,
    /// The object before and after the step, where steps become owners.
    states: Option<(Value, Value)>,
}

impl Changes {
    /// With `owned`, the steps become owners of what they set.
    pub(crate) fn new(owned: bool) -> Self {
        Changes { steps: Vec::new(), owned }
    }

    /// Notes the change of one step.
    pub(crate) fn note(&mut self, step: String, before: &Value, after: &Value) {
        if self.steps.len() >= STEPS_MAX {
            return;
        }
        let patch = difference(before, after);
        let paths = patch.as_array().into_iter().flatten().filter(|operation| operation["op"] != "remove");
        let paths = paths.filter_map(|operation| operation["path"].as_str().map(|path| field_path(path, after)));
        let states = self.owned.then(|| (before.clone(), after.clone()));
        self.steps.push(Change { step, paths: paths.collect(), states });
    }

    /// Makes each step the manager of what it set: `admission:` and its name.
    pub(crate) fn own(&self, attributes: &Attributes<'_>, object: &mut Value, now: &str) -> Result<(), Status> {
        let kind = &attributes.target.kind;
        if !self.owned || self.steps.is_empty() || *attributes.kind() != kind.gvk {
            return Ok(());
        }
        let ty = body::type_of_kind(kind)?;
        let mut managers = object["metadata"]["managedFields"].clone();
        for change in &self.steps {
            let Some((before, after)) = &change.states else { continue };
            let (mut before, mut after) = (before.clone(), after.clone());
            meta::of_mut(&mut before).insert("managedFields", managers.clone());
            meta::of_mut(&mut after).insert("managedFields", managers);
            let manager = format!("admission:{}", name_in(&change.step));
            let subresource = attributes.subresource().unwrap_or_default();
            let writer = Writer { manager: &manager, subresource, time: now };
            track_update(&Subject::new(kind, &ty), Some(&before), &mut after, &writer);
            managers = after["metadata"]["managedFields"].clone();
        }
        meta::of_mut(object).insert("managedFields", managers);
        Ok(())
    }

    /// Adds a cause for each refused field that a step set.
    pub(crate) fn explain(&self, mut refusal: Status) -> Status {
        if self.steps.is_empty() {
            return refusal;
        }
        let causes = refusal.details.as_ref().map(|details| details.causes.clone()).unwrap_or_default();
        for cause in causes.iter().filter(|cause| !cause.field.is_empty()).take(NAMED_MAX) {
            let set = |change: &&Change| change.paths.iter().any(|path| is_within(&cause.field, path));
            if let Some(change) = self.steps.iter().rev().find(set) {
                let text = format!("{}: {} (set by {})", cause.field, cause.message, change.step);
                refusal = refusal.with_cause("", text, cause.field.clone());
            }
        }
        refusal
    }
}

/// The name in quotes in the text of a step, as short as the name of a manager must be.
fn name_in(step: &str) -> String {
    let name = step.split(['"', '\'']).nth(1).unwrap_or(step);
    name.chars().filter(|c| !c.is_control()).take(MANAGER_CHARS_MAX).collect()
}

/// Whether a field is the one that was set, or in it.
fn is_within(field: &str, set: &str) -> bool {
    field.strip_prefix(set).is_some_and(|rest| set.is_empty() || rest.is_empty() || rest.starts_with(['.', '[']))
}

/// A JSON pointer as validation writes paths; the object decides whether a number is an index.
fn field_path(pointer: &str, object: &Value) -> String {
    let mut path = String::new();
    let mut at = object.parsed().into_owned();
    for key in pointer.split('/').skip(1) {
        let key = key.replace("~1", "/").replace("~0", "~");
        let next = match &at {
            Value::Array(items) => {
                path.push_str(&format!("[{key}]"));
                key.parse::<usize>().ok().and_then(|at| items.get(at)).cloned()
            }
            other => {
                if !path.is_empty() {
                    path.push('.');
                }
                path.push_str(&key);
                other.get(key.as_str()).cloned()
            }
        };
        at = next.unwrap_or_default().parsed().into_owned();
    }
    path
}

#[cfg(test)]
mod tests {
    use machinery::json::json;
    use machinery::{FieldError, GroupResource};

    use super::*;

    #[test]
    fn bd_5_a_refused_field_names_the_step_that_set_it() {
        let mut changes = Changes::default();
        let before = json!({"spec": {"containers": [{"name": "a", "image": "i"}], "n": 1}});
        let after = json!({"spec": {"containers": [{"name": "a", "image": ""}], "n": 1, "x": {"y": 1}}});
        changes.note("webhook \"a.b.c\"".to_owned(), &before, &after);
        let errors = [
            FieldError::required("spec.containers[0].image", ""),
            FieldError::required("spec.x.y", ""),
            FieldError::required("spec.n", ""),
        ];
        let refusal = Status::invalid(&GroupResource::new("", "Pod"), "p", &errors);
        let causes = changes.explain(refusal).details.unwrap().causes;
        let texts: Vec<&str> = causes[3..].iter().map(|cause| cause.message.as_str()).collect();
        assert_eq!(
            texts,
            [
                "spec.containers[0].image: Required value (set by webhook \"a.b.c\")",
                "spec.x.y: Required value (set by webhook \"a.b.c\")",
            ]
        );
    }
}
