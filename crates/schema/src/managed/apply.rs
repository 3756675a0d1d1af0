//! Server-side apply: a manager states the fields it wants. Fields that it stated before and no longer states are removed; fields
//! that others own with another value are conflicts.

use std::collections::HashMap;

use machinery::go_json::json_kind;
use machinery::json::Value;
use machinery::{GroupVersion, GroupVersionKind, Status};

use super::check::check;
use super::compare::{compare, field_set};
use super::element::{Element, equal};
use super::entries::{self, Entry, Fields, Operation};
use super::last_applied;
use super::merge::{merge, remove};
use super::resets::Filter;
use super::set::Set;
use super::update::{Changes, Subject, Writer, annotate, empty, list, strip, take_over, update};
use crate::decode::coerce::{Words, coerce};
use crate::decode::{self, FieldValidation, forget_empty};

/// Manager of the fields that existed before the first apply.
const BEFORE_FIRST_APPLY: &str = "before-first-apply";

/// A field that another manager owns and has set to another value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conflict {
    /// As in messages: `"kubectl" using apps/v1`.
    pub manager: String,
    pub path: Vec<Element>,
}

/// The reason why a configuration was not applied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ApplyError {
    /// It is not a configuration of this kind (400).
    Malformed(String),
    /// The reference responds with 500 and the bare text.
    Unmapped(String),
    Conflicts(Vec<Conflict>),
}

impl ApplyError {
    #[must_use]
    pub fn to_status(&self) -> Status {
        match self {
            ApplyError::Malformed(message) => Status::bad_request(message.clone()),
            ApplyError::Unmapped(message) => Status::unmapped(message.clone()),
            ApplyError::Conflicts(conflicts) => {
                let pairs: Vec<(String, String)> = conflicts
                    .iter()
                    .map(|c| (c.manager.clone(), c.path.iter().map(ToString::to_string).collect()))
                    .collect();
                Status::apply_conflicts(&pairs)
            }
        }
    }
}

/// A configuration as a client sent it.
#[derive(Debug)]
pub struct Configuration {
    pub value: Value,
    duplicates: Vec<String>,
}

/// Parses the body of an apply: YAML, or JSON, which is YAML too.
pub fn read(body: &[u8]) -> Result<Configuration, ApplyError> {
    // JSON is parsed much faster as JSON, with the same result unless a key is duplicate.
    let as_json = decode::json::parse(body).ok().filter(|document| !document.has_duplicates);
    let (value, duplicates) = match as_json {
        Some(document) => (document.value, Vec::new()),
        None => {
            let document = machinery::yaml::read(body).map_err(|error| {
                ApplyError::Malformed(format!("error decoding YAML: error converting YAML to JSON: {error}"))
            })?;
            (document.value, document.duplicates)
        }
    };
    if !value.is_object() && !value.is_null() {
        let word = json_kind(&value);
        return Err(ApplyError::Malformed(format!(
            "error decoding YAML: error unmarshaling JSON: while decoding JSON: json: cannot unmarshal {word} into Go value of type map[string]interface {{}}"
        )));
    }
    Ok(Configuration { value, duplicates })
}

impl Configuration {
    /// Returns the warnings, or the error, about duplicate keys. Called after the apply itself has succeeded.
    pub fn warnings(self, validation: FieldValidation) -> Result<Vec<String>, ApplyError> {
        match validation {
            FieldValidation::Strict if !self.duplicates.is_empty() => Err(ApplyError::Malformed(format!(
                "error strict decoding YAML: error converting YAML to JSON: yaml: unmarshal errors:\n  {}",
                self.duplicates.join("\n  ")
            ))),
            FieldValidation::Warn | FieldValidation::Unstated => Ok(self.duplicates),
            _ => Ok(Vec::new()),
        }
    }
}

/// Applies a configuration to the stored object, or to nothing.
///
/// The result is in its normal form and has its managedFields. The caller sets defaults and then calls
/// [`super::keep_times_if_unchanged`], because an apply that changes nothing is not a write.
pub fn apply(
    subject: &Subject<'_>,
    live: Option<&Value>,
    config: &Value,
    writer: &Writer<'_>,
    force: bool,
) -> Result<Value, ApplyError> {
    let zero;
    let live = match live {
        Some(live) => live,
        None => {
            zero = empty(subject);
            &zero
        }
    };
    let kind = kind_of(config);
    if kind != *subject.gvk {
        return Err(ApplyError::Malformed(format!("invalid object type: {}", show_kind(&kind))));
    }
    let owners = entries::stored(list(live))
        .map_err(|error| ApplyError::Unmapped(format!("failed to decode managed fields: {error}")))?;
    let mut base = live.clone();
    entries::take(&mut base);
    let owners = match owners.is_empty() {
        false => owners,
        true => {
            let first = Writer { manager: BEFORE_FIRST_APPLY, ..*writer };
            update(subject, &empty(subject), &base, owners, &first)
        }
    };
    let is_kubectl = writer.manager == last_applied::MANAGER;
    let mut result = attempt(subject, &base, config, owners.clone(), writer, force);
    if let (true, Err(ApplyError::Conflicts(conflicts))) = (is_kubectl, &result)
        && let Some(allowed) = last_applied::allowed(subject, &base)
    {
        let left: Vec<Conflict> = conflicts.iter().filter(|c| !allowed.has(&c.path)).cloned().collect();
        result = match left.is_empty() {
            true => attempt(subject, &base, config, owners, writer, true),
            false => Err(ApplyError::Conflicts(left)),
        };
    }
    let (mut object, owners) = result?;
    if is_kubectl {
        last_applied::rewrite(&mut object, config);
    }
    annotate(subject, &mut object);
    entries::put(&mut object, owners);
    forget_empty(subject.ty, &mut object, None);
    Ok(object)
}

/// Returns the kind that a configuration states; omitted parts are empty.
fn kind_of(config: &Value) -> GroupVersionKind {
    let text = |key: &str| config.get(key).and_then(Value::as_str).unwrap_or_default();
    let version = GroupVersion::parse(text("apiVersion")).unwrap_or_default();
    GroupVersionKind::new(version.group, version.version, text("kind"))
}

/// Formats a kind as Go does: the core group keeps its slash.
fn show_kind(gvk: &GroupVersionKind) -> String {
    format!("{}/{}, Kind={}", gvk.group, gvk.version, gvk.kind)
}

fn attempt(
    subject: &Subject<'_>,
    live: &Value,
    config: &Value,
    mut owners: Vec<Entry>,
    writer: &Writer<'_>,
    force: bool,
) -> Result<(Value, Vec<Entry>), ApplyError> {
    let (shapes, root) = (subject.ty.shapes(), subject.ty.root());
    if config.pointer("/metadata/managedFields").is_some_and(|list| !list.is_null()) {
        return Err(ApplyError::Malformed("metadata.managedFields must be nil".to_owned()));
    }
    let text = |path: &str| config.pointer(path).and_then(Value::as_str).unwrap_or_default();
    let named = format!("{}/{}; {}", text("/metadata/namespace"), text("/metadata/name"), show_kind(subject.gvk));
    check(shapes, root, config)
        .map_err(|error| ApplyError::Unmapped(format!("failed to create typed patch object ({named}): {error}")))?;

    let filter = Filter::new(subject.gvk, writer.subresource, subject.custom, subject.has_status);
    let mut merged = merge(shapes, root, live, config);
    let set = filter.apply(field_set(shapes, root, config));
    let mut entry = writer.entry(subject, Operation::Apply, Set::default());
    let mut last = owners.iter().position(|owner| owner.is_same_manager(&entry)).map(|at| owners.swap_remove(at));
    if let Some(last) = &mut last
        && (last.api_version == entry.api_version || subject.convert.is_none())
        && !last.fields.read().is_within(&set)
    {
        merged = prune(subject, merged, last.fields.read(), &set, &mut owners);
    }

    let changes = Changes::new(subject, live, &merged, &filter);
    if !force {
        let conflicts = conflicts(&changes, &mut owners);
        if !conflicts.is_empty() {
            return Err(ApplyError::Conflicts(conflicts));
        }
    }
    take_over(&changes, &mut owners);

    let set = strip(set);
    // The time is that of the last write that changed something.
    if live.is_identical(&merged) || equal(live, &merged) {
        entry.time = last.and_then(|last| last.time);
    }
    if !set.is_empty() {
        entry.fields = Fields::Read(set);
        owners.push(entry);
    }
    if subject.custom {
        return Ok((merged, owners));
    }
    coerce(subject.ty, &mut merged, None, Words::Converter).map_err(|error| {
        ApplyError::Unmapped(format!(
            "failed to convert new object ({named}) to proper version: unable to convert unstructured object to {}: {error}",
            show_kind(subject.gvk)
        ))
    })?;
    decode::name(&mut merged, subject.gvk);
    Ok((merged, owners))
}

/// Returns the fields of other managers that would get another value.
fn conflicts(changes: &Changes<'_>, owners: &mut [Entry]) -> Vec<Conflict> {
    owners.sort_by_cached_key(|owner| owner.identity());
    let mut conflicts = Vec::new();
    // Shared by the owners that wrote in one version.
    let mut by_version: HashMap<String, Option<Set>> = HashMap::new();
    for owner in owners {
        let changed = by_version.entry(owner.api_version.clone()).or_insert_with(|| {
            let found = changes.in_version(&owner.api_version)?;
            Some(found.modified.clone().union(found.added.clone()))
        });
        let Some(changed) = changed.as_ref().filter(|changed| !changed.is_empty()) else { continue };
        let taken = owner.fields.read().intersection(changed);
        let manager = describe(owner);
        conflicts.extend(taken.paths().into_iter().map(|path| Conflict { manager: manager.clone(), path }));
    }
    conflicts
}

fn describe(owner: &Entry) -> String {
    let mut text = machinery::go_text::quote(&owner.manager);
    if !owner.subresource.is_empty() {
        text.push_str(&format!(" with subresource {}", machinery::go_text::quote(&owner.subresource)));
    }
    if owner.operation == Operation::Update {
        text.push_str(&format!(" using {}", owner.api_version));
    }
    text
}

/// Removes the fields that the manager applied before and does not apply now, unless another manager owns them.
fn prune(subject: &Subject<'_>, merged: Value, last: &Set, now: &Set, others: &mut [Entry]) -> Value {
    let (shapes, root) = (subject.ty.shapes(), subject.ty.root());
    let named = |set: &Set| set.with_named_fields(shapes, Some(root));
    let merged_set = named(&field_set(shapes, root, &merged));
    let pruned = remove(shapes, root, &merged, &named(last));
    // Fields that others own, and those applied now, are restored.
    let owned = Set::union_all(others.iter_mut().map(|owner| owner.fields.read().clone()).chain([now.clone()]));
    let pruned_set = named(&field_set(shapes, root, &pruned));
    let gone = merged_set.clone().difference(&pruned_set.union(named(&owned)));
    let pruned = remove(shapes, root, &merged, &gone);
    // Only fields that this manager owned may be removed.
    let pruned_set = named(&field_set(shapes, root, &pruned));
    let gone = merged_set.difference(&pruned_set).intersection(&named(last));
    remove(shapes, root, &merged, &gone)
}

/// Returns the paths that an older configuration stated and that are unchanged: on these a conflict may be overruled.
pub(super) fn still_as_stated(subject: &Subject<'_>, live: &Value, stated: &Value) -> Option<Set> {
    let (shapes, root) = (subject.ty.shapes(), subject.ty.root());
    check(shapes, root, stated).ok()?;
    let found = compare(shapes, root, stated, live);
    let set = field_set(shapes, root, stated);
    Some(set.difference(&found.modified).difference(&found.added).difference(&found.removed))
}
