//! An object and all that it owns over time, from the changes that a lab has recorded: who wrote what after what.
//!
//! The cause of a write is a guess: the newest change of the tree that a watch had sent to its writer before it wrote.

use std::collections::{HashMap, HashSet};
use std::fmt;

use machinery::json::Value;

/// Writes of one client to one object, of the same fields, after which they are marked as a loop.
const LOOP_WRITES: usize = 10;

/// One write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// As RFC 3339 has it.
    pub time: String,
    pub revision: u64,
    /// `ADDED`, `MODIFIED` or `DELETED`.
    pub kind: String,
    /// `Deployment/web`
    pub object: String,
    /// How deep it is owned.
    pub depth: usize,
    /// The field manager, else the user agent.
    pub writer: String,
    /// The fields that changed, in short.
    pub fields: String,
    /// The revision and the object that the writer had been sent last.
    pub cause: Option<(u64, String)>,
    /// Its client writes the same fields again and again.
    pub is_loop: bool,
}

/// The writes of an object and of all that it owns, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Timeline(pub Vec<Step>);

impl Timeline {
    /// The writes among these changes, each the status of a Change, of the objects for which `is_root` holds and of all that they own.
    pub(crate) fn of(changes: &[&Value], is_root: impl Fn(&Value) -> bool) -> Self {
        Timeline(steps(changes, is_root))
    }
}

/// One line for each write.
impl fmt::Display for Timeline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for step in &self.0 {
            let clock = step.time.get(11..23).unwrap_or(&step.time);
            let indent = "  ".repeat(step.depth);
            write!(f, "{clock}  {:>6}  {indent}{} {}  by {}", step.revision, step.kind, step.object, step.writer)?;
            if !step.fields.is_empty() {
                write!(f, "  {}", step.fields)?;
            }
            if let Some((revision, object)) = &step.cause {
                write!(f, "  after {revision} {object}")?;
            }
            f.write_str(if step.is_loop { "  HOT LOOP\n" } else { "\n" })?;
        }
        Ok(())
    }
}

/// The changes of the objects for which `is_root` holds and of all that they own, in order.
fn steps(changes: &[&Value], is_root: impl Fn(&Value) -> bool) -> Vec<Step> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let mut depths: HashMap<String, usize> =
        changes.iter().filter(|change| is_root(change)).map(|change| (text(&change["uid"]), 0)).collect();
    // Until no more are found: an owner may be written after what it owns.
    loop {
        let known = depths.len();
        for change in changes {
            let owners = change["owners"].as_array().into_iter().flatten();
            let depth = owners.filter_map(|owner| depths.get(owner.as_str()?)).min().map(|depth| depth + 1);
            if let Some(depth) = depth {
                depths.entry(text(&change["uid"])).or_insert(depth);
            }
        }
        if depths.len() == known {
            break;
        }
    }
    let loops = loops(changes);
    let mut steps: Vec<Step> = Vec::new();
    for change in changes {
        let Some(depth) = depths.get(change["uid"].as_str().unwrap_or_default()) else { continue };
        let agent = text(&change["userAgent"]);
        let writer = [text(&change["manager"]), agent.clone(), "the server".to_owned()];
        let after = change["after"].as_u64().unwrap_or_default();
        let cause = steps.iter().rev().find(|step| step.revision <= after);
        steps.push(Step {
            time: text(&change["time"]),
            revision: change["revision"].as_u64().unwrap_or_default(),
            kind: text(&change["type"]),
            object: object(change),
            depth: *depth,
            writer: writer.into_iter().find(|name| !name.is_empty()).unwrap_or_default(),
            fields: text(&change["fields"]["summary"]),
            cause: cause.map(|step| (step.revision, step.object.clone())),
            is_loop: loops.contains(&(agent, object(change), text(&change["fields"]["summary"]))),
        });
    }
    steps
}

fn object(change: &Value) -> String {
    format!("{}/{}", change["kind"].as_str().unwrap_or_default(), change["name"].as_str().unwrap_or_default())
}

/// Clients that write the same fields of one object again and again.
fn loops(changes: &[&Value]) -> HashSet<(String, String, String)> {
    let mut writes: HashMap<(String, String, String), usize> = HashMap::new();
    for change in changes.iter().filter(|change| change["type"] == "MODIFIED") {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let writer = (text(&change["userAgent"]), object(change), text(&change["fields"]["summary"]));
        *writes.entry(writer).or_default() += 1;
    }
    writes.into_iter().filter(|(_, count)| *count > LOOP_WRITES).map(|(writer, _)| writer).collect()
}

#[cfg(test)]
mod tests {
    use machinery::json::json;

    use super::*;

    fn change(revision: u64, kind: &str, name: &str, owner: &str, after: u64) -> Value {
        json!({"time": "2026-01-01T10:00:00.123456Z", "revision": revision, "type": "ADDED", "kind": kind, "name": name,
            "uid": name, "owners": [owner], "manager": "controller", "after": after})
    }

    #[test]
    fn see_4_a_tree_has_what_is_owned_and_the_cause_of_each_write() {
        let all = [
            change(5, "Deployment", "web", "", 0),
            change(6, "ConfigMap", "other", "", 5),
            change(7, "Pod", "web-1-a", "web-1", 6),
            change(8, "ReplicaSet", "web-1", "web", 5),
        ];
        let all: Vec<&Value> = all.iter().collect();
        let steps = steps(&all, |change| change["kind"] == "Deployment" && change["name"] == "web");
        let seen: Vec<(u64, usize)> = steps.iter().map(|step| (step.revision, step.depth)).collect();
        assert_eq!(seen, [(5, 0), (7, 2), (8, 1)]);
        assert_eq!(steps[2].cause, Some((5, "Deployment/web".to_owned())));
        assert_eq!(steps[0].cause, None);
        let lines = Timeline(steps).to_string();
        assert!(
            lines.contains("10:00:00.123       8    ADDED ReplicaSet/web-1  by controller  after 5 Deployment/web"),
            "{lines}"
        );
    }

    #[test]
    fn see_4_a_loop_is_marked() {
        let written = json!({"type": "MODIFIED", "kind": "Deployment", "name": "web", "uid": "web", "revision": 1,
            "userAgent": "operator", "fields": {"summary": "~status.x"}});
        let all: Vec<&Value> = std::iter::repeat_n(&written, LOOP_WRITES + 1).collect();
        assert!(steps(&all, |_| true).iter().all(|step| step.is_loop));
        assert!(!steps(&all[1..], |_| true).iter().any(|step| step.is_loop));
    }
}
