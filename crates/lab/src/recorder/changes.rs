//! The recent revisions of all objects, with who made them.

use std::collections::VecDeque;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::{Arc, LazyLock};

use cache::Event;
use jiff::Timestamp;
use machinery::json::{self, Value, json};
use machinery::{Revision, timestamp};
use regex::Regex;

use super::clients::Client;
use super::fields::FieldChanges;
use super::requests;

/// Changes that are condensed in one step.
const STEP_MAX: usize = 16;
/// Writers of revisions that have not arrived yet.
const EARLY_MAX: usize = 1024;

/// Who made a change.
#[derive(Debug)]
pub(crate) struct Writer {
    pub(crate) client: Arc<Client>,
    pub(crate) manager: Box<str>,
    /// The number of the request.
    pub(crate) request: u64,
    /// The newest revision that the client had been sent by a watch when the request came.
    pub(crate) after: Revision,
}

/// One revision of one object.
#[derive(Clone)]
pub(crate) struct Change {
    pub(crate) revision: Revision,
    pub(crate) sequence: u64,
    at: Timestamp,
    content: Content,
    /// None for what the server does of its own, and until the write is answered.
    pub(crate) writer: Option<Arc<Writer>>,
}

/// What changed.
#[derive(Clone)]
enum Content {
    /// Both states of the object, shared with the cache for as long as that has them.
    States(Arc<Event>),
    Condensed(Arc<Condensed>),
}

/// What is shown of a change.
pub(crate) struct Condensed {
    kind: &'static str,
    collection: Box<str>,
    object_kind: Box<str>,
    namespace: Box<str>,
    name: Box<str>,
    uid: Box<str>,
    owners: Box<[Box<str>]>,
    fields: FieldChanges,
}

impl Condensed {
    /// Compares both states of an object. Takes as long as reading them.
    fn of(event: &Event) -> Self {
        let read = |item: Option<&Arc<cache::Item>>| {
            item.and_then(|item| json::from_slice(item.encoded().whole()).ok()).unwrap_or_default()
        };
        let (old, new): (Value, Value) = (read(event.previous()), read(event.current()));
        let (kind, fields) = match (event.previous(), event.current()) {
            (None, _) => ("ADDED", FieldChanges::default()),
            (_, None) => ("DELETED", FieldChanges::default()),
            _ => ("MODIFIED", FieldChanges::between(&old, &new)),
        };
        let shown = if event.current().is_some() { &new } else { &old };
        let metadata = &shown["metadata"];
        let text = |value: &Value| value.as_str().unwrap_or_default().into();
        let owners = metadata["ownerReferences"].as_array().map_or(&[][..], |owners| owners);
        let item = event.current().or(event.previous());
        Condensed {
            kind,
            collection: event.key().collection().into(),
            object_kind: text(&shown["kind"]),
            namespace: item.map_or("", |item| item.namespace()).into(),
            name: item.map_or("", |item| item.name()).into(),
            uid: text(&metadata["uid"]),
            owners: owners.iter().map(|owner| text(&owner["uid"])).collect(),
            fields,
        }
    }

    fn bytes(&self) -> usize {
        let texts = [&self.collection, &self.object_kind, &self.namespace, &self.name, &self.uid];
        let owners = self.owners.iter().map(|owner| owner.len() + size_of::<Box<str>>());
        size_of::<Self>()
            + texts.iter().map(|text| text.len()).sum::<usize>()
            + owners.sum::<usize>()
            + self.fields.bytes()
    }
}

impl Change {
    pub(crate) fn new(event: &Arc<Event>, sequence: u64, at: Timestamp) -> Self {
        Change { revision: event.revision(), sequence, at, content: Content::States(Arc::clone(event)), writer: None }
    }

    pub(crate) fn condensed(&self) -> Arc<Condensed> {
        match &self.content {
            Content::States(event) => Arc::new(Condensed::of(event)),
            Content::Condensed(condensed) => Arc::clone(condensed),
        }
    }

    pub(crate) fn name(&self) -> String {
        format!("rev-{:010}", self.revision.0)
    }

    pub(crate) fn created(&self) -> Timestamp {
        self.at
    }

    /// The value of a field that changes are selected by, if it is known without comparing the states.
    pub(crate) fn field(&self, label: &str) -> Option<String> {
        let writer = self.writer.as_ref();
        let item = match &self.content {
            Content::States(event) => event.current().or(event.previous()),
            Content::Condensed(_) => None,
        };
        Some(match (label, item, &self.content) {
            ("userAgent", ..) => writer.map_or("", |writer| &writer.client.agent).to_owned(),
            ("user", ..) => writer.map_or("", |writer| &writer.client.user).to_owned(),
            ("manager", ..) => writer.map_or("", |writer| &writer.manager).to_owned(),
            ("name", Some(item), _) => item.name().to_owned(),
            ("namespace", Some(item), _) => item.namespace().to_owned(),
            ("name", _, Content::Condensed(known)) => known.name.to_string(),
            ("namespace", _, Content::Condensed(known)) => known.namespace.to_string(),
            ("kind", _, Content::Condensed(known)) => known.object_kind.to_string(),
            _ => return None,
        })
    }

    /// Group and resource.
    pub(crate) fn resource(&self) -> (&str, &str) {
        let collection = match &self.content {
            Content::States(event) => event.key().collection(),
            Content::Condensed(known) => &known.collection,
        };
        let (group, resource) = collection.rsplit_once('/').unwrap_or(("", collection));
        (if group == "core" { "" } else { group }, resource)
    }

    /// The program that made it; empty for what the server does of its own.
    pub(crate) fn agent(&self) -> &str {
        self.writer.as_ref().map_or("", |writer| &writer.client.agent)
    }

    /// Tells objects apart.
    pub(crate) fn key(&self) -> String {
        match &self.content {
            Content::States(event) => event.key().to_string(),
            Content::Condensed(known) => format!("{}/{}/{}", known.collection, known.namespace, known.name),
        }
    }

    /// A hash of the object without its times; none if it is gone, or no longer known.
    pub(crate) fn content_hash(&self) -> Option<u64> {
        let Content::States(event) = &self.content else { return None };
        let mut object: Value = json::from_slice(event.current()?.encoded().whole()).ok()?;
        if let Value::Object(metadata) = &mut object["metadata"] {
            for member in ["resourceVersion", "managedFields", "generation"] {
                metadata.shift_remove(member);
            }
        }
        let mut text = object.to_string();
        remove_times(&mut text);
        let mut hasher = DefaultHasher::new();
        text.hash(&mut hasher);
        Some(hasher.finish())
    }

    /// The status of the object that shows it.
    pub(crate) fn status(&self) -> Value {
        let known = self.condensed();
        let (group, resource) = self.resource();
        let mut status = json!({
            "time": timestamp::micros(self.at),
            "revision": self.revision.0,
            "type": known.kind,
            "resource": resource,
            "kind": *known.object_kind,
            "name": *known.name,
            "uid": *known.uid,
        });
        let writer = self.writer.as_deref();
        let texts = [
            ("group", group),
            ("namespace", &*known.namespace),
            ("user", writer.map_or("", |writer| &writer.client.user)),
            ("userAgent", writer.map_or("", |writer| &writer.client.agent)),
            ("manager", writer.map_or("", |writer| &writer.manager)),
        ];
        for (member, text) in texts.into_iter().filter(|(_, text)| !text.is_empty()) {
            status[member] = json!(text);
        }
        if let Some(writer) = writer {
            status["request"] = json!(requests::name(writer.request));
            if writer.after > Revision::ZERO {
                status["after"] = json!(writer.after.0);
            }
        }
        let list = |texts: &[Box<str>]| Value::Array(texts.iter().map(|text| json!(**text)).collect());
        if !known.owners.is_empty() {
            status["owners"] = list(&known.owners);
        }
        if known.kind == "MODIFIED" {
            let fields = &known.fields;
            let mut shown = json!({"summary": fields.summary()});
            let lists = [("added", &fields.added), ("changed", &fields.changed), ("removed", &fields.removed)];
            for (member, paths) in lists.into_iter().filter(|(_, paths)| !paths.is_empty()) {
                shown[member] = list(paths);
            }
            if fields.truncated {
                shown["truncated"] = json!(true);
            }
            status["fields"] = shown;
        }
        status
    }

    /// Bytes that the row keeps alive: those of the superseded state, until it is condensed.
    fn bytes(&self) -> usize {
        let content = match &self.content {
            Content::States(event) => event.previous().map_or(0, |item| item.len()),
            Content::Condensed(condensed) => condensed.bytes(),
        };
        let writer = self.writer.as_ref().map_or(0, |writer| size_of::<Writer>() + writer.manager.len());
        size_of::<Change>() + content + writer
    }
}

/// Replaces times such as `2026-01-01T00:00:00Z` by nothing.
fn remove_times(text: &mut String) {
    static TIME: LazyLock<Regex> =
        LazyLock::new(|| Regex::new(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)").expect("a pattern"));
    *text = TIME.replace_all(text, "").into_owned();
}

/// The last changes, in the order of their revisions.
pub(crate) struct Changes {
    rows: VecDeque<Change>,
    rows_max: usize,
    bytes: usize,
    /// The sequence of the last row that was dropped.
    floor: u64,
    /// Sequences up to here are condensed.
    condensed: u64,
    /// Writers of revisions that have not arrived yet.
    early: Vec<(Revision, Arc<Writer>)>,
}

impl Changes {
    pub(crate) fn new(rows_max: usize) -> Self {
        Changes { rows: VecDeque::new(), rows_max, bytes: 0, floor: 0, condensed: 0, early: Vec::new() }
    }

    pub(crate) fn push(&mut self, mut row: Change) {
        if let Some(at) = self.early.iter().position(|(revision, _)| *revision == row.revision) {
            row.writer = Some(self.early.swap_remove(at).1);
        }
        self.bytes += row.bytes();
        self.rows.push_back(row);
        while self.rows.len() > self.rows_max {
            self.drop_oldest();
        }
    }

    fn drop_oldest(&mut self) {
        if let Some(oldest) = self.rows.pop_front() {
            self.bytes -= oldest.bytes();
            self.floor = oldest.sequence;
        }
    }

    /// Says who made a revision.
    pub(crate) fn attribute(&mut self, revision: Revision, writer: &Arc<Writer>) {
        let is_early = self.rows.back().is_none_or(|last| last.revision < revision);
        if is_early {
            // At most one for each write that is under way.
            if self.early.len() < EARLY_MAX {
                self.early.push((revision, Arc::clone(writer)));
            }
            return;
        }
        let at = self.rows.partition_point(|row| row.revision < revision);
        if let Some(row) = self.rows.get_mut(at).filter(|row| row.revision == revision) {
            let before = row.bytes();
            row.writer = Some(Arc::clone(writer));
            self.bytes += row.bytes() - before;
        }
    }

    /// The oldest rows that are not condensed, if all rows together take more than `bytes_max`.
    pub(crate) fn oldest_states(&mut self, bytes_max: usize) -> Vec<Change> {
        if self.bytes <= bytes_max {
            return Vec::new();
        }
        let from = self.rows.partition_point(|row| row.sequence <= self.condensed);
        let found: Vec<Change> = self.rows.range(from..).take(STEP_MAX).cloned().collect();
        if found.is_empty() {
            while self.bytes > bytes_max && !self.rows.is_empty() {
                self.drop_oldest();
            }
        }
        found
    }

    /// Replaces the states of a row by what is shown of them.
    pub(crate) fn condense(&mut self, sequence: u64, condensed: Arc<Condensed>) {
        self.condensed = self.condensed.max(sequence);
        let at = self.rows.partition_point(|row| row.sequence < sequence);
        if let Some(row) = self.rows.get_mut(at).filter(|row| row.sequence == sequence) {
            self.bytes -= row.bytes();
            row.content = Content::Condensed(condensed);
            self.bytes += row.bytes();
        }
    }

    #[cfg(test)]
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) fn floor(&self) -> u64 {
        self.floor
    }

    /// The newest row for which something holds.
    pub(crate) fn last(&self, holds: impl Fn(&Change) -> bool) -> Option<&Change> {
        self.rows.iter().rev().find(|row| holds(row))
    }

    pub(crate) fn after(&self, sequence: u64, max: usize) -> Vec<Change> {
        let from = self.rows.partition_point(|row| row.sequence <= sequence);
        self.rows.range(from..).take(max).cloned().collect()
    }

    /// The newest revision at a time; none if nothing changed after it.
    pub(crate) fn revision_at(&self, time: Timestamp) -> Option<Revision> {
        let at = self.rows.partition_point(|row| row.at <= time);
        let next = self.rows.get(at)?;
        let last = at.checked_sub(1).and_then(|at| self.rows.get(at));
        Some(last.map_or(Revision(next.revision.0.saturating_sub(1)), |last| last.revision))
    }

    pub(crate) fn get(&self, revision: Revision) -> Option<Change> {
        let at = self.rows.partition_point(|row| row.revision < revision);
        self.rows.get(at).filter(|row| row.revision == revision).cloned()
    }
}
