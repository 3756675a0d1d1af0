//! Brings a quota's figures into line with what is there: when its wishes change, and from time to time.

use std::sync::Arc;
use std::time::Duration;

use cache::Item;
use serde_json::{Value, json};

use super::usage::Counted;
use super::{ATTEMPTS, QUOTAS, Written};
use crate::admission::amounts::Amounts;
use crate::registry::Registry;
use crate::view;

/// How long a new quota waits for its first figures at most.
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// How often figures are counted again though nothing says that they are wrong: a write that took its share and was lost
/// with its server leaves them too high.
const RECOUNT_EVERY: Duration = Duration::from_secs(300);

/// Keeps the figures of all quotas for as long as it is polled.
pub async fn keep_counts(registry: Arc<Registry>) {
    let mut looks = tokio::time::interval(LOOK_EVERY);
    looks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut next_recount = tokio::time::Instant::now() + RECOUNT_EVERY;
    loop {
        let now = looks.tick().await;
        let all = now >= next_recount;
        if all {
            next_recount = now + RECOUNT_EVERY;
        }
        registry.recount_quotas(all).await;
    }
}

impl Registry {
    /// Counts for the quotas whose limits are not yet those of their status, or for all.
    async fn recount_quotas(&self, all: bool) {
        let collection = self.cache.collection(QUOTAS);
        if collection.is_empty() {
            return;
        }
        let snapshot = self.cache.snapshot(&collection);
        for item in snapshot.scan(collection.name(), None, None) {
            self.recount(Arc::clone(item), all).await;
        }
    }

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
