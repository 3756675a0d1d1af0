//! The seats of one priority level, and the requests that wait for them.
//!
//! A level has its own seats, and may borrow some that other levels lend. A request that finds none waits in the queue of its
//! user. Freed seats go to users in turn, by the seats that each has had: one that sends many requests, or expensive ones,
//! waits for itself and not others for it.
//!
//! ```text
//!   alice  [10 10 10 10]        seats of the level: 24, of which 20 are alice's
//!   bob    [1]            ◄──── next: bob has had none
//! ```

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::hash::BuildHasher as _;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use foldhash::quality::RandomState;
use http::HeaderValue;
use parking_lot::Mutex;
use tokio::sync::oneshot;

use super::dump::CountFigures;

/// Requests that wait in one level; more are refused.
pub(crate) const WAITING_MAX: usize = 1024;

/// Seats that levels lend to each other.
#[derive(Debug, Default)]
pub(crate) struct Pool {
    max: AtomicUsize,
    taken: AtomicUsize,
}

impl Pool {
    pub(super) fn set_max(&self, max: usize) {
        self.max.store(max, Ordering::Release);
    }

    fn max(&self) -> usize {
        self.max.load(Ordering::Acquire)
    }

    fn take(&self) -> bool {
        let max = self.max();
        self.taken.fetch_update(Ordering::AcqRel, Ordering::Acquire, |taken| (taken < max).then_some(taken + 1)).is_ok()
    }

    fn release(&self) {
        self.taken.fetch_sub(1, Ordering::AcqRel);
    }
}

/// The bounds of a level.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Bounds {
    /// Seats of its own.
    pub(crate) seats: usize,
    /// Longest queue of one user; none refuses what finds no seat.
    pub(crate) queue_length: Option<usize>,
    /// Requests of more than one seat at the same time, of all and of one user: they cost processor time.
    pub(crate) wide_max: usize,
    pub(crate) wide_per_user_max: usize,
    /// A request that has its seats for longer keeps only one: it waits for its client.
    pub(crate) wide_time: Duration,
}

/// Why a request gets no seat. The texts are labels of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// The level has no queue.
    NoQueue,
    QueueFull,
    TimeOut,
}

/// Counts of one level.
#[derive(Debug, Default)]
pub(super) struct Counts {
    pub(super) dispatched: AtomicU64,
    pub(super) refused: [AtomicU64; 3],
    /// Requests whose clients left while they waited.
    cancelled: AtomicU64,
}

/// One priority level.
#[derive(Debug)]
pub(crate) struct Level {
    pub(super) name: String,
    pub(super) counts: Counts,
    pool: Arc<Pool>,
    hasher: RandomState,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    bounds: Bounds,
    /// Own seats in use.
    own: usize,
    /// Borrowed seats in use.
    borrowed: usize,
    /// Requests of more than one seat.
    wide: usize,
    /// Users that have seats or wait, by the hash of their names. Users with the same hash share.
    users: HashMap<u64, UserState, foldhash::fast::RandomState>,
    /// Users that wait, by the seats that they have had, then by the arrival of their first request.
    order: BTreeMap<(u64, u64), u64>,
    waiting: usize,
    /// The seats that the last user in turn had had: one that comes anew begins here.
    turn: u64,
    tickets: u64,
}

#[derive(Debug, Default)]
struct UserState {
    seats: usize,
    /// Requests that have these seats.
    requests: usize,
    wide: usize,
    /// Seats that the user has had, by which its turn is decided.
    had: u64,
    waiting: VecDeque<Waiter>,
}

impl UserState {
    fn is_idle(&self) -> bool {
        self.seats == 0 && self.waiting.is_empty()
    }
}

#[derive(Debug)]
struct Waiter {
    ticket: u64,
    request: WaitingRequest,
    granted: oneshot::Sender<Grant>,
}

/// A request that waits.
#[derive(Clone, Debug)]
pub(super) struct WaitingRequest {
    pub(super) user: Box<str>,
    /// Of its flow schema.
    pub(super) schema_uid: HeaderValue,
    pub(super) arrived: Instant,
    pub(super) width: usize,
}

/// The queue of one user.
pub(super) struct QueueFigures {
    pub(super) requests: usize,
    pub(super) seats: usize,
    pub(super) had: u64,
    pub(super) waiting: Vec<WaitingRequest>,
}

/// Seats that were taken for a request.
#[derive(Clone, Copy, Debug)]
struct Grant {
    user: u64,
    own: usize,
    borrowed: usize,
    is_wide: bool,
    /// One; none for seats that a request gives up before it ends.
    requests: usize,
}

/// What became of a request that entered a level.
enum Entered {
    Seated(Grant),
    Queued(u64, oneshot::Receiver<Grant>),
}

/// Why there is no seat now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lack {
    /// The user has its share.
    Share,
    /// Too many requests have more than one seat.
    Wide,
    Seats,
}

/// One or more seats; released when dropped.
#[derive(Debug)]
pub(crate) struct Seat {
    level: Arc<Level>,
    held: Held,
}

#[derive(Debug)]
enum Held {
    One(Grant),
    /// Shared with the timer that gives up all but one.
    Many(Arc<Mutex<Grant>>),
}

impl Drop for Seat {
    fn drop(&mut self) {
        let grant = match &self.held {
            Held::One(grant) => *grant,
            Held::Many(grant) => *grant.lock(),
        };
        self.level.release(grant);
    }
}

impl Level {
    pub(super) fn new(name: &str, pool: &Arc<Pool>) -> Self {
        Level {
            name: name.to_owned(),
            counts: Counts::default(),
            pool: Arc::clone(pool),
            hasher: RandomState::default(),
            state: Mutex::default(),
        }
    }

    /// Changes the bounds. Requests that have seats keep them.
    pub(super) fn set_bounds(&self, bounds: Bounds) {
        self.state.lock().bounds = bounds;
        self.dispatch();
    }

    /// Own seats, seats in use, and requests that wait.
    pub(super) fn figures(&self) -> (usize, usize, usize) {
        let state = self.state.lock();
        (state.bounds.seats, state.own + state.borrowed, state.waiting)
    }

    /// The queues of users that have seats or wait, in no order that lasts.
    pub(super) fn queues(&self) -> Vec<QueueFigures> {
        let state = self.state.lock();
        let queues = state.users.values().map(|user| QueueFigures {
            requests: user.requests,
            seats: user.seats,
            had: user.had,
            waiting: user.waiting.iter().map(|waiter| waiter.request.clone()).collect(),
        });
        queues.collect()
    }

    pub(super) fn figures_of_counts(&self) -> CountFigures {
        let number = |count: &AtomicU64| count.load(Ordering::Relaxed);
        CountFigures {
            dispatched: number(&self.counts.dispatched),
            refused: [0, 1, 2].map(|at: usize| number(&self.counts.refused[at])),
            cancelled: number(&self.counts.cancelled),
        }
    }

    /// Takes seats for a request of a user and flow schema; waits for them at most this long.
    pub(crate) async fn acquire(
        self: &Arc<Self>,
        (name, schema_uid): (&str, &HeaderValue),
        width: usize,
        wait: Duration,
    ) -> Result<Seat, Refusal> {
        let user = self.hasher.hash_one(name);
        let request = || {
            let (user, schema_uid, arrived) = (name.into(), schema_uid.clone(), Instant::now());
            WaitingRequest { user, schema_uid, arrived, width }
        };
        let seat = match self.enter(user, width, request) {
            Ok(Entered::Seated(grant)) => return Ok(self.seat(grant)),
            Ok(Entered::Queued(ticket, granted)) => {
                // Those before it may be above their share, so that it need not wait for them.
                self.dispatch();
                self.wait(user, ticket, granted, wait).await
            }
            Err(refusal) => Err(refusal),
        };
        seat.inspect_err(|refusal| {
            self.counts.refused[*refusal as usize].fetch_add(1, Ordering::Relaxed);
        })
    }

    fn seat(self: &Arc<Self>, grant: Grant) -> Seat {
        self.counts.dispatched.fetch_add(1, Ordering::Relaxed);
        if !grant.is_wide {
            return Seat { level: Arc::clone(self), held: Held::One(grant) };
        }
        let shared = Arc::new(Mutex::new(grant));
        let (level, held, time) = (Arc::downgrade(self), Arc::downgrade(&shared), self.state.lock().bounds.wide_time);
        tokio::spawn(async move {
            tokio::time::sleep(time).await;
            if let (Some(level), Some(held)) = (level.upgrade(), held.upgrade()) {
                level.narrow(&held);
            }
        });
        Seat { level: Arc::clone(self), held: Held::Many(shared) }
    }

    /// Gives up all seats but one.
    fn narrow(&self, held: &Mutex<Grant>) {
        {
            let mut grant = held.lock();
            let given_up = Grant { own: grant.own - 1, requests: 0, ..*grant };
            (grant.own, grant.is_wide) = (1, false);
            self.state.lock().release(given_up, &self.pool);
        }
        self.dispatch();
    }

    /// Takes seats at once, or a place in the queue of the user.
    fn enter(&self, user: u64, width: usize, request: impl FnOnce() -> WaitingRequest) -> Result<Entered, Refusal> {
        let mut state = self.state.lock();
        if state.waiting == 0
            && let Ok(grant) = state.take(user, width, true, &self.pool)
        {
            return Ok(Entered::Seated(grant));
        }
        let length_max = state.bounds.queue_length.ok_or(Refusal::NoQueue)?;
        let (turn, ticket, is_full) = (state.turn, state.tickets, state.waiting >= WAITING_MAX);
        let entry = state.users.entry(user).or_default();
        if is_full || entry.waiting.len() >= length_max.max(1) {
            state.forget_idle(user);
            return Err(Refusal::QueueFull);
        }
        let (granted, receiver) = oneshot::channel();
        entry.waiting.push_back(Waiter { ticket, request: request(), granted });
        if entry.waiting.len() == 1 {
            entry.had = entry.had.max(turn);
            let key = (entry.had, ticket);
            state.order.insert(key, user);
        }
        state.tickets += 1;
        state.waiting += 1;
        Ok(Entered::Queued(ticket, receiver))
    }

    async fn wait(
        self: &Arc<Self>,
        user: u64,
        ticket: u64,
        mut granted: oneshot::Receiver<Grant>,
        wait: Duration,
    ) -> Result<Seat, Refusal> {
        // A request whose client disconnects is dropped here.
        let mut place = QueuePlace { level: self, user, ticket, granted: &mut granted, outcome: Waited::Left };
        match tokio::time::timeout(wait, &mut *place.granted).await {
            Ok(Ok(grant)) => {
                place.outcome = Waited::Taken;
                Ok(self.seat(grant))
            }
            _ => {
                place.outcome = Waited::TooLong;
                Err(Refusal::TimeOut)
            }
        }
    }

    fn release(&self, grant: Grant) {
        let is_waited_for = {
            let mut state = self.state.lock();
            state.release(grant, &self.pool);
            state.waiting > 0
        };
        if is_waited_for {
            self.dispatch();
        }
    }

    /// Gives free seats to requests that wait.
    fn dispatch(&self) {
        loop {
            let granted = {
                let mut state = self.state.lock();
                if state.waiting == 0 {
                    return;
                }
                state.next(&self.pool)
            };
            let Some((waiter, grant)) = granted else { return };
            // Sent without the lock. One that is no longer waited for is released at once.
            if waiter.granted.send(grant).is_err() {
                self.state.lock().release(grant, &self.pool);
            }
        }
    }

    #[cfg(test)]
    fn waiting(&self) -> usize {
        self.state.lock().waiting
    }
}

impl State {
    /// Takes seats for a user, if there are any for it.
    fn take(&mut self, user: u64, width: usize, may_use_own: bool, pool: &Pool) -> Result<Grant, Lack> {
        let seats = self.bounds.seats.max(1);
        let width = width.clamp(1, (seats / 4).max(1));
        let entry = self.users.entry(user);
        let (held, held_wide) = match &entry {
            Entry::Occupied(known) => (known.get().seats, known.get().wide),
            Entry::Vacant(_) => (0, 0),
        };
        // One user has at most half. Only requests of one seat may borrow, so expensive ones are bounded by the level itself.
        let share = if width > 1 { seats / 2 } else { (seats + pool.max()) / 2 };
        if held + width > share.max(width) {
            return Err(Lack::Share);
        }
        let is_wide = width > 1;
        if is_wide {
            if held_wide >= self.bounds.wide_per_user_max.max(1) {
                return Err(Lack::Share);
            }
            if self.wide >= self.bounds.wide_max.max(1) {
                return Err(Lack::Wide);
            }
        }
        let grant = if may_use_own && self.own + width <= seats {
            Grant { user, own: width, borrowed: 0, is_wide, requests: 1 }
        } else if width == 1 && pool.take() {
            Grant { user, own: 0, borrowed: 1, is_wide, requests: 1 }
        } else {
            return Err(Lack::Seats);
        };
        self.own += grant.own;
        self.borrowed += grant.borrowed;
        self.wide += usize::from(is_wide);
        let entry = entry.or_default();
        entry.seats += width;
        entry.requests += 1;
        entry.wide += usize::from(is_wide);
        entry.had = entry.had.max(self.turn) + width as u64;
        Ok(grant)
    }

    fn release(&mut self, grant: Grant, pool: &Pool) {
        self.own -= grant.own;
        self.borrowed -= grant.borrowed;
        self.wide -= usize::from(grant.is_wide);
        if grant.borrowed > 0 {
            pool.release();
        }
        if let Entry::Occupied(mut known) = self.users.entry(grant.user) {
            let user = known.get_mut();
            user.seats -= grant.own + grant.borrowed;
            user.requests -= grant.requests;
            user.wide -= usize::from(grant.is_wide);
            if user.is_idle() {
                known.remove();
            }
        }
    }

    /// Takes the request whose turn it is from its queue, with its seats.
    fn next(&mut self, pool: &Pool) -> Option<(Waiter, Grant)> {
        // Those after one that waits for own seats may only borrow, so that an expensive request gets its seats in the end.
        let mut may_use_own = true;
        let mut after = Bound::Unbounded;
        while let Some((&key, &user)) = self.order.range((after, Bound::Unbounded)).next() {
            after = Bound::Excluded(key);
            let first = self.users.get(&user).and_then(|user| user.waiting.front());
            let Some(width) = first.map(|first| first.request.width) else { continue };
            match self.take(user, width, may_use_own, pool) {
                // A user that has its share does not hold up others, and lists do not hold up other requests.
                Err(Lack::Share | Lack::Wide) => {}
                Err(Lack::Seats) => may_use_own = false,
                Ok(grant) => {
                    self.order.remove(&key);
                    self.turn = self.turn.max(key.0);
                    self.waiting -= 1;
                    let entry = self.users.get_mut(&user)?;
                    let waiter = entry.waiting.pop_front()?;
                    if let Some(next) = entry.waiting.front() {
                        let key = (entry.had, next.ticket);
                        self.order.insert(key, user);
                    }
                    return Some((waiter, grant));
                }
            }
        }
        None
    }

    /// Takes a request that no longer waits from its queue.
    fn leave(&mut self, user: u64, ticket: u64) {
        let Some(entry) = self.users.get_mut(&user) else { return };
        let Some(at) = entry.waiting.iter().position(|waiter| waiter.ticket == ticket) else { return };
        entry.waiting.remove(at);
        self.waiting -= 1;
        if at == 0 {
            // The turn of a user is kept under its first request.
            let key = self.order.iter().find(|(key, _)| key.1 == ticket).map(|(key, _)| *key);
            if let Some(key) = key {
                self.order.remove(&key);
                if let Some(next) = entry.waiting.front() {
                    let key = (key.0, next.ticket);
                    self.order.insert(key, user);
                }
            }
        }
        self.forget_idle(user);
    }

    fn forget_idle(&mut self, user: u64) {
        if self.users.get(&user).is_some_and(UserState::is_idle) {
            self.users.remove(&user);
        }
    }
}

/// A place in a queue; given up when dropped.
struct QueuePlace<'a> {
    level: &'a Arc<Level>,
    user: u64,
    ticket: u64,
    granted: &'a mut oneshot::Receiver<Grant>,
    outcome: Waited,
}

/// How a wait for seats ended.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Waited {
    Taken,
    TooLong,
    /// The client left.
    Left,
}

impl Drop for QueuePlace<'_> {
    fn drop(&mut self) {
        match self.outcome {
            Waited::Taken => return,
            Waited::TooLong => {}
            Waited::Left => {
                self.level.counts.cancelled.fetch_add(1, Ordering::Relaxed);
            }
        }
        self.level.state.lock().leave(self.user, self.ticket);
        // Seats that came in the last moment.
        self.granted.close();
        if let Ok(grant) = self.granted.try_recv() {
            self.level.release(grant);
        }
        self.level.dispatch();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt as _;
    use std::future::Future;
    use std::pin::Pin;

    const WAIT: Duration = Duration::from_secs(15);
    static SCHEMA: HeaderValue = HeaderValue::from_static("schema");

    fn level(seats: usize, lent: usize) -> Arc<Level> {
        let pool = Arc::<Pool>::default();
        pool.set_max(lent);
        let level = Arc::new(Level::new("test", &pool));
        level.set_bounds(bounds(seats));
        level
    }

    fn bounds(seats: usize) -> Bounds {
        Bounds { seats, queue_length: Some(50), wide_max: 4, wide_per_user_max: 2, wide_time: WAIT }
    }

    type Asking = Pin<Box<dyn Future<Output = Result<Seat, Refusal>> + Send>>;

    /// A request that was polled once: it has its seats, or its place in the queue.
    fn ask(level: &Arc<Level>, user: &'static str, width: usize) -> (Asking, Option<Seat>) {
        let level = Arc::clone(level);
        let mut asking: Asking = Box::pin(async move { level.acquire((user, &SCHEMA), width, WAIT).await });
        let seat = asking.as_mut().now_or_never().map(|seat| seat.expect("a seat"));
        (asking, seat)
    }

    #[tokio::test]
    async fn apf_7_a_get_is_served_while_another_client_floods_with_expensive_lists() {
        let level = level(49, 0);
        let mut lists: Vec<(Asking, Option<Seat>)> = (0..40).map(|_| ask(&level, "alice", 10)).collect();
        let running = lists.iter().filter(|(_, seat)| seat.is_some()).count();
        assert_eq!((running, level.waiting()), (2, 38), "half of the seats are the most that one user has");
        // Whatever the number of lists that wait, bob's requests run at once.
        for _ in 0..20 {
            assert!(ask(&level, "bob", 1).1.is_some(), "a get does not wait behind lists of another user");
        }
        assert!(ask(&level, "bob", 10).1.is_some(), "nor does a list");
        // A list that ends makes room for the next of alice.
        drop(lists.remove(0));
        let next =
            lists.iter_mut().filter(|(_, seat)| seat.is_none()).find_map(|(asking, _)| asking.as_mut().now_or_never());
        assert!(next.is_some_and(|seat| seat.is_ok()));
    }

    #[tokio::test]
    async fn apf_10_queues_show_who_has_seats_and_who_waits() {
        let level = level(49, 0);
        let mut lists: Vec<(Asking, Option<Seat>)> = (0..5).map(|_| ask(&level, "alice", 10)).collect();
        let of_queue = |level: &Level| {
            let queues = level.queues();
            assert_eq!(queues.len(), 1);
            let widths: Vec<usize> = queues[0].waiting.iter().map(|request| request.width).collect();
            (queues[0].requests, queues[0].seats, widths)
        };
        assert_eq!(of_queue(&level), (2, 20, vec![10, 10, 10]));
        assert!(
            level.queues()[0].waiting.iter().all(|request| &*request.user == "alice" && request.schema_uid == SCHEMA)
        );
        drop(lists.pop());
        assert_eq!((of_queue(&level).2.len(), level.figures_of_counts().cancelled), (2, 1));
        drop(lists);
        assert!(level.queues().is_empty(), "users without requests are forgotten");
    }

    #[tokio::test]
    async fn apf_7_users_take_turns_by_the_seats_they_have_had() {
        let level = level(4, 0);
        let held: Vec<Option<Seat>> = (0..2).flat_map(|_| [ask(&level, "x", 1).1, ask(&level, "y", 1).1]).collect();
        assert!(held.iter().all(Option::is_some));
        let mut alice: VecDeque<Asking> = (0..6).map(|_| ask(&level, "alice", 1).0).collect();
        let mut bob: VecDeque<Asking> = (0..2).map(|_| ask(&level, "bob", 1).0).collect();
        assert_eq!(level.waiting(), 8);
        let mut served = Vec::new();
        drop(held);
        // Four seats are free now: two for each, though alice came first with all of hers.
        let mut seats = Vec::new();
        for (name, queue) in [("alice", &mut alice), ("bob", &mut bob)] {
            while let Some(seat) = queue.front_mut().and_then(|asking| asking.as_mut().now_or_never()) {
                seats.push(seat.unwrap());
                served.push(name);
                queue.pop_front();
            }
        }
        assert_eq!(served, ["alice", "alice", "bob", "bob"]);
        drop(seats);
        assert_eq!(level.waiting(), 2, "the rest of alice's but two, which have the seats of their share");
    }

    #[tokio::test]
    async fn apf_7_an_expensive_request_gets_its_seats_although_cheap_ones_keep_coming() {
        let level = level(40, 0);
        let mut cheap: VecDeque<Seat> = (0..35).map(|n| ask(&level, ["a", "b"][n % 2], 1).1.unwrap()).collect();
        let (mut list, none) = ask(&level, "carol", 10);
        assert!(none.is_none());
        // Each cheap one that ends is followed by another, which waits behind the list.
        let mut later = Vec::new();
        for _ in 0..5 {
            cheap.pop_front();
            later.push(ask(&level, "a", 1).0);
        }
        assert!(list.as_mut().now_or_never().is_some_and(|seat| seat.is_ok()));
    }

    #[tokio::test]
    async fn cheap_requests_borrow_what_other_levels_lend() {
        let pool = Arc::<Pool>::default();
        pool.set_max(10);
        let bounds = bounds(4);
        let (one, other) = (Arc::new(Level::new("one", &pool)), Arc::new(Level::new("other", &pool)));
        one.set_bounds(bounds);
        other.set_bounds(bounds);
        let users = ["a", "b", "c", "d"];
        let seats: Vec<Option<Seat>> = (0..16).map(|n| ask(&one, users[n % 4], 1).1).collect();
        assert_eq!(seats.iter().flatten().count(), 14, "four of its own and ten that are lent");
        let own: Vec<Option<Seat>> = (0..4).map(|n| ask(&other, users[n], 1).1).collect();
        assert!(own.iter().all(Option::is_some), "its own seats are never lent away");
        drop(seats);
        assert_eq!(pool.taken.load(Ordering::Relaxed), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn apf_8_waiting_is_bounded_by_time_and_number() {
        let level = level(1, 0);
        let held = ask(&level, "alice", 1).1.expect("a seat");
        let waiting = Arc::clone(&level);
        let refused = tokio::spawn(async move { waiting.acquire(("bob", &SCHEMA), 1, WAIT).await.map(|_| ()) });
        tokio::time::sleep(WAIT + Duration::from_millis(1)).await;
        assert_eq!(refused.await.unwrap(), Err(Refusal::TimeOut));
        assert_eq!(level.waiting(), 0);
        let queue: Vec<Asking> = (0..50).map(|_| ask(&level, "bob", 1).0).collect();
        assert_eq!(level.acquire(("bob", &SCHEMA), 1, WAIT).await.unwrap_err(), Refusal::QueueFull);
        assert!(ask(&level, "carol", 1).1.is_none(), "carol has a queue of her own");
        drop(queue);
        level.set_bounds(Bounds { queue_length: None, ..bounds(1) });
        assert_eq!(level.acquire(("bob", &SCHEMA), 1, WAIT).await.unwrap_err(), Refusal::NoQueue);
        let refused = level.counts.refused.iter().map(|count| count.load(Ordering::Relaxed)).collect::<Vec<_>>();
        assert_eq!(refused, [1, 1, 1]);
        drop(held);
        assert!(level.state.lock().users.is_empty());
    }

    #[tokio::test]
    async fn a_client_that_disconnects_leaves_the_queue_and_loses_no_seat() {
        let level = level(1, 0);
        let held = ask(&level, "alice", 1).1.expect("a seat");
        let (gone, _) = ask(&level, "bob", 1);
        let (mut next, _) = ask(&level, "carol", 1);
        drop(gone);
        assert_eq!(level.waiting(), 1);
        drop(held);
        let seat = next.as_mut().now_or_never().expect("its turn").expect("a seat");
        // Granted, and dropped before it was polled again.
        let (granted, _) = ask(&level, "dave", 1);
        drop(seat);
        drop(granted);
        assert!(ask(&level, "erin", 1).1.is_some(), "the seat is free again");
        assert_eq!(level.figures(), (1, 0, 0));
    }

    #[tokio::test]
    async fn apf_7_lists_of_many_users_are_bounded_together_and_hold_up_no_get() {
        let level = level(200, 0);
        let users = ["a", "b", "c", "d", "e", "f"];
        let lists: Vec<(Asking, Option<Seat>)> = users.map(|user| ask(&level, user, 10)).into();
        assert_eq!(lists.iter().filter(|(_, seat)| seat.is_some()).count(), 4);
        assert!(ask(&level, "g", 1).1.is_some());
        drop(lists);
        assert_eq!(level.figures(), (200, 0, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn apf_7_a_list_that_waits_for_its_client_keeps_one_seat() {
        let level = level(49, 0);
        let lists: Vec<(Asking, Option<Seat>)> = (0..3).map(|_| ask(&level, "alice", 10)).collect();
        assert_eq!(level.figures(), (49, 20, 1), "two lists are what one user may have");
        tokio::time::sleep(WAIT - Duration::from_millis(1)).await;
        assert_eq!(level.figures(), (49, 20, 1));
        tokio::time::sleep(Duration::from_millis(2)).await;
        assert_eq!(level.figures(), (49, 12, 0), "the third follows, with ten");
        drop(lists);
        assert_eq!(level.figures(), (49, 0, 0));
        assert!(level.state.lock().users.is_empty() && level.state.lock().wide == 0);
    }

    #[tokio::test]
    async fn expensive_requests_run_in_small_levels_too() {
        let level = level(1, 0);
        assert!(ask(&level, "alice", 10).1.is_some());
    }
}
