//! Corrects the figures of quotas by what is there: at the start, when their limits change, and periodically.

use std::sync::Arc;
use std::time::Duration;

use cache::{EventKind, Filter, Item, Output, Start};
use machinery::json::{Value, json};
use schema::kinds::Kinds;

use super::usage::Evaluator;
use super::{ATTEMPTS, Quota, QuotaWrite};
use crate::collections::RESOURCE_QUOTAS;
use crate::read::view;
use crate::registry::Registry;
use crate::reserve::amounts::Amounts;

/// How often figures are counted again though nothing indicates that they are wrong: a write that took its share and was
/// lost with its server leaves them too high.
const RECOUNT_INTERVAL: Duration = Duration::from_secs(300);
/// How long to wait after a watch broke.
const PAUSE: Duration = Duration::from_secs(1);

/// Keeps the figures of all quotas for as long as it is polled.
pub async fn keep_counts(registry: Arc<Registry>) {
    let collection = registry.cache().collection(RESOURCE_QUOTAS);
    loop {
        let filter = Filter::new(None, None, None, &collection.spec());
        let mut watcher = registry.cache().watch(&collection, filter, Start::Initial);
        let first = tokio::time::Instant::now() + RECOUNT_INTERVAL;
        let mut recounts = tokio::time::interval_at(first, RECOUNT_INTERVAL);
        loop {
            tokio::select! {
                next = std::future::poll_fn(|cx| watcher.poll_next(cx)) => {
                    let (items, when): (Vec<Arc<Item>>, _) = match next {
                        // A server that was killed may have taken shares for writes that it did not make.
                        Ok(Output::Initial(items)) => (items, Recount::Always),
                        Ok(Output::InitialEnd(_)) => continue,
                        Ok(Output::Live(changes)) => {
                            let there = changes.into_iter().filter(|change| change.kind != EventKind::Deleted);
                            (there.map(|change| Arc::clone(change.item())).collect(), Recount::IfLimitsChanged)
                        }
                        Err(_) => break,
                    };
                    for item in items {
                        registry.quota().recount(&registry.kinds(), item, when).await;
                    }
                }
                _ = recounts.tick() => registry.quota().recount_all(&registry.kinds()).await,
            }
        }
        tokio::time::sleep(PAUSE).await;
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Recount {
    /// Only a quota whose status has other limits than its spec.
    IfLimitsChanged,
    Always,
}

impl Quota {
    async fn recount_all(&self, kinds: &Kinds) {
        let cache = self.storage.cache();
        let snapshot = cache.snapshot(&cache.collection(RESOURCE_QUOTAS));
        for item in snapshot.scan(RESOURCE_QUOTAS, None, None) {
            self.recount(kinds, Arc::clone(item), Recount::Always).await;
        }
    }

    async fn recount(&self, kinds: &Kinds, mut item: Arc<Item>, when: Recount) {
        for _ in 0..ATTEMPTS {
            let Ok(mut quota) = view::parse(&item) else { return };
            let hard = quota["spec"]["hard"].clone();
            let known = Amounts::from_value(&hard) == Amounts::from_value(&quota["status"]["hard"])
                && Amounts::from_value(&hard).0.keys().all(|name| quota["status"]["used"].get(name).is_some());
            if known && when == Recount::IfLimitsChanged {
                return;
            }
            let before = quota.clone();
            quota["status"] = json!({"hard": hard});
            let used = self.used_of(kinds, item.namespace(), &quota);
            quota["status"]["used"] = used.to_value();
            if quota == before {
                return;
            }
            match self.write(&item, &quota).await {
                QuotaWrite::Moved(current) => item = current,
                QuotaWrite::Failed(error) => {
                    tracing::warn!(quota = %item.key(), %error, "a quota could not be recounted");
                    return;
                }
                QuotaWrite::Written(_) | QuotaWrite::Gone => return,
            }
        }
    }

    /// What the objects of a namespace take together of the resources that a quota names.
    fn used_of(&self, kinds: &Kinds, namespace: &str, quota: &Value) -> Amounts {
        let hard = Amounts::from_value(&quota["status"]["hard"]);
        let mut used = hard.clone();
        used.0.values_mut().for_each(|amount| *amount = amount.minus(amount));
        let mut seen = std::collections::HashSet::new();
        for kind in kinds.iter() {
            let Some(evaluator) = Evaluator::new(kind) else { continue };
            if !hard.0.keys().any(|name| evaluator.matches_name(name)) || !seen.insert(kind.collection.as_str()) {
                continue;
            }
            let cache = self.storage.cache();
            let snapshot = cache.snapshot(&cache.collection(&kind.collection));
            for item in snapshot.scan(&kind.collection, Some(namespace), None) {
                let Ok(object) = view::parse(item) else { continue };
                if evaluator.in_scope(quota, &object) {
                    used.add(&evaluator.usage(&object).only(|name| hard.0.contains_key(name)));
                }
            }
        }
        used
    }
}
