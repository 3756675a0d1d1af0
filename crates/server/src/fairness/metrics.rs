//! Metrics of priority levels, under the reference's names.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;

use super::Fairness;

/// The reasons of refusals, in the order of [`super::level::Refusal`].
const REASONS: [&str; 3] = ["concurrency-limit", "queue-full", "time-out"];

/// Adds the figures of all levels to the metrics of the server.
pub(crate) struct FairnessMetrics(pub(crate) Arc<Fairness>);

impl fmt::Debug for FairnessMetrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FairnessMetrics")
    }
}

impl Collector for FairnessMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let levels = self.0.levels();
        for (at, (name, help)) in [
            ("apiserver_flowcontrol_nominal_limit_seats", "Seats of a priority level"),
            ("apiserver_flowcontrol_current_executing_seats", "Seats of a priority level that are in use"),
            ("apiserver_flowcontrol_current_inqueue_requests", "Requests that wait for a seat"),
        ]
        .into_iter()
        .enumerate()
        {
            let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            for level in &levels {
                let (own, used, waiting) = level.figures();
                let value = [own, used, waiting].get(at).copied().unwrap_or_default() as i64;
                family.encode_family(&[("priority_level", level.name.as_str())])?.encode_gauge(&value)?;
            }
        }
        let mut family = encoder.encode_descriptor(
            "apiserver_flowcontrol_dispatched_requests",
            "Requests that got a seat",
            None,
            MetricType::Counter,
        )?;
        for level in &levels {
            let count = level.counts.dispatched.load(Ordering::Relaxed);
            let labels = [("priority_level", level.name.as_str())];
            family.encode_family(&labels)?.encode_counter::<NoLabelSet, _, u64>(&count, None)?;
        }
        let mut family = encoder.encode_descriptor(
            "apiserver_flowcontrol_rejected_requests",
            "Requests that got no seat, by reason",
            None,
            MetricType::Counter,
        )?;
        for level in &levels {
            for (reason, count) in REASONS.iter().zip(&level.counts.refused) {
                let labels = [("priority_level", level.name.as_str()), ("reason", *reason)];
                let count = count.load(Ordering::Relaxed);
                family.encode_family(&labels)?.encode_counter::<NoLabelSet, _, u64>(&count, None)?;
            }
        }
        Ok(())
    }
}
