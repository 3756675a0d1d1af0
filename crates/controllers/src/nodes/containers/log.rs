//! The log of a container as a client reads it: what it wrote, what a rule prescribes, or a short default.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Container, Pod};
use tokio::io::{AsyncWrite, AsyncWriteExt as _};

use super::Containers;
use super::log_file::write_file;
use super::logs::Line;
use super::rules::{LogContent, rule_for};
use super::state::{self, Instance};

/// Interval at which a followed log looks at its pod, and at a file.
pub(super) const FOLLOW_EVERY: Duration = Duration::from_millis(250);

/// What of a log is wanted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LogWanted {
    pub follow: bool,
    pub previous: bool,
    pub timestamps: bool,
    pub since: Option<Timestamp>,
    pub tail_lines: Option<u64>,
    pub limit_bytes: Option<u64>,
}

/// Reads the pod as it is now; none when it is gone.
pub type CurrentPod = Arc<dyn Fn() -> Option<Pod> + Send + Sync>;

impl Containers {
    /// Writes the log of an instance of a container to a client.
    pub async fn write_log(
        &self,
        pod: &Pod,
        container: &str,
        instance: Instance,
        wanted: LogWanted,
        current: CurrentPod,
        to: impl AsyncWrite + Unpin,
    ) -> io::Result<()> {
        let mut sink = LogSink { to, limit: wanted.limit_bytes, timestamps: wanted.timestamps };
        let rules = self.rules_of(pod).logs;
        let rule = rule_for(&rules, container);
        if let Some(LogContent::File { current: file, previous }) = rule.map(|rule| &rule.log) {
            let follows = wanted.follow || rule.is_some_and(|rule| rule.follows);
            let file = if wanted.previous { previous.as_ref() } else { Some(file) };
            let Some(file) = file else { return Ok(()) };
            return write_file(file, &wanted, follows, container, &current, &mut sink).await;
        }
        let prescribed = match rule.map(|rule| &rule.log) {
            Some(LogContent::Text(text)) => Some(text.as_str()),
            _ => None,
        };
        let uid = pod.metadata.uid.as_deref().unwrap_or_default();
        let mut next = 0;
        let mut told = 0;
        let mut first = true;
        let mut writes_itself = false;
        let mut seen = instance;
        loop {
            // Before the lines are read, so that one that is written meanwhile wakes this reader.
            let changes = self.logs.changes(uid, container);
            let mut lines = match (prescribed, self.logs.read(uid, container, instance.restarts, next)) {
                (None, Some(read)) => {
                    next = read.next;
                    writes_itself = true;
                    read.lines
                }
                // The pod is gone, and its log with it.
                _ if writes_itself => Vec::new(),
                _ => {
                    let all = default_lines(pod, container, seen, prescribed);
                    let new = all.get(told..).unwrap_or_default().to_vec();
                    told = all.len().max(told);
                    new
                }
            };
            if std::mem::take(&mut first) {
                lines.retain(|line| wanted.since.is_none_or(|since| line.at >= since));
                if let Some(tail) = wanted.tail_lines.and_then(|tail| usize::try_from(tail).ok()) {
                    lines.drain(..lines.len().saturating_sub(tail));
                }
            }
            for line in &lines {
                if !sink.line(line).await? {
                    return Ok(());
                }
            }
            sink.to.flush().await?;
            if !wanted.follow || wanted.previous || !seen.runs() {
                return Ok(());
            }
            wait(changes).await;
            seen = now_of(&current, container, instance);
        }
    }
}

/// The instance as it is now: ended when another one has started, or the pod is gone.
fn now_of(current: &CurrentPod, container: &str, instance: Instance) -> Instance {
    let gone = Instance { ended: instance.ended.or(Some(Timestamp::UNIX_EPOCH)), ..instance };
    let Some(pod) = current() else { return gone };
    match state::instance(&pod, container, false) {
        Ok(now) if now.restarts == instance.restarts => now,
        _ => gone,
    }
}

/// Waits for the next line, for a while.
#[expect(clippy::disallowed_methods, reason = "it looks again for a client that follows; nothing depends on when")]
async fn wait(changes: Option<tokio::sync::watch::Receiver<u64>>) {
    let changed = async {
        match changes {
            Some(mut changes) => drop(changes.changed().await),
            None => std::future::pending().await,
        }
    };
    let _ = tokio::time::timeout(FOLLOW_EVERY, changed).await;
}

/// The lines of a container that wrote none itself: its start, one line for each step, its end.
fn default_lines(pod: &Pod, container: &str, instance: Instance, prescribed: Option<&str>) -> Vec<Line> {
    let started = instance.started.unwrap_or(Timestamp::UNIX_EPOCH);
    let line = |at: Timestamp, text: String| Line { at, is_error: false, text: text.into() };
    if let Some(text) = prescribed {
        return text.lines().map(|text| line(started, text.to_owned())).collect();
    }
    let spec = pod.spec.as_ref();
    let containers = spec.map(|spec| spec.containers.iter().chain(spec.init_containers.iter().flatten()));
    let spec: Option<&Container> = containers.and_then(|mut all| all.find(|known| known.name == container));
    let image = spec.and_then(|spec| spec.image.as_deref()).unwrap_or_default();
    let name = pod.metadata.name.as_deref().unwrap_or_default();
    let mut lines =
        vec![line(started, format!("container {container} of pod {name} started (simulated, image {image})"))];
    for port in spec.and_then(|spec| spec.ports.as_deref()).unwrap_or_default() {
        lines.push(line(started, format!("listening on port {}", port.container_port)));
    }
    if let Some(ready) = ready_since(pod).filter(|ready| *ready >= started && instance.runs()) {
        lines.push(line(ready, "ready".to_owned()));
    }
    if let Some(code) = instance.exit_code {
        lines.push(line(instance.ended.unwrap_or(started), format!("exited with code {code}")));
    }
    lines
}

/// When the containers of a pod became ready, if they are.
fn ready_since(pod: &Pod) -> Option<Timestamp> {
    let conditions = pod.status.as_ref()?.conditions.as_deref()?;
    let ready =
        conditions.iter().find(|condition| condition.type_ == "ContainersReady" && condition.status == "True")?;
    ready.last_transition_time.as_ref().map(|time| time.0)
}

/// Where a log is written to, within its limits.
pub(super) struct LogSink<W> {
    pub(super) to: W,
    /// Bytes that may still be written.
    limit: Option<u64>,
    pub(super) timestamps: bool,
}

impl<W: AsyncWrite + Unpin> LogSink<W> {
    /// Writes a line. False if nothing more may be written.
    async fn line(&mut self, line: &Line) -> io::Result<bool> {
        let text =
            if self.timestamps { format!("{} {}\n", time(line.at), line.text) } else { format!("{}\n", line.text) };
        self.bytes(text.as_bytes()).await
    }

    pub(super) async fn bytes(&mut self, bytes: &[u8]) -> io::Result<bool> {
        let allowed =
            self.limit.map_or(bytes.len(), |limit| usize::try_from(limit).unwrap_or(usize::MAX).min(bytes.len()));
        self.to.write_all(bytes.get(..allowed).unwrap_or_default()).await?;
        if let Some(limit) = &mut self.limit {
            *limit -= allowed as u64;
            return Ok(*limit > 0);
        }
        Ok(true)
    }
}

/// A time as container runtimes write it: always nine digits.
pub(super) fn time(at: Timestamp) -> String {
    format!("{at:.9}")
}

#[cfg(test)]
#[path = "log_tests.rs"]
mod tests;
