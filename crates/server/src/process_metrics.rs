//! Metrics of the process: its memory and the time of the processor that it used, under the usual names.
//!
//! Resident memory is either the program's own (the heap, mostly: objects and their history, and what the allocator keeps
//! for the next request) or pages of files (the program itself and the store), which the system takes back when it needs them.

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;

/// Adds the figures of the process to the metrics of the server.
#[derive(Debug)]
pub(crate) struct ProcessMetrics;

impl Collector for ProcessMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
        let seconds = time.tv_sec as f64 + time.tv_nsec as f64 / 1e9;
        let help = "Time of the processor that the process used, in seconds";
        let mut metric = encoder.encode_descriptor("process_cpu_seconds", help, None, MetricType::Counter)?;
        metric.encode_counter::<NoLabelSet, _, u64>(&seconds, None)?;
        // Only Linux has the file.
        let Ok(status) = std::fs::read_to_string("/proc/self/status") else { return Ok(()) };
        for (name, help, field) in [
            ("process_resident_memory_bytes", "Resident memory", "VmRSS:"),
            ("process_virtual_memory_bytes", "Addresses in use", "VmSize:"),
            ("process_threads", "Threads", "Threads:"),
        ] {
            let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            metric.encode_gauge(&figure(&status, field))?;
        }
        let help = "Resident memory of the program itself, and resident pages of files";
        let mut family = encoder.encode_descriptor("dogwatch_resident_bytes", help, None, MetricType::Gauge)?;
        for (kind, field) in [("anonymous", "RssAnon:"), ("file", "RssFile:")] {
            family.encode_family(&[("kind", kind)])?.encode_gauge(&figure(&status, field))?;
        }
        Ok(())
    }
}

/// The figure of a line such as `VmRSS:  1234 kB`, in bytes if it has a unit.
fn figure(status: &str, field: &str) -> i64 {
    let line = status.lines().find_map(|line| line.strip_prefix(field)).unwrap_or_default();
    let mut words = line.split_whitespace();
    let number = words.next().and_then(|word| word.parse::<i64>().ok()).unwrap_or_default();
    if words.next() == Some("kB") { number.saturating_mul(1024) } else { number }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_have_their_units() {
        let status = "Name:\tdogwatch\nVmRSS:\t   12 kB\nThreads:\t7\n";
        assert_eq!(["VmRSS:", "Threads:", "VmSize:"].map(|field| figure(status, field)), [12 * 1024, 7, 0]);
    }

    #[test]
    fn the_process_has_used_memory_and_time() {
        let mut registry = prometheus_client::registry::Registry::default();
        registry.register_collector(Box::new(ProcessMetrics));
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        assert!(text.contains("\nprocess_cpu_seconds_total "), "{text}");
        if cfg!(target_os = "linux") {
            let value =
                |name: &str| text.lines().find_map(|line| line.strip_prefix(name)).map(str::trim).map(str::to_owned);
            assert_ne!(value("process_resident_memory_bytes").as_deref(), Some("0"), "{text}");
            assert!(value("dogwatch_resident_bytes{kind=\"anonymous\"}").is_some(), "{text}");
        }
    }
}
