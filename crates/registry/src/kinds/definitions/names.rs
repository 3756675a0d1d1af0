//! The names of a definition that are free in its group, and the status that follows from them.

use std::borrow::Borrow;
use std::collections::HashSet;

use machinery::json::{Value, json};
use schema::custom::{Condition, Installed, Names};

use super::{MANAGER, status_of};
use crate::admission::plugin::{Attributes, Operation, Options};
use crate::meta;
use crate::registry::Registry;
use crate::request::Context;
use crate::write::update::{Author, rewrite};

/// Writes the status that the names of every definition lead to.
pub(super) async fn accept(registry: &Registry, ctx: &Context) {
    // One at a time, each after the others are accepted: the first has the name.
    loop {
        let all = registry.definitions().all();
        let mut wrote = false;
        for definition in &all {
            let Some(wanted) = wanted(definition, &all) else { continue };
            match write_status(registry, definition, &wanted, ctx).await {
                Ok(()) => {
                    wrote = true;
                    break;
                }
                // Deleted, or changed in between: the next change wakes this task.
                Err(refused) if refused.is_not_found() || refused.is_conflict() => {}
                Err(refused) => {
                    tracing::warn!(name = definition.name, %refused, "the names of a definition were not accepted");
                }
            }
        }
        if !wrote {
            return;
        }
    }
}

async fn write_status(
    registry: &Registry,
    definition: &Installed,
    wanted: &Wanted,
    ctx: &Context,
) -> Result<(), machinery::Status> {
    let target = status_of(registry, &definition.name)?;
    let author = Author::through(MANAGER, Some("status"));
    let now = meta::timestamp(registry.now());
    let attributes = Attributes::new(Operation::Update, &target, Options::None, ctx);
    let written = rewrite(registry, &attributes, &author, |old| {
        if meta::uid(old) != definition.uid {
            return Err(machinery::Status::not_found(&target.gr(), &definition.name));
        }
        let mut new = old.clone();
        new["status"]["acceptedNames"] = wanted.names.to_value();
        wanted.conditions.iter().for_each(|condition| set_condition(&mut new, condition, &now));
        Ok(new)
    });
    written.await.map(|_| ())
}

/// The names and conditions that a definition should have.
struct Wanted {
    names: Names,
    conditions: Vec<Condition>,
}

/// A condition that a definition should have.
pub(super) fn condition(kind: &str, status: &str, reason: &str, message: &str) -> Condition {
    Condition {
        kind: kind.to_owned(),
        status: status.to_owned(),
        reason: reason.to_owned(),
        message: message.to_owned(),
    }
}

/// Replaces the condition of the same type; its time stays if its status does.
pub(super) fn set_condition(definition: &mut Value, condition: &Condition, now: &str) {
    let conditions = &mut definition["status"]["conditions"];
    if !conditions.is_array() {
        *conditions = json!([]);
    }
    let Some(conditions) = conditions.as_array_mut() else { return };
    let mut new = json!({"type": condition.kind, "status": condition.status, "lastTransitionTime": now,
                         "reason": condition.reason, "message": condition.message});
    match conditions.iter_mut().find(|there| there["type"] == condition.kind.as_str()) {
        Some(there) => {
            if there["status"] == condition.status.as_str() {
                new["lastTransitionTime"] = there["lastTransitionTime"].clone();
            }
            *there = new;
        }
        None => conditions.push(new),
    }
}

/// The names and conditions that a definition should have, if they differ from what it has.
fn wanted(definition: &Installed, all: &[impl Borrow<Installed>]) -> Option<Wanted> {
    let (asked, accepted) = (&definition.asked, &definition.accepted);
    let settled = definition.condition("NamesAccepted").is_some() && definition.holds("Established");
    if asked == accepted && settled {
        return None;
    }
    let others = all
        .iter()
        .map(Borrow::borrow)
        .filter(|other: &&Installed| other.group == definition.group && other.name != definition.name);
    let (mut resources, mut kinds): (HashSet<&str>, HashSet<&str>) = Default::default();
    for Installed { accepted, .. } in others {
        resources.extend([accepted.plural.as_str(), &accepted.singular]);
        resources.extend(accepted.short_names.iter().map(String::as_str));
        kinds.extend([accepted.kind.as_str(), &accepted.list_kind]);
    }
    let mut names = accepted.clone();
    let mut conflict: Option<(&str, String)> = None;
    let mut claim = |reason: &'static str, asked: &str, has: &mut String, taken: &HashSet<&str>| {
        if asked == has || asked.is_empty() || !taken.contains(asked) {
            asked.clone_into(has);
        } else {
            conflict = Some((reason, in_use(asked)));
        }
    };
    claim("PluralConflict", &asked.plural, &mut names.plural, &resources);
    claim("SingularConflict", &asked.singular, &mut names.singular, &resources);
    let own: HashSet<&String> = accepted.short_names.iter().collect();
    let is_taken = |name: &&String| !own.contains(name) && resources.contains(name.as_str());
    let clashes: Vec<String> = asked.short_names.iter().filter(is_taken).map(|name| in_use(name)).collect();
    let short_names = match clashes.as_slice() {
        [] => {
            names.short_names.clone_from(&asked.short_names);
            None
        }
        [one] => Some(one.clone()),
        many => Some(format!("[{}]", many.join(", "))),
    };
    // The last of several conflicts is reported, in this order.
    let mut kind_conflict: Option<(&str, String)> = None;
    let mut claim_kind = |reason: &'static str, asked: &str, has: &mut String| {
        if asked == has || asked.is_empty() || !kinds.contains(asked) {
            asked.clone_into(has);
        } else {
            kind_conflict = Some((reason, in_use(asked)));
        }
    };
    claim_kind("KindConflict", &asked.kind, &mut names.kind);
    claim_kind("ListKindConflict", &asked.list_kind, &mut names.list_kind);
    let conflict = kind_conflict.or(short_names.map(|message| ("ShortNamesConflict", message))).or(conflict);
    names.categories.clone_from(&asked.categories);

    let mut conditions = Vec::new();
    match &conflict {
        Some((reason, message)) => {
            conditions.push(condition("NamesAccepted", "False", reason, message));
            if definition.condition("Established").is_none() {
                conditions.push(condition("Established", "False", "NotAccepted", "not all names are accepted"));
            }
        }
        None => {
            conditions.push(condition("NamesAccepted", "True", "NoConflicts", "no conflicts found"));
            if !definition.holds("Established") {
                let message = "the initial names have been accepted";
                conditions.push(condition("Established", "True", "InitialNamesAccepted", message));
            }
        }
    }
    let same = names == *accepted && conditions.iter().all(|new| definition.condition(&new.kind) == Some(new));
    (!same).then_some(Wanted { names, conditions })
}

fn in_use(name: &str) -> String {
    format!("{} is already in use", machinery::go_text::quote(name))
}

#[cfg(test)]
mod tests {
    use machinery::Revision;

    use super::*;

    fn definition(name: &str, kind: &str, accepted: bool) -> Installed {
        let names =
            json!({"plural": name, "singular": kind.to_lowercase(), "kind": kind, "listKind": format!("{kind}List")});
        let mut value = json!({"metadata": {"name": format!("{name}.example.com")},
            "spec": {"group": "example.com", "names": names}, "status": {"acceptedNames": {"plural": "", "kind": ""}}});
        if accepted {
            let wanted = wanted(&installed(&value), &[] as &[Installed]).unwrap();
            value["status"]["acceptedNames"] = wanted.names.to_value();
            wanted.conditions.iter().for_each(|condition| set_condition(&mut value, condition, "now"));
        }
        installed(&value)
    }

    fn installed(value: &Value) -> Installed {
        schema::custom::installed::install(&value.to_string().into(), Revision(1), None).unwrap()
    }

    #[test]
    fn free_names_are_accepted_once() {
        let first = definition("things", "Thing", true);
        assert!(first.holds("NamesAccepted") && first.holds("Established"));
        assert_eq!(first.accepted, first.asked);
        assert!(wanted(&first, std::slice::from_ref(&first)).is_none());
    }

    #[test]
    fn a_name_that_is_taken_in_the_group_is_refused() {
        let all = [definition("things", "Thing", true), definition("others", "Thing", false)];
        let wanted = wanted(&all[1], &all).unwrap();
        assert_eq!(wanted.names.to_value(), json!({"plural": "others", "kind": ""}));
        let reasons: Vec<&str> = wanted.conditions.iter().map(|condition| condition.reason.as_str()).collect();
        assert_eq!(reasons, ["ListKindConflict", "NotAccepted"]);
    }
}
