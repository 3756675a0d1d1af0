//! Counts of webhook calls.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use parking_lot::RwLock;
use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;

use crate::metrics::histogram::Histogram;

/// The reference's buckets for conversions, from 5 ms to 60 s; in nanoseconds.
const CONVERSIONS: &[u64] = &[
    5_000_000,
    10_000_000,
    20_000_000,
    50_000_000,
    100_000_000,
    200_000_000,
    500_000_000,
    1_000_000_000,
    2_000_000_000,
    5_000_000_000,
    10_000_000_000,
    20_000_000_000,
    30_000_000_000,
    45_000_000_000,
    60_000_000_000,
];
/// The reference's name for a conversion that has no answer.
const CALL_FAILURE: &str = "conversion_webhook_call_failure";

/// Calls of webhooks by purpose and outcome.
#[derive(Debug)]
pub struct WebhookCalls {
    calls: RwLock<BTreeMap<(&'static str, &'static str), u64>>,
    answered: Histogram,
    failed: Histogram,
}

impl Default for WebhookCalls {
    fn default() -> Self {
        let histogram = || Histogram::new(CONVERSIONS, 1e-9);
        WebhookCalls { calls: RwLock::default(), answered: histogram(), failed: histogram() }
    }
}

impl WebhookCalls {
    /// Counts a call; `failure` is the kind of failure, none for an answer.
    pub fn count(&self, purpose: &'static str, failure: Option<&'static str>) {
        *self.calls.write().entry((purpose, failure.unwrap_or("answered"))).or_default() += 1;
    }

    /// Records the time of a conversion.
    pub fn conversion(&self, answered: bool, took: Duration) {
        let histogram = if answered { &self.answered } else { &self.failed };
        histogram.observe(u64::try_from(took.as_nanos()).unwrap_or(u64::MAX));
    }

    pub(super) fn encode(&self, encoder: &mut DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let mut family = encoder.encode_descriptor(
            "dogwatch_webhook_calls",
            "Calls of webhooks by purpose and outcome",
            None,
            MetricType::Counter,
        )?;
        for ((purpose, outcome), count) in self.calls.read().iter() {
            let labels = [("purpose", *purpose), ("outcome", *outcome)];
            family.encode_family(&labels)?.encode_counter::<NoLabelSet, _, u64>(count, None)?;
        }
        let outcomes = [("success", "", &self.answered), ("failure", CALL_FAILURE, &self.failed)];
        let mut family = encoder.encode_descriptor(
            "apiserver_conversion_webhook_request",
            "Conversions by webhooks",
            None,
            MetricType::Counter,
        )?;
        for (result, failure_type, histogram) in &outcomes {
            let labels = [("result", *result), ("failure_type", *failure_type)];
            family.encode_family(&labels)?.encode_counter::<NoLabelSet, _, u64>(&histogram.count(), None)?;
        }
        let mut family = encoder.encode_descriptor(
            "apiserver_conversion_webhook_duration_seconds",
            "Time of conversions by webhooks",
            None,
            MetricType::Histogram,
        )?;
        for (result, failure_type, histogram) in &outcomes {
            let labels = [("result", *result), ("failure_type", *failure_type)];
            let (sum, count, buckets) = histogram.read();
            family.encode_family(&labels)?.encode_histogram::<NoLabelSet>(sum, count, &buckets, None)?;
        }
        Ok(())
    }
}
