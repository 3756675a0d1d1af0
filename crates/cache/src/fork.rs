//! A cache that begins as another one was: it shares all objects that neither has changed since.

use std::fmt::Display;
use std::sync::Arc;

use store::{ListQuery, Store};

use crate::cache::{Cache, CacheError, Shared};
use crate::collections::Collections;
use crate::feed;
use crate::observer::Observer;

impl Cache {
    /// Follows a store that was forked from this cache's. Reads from it only what this cache has forgotten. Its history in memory
    /// begins with the fork; older changes are in its store.
    pub async fn fork(&self, store: Arc<dyn Store>, observers: Vec<Arc<dyn Observer>>) -> Result<Cache, CacheError> {
        fn failed(error: impl Display) -> CacheError {
            CacheError(error.to_string())
        }
        let revision = store.current_revision().await.map_err(failed)?;
        self.reach(revision).await.map_err(failed)?;
        let limits = self.shared.config.history;
        let mut forked = Vec::new();
        for collection in self.collections() {
            if let Some(snapshot) = collection.at(revision) {
                forked.push(collection.fork(snapshot, limits));
                continue;
            }
            let query = ListQuery { tolerate_damage: true, ..ListQuery::prefix(collection.prefix()) };
            let listed = store.list(query).await.map_err(failed)?;
            forked.push(collection.fork(collection.parsed(&listed), limits));
        }
        let collections = Collections::of(forked, revision, limits);
        let config = self.shared.config;
        let shared = Arc::new(Shared { store, config, collections, observers, pending_writes: Arc::default() });
        if !feed::report_load(&shared, revision) {
            return Err(CacheError("an observer of the cache panicked while objects were forked".to_owned()));
        }
        Ok(Cache::following(shared, revision))
    }
}
