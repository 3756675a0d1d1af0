//! Metrics of the server, under the reference's names where it has one.
//!
//! - [`histogram`]: buckets without a lock
//! - [`access`]: counts of authentication and authorization
//! - `webhooks`: counts of webhook calls
//!
//! A request costs one lookup and a few atomic adds. Labels hold only values that the server knows (verbs, served kinds),
//! never text of a client, so that their number is bounded.

pub mod access;
pub mod histogram;
mod webhooks;

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::RwLock;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric as _, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;

use crate::limits::{Limits, Slots};
use crate::metrics::access::AccessCounts;
use crate::metrics::histogram::Histogram;
pub use crate::metrics::webhooks::WebhookCalls;

/// The reference's buckets from 5 ms to 60 s, and smaller ones, since most responses here are faster; in nanoseconds.
const DURATIONS: &[u64] = &[
    100_000,
    250_000,
    500_000,
    1_000_000,
    2_500_000,
    5_000_000,
    25_000_000,
    50_000_000,
    100_000_000,
    200_000_000,
    400_000_000,
    800_000_000,
    1_250_000_000,
    2_000_000_000,
    4_000_000_000,
    10_000_000_000,
    30_000_000_000,
    60_000_000_000,
];
/// 1 KB to 1 GB.
const RESPONSE_SIZES: &[u64] = &[1_000, 10_000, 100_000, 1_000_000, 10_000_000, 100_000_000, 1_000_000_000];
/// 1 KiB to 128 KiB.
const EVENT_SIZES: &[u64] = &[1_024, 2_048, 4_096, 8_192, 16_384, 32_768, 65_536, 131_072];

/// The labels of a request or a watch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequestLabels<'a> {
    pub verb: &'a str,
    pub group: &'a str,
    pub version: &'a str,
    pub resource: &'a str,
    pub subresource: &'a str,
    /// `cluster`, `namespace` or `resource`.
    pub scope: &'a str,
    pub dry_run: &'a str,
}

/// Metrics of the requests with the same labels.
#[derive(Debug)]
pub struct RequestSeries {
    labels: Labels,
    codes: RwLock<Vec<(u16, Arc<AtomicU64>)>>,
    duration: Histogram,
    sizes: Histogram,
}

/// Metrics of the watches with the same labels.
#[derive(Debug)]
pub struct WatchSeries {
    labels: Labels,
    open: AtomicI64,
    /// Sizes of the events that were sent.
    sizes: Histogram,
}

/// Label names with their values.
type Labels = Vec<(&'static str, String)>;

impl RequestLabels<'_> {
    fn key(&self) -> String {
        let parts = [self.verb, self.group, self.version, self.resource, self.subresource, self.scope, self.dry_run];
        let mut key = String::with_capacity(96);
        for part in parts {
            key.push_str(part);
            key.push('\0');
        }
        key
    }

    fn labels(&self) -> Labels {
        vec![
            ("verb", self.verb.to_owned()),
            ("group", self.group.to_owned()),
            ("version", self.version.to_owned()),
            ("resource", self.resource.to_owned()),
            ("subresource", self.subresource.to_owned()),
            ("scope", self.scope.to_owned()),
            ("component", "apiserver".to_owned()),
        ]
    }
}

impl RequestSeries {
    /// Counts one response.
    pub fn observe(&self, code: u16, took: Duration, response_bytes: Option<usize>) {
        let known = self.codes.read().iter().find(|(held, _)| *held == code).map(|(_, count)| Arc::clone(count));
        let count = known.unwrap_or_else(|| {
            let mut codes = self.codes.write();
            if let Some((_, count)) = codes.iter().find(|(held, _)| *held == code) {
                return Arc::clone(count);
            }
            codes.push((code, Arc::default()));
            Arc::clone(&codes[codes.len() - 1].1)
        });
        count.fetch_add(1, Ordering::Relaxed);
        self.duration.observe(u64::try_from(took.as_nanos()).unwrap_or(u64::MAX));
        if let Some(bytes) = response_bytes {
            self.sizes.observe(bytes as u64);
        }
    }
}

impl WatchSeries {
    /// Counts an open watch until it is dropped.
    #[must_use]
    pub fn open(self: &Arc<Self>) -> OpenWatch {
        self.open.fetch_add(1, Ordering::Relaxed);
        OpenWatch(Arc::clone(self))
    }
}

/// One open watch.
#[derive(Debug)]
pub struct OpenWatch(Arc<WatchSeries>);

impl OpenWatch {
    pub fn sent(&self, event_bytes: usize) {
        self.0.sizes.observe(event_bytes as u64);
    }
}

impl Drop for OpenWatch {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::Relaxed);
    }
}

/// All metrics of a server.
#[derive(Debug)]
pub struct Metrics {
    requests: RwLock<HashMap<String, Arc<RequestSeries>>>,
    watches: RwLock<HashMap<String, Arc<WatchSeries>>>,
    pub access: AccessCounts,
    limits: Vec<(&'static str, f64)>,
    /// Refusals by limit.
    refusals: RwLock<HashMap<&'static str, u64>>,
    /// Requests being handled, read-only and mutating.
    pub inflight_reads: Slots,
    pub inflight_writes: Slots,
    pub watches_open: Slots,
    pub streams_open: Slots,
    pub connections: Slots,
    /// Bytes of request bodies.
    pub body_bytes: Slots,
    /// Bytes of responses that were rendered for one request and are not sent yet.
    pub unsent_bytes: Slots,
    /// Bytes of the selectors of open watches.
    pub selector_bytes: Slots,
    /// Bytes of webhook responses that are being read.
    pub webhook_bytes: Slots,
    pub webhook_calls: WebhookCalls,
    /// Requests that wait for a webhook.
    pub webhooks_waiting: Slots,
    /// Heavy requests that wait, and the bytes of those that run.
    pub heavy_waiting: Slots,
    pub heavy_bytes: Slots,
    /// Connections closed because their client took no byte of a response.
    pub stalled: AtomicU64,
    pub connections_accepted: AtomicU64,
    pub handshakes_failed: AtomicU64,
    pub panics: AtomicU64,
    pub timeouts: AtomicU64,
}

impl Metrics {
    #[must_use]
    pub fn new(limits: &Limits) -> Self {
        Metrics {
            requests: RwLock::default(),
            watches: RwLock::default(),
            access: AccessCounts::default(),
            limits: limits.named(),
            refusals: RwLock::default(),
            inflight_reads: Slots::new("inflight_reads_max", limits.inflight_reads_max),
            inflight_writes: Slots::new("inflight_writes_max", limits.inflight_writes_max),
            watches_open: Slots::new("watches_max", limits.watches_max),
            streams_open: Slots::new("streams_max", limits.streams_max),
            connections: Slots::new("connections_max", limits.connections_max),
            body_bytes: Slots::new("body_bytes_total_max", limits.body_bytes_total_max),
            unsent_bytes: Slots::new("unsent_bytes_max", limits.unsent_bytes_max),
            selector_bytes: Slots::new("watch_selector_bytes_max", limits.watch_selector_bytes_max),
            webhook_bytes: Slots::new("webhook_bytes_total_max", limits.webhook_bytes_total_max),
            webhook_calls: WebhookCalls::default(),
            webhooks_waiting: Slots::new("webhooks_waiting_max", limits.webhooks_waiting_max),
            heavy_waiting: Slots::new("heavy_waiting_max", limits.heavy_waiting_max),
            heavy_bytes: Slots::new("heavy_bytes_max", limits.heavy_bytes_max),
            stalled: AtomicU64::new(0),
            connections_accepted: AtomicU64::new(0),
            handshakes_failed: AtomicU64::new(0),
            panics: AtomicU64::new(0),
            timeouts: AtomicU64::new(0),
        }
    }

    #[must_use]
    pub fn request(&self, request: &RequestLabels<'_>) -> Arc<RequestSeries> {
        let key = request.key();
        if let Some(series) = self.requests.read().get(&key) {
            return Arc::clone(series);
        }
        let mut labels = request.labels();
        labels.insert(1, ("dry_run", request.dry_run.to_owned()));
        let series = RequestSeries {
            labels,
            codes: RwLock::default(),
            duration: Histogram::new(DURATIONS, 1e-9),
            sizes: Histogram::new(RESPONSE_SIZES, 1.0),
        };
        Arc::clone(self.requests.write().entry(key).or_insert_with(|| Arc::new(series)))
    }

    #[must_use]
    pub fn watch(&self, request: &RequestLabels<'_>) -> Arc<WatchSeries> {
        let key = request.key();
        if let Some(series) = self.watches.read().get(&key) {
            return Arc::clone(series);
        }
        let series = WatchSeries {
            labels: request.labels(),
            open: AtomicI64::new(0),
            sizes: Histogram::sharded(EVENT_SIZES, 1.0),
        };
        Arc::clone(self.watches.write().entry(key).or_insert_with(|| Arc::new(series)))
    }

    /// Drops the series of resources that are no longer served, given by group, version and plural. Open watches keep theirs.
    pub fn retain_resources(&self, is_served: impl Fn(&str, &str, &str) -> bool) {
        let is_kept = |labels: &Labels| {
            let value = |name: &str| labels.iter().find(|(held, _)| *held == name).map_or("", |(_, value)| value);
            let resource = value("resource");
            resource.is_empty() || is_served(value("group"), value("version"), resource)
        };
        self.requests.write().retain(|_, series| is_kept(&series.labels));
        self.watches.write().retain(|_, series| series.open.load(Ordering::Relaxed) > 0 || is_kept(&series.labels));
    }

    /// Counts a refusal because of this limit.
    pub fn refused(&self, limit: &'static str) {
        *self.refusals.write().entry(limit).or_default() += 1;
    }

    fn slots(&self) -> [&Slots; 12] {
        [
            &self.inflight_reads,
            &self.inflight_writes,
            &self.watches_open,
            &self.streams_open,
            &self.connections,
            &self.body_bytes,
            &self.unsent_bytes,
            &self.selector_bytes,
            &self.webhook_bytes,
            &self.webhooks_waiting,
            &self.heavy_waiting,
            &self.heavy_bytes,
        ]
    }

    /// Adds these metrics to those served at `/metrics`.
    pub fn register(self: &Arc<Self>, registry: &mut Registry) {
        registry.register_collector(Box::new(MetricsCollector(Arc::clone(self))));
    }
}

#[derive(Debug)]
struct MetricsCollector(Arc<Metrics>);

impl Collector for MetricsCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let metrics = &*self.0;
        metrics.encode_requests(&mut encoder)?;
        metrics.encode_watches(&mut encoder)?;
        metrics.access.encode(&mut encoder)?;
        metrics.webhook_calls.encode(&mut encoder)?;
        metrics.encode_limits(&mut encoder)
    }
}

impl Metrics {
    fn encode_requests(&self, encoder: &mut DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let all: Vec<_> = self.requests.read().values().cloned().collect();
        let mut family = encoder.encode_descriptor(
            "apiserver_request",
            "Requests by verb, resource and response code",
            None,
            MetricType::Counter,
        )?;
        for series in &all {
            for (code, count) in series.codes.read().iter() {
                let mut labels = series.labels.clone();
                labels.push(("code", code.to_string()));
                let count = count.load(Ordering::Relaxed);
                family.encode_family(&labels)?.encode_counter::<NoLabelSet, _, u64>(&count, None)?;
            }
        }
        for name in ["apiserver_request_duration_seconds", "apiserver_request_sli_duration_seconds"] {
            let help = "Time from the arrival of a request to its response; for a watch until it is open";
            let mut family = encoder.encode_descriptor(name, help, None, MetricType::Histogram)?;
            for series in &all {
                let (sum, count, buckets) = series.duration.read();
                family.encode_family(&series.labels)?.encode_histogram::<NoLabelSet>(sum, count, &buckets, None)?;
            }
        }
        let mut family = encoder.encode_descriptor(
            "apiserver_response_sizes",
            "Bytes of responses other than watches",
            None,
            MetricType::Histogram,
        )?;
        for series in &all {
            let (sum, count, buckets) = series.sizes.read();
            family.encode_family(&series.labels)?.encode_histogram::<NoLabelSet>(sum, count, &buckets, None)?;
        }
        Ok(())
    }

    fn encode_watches(&self, encoder: &mut DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let all: Vec<_> = self.watches.read().values().cloned().collect();
        let mut family =
            encoder.encode_descriptor("apiserver_longrunning_requests", "Open watches", None, MetricType::Gauge)?;
        for series in &all {
            family.encode_family(&series.labels)?.encode_gauge(&series.open.load(Ordering::Relaxed))?;
        }
        // These two metrics have no labels for scope and subresource: add up the series that differ only in those.
        let mut kinds: HashMap<[&str; 3], Vec<&WatchSeries>> = HashMap::new();
        for series in &all {
            let label =
                |name| series.labels.iter().find(|(held, _)| *held == name).map_or("", |(_, value)| value.as_str());
            kinds.entry(["group", "version", "resource"].map(label)).or_default().push(series);
        }
        let labels = |kind: &[&str; 3]| -> Labels {
            ["group", "version", "resource"].into_iter().zip(kind.map(str::to_owned)).collect()
        };
        let mut family = encoder.encode_descriptor(
            "apiserver_watch_events",
            "Events sent to watches over HTTP",
            None,
            MetricType::Counter,
        )?;
        for (kind, all) in &kinds {
            let events: u64 = all.iter().map(|series| series.sizes.count()).sum();
            family.encode_family(&labels(kind))?.encode_counter::<NoLabelSet, _, u64>(&events, None)?;
        }
        let mut family = encoder.encode_descriptor(
            "apiserver_watch_events_sizes",
            "Bytes of events sent to watches over HTTP",
            None,
            MetricType::Histogram,
        )?;
        for (kind, all) in &kinds {
            let mut total = all[0].sizes.read();
            for series in &all[1..] {
                let (sum, count, buckets) = series.sizes.read();
                total.0 += sum;
                total.1 += count;
                for (into, (_, from)) in total.2.iter_mut().zip(buckets) {
                    into.1 += from;
                }
            }
            let (sum, count, buckets) = total;
            family.encode_family(&labels(kind))?.encode_histogram::<NoLabelSet>(sum, count, &buckets, None)?;
        }
        Ok(())
    }

    fn encode_limits(&self, encoder: &mut DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let mut family = encoder.encode_descriptor(
            "apiserver_current_inflight_requests",
            "Requests being handled",
            None,
            MetricType::Gauge,
        )?;
        for (kind, slots) in [("readOnly", &self.inflight_reads), ("mutating", &self.inflight_writes)] {
            family.encode_family(&[("request_kind", kind)])?.encode_gauge(&(slots.taken() as i64))?;
        }
        let mut family = encoder.encode_descriptor(
            "dogwatch_limit_used",
            "The part of a limit that is in use",
            None,
            MetricType::Gauge,
        )?;
        for slots in self.slots() {
            family.encode_family(&[("name", slots.name())])?.encode_gauge(&(slots.taken() as i64))?;
        }
        let mut gauge = |name: &str, help: &str, value: i64| {
            let gauge = ConstGauge::new(value);
            gauge.encode(encoder.encode_descriptor(name, help, None, MetricType::Gauge)?)
        };
        gauge("dogwatch_connections", "Open connections", self.connections.taken() as i64)?;
        gauge("dogwatch_watches", "Open watches, WebSocket included", self.watches_open.taken() as i64)?;
        gauge(
            "dogwatch_streams",
            "Open logs, commands, attachments and port forwards",
            self.streams_open.taken() as i64,
        )?;
        let mut counter = |name: &str, help: &str, value: &AtomicU64| {
            encoder
                .encode_descriptor(name, help, None, MetricType::Counter)?
                .encode_counter::<NoLabelSet, _, u64>(&value.load(Ordering::Relaxed), None)
        };
        counter("dogwatch_connections_accepted", "Connections accepted", &self.connections_accepted)?;
        counter("dogwatch_tls_handshakes_failed", "TLS handshakes that failed", &self.handshakes_failed)?;
        counter("dogwatch_request_panics", "Requests with response 500 because the handler panicked", &self.panics)?;
        counter("apiserver_request_terminations", "Requests ended by their time limit", &self.timeouts)?;
        counter("dogwatch_stalled_connections", "Connections closed because a response was not read", &self.stalled)?;
        let mut family = encoder.encode_descriptor(
            "dogwatch_limit",
            "The limits in force; sizes in bytes, times in seconds",
            None,
            MetricType::Gauge,
        )?;
        for (name, value) in &self.limits {
            family.encode_family(&[("name", *name)])?.encode_gauge(value)?;
        }
        let mut family = encoder.encode_descriptor(
            "dogwatch_limit_refusals",
            "Refusals because of a limit",
            None,
            MetricType::Counter,
        )?;
        for (name, count) in self.refusals.read().iter() {
            family.encode_family(&[("name", *name)])?.encode_counter::<NoLabelSet, _, u64>(count, None)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resources_that_are_no_longer_served_leave_no_series() {
        let metrics = Metrics::new(&Limits::default());
        let labels =
            |resource| RequestLabels { verb: "GET", group: "g", version: "v1", resource, ..Default::default() };
        for resource in ["kept", "gone", ""] {
            metrics.request(&labels(resource)).observe(200, Duration::from_millis(1), Some(1));
            let _closed = metrics.watch(&labels(resource)).open();
        }
        let open = metrics.watch(&labels("gone")).open();
        let is_served = |group: &str, version: &str, resource: &str| (group, version, resource) == ("g", "v1", "kept");
        metrics.retain_resources(is_served);
        assert_eq!((metrics.requests.read().len(), metrics.watches.read().len()), (2, 3), "its watch is still open");
        drop(open);
        metrics.retain_resources(is_served);
        assert_eq!(metrics.watches.read().len(), 2);
    }

    #[test]
    fn shows_the_names_of_the_reference() {
        let metrics = Arc::new(Metrics::new(&Limits::default()));
        let request = RequestLabels {
            verb: "LIST",
            version: "v1",
            resource: "pods",
            scope: "namespace",
            ..RequestLabels::default()
        };
        let series = metrics.request(&request);
        series.observe(200, Duration::from_millis(2), Some(5_000));
        metrics.request(&request).observe(200, Duration::from_millis(2), Some(5_000));
        series.observe(404, Duration::from_millis(2), None);
        let watch = metrics.watch(&RequestLabels { verb: "WATCH", ..request }).open();
        watch.sent(3_000);
        metrics.refused("watches_max");
        let mut registry = Registry::default();
        metrics.register(&mut registry);
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        let pods = "group=\"\",version=\"v1\",resource=\"pods\"";
        let rest = "subresource=\"\",scope=\"namespace\",component=\"apiserver\"";
        for line in [
            format!("apiserver_request_total{{verb=\"LIST\",dry_run=\"\",{pods},{rest},code=\"200\"}} 2"),
            format!("apiserver_request_total{{verb=\"LIST\",dry_run=\"\",{pods},{rest},code=\"404\"}} 1"),
            format!("apiserver_request_duration_seconds_count{{verb=\"LIST\",dry_run=\"\",{pods},{rest}}} 3"),
            format!("apiserver_response_sizes_bucket{{le=\"10000.0\",verb=\"LIST\",dry_run=\"\",{pods},{rest}}} 2"),
            format!("apiserver_longrunning_requests{{verb=\"WATCH\",{pods},{rest}}} 1"),
            format!("apiserver_watch_events_total{{{pods}}} 1"),
            format!("apiserver_watch_events_sizes_sum{{{pods}}} 3000.0"),
            "apiserver_current_inflight_requests{request_kind=\"mutating\"} 0".to_owned(),
            "dogwatch_limit{name=\"body_bytes_max\"} 3145728.0".to_owned(),
            "dogwatch_limit_refusals_total{name=\"watches_max\"} 1".to_owned(),
        ] {
            assert!(text.lines().any(|shown| shown == line), "{line} is missing in\n{text}");
        }
        drop(watch);
        assert_eq!(metrics.watch(&RequestLabels { verb: "WATCH", ..request }).open.load(Ordering::Relaxed), 0);
    }
}
