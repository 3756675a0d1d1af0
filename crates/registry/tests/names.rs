//! Generated names (PR-7), over a store in which some of them are taken.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use machinery::Status;
use machinery::json::{Value, json};
use machinery::media::MediaType;
use machinery::options::CreateOptions;
use registry::{Body, Context, Form, Registry, Settings, Target, WriteRequest};
use store::error::EngineError;
use store::memory::MemoryStore;
use store::{
    Changes, Entry, Key, ListQuery, Prefix, ReadError, Retention, Revision, Snapshot, Stats, Store, StoreFuture,
    WatchError, WriteError,
};

/// A store in which the first names of config maps are taken.
struct Crowded {
    store: MemoryStore,
    taken: usize,
    asked: AtomicUsize,
}

impl Store for Crowded {
    fn create(&self, key: Key, value: Bytes) -> StoreFuture<'_, Result<Revision, WriteError>> {
        let ours = key.as_str().contains("configmaps");
        if ours && self.asked.fetch_add(1, Ordering::Relaxed) < self.taken {
            let there = Entry { key, value, revision: Revision(1) };
            return Box::pin(async { Err(WriteError::Exists(there)) });
        }
        self.store.create(key, value)
    }

    fn get<'a>(&'a self, key: &'a Key) -> StoreFuture<'a, Result<Option<Entry>, ReadError>> {
        self.store.get(key)
    }
    fn list(&self, query: ListQuery) -> StoreFuture<'_, Result<Snapshot, ReadError>> {
        self.store.list(query)
    }
    fn update(&self, key: Key, value: Bytes, expected: Revision) -> StoreFuture<'_, Result<Revision, WriteError>> {
        self.store.update(key, value, expected)
    }
    fn delete(&self, key: Key, expected: Revision) -> StoreFuture<'_, Result<Revision, WriteError>> {
        self.store.delete(key, expected)
    }
    fn watch(&self, prefix: Prefix, after: Revision) -> StoreFuture<'_, Result<Changes, WatchError>> {
        self.store.watch(prefix, after)
    }
    fn compact(&self, at: Revision) -> StoreFuture<'_, Result<(), ReadError>> {
        self.store.compact(at)
    }
    fn current_revision(&self) -> StoreFuture<'_, Result<Revision, ReadError>> {
        self.store.current_revision()
    }
    fn oldest_revision<'a>(&'a self, prefix: &'a Prefix) -> StoreFuture<'a, Result<Revision, ReadError>> {
        self.store.oldest_revision(prefix)
    }
    fn backup<'a>(&'a self, to: &'a Path) -> StoreFuture<'a, Result<(), EngineError>> {
        self.store.backup(to)
    }
    fn stats(&self) -> StoreFuture<'_, Result<Stats, ReadError>> {
        self.store.stats()
    }
    fn close(&self) -> StoreFuture<'_, ()> {
        self.store.close()
    }
}

/// Creates a config map; also returns the number of names that were tried.
async fn create(taken: usize, metadata: Value) -> (Result<String, Status>, usize) {
    let store = MemoryStore::new(Retention::default());
    let store = Arc::new(Crowded { store, taken, asked: AtomicUsize::new(0) });
    let registry = Registry::start(store.clone(), Settings::default()).await.unwrap();
    let kind = Arc::clone(registry.kinds().get("", "v1", "configmaps").expect("a served kind"));
    let target = Target { kind, namespace: Some("default".into()), name: None, subresource: None };
    let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata});
    let body = Body { bytes: Bytes::from(object.to_string()), media: MediaType::Json };
    let created = registry
        .create(WriteRequest { target: &target, options: &CreateOptions::default(), ctx: &Context::default() }, &body)
        .await;
    let name = created.map(|outcome| {
        let segments = outcome.view.render(&Form::default(), machinery::Clock::system().now()).unwrap();
        let object: Value = serde_json::from_slice(&segments.concat()).unwrap();
        object["metadata"]["name"].as_str().unwrap_or_default().to_owned()
    });
    (name, store.asked.load(Ordering::Relaxed))
}

#[tokio::test]
async fn pr_7_a_made_up_name_that_is_taken_is_made_up_again_seven_times() {
    let asking = || json!({"generateName": "web-"});
    let (made, tried) = create(0, asking()).await;
    assert_eq!(tried, 1);
    let suffix = made.unwrap().strip_prefix("web-").expect("the beginning").to_owned();
    assert!(suffix.len() == 5 && suffix.chars().all(|c| "bcdfghjklmnpqrstvwxz2456789".contains(c)), "{suffix}");
    let (made, tried) = create(7, asking()).await;
    assert_eq!((made.is_ok(), tried), (true, 8), "the eighth was free");
    let (made, tried) = create(usize::MAX, asking()).await;
    let refused = made.unwrap_err();
    assert_eq!((refused.code, tried), (409, 8), "{}", refused.message);
    // A name that is sent is tried once.
    let (made, tried) = create(1, json!({"name": "mine"})).await;
    assert_eq!((made.unwrap_err().code, tried), (409, 1));
}
