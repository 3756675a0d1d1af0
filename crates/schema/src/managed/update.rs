//! Ownership after a create, an update or a patch: the manager that changes a field owns it, and all others lose it.

use std::borrow::Cow;
use std::collections::HashMap;

use machinery::GroupVersionKind;
use machinery::json::Value;

use super::check::check;
use super::compare::{Comparison, compare};
use super::created::{Known, fields_of_new};
use super::entries::{self, Entry, Fields, Operation};
use super::resets::Filter;
use super::set::Set;
use crate::decode::{forget_empty, normalise};
use crate::facts::Type;
use crate::kind::Kind;

/// Most entries of updates; the oldest beyond it are merged.
const UPDATE_ENTRIES_MAX: usize = 10;

/// Manager of the merged entries.
const ANCIENT: &str = "ancient-changes";

/// Converts an object to another version of the API and returns it with its type.
pub type Convert = dyn Fn(&Value, &str) -> Option<(Type, Value)> + Sync;

/// The object of a write: its kind and type.
pub struct Subject<'a> {
    pub gvk: &'a GroupVersionKind,
    pub ty: &'a Type,
    pub custom: bool,
    /// A custom kind with a status subresource; ignored for built-in kinds.
    pub has_status: bool,
    /// Converts to another version of the API, for managers that wrote in that; the managers of an unknown version are dropped.
    /// Without a converter a field has the same path in all versions, which is true of custom kinds that are not converted and
    /// nearly so of the few built-in kinds with two versions.
    pub convert: Option<&'a Convert>,
}

impl<'a> Subject<'a> {
    /// Creates a subject without a converter.
    #[must_use]
    pub fn new(kind: &'a Kind, ty: &'a Type) -> Self {
        Subject { gvk: &kind.gvk, ty, custom: kind.custom, has_status: kind.rules.status, convert: None }
    }
}

/// The manager and the time of a write.
#[derive(Clone, Copy, Debug)]
pub struct Writer<'a> {
    /// Empty means `unknown`.
    pub manager: &'a str,
    /// `status`, `scale`, … or empty.
    pub subresource: &'a str,
    /// RFC 3339, whole seconds, UTC.
    pub time: &'a str,
}

impl Writer<'_> {
    pub(super) fn entry(&self, kind: &Subject<'_>, operation: Operation, set: Set) -> Entry {
        let manager = if self.manager.is_empty() { "unknown" } else { self.manager };
        Entry {
            manager: manager.to_owned(),
            operation,
            api_version: kind.gvk.group_version().to_string(),
            subresource: self.subresource.to_owned(),
            time: Some(self.time.to_owned()),
            fields: Fields::Read(set),
        }
    }
}

/// Writes `metadata.managedFields` of `new`, an object in its normal form with defaults.
///
/// `live` is the stored object, `None` for a create. The managedFields of `new` are treated as in the reference: entries replace
/// the stored ones, an empty list or one empty entry drops all, malformed ones are ignored.
pub fn track_update(kind: &Subject<'_>, live: Option<&Value>, new: &mut Value, writer: &Writer<'_>) {
    track(kind, live, new, writer, None);
}

/// As [`track_update`], for a new object that may share a member with another one.
pub fn track_create(kind: &Subject<'_>, new: &mut Value, writer: &Writer<'_>, known: Option<Known<'_>>) {
    track(kind, None, new, writer, known);
}

fn track(kind: &Subject<'_>, live: Option<&Value>, new: &mut Value, writer: &Writer<'_>, known: Option<Known<'_>>) {
    let zero;
    let before = match live {
        Some(live) => live,
        None => {
            zero = empty(kind);
            &zero
        }
    };
    let owners = stated_owners(before, new, writer);
    entries::take(new);
    // The fields of an object that does not match its schema cannot be determined.
    let fits = |object: &Value| check(kind.ty.shapes(), kind.ty.root(), object).is_ok();
    if kind.custom && !(fits(new) && live.is_none_or(fits)) {
        return;
    }
    annotate(kind, new);
    // Ownership that was lost or dropped begins again with an apply only.
    if !owners.is_empty() || live.is_none_or(|live| uid(live).is_empty()) {
        let made =
            if live.is_none() && owners.is_empty() { creator_entry(kind, before, new, writer, known) } else { None };
        let owners = made.unwrap_or_else(|| merge_oldest(update(kind, before, new, owners, writer)));
        entries::put(new, owners);
    }
    forget_empty(kind.ty, new, live.or(known.map(|known| known.of)));
}

/// Stores a field that only an old version of the API has as an annotation, so that it is owned as one.
pub(super) fn annotate(kind: &Subject<'_>, object: &mut Value) {
    const GENERATION: &str = "deprecated.daemonset.template.generation";
    if kind.custom || kind.gvk.kind != "DaemonSet" {
        return;
    }
    let Some(Value::Object(metadata)) = object.get_mut("metadata") else { return };
    if !metadata.contains_key("annotations") {
        // Annotations precede these on the wire.
        let later = ["ownerReferences", "finalizers", "managedFields"];
        let at = metadata.keys().position(|key| later.contains(&key.as_str())).unwrap_or(metadata.len());
        metadata.shift_insert(at, "annotations", Value::Object(machinery::json::Map::new()));
    }
    let annotations = &mut metadata["annotations"];
    if let Value::Object(annotations) = annotations
        && !annotations.contains_key(GENERATION)
    {
        annotations.insert(GENERATION.to_owned(), Value::String("0".into()));
        annotations.sort_keys();
    }
}

/// Returns the name of a manager: that of the request, else the beginning of its user agent.
#[must_use]
pub fn manager(field_manager: &str, user_agent: &str) -> String {
    const BYTES_MAX: usize = 128;
    if !field_manager.is_empty() {
        return field_manager.to_owned();
    }
    let mut name = String::new();
    let product = user_agent.split('/').next().unwrap_or_default();
    for c in product.chars().filter(|c| !c.is_control() && (*c == ' ' || !c.is_whitespace())) {
        if name.len() + c.len_utf8() > BYTES_MAX {
            break;
        }
        name.push(c);
    }
    name
}

/// Returns an empty object of the kind, with which a new object is compared.
pub(super) fn empty(kind: &Subject<'_>) -> Value {
    let mut zero = Value::Object(machinery::json::Map::new());
    if !kind.custom {
        // Cannot fail: an empty object has no value of a wrong type.
        let _ = normalise(kind.ty, &mut zero, None);
    }
    zero
}

fn uid(object: &Value) -> &str {
    object.pointer("/metadata/uid").and_then(Value::as_str).unwrap_or_default()
}

pub(super) fn list(object: &Value) -> Option<&Value> {
    object.pointer("/metadata/managedFields").filter(|list| !list.is_null())
}

fn stated_owners(live: &Value, new: &Value, writer: &Writer<'_>) -> Vec<Entry> {
    let stored = || entries::stored(list(live)).unwrap_or_default();
    if !writer.subresource.is_empty() {
        return stored();
    }
    let sent = list(new);
    if entries::is_reset(sent) {
        return Vec::new();
    }
    // Mostly a client sends the list back unchanged, or a patch does not touch it.
    if let (Some(sent), Some(known)) = (sent, list(live))
        && sent.is_identical(known)
    {
        return stored();
    }
    match entries::sent(sent) {
        Ok(owners) if !owners.is_empty() => owners,
        _ => stored(),
    }
}

/// Returns the entry of the creator, the only owner of a new object. `None` if it takes a comparison.
fn creator_entry(
    kind: &Subject<'_>,
    zero: &Value,
    new: &Value,
    writer: &Writer<'_>,
    known: Option<Known<'_>>,
) -> Option<Vec<Entry>> {
    let filter = Filter::new(kind.gvk, writer.subresource, kind.custom, kind.has_status);
    let fields = fields_of_new(kind.ty.shapes(), kind.ty.root(), zero, new, &filter.whole_members()?, known)?;
    let mut entry = writer.entry(kind, Operation::Update, Set::default());
    entry.fields = Fields::Stored(Value::Raw(fields.into()));
    let made = if entry.fields.is_empty() { Vec::new() } else { vec![entry] };
    debug_assert_eq!(
        made.iter().map(|entry| entry.fields.clone().encode()).collect::<Vec<_>>(),
        update(kind, zero, new, Vec::new(), writer).into_iter().map(|entry| entry.fields.encode()).collect::<Vec<_>>(),
        "what is written straight from an object is what a comparison finds"
    );
    Some(made)
}

/// Returns the owners after `new` has replaced `live`.
pub(super) fn update(
    kind: &Subject<'_>,
    live: &Value,
    new: &Value,
    mut owners: Vec<Entry>,
    writer: &Writer<'_>,
) -> Vec<Entry> {
    let filter = Filter::new(kind.gvk, writer.subresource, kind.custom, kind.has_status);
    let changes = Changes::new(kind, live, new, &filter);
    let mut entry = writer.entry(kind, Operation::Update, Set::default());
    // The writer keeps its fields; changed fields are removed from the others only.
    let own = owners.iter().position(|owner| owner.is_same_manager(&entry)).map(|at| owners.swap_remove(at));
    take_over(&changes, &mut owners);
    let Comparison { removed, modified, added } = changes.own;
    let set = strip(filter.apply(modified.union(added)));
    match own {
        None if set.is_empty() => {}
        None => {
            entry.fields = Fields::Read(set);
            owners.push(entry);
        }
        Some(mut own) => {
            own.fields.subtract(&removed);
            if !set.is_empty() {
                own.fields.add(set);
                own.time = entry.time;
            }
            if !own.fields.is_empty() {
                owners.push(own);
            }
        }
    }
    owners
}

/// The changes, in the version of the request and in those of the other managers.
pub(super) struct Changes<'a> {
    kind: &'a Subject<'a>,
    live: &'a Value,
    new: &'a Value,
    pub(super) own: Comparison,
}

impl<'a> Changes<'a> {
    pub(super) fn new(kind: &'a Subject<'a>, live: &'a Value, new: &'a Value, filter: &Filter) -> Self {
        let found = compare(kind.ty.shapes(), kind.ty.root(), live, new);
        let own = Comparison {
            removed: filter.apply(found.removed),
            modified: filter.apply(found.modified),
            added: filter.apply(found.added),
        };
        Changes { kind, live, new, own }
    }

    /// Returns the changes in a version; `None` if the objects cannot be converted to it.
    pub(super) fn in_version(&self, version: &str) -> Option<Cow<'_, Comparison>> {
        let Some(convert) = self.kind.convert.filter(|_| version != self.kind.gvk.group_version().to_string()) else {
            return Some(Cow::Borrowed(&self.own));
        };
        let (ty, live) = convert(self.live, version)?;
        let (_, new) = convert(self.new, version)?;
        Some(Cow::Owned(compare(ty.shapes(), ty.root(), &live, &new)))
    }
}

/// Removes changed fields from their owners, and owners without fields.
pub(super) fn take_over(changes: &Changes<'_>, owners: &mut Vec<Entry>) {
    // Shared by the owners that wrote in one version.
    let mut by_version: HashMap<String, Option<Cow<'_, Comparison>>> = HashMap::new();
    owners.retain_mut(|owner| {
        if !by_version.contains_key(&owner.api_version) {
            by_version.insert(owner.api_version.clone(), changes.in_version(&owner.api_version));
        }
        let Some(found) = &by_version[&owner.api_version] else { return false };
        for gone in [&found.modified, &found.added, &found.removed] {
            owner.fields.subtract(gone);
        }
        !owner.fields.is_empty()
    });
}

/// Removes fields without a manager.
pub(super) fn strip(set: Set) -> Set {
    static STRIPPED: std::sync::OnceLock<Set> = std::sync::OnceLock::new();
    let stripped = STRIPPED.get_or_init(|| {
        use super::element::Element;
        let mut set = Set::default();
        for name in ["apiVersion", "kind", "metadata"] {
            set.insert(&[Element::field(name)]);
        }
        for name in super::compare::UNMANAGED {
            set.insert(&[Element::field("metadata"), Element::field(name)]);
        }
        set
    });
    set.difference(stripped)
}

/// Merges the oldest updates into one entry for each version, once there are too many.
fn merge_oldest(mut owners: Vec<Entry>) -> Vec<Entry> {
    let mut updates: Vec<usize> = (0..owners.len()).filter(|at| owners[*at].operation == Operation::Update).collect();
    if updates.len() <= UPDATE_ENTRIES_MAX {
        return owners;
    }
    updates.sort_by_cached_key(|at| (owners[*at].time.clone(), owners[*at].identity()));
    let mut surplus = updates.len() - UPDATE_ENTRIES_MAX;
    let mut folded = vec![false; owners.len()];
    // For each version the entry that the others are merged into, and their fields.
    let mut buckets: HashMap<String, (usize, Vec<Set>)> = HashMap::new();
    let mut ancient: HashMap<String, usize> = HashMap::new();
    for (at, owner) in owners.iter().enumerate() {
        if owner.manager == ANCIENT && owner.subresource.is_empty() && owner.operation == Operation::Update {
            ancient.entry(owner.api_version.clone()).or_insert(at);
        }
    }
    for at in updates {
        if surplus == 0 {
            break;
        }
        let version = owners[at].api_version.clone();
        match buckets.get_mut(&version) {
            None => drop(buckets.insert(version, (at, Vec::new()))),
            Some((bucket, merged)) => {
                *bucket = ancient.get(&version).copied().unwrap_or(*bucket);
                merged.push(std::mem::take(owners[at].fields.read()));
                let time = owners[at].time.clone();
                let entry = &mut owners[*bucket];
                entry.manager = ANCIENT.to_owned();
                entry.subresource = String::new();
                entry.time = time;
                folded[at] = true;
                surplus -= 1;
            }
        }
    }
    for (bucket, merged) in buckets.into_values() {
        let fields = &mut owners[bucket].fields;
        if !merged.is_empty() {
            *fields = Fields::Read(Set::union_all(merged.into_iter().chain([std::mem::take(fields.read())])));
        }
    }
    let mut keep = folded.iter().map(|folded| !folded);
    owners.retain(|_| keep.next().unwrap_or(true));
    owners
}

/// Restores the old times if only they changed, so that there is no write.
pub fn keep_times_if_unchanged(old: &Value, new: &mut Value) {
    let (Some(Value::Array(before)), Some(Value::Array(after))) = (list(old), list(new)) else { return };
    let same = |a: &Value, b: &Value| match (a, b) {
        (Value::Object(a), Value::Object(b)) => {
            let mut keys = a.keys().chain(b.keys()).filter(|key| *key != "time");
            keys.all(|key| a.get(key) == b.get(key))
        }
        _ => a == b,
    };
    if before.len() != after.len() || !before.iter().zip(after).all(|(a, b)| same(a, b)) {
        return;
    }
    let times = before.clone();
    let now = match new.pointer_mut("/metadata/managedFields") {
        Some(list) => std::mem::replace(list, Value::Array(times)),
        None => return,
    };
    if new != old
        && let Some(list) = new.pointer_mut("/metadata/managedFields")
    {
        *list = now;
    }
}
