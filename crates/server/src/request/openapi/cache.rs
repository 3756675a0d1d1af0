//! A cache of OpenAPI documents: built on request, evicted when idle or when the cache is full.
//!
//! A server without requests for documents holds none of them. Hashes are cached longer: they are short, and every client
//! requests them first. They are valid as long as the kinds they were computed from are served.

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use registry::kind::Kind;
use registry::kinds::Kinds;
use registry::openapi::{Encoding, Source};
use tokio::time::Instant;

use crate::request::version;

/// The document of version 2, or a document of version 3 by its path.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum DocumentName {
    V2,
    V3(String),
}

pub(super) struct DocumentCache {
    entries: Arc<Mutex<Entries>>,
    /// Held while a document is built: waiting requests often want the same one.
    building: tokio::sync::Mutex<()>,
    bytes_max: usize,
    idle: Duration,
}

#[derive(Default)]
struct Entries {
    hashes: HashMap<DocumentName, DocumentHash>,
    documents: HashMap<(DocumentName, Encoding), Document>,
    /// A [`sweep`] is running.
    has_sweep: bool,
}

struct DocumentHash {
    /// The kinds that the hash was computed from.
    kinds: Vec<Arc<Kind>>,
    hash: String,
}

struct Document {
    hash: String,
    body: Bytes,
    used: Instant,
}

fn source(kinds: &Kinds) -> Source<'_> {
    Source { kinds, version: version::GIT_VERSION }
}

impl DocumentCache {
    pub(super) fn new(bytes_max: usize, idle: Duration) -> Self {
        DocumentCache { entries: Arc::default(), building: tokio::sync::Mutex::default(), bytes_max, idle }
    }

    /// Returns the hash of a document; none when there is no such document.
    pub(super) fn hash(&self, kinds: &Kinds, name: &DocumentName) -> Option<String> {
        let source = source(kinds);
        let document_kinds = match name {
            DocumentName::V2 => kinds.iter().cloned().collect(),
            DocumentName::V3(path) => source.kinds_of(path)?,
        };
        let mut entries = self.entries.lock();
        if let Some(known) = entries.hashes.get(name)
            && known.kinds.len() == document_kinds.len()
            && known.kinds.iter().zip(&document_kinds).all(|(a, b)| Arc::ptr_eq(a, b))
        {
            return Some(known.hash.clone());
        }
        let hash = match name {
            DocumentName::V2 => source.hash_v2(),
            DocumentName::V3(path) => source.hash(path)?,
        };
        entries.hashes.insert(name.clone(), DocumentHash { kinds: document_kinds, hash: hash.clone() });
        Some(hash)
    }

    /// Returns the hashes of all documents of version 3, by path.
    pub(super) fn hashes(&self, kinds: &Kinds) -> Vec<(String, String)> {
        let paths = source(kinds).paths();
        // Drop the hashes of kinds that are no longer served.
        self.entries.lock().hashes.retain(|name, _| match name {
            DocumentName::V2 => true,
            DocumentName::V3(path) => paths.binary_search(path).is_ok(),
        });
        let hashes = paths.into_iter().filter_map(|path| {
            let name = DocumentName::V3(path);
            let hash = self.hash(kinds, &name)?;
            let DocumentName::V3(path) = name else { return None };
            Some((path, hash))
        });
        hashes.collect()
    }

    /// Returns a document, which is built if it is not in the cache.
    pub(super) async fn document(
        &self,
        kinds: &Arc<Kinds>,
        name: DocumentName,
        encoding: Encoding,
        hash: &str,
    ) -> Option<Bytes> {
        let key = (name, encoding);
        if let Some(body) = self.entries.lock().find(&key, hash) {
            return Some(body);
        }
        let _building = self.building.lock().await;
        if let Some(body) = self.entries.lock().find(&key, hash) {
            return Some(body);
        }
        // Takes tens of milliseconds, which would block other requests on an async thread.
        let (kinds, name) = (Arc::clone(kinds), key.0.clone());
        let made = tokio::task::spawn_blocking(move || match name {
            DocumentName::V2 => Some(source(&kinds).v2(encoding)),
            DocumentName::V3(path) => source(&kinds).v3(&path, encoding),
        });
        let body = Bytes::from(made.await.ok()??);
        let mut entries = self.entries.lock();
        entries.evict_to(self.bytes_max.saturating_sub(body.len()));
        if body.len() <= self.bytes_max {
            let document = Document { hash: hash.to_owned(), body: body.clone(), used: Instant::now() };
            entries.documents.insert(key, document);
            if !std::mem::replace(&mut entries.has_sweep, true) {
                tokio::spawn(sweep(Arc::downgrade(&self.entries), self.idle));
            }
        }
        Some(body)
    }
}

impl Entries {
    fn find(&mut self, key: &(DocumentName, Encoding), hash: &str) -> Option<Bytes> {
        let document = self.documents.get_mut(key).filter(|document| document.hash == hash)?;
        document.used = Instant::now();
        Some(document.body.clone())
    }

    /// Evicts the least recently used documents until the rest is no larger than `bytes_max`.
    fn evict_to(&mut self, bytes_max: usize) {
        while self.documents.values().map(|document| document.body.len()).sum::<usize>() > bytes_max {
            let oldest = self.documents.iter().min_by_key(|(_, document)| document.used);
            let Some(key) = oldest.map(|(key, _)| key.clone()) else { return };
            self.documents.remove(&key);
        }
    }
}

/// Evicts idle documents, until none is left or the cache is dropped.
async fn sweep(entries: Weak<Mutex<Entries>>, idle: Duration) {
    loop {
        tokio::time::sleep(idle).await;
        let Some(entries) = entries.upgrade() else { return };
        let mut entries = entries.lock();
        entries.documents.retain(|_, document| document.used.elapsed() < idle);
        if entries.documents.is_empty() {
            entries.documents.shrink_to_fit();
            entries.has_sweep = false;
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kinds() -> Arc<Kinds> {
        Arc::new(registry::kinds::builtin().clone())
    }

    fn cached(cache: &DocumentCache) -> usize {
        cache.entries.lock().documents.len()
    }

    async fn get(cache: &DocumentCache, kinds: &Arc<Kinds>, path: &str) -> Bytes {
        let name = DocumentName::V3(path.to_owned());
        let hash = cache.hash(kinds, &name).unwrap();
        cache.document(kinds, name, Encoding::Json, &hash).await.unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn idle_documents_are_evicted() {
        let documents = DocumentCache::new(1 << 20, Duration::from_secs(30));
        let first = get(&documents, &kinds(), "apis").await;
        assert_eq!(cached(&documents), 1);
        tokio::time::sleep(Duration::from_secs(20)).await;
        assert_eq!(get(&documents, &kinds(), "apis").await.as_ptr(), first.as_ptr(), "the same bytes");
        tokio::time::sleep(Duration::from_secs(20)).await;
        assert_eq!(cached(&documents), 1, "used in between");
        tokio::time::sleep(Duration::from_secs(41)).await;
        assert_eq!(cached(&documents), 0);
        assert_eq!(get(&documents, &kinds(), "apis").await, first, "built again");
        tokio::time::sleep(Duration::from_secs(61)).await;
        assert_eq!(cached(&documents), 0, "and dropped again");
    }

    #[tokio::test]
    async fn the_cache_is_bounded() {
        let documents = DocumentCache::new(12_000, Duration::from_secs(30));
        for path in ["api", "apis", "version", "apis/apps", "apis/batch"] {
            get(&documents, &kinds(), path).await;
            let entries = documents.entries.lock();
            let bytes: usize = entries.documents.values().map(|document| document.body.len()).sum();
            assert!(bytes <= 12_000, "{path}: {bytes}");
        }
        let before = cached(&documents);
        assert!(before > 1, "several small ones fit");
        get(&documents, &kinds(), "apis/events.k8s.io/v1").await;
        assert!(
            !documents
                .entries
                .lock()
                .documents
                .keys()
                .any(|(name, _)| *name == DocumentName::V3("apis/events.k8s.io/v1".into()))
        );
    }

    #[tokio::test]
    async fn a_hash_changes_with_the_kinds_of_its_document_and_with_no_others() {
        let documents = DocumentCache::new(1 << 20, Duration::from_secs(30));
        let all = kinds();
        let fewer = Arc::new(all.without(|kind| kind.gvk.kind == "CronJob"));
        let hash = |kinds: &Arc<Kinds>, path: &str| documents.hash(kinds, &DocumentName::V3(path.to_owned()));
        assert_ne!(hash(&all, "apis/batch/v1"), hash(&fewer, "apis/batch/v1"));
        assert_eq!(hash(&all, "apis/apps/v1"), hash(&fewer, "apis/apps/v1"));
        assert_ne!(documents.hash(&all, &DocumentName::V2), documents.hash(&fewer, &DocumentName::V2));
        let none = Arc::new(all.without(|kind| kind.gvk.group == "batch"));
        assert_eq!(hash(&none, "apis/batch/v1"), None);
        assert!(documents.hashes(&none).iter().all(|(path, _)| !path.contains("batch")));
    }
}
