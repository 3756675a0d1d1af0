//! Expiry of events: they are deleted some time after their last write.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use clock::WorldClock;
use machinery::Revision;
use store::Key;
use tokio::time::Instant;

use crate::collections::EVENTS;
use crate::registry::Registry;

/// Pause between sweeps; an event is kept that much longer at most.
const INTERVAL: Duration = Duration::from_secs(30);

/// Deletes expired events for as long as it is polled. After a restart those that are there are kept for another period,
/// since the time of their last write is not stored.
pub async fn expire_events(registry: Arc<Registry>, clock: WorldClock) {
    let mut seen: HashMap<Key, (Revision, Instant)> = HashMap::new();
    let mut ticks = clock.interval(INTERVAL);
    loop {
        ticks.tick().await;
        sweep(&registry, &mut seen, clock.instant()).await;
    }
}

async fn sweep(registry: &Registry, seen: &mut HashMap<Key, (Revision, Instant)>, now: Instant) {
    let collection = registry.cache().collection(EVENTS);
    let snapshot = registry.cache().snapshot(&collection);
    seen.retain(|key, _| snapshot.get(key).is_some());
    let mut expired = Vec::new();
    for item in snapshot.scan(EVENTS, None, None) {
        let (revision, since) = seen.entry(item.key().clone()).or_insert((item.revision(), now));
        if *revision != item.revision() {
            (*revision, *since) = (item.revision(), now);
        } else if now.duration_since(*since) >= registry.settings().event_ttl {
            expired.push((item.key().clone(), item.revision()));
        }
    }
    for (key, revision) in expired {
        // Written again in the meantime, or gone.
        if let Err(error) = registry.store().delete(key, revision).await {
            tracing::debug!(%error, "an expired event was not deleted");
        }
    }
}
