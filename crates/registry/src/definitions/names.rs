//! Whether the names of a definition are free in its group, and what its status says about that.

use std::collections::HashSet;

use machinery::json::{Value, json};

use super::MANAGER;
use crate::meta;
use crate::registry::Registry;
use crate::request::Context;
use crate::update::Author;

impl Registry {
    /// Brings the status of every definition up to what its names deserve.
    pub(super) async fn accept_names(&self, ctx: &Context) {
        // One at a time, each on what the others have by then: whoever comes first has the name.
        loop {
            let mut wrote = false;
            let all = self.definitions();
            for (item, definition) in &all {
                let Some(status) = wanted(definition, &all.iter().map(|(_, d)| d).collect::<Vec<_>>(), &self.stamp())
                else {
                    continue;
                };
                match self.write_status(item.name(), meta::uid(definition), &status, ctx).await {
                    Ok(()) => wrote = true,
                    // Deleted, or changed in between: the next change wakes us.
                    Err(refused) if matches!(refused.code, 404 | 409) => {}
                    Err(refused) => {
                        tracing::warn!(name = item.name(), %refused, "the names of a definition were not accepted");
                    }
                }
                if wrote {
                    break;
                }
            }
            if !wrote {
                return;
            }
        }
    }

    fn stamp(&self) -> String {
        meta::timestamp(self.now())
    }

    async fn write_status(
        &self,
        name: &str,
        uid: &str,
        wanted: &Status,
        ctx: &Context,
    ) -> Result<(), machinery::Status> {
        let target = self.definition_target(name)?;
        let author = Author::through(MANAGER, Some("status"));
        let written = self.rewrite(&target, false, |old| {
            if meta::uid(old) != uid {
                return Err(machinery::Status::not_found(&target.gr(), name));
            }
            let mut new = old.clone();
            new["status"]["acceptedNames"] = wanted.names.clone();
            for condition in &wanted.conditions {
                set_condition(&mut new, condition);
            }
            self.revise(&target, old, new, &author, ctx)
        });
        written.await.map(|_| ())
    }
}

struct Status {
    names: Value,
    conditions: Vec<Value>,
}

/// A condition that a definition ought to have.
pub(super) fn condition(kind: &str, status: &str, reason: &str, message: &str, now: &str) -> Value {
    json!({"type": kind, "status": status, "lastTransitionTime": now, "reason": reason, "message": message})
}

/// Puts a condition in the place of the one of its type; its time stays if its status does.
pub(super) fn set_condition(definition: &mut Value, condition: &Value) {
    let conditions = &mut definition["status"]["conditions"];
    if !conditions.is_array() {
        *conditions = json!([]);
    }
    let Some(conditions) = conditions.as_array_mut() else { return };
    match conditions.iter_mut().find(|there| there["type"] == condition["type"]) {
        Some(there) => {
            let time = there["lastTransitionTime"].clone();
            let same = there["status"] == condition["status"];
            *there = condition.clone();
            if same {
                there["lastTransitionTime"] = time;
            }
        }
        None => conditions.push(condition.clone()),
    }
}

pub(super) fn find<'a>(definition: &'a Value, kind: &str) -> Option<&'a Value> {
    definition["status"]["conditions"].as_array()?.iter().find(|condition| condition["type"] == kind)
}

pub(super) fn holds(definition: &Value, kind: &str) -> bool {
    find(definition, kind).is_some_and(|condition| condition["status"] == "True")
}

/// The status a definition should have, if it has another.
fn wanted(definition: &Value, all: &[&Value], now: &str) -> Option<Status> {
    let (asked, accepted) = (&definition["spec"]["names"], &definition["status"]["acceptedNames"]);
    let settled = find(definition, "NamesAccepted").is_some() && holds(definition, "Established");
    if asked == accepted && settled {
        return None;
    }
    let others = all.iter().filter(|other| {
        other["spec"]["group"] == definition["spec"]["group"]
            && other["metadata"]["name"] != definition["metadata"]["name"]
    });
    let (mut resources, mut kinds) = (HashSet::new(), HashSet::new());
    for other in others {
        let names = &other["status"]["acceptedNames"];
        let words = |member: &str| names[member].as_str().filter(|word| !word.is_empty());
        resources.extend(["plural", "singular"].into_iter().filter_map(words));
        resources.extend(names["shortNames"].as_array().into_iter().flatten().filter_map(Value::as_str));
        kinds.extend(["kind", "listKind"].into_iter().filter_map(words));
    }
    let mut names = accepted.clone();
    if !names.is_object() {
        names = json!({});
    }
    let mut conflict: Option<(&str, String)> = None;
    for (member, reason, taken) in [
        ("plural", "PluralConflict", &resources),
        ("singular", "SingularConflict", &resources),
        ("shortNames", "ShortNamesConflict", &resources),
        ("kind", "KindConflict", &kinds),
        ("listKind", "ListKindConflict", &kinds),
    ] {
        let (wish, has) = (&asked[member], &accepted[member]);
        if wish == has {
            continue;
        }
        let ours: Vec<&str> = words(has);
        let clashes: Vec<String> = words(wish)
            .into_iter()
            .filter(|word| !ours.contains(word) && taken.contains(word))
            .map(|word| format!("{} is already in use", machinery::go_text::quote(word)))
            .collect();
        match clashes.as_slice() {
            [] => {
                if let Some(names) = names.as_object_mut() {
                    match wish {
                        Value::Null => names.shift_remove(member),
                        wish => names.insert(member, wish.clone()),
                    };
                }
            }
            [one] => conflict = Some((reason, one.clone())),
            many => conflict = Some((reason, format!("[{}]", many.join(", ")))),
        }
    }
    if let Some(names) = names.as_object_mut() {
        match &asked["categories"] {
            Value::Null => names.shift_remove("categories"),
            categories => names.insert("categories", categories.clone()),
        };
    }
    let mut conditions = Vec::new();
    let established = holds(definition, "Established");
    match &conflict {
        Some((reason, message)) => {
            conditions.push(condition("NamesAccepted", "False", reason, message, now));
            if find(definition, "Established").is_none() {
                conditions.push(condition("Established", "False", "NotAccepted", "not all names are accepted", now));
            }
        }
        None => {
            conditions.push(condition("NamesAccepted", "True", "NoConflicts", "no conflicts found", now));
            if !established {
                let message = "the initial names have been accepted";
                conditions.push(condition("Established", "True", "InitialNamesAccepted", message, now));
            }
        }
    }
    let same_names = names == *accepted;
    let same_conditions = conditions.iter().all(|new| {
        find(definition, new["type"].as_str().unwrap_or_default())
            .is_some_and(|there| ["status", "reason", "message"].iter().all(|member| there[*member] == new[*member]))
    });
    (!(same_names && same_conditions)).then_some(Status { names, conditions })
}

fn words(value: &Value) -> Vec<&str> {
    match value {
        Value::String(word) => vec![word.as_str()],
        Value::Array(words) => words.iter().filter_map(Value::as_str).collect(),
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn definition(name: &str, kind: &str, accepted: bool) -> Value {
        let names =
            json!({"plural": name, "singular": kind.to_lowercase(), "kind": kind, "listKind": format!("{kind}List")});
        let mut definition = json!({"metadata": {"name": format!("{name}.example.com")},
            "spec": {"group": "example.com", "names": names}, "status": {"acceptedNames": {"plural": "", "kind": ""}}});
        if accepted {
            let status = wanted(&definition, &[], "now").unwrap();
            definition["status"]["acceptedNames"] = status.names;
            status.conditions.iter().for_each(|condition| set_condition(&mut definition, condition));
        }
        definition
    }

    #[test]
    fn free_names_are_accepted_once() {
        let first = definition("things", "Thing", true);
        assert!(holds(&first, "NamesAccepted") && holds(&first, "Established"));
        assert_eq!(first["status"]["acceptedNames"], first["spec"]["names"]);
        assert!(wanted(&first, &[&first], "later").is_none());
    }

    #[test]
    fn a_name_that_is_taken_in_the_group_is_refused() {
        let first = definition("things", "Thing", true);
        let second = definition("others", "Thing", false);
        let status = wanted(&second, &[&first, &second], "now").unwrap();
        assert_eq!(status.names, json!({"plural": "others", "kind": ""}));
        let reasons: Vec<&str> =
            status.conditions.iter().filter_map(|condition| condition["reason"].as_str()).collect();
        assert_eq!(reasons, ["ListKindConflict", "NotAccepted"]);
    }
}
