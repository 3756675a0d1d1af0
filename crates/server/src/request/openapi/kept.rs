//! Which documents are at hand: made when somebody asks, kept while others ask for the same, dropped again.
//!
//! A server that nobody asks for a document holds none of this. Hashes are kept longer: they are short, and every client
//! asks for them first. They stay valid as long as the kinds they were made from are served.

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

/// A document: the one of version 2, or one of version 3 by its path.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Name {
    V2,
    V3(String),
}

pub(super) struct Kept {
    held: Arc<Mutex<Held>>,
    /// Whose turn it is to make a document: who waits for it often wants the same one.
    making: tokio::sync::Mutex<()>,
    bytes_max: usize,
    idle: Duration,
}

#[derive(Default)]
struct Held {
    hashes: HashMap<Name, Hashed>,
    documents: HashMap<(Name, Encoding), Document>,
    /// Somebody will come and drop what is not asked for.
    swept: bool,
}

struct Hashed {
    /// The kinds it was made from.
    of: Vec<Arc<Kind>>,
    hash: String,
}

struct Document {
    hash: String,
    body: Bytes,
    asked: Instant,
}

fn source(kinds: &Kinds) -> Source<'_> {
    Source { kinds, version: version::GIT_VERSION }
}

impl Kept {
    pub(super) fn new(bytes_max: usize, idle: Duration) -> Self {
        Kept { held: Arc::default(), making: tokio::sync::Mutex::default(), bytes_max, idle }
    }

    /// The hash of a document; none when there is no such document.
    pub(super) fn hash(&self, kinds: &Kinds, name: &Name) -> Option<String> {
        let source = source(kinds);
        let of = match name {
            Name::V2 => kinds.iter().cloned().collect(),
            Name::V3(path) => source.kinds_of(path)?,
        };
        let mut held = self.held.lock();
        if let Some(known) = held.hashes.get(name)
            && known.of.len() == of.len()
            && known.of.iter().zip(&of).all(|(a, b)| Arc::ptr_eq(a, b))
        {
            return Some(known.hash.clone());
        }
        let hash = match name {
            Name::V2 => source.hash_v2(),
            Name::V3(path) => source.hash(path)?,
        };
        held.hashes.insert(name.clone(), Hashed { of, hash: hash.clone() });
        Some(hash)
    }

    /// The hashes of all documents of version 3, by path.
    pub(super) fn hashes(&self, kinds: &Kinds) -> Vec<(String, String)> {
        let paths = source(kinds).paths();
        // Kinds that are gone take their hashes with them.
        self.held.lock().hashes.retain(|name, _| match name {
            Name::V2 => true,
            Name::V3(path) => paths.binary_search(path).is_ok(),
        });
        let hashes = paths.into_iter().filter_map(|path| {
            let name = Name::V3(path);
            let hash = self.hash(kinds, &name)?;
            let Name::V3(path) = name else { return None };
            Some((path, hash))
        });
        hashes.collect()
    }

    /// The bytes of a document, made if need be.
    pub(super) async fn document(
        &self,
        kinds: &Arc<Kinds>,
        name: Name,
        encoding: Encoding,
        hash: &str,
    ) -> Option<Bytes> {
        let key = (name, encoding);
        if let Some(body) = self.held.lock().find(&key, hash) {
            return Some(body);
        }
        let _turn = self.making.lock().await;
        if let Some(body) = self.held.lock().find(&key, hash) {
            return Some(body);
        }
        // Tens of milliseconds of work: not on a thread that serves others.
        let (kinds, name) = (Arc::clone(kinds), key.0.clone());
        let made = tokio::task::spawn_blocking(move || match name {
            Name::V2 => Some(source(&kinds).v2(encoding)),
            Name::V3(path) => source(&kinds).v3(&path, encoding),
        });
        let body = Bytes::from(made.await.ok()??);
        let mut held = self.held.lock();
        held.make_room(self.bytes_max.saturating_sub(body.len()));
        if body.len() <= self.bytes_max {
            let document = Document { hash: hash.to_owned(), body: body.clone(), asked: Instant::now() };
            held.documents.insert(key, document);
            if !std::mem::replace(&mut held.swept, true) {
                tokio::spawn(sweep(Arc::downgrade(&self.held), self.idle));
            }
        }
        Some(body)
    }
}

impl Held {
    fn find(&mut self, key: &(Name, Encoding), hash: &str) -> Option<Bytes> {
        let document = self.documents.get_mut(key).filter(|document| document.hash == hash)?;
        document.asked = Instant::now();
        Some(document.body.clone())
    }

    /// Drops what was asked for longest ago until the rest is no larger than this.
    fn make_room(&mut self, bytes_max: usize) {
        while self.documents.values().map(|document| document.body.len()).sum::<usize>() > bytes_max {
            let oldest = self.documents.iter().min_by_key(|(_, document)| document.asked);
            let Some(key) = oldest.map(|(key, _)| key.clone()) else { return };
            self.documents.remove(&key);
        }
    }
}

/// Drops documents as they become idle, until none is left or the server is gone.
async fn sweep(held: Weak<Mutex<Held>>, idle: Duration) {
    loop {
        tokio::time::sleep(idle).await;
        let Some(held) = held.upgrade() else { return };
        let mut held = held.lock();
        held.documents.retain(|_, document| document.asked.elapsed() < idle);
        if held.documents.is_empty() {
            held.documents.shrink_to_fit();
            held.swept = false;
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

    fn kept(kept: &Kept) -> usize {
        kept.held.lock().documents.len()
    }

    async fn ask(kept: &Kept, kinds: &Arc<Kinds>, path: &str) -> Bytes {
        let name = Name::V3(path.to_owned());
        let hash = kept.hash(kinds, &name).unwrap();
        kept.document(kinds, name, Encoding::Json, &hash).await.unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn documents_that_nobody_asks_for_are_dropped() {
        let documents = Kept::new(1 << 20, Duration::from_secs(30));
        let first = ask(&documents, &kinds(), "apis").await;
        assert_eq!(kept(&documents), 1);
        tokio::time::sleep(Duration::from_secs(20)).await;
        assert_eq!(ask(&documents, &kinds(), "apis").await.as_ptr(), first.as_ptr(), "the same bytes");
        tokio::time::sleep(Duration::from_secs(20)).await;
        assert_eq!(kept(&documents), 1, "asked for in between");
        tokio::time::sleep(Duration::from_secs(41)).await;
        assert_eq!(kept(&documents), 0);
        assert_eq!(ask(&documents, &kinds(), "apis").await, first, "made again");
        tokio::time::sleep(Duration::from_secs(61)).await;
        assert_eq!(kept(&documents), 0, "and dropped again");
    }

    #[tokio::test]
    async fn no_more_is_kept_than_allowed() {
        let documents = Kept::new(12_000, Duration::from_secs(30));
        for path in ["api", "apis", "version", "apis/apps", "apis/batch"] {
            ask(&documents, &kinds(), path).await;
            let held = documents.held.lock();
            let bytes: usize = held.documents.values().map(|document| document.body.len()).sum();
            assert!(bytes <= 12_000, "{path}: {bytes}");
        }
        let before = kept(&documents);
        assert!(before > 1, "several small ones fit");
        ask(&documents, &kinds(), "apis/events.k8s.io/v1").await;
        assert!(
            !documents.held.lock().documents.keys().any(|(name, _)| *name == Name::V3("apis/events.k8s.io/v1".into()))
        );
    }

    #[tokio::test]
    async fn a_hash_changes_with_the_kinds_it_speaks_of_and_with_no_others() {
        let documents = Kept::new(1 << 20, Duration::from_secs(30));
        let all = kinds();
        let fewer = Arc::new(all.without(|kind| kind.gvk.kind == "CronJob"));
        let hash = |kinds: &Arc<Kinds>, path: &str| documents.hash(kinds, &Name::V3(path.to_owned()));
        assert_ne!(hash(&all, "apis/batch/v1"), hash(&fewer, "apis/batch/v1"));
        assert_eq!(hash(&all, "apis/apps/v1"), hash(&fewer, "apis/apps/v1"));
        assert_ne!(documents.hash(&all, &Name::V2), documents.hash(&fewer, &Name::V2));
        let none = Arc::new(all.without(|kind| kind.gvk.group == "batch"));
        assert_eq!(hash(&none, "apis/batch/v1"), None);
        assert!(documents.hashes(&none).iter().all(|(path, _)| !path.contains("batch")));
    }
}
