//! Metrics of the audit log, under the reference's names.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use registry::AuditLevel;

const LEVELS: [AuditLevel; 4] =
    [AuditLevel::None, AuditLevel::Metadata, AuditLevel::Request, AuditLevel::RequestResponse];

/// Counts events and requests.
#[derive(Debug, Default)]
pub struct AuditMetrics {
    events: AtomicU64,
    /// Requests by the level that the policy has for them.
    levels: [AtomicU64; LEVELS.len()],
    /// Requests that were refused because their event could not be stored.
    rejected: AtomicU64,
    /// Events that were lost, by sink.
    errors: Mutex<BTreeMap<&'static str, u64>>,
}

impl AuditMetrics {
    pub(crate) fn event(&self) {
        self.events.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn level(&self, level: AuditLevel) {
        if let Some(count) = self.levels.get(level as usize) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(crate) fn rejected(&self) {
        self.rejected.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts and logs events that a sink lost.
    pub(crate) fn lost(&self, sink: &'static str, events: u64, why: &str) {
        let count = {
            let mut errors = self.errors.lock();
            let count = errors.entry(sink).or_default();
            *count += events;
            *count
        };
        // Every power of two, so that a full disk does not fill the log of the server too.
        if count == events || count.is_power_of_two() {
            tracing::error!(sink, lost = count, why, "audit events were lost");
        }
    }
}

/// Adds the metrics to those served at `/metrics`.
#[derive(Debug)]
pub struct AuditCollector(pub Arc<AuditMetrics>);

impl Collector for AuditCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let metrics = &*self.0;
        let mut counter = |name: &str, help: &str, value: &AtomicU64| {
            encoder
                .encode_descriptor(name, help, None, MetricType::Counter)?
                .encode_counter::<NoLabelSet, _, u64>(&value.load(Ordering::Relaxed), None)
        };
        counter("apiserver_audit_event", "Audit events", &metrics.events)?;
        let help = "Requests refused because their audit event could not be stored";
        counter("apiserver_audit_requests_rejected", help, &metrics.rejected)?;
        let help = "Requests by the level that the audit policy has for them";
        let mut family = encoder.encode_descriptor("apiserver_audit_level", help, None, MetricType::Counter)?;
        for (level, count) in LEVELS.into_iter().zip(&metrics.levels) {
            let count = count.load(Ordering::Relaxed);
            family.encode_family(&[("level", level.as_str())])?.encode_counter::<NoLabelSet, _, u64>(&count, None)?;
        }
        let mut family = encoder.encode_descriptor(
            "apiserver_audit_error",
            "Audit events that were lost",
            None,
            MetricType::Counter,
        )?;
        for (sink, count) in metrics.errors.lock().iter() {
            family.encode_family(&[("plugin", *sink)])?.encode_counter::<NoLabelSet, _, u64>(count, None)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn aud_40_metrics_have_the_names_of_the_reference() {
        let metrics = Arc::<AuditMetrics>::default();
        metrics.event();
        metrics.level(AuditLevel::Request);
        metrics.rejected();
        metrics.lost("log", 2, "no space left");
        let mut registry = prometheus_client::registry::Registry::default();
        registry.register_collector(Box::new(AuditCollector(metrics)));
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        for line in [
            "apiserver_audit_event_total 1",
            "apiserver_audit_requests_rejected_total 1",
            "apiserver_audit_level_total{level=\"Request\"} 1",
            "apiserver_audit_level_total{level=\"None\"} 0",
            "apiserver_audit_error_total{plugin=\"log\"} 2",
        ] {
            assert!(text.lines().any(|shown| shown == line), "{line} is missing in\n{text}");
        }
    }
}
