//! What each step of admission did with one request, for a user who wants to know who changed or refused an object.

use std::time::Duration;

use machinery::json::{Map, Value, json};
use parking_lot::Mutex;

/// Most steps that are kept of one request.
const STEPS_MAX: usize = 512;
/// Bytes of the patches and variables that are kept of one request. Each step could show the whole object again.
const BYTES_MAX: usize = 4 * 1024 * 1024;

/// Steps in the order in which they ended.
#[derive(Debug, Default)]
pub struct Trace(Mutex<Steps>);

#[derive(Debug, Default)]
struct Steps {
    list: Vec<Step>,
    bytes: usize,
}

/// One plugin, policy or webhook in one phase and round.
#[derive(Clone, Debug)]
pub struct Step {
    pub phase: Phase,
    /// 1, or 2 for the second round of the mutating phase.
    pub round: usize,
    /// `plugin`, `policy` or `webhook`.
    pub kind: &'static str,
    pub name: String,
    /// The configuration of a webhook, or the binding of a policy.
    pub of: String,
    pub verdict: Verdict,
    pub duration: Duration,
    /// The changes as a JSON patch; null without any.
    pub patch: Value,
    /// What the expressions of a policy cost, and the variables they used; null for others.
    pub about: Value,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    Mutate,
    Validate,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    Admitted,
    /// Does not apply, for this reason.
    Unmatched(String),
    /// Failed for this reason, which its failure policy ignores.
    Ignored(String),
    Refused(String),
}

impl Trace {
    /// Adds a step, without what it shows of the object once that has become too much.
    pub fn push(&self, mut step: Step) {
        let bytes: usize = [&step.patch, &step.about]
            .into_iter()
            .filter(|shown| !shown.is_null())
            .map(|shown| machinery::json::to_string(shown).len())
            .sum();
        let mut steps = self.0.lock();
        if steps.list.len() >= STEPS_MAX {
            return;
        }
        if steps.bytes + bytes > BYTES_MAX {
            // A step with a patch is shown as one that changed the object.
            if !step.patch.is_null() {
                step.patch = json!([]);
            }
            step.about = json!({"leftOut": format!("{bytes} bytes of patch and variables")});
        } else {
            steps.bytes += bytes;
        }
        steps.list.push(step);
    }

    /// The steps as JSON, as they are shown to users.
    #[must_use]
    pub fn to_value(&self) -> Value {
        self.0.lock().list.iter().map(Step::to_value).collect()
    }
}

impl Step {
    fn to_value(&self) -> Value {
        let mut members = Map::new();
        let phase = if self.phase == Phase::Mutate { "mutate" } else { "validate" };
        members.insert("phase", json!(phase));
        members.insert("round", json!(self.round));
        members.insert(self.kind, json!(self.name));
        if !self.of.is_empty() {
            members.insert(if self.kind == "webhook" { "configuration" } else { "binding" }, json!(self.of));
        }
        let (verdict, why) = match &self.verdict {
            Verdict::Admitted if self.patch.is_null() => ("admitted", None),
            Verdict::Admitted => ("changed", None),
            Verdict::Unmatched(why) => ("unmatched", Some(why)),
            Verdict::Ignored(why) => ("ignored", Some(why)),
            Verdict::Refused(why) => ("refused", Some(why)),
        };
        members.insert("verdict", json!(verdict));
        if let Some(why) = why {
            members.insert("why", json!(why));
        }
        members.insert("microseconds", json!(u64::try_from(self.duration.as_micros()).unwrap_or(u64::MAX)));
        if !self.patch.is_null() {
            members.insert("patch", self.patch.clone());
        }
        for (name, value) in self.about.as_object().into_iter().flatten() {
            members.insert(name.as_str(), value.clone());
        }
        Value::Object(members)
    }
}

/// Most operations of a difference; what differs beyond is one replacement of everything.
const OPERATIONS_MAX: usize = 200;

/// The JSON patch from one state of an object to another; null if they are equal.
#[must_use]
pub fn difference(before: &Value, after: &Value) -> Value {
    let mut operations = Vec::new();
    compare(&mut String::new(), &before.parsed(), &after.parsed(), &mut operations);
    if operations.is_empty() {
        return Value::Null;
    }
    if operations.len() > OPERATIONS_MAX {
        return json!([{"op": "replace", "path": "", "value": after}]);
    }
    Value::from(operations)
}

fn compare(path: &mut String, before: &Value, after: &Value, operations: &mut Vec<Value>) {
    if operations.len() > OPERATIONS_MAX || before == after {
        return;
    }
    let length = path.len();
    match (before, after) {
        (Value::Object(old), Value::Object(new)) => {
            for (name, value) in old {
                step(path, name.as_str());
                match new.get(name.as_str()) {
                    Some(after) => compare(path, &value.parsed(), &after.parsed(), operations),
                    None => operations.push(json!({"op": "remove", "path": path})),
                }
                path.truncate(length);
            }
            for (name, value) in new {
                if old.get(name.as_str()).is_none() {
                    step(path, name.as_str());
                    operations.push(json!({"op": "add", "path": path, "value": value}));
                    path.truncate(length);
                }
            }
        }
        (Value::Array(old), Value::Array(new)) => {
            for (at, (before, after)) in old.iter().zip(new.iter()).enumerate() {
                step(path, &at.to_string());
                compare(path, before, after, operations);
                path.truncate(length);
            }
            for at in (new.len()..old.len()).rev() {
                operations.push(json!({"op": "remove", "path": format!("{path}/{at}")}));
            }
            for (at, value) in new.iter().enumerate().skip(old.len()) {
                operations.push(json!({"op": "add", "path": format!("{path}/{at}"), "value": value}));
            }
        }
        _ => operations.push(json!({"op": "replace", "path": path, "value": after})),
    }
}

fn step(path: &mut String, key: &str) {
    path.push('/');
    path.push_str(&key.replace('~', "~0").replace('/', "~1"));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_difference_is_a_patch() {
        let before = json!({"a": 1, "b": {"c": [1, 2, 3]}, "d/e": 1});
        let after = json!({"a": 2, "b": {"c": [1, 5], "x": null}});
        let expected = json!([
            {"op": "replace", "path": "/a", "value": 2},
            {"op": "replace", "path": "/b/c/1", "value": 5},
            {"op": "remove", "path": "/b/c/2"},
            {"op": "add", "path": "/b/x", "value": null},
            {"op": "remove", "path": "/d~1e"},
        ]);
        assert_eq!(difference(&before, &after), expected);
        assert_eq!(difference(&before, &before), Value::Null);
        let many: Value = (0..1000).map(|n| json!(n)).collect();
        assert_eq!(difference(&json!([]), &many)[0]["op"], "replace", "one operation in place of many");
    }

    #[test]
    fn steps_show_what_they_did() {
        let trace = Trace::default();
        let step = Step {
            phase: Phase::Mutate,
            round: 2,
            kind: "webhook",
            name: "a.example.com".to_owned(),
            of: "conf".to_owned(),
            verdict: Verdict::Admitted,
            duration: Duration::from_micros(7),
            patch: json!([{"op": "remove", "path": "/a"}]),
            about: Value::Null,
        };
        trace.push(step.clone());
        trace.push(Step { verdict: Verdict::Refused("no".to_owned()), patch: Value::Null, ..step });
        let shown = trace.to_value();
        assert_eq!((&shown[0]["verdict"], &shown[0]["round"]), (&json!("changed"), &json!(2)));
        assert_eq!(shown[0]["configuration"], "conf");
        assert_eq!((&shown[1]["verdict"], &shown[1]["why"]), (&json!("refused"), &json!("no")));
    }

    #[test]
    fn what_steps_show_is_bounded() {
        let trace = Trace::default();
        let step = Step {
            phase: Phase::Mutate,
            round: 1,
            kind: "policy",
            name: "p".to_owned(),
            of: "b".to_owned(),
            verdict: Verdict::Admitted,
            duration: Duration::ZERO,
            patch: json!([{"op": "add", "path": "/a", "value": "x".repeat(BYTES_MAX / 4)}]),
            about: json!({"variables": {"v": "x".repeat(BYTES_MAX / 4)}}),
        };
        for _ in 0..100 {
            trace.push(step.clone());
        }
        let shown = trace.to_value();
        assert!(machinery::json::to_string(&shown).len() < BYTES_MAX + 100 * 200);
        let last = &shown[99];
        assert_eq!((&last["verdict"], &last["patch"]), (&json!("changed"), &json!([])));
        assert!(last["leftOut"].as_str().is_some_and(|text| text.ends_with("bytes of patch and variables")));
    }
}
