//! Brings a quota's figures into line with what is there: when its wishes change, and from time to time.

use std::sync::Arc;
use std::time::Duration;

use cache::{EventKind, Filter, Item, Output, Start};
use machinery::json::{Value, json};

use super::usage::Counted;
use super::{ATTEMPTS, QUOTAS, Written};
use crate::admission::amounts::Amounts;
use crate::registry::Registry;
use crate::view;

/// How often figures are counted again though nothing says that they are wrong: a write that took its share and was lost
/// with its server leaves them too high.
const RECOUNT_EVERY: Duration = Duration::from_secs(300);
/// How long we wait to watch again after a watch broke.
const PAUSE: Duration = Duration::from_secs(1);

/// Keeps the figures of all quotas for as long as it is polled.
pub async fn keep_counts(registry: Arc<Registry>) {
    let collection = registry.cache().collection(QUOTAS);
    loop {
        let filter = Filter::new(None, None, None, &collection.spec());
        let mut watcher = registry.cache().watch(&collection, filter, Start::Initial);
        let mut recounts = tokio::time::interval_at(tokio::time::Instant::now() + RECOUNT_EVERY, RECOUNT_EVERY);
        loop {
            tokio::select! {
                next = std::future::poll_fn(|cx| watcher.poll_next(cx)) => {
                    let items: Vec<Arc<Item>> = match next {
                        Ok(Output::Initial(items)) => items,
                        Ok(Output::InitialEnd(_)) => Vec::new(),
                        Ok(Output::Live(changes)) => {
                            let there = changes.into_iter().filter(|change| change.kind != EventKind::Deleted);
                            there.map(|change| Arc::clone(change.item())).collect()
                        }
                        Err(_) => break,
                    };
                    for item in items {
                        registry.recount(item, false).await;
                    }
                }
                _ = recounts.tick() => registry.recount_all().await,
            }
        }
        tokio::time::sleep(PAUSE).await;
    }
}

impl Registry {
    async fn recount_all(&self) {
        let collection = self.cache.collection(QUOTAS);
        let snapshot = self.cache.snapshot(&collection);
        for item in snapshot.scan(collection.name(), None, None) {
            self.recount(Arc::clone(item), true).await;
        }
    }

    /// Counts for a quota whose limits are not yet those of its status; or for any, if `anyway`.
    async fn recount(&self, mut item: Arc<Item>, anyway: bool) {
        for _ in 0..ATTEMPTS {
            let Ok(mut quota) = view::parse(&item) else { return };
            let hard = quota["spec"]["hard"].clone();
            let known = Amounts::of(&hard) == Amounts::of(&quota["status"]["hard"])
                && Amounts::of(&hard).0.keys().all(|name| quota["status"]["used"].get(name).is_some());
            if known && !anyway {
                return;
            }
            let before = quota.clone();
            quota["status"] = json!({"hard": hard});
            let used = self.used_of(item.namespace(), &quota);
            quota["status"]["used"] = used.to_value();
            if quota == before {
                return;
            }
            match self.write_quota(&item, &quota).await {
                Written::Moved(current) => item = current,
                Written::No(error) => {
                    tracing::warn!(quota = %item.key(), %error, "a quota could not be recounted");
                    return;
                }
                Written::Yes(_) | Written::Gone => return,
            }
        }
    }

    /// What the objects of a namespace take together of what a quota names.
    fn used_of(&self, namespace: &str, quota: &Value) -> Amounts {
        let hard = Amounts::of(&quota["status"]["hard"]);
        let mut used = hard.clone();
        used.0.values_mut().for_each(|amount| *amount = amount.minus(amount));
        let kinds = self.kinds();
        let mut seen = std::collections::HashSet::new();
        for kind in kinds.iter() {
            let Some(counted) = Counted::new(kind) else { continue };
            if !hard.0.keys().any(|name| counted.matches_name(name)) || !seen.insert(kind.collection.as_str()) {
                continue;
            }
            let collection = self.collection(kind);
            let snapshot = self.cache.snapshot(&collection);
            for item in snapshot.scan(collection.name(), Some(namespace), None) {
                let Ok(object) = view::parse(item) else { continue };
                if counted.in_scope(quota, &object) {
                    used.add(&counted.usage(&object).only(|name| hard.0.contains_key(name)));
                }
            }
        }
        used
    }
}
