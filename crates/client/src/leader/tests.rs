//! The rules of leader election, one test each, on virtual time.

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use k8s_openapi::api::coordination::v1::Lease;
use parking_lot::Mutex;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use super::*;
use crate::Error;
use crate::scripted::{failure, refused};

/// A Lease in memory that checks versions. The connection of each candidate can be cut.
#[derive(Clone, Default)]
struct Server {
    state: Arc<Mutex<ServerState>>,
}

#[derive(Default)]
struct ServerState {
    record: Option<LeaseRecord>,
    version: u64,
    gets: u32,
    got_at: Vec<Instant>,
    writes: Vec<(Instant, LeaseRecord)>,
}

impl Server {
    fn candidate(&self) -> Connection {
        Connection { server: self.clone(), cut: Arc::default(), hang: Arc::default() }
    }

    fn record(&self) -> LeaseRecord {
        self.state.lock().record.clone().unwrap()
    }

    fn writes(&self) -> Vec<(Instant, LeaseRecord)> {
        self.state.lock().writes.clone()
    }
}

#[derive(Clone)]
struct Connection {
    server: Server,
    cut: Arc<Mutex<bool>>,
    hang: Arc<Mutex<bool>>,
}

impl Connection {
    async fn check(&self) -> Result<(), Error> {
        if *self.hang.lock() {
            std::future::pending::<()>().await;
        }
        if *self.cut.lock() { Err(refused()) } else { Ok(()) }
    }

    fn write(&self, state: &mut ServerState, record: LeaseRecord) -> Held {
        state.version += 1;
        state.record = Some(record.clone());
        state.writes.push((Instant::now(), record.clone()));
        held(record, state.version)
    }
}

fn held(record: LeaseRecord, version: u64) -> Held {
    let mut lease = Lease::default();
    lease.metadata.resource_version = Some(version.to_string());
    Held { record, lease }
}

impl LeaseLock for Connection {
    fn get(&self) -> BoxFuture<'_, Result<Option<Held>, Error>> {
        async move {
            self.check().await?;
            let mut state = self.server.state.lock();
            state.gets += 1;
            state.got_at.push(Instant::now());
            let version = state.version;
            Ok(state.record.clone().map(|record| held(record, version)))
        }
        .boxed()
    }

    fn create(&self, record: LeaseRecord) -> BoxFuture<'_, Result<Held, Error>> {
        async move {
            self.check().await?;
            let mut state = self.server.state.lock();
            if state.record.is_some() {
                return Err(failure(409, "AlreadyExists"));
            }
            Ok(self.write(&mut state, record))
        }
        .boxed()
    }

    fn update(&self, before: Held, record: LeaseRecord) -> BoxFuture<'_, Result<Held, Error>> {
        async move {
            self.check().await?;
            let mut state = self.server.state.lock();
            if before.lease.metadata.resource_version != Some(state.version.to_string()) {
                return Err(failure(409, "Conflict"));
            }
            Ok(self.write(&mut state, record))
        }
        .boxed()
    }
}

struct Candidate {
    guard: Arc<Mutex<Option<LeaderGuard>>>,
    transitions: Arc<Mutex<Vec<Transition>>>,
    stop: CancellationToken,
    health: ElectionHealth,
    task: tokio::task::JoinHandle<Outcome>,
}

impl Candidate {
    fn leads(&self) -> bool {
        self.guard.lock().as_ref().is_some_and(LeaderGuard::is_leader)
    }

    async fn until_leading(&self) {
        while !self.leads() {
            sleep(Duration::from_millis(100)).await;
        }
    }
}

/// A wall clock that moves with the virtual time.
fn virtual_clock() -> machinery::Clock {
    let began = Instant::now();
    machinery::Clock::from_fn(move || {
        let elapsed = jiff::SignedDuration::try_from(began.elapsed()).unwrap();
        jiff::Timestamp::from_second(1_700_000_000).unwrap().checked_add(elapsed).unwrap()
    })
}

fn run_with(lock: Connection, config: ElectionConfig, wind_down: Duration) -> Candidate {
    let guard: Arc<Mutex<Option<LeaderGuard>>> = Arc::default();
    let transitions: Arc<Mutex<Vec<Transition>>> = Arc::default();
    let (g, t) = (guard.clone(), transitions.clone());
    let elector = Elector::new(Arc::new(lock), config).unwrap();
    let elector = elector.with_clock(virtual_clock()).on_transition(move |tr| t.lock().push(tr.clone()));
    let health = elector.health();
    let stop = CancellationToken::new();
    let lead = move |guard: LeaderGuard| async move {
        *g.lock() = Some(guard.clone());
        guard.lost().await;
        sleep(wind_down).await;
    };
    let task = tokio::spawn(elector.run(lead, stop.clone()));
    Candidate { guard, transitions, stop, health, task }
}

fn run(lock: Connection, identity: &str) -> Candidate {
    run_with(lock, ElectionConfig::new(identity), Duration::ZERO)
}

#[test]
fn le_01_defaults_and_limits() {
    let config = ElectionConfig::new("a");
    assert_eq!(
        (config.lease_duration.as_secs(), config.renew_deadline.as_secs(), config.retry_period.as_secs()),
        (15, 10, 2)
    );
    let lock = || Arc::new(Server::default().candidate());
    let check = |config: ElectionConfig| Elector::new(lock(), config).err();
    assert_eq!(check(ElectionConfig::new("")), Some(InvalidElection::NoIdentity));
    let short = ElectionConfig { lease_duration: Duration::from_secs(10), ..ElectionConfig::new("a") };
    assert_eq!(check(short), Some(InvalidElection::LeaseTooShort));
    let tight = ElectionConfig { retry_period: Duration::from_secs(9), ..ElectionConfig::new("a") };
    assert_eq!(check(tight), Some(InvalidElection::DeadlineTooShort));
}

#[test]
fn le_02_the_record_and_the_spec_of_a_lease_are_the_same() {
    let record = LeaseRecord {
        holder: "a".into(),
        duration_seconds: 15,
        acquired: Some(jiff::Timestamp::UNIX_EPOCH),
        renewed: Some(jiff::Timestamp::UNIX_EPOCH),
        transitions: 3,
        strategy: Some("OldestEmulationVersion".into()),
        preferred_holder: Some("b".into()),
    };
    let spec = record.to_spec();
    let json = serde_json::to_value(&spec).unwrap();
    assert_eq!(json["renewTime"], "1970-01-01T00:00:00.000000Z");
    assert_eq!(
        (&json["holderIdentity"], &json["leaseDurationSeconds"], &json["leaseTransitions"]),
        (&"a".into(), &15.into(), &3.into())
    );
    assert_eq!(LeaseRecord::from_spec(&spec), record);
}

#[tokio::test(start_paused = true)]
async fn le_03_create_renew_and_take_over() {
    let server = Server::default();
    let lock = server.candidate();
    let first = run(lock.clone(), "one");
    first.until_leading().await;
    let created = server.record();
    assert_eq!((created.transitions, created.acquired), (0, created.renewed));
    assert_eq!(created.acquired.map(|at| at.as_second()), Some(1_700_000_000), "by the clock of the candidate");
    sleep(Duration::from_secs(5)).await;
    let renewed = server.record();
    assert_eq!((renewed.transitions, renewed.acquired), (0, created.acquired), "a renewal keeps them");
    assert_eq!(renewed.renewed.map(|at| at.as_second()), Some(1_700_000_004), "the second renewal after 2 s each");
    *lock.cut.lock() = true;
    let second = run(server.candidate(), "two");
    second.until_leading().await;
    let taken = server.record();
    assert_eq!((taken.holder.as_str(), taken.transitions), ("two", 1));
    assert_ne!(taken.acquired, created.acquired);
    assert_eq!(taken.acquired, taken.renewed);
}

#[tokio::test(start_paused = true)]
async fn le_04_times_in_the_lease_are_never_compared_with_the_clock() {
    let server = Server::default();
    // A holder whose clock is years ahead, and who is gone.
    let far = machinery::Clock::system().now().checked_add(jiff::SignedDuration::from_hours(24 * 3650)).unwrap();
    let record =
        LeaseRecord { holder: "ghost".into(), duration_seconds: 15, renewed: Some(far), ..LeaseRecord::default() };
    *server.state.lock() = ServerState { record: Some(record), version: 1, ..ServerState::default() };
    let began = Instant::now();
    let candidate = run(server.candidate(), "one");
    candidate.until_leading().await;
    let waited = began.elapsed().as_secs();
    assert!((15..=20).contains(&waited), "{waited} s");
}

#[tokio::test(start_paused = true)]
async fn le_05_an_empty_holder_is_not_waited_for() {
    let server = Server::default();
    let record = LeaseRecord { duration_seconds: 15, ..LeaseRecord::default() };
    *server.state.lock() = ServerState { record: Some(record), version: 1, ..ServerState::default() };
    let began = Instant::now();
    run(server.candidate(), "one").until_leading().await;
    assert!(began.elapsed() < Duration::from_secs(1));
}

#[tokio::test(start_paused = true)]
async fn le_06_a_leader_renews_every_period_and_gives_up_at_the_deadline() {
    let server = Server::default();
    let lock = server.candidate();
    let leader = run(lock.clone(), "one");
    leader.until_leading().await;
    sleep(Duration::from_secs(9)).await;
    let writes = server.writes();
    for pair in writes.windows(2) {
        assert_eq!((pair[1].0 - pair[0].0).as_secs(), 2);
    }
    *lock.cut.lock() = true;
    let last_good = server.writes().last().unwrap().0;
    assert_eq!(leader.task.await.unwrap(), Outcome::Lost);
    assert_eq!((Instant::now() - last_good).as_secs(), 10);
}

#[tokio::test(start_paused = true)]
async fn le_06_a_candidate_tries_again_after_one_to_two_periods_and_a_bit() {
    let server = Server::default();
    let record = LeaseRecord { holder: "other".into(), duration_seconds: 36_000, ..LeaseRecord::default() };
    *server.state.lock() = ServerState { record: Some(record), version: 1, ..ServerState::default() };
    let candidate = run(server.candidate(), "one");
    sleep(Duration::from_secs(1000)).await;
    assert!(!candidate.leads());
    let at = server.state.lock().got_at.clone();
    let gaps: Vec<f64> = at.windows(2).map(|pair| (pair[1] - pair[0]).as_secs_f64()).collect();
    assert!(gaps.len() > 200 && gaps.iter().all(|gap| (2.0..4.41).contains(gap)), "{gaps:?}");
    let spread = |from: f64, to: f64| gaps.iter().any(|gap| (from..to).contains(gap));
    assert!(spread(2.0, 2.6) && spread(3.8, 4.41), "spread over the whole range: {gaps:?}");
}

#[tokio::test(start_paused = true)]
async fn le_07_a_renewal_needs_no_read_unless_it_fails() {
    let server = Server::default();
    let leader = run(server.candidate(), "one");
    leader.until_leading().await;
    sleep(Duration::from_secs(10)).await;
    assert_eq!(server.state.lock().gets, 1, "only to acquire");
    server.state.lock().version += 1; // a write by another client
    sleep(Duration::from_secs(4)).await;
    assert!(leader.leads());
    assert_eq!((server.state.lock().gets, leader.health.slow_renewals()), (2, 1));
}

#[tokio::test(start_paused = true)]
async fn le_08_of_two_who_try_at_once_one_leads() {
    let server = Server::default();
    let (one, two) = (run(server.candidate(), "one"), run(server.candidate(), "two"));
    sleep(Duration::from_secs(60)).await;
    assert!(one.leads() ^ two.leads());
    assert_eq!(server.record().transitions, 0);
}

#[tokio::test(start_paused = true)]
async fn le_09_transitions_are_reported_and_the_end_always() {
    let server = Server::default();
    let one = run(server.candidate(), "one");
    one.until_leading().await;
    let two = run(server.candidate(), "two");
    sleep(Duration::from_secs(10)).await;
    two.stop.cancel();
    assert_eq!(two.task.await.unwrap(), Outcome::Stopped);
    assert_eq!(
        *two.transitions.lock(),
        [Transition::NewLeader("one".into()), Transition::StoppedLeading],
        "although it never led"
    );
    one.stop.cancel();
    one.task.await.unwrap();
    let transitions = one.transitions.lock().clone();
    assert_eq!(
        transitions,
        [Transition::NewLeader("one".into()), Transition::BecameLeader, Transition::StoppedLeading]
    );
}

#[tokio::test(start_paused = true)]
async fn le_10_a_stopped_leader_releases_and_the_next_need_not_wait() {
    let server = Server::default();
    let one = run(server.candidate(), "one");
    one.until_leading().await;
    one.stop.cancel();
    assert_eq!(one.task.await.unwrap(), Outcome::Stopped);
    let record = server.record();
    assert_eq!((record.holder.as_str(), record.duration_seconds, record.transitions), ("", 1, 0));
    let began = Instant::now();
    run(server.candidate(), "two").until_leading().await;
    assert!(began.elapsed() < Duration::from_secs(1));
}

#[test]
fn le_12_the_messages_of_the_events() {
    assert_eq!(Transition::BecameLeader.message("x").as_deref(), Some("x became leader"));
    assert_eq!(Transition::StoppedLeading.message("x").as_deref(), Some("x stopped leading"));
}

#[tokio::test(start_paused = true)]
async fn le_13_the_lease_is_released_only_after_the_work_has_ended() {
    let server = Server::default();
    let one = run_with(server.candidate(), ElectionConfig::new("one"), Duration::from_secs(5));
    one.until_leading().await;
    one.stop.cancel();
    sleep(Duration::from_secs(4)).await;
    assert_eq!(server.record().holder, "one", "the work is still winding down");
    one.task.await.unwrap();
    assert_eq!(server.record().holder, "");
}

#[tokio::test(start_paused = true)]
async fn le_13_work_that_does_not_end_is_cut_off_and_the_lease_is_left_to_expire() {
    let server = Server::default();
    let one = run_with(server.candidate(), ElectionConfig::new("one"), Duration::from_secs(3600));
    one.until_leading().await;
    let asked = Instant::now();
    one.stop.cancel();
    one.task.await.unwrap();
    assert!(asked.elapsed() <= Duration::from_secs(15));
    assert_eq!(server.record().holder, "one");
}

#[tokio::test(start_paused = true)]
async fn le_13_the_guard_judges_by_the_clock_even_if_a_renewal_hangs() {
    let server = Server::default();
    let lock = server.candidate();
    let one = run(lock.clone(), "one");
    one.until_leading().await;
    *lock.hang.lock() = true;
    let last_good = server.writes().last().unwrap().0;
    while one.leads() {
        sleep(Duration::from_millis(10)).await;
    }
    assert!(last_good.elapsed() <= Duration::from_millis(10_020));
    assert_eq!(one.task.await.unwrap(), Outcome::Lost);
}

#[tokio::test(start_paused = true)]
async fn le_13_dropping_the_election_ends_the_work() {
    let server = Server::default();
    let one = run_with(server.candidate(), ElectionConfig::new("one"), Duration::from_secs(3600));
    one.until_leading().await;
    one.task.abort();
    sleep(Duration::from_millis(1)).await;
    assert!(!one.leads());
    assert_eq!(Arc::strong_count(&one.guard), 1, "the work is gone and with it its hold on the guard");
}

#[tokio::test(start_paused = true)]
async fn script_19_a_partitioned_leader_stops_before_another_begins() {
    let server = Server::default();
    let lock = server.candidate();
    let one = run(lock.clone(), "one");
    one.until_leading().await;
    let two = run(server.candidate(), "two");
    sleep(Duration::from_secs(20)).await;
    *lock.cut.lock() = true;
    let last_good = server.writes().last().unwrap().0;
    let mut one_stopped = None;
    while !two.leads() {
        if one_stopped.is_none() && !one.leads() {
            one_stopped = Some(Instant::now());
        }
        assert!(!(one.leads() && two.leads()));
        sleep(Duration::from_millis(50)).await;
    }
    let stopped_after = one_stopped.unwrap() - last_good;
    assert!(stopped_after <= Duration::from_millis(10_100), "{stopped_after:?}");
    assert!(last_good.elapsed() >= Duration::from_secs(15), "the other waits for the whole lease");
}
