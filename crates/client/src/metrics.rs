//! Counters and durations as plain values, and their text form for a scraper.
//!
//! There is no global registry: the owner of a queue or an informer reads its report. [`render_queue`] and
//! [`render_informer`] are for users of the crate who serve these reports under the names that client-go uses.

use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::informer::InformerReport;
pub use crate::reflector::Counter;
use crate::workqueue::QueueReport;

/// The bounds of the buckets, in nanoseconds: 10 ns to 1000 s by powers of ten, as client-go's queues have them.
const BOUNDS_NANOS: [u64; 12] = [
    10,
    100,
    1_000,
    10_000,
    100_000,
    1_000_000,
    10_000_000,
    100_000_000,
    1_000_000_000,
    10_000_000_000,
    100_000_000_000,
    1_000_000_000_000,
];

/// A histogram of durations.
#[derive(Debug, Default)]
pub struct Durations {
    buckets: [AtomicU64; 12],
    count: AtomicU64,
    nanos: AtomicU64,
}

impl Durations {
    /// Adds one duration.
    pub fn observe(&self, duration: Duration) {
        let nanos = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        if let Some(at) = BOUNDS_NANOS.iter().position(|bound| nanos <= *bound) {
            self.buckets[at].fetch_add(1, Ordering::Relaxed);
        }
        self.count.fetch_add(1, Ordering::Relaxed);
        self.nanos.fetch_add(nanos, Ordering::Relaxed);
    }

    /// The number of durations.
    pub fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }

    /// Their sum.
    pub fn sum(&self) -> Duration {
        Duration::from_nanos(self.nanos.load(Ordering::Relaxed))
    }

    /// The upper bound of each bucket in seconds with the number of durations in it; the last one has no bound.
    pub fn buckets(&self) -> Vec<(f64, u64)> {
        let counts = self.buckets.iter().map(|bucket| bucket.load(Ordering::Relaxed));
        let mut buckets: Vec<(f64, u64)> = BOUNDS_NANOS.iter().map(|bound| *bound as f64 / 1e9).zip(counts).collect();
        let bounded: u64 = buckets.iter().map(|(_, count)| count).sum();
        buckets.push((f64::INFINITY, self.count().saturating_sub(bounded)));
        buckets
    }

    fn render(&self, name: &str, labels: &str, out: &mut String) {
        let mut below = 0;
        for (bucket, bound) in self.buckets.iter().zip(BOUNDS_NANOS) {
            below += bucket.load(Ordering::Relaxed);
            let _ = writeln!(out, "{name}_bucket{{{labels},le=\"{}\"}} {below}", bound as f64 / 1e9);
        }
        let _ = writeln!(out, "{name}_bucket{{{labels},le=\"+Inf\"}} {}", self.count());
        let _ = writeln!(out, "{name}_sum{{{labels}}} {}", self.sum().as_secs_f64());
        let _ = writeln!(out, "{name}_count{{{labels}}} {}", self.count());
    }
}

/// Appends the metrics of a work queue, under the names that client-go uses.
pub fn render_queue(name: &str, report: &QueueReport<'_>, out: &mut String) {
    let labels = format!("name={name:?}");
    let _ = writeln!(out, "workqueue_depth{{{labels}}} {}", report.depth);
    let _ = writeln!(out, "workqueue_adds_total{{{labels}}} {}", report.metrics.adds.get());
    let _ = writeln!(out, "workqueue_retries_total{{{labels}}} {}", report.metrics.retries.get());
    report.metrics.queue_duration.render("workqueue_queue_duration_seconds", &labels, out);
    report.metrics.work_duration.render("workqueue_work_duration_seconds", &labels, out);
    let _ = writeln!(out, "workqueue_unfinished_work_seconds{{{labels}}} {}", report.unfinished.as_secs_f64());
    let longest = report.longest_running.as_secs_f64();
    let _ = writeln!(out, "workqueue_longest_running_processor_seconds{{{labels}}} {longest}");
}

/// Appends the metrics of an informer.
pub fn render_informer(name: &str, report: &InformerReport, out: &mut String) {
    let labels = format!("name={name:?}");
    let queued = report.queued + report.backlogs.iter().sum::<usize>();
    let _ = writeln!(out, "informer_queued_items{{{labels}}} {queued}");
    let _ = writeln!(out, "informer_store_resource_version{{{labels}}} {}", report.version.as_gauge());
    let _ = writeln!(out, "informer_objects{{{labels}}} {}", report.objects);
    for (at, backlog) in report.backlogs.iter().enumerate() {
        let _ = writeln!(out, "informer_handler_backlog{{{labels},handler=\"{at}\"}} {backlog}");
    }
    report.processing.render("informer_processing_latency_seconds", &labels, out);
    let sum = |counter: fn(&crate::reflector::ReflectorMetrics) -> &Counter| -> u64 {
        report.reflectors.iter().map(|reflector| counter(reflector).get()).sum()
    };
    for (metric, value) in [
        ("reflector_lists_total", sum(|m| &m.lists)),
        ("reflector_streaming_lists_total", sum(|m| &m.streaming_lists)),
        ("reflector_replacements_total", sum(|m| &m.replacements)),
        ("reflector_fallbacks_total", sum(|m| &m.fallbacks)),
        ("reflector_watches_total", sum(|m| &m.watches)),
        ("reflector_watch_restarts_total", sum(|m| &m.restarts)),
        ("reflector_idle_restarts_total", sum(|m| &m.idle_restarts)),
        ("reflector_events_total", sum(|m| &m.events)),
        ("reflector_bytes_total", sum(|m| &m.bytes)),
        ("reflector_undecodable_total", sum(|m| &m.undecodable)),
        ("reflector_repeated_total", sum(|m| &m.repeated)),
        ("reflector_history_resets_total", sum(|m| &m.history_resets)),
        ("reflector_kept_total", sum(|m| &m.kept)),
    ] {
        let _ = writeln!(out, "{metric}{{{labels}}} {value}");
    }
    let silence = report.reflectors.iter().filter_map(|reflector| reflector.silence()).max().unwrap_or_default();
    let _ = writeln!(out, "reflector_silence_seconds{{{labels}}} {}", silence.as_secs_f64());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_fall_into_their_buckets() {
        let durations = Durations::default();
        durations.observe(Duration::from_millis(5));
        durations.observe(Duration::from_secs(2));
        let mut out = String::new();
        durations.render("d", "name=\"x\"", &mut out);
        assert!(out.contains("d_bucket{name=\"x\",le=\"0.001\"} 0\n"), "{out}");
        assert!(out.contains("d_bucket{name=\"x\",le=\"0.01\"} 1\n"), "{out}");
        assert!(out.contains("d_bucket{name=\"x\",le=\"10\"} 2\n"), "{out}");
        assert!(out.contains("d_count{name=\"x\"} 2\n"), "{out}");
    }
}
