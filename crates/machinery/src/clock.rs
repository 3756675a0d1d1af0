//! The current time, behind one type.
//!
//! Every part that needs the wall clock takes a [`Clock`], so that a test or a simulation can give it another one. This is
//! the only module that may read the machine's own clock; `clippy.toml` bans the calls everywhere else.

use std::fmt;
use std::sync::Arc;

use jiff::Timestamp;

/// Returns the current time. Cheap to clone; the default is the machine's clock.
#[derive(Clone, Default)]
pub struct Clock(Option<Arc<dyn Fn() -> Timestamp + Send + Sync>>);

impl Clock {
    /// The clock of this machine.
    #[must_use]
    pub fn system() -> Self {
        Clock(None)
    }

    /// A clock that calls `source` for each reading.
    pub fn from_fn(source: impl Fn() -> Timestamp + Send + Sync + 'static) -> Self {
        Clock(Some(Arc::new(source)))
    }

    /// The current time.
    #[must_use]
    #[allow(clippy::disallowed_methods, reason = "the one place that reads the machine's clock")]
    pub fn now(&self) -> Timestamp {
        match &self.0 {
            Some(source) => source(),
            None => Timestamp::now(),
        }
    }
}

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "Clock(custom)" } else { "Clock(system)" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_given_source_is_read_each_time() {
        use std::sync::atomic::{AtomicI64, Ordering};
        let seconds = Arc::new(AtomicI64::new(100));
        let source = Arc::clone(&seconds);
        let clock = Clock::from_fn(move || {
            Timestamp::from_second(source.load(Ordering::Relaxed)).expect("seconds within the range of a timestamp")
        });
        let copy = clock.clone();
        assert_eq!(clock.now().as_second(), 100);
        seconds.store(160, Ordering::Relaxed);
        assert_eq!(copy.now().as_second(), 160);
    }
}
