//! Processor time and memory of the measured processes, as the system accounts them.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::trouble::Trouble;

/// The unit of time in /proc, the same on every current Linux.
const TICK: Duration = Duration::from_millis(10);
/// Interval of memory samples; short enough to catch a burst of lists.
const SAMPLE: Duration = Duration::from_millis(20);

/// The processes of one server, counted together.
#[derive(Clone, Debug, Default)]
pub struct Processes {
    pids: Vec<u32>,
}

#[derive(Clone, Copy, Debug, Default)]
pub struct Usage {
    pub cpu: Duration,
    /// Resident memory in bytes.
    pub memory: u64,
}

impl Processes {
    /// Fails if one of them does not exist.
    pub fn new(pids: Vec<u32>) -> Result<Self, Trouble> {
        for pid in &pids {
            if !fs::exists(format!("/proc/{pid}/stat")).unwrap_or(false) {
                return Err(Trouble::impossible(format!("there is no process {pid}")));
            }
        }
        Ok(Processes { pids })
    }

    /// None where no process is known.
    #[must_use]
    pub fn usage(&self) -> Option<Usage> {
        let mut sum = None;
        for pid in &self.pids {
            let of = Usage {
                cpu: cpu(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)?,
                memory: resident(&fs::read_to_string(format!("/proc/{pid}/status")).ok()?)?,
            };
            let so_far = sum.get_or_insert_with(Usage::default);
            so_far.cpu += of.cpu;
            so_far.memory += of.memory;
        }
        sum
    }

    /// Samples the memory until the peak is read.
    pub(crate) fn watch_memory(&self) -> Peak {
        let peak = Arc::new(AtomicU64::new(0));
        let (processes, highest) = (self.clone(), Arc::clone(&peak));
        let task = tokio::spawn(async move {
            while let Some(usage) = processes.usage() {
                highest.fetch_max(usage.memory, Ordering::Relaxed);
                tokio::time::sleep(SAMPLE).await;
            }
        });
        Peak { peak, task }
    }
}

pub(crate) struct Peak {
    peak: Arc<AtomicU64>,
    task: tokio::task::JoinHandle<()>,
}

impl Peak {
    pub(crate) fn end(self) -> Option<u64> {
        Some(self.peak.load(Ordering::Relaxed)).filter(|peak| *peak > 0)
    }
}

impl Drop for Peak {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// User and system time. The name before them may have spaces and brackets in it.
fn cpu(stat: &str) -> Option<Duration> {
    let after_name = &stat[stat.rfind(')')? + 1..];
    let mut fields = after_name.split_whitespace().skip(11);
    let user: u32 = fields.next()?.parse().ok()?;
    let system: u32 = fields.next()?.parse().ok()?;
    Some(TICK * (user + system))
}

fn resident(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kilobytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kilobytes * 1024)
}

/// Raises the limit of open files of this process and its children to the maximum.
pub fn raise_open_files() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    // If this fails, opening the connections will report it.
    let _ = setrlimit(Resource::Nofile, limit);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_system_accounts_are_read() {
        let stat = "12 (a) b) S 1 1 1 0 -1 4194560 100 0 0 0 250 50 0 0 20 0 1 0 5 6 7";
        assert_eq!(cpu(stat), Some(Duration::from_secs(3)));
        assert_eq!(resident("Name:\tx\nVmRSS:\t   2048 kB\nRssAnon:\t 1 kB\n"), Some(2 << 20));
        assert_eq!(resident("Name:\tkernel thread\n"), None);
    }

    #[test]
    fn a_process_that_is_not_there_is_refused() {
        let us = Processes::new(vec![std::process::id()]).expect("this process is there");
        assert!(us.usage().expect("it has an account").memory > 1 << 20);
        assert!(Processes::default().usage().is_none());
        let none = Processes::new(vec![u32::MAX]).expect_err("no process has that number");
        assert!(none.to_string().contains("4294967295"));
    }
}
