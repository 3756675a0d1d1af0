//! What was recorded, as objects of the API.

use std::sync::{Arc, LazyLock};

use cache::{Item, Spec, Start};
use jiff::Timestamp;
use machinery::encoded::to_stored;
use machinery::json::{Value, json};
use machinery::{Revision, fields, timestamp};
use registry::computed::ComputedWatch;
use store::Key;

use super::Recorder;
use super::changes::Change;
use super::follow::{FollowChanges, FollowRequests, FollowWatchers};
use super::requests::Request;
use super::watchers::OpenWatch;
use crate::kinds::{self, CHANGES, GROUP, REQUESTS, WATCHERS};

/// Rows that are copied in one step, so that requests never wait long for a reader.
pub(super) const STEP_MAX: usize = 256;

/// The selectable fields of the kinds, the same for every world.
pub(super) static SPECS: LazyLock<Specs> = LazyLock::new(Specs::new);

pub(super) struct Specs {
    changes: Spec,
    requests: Spec,
    watchers: Spec,
}

impl Specs {
    fn new() -> Self {
        let spec = kinds::spec;
        Specs { changes: spec(CHANGES), requests: spec(REQUESTS), watchers: spec(WATCHERS) }
    }

    pub(super) fn request(&self, row: &Request) -> Option<Arc<Item>> {
        object(&self.requests, (REQUESTS, "Request"), &row.name(), row.sequence, row.created(), row.status())
    }

    pub(super) fn change(&self, row: &Change) -> Option<Arc<Item>> {
        object(&self.changes, (CHANGES, "Change"), &row.name(), row.sequence, row.created(), row.status())
    }

    /// A watch as it was when it ended.
    pub(super) fn closed_watcher(&self, watch: &OpenWatch, sequence: u64) -> Option<Arc<Item>> {
        let status = watch.status(&cache::Backlog::default(), 0);
        object(&self.watchers, (WATCHERS, "Watcher"), &watch.name(), sequence, watch.created(), status)
    }
}

fn object(
    spec: &Spec,
    (collection, kind): (&str, &str),
    name: &str,
    sequence: u64,
    created: Timestamp,
    status: Value,
) -> Option<Arc<Item>> {
    let object = json!({
        "kind": kind,
        "apiVersion": format!("{GROUP}/v1"),
        "metadata": {"name": name, "uid": name, "creationTimestamp": timestamp::seconds(created)},
        "status": status,
    });
    let key = Key::new(format!("{collection}/{name}")).ok()?;
    let item = Item::new(key, Revision(sequence), &to_stored(object.as_object()?), spec);
    item.inspect_err(|error| tracing::error!(name, %error, "a record cannot be shown")).ok().map(Arc::new)
}

/// Whether a row may be selected, as far as that is known before it is made into an object.
fn admits(selector: &fields::Selector, field: impl Fn(&str) -> Option<String>) -> bool {
    selector.requirements().iter().all(|term| field(&term.field).is_none_or(|value| term.accepts(&value)))
}

impl Recorder {
    pub(super) fn watcher(&self, watch: &OpenWatch, sequence: u64) -> Option<Arc<Item>> {
        let backlog = watch.backlog();
        let lag_ms = backlog.oldest.map_or(0, |revision| self.age_ms(revision));
        let status = watch.status(&backlog, lag_ms);
        object(&SPECS.watchers, (WATCHERS, "Watcher"), &watch.name(), sequence, watch.created(), status)
    }

    fn scan_requests(&self, from: &str, fields: &fields::Selector, take: &mut dyn FnMut(Arc<Item>) -> bool) {
        let rows = self.requests.lock().by_number(0);
        for step in rows.chunks(STEP_MAX) {
            let rows: Vec<Request> = {
                let requests = self.requests.lock();
                step.iter().filter_map(|(_, sequence)| requests.get(*sequence)).collect()
            };
            for row in rows {
                if *row.name() >= *from
                    && admits(fields, |label| row.field(label))
                    && SPECS.request(&row).is_some_and(|item| !take(item))
                {
                    return;
                }
            }
        }
    }

    fn scan_changes(&self, from: &str, fields: &fields::Selector, take: &mut dyn FnMut(Arc<Item>) -> bool) {
        let mut last = 0;
        loop {
            let rows = self.changes.lock().after(last, STEP_MAX);
            let Some(newest) = rows.last() else { return };
            last = newest.sequence;
            for row in rows {
                if *row.name() >= *from
                    && admits(fields, |label| row.field(label))
                    && SPECS.change(&row).is_some_and(|item| !take(item))
                {
                    return;
                }
            }
        }
    }

    pub(super) fn open_watches(&self) -> Vec<Arc<OpenWatch>> {
        self.watchers.lock().open.values().cloned().collect()
    }
}

/// As [`registry::computed::Computed`] has them.
impl Recorder {
    pub(crate) fn has(&self, collection: &str) -> bool {
        matches!(collection, CHANGES | REQUESTS | WATCHERS)
    }

    pub(crate) fn revision(&self) -> Revision {
        Revision(self.sequence.load(std::sync::atomic::Ordering::Relaxed))
    }

    pub(crate) fn scan(
        &self,
        collection: &str,
        from: &str,
        fields: &fields::Selector,
        take: &mut dyn FnMut(Arc<Item>) -> bool,
    ) {
        match collection {
            REQUESTS => self.scan_requests(from, fields, take),
            CHANGES => self.scan_changes(from, fields, take),
            _ => {
                let watches = self.open_watches();
                let mut shown = watches.iter().filter(|watch| *watch.name() >= *from);
                while let Some(watch) = shown.next()
                    && self.watcher(watch, watch.sequence).is_none_or(&mut *take)
                {}
            }
        }
    }

    pub(crate) fn get(&self, collection: &str, name: &str) -> Option<Arc<Item>> {
        match collection {
            REQUESTS => {
                let row = self.requests.lock().by_name(name)?;
                SPECS.request(&row)
            }
            CHANGES => {
                let revision = Revision(name.strip_prefix("rev-")?.parse().ok()?);
                let row = self.changes.lock().get(revision).filter(|row| row.name() == name)?;
                SPECS.change(&row)
            }
            _ => {
                let watch = self.watchers.lock().by_name(name)?;
                self.watcher(&watch, watch.sequence)
            }
        }
    }

    pub(crate) fn watch(&self, collection: &str, start: Start) -> Box<dyn ComputedWatch> {
        let recorder = self.own.clone();
        match collection {
            REQUESTS => Box::new(FollowRequests::new(recorder, start)),
            CHANGES => Box::new(FollowChanges::new(recorder, start)),
            _ => Box::new(FollowWatchers::new(recorder, start)),
        }
    }

    pub(crate) fn delete(&self, collection: &str, name: &str) -> bool {
        let watch = self.watchers.lock().by_name(name).filter(|_| collection == WATCHERS);
        if let Some(watch) = &watch {
            watch.cut();
            self.disturbed.send_modify(|count| *count += 1);
        }
        watch.is_some()
    }
}
