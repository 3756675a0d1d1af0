//! Startup, readiness and liveness probes of one container, as a kubelet runs them.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Container, Pod, Probe};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::course::Course;
use super::places::website;
use super::program::image_name;
use crate::nodes::behaviour::Behaviour;
use crate::nodes::shell::{self, Environment, Files};

/// Probes that are behind by more than this many periods go on from the present.
const PERIODS_BEHIND_MAX: u32 = 10;
/// `agnhost liveness` answers for this long.
const AGNHOST_LIVES: Duration = Duration::from_secs(10);
/// Longest output of a probe in an event.
const OUTPUT_MAX: usize = 1024;

/// The kinds of probes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::nodes) enum Kind {
    Startup,
    Readiness,
    Liveness,
}

impl Kind {
    /// As in events.
    pub(in crate::nodes) fn title(self) -> &'static str {
        match self {
            Kind::Startup => "Startup",
            Kind::Readiness => "Readiness",
            Kind::Liveness => "Liveness",
        }
    }
}

/// How a probe looks at its container.
#[derive(Debug, Clone)]
enum Action {
    Exec(Vec<String>),
    Http { path: String },
    Tcp { port: String },
    Grpc,
}

/// A probe and its state.
#[derive(Debug, Clone)]
struct Prober {
    kind: Kind,
    action: Action,
    course: Option<Course>,
    initial_delay: Duration,
    period: Duration,
    timeout: Duration,
    success_threshold: u32,
    failure_threshold: u32,
    /// In a row.
    successes: u32,
    failures: u32,
    /// The result after the thresholds; none before the first.
    passes: Option<bool>,
    /// None once nothing can change.
    due: Option<Timestamp>,
}

/// The probes of one instance of a container.
#[derive(Debug, Clone, Default)]
pub(in crate::nodes) struct Probes {
    startup: Option<Prober>,
    readiness: Option<Prober>,
    liveness: Option<Prober>,
    started_at: Timestamp,
}

/// What probes found out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::nodes) enum Finding {
    /// One failure, for an event.
    Failed(Kind, String),
    /// Too many failures: the container is to be killed.
    Kill(Kind),
}

/// What probes look at.
pub(super) struct Probed<'a> {
    pub(super) container: &'a Container,
    pub(super) files: &'a Files,
    pub(super) environment: &'a Environment,
}

impl Probes {
    /// The probes of a container that started at a time.
    pub(super) fn new(container: &Container, behaviour: &Behaviour, started_at: Timestamp) -> Self {
        let of = |kind, spec: &Option<Probe>, course| Prober::new(kind, spec.as_ref(), course, started_at);
        let mut probes = Probes {
            startup: of(Kind::Startup, &container.startup_probe, behaviour.startup),
            readiness: of(Kind::Readiness, &container.readiness_probe, behaviour.readiness),
            liveness: of(Kind::Liveness, &container.liveness_probe, behaviour.liveness),
            started_at,
        };
        // Annotations about readiness take precedence over probes.
        if behaviour.never_ready || !behaviour.ready_after.is_zero() {
            probes.readiness = None;
        }
        probes
    }

    /// True if there is nothing to follow: no probe, or only ones that pass at once and for ever.
    pub(super) fn are_trivial(&self, container: &Container) -> bool {
        self.all().all(|prober| {
            prober.is_constant(container) && prober.initial_delay.is_zero() && prober.success_threshold <= 1
        })
    }

    fn all(&self) -> impl Iterator<Item = &Prober> {
        [&self.startup, &self.readiness, &self.liveness].into_iter().flatten()
    }

    /// Takes over the state that an earlier run of this program has written.
    pub(super) fn resume(&mut self, ready: bool, started: bool) {
        if let Some(startup) = self.startup.as_mut().filter(|_| started) {
            startup.passes = Some(true);
        }
        if let Some(readiness) = self.readiness.as_mut().filter(|_| ready) {
            readiness.passes = Some(true);
        }
    }

    pub(super) fn is_started(&self) -> bool {
        self.startup.as_ref().is_none_or(|startup| startup.passes == Some(true))
    }

    /// None where no probe decides about readiness.
    pub(super) fn is_ready(&self) -> Option<bool> {
        if !self.is_started() {
            return Some(false);
        }
        self.readiness.as_ref().map(|readiness| readiness.passes == Some(true))
    }

    /// The next time at which a probe is due.
    pub(super) fn wakes_at(&self) -> Option<Timestamp> {
        self.due_kinds().filter_map(|prober| prober.due).min()
    }

    /// Probes that run now: readiness and liveness wait for the startup probe.
    fn due_kinds(&self) -> impl Iterator<Item = &Prober> {
        let started = self.is_started();
        self.all().filter(move |prober| (prober.kind == Kind::Startup) != started)
    }

    /// Runs every probe that is due.
    pub(super) fn advance(&mut self, probed: &Probed<'_>, now: Timestamp) -> Vec<Finding> {
        let mut findings = Vec::new();
        while let Some(due) = self.wakes_at().filter(|due| *due <= now) {
            let (started, started_at) = (self.is_started(), self.started_at);
            let probers = [&mut self.startup, &mut self.readiness, &mut self.liveness].into_iter().flatten();
            let Some(prober) =
                probers.into_iter().find(|prober| prober.due == Some(due) && (prober.kind == Kind::Startup) != started)
            else {
                break;
            };
            prober.run(probed, started_at, due, now, &mut findings);
            if !started && self.is_started() {
                // The others begin now.
                for prober in [&mut self.readiness, &mut self.liveness].into_iter().flatten() {
                    prober.due = prober.due.map(|first| first.max(due));
                }
            }
            if findings.iter().any(|finding| matches!(finding, Finding::Kill(_))) {
                break;
            }
        }
        findings
    }
}

impl Prober {
    fn new(kind: Kind, spec: Option<&Probe>, course: Option<Course>, started_at: Timestamp) -> Option<Self> {
        let seconds = |value: Option<i32>, default: u64| {
            Duration::from_secs(value.and_then(|value| u64::try_from(value).ok()).unwrap_or(default))
        };
        let count = |value: Option<i32>, default: u32| {
            value.and_then(|value| u32::try_from(value).ok()).filter(|value| *value > 0).unwrap_or(default)
        };
        let Some(spec) = spec else {
            // A prescribed course without a probe: checked every second, and every result counts.
            let course = course?;
            return Some(Prober {
                kind,
                action: Action::Http { path: "/".to_owned() },
                course: Some(course),
                initial_delay: Duration::ZERO,
                period: Duration::from_secs(1),
                timeout: Duration::from_secs(1),
                success_threshold: 1,
                failure_threshold: 1,
                successes: 0,
                failures: 0,
                passes: None,
                due: Some(started_at),
            });
        };
        let action = if let Some(exec) = &spec.exec {
            Action::Exec(exec.command.clone().unwrap_or_default())
        } else if let Some(http) = &spec.http_get {
            Action::Http { path: http.path.clone().unwrap_or_else(|| "/".to_owned()) }
        } else if let Some(tcp) = &spec.tcp_socket {
            let port = match &tcp.port {
                IntOrString::Int(port) => port.to_string(),
                IntOrString::String(name) => name.clone(),
            };
            Action::Tcp { port }
        } else {
            Action::Grpc
        };
        let initial_delay = seconds(spec.initial_delay_seconds, 0);
        let period = seconds(spec.period_seconds, 10).max(Duration::from_secs(1));
        Some(Prober {
            kind,
            action,
            course,
            initial_delay,
            period,
            timeout: seconds(spec.timeout_seconds, 1).max(Duration::from_secs(1)),
            success_threshold: count(spec.success_threshold, 1),
            failure_threshold: count(spec.failure_threshold, 3),
            successes: 0,
            failures: 0,
            passes: None,
            due: started_at.checked_add(initial_delay).ok(),
        })
    }

    /// True if it passes whatever happens.
    fn is_constant(&self, container: &Container) -> bool {
        match &self.action {
            _ if self.course.is_some() => false,
            Action::Exec(_) => false,
            Action::Http { .. } => website(container).is_none() && !is_agnhost_liveness(container),
            Action::Tcp { .. } | Action::Grpc => true,
        }
    }

    fn run(
        &mut self,
        probed: &Probed<'_>,
        started_at: Timestamp,
        due: Timestamp,
        now: Timestamp,
        findings: &mut Vec<Finding>,
    ) {
        let age = Duration::try_from(due.duration_since(started_at)).unwrap_or_default();
        let result = self.look(probed, age, due);
        let mut next = due.checked_add(self.period).ok();
        if next.is_some_and(|next| next.checked_add(self.period * PERIODS_BEHIND_MAX).is_ok_and(|limit| limit < now)) {
            next = Some(now);
        }
        match result {
            Ok(()) => {
                (self.successes, self.failures) = (self.successes.saturating_add(1), 0);
                if self.successes >= self.success_threshold {
                    self.passes = Some(true);
                }
                let settled =
                    self.is_constant(probed.container) || self.course.is_some_and(|course| course.is_settled(age));
                // A startup probe that has passed is done.
                if self.passes == Some(true) && (settled || self.kind == Kind::Startup) {
                    next = None;
                }
            }
            Err(why) => {
                (self.successes, self.failures) = (0, self.failures.saturating_add(1));
                findings.push(Finding::Failed(self.kind, why));
                if self.failures >= self.failure_threshold {
                    self.passes = Some(false);
                    if self.kind != Kind::Readiness {
                        findings.push(Finding::Kill(self.kind));
                        next = None;
                    }
                }
            }
        }
        self.due = next;
    }

    /// One look at the container: nothing, or the reason of the failure.
    fn look(&self, probed: &Probed<'_>, age: Duration, at: Timestamp) -> Result<(), String> {
        if let Some(course) = self.course {
            return if course.passes(age) { Ok(()) } else { Err(self.failure()) };
        }
        match &self.action {
            Action::Exec(words) => {
                let Ok(ran) = shell::run_briefly(words, probed.environment, probed.files, at) else { return Ok(()) };
                let took = Duration::try_from(ran.ends_at.duration_since(at)).unwrap_or_default();
                let output: Vec<u8> = ran.chunks.iter().flat_map(|chunk| chunk.bytes.iter().copied()).collect();
                match ran.status.filter(|_| took <= self.timeout) {
                    Some(0) => Ok(()),
                    Some(_) => Err(String::from_utf8_lossy(&output[..output.len().min(OUTPUT_MAX)]).into_owned()),
                    None => {
                        let (line, seconds) = (words.join(" "), self.timeout.as_secs());
                        Err(format!("command timed out: {line:?} timed out after {seconds}s"))
                    }
                }
            }
            Action::Http { path } => {
                if let Some(website) = website(probed.container) {
                    let there = probed.files.exists(&website.file_of(path));
                    return if there { Ok(()) } else { Err("HTTP probe failed with statuscode: 404".to_owned()) };
                }
                if is_agnhost_liveness(probed.container) && age > AGNHOST_LIVES {
                    return Err("HTTP probe failed with statuscode: 500".to_owned());
                }
                Ok(())
            }
            Action::Tcp { .. } | Action::Grpc => Ok(()),
        }
    }

    /// What a prescribed failure says.
    fn failure(&self) -> String {
        match &self.action {
            Action::Exec(_) => "the failure is prescribed".to_owned(),
            Action::Http { .. } => "HTTP probe failed with statuscode: 503".to_owned(),
            Action::Tcp { port } => format!("dial tcp :{port}: connect: connection refused"),
            Action::Grpc => "service unhealthy (responded with \"NOT_SERVING\")".to_owned(),
        }
    }
}

fn is_agnhost_liveness(container: &Container) -> bool {
    let words = container.command.iter().flatten().chain(container.args.iter().flatten());
    image_name(container) == "agnhost" && words.into_iter().any(|word| word == "liveness")
}

/// Whether a container that has just started is ready, and whether it counts as started.
pub(in crate::nodes) fn at_start(container: &Container, behaviour: &Behaviour) -> (bool, bool) {
    let probes = Probes::new(container, behaviour, Timestamp::UNIX_EPOCH);
    let at_once = |prober: &Option<Prober>| {
        prober.as_ref().is_none_or(|prober| {
            prober.is_constant(container) && prober.initial_delay.is_zero() && prober.success_threshold <= 1
        })
    };
    let started = at_once(&probes.startup);
    let ready = !behaviour.never_ready && behaviour.ready_after.is_zero();
    (started && ready && at_once(&probes.readiness), started)
}

/// The grace period of a container that a probe kills.
pub(super) fn grace(pod: &Pod, container: &Container, kind: Kind) -> Duration {
    let probe = match kind {
        Kind::Startup => &container.startup_probe,
        _ => &container.liveness_probe,
    };
    let own = probe.as_ref().and_then(|probe| probe.termination_grace_period_seconds);
    let of_pod = pod.spec.as_ref().and_then(|spec| spec.termination_grace_period_seconds);
    Duration::from_secs(own.or(of_pod).and_then(|seconds| u64::try_from(seconds).ok()).unwrap_or(30))
}
