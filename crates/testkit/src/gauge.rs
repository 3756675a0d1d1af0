//! The cost of a program that follows a server: commands on stdin, results on stdout.
//!
//! `mark` begins a measurement: events, CPU and peak memory count from there. `report` prints it as one line of JSON. The
//! program ends with its stdin. All compared programs implement this protocol, whatever their language.

use std::io::BufRead;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use machinery::Clock;
use parking_lot::Mutex;
use serde_json::json;

/// The annotation with the time at which a change was due, in nanoseconds since 1970.
pub const DUE: &str = "gauge/due";

/// The due time of a change, from its bytes: decoding a whole object for it would be a cost of the measurement.
#[must_use]
pub fn due(body: &[u8]) -> Option<&str> {
    let at = memchr::memmem::find(body, DUE.as_bytes())? + DUE.len() + 3;
    let end = at + memchr::memchr(b'"', body.get(at..)?)?;
    std::str::from_utf8(&body[at..end]).ok()
}

/// Counts the events of a handler.
pub struct Gauge {
    started: Instant,
    events: AtomicU64,
    sets: AtomicU64,
    /// Microseconds from due to seen.
    latencies: Mutex<Vec<u64>>,
    cpu: Mutex<Duration>,
    clock: Clock,
}

impl Default for Gauge {
    fn default() -> Self {
        Self {
            started: Instant::now(),
            events: AtomicU64::new(0),
            sets: AtomicU64::new(0),
            latencies: Mutex::default(),
            cpu: Mutex::new(cpu()),
            clock: Clock::system(),
        }
    }
}

impl Gauge {
    /// Counts a change that arrived at the handler.
    pub fn event(&self, due: Option<&str>) {
        self.events.fetch_add(1, Ordering::Relaxed);
        if let Some(due) = due.and_then(|due| due.parse::<i128>().ok()) {
            let micros = (self.clock.now().as_nanosecond() - due).max(0) / 1000;
            self.latencies.lock().push(u64::try_from(micros).unwrap_or(u64::MAX));
        }
    }

    /// Counts a whole set that arrived: the first, or a relist.
    pub fn set(&self) {
        self.sets.fetch_add(1, Ordering::Relaxed);
    }

    /// Reports that the first set has arrived, then executes commands until stdin ends.
    pub fn serve(&self, objects: impl Fn() -> usize, sets: impl Fn() -> Option<u64>) {
        println!("synced {}", self.started.elapsed().as_millis());
        for line in std::io::stdin().lock().lines() {
            match line.as_deref() {
                Ok("mark") => {
                    self.events.store(0, Ordering::Relaxed);
                    self.latencies.lock().clear();
                    *self.cpu.lock() = cpu();
                    reset_peak();
                    println!("marked");
                }
                Ok("report") => {
                    let mut latencies = self.latencies.lock().clone();
                    latencies.sort_unstable();
                    let at = |share: f64| latencies.get((latencies.len() as f64 * share) as usize).copied();
                    let sets = sets().unwrap_or_else(|| self.sets.load(Ordering::Relaxed));
                    let report = json!({"objects": objects(), "events": self.events.load(Ordering::Relaxed), "sets": sets,
                        "cpu_us": (cpu() - *self.cpu.lock()).as_micros() as u64, "rss_kib": kib("VmRSS:"),
                        "peak_kib": kib("VmHWM:"), "p50_us": at(0.5), "p99_us": at(0.99)});
                    println!("{report}");
                }
                _ => return,
            }
        }
    }
}

/// The runtime of a compared program: as many threads as the machine has, or one for `one-thread`. One thread is enough for a
/// few hundred events a second, and has no other worker to wake.
#[must_use]
pub fn runtime(threads: Option<&str>) -> tokio::runtime::Runtime {
    let mut builder = match threads {
        Some("one-thread") => tokio::runtime::Builder::new_current_thread(),
        _ => tokio::runtime::Builder::new_multi_thread(),
    };
    builder.enable_all().build().expect("the system has threads and epoll")
}

/// A line of this process's status, in KiB: `VmRSS:`, `VmHWM:`.
#[must_use]
pub fn kib(field: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with(field)).unwrap_or_default();
    line.split_whitespace().nth(1).and_then(|number| number.parse().ok()).unwrap_or_default()
}

/// Resets the peak memory of this process.
pub fn reset_peak() {
    let _ = std::fs::write("/proc/self/clear_refs", "5");
}

/// CPU time of this process, to a clock tick (10 ms).
#[must_use]
pub fn cpu() -> Duration {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let after_name = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    let ticks: u64 = after_name.split_whitespace().skip(11).take(2).filter_map(|n| n.parse::<u64>().ok()).sum();
    Duration::from_millis(ticks * 10)
}
