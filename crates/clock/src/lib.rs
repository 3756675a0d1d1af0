//! The time that a world believes in: reading it, waiting for it, stopping and advancing it.
//!
//! A [`WorldClock`] is the machine's clock unless it is made adjustable. An adjustable clock can be stopped, run at another rate, or
//! be moved forward; a task that waits for a moment of it wakes up when that moment comes, however it comes. Network timeouts and
//! certificates do not belong here: they follow the machine's clock.
//!
//! Moments are values of [`tokio::time::Instant`] on the time line of the world. As long as the clock was never adjusted they are
//! the machine's own, so tests that pause tokio's clock keep working.

mod adjustable;
mod interval;
mod waiting;

use std::sync::Arc;
use std::time::Duration;

pub use adjustable::{Advance, Backwards, Mode, Stop};
use futures::future::BoxFuture;
pub use interval::Interval;
use jiff::Timestamp;
use machinery::Clock;
use tokio::time::Instant;

use adjustable::Adjustable;

/// The clock of a world. Cheap to clone; all copies show the same time.
#[derive(Clone, Debug, Default)]
pub struct WorldClock(Option<Named>);

/// An adjustable clock with the name of its user.
#[derive(Clone, Debug)]
struct Named {
    clock: Adjustable,
    who: Arc<str>,
}

impl WorldClock {
    /// The clock of this machine, which cannot be adjusted. It costs no more than reading the machine's clock.
    #[must_use]
    pub fn system() -> Self {
        WorldClock(None)
    }

    /// A clock that shows the machine's time until it is adjusted.
    #[must_use]
    pub fn adjustable() -> Self {
        WorldClock(Some(Named { clock: Adjustable::new(Clock::system().now()), who: Arc::from("") }))
    }

    /// This clock for a user by this name, which those who advance it are shown.
    #[must_use]
    pub fn named(&self, who: &str) -> Self {
        WorldClock(self.0.as_ref().map(|named| Named { clock: named.clock.clone(), who: who.into() }))
    }

    fn adjusted(&self) -> Option<&Adjustable> {
        self.0.as_ref().map(|named| &named.clock)
    }

    /// The date and time now.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        match self.adjusted() {
            None => Clock::system().now(),
            Some(clock) => clock.reading().time,
        }
    }

    /// The moment now. It never goes back.
    #[must_use]
    pub fn instant(&self) -> Instant {
        match self.adjusted() {
            None => Instant::now(),
            Some(clock) => clock.reading().moment,
        }
    }

    /// This clock for those who only read the date and time.
    #[must_use]
    pub fn reading(&self) -> Clock {
        match self.adjusted() {
            None => Clock::system(),
            Some(clock) => {
                let clock = clock.clone();
                Clock::from_fn(move || clock.reading().time)
            }
        }
    }

    /// Waits until `moment`.
    pub async fn sleep_until(&self, moment: Instant) {
        match &self.0 {
            None => tokio::time::sleep_until(moment).await,
            Some(Named { clock, who }) => clock.wait_until(moment, who).await,
        }
    }

    /// Waits for `duration` of this clock's time.
    pub async fn sleep(&self, duration: Duration) {
        // A duration beyond what an instant can hold means a wait without end.
        match self.instant().checked_add(duration) {
            Some(moment) => self.sleep_until(moment).await,
            None => std::future::pending().await,
        }
    }

    /// How long the machine takes until this clock shows `moment`. None if it never does by itself.
    #[must_use]
    pub fn wait_for(&self, moment: Instant) -> Option<Duration> {
        match self.adjusted() {
            None => Some(moment.saturating_duration_since(Instant::now())),
            Some(clock) => clock.wait_for(moment),
        }
    }

    /// Ticks at once, and then each time that `period` has passed since the last tick.
    #[must_use]
    pub fn interval(&self, period: Duration) -> Interval {
        Interval::new(self.clone(), period)
    }

    /// How the clock runs now.
    #[must_use]
    pub fn mode(&self) -> Mode {
        self.adjusted().map_or(Mode::Real, Adjustable::mode)
    }

    /// The next moment that a task waits for.
    #[must_use]
    pub fn next_due(&self) -> Option<Stop> {
        self.adjusted()?.next_due()
    }

    /// Changes how the clock runs; with `now`, also the time that it shows. A clock of the machine stays as it is.
    pub fn set(&self, mode: Mode, now: Option<Timestamp>) -> Result<(), Backwards> {
        self.adjusted().map_or(Ok(()), |clock| clock.set(mode, now))
    }

    /// Moves a stopped clock forward. It stops at each moment that a task waits for, until that task has begun and what it
    /// began has ended.
    pub async fn advance(&self, by: Duration, consequences: &dyn Consequences) -> Advance {
        match self.adjusted() {
            None => Advance::default(),
            Some(clock) => clock.advance(by, consequences).await,
        }
    }

    /// How long it takes by this clock until the next moment that a task waits for.
    #[must_use]
    pub fn until_next(&self) -> Option<Duration> {
        self.adjusted()?.until_next()
    }
}

/// What follows when a moment comes: a wait ends, its task writes, others see that and write in turn.
pub trait Consequences: Send + Sync {
    /// Returns when nothing more follows, or gives up after some time.
    fn ended(&self) -> BoxFuture<'_, ()>;
}

/// For those who only wait and never write.
impl Consequences for () {
    fn ended(&self) -> BoxFuture<'_, ()> {
        Box::pin(std::future::ready(()))
    }
}
