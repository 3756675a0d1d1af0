//! Metrics of the cache and the store, under the names of the reference where it has them.

use std::sync::Arc;

use cache::{Cache, Collection};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric as _};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;

/// Reads the counters of the cache when metrics are collected.
#[derive(Debug)]
pub struct CacheMetrics(Reader);

struct Reader(Arc<Cache>);

impl std::fmt::Debug for Reader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Reader")
    }
}

type Count = fn(&Collection) -> u64;
type Level = fn(&Collection) -> i64;

/// Names without `_total`, which the text form adds to counters.
const COUNTERS: &[(&str, &str, Count)] = &[
    ("apiserver_watch_cache_events_received", "Changes taken from the store's log", |c| c.tally().received.get()),
    ("apiserver_storage_events_received", "Changes taken from the store's log", |c| c.tally().received.get()),
    ("apiserver_watch_cache_events_dispatched", "Changes handed to watchers", |c| c.tally().dispatched.get()),
    ("apiserver_init_events", "Objects sent as the initial state of a watch", |c| c.tally().initial.get()),
    ("apiserver_terminated_watchers", "Watches that history had left behind", |c| c.tally().expired.get()),
    ("apiserver_cache_list", "Lists answered from memory", |c| c.tally().lists.get()),
    ("apiserver_cache_list_fetched_objects", "Objects looked at for lists", |c| c.tally().looked_at.get()),
    ("apiserver_cache_list_returned_objects", "Objects in lists", |c| c.tally().returned.get()),
    ("apiserver_watch_cache_initializations", "Times a collection was loaded", |_| 1),
];

const GAUGES: &[(&str, &str, Level)] = &[
    ("apiserver_storage_objects", "Objects there are", |c| level(c.figures().objects)),
    ("watch_cache_capacity", "Changes that may stay in memory", |c| level(c.figures().history_max)),
    ("dogwatch_cache_history_changes", "Changes that are in memory", |c| level(c.figures().history)),
    ("dogwatch_cache_history_bytes", "Bytes that only history keeps in memory", |c| level(c.figures().history_bytes)),
    ("dogwatch_cache_watchers", "Open watches", |c| level(c.figures().watchers)),
];

impl CacheMetrics {
    #[must_use]
    pub fn new(cache: Arc<Cache>) -> Self {
        CacheMetrics(Reader(cache))
    }
}

impl Collector for CacheMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let cache = &self.0.0;
        let mut collections = cache.collections();
        collections.sort_by(|a, b| a.name().cmp(b.name()));
        for (name, help, count) in COUNTERS {
            let mut family = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
            for collection in &collections {
                let value = ConstCounter::new(count(collection));
                value.encode(family.encode_family(&labels(collection))?)?;
            }
        }
        for (name, help, level) in GAUGES {
            let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            for collection in &collections {
                let value = ConstGauge::new(level(collection));
                value.encode(family.encode_family(&labels(collection))?)?;
            }
        }
        let reached = i64::try_from(cache.revision().0).unwrap_or(i64::MAX);
        let name = "apiserver_watch_cache_resource_version";
        let mut family =
            encoder.encode_descriptor(name, "The revision the cache has reached", None, MetricType::Gauge)?;
        for collection in &collections {
            ConstGauge::new(reached).encode(family.encode_family(&labels(collection))?)?;
        }
        Ok(())
    }
}

fn labels(collection: &Collection) -> [(&'static str, String); 2] {
    let (group, resource) = collection.name().split_once('/').unwrap_or(("", collection.name()));
    let group = if group == "core" { "" } else { group };
    [("group", group.to_owned()), ("resource", resource.to_owned())]
}

fn level(n: usize) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX)
}
