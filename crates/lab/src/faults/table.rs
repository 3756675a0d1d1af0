//! The faults that exist now, and what they do to requests and events.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use arc_swap::ArcSwap;
use cache::{Collection, Collections, Event, Observer};
use jiff::Timestamp;
use machinery::{Clock, Revision, Status, json};
use parking_lot::Mutex;
use registry::EventNote;
use server::disturbance::{ConnectionNote, Disturbance, Disturbances, Disturbed, Step};
use tokio::sync::{Notify, watch};

use super::counting::Count;
use super::refusal;
use super::spec::{Events, Spec};
use crate::durations::parse_duration;
use crate::kinds::FAULTS;
use crate::past::Past;

/// All faults of one world. Follows their objects, so that a fault acts before the write that made it is answered.
pub(crate) struct Faults {
    /// The world whose requests they hit.
    world: Arc<str>,
    active: Arc<AtomicBool>,
    /// Those that are about this world, sorted by name.
    table: ArcSwap<Vec<Active>>,
    lists: Mutex<Lists>,
    /// The worlds that a fault of this one may name: all others, in `main`.
    others: Mutex<Vec<Weak<Faults>>>,
    changes: Arc<watch::Sender<u64>>,
    /// Wakes the task that writes the status of faults.
    pub(super) hit: Arc<Notify>,
    clock: Clock,
    past: Past,
}

/// The faults that may act on a world.
#[derive(Default)]
struct Lists {
    /// Those whose objects are in the lab of this world.
    own: Vec<Arc<Fault>>,
    /// Those of `main` that name this world.
    given: Vec<Arc<Fault>>,
}

/// A fault that acts on a world.
#[derive(Clone)]
struct Active {
    fault: Arc<Fault>,
    /// The revision of the world when the fault appeared.
    appeared: Revision,
}

pub(super) struct Fault {
    pub(super) name: String,
    uid: String,
    generation: u64,
    pub(super) spec: Spec,
    pub(super) count: Mutex<Count>,
    pub(super) last_hit: Mutex<Option<LastHit>>,
    /// The world that its object is in, and who writes its status.
    home: Arc<str>,
    hit: Arc<Notify>,
    /// Whether the connections that were open when it appeared have been looked at.
    has_swept: AtomicBool,
}

impl Fault {
    /// A sentence, if it is expected to have other hits.
    fn unmet(&self) -> Option<String> {
        let (expected, hits) = (self.spec.expect?.hits?, self.count.lock().hits());
        (hits != expected).then(|| format!("fault {} expects {expected} hits and has {hits}", self.name))
    }
}

/// The request that was hit last.
#[derive(Clone)]
pub(super) struct LastHit {
    pub(super) at: Timestamp,
    pub(super) request: Disturbed,
    /// The connection that was refused or cut, before there was a request.
    pub(super) connection: Option<ConnectionNote>,
}

impl Faults {
    #[must_use]
    pub(crate) fn new(world: Arc<str>, changes: Arc<watch::Sender<u64>>, clock: Clock, past: Past) -> Arc<Self> {
        Arc::new(Faults {
            world,
            active: Arc::default(),
            table: ArcSwap::default(),
            lists: Mutex::default(),
            others: Mutex::default(),
            changes,
            hit: Arc::default(),
            clock,
            past,
        })
    }

    /// Those whose objects are in the lab of this world.
    pub(super) fn own(&self) -> Vec<Arc<Fault>> {
        self.lists.lock().own.clone()
    }

    /// A sentence for each expectation of a fault of this world that is not met.
    pub(crate) fn unmet(&self) -> Vec<String> {
        let lists = self.lists.lock();
        lists.own.iter().chain(&lists.given).filter_map(|fault| fault.unmet()).collect()
    }

    /// The same for this world and all others that exist.
    pub(crate) fn unmet_everywhere(&self) -> Vec<String> {
        let mut unmet = self.unmet();
        for other in self.others.lock().iter().filter_map(Weak::upgrade) {
            let own = other.own();
            unmet.extend(own.iter().filter_map(|fault| Some(format!("world {}: {}", other.world, fault.unmet()?))));
        }
        unmet
    }

    /// Lets the faults of this world act on another one, if they name it.
    pub(crate) fn share_with(&self, other: &Arc<Faults>) {
        let mut others = self.others.lock();
        if others.len() == others.capacity() {
            others.retain(|other| other.strong_count() > 0);
        }
        others.push(Arc::downgrade(other));
        // Under the lock: a change of the faults comes before or after it.
        other.take_given(&self.own());
    }

    /// Takes the faults of another world that name this one.
    fn take_given(&self, all: &[Arc<Fault>]) {
        let names = |fault: &&Arc<Fault>| fault.spec.matches.has_world(&fault.home, &self.world);
        let given: Vec<Arc<Fault>> = all.iter().filter(names).cloned().collect();
        let mut lists = self.lists.lock();
        if !given.is_empty() || !lists.given.is_empty() {
            lists.given = given;
            self.set_table(&lists);
        }
    }

    /// Brings the table up to the objects. A fault whose spec is the same keeps its counts.
    fn sync(&self, collections: &Collections) {
        let (objects, before) = (collections.get(FAULTS).objects(), self.own());
        let mut own: Vec<Arc<Fault>> = Vec::new();
        for item in objects.scan(FAULTS, None, None) {
            let Ok(object) = json::from_slice(item.encoded().whole()) else { continue };
            let uid = object["metadata"]["uid"].as_str().unwrap_or_default();
            let generation = object["metadata"]["generation"].as_u64().unwrap_or_default();
            let is_same = |fault: &&Arc<Fault>| fault.uid == uid && fault.generation == generation;
            if let Some(kept) = before.iter().find(is_same) {
                own.push(Arc::clone(kept));
                continue;
            }
            match Spec::read(&object) {
                Ok(spec) => own.push(Arc::new(Fault {
                    name: item.name().to_owned(),
                    uid: uid.to_owned(),
                    generation,
                    count: Mutex::new(Count::new(&spec.when)),
                    spec,
                    last_hit: Mutex::default(),
                    home: Arc::clone(&self.world),
                    hit: Arc::clone(&self.hit),
                    has_swept: AtomicBool::new(false),
                })),
                Err(error) => tracing::error!(name = item.name(), %error, "a fault cannot be read and does nothing"),
            }
        }
        if own.len() == before.len() && own.iter().zip(&before).all(|(a, b)| Arc::ptr_eq(a, b)) {
            return;
        }
        {
            let mut lists = self.lists.lock();
            lists.own.clone_from(&own);
            self.set_table(&lists);
        }
        for other in self.others.lock().iter().filter_map(Weak::upgrade) {
            other.take_given(&self.own());
        }
        // The status of a new fault says what it does.
        self.hit.notify_one();
    }

    /// Makes these faults act, as far as they are about this world.
    fn set_table(&self, lists: &Lists) {
        let (before, now) = (self.table.load(), self.past.now());
        let is_about = |fault: &&Arc<Fault>| fault.spec.matches.has_world(&fault.home, &self.world);
        let active = |fault: &Arc<Fault>| {
            let known = before.iter().find(|active| Arc::ptr_eq(&active.fault, fault));
            known.cloned().unwrap_or_else(|| Active { fault: Arc::clone(fault), appeared: now })
        };
        let mut table: Vec<Active> = lists.own.iter().chain(&lists.given).filter(is_about).map(active).collect();
        table.sort_by(|one, other| one.fault.name.cmp(&other.fault.name));
        self.active.store(!table.is_empty(), Ordering::Relaxed);
        self.table.store(Arc::new(table));
        self.changes.send_modify(|count| *count += 1);
    }

    /// The faults of a table that match a request.
    fn matching<'a>(table: &'a [Active], request: &'a Disturbed) -> impl Iterator<Item = &'a Active> {
        table.iter().filter(|active| active.fault.spec.matches.matches(request))
    }

    fn hits(&self, fault: &Fault, request: &Disturbed) -> bool {
        self.hits_with(fault, || (request.clone(), None))
    }

    fn hits_connection(&self, fault: &Fault, connection: &ConnectionNote) -> bool {
        self.hits_with(fault, || (Disturbed::default(), Some(connection.clone())))
    }

    fn hits_with(&self, fault: &Fault, what: impl FnOnce() -> (Disturbed, Option<ConnectionNote>)) -> bool {
        if !fault.count.lock().hit(&fault.spec.when) {
            return false;
        }
        let (request, connection) = what();
        *fault.last_hit.lock() = Some(LastHit { at: self.clock.now(), request, connection });
        fault.hit.notify_one();
        true
    }

    /// The newest revision that a fault lets requests see.
    fn horizon_of(&self, active: &Active) -> Option<Revision> {
        let stale = active.fault.spec.effect.stale.as_ref()?;
        let Some(by) = &stale.by else { return Some(active.appeared) };
        if let Some(revisions) = by.revisions {
            return Some(Revision(self.past.now().0.saturating_sub(revisions)));
        }
        // The schema has checked the text.
        let ago = by.duration.as_deref().and_then(parse_duration)?;
        Some(self.past.before(ago))
    }

    /// Counts the update of an object that has not had its conflict yet.
    fn conflicts(&self, fault: &Fault, request: &Disturbed, per_object: bool) -> bool {
        let object = match per_object {
            true => format!("{}/{}/{}/{}", request.group, request.resource, request.namespace, request.name),
            false => String::new(),
        };
        let is_update = matches!(request.verb, "update" | "patch") && fault.count.lock().is_new(&object);
        let hits = is_update && self.hits(fault, request);
        if hits {
            fault.count.lock().note(object);
        }
        hits
    }

    /// The error that a fault answers with, if it hits.
    fn answer(&self, fault: &Fault, request: &Disturbed) -> Option<Status> {
        let effect = &fault.spec.effect;
        if let Some(error) = &effect.error {
            return self.hits(fault, request).then(|| refusal::given(error, &fault.name, request));
        }
        if let Some(expire) = &effect.expire {
            let is_due = expire.form != "event" && matches!(request.verb, "list" | "watch");
            return (is_due && self.hits(fault, request)).then(Status::list_expired);
        }
        let once = effect.conflict_once?;
        self.conflicts(fault, request, once.per_object).then(|| refusal::conflict(request))
    }
}

impl Disturbances for Faults {
    fn active(&self) -> &Arc<AtomicBool> {
        &self.active
    }

    fn of_request(&self, request: &Disturbed) -> Disturbance {
        let mut disturbance = Disturbance::default();
        for active in Self::matching(&self.table.load(), request) {
            let fault = &*active.fault;
            if let Some(delay) = fault.spec.effect.delay().filter(|_| request.verb != "watch")
                && self.hits(fault, request)
            {
                disturbance.delay += delay;
                disturbance.faults.push(fault.name.clone());
            }
            let reads = matches!(request.verb, "get" | "list" | "watch") && request.subresource.is_empty();
            if let Some(horizon) = self.horizon_of(active).filter(|_| reads)
                && self.hits(fault, request)
            {
                disturbance.as_of = Some(disturbance.as_of.map_or(horizon, |other| other.min(horizon)));
                disturbance.faults.push(fault.name.clone());
            }
            if let Some(slow) = fault.spec.effect.slow.filter(|_| request.verb != "watch")
                && self.hits(fault, request)
            {
                let speed = slow.bytes_per_second;
                disturbance.bytes_per_second =
                    Some(disturbance.bytes_per_second.map_or(speed, |other| other.min(speed)));
                disturbance.faults.push(fault.name.clone());
            }
            // The first of these decides: what is answered with an error cannot lose its answer.
            if disturbance.answer.is_some() || disturbance.loses_answer {
                continue;
            }
            if fault.spec.effect.lose_answer.is_some() && self.hits(fault, request) {
                disturbance.loses_answer = true;
                disturbance.faults.push(fault.name.clone());
            } else if let Some(status) = self.answer(fault, request) {
                disturbance.answer = Some(Box::new(status));
                disturbance.faults.push(fault.name.clone());
            }
        }
        disturbance
    }

    fn of_event(&self, request: &Disturbed, event: &EventNote) -> Step {
        let mut step = Step::Send;
        for Active { fault, .. } in Self::matching(&self.table.load(), request) {
            if counts(fault, event)
                && let Some(wanted) = wanted(fault, event)
                && self.hits(fault, request)
            {
                step = stronger(step, wanted);
            }
        }
        step
    }

    fn of_stream(&self, request: &Disturbed) -> Step {
        for Active { fault, .. } in Self::matching(&self.table.load(), request) {
            let (when, effect) = (&fault.spec.when, &fault.spec.effect);
            let is_immediate = when.skip == 0
                && when.every.is_none()
                && when.probability.is_none()
                && when.events.is_none()
                && (fault.spec.matches.names.is_empty() || !request.name.is_empty());
            let step = match (&effect.cut, &effect.expire) {
                (Some(cut), _) => Step::Cut { abruptly: cut.abruptly },
                (None, Some(expire)) if expire.form == "event" => Step::Expire,
                _ => continue,
            };
            if is_immediate && self.hits(fault, request) {
                return step;
            }
        }
        Step::Send
    }

    fn holds(&self, request: &Disturbed) -> bool {
        Self::matching(&self.table.load(), request).any(|active| active.fault.spec.effect.silence.is_some())
    }

    fn horizon(&self, request: &Disturbed) -> Option<Revision> {
        Self::matching(&self.table.load(), request).filter_map(|active| self.horizon_of(active)).min()
    }

    fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    fn refuses_connections(&self) -> bool {
        self.table.load().iter().any(|active| active.fault.spec.effect.refuse_connections.is_some())
    }

    fn of_connection(&self, connection: &ConnectionNote) -> bool {
        // Every fault that matches counts it, whichever of them refuses.
        self.table.load().iter().fold(false, |refused, Active { fault, .. }| {
            let effect = fault.spec.effect.refuse_connections.as_ref();
            effect.is_some_and(|effect| effect.matches(connection) && self.hits_connection(fault, connection))
                || refused
        })
    }

    fn of_open_connections(&self, open: &[ConnectionNote]) -> Vec<usize> {
        let mut cut = BTreeSet::new();
        for Active { fault, .. } in self.table.load().iter() {
            let effect = fault.spec.effect.refuse_connections.as_ref();
            let Some(effect) = effect.filter(|effect| effect.cut_existing) else { continue };
            // Once: a connection that is let in afterwards stays.
            if fault.has_swept.swap(true, Ordering::Relaxed) {
                continue;
            }
            let matching = open.iter().enumerate().filter(|(_, connection)| effect.matches(connection));
            cut.extend(matching.filter(|(_, note)| self.hits_connection(fault, note)).map(|(at, _)| at));
        }
        cut.into_iter().collect()
    }
}

/// Whether an event is one of those that a fault counts.
fn counts(fault: &Fault, event: &EventNote) -> bool {
    let names = &fault.spec.matches.names;
    let is_named = names.is_empty() || event.name.is_empty() || names.contains(&event.name);
    is_named && fault.spec.when.events.as_ref().is_none_or(|events| is_listed(events, event))
}

fn is_listed(events: &Events, event: &EventNote) -> bool {
    (events.types.is_empty() || events.types.iter().any(|kind| kind == event.kind))
        && (events.names.is_empty() || events.names.contains(&event.name))
}

/// What a fault wants to happen to an event, if it is about events at all.
fn wanted(fault: &Fault, event: &EventNote) -> Option<Step> {
    let effect = &fault.spec.effect;
    let is_bookmark = event.kind == "BOOKMARK";
    if let Some(delay) = effect.delay() {
        return Some(Step::After(delay));
    }
    if let Some(cut) = effect.cut {
        return Some(Step::Cut { abruptly: cut.abruptly });
    }
    if let Some(slow) = effect.slow {
        return Some(Step::Pace(slow.bytes_per_second));
    }
    if effect.silence.is_some() {
        return Some(Step::Hold);
    }
    if let Some(expire) = &effect.expire {
        return (expire.form == "event").then_some(Step::Expire);
    }
    if effect.withhold_bookmarks.is_some() {
        return is_bookmark.then_some(Step::Drop);
    }
    if effect.skip_intermediate.is_some() {
        return (!is_bookmark && event.kind != "ERROR").then_some(Step::Merge);
    }
    effect.drop_events.as_ref().filter(|events| is_listed(events, event)).map(|_| Step::Drop)
}

/// Of two steps the one that leaves less of the event; delays add up.
fn stronger(one: Step, other: Step) -> Step {
    fn rank(step: &Step) -> u8 {
        match step {
            Step::Send => 0,
            Step::Merge => 1,
            Step::Pace(_) => 2,
            Step::After(_) => 3,
            Step::Hold => 4,
            Step::Expire => 5,
            Step::Cut { .. } => 6,
            Step::Drop => 7,
        }
    }
    match (&one, &other) {
        (Step::After(first), Step::After(second)) => Step::After(first.saturating_add(*second)),
        _ if rank(&other) > rank(&one) => other,
        _ => one,
    }
}

impl Observer for Faults {
    fn observes(&self, collection: &str) -> bool {
        collection == FAULTS
    }

    fn loaded(&self, collections: &Collections, _: &Collection, _: Revision) {
        self.sync(collections);
    }

    fn changed(&self, collections: &Collections, _: &[Arc<Event>]) {
        self.sync(collections);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn flt_14_delays_add_up_and_an_event_that_is_dropped_is_not_delayed() {
        let after = |seconds| Step::After(Duration::from_secs(seconds));
        assert_eq!(stronger(after(1), after(2)), after(3));
        assert_eq!(stronger(after(1), Step::Drop), Step::Drop);
        assert_eq!(stronger(Step::Drop, Step::Hold), Step::Drop);
        assert_eq!(stronger(Step::Send, Step::Merge), Step::Merge);
    }
}
