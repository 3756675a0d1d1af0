//! The lines that containers have written: bounded, with their times, of the current and the previous instance.
//!
//! A container that has written nothing costs nothing here; its default log is computed from the status of its pod.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use jiff::Timestamp;
use parking_lot::Mutex;
use tokio::sync::watch;

/// Bytes of lines kept for one instance of a container; the oldest lines are dropped first.
pub const LOG_BYTES_MAX: usize = 256 * 1024;
/// Bytes of lines kept for all containers. Beyond it each container keeps only its newest lines.
pub const ALL_LOG_BYTES_MAX: usize = 64 * 1024 * 1024;
/// Longest line; the rest of a longer one is the next line.
pub const LINE_BYTES_MAX: usize = 16 * 1024;
/// Bytes that a line costs beside its text.
const LINE_COST: usize = 64;

/// One line of a log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    pub at: Timestamp,
    /// Whether it was written to the standard error output.
    pub is_error: bool,
    pub text: Arc<str>,
}

/// The lines of one instance of a container.
#[derive(Debug, Default)]
struct Instance {
    lines: VecDeque<Line>,
    bytes: usize,
    /// Lines that were dropped because there were too many: the number of the first kept line.
    dropped: u64,
    /// Whether the container is known to write its own lines, so that it has no default log.
    is_silent: bool,
}

impl Instance {
    /// Appends a line, drops the oldest ones beyond `bytes_max`, and returns the change of the bytes that are kept.
    fn append(&mut self, line: Line, bytes_max: usize) -> (usize, usize) {
        let cost = LINE_COST + line.text.len();
        let mut freed = 0;
        while self.bytes + cost > bytes_max
            && let Some(old) = self.lines.pop_front()
        {
            self.dropped += 1;
            self.bytes -= LINE_COST + old.text.len();
            freed += LINE_COST + old.text.len();
        }
        self.bytes += cost;
        self.lines.push_back(line);
        (cost, freed)
    }
}

struct Log {
    /// `restartCount` of the current instance.
    restarts: i32,
    current: Instance,
    previous: Option<Instance>,
    /// The number of changes, for readers that wait for the next line.
    changes: watch::Sender<u64>,
}

impl Log {
    fn new(restarts: i32) -> Self {
        Log { restarts, current: Instance::default(), previous: None, changes: watch::channel(0).0 }
    }

    fn bytes(&self) -> usize {
        self.current.bytes + self.previous.as_ref().map_or(0, |previous| previous.bytes)
    }
}

/// The logs of all containers that have written something, by the UID of their pod.
#[derive(Default)]
pub struct ContainerLogs(Mutex<Logs>);

#[derive(Default)]
struct Logs {
    pods: HashMap<Arc<str>, HashMap<Arc<str>, Log>>,
    bytes: usize,
}

/// Lines of a log, and the position after them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Lines {
    pub lines: Vec<Line>,
    /// The number of the line that follows.
    pub next: u64,
}

impl ContainerLogs {
    /// Appends a line to the log of the current instance.
    pub fn append(&self, pod_uid: &str, container: &str, line: Line) {
        let mut logs = self.0.lock();
        let bytes_max = if logs.bytes > ALL_LOG_BYTES_MAX { LOG_BYTES_MAX / 32 } else { LOG_BYTES_MAX };
        let log = logs.of(pod_uid, container);
        let (mut added, mut freed) = (0, 0);
        for text in split(&line.text) {
            let (cost, less) = log.current.append(Line { text, ..line.clone() }, bytes_max);
            added += cost;
            freed += less;
        }
        log.changes.send_modify(|changes| *changes += 1);
        logs.bytes = (logs.bytes + added).saturating_sub(freed);
    }

    /// Starts an instance of a container: the lines of the one before become those of the previous instance. Does nothing
    /// if this instance has already started.
    pub fn start(&self, pod_uid: &str, container: &str, restarts: i32) {
        let mut logs = self.0.lock();
        let Some(log) = logs.pods.get_mut(pod_uid).and_then(|pod| pod.get_mut(container)) else {
            if restarts > 0 {
                logs.of(pod_uid, container).restarts = restarts;
            }
            return;
        };
        if log.restarts >= restarts {
            return;
        }
        let forgotten = log.previous.as_ref().map_or(0, |previous| previous.bytes);
        log.previous = (log.restarts + 1 == restarts).then(|| std::mem::take(&mut log.current));
        let lost = std::mem::take(&mut log.current).bytes;
        log.restarts = restarts;
        log.changes.send_modify(|changes| *changes += 1);
        logs.bytes = logs.bytes.saturating_sub(forgotten + lost);
    }

    /// Notes that the current instance writes its own lines: without any its log is empty, and not the default one.
    pub fn mark_silent(&self, pod_uid: &str, container: &str) {
        self.0.lock().of(pod_uid, container).current.is_silent = true;
    }

    /// Forgets the logs of a pod that is gone.
    pub fn remove(&self, pod_uid: &str) {
        let mut logs = self.0.lock();
        if let Some(pod) = logs.pods.remove(pod_uid) {
            let bytes: usize = pod.values().map(Log::bytes).sum();
            logs.bytes = logs.bytes.saturating_sub(bytes);
        }
    }

    /// The lines of an instance from a position on; none if that instance has written nothing. `restarts` is the
    /// `restartCount` of the wanted instance.
    #[must_use]
    pub fn read(&self, pod_uid: &str, container: &str, restarts: i32, from: u64) -> Option<Lines> {
        let logs = self.0.lock();
        let log = logs.pods.get(pod_uid)?.get(container)?;
        let instance = match log.restarts - restarts {
            0 => &log.current,
            1 => log.previous.as_ref()?,
            _ => return None,
        };
        let next = instance.dropped + instance.lines.len() as u64;
        if next == 0 && !instance.is_silent {
            return None;
        }
        let skip = usize::try_from(from.saturating_sub(instance.dropped)).unwrap_or(usize::MAX);
        Some(Lines { lines: instance.lines.iter().skip(skip).cloned().collect(), next })
    }

    /// A signal of each change of a log.
    #[must_use]
    pub fn changes(&self, pod_uid: &str, container: &str) -> Option<watch::Receiver<u64>> {
        let logs = self.0.lock();
        Some(logs.pods.get(pod_uid)?.get(container)?.changes.subscribe())
    }
}

impl Logs {
    fn of(&mut self, pod_uid: &str, container: &str) -> &mut Log {
        let pod = self.pods.entry(pod_uid.into()).or_default();
        pod.entry(container.into()).or_insert_with(|| Log::new(0))
    }
}

/// The pieces of a text that are short enough to be lines.
fn split(text: &Arc<str>) -> Vec<Arc<str>> {
    let lines = text.split('\n');
    if text.len() <= LINE_BYTES_MAX && !text.contains('\n') {
        return vec![Arc::clone(text)];
    }
    let mut pieces = Vec::new();
    for mut line in lines {
        while line.len() > LINE_BYTES_MAX {
            let at = (0..=LINE_BYTES_MAX).rev().find(|at| line.is_char_boundary(*at)).unwrap_or(LINE_BYTES_MAX);
            let (head, tail) = line.split_at(at);
            pieces.push(head.into());
            line = tail;
        }
        pieces.push(line.into());
    }
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(text: &str) -> Line {
        Line { at: Timestamp::UNIX_EPOCH, is_error: false, text: text.into() }
    }

    fn texts(logs: &ContainerLogs, restarts: i32, from: u64) -> Option<Vec<String>> {
        let lines = logs.read("u", "c", restarts, from)?;
        Some(lines.lines.iter().map(|line| line.text.to_string()).collect())
    }

    #[test]
    fn lines_are_kept_for_the_current_and_the_previous_instance() {
        let logs = ContainerLogs::default();
        assert_eq!(texts(&logs, 0, 0), None);
        logs.append("u", "c", line("a"));
        logs.append("u", "c", line("b\nc"));
        assert_eq!(texts(&logs, 0, 1).unwrap(), ["b", "c"]);
        logs.start("u", "c", 0);
        logs.start("u", "c", 1);
        assert_eq!(texts(&logs, 1, 0), None);
        logs.mark_silent("u", "c");
        assert_eq!(texts(&logs, 1, 0), Some(Vec::new()));
        assert_eq!(texts(&logs, 0, 0).unwrap(), ["a", "b", "c"]);
        logs.append("u", "c", line("d"));
        logs.start("u", "c", 2);
        assert_eq!((texts(&logs, 0, 0), texts(&logs, 1, 0).unwrap()), (None, vec!["d".to_owned()]));
        logs.remove("u");
        assert_eq!((texts(&logs, 1, 0), logs.0.lock().bytes), (None, 0));
    }

    #[test]
    fn the_oldest_lines_are_dropped() {
        let logs = ContainerLogs::default();
        for number in 0..30_000 {
            logs.append("u", "c", line(&format!("line {number}")));
        }
        let kept = logs.read("u", "c", 0, 0).unwrap();
        assert_eq!(kept.next, 30_000);
        assert_eq!(&*kept.lines.last().unwrap().text, "line 29999");
        assert!(logs.0.lock().bytes <= LOG_BYTES_MAX);
        let long = "é".repeat(LINE_BYTES_MAX);
        logs.append("u", "c", line(&long));
        let lines = logs.read("u", "c", 0, 30_000).unwrap().lines;
        assert_eq!(lines.iter().map(|line| &*line.text).collect::<String>(), long);
        assert!(lines.iter().all(|line| line.text.len() <= LINE_BYTES_MAX) && lines.len() == 2);
    }
}
