//! A clock that can be stopped, run at another rate, and be moved forward.

use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use machinery::Clock;
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::Consequences;
use crate::waiting::{Place, Waiting};

/// Time of the machine after which an advance stays where it is: a client that waits for it gives up before long.
const ADVANCE_WITHIN: Duration = Duration::from_secs(20);
/// Time of the machine within which a task that became due is expected to begin.
const BEGIN_WITHIN: Duration = Duration::from_secs(1);

/// How a clock runs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Mode {
    /// As the machine's clock.
    Real,
    /// Not at all, but for [`crate::WorldClock::advance`].
    Stopped,
    /// So many seconds for each second of the machine.
    Scaled(f64),
}

/// The clock would have to go back, which it never does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the clock shows {shown} and cannot be set back to {wanted}")]
pub struct Backwards {
    pub shown: Timestamp,
    pub wanted: Timestamp,
}

/// What an advance did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Advance {
    /// The moments on the way at which something was due, in their order.
    pub stops: Vec<Stop>,
    /// Whether everything that became due had begun when the advance ended.
    pub all_begun: bool,
    /// Whether the clock has moved all the way. Otherwise it stays at the last of the moments.
    pub arrived: bool,
}

/// A moment at which something was due.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stop {
    pub at: Timestamp,
    /// The name of the one who waited for it, or of the first of several.
    pub who: Arc<str>,
}

/// What a clock shows at one instant of the machine.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reading {
    pub(crate) time: Timestamp,
    pub(crate) moment: Instant,
}

#[derive(Clone, Debug)]
pub(crate) struct Adjustable(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    /// Counts the adjustments; those who wait look again after each.
    adjusted: watch::Sender<u64>,
    /// Counts the ends of waits; an advance waits for them.
    ended: watch::Sender<u64>,
}

#[derive(Debug)]
struct State {
    mode: Mode,
    /// What the clock showed when it was last adjusted, and when that was.
    shown: Reading,
    at: Instant,
    waiting: Waiting,
}

impl State {
    fn reading(&self) -> Reading {
        let passed = self.at.elapsed();
        let passed = match self.mode {
            Mode::Real => passed,
            Mode::Stopped => Duration::ZERO,
            Mode::Scaled(rate) => passed.mul_f64(rate),
        };
        later(self.shown, passed)
    }

    /// How long the machine takes until the clock shows `moment`. `None` if it never does by itself.
    fn wait(&self, moment: Instant) -> Option<Duration> {
        let missing = moment.saturating_duration_since(self.reading().moment);
        match self.mode {
            _ if missing.is_zero() => Some(Duration::ZERO),
            Mode::Real => Some(missing),
            Mode::Stopped => None,
            Mode::Scaled(rate) => Duration::try_from_secs_f64(missing.as_secs_f64() / rate).ok(),
        }
    }

    /// What the clock will show at `moment`.
    fn time_of(&self, moment: Instant) -> Timestamp {
        let reading = self.reading();
        later(reading, moment.saturating_duration_since(reading.moment)).time
    }

    fn show(&mut self, reading: Reading) {
        self.shown = reading;
        self.at = Instant::now();
    }
}

fn later(reading: Reading, by: Duration) -> Reading {
    let time = SignedDuration::try_from(by).ok().and_then(|by| reading.time.checked_add(by).ok());
    Reading { time: time.unwrap_or(Timestamp::MAX), moment: reading.moment + by }
}

impl Adjustable {
    pub(crate) fn new(time: Timestamp) -> Self {
        let at = Instant::now();
        let state = State { mode: Mode::Real, shown: Reading { time, moment: at }, at, waiting: Waiting::default() };
        Adjustable(Arc::new(Shared {
            state: Mutex::new(state),
            adjusted: watch::Sender::new(0),
            ended: watch::Sender::new(0),
        }))
    }

    pub(crate) fn reading(&self) -> Reading {
        self.0.state.lock().reading()
    }

    pub(crate) fn mode(&self) -> Mode {
        self.0.state.lock().mode
    }

    pub(crate) fn wait_for(&self, moment: Instant) -> Option<Duration> {
        self.0.state.lock().wait(moment)
    }

    pub(crate) fn next_due(&self) -> Option<Stop> {
        let state = self.0.state.lock();
        state.waiting.first().map(|(moment, who)| Stop { at: state.time_of(moment), who: Arc::clone(who) })
    }

    pub(crate) fn set(&self, mode: Mode, now: Option<Timestamp>) -> Result<(), Backwards> {
        {
            let mut state = self.0.state.lock();
            let reading = state.reading();
            // The machine's own time is what "real" means, whatever the clock showed before.
            let real = (mode == Mode::Real && state.mode != Mode::Real).then(|| Clock::system().now());
            let wanted = now.or(real).unwrap_or(reading.time);
            let ahead = Duration::try_from(wanted.duration_since(reading.time))
                .map_err(|_| Backwards { shown: reading.time, wanted })?;
            state.show(later(reading, ahead));
            state.mode = mode;
        }
        self.0.adjusted.send_modify(|count| *count += 1);
        Ok(())
    }

    pub(crate) async fn wait_until(&self, moment: Instant, who: &Arc<str>) {
        let mut adjusted = self.0.adjusted.subscribe();
        let wait = Wait { clock: self, place: self.0.state.lock().waiting.add(moment, Arc::clone(who)) };
        loop {
            adjusted.mark_unchanged();
            let missing = wait.clock.0.state.lock().wait(moment);
            match missing {
                Some(Duration::ZERO) => return,
                Some(missing) => tokio::select! {
                    () = tokio::time::sleep(missing) => {}
                    _ = adjusted.changed() => {}
                },
                None => {
                    // The sender lives as long as this clock, so the only news is an adjustment.
                    let _ = adjusted.changed().await;
                }
            }
        }
    }

    pub(crate) async fn advance(&self, by: Duration, consequences: &dyn Consequences) -> Advance {
        let (end, began) = (self.reading().moment + by, Instant::now());
        let mut advance = Advance { stops: Vec::new(), all_begun: true, arrived: false };
        while let Some(stop) = self.move_to_first(end) {
            advance.stops.push(stop);
            advance.all_begun = self.begun().await;
            consequences.ended().await;
            if !advance.all_begun || began.elapsed() > ADVANCE_WITHIN {
                return advance;
            }
        }
        self.move_to(end);
        advance.all_begun = self.begun().await;
        consequences.ended().await;
        Advance { arrived: true, ..advance }
    }

    pub(crate) fn until_next(&self) -> Option<Duration> {
        let state = self.0.state.lock();
        Some(state.waiting.first()?.0.saturating_duration_since(state.reading().moment))
    }

    /// Moves to the first moment that a task waits for, if it comes before `end`.
    fn move_to_first(&self, end: Instant) -> Option<Stop> {
        let (first, who) = {
            let state = self.0.state.lock();
            let (first, who) = state.waiting.first().filter(|(first, _)| *first <= end)?;
            (first, Arc::clone(who))
        };
        Some(Stop { at: self.move_to(first), who })
    }

    fn move_to(&self, moment: Instant) -> Timestamp {
        let time = {
            let mut state = self.0.state.lock();
            let reading = state.reading();
            state.show(later(reading, moment.saturating_duration_since(reading.moment)));
            state.shown.time
        };
        self.0.adjusted.send_modify(|count| *count += 1);
        time
    }

    /// Waits until no task waits for a moment that has come. `false` if one does not wake up.
    async fn begun(&self) -> bool {
        let mut ended = self.0.ended.subscribe();
        let all = async {
            loop {
                ended.mark_unchanged();
                let due = {
                    let state = self.0.state.lock();
                    state.waiting.is_due(state.reading().moment)
                };
                if !due {
                    return;
                }
                let _ = ended.changed().await;
            }
        };
        tokio::time::timeout(BEGIN_WITHIN, all).await.is_ok()
    }
}

/// One wait, which is forgotten when it ends or is given up.
struct Wait<'a> {
    clock: &'a Adjustable,
    place: Place,
}

impl Drop for Wait<'_> {
    fn drop(&mut self) {
        self.clock.0.state.lock().waiting.remove(self.place);
        self.clock.0.ended.send_modify(|count| *count += 1);
    }
}
