//! Metrics of the work queues, under the names of the reference where it has them.

use std::fmt::Error;

use client::metrics::Durations;
use client::workqueue::{Figures, QueueMetrics, Queues};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric as _, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;

type Level = fn(&Figures) -> f64;
type Count = fn(&QueueMetrics) -> u64;
type Times = fn(&QueueMetrics) -> &Durations;

const GAUGES: [(&str, &str, Level); 5] = [
    ("workqueue_depth", "Keys in line", |figures| figures.queued as f64),
    ("workqueue_unfinished_work_seconds", "Time that unfinished work has taken so far", |figures| {
        figures.unfinished.as_secs_f64()
    }),
    (
        "workqueue_longest_running_processor_seconds",
        "Time that the oldest unfinished work has taken so far",
        |figures| figures.longest_running.as_secs_f64(),
    ),
    ("dogwatch_workqueue_delayed", "Keys that come in line later", |figures| figures.delayed as f64),
    ("dogwatch_workqueue_working", "Keys in work", |figures| figures.working as f64),
];

/// Names without `_total`, which the text form adds to counters.
const COUNTERS: [(&str, &str, Count); 2] = [
    ("workqueue_adds", "Keys that were put in line", |metrics| metrics.adds.get()),
    ("workqueue_retries", "Keys that were added with a delay", |metrics| metrics.retries.get()),
];

const HISTOGRAMS: [(&str, &str, Times); 2] = [
    ("workqueue_queue_duration_seconds", "Time that keys waited in line", |metrics| &metrics.queue_duration),
    ("workqueue_work_duration_seconds", "Time that work took", |metrics| &metrics.work_duration),
];

/// Reads the queues when metrics are collected.
#[derive(Debug)]
pub struct WorkQueues(pub Queues);

impl Collector for WorkQueues {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), Error> {
        let figures = named(self.0.figures(0));
        if figures.is_empty() {
            return Ok(());
        }
        let labels = |name: &str| [("name", name.to_owned())];
        for (metric, help, level) in GAUGES {
            let mut family = encoder.encode_descriptor(metric, help, None, MetricType::Gauge)?;
            for (name, figures) in &figures {
                ConstGauge::new(level(figures)).encode(family.encode_family(&labels(name))?)?;
            }
        }
        let counted: Vec<(&String, &QueueMetrics)> =
            figures.iter().filter_map(|(name, figures)| Some((name, figures.metrics.as_deref()?))).collect();
        for (metric, help, count) in COUNTERS {
            let mut family = encoder.encode_descriptor(metric, help, None, MetricType::Counter)?;
            for (name, metrics) in &counted {
                ConstCounter::new(count(metrics)).encode(family.encode_family(&labels(name))?)?;
            }
        }
        for (metric, help, times) in HISTOGRAMS {
            let mut family = encoder.encode_descriptor(metric, help, None, MetricType::Histogram)?;
            for (name, metrics) in &counted {
                let (times, labels) = (times(metrics), labels(name));
                let (sum, buckets) = (times.sum().as_secs_f64(), times.buckets());
                family.encode_family(&labels)?.encode_histogram::<NoLabelSet>(sum, times.count(), &buckets, None)?;
            }
        }
        Ok(())
    }
}

/// Figures by unique names: the second queue of a controller has a number.
fn named(figures: Vec<(std::sync::Arc<str>, Figures)>) -> Vec<(String, Figures)> {
    let mut named: Vec<(String, Figures)> = Vec::with_capacity(figures.len());
    let (mut last, mut number) = (None, 1);
    for (name, figures) in figures {
        number = if last.as_ref() == Some(&name) { number + 1 } else { 1 };
        let shown = if number == 1 { name.to_string() } else { format!("{name}_{number}") };
        named.push((shown, figures));
        last = Some(name);
    }
    named
}

#[cfg(test)]
mod tests {
    use super::*;
    use client::workqueue::WorkQueue;

    #[tokio::test]
    async fn queues_have_the_metrics_of_the_reference() {
        let queues = Queues::default();
        let (one, two) = (WorkQueue::new(), WorkQueue::<String>::new());
        queues.add("job", &one);
        queues.add("job", &two);
        let nodes = queues.publish("nodes");
        nodes.set(Figures { working: 2, ..Figures::default() });
        one.add("a".to_owned());
        one.add("b".to_owned());
        one.get().await.unwrap().succeed();
        let mut registry = prometheus_client::registry::Registry::default();
        registry.register_collector(Box::new(WorkQueues(queues)));
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        for line in [
            "workqueue_depth{name=\"job\"} 1.0",
            "workqueue_depth{name=\"job_2\"} 0.0",
            "workqueue_adds_total{name=\"job\"} 2",
            "workqueue_queue_duration_seconds_count{name=\"job\"} 1",
            "workqueue_work_duration_seconds_bucket{le=\"+Inf\",name=\"job\"} 1",
            "dogwatch_workqueue_working{name=\"nodes\"} 2.0",
        ] {
            assert!(text.contains(line), "{line} is missing in\n{text}");
        }
        assert!(!text.contains("workqueue_adds_total{name=\"nodes\"}"), "{text}");
    }
}
