//! `Elector`: one candidate of an election.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use machinery::Clock;
use parking_lot::Mutex;
use thiserror::Error as ThisError;
use tokio::time::{Instant, sleep, timeout_at};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use super::lock::{Held, LeaseLock, LeaseRecord};
use crate::Error;
use crate::metrics::Counter;

/// The parameters of an election.
#[derive(Debug, Clone)]
pub struct ElectionConfig {
    /// The name of this candidate; unique among all.
    pub identity: String,
    /// Time that other candidates wait after they saw the last renewal.
    pub lease_duration: Duration,
    /// Time after its last successful renewal during which the leader still acts and retries.
    pub renew_deadline: Duration,
    /// Time between attempts.
    pub retry_period: Duration,
    /// Release the lease after a stop, once the guarded work has ended, so that another candidate can lead at once.
    pub release_on_stop: bool,
}

impl ElectionConfig {
    /// 15 s, 10 s, 2 s; released on stop.
    pub fn new(identity: &str) -> Self {
        Self {
            identity: identity.to_owned(),
            lease_duration: Duration::from_secs(15),
            renew_deadline: Duration::from_secs(10),
            retry_period: Duration::from_secs(2),
            release_on_stop: true,
        }
    }
}

/// Parameters that cannot work.
#[derive(Debug, Clone, PartialEq, Eq, ThisError)]
pub enum InvalidElection {
    /// The holder of the lease could not be identified.
    #[error("the identity of a candidate must not be empty")]
    NoIdentity,
    /// The leader could still act when another begins.
    #[error("the lease duration must be longer than the renew deadline")]
    LeaseTooShort,
    /// A single failed attempt would lose the lease.
    #[error("the renew deadline must be longer than 1.2 times the retry period")]
    DeadlineTooShort,
    /// Leases count whole seconds.
    #[error("the lease duration must be at least one second")]
    SubSecondLease,
}

/// A candidate sleeps between its retry period and this much times it, so that candidates do not move together.
const JITTER: f64 = 1.2;

/// A change of leadership.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Transition {
    /// This candidate leads.
    BecameLeader,
    /// This candidate no longer leads.
    StoppedLeading,
    /// A leader was seen; it may be this candidate.
    NewLeader(String),
}

impl Transition {
    /// The message of the event on the Lease (reason `LeaderElection`); `None` for a transition without an event.
    pub fn message(&self, identity: &str) -> Option<String> {
        match self {
            Self::BecameLeader => Some(format!("{identity} became leader")),
            Self::StoppedLeading => Some(format!("{identity} stopped leading")),
            Self::NewLeader(_) => None,
        }
    }
}

/// The end of an election for this candidate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// It was stopped.
    Stopped,
    /// It led and lost the lease.
    Lost,
    /// It led and its work ended by itself.
    Finished,
}

/// Proof of leadership, held by the guarded work.
#[derive(Clone)]
pub struct LeaderGuard {
    lost: CancellationToken,
    shared: Arc<Shared>,
}

impl LeaderGuard {
    /// True while this process may act as the leader. Computed from the time of the call, so it is also right if the
    /// electing task is starved.
    pub fn is_leader(&self) -> bool {
        !self.lost.is_cancelled() && self.shared.may_act()
    }

    /// Completes when leadership is lost or the election is stopped. The work should end then.
    pub async fn lost(&self) {
        self.lost.cancelled().await;
    }

    /// The same as a token, for stopping controllers.
    pub fn token(&self) -> CancellationToken {
        self.lost.clone()
    }
}

/// Health check of a leader's renewals (LE-11).
#[derive(Clone)]
pub struct ElectionHealth {
    shared: Arc<Shared>,
}

impl ElectionHealth {
    /// False if this candidate leads and has not renewed for the lease duration and `tolerance`.
    pub fn is_healthy(&self, tolerance: Duration) -> bool {
        let state = self.shared.state.lock();
        !state.leading || state.last_good.is_none_or(|at| at.elapsed() <= self.shared.lease_duration + tolerance)
    }

    /// Renewals that needed a read first.
    pub fn slow_renewals(&self) -> u64 {
        self.shared.slow_renewals.get()
    }
}

struct Shared {
    lease_duration: Duration,
    renew_deadline: Duration,
    state: Mutex<Leading>,
    slow_renewals: Counter,
}

#[derive(Default)]
struct Leading {
    leading: bool,
    /// When the last good renewal was *sent*.
    last_good: Option<Instant>,
}

impl Shared {
    fn may_act(&self) -> bool {
        let state = self.state.lock();
        state.leading && state.last_good.is_some_and(|at| at.elapsed() < self.renew_deadline)
    }

    fn set(&self, leading: bool, last_good: Option<Instant>) {
        *self.state.lock() = Leading { leading, last_good };
    }
}

type OnTransition = Arc<dyn Fn(&Transition) + Send + Sync>;

/// One candidate of an election.
///
/// ```no_run
/// use std::sync::Arc;
///
/// use client::leader::{ApiLease, ElectionConfig, Elector, LeaderGuard};
/// use tokio_util::sync::CancellationToken;
///
/// # async fn run(client: kube::Client) -> Result<(), client::leader::InvalidElection> {
/// let lease = ApiLease::new(client, "kube-system", "my-controller");
/// let elector = Elector::new(Arc::new(lease), ElectionConfig::new("host-1"))?;
/// let lead = |guard: LeaderGuard| async move {
///     // … start controllers, and stop them when leadership is lost …
///     guard.lost().await;
/// };
/// elector.run(lead, CancellationToken::new()).await;
/// # Ok(())
/// # }
/// ```
pub struct Elector {
    lock: Arc<dyn LeaseLock>,
    config: ElectionConfig,
    on_transition: OnTransition,
    shared: Arc<Shared>,
    /// The record as last seen, and the time at which this state of it was first seen.
    observed: Option<(Held, Instant)>,
    known_leader: Option<String>,
    clock: Clock,
}

impl Elector {
    /// A candidate that has not run.
    pub fn new(lock: Arc<dyn LeaseLock>, config: ElectionConfig) -> Result<Self, InvalidElection> {
        if config.identity.is_empty() {
            return Err(InvalidElection::NoIdentity);
        }
        if config.lease_duration < Duration::from_secs(1) {
            return Err(InvalidElection::SubSecondLease);
        }
        if config.lease_duration <= config.renew_deadline {
            return Err(InvalidElection::LeaseTooShort);
        }
        if config.renew_deadline <= config.retry_period.mul_f64(JITTER) {
            return Err(InvalidElection::DeadlineTooShort);
        }
        let shared = Shared {
            lease_duration: config.lease_duration,
            renew_deadline: config.renew_deadline,
            state: Mutex::default(),
            slow_renewals: Counter::default(),
        };
        Ok(Self {
            lock,
            config,
            on_transition: Arc::new(|_| ()),
            shared: Arc::new(shared),
            observed: None,
            known_leader: None,
            clock: Clock::system(),
        })
    }

    /// Takes the times in the Lease from `clock` instead of the machine's. Deadlines use the monotonic clock (LE-4).
    pub fn with_clock(mut self, clock: Clock) -> Self {
        self.clock = clock;
        self
    }

    /// Calls `handler` at each transition. It must not block.
    pub fn on_transition(mut self, handler: impl Fn(&Transition) + Send + Sync + 'static) -> Self {
        self.on_transition = Arc::new(handler);
        self
    }

    /// A health check of this candidate.
    pub fn health(&self) -> ElectionHealth {
        ElectionHealth { shared: self.shared.clone() }
    }

    /// Waits for leadership, then runs `lead` until it ends, leadership is lost, or `stop`. Leads at most once.
    ///
    /// On loss or stop the guard signals the work to end; what has not ended when the lease does is aborted. The lease is
    /// released only after the work has ended.
    pub async fn run<F, W>(mut self, lead: F, stop: CancellationToken) -> Outcome
    where
        F: FnOnce(LeaderGuard) -> W,
        W: Future<Output = ()> + Send + 'static,
    {
        if stop.run_until_cancelled(self.acquire()).await.is_none() {
            (self.on_transition)(&Transition::StoppedLeading);
            return Outcome::Stopped;
        }
        let lost = CancellationToken::new();
        let guard = LeaderGuard { lost: lost.clone(), shared: self.shared.clone() };
        // If this future is dropped, the lease is no longer renewed: the work must end with it.
        let _lost_on_drop = lost.clone().drop_guard();
        let mut work = AbortOnDropHandle::new(tokio::spawn(lead(guard)));
        (self.on_transition)(&Transition::BecameLeader);
        let outcome = tokio::select! {
            () = stop.cancelled() => Outcome::Stopped,
            () = self.keep() => Outcome::Lost,
            _ = &mut work => Outcome::Finished,
        };
        lost.cancel();
        let ended = outcome == Outcome::Finished || self.wait_for(&mut work).await;
        self.shared.set(false, None);
        if ended && outcome != Outcome::Lost && self.config.release_on_stop {
            self.release().await;
        }
        (self.on_transition)(&Transition::StoppedLeading);
        outcome
    }

    async fn acquire(&mut self) {
        loop {
            let sent = Instant::now();
            match self.try_once().await {
                Ok(()) => return self.shared.set(true, Some(sent)),
                Err(error) => tracing::debug!(%error, identity = %self.config.identity, "not the leader"),
            }
            sleep(self.config.retry_period.mul_f64(1.0 + rand::random::<f64>() * JITTER)).await;
        }
    }

    /// Renews until renewals have failed for the renew deadline.
    async fn keep(&mut self) {
        let mut last_good = self.shared.state.lock().last_good.unwrap_or_else(Instant::now);
        loop {
            let deadline = last_good + self.config.renew_deadline;
            if timeout_at(deadline, sleep(self.config.retry_period)).await.is_err() {
                return;
            }
            let sent = Instant::now();
            match timeout_at(deadline, self.try_once()).await {
                Ok(Ok(())) => {
                    last_good = sent;
                    self.shared.set(true, Some(sent));
                }
                Ok(Err(error)) => tracing::warn!(%error, "cannot renew the lease"),
                Err(_) => return,
            }
        }
    }

    /// Waits for the work until the lease ends. True if the work ended by then.
    async fn wait_for(&self, work: &mut AbortOnDropHandle<()>) -> bool {
        let last_good = self.shared.state.lock().last_good.unwrap_or_else(Instant::now);
        if timeout_at(last_good + self.config.lease_duration, &mut *work).await.is_ok() {
            return true;
        }
        tracing::error!("the leader's work did not end in time and is aborted");
        work.abort();
        false
    }

    /// One attempt to acquire or renew.
    async fn try_once(&mut self) -> Result<(), Error> {
        let leading = self.shared.state.lock().leading;
        if leading && let Some((held, _)) = self.observed.clone() {
            // The usual case: the Lease has not changed since, so no read is needed.
            let record = self.renewal(&held.record);
            if let Ok(held) = self.lock.update(held, record).await {
                self.observe(held);
                return Ok(());
            }
            self.shared.slow_renewals.inc();
        }
        let Some(held) = self.lock.get().await? else {
            let now = self.clock.now();
            let record = LeaseRecord { acquired: Some(now), renewed: Some(now), ..self.own_record() };
            let held = self.lock.create(record).await?;
            self.observe(held);
            return Ok(());
        };
        self.observe(held.clone());
        let ours = held.record.holder == self.config.identity;
        if !ours && !held.record.holder.is_empty() && !self.has_expired() {
            return Err(Error::Config(format!("the lease is held by {}", held.record.holder)));
        }
        let record = if ours {
            self.renewal(&held.record)
        } else {
            let now = self.clock.now();
            LeaseRecord {
                acquired: Some(now),
                renewed: Some(now),
                transitions: held.record.transitions.saturating_add(1),
                strategy: held.record.strategy.clone(),
                preferred_holder: held.record.preferred_holder.clone(),
                ..self.own_record()
            }
        };
        let held = self.lock.update(held, record).await?;
        self.observe(held);
        Ok(())
    }

    fn own_record(&self) -> LeaseRecord {
        let seconds = i32::try_from(self.config.lease_duration.as_secs()).unwrap_or(i32::MAX);
        LeaseRecord { holder: self.config.identity.clone(), duration_seconds: seconds, ..LeaseRecord::default() }
    }

    fn renewal(&self, record: &LeaseRecord) -> LeaseRecord {
        let own = self.own_record();
        LeaseRecord {
            holder: own.holder,
            duration_seconds: own.duration_seconds,
            renewed: Some(self.clock.now()),
            ..record.clone()
        }
    }

    /// Compares the local time since the record last changed with the record's own duration (LE-4).
    fn has_expired(&self) -> bool {
        self.observed.as_ref().is_none_or(|(held, since)| since.elapsed() >= held.record.duration())
    }

    fn observe(&mut self, held: Held) {
        let unchanged = self.observed.as_ref().is_some_and(|(known, _)| known.record == held.record);
        let since = match &self.observed {
            Some((_, since)) if unchanged => *since,
            _ => Instant::now(),
        };
        let holder = held.record.holder.clone();
        self.observed = Some((held, since));
        if !holder.is_empty() && self.known_leader.as_ref() != Some(&holder) {
            self.known_leader = Some(holder.clone());
            (self.on_transition)(&Transition::NewLeader(holder));
        }
    }

    /// Releases the lease: it has no holder, and no candidate has to wait (LE-10).
    async fn release(&self) {
        let deadline = Instant::now() + self.config.renew_deadline;
        let released = timeout_at(deadline, async {
            let Some(held) = self.lock.get().await? else { return Ok(()) };
            if held.record.holder != self.config.identity {
                return Ok(());
            }
            let now = self.clock.now();
            let record = LeaseRecord {
                holder: String::new(),
                duration_seconds: 1,
                acquired: Some(now),
                renewed: Some(now),
                ..held.record.clone()
            };
            self.lock.update(held, record).await.map(|_| ())
        })
        .await;
        if !matches!(released, Ok(Ok(()))) {
            tracing::warn!("could not release the lease; others will wait for it to expire");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn le_11_a_leader_whose_renewals_stopped_is_unhealthy() {
        let shared = Arc::new(Shared {
            lease_duration: Duration::from_secs(15),
            renew_deadline: Duration::from_secs(10),
            state: Mutex::default(),
            slow_renewals: Counter::default(),
        });
        let health = ElectionHealth { shared: shared.clone() };
        assert!(health.is_healthy(Duration::ZERO), "a candidate that does not lead is healthy");
        shared.set(true, Some(Instant::now()));
        tokio::time::advance(Duration::from_secs(24)).await;
        assert!(health.is_healthy(Duration::from_secs(10)));
        assert!(!shared.may_act(), "it must not act, although it still counts as healthy");
        tokio::time::advance(Duration::from_secs(2)).await;
        assert!(!health.is_healthy(Duration::from_secs(10)));
    }
}
