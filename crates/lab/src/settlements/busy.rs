//! What is not quiet: who still writes what, which watches are behind, and which keys controllers have still to work on.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::time::Duration;

use machinery::json::{Value, json};
use server::queues::{BusyKey, BusyQueue};

use super::spec::Spec;
use crate::recorder::{Change, Recorder};

/// Writes of one client to one object after which a loop is suspected.
const LOOP_WRITES: usize = 10;
/// Writers that are named.
const WRITERS_MAX: usize = 20;

/// Describes who wrote since the settlement began, and which watches are behind.
pub(super) fn describe(recorder: &Recorder, spec: &Spec, first: u64, took: Duration, behind: Vec<Value>) -> Value {
    let rows = recorder.changes_after(first);
    let mut by_writer: BTreeMap<(String, String), Vec<&Change>> = BTreeMap::new();
    for row in rows.iter().filter(|row| !spec.ignores(row)) {
        by_writer.entry((row.agent().to_owned(), row.key())).or_default().push(row);
    }
    let mut writers: Vec<Vec<&Change>> = by_writer.into_values().collect();
    writers.sort_by_key(|rows| std::cmp::Reverse(rows.len()));
    writers.truncate(WRITERS_MAX);
    let writers: Vec<Value> = writers.iter().map(|rows| writer(rows, took)).collect();
    json!({"writers": writers, "watchers": behind})
}

/// The queues of controllers that are not empty.
pub(super) fn describe_queues(queues: &[BusyQueue]) -> Value {
    let key = |key: &BusyKey| {
        let mut shown = json!({"key": &*key.key, "state": key.state});
        if let Some(due) = key.due_in {
            shown["dueIn"] = json!(format!("{}ms", due.as_millis()));
        }
        shown
    };
    let queue = |queue: &BusyQueue| {
        let keys: Vec<Value> = queue.keys.iter().map(key).collect();
        json!({"controller": &*queue.controller, "queued": queue.queued, "working": queue.working, "keys": keys})
    };
    json!(queues.iter().map(queue).collect::<Vec<Value>>())
}

/// One client that writes one object.
fn writer(rows: &[&Change], took: Duration) -> Value {
    let (mut fields, mut shown) = (BTreeSet::new(), json!({}));
    for row in rows.iter().rev().take(LOOP_WRITES) {
        let status = row.status();
        for list in ["added", "changed", "removed"] {
            let paths = status["fields"][list].as_array().into_iter().flatten().filter_map(Value::as_str);
            fields.extend(paths.map(str::to_owned));
        }
        for member in ["userAgent", "user", "group", "resource", "namespace", "name", "kind"] {
            if let Some(text) = status[member].as_str() {
                shown[member] = json!(text);
            }
        }
    }
    let per_second = rows.len() as f64 / took.as_secs_f64().max(0.001);
    shown["writes"] = json!(rows.len());
    shown["perSecond"] = json!((per_second * 10.0).round() / 10.0);
    shown["fields"] = json!(fields.into_iter().collect::<Vec<_>>());
    if is_loop(rows) {
        shown["hotLoop"] = json!(true);
    }
    shown
}

/// Whether the same content comes again and again, but for times.
fn is_loop(rows: &[&Change]) -> bool {
    let contents: Vec<u64> = rows.iter().filter_map(|row| row.content_hash()).collect();
    let distinct: HashSet<&u64> = contents.iter().collect();
    contents.len() > LOOP_WRITES && distinct.len() <= 2
}
