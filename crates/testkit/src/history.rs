//! Recorded histories, and validators of them.
//!
//! A test writes while watchers record the events that they receive, and then compares each record with the log itself. Each
//! guarantee has its own validator, so that a failure names the one that was broken:
//!
//! - [`ordered`]: revisions increase
//! - [`unique`]: no change is delivered twice
//! - [`gapless`]: exactly the changes of the log that the selection admits, none missing, none invented
//! - [`atomic`]: an initial state is the state of one revision
//! - [`fresh`]: a list contains every write that was acknowledged before the request
//! - [`durable`]: every acknowledged write is in the log

use std::collections::BTreeMap;
use std::fmt::Write as _;

/// One write, as the log has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    pub revision: u64,
    pub object: Object,
    /// The labels after the write; `None` is a delete.
    pub labels: Option<BTreeMap<String, String>>,
}

/// The identity of an object.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Object {
    pub namespace: String,
    pub name: String,
}

/// The objects that a watcher selects.
#[derive(Clone, Debug, Default)]
pub struct Selection {
    pub namespace: Option<String>,
    pub name: Option<String>,
    pub label: Option<Label>,
}

/// A label selector of one requirement.
#[derive(Clone, Debug)]
pub enum Label {
    Is(String, String),
    IsNot(String, String),
    Exists(String),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Added,
    Modified,
    Deleted,
}

/// One event, as a watcher received it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordedEvent {
    pub kind: Kind,
    pub object: Object,
    pub revision: u64,
}

/// All events of one watcher, over all its connections.
#[derive(Clone, Debug, Default)]
pub struct Journal {
    pub selection: Selection,
    /// The initial state and its revision, if it began with one.
    pub initial: Option<(Vec<(Object, u64)>, u64)>,
    /// The revision after which events were requested.
    pub after: u64,
    pub events: Vec<RecordedEvent>,
}

/// A list, and the newest write that had been acknowledged when it was requested.
#[derive(Clone, Debug)]
pub struct Listed {
    pub revision: u64,
    pub acknowledged: u64,
}

impl Selection {
    fn admits(&self, object: &Object, labels: &BTreeMap<String, String>) -> bool {
        self.namespace.as_ref().is_none_or(|namespace| *namespace == object.namespace)
            && self.name.as_ref().is_none_or(|name| *name == object.name)
            && self.label.as_ref().is_none_or(|label| match label {
                Label::Is(key, value) => labels.get(key) == Some(value),
                Label::IsNot(key, value) => labels.get(key) != Some(value),
                Label::Exists(key) => labels.contains_key(key),
            })
    }
}

/// The events after a revision that a watcher of this selection must receive, by the log.
#[must_use]
pub fn expected(log: &[Change], selection: &Selection, after: u64) -> Vec<RecordedEvent> {
    let mut matching: BTreeMap<&Object, bool> = BTreeMap::new();
    let mut events = Vec::new();
    for change in log {
        let was = matching.get(&change.object).copied().unwrap_or(false);
        let is = change.labels.as_ref().is_some_and(|labels| selection.admits(&change.object, labels));
        matching.insert(&change.object, is);
        let kind = match (was, is) {
            (false, false) => continue,
            (false, true) => Kind::Added,
            (true, true) => Kind::Modified,
            (true, false) => Kind::Deleted,
        };
        if change.revision > after {
            events.push(RecordedEvent { kind, object: change.object.clone(), revision: change.revision });
        }
    }
    events
}

/// Checks that revisions increase.
pub fn ordered(journal: &Journal) -> Result<(), String> {
    match journal.events.windows(2).find(|pair| pair[0].revision > pair[1].revision) {
        Some(pair) => Err(format!("{:?} was delivered before {:?}", pair[0], pair[1])),
        None => Ok(()),
    }
}

/// Checks that no change is delivered twice.
pub fn unique(journal: &Journal) -> Result<(), String> {
    match journal.events.windows(2).find(|pair| pair[0].revision == pair[1].revision) {
        Some(pair) => Err(format!("{:?} was delivered twice", pair[0])),
        None => Ok(()),
    }
}

/// Checks that the events are exactly those of the log, up to its end.
pub fn gapless(journal: &Journal, log: &[Change]) -> Result<(), String> {
    let expected = expected(log, &journal.selection, journal.after);
    if expected == journal.events {
        return Ok(());
    }
    let at = expected.iter().zip(&journal.events).take_while(|(want, got)| want == got).count();
    let mut report = format!(
        "after {} a watcher of {:?} should receive {} changes and received {}; the first difference is at {at}:",
        journal.after,
        journal.selection,
        expected.len(),
        journal.events.len()
    );
    let _ = write!(report, " want {:?}, got {:?}", expected.get(at), journal.events.get(at));
    Err(report)
}

/// Checks that the initial state is the state of one revision.
pub fn atomic(journal: &Journal, log: &[Change]) -> Result<(), String> {
    let Some((state, revision)) = &journal.initial else { return Ok(()) };
    let mut want: BTreeMap<&Object, u64> = BTreeMap::new();
    for change in log.iter().take_while(|change| change.revision <= *revision) {
        let is = change.labels.as_ref().is_some_and(|labels| journal.selection.admits(&change.object, labels));
        if is {
            want.insert(&change.object, change.revision);
        } else {
            want.remove(&change.object);
        }
    }
    let got: BTreeMap<&Object, u64> = state.iter().map(|(object, revision)| (object, *revision)).collect();
    if got.len() != state.len() {
        return Err("an object was delivered twice in an initial state".to_owned());
    }
    if want == got { Ok(()) } else { Err(format!("the state at {revision} is {want:?}, received was {got:?}")) }
}

/// Checks that a list contains every write that was acknowledged before the request.
pub fn fresh(lists: &[Listed]) -> Result<(), String> {
    match lists.iter().find(|list| list.revision < list.acknowledged) {
        Some(list) => Err(format!("a list showed {} after {} was acknowledged", list.revision, list.acknowledged)),
        None => Ok(()),
    }
}

/// Checks that every acknowledged write is in the log, at its acknowledged revision.
pub fn durable(acknowledged: &[(Object, u64)], log: &[Change]) -> Result<(), String> {
    let written: BTreeMap<u64, &Object> = log.iter().map(|change| (change.revision, &change.object)).collect();
    match acknowledged.iter().find(|(object, revision)| written.get(revision) != Some(&object)) {
        Some((object, revision)) => {
            Err(format!("{object:?} was acknowledged at {revision} and is not in the log there"))
        }
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(name: &str) -> Object {
        Object { namespace: "n".into(), name: name.into() }
    }

    fn change(revision: u64, name: &str, app: Option<&str>) -> Change {
        let labels = app.map(|app| BTreeMap::from([("app".to_owned(), app.to_owned())]));
        Change { revision, object: object(name), labels }
    }

    fn log() -> Vec<Change> {
        vec![change(1, "a", Some("x")), change(3, "b", Some("y")), change(4, "a", Some("y")), change(6, "b", None)]
    }

    fn journal(after: u64) -> Journal {
        let selection = Selection { label: Some(Label::Is("app".into(), "y".into())), ..Selection::default() };
        Journal { events: expected(&log(), &selection, after), selection, initial: None, after }
    }

    #[test]
    fn a_true_journal_passes_every_check() {
        let mut journal = journal(0);
        let kinds: Vec<_> = journal.events.iter().map(|told| (told.kind, told.revision)).collect();
        assert_eq!(kinds, [(Kind::Added, 3), (Kind::Added, 4), (Kind::Deleted, 6)]);
        journal.initial = Some((vec![(object("a"), 4), (object("b"), 3)], 5));
        for check in [ordered(&journal), unique(&journal), gapless(&journal, &log()), atomic(&journal, &log())] {
            check.unwrap();
        }
    }

    #[test]
    fn each_lie_is_found_by_its_check() {
        let mut swapped = journal(0);
        swapped.events.swap(0, 1);
        assert!(ordered(&swapped).is_err());
        let mut doubled = journal(0);
        doubled.events.insert(1, doubled.events[0].clone());
        assert!(unique(&doubled).is_err());
        let mut missing = journal(0);
        missing.events.remove(1);
        assert!(gapless(&missing, &log()).is_err());
        let mut mixed = journal(0);
        mixed.initial = Some((vec![(object("a"), 4)], 5));
        assert!(atomic(&mixed, &log()).is_err());
        assert!(fresh(&[Listed { revision: 4, acknowledged: 5 }]).is_err());
        assert!(durable(&[(object("a"), 3)], &log()).is_err());
        durable(&[(object("a"), 4)], &log()).unwrap();
    }
}
