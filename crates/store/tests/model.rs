//! Random operations against a plain map: both engines of this process agree with it after every step.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use proptest::prelude::*;
use store::embedded::{Durability, EmbeddedOptions, EmbeddedStore};
use store::memory::MemoryStore;
use store::{Change, Entry, Key, ListQuery, Prefix, ReadError, Revision, Store, WatchError, WriteError};

#[derive(Clone, Debug)]
enum Operation {
    Create {
        key: usize,
        size: usize,
    },
    Update {
        key: usize,
        size: usize,
        stale: bool,
    },
    Delete {
        key: usize,
        stale: bool,
    },
    /// At this share of the revisions assigned so far.
    Compact {
        share: u8,
    },
    List {
        prefix: usize,
        share: Option<u8>,
        start_after: Option<usize>,
        limit: usize,
    },
    Watch {
        prefix: usize,
        share: u8,
    },
    Reopen,
    Kill,
}

const KEYS: [&str; 8] = [
    "apps/deployments/a/1",
    "core/nodes/n1",
    "core/pods/a/1",
    "core/pods/a/10",
    "core/pods/a/2",
    "core/pods/ab/1",
    "core/pods/b/1",
    "core/podtemplates/a/1",
];
const PREFIXES: [&str; 8] = ["", "core/", "core/pods/", "core/pods/a/", "core/pods/a", "apps/", "core/pod", "zz/"];

fn operation() -> impl Strategy<Value = Operation> {
    let key = 0..KEYS.len();
    let size = prop_oneof![8 => 0..200_usize, 1 => 4_000..20_000_usize];
    prop_oneof![
        6 => (key.clone(), size.clone()).prop_map(|(key, size)| Operation::Create { key, size }),
        8 => (key.clone(), size, prop::bool::weighted(0.1))
            .prop_map(|(key, size, stale)| Operation::Update { key, size, stale }),
        4 => (key.clone(), prop::bool::weighted(0.1)).prop_map(|(key, stale)| Operation::Delete { key, stale }),
        1 => any::<u8>().prop_map(|share| Operation::Compact { share }),
        3 => (0..PREFIXES.len(), any::<Option<u8>>(), prop::option::of(key), 0..4_usize).prop_map(
            |(prefix, share, start_after, limit)| Operation::List { prefix, share, start_after, limit }
        ),
        3 => (0..PREFIXES.len(), any::<u8>()).prop_map(|(prefix, share)| Operation::Watch { prefix, share }),
        1 => Just(Operation::Reopen),
        1 => Just(Operation::Kill),
    ]
}

/// The expected state: every change ever made, and the floor below which reads must fail.
#[derive(Default)]
struct Model {
    log: BTreeMap<u64, Change>,
    floor: u64,
}

impl Model {
    fn revision(&self) -> u64 {
        self.log.last_key_value().map_or(0, |(revision, _)| *revision)
    }

    fn state(&self, at: u64) -> BTreeMap<&str, &Change> {
        let mut state = BTreeMap::new();
        for change in self.log.range(..=at).map(|(_, change)| change) {
            match change.value {
                Some(_) => state.insert(change.key.as_str(), change),
                None => state.remove(change.key.as_str()),
            };
        }
        state
    }

    fn current(&self, key: &Key) -> Option<Entry> {
        self.state(self.revision()).get(key.as_str()).map(|change| entry(change))
    }

    fn share(&self, share: u8) -> u64 {
        // Slightly beyond the end too: future revisions must be refused.
        (self.revision() + 2) * u64::from(share) / 255
    }

    /// Number and bytes of the history: changes beyond the floor and the values they replaced.
    fn history(&self) -> (u64, u64) {
        let current = self.state(self.revision());
        let at_floor = self.state(self.floor);
        let kept = self.log.values().filter(|change| {
            change.revision.0 > self.floor
                || at_floor.get(change.key.as_str()).is_some_and(|kept| kept.revision == change.revision)
        });
        let history: Vec<&Change> = kept
            .filter(|change| current.get(change.key.as_str()).is_none_or(|current| current.revision != change.revision))
            .collect();
        let bytes = history.iter().map(|change| change.value.as_ref().map_or(0, Bytes::len) as u64).sum();
        (history.len() as u64, bytes)
    }
}

fn entry(change: &Change) -> Entry {
    let value = change.value.clone().expect("a state holds no deletes");
    Entry { key: change.key.clone(), revision: change.revision, value }
}

fn key(number: usize) -> Key {
    Key::new(KEYS[number]).expect("well formed")
}

/// An engine that can be closed and opened again.
type Open<'a> = &'a dyn Fn() -> Arc<dyn Store>;

async fn check(operations: Vec<Operation>, open: Option<Open<'_>>, store: Arc<dyn Store>) {
    let mut store = Some(store);
    let mut model = Model::default();
    for (step, operation) in operations.into_iter().enumerate() {
        let engine = store.clone().expect("open between steps");
        let context = format!("step {step}: {operation:?}");
        match operation {
            Operation::Create { key: number, size } => {
                let (key, value) = (key(number), value(step, size));
                let outcome = engine.create(key.clone(), value.clone()).await;
                match model.current(&key) {
                    None => wrote(&mut model, &outcome.expect(&context), key, Some(value)),
                    Some(current) => {
                        assert!(matches!(outcome, Err(WriteError::Exists(found)) if found == current), "{context}")
                    }
                }
            }
            Operation::Update { key: number, size, stale } => {
                let (key, value) = (key(number), value(step, size));
                let current = model.current(&key);
                let expected = expected(current.as_ref(), stale);
                let outcome = engine.update(key.clone(), value.clone(), expected).await;
                settle(&mut model, outcome, key, Some(value), current, expected, &context);
            }
            Operation::Delete { key: number, stale } => {
                let key = key(number);
                let current = model.current(&key);
                let expected = expected(current.as_ref(), stale);
                let outcome = engine.delete(key.clone(), expected).await;
                settle(&mut model, outcome, key, None, current, expected, &context);
            }
            Operation::Compact { share } => {
                let at = model.share(share);
                let outcome = engine.compact(Revision(at)).await;
                if at > model.revision() {
                    assert!(matches!(outcome, Err(ReadError::Future { .. })), "{context}: {outcome:?}");
                } else {
                    outcome.expect(&context);
                    model.floor = model.floor.max(at);
                }
            }
            Operation::List { prefix, share, start_after, limit } => {
                let at = share.map(|share| Revision(model.share(share)));
                let start_after = start_after.map(|number| KEYS[number].to_owned());
                list(
                    &model,
                    &*engine,
                    ListQuery { prefix: Prefix::new(PREFIXES[prefix]), start_after, limit, at },
                    &context,
                )
                .await;
            }
            Operation::Watch { prefix, share } => {
                watch(&model, &*engine, PREFIXES[prefix], model.share(share), &context).await;
            }
            Operation::Reopen | Operation::Kill => {
                if let Some(open) = open {
                    if matches!(operation, Operation::Reopen) {
                        engine.close().await;
                    }
                    drop(engine);
                    drop(store.take());
                    store = Some(open());
                }
            }
        }
        let engine = store.as_deref().expect("open between steps");
        agree(&model, engine, &context).await;
    }
    let engine = store.expect("open at the end");
    watch(&model, &*engine, "", model.floor, "at the end").await;
    for at in model.floor..=model.revision() {
        list(&model, &*engine, ListQuery { at: Some(Revision(at)), ..ListQuery::default() }, "at the end").await;
    }
}

fn value(step: usize, size: usize) -> Bytes {
    (0..size).map(|position| (position * 31 + step) as u8).collect()
}

fn expected(current: Option<&Entry>, stale: bool) -> Revision {
    match current {
        Some(current) if !stale => current.revision,
        Some(current) => Revision(current.revision.0 - 1),
        None => Revision(1),
    }
}

fn wrote(model: &mut Model, revision: &Revision, key: Key, value: Option<Bytes>) {
    assert_eq!(revision.0, model.revision() + 1, "revisions go forward by one, also after a restart");
    let previous = model.current(&key);
    model.log.insert(revision.0, Change { key, revision: *revision, value, previous });
}

fn settle(
    model: &mut Model,
    outcome: Result<Revision, WriteError>,
    key: Key,
    value: Option<Bytes>,
    current: Option<Entry>,
    expected: Revision,
    context: &str,
) {
    if current.as_ref().is_some_and(|current| current.revision == expected) {
        wrote(model, &outcome.expect(context), key, value);
    } else {
        match outcome {
            Err(WriteError::Conflict { current: found, .. }) => assert_eq!(found, current, "{context}"),
            other => panic!("{context}: {other:?}"),
        }
    }
}

/// Compares everything that can be read at any time.
async fn agree(model: &Model, store: &dyn Store, context: &str) {
    assert_eq!(store.current_revision().await.expect(context).0, model.revision(), "{context}");
    assert_eq!(store.oldest_revision(&Prefix::everything()).await.expect(context).0, model.floor, "{context}");
    let stats = store.stats().await.expect(context);
    let current = model.state(model.revision());
    let bytes: u64 = current.values().map(|change| change.value.as_ref().map_or(0, Bytes::len) as u64).sum();
    assert_eq!((stats.objects, stats.object_bytes), (current.len() as u64, bytes), "{context}");
    assert_eq!((stats.history, stats.history_bytes), model.history(), "{context}");
    for number in 0..KEYS.len() {
        assert_eq!(store.get(&key(number)).await.expect(context), model.current(&key(number)), "{context}");
    }
}

async fn list(model: &Model, store: &dyn Store, query: ListQuery, context: &str) {
    let at = query.at.map_or(model.revision(), |at| at.0);
    let outcome = store.list(query.clone()).await;
    if at > model.revision() {
        return assert!(matches!(outcome, Err(ReadError::Future { .. })), "{context}: {outcome:?}");
    }
    if at < model.floor {
        return assert!(matches!(outcome, Err(ReadError::Compacted { .. })), "{context}: {outcome:?}");
    }
    let snapshot = outcome.expect(context);
    let state = model.state(at);
    let start = query.start_after.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
    let all: Vec<Entry> = state
        .range::<str, _>((start, Bound::Unbounded))
        .filter(|(key, _)| key.starts_with(query.prefix.as_str()))
        .map(|(_, change)| entry(change))
        .collect();
    let shown = if query.limit == 0 { all.len() } else { query.limit.min(all.len()) };
    assert_eq!(snapshot.revision.0, at, "{context}");
    assert_eq!(snapshot.entries, all[..shown], "{context}");
    assert_eq!(snapshot.remaining as usize, all.len() - shown, "{context}");
}

async fn watch(model: &Model, store: &dyn Store, prefix: &str, after: u64, context: &str) {
    let outcome = store.watch(Prefix::new(prefix), Revision(after)).await;
    let mut changes = match outcome {
        Err(WatchError::Future { .. }) if after > model.revision() => return,
        Err(WatchError::Compacted { .. }) if after < model.floor => return,
        Err(other) => panic!("{context}: {other}"),
        Ok(changes) => changes,
    };
    assert!(model.floor <= after && after <= model.revision(), "{context}: must be refused");
    let expected: Vec<&Change> = model
        .log
        .range(after + 1..)
        .map(|(_, change)| change)
        .filter(|change| change.key.as_str().starts_with(prefix))
        .collect();
    let mut seen = Vec::new();
    while seen.len() < expected.len() {
        seen.extend(changes.next().await.expect(context).expect(context).changes);
    }
    assert_eq!(seen.iter().collect::<Vec<_>>(), expected, "{context}");
}

fn run(check: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(check);
}

fn open(dir: &Path) -> Arc<dyn Store> {
    let mut options = EmbeddedOptions::new(dir);
    // These operations do not depend on the sync, and there are many thousands of them.
    options.durability = Durability::Relaxed;
    // Short, so that most watches start on disk and some move to memory later.
    options.tail_changes_max = 6;
    Arc::new(EmbeddedStore::open(options).expect("opens"))
}

proptest! {
    // A failure prints its shortest form, to be copied into a test of its own.
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn memory_agrees_with_a_plain_map(operations in prop::collection::vec(operation(), 1..120)) {
        run(check(operations, None, Arc::new(MemoryStore::default())));
    }

    #[test]
    fn embedded_agrees_with_a_plain_map_across_restarts(operations in prop::collection::vec(operation(), 1..120)) {
        let dir = tempfile::tempdir().expect("a temporary directory");
        run(check(operations, Some(&|| open(dir.path())), open(dir.path())));
    }
}
