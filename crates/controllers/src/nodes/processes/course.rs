//! The results of probes over time, as an annotation or a rule prescribes them.
//!
//! ```text
//!   passes                     always
//!   fails                      always
//!   fails after 30s            from 30 s after the start of the container
//!   fails after 30s for 10s    and passes again 10 s later
//!   passes after 1m            fails until then
//!   flaps every 10s            passes for 10 s, fails for 10 s, and so on
//! ```

use std::time::Duration;

use crate::nodes::stages::parse_duration;

/// Results of a probe by the age of the container.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::nodes) enum Course {
    /// Fails from the first time to the second, and passes otherwise.
    Fails {
        from: Duration,
        to: Duration,
    },
    Flaps {
        every: Duration,
    },
}

impl Course {
    /// Reads the words, or returns the reason that they are not understood.
    pub(in crate::nodes) fn parse(text: &str) -> Result<Self, String> {
        let never = Duration::MAX;
        let words: Vec<&str> = text.split_whitespace().collect();
        Ok(match words.as_slice() {
            ["passes"] => Course::Fails { from: never, to: never },
            ["fails"] => Course::Fails { from: Duration::ZERO, to: never },
            ["fails", "after", from] => Course::Fails { from: parse_duration(from)?, to: never },
            ["fails", "for", time] => Course::Fails { from: Duration::ZERO, to: parse_duration(time)? },
            ["fails", "after", from, "for", time] => {
                let from = parse_duration(from)?;
                Course::Fails { from, to: from.saturating_add(parse_duration(time)?) }
            }
            ["passes", "after", to] => Course::Fails { from: Duration::ZERO, to: parse_duration(to)? },
            ["flaps", "every", every] => {
                let every = parse_duration(every)?;
                if every.is_zero() {
                    return Err(format!("{text:?} has no time between its changes"));
                }
                Course::Flaps { every }
            }
            _ => {
                return Err(format!(
                    "{text:?} should be \"passes\", \"fails\", \"fails after 30s\", \"fails after 30s for 10s\", \
                     \"passes after 1m\" or \"flaps every 10s\""
                ));
            }
        })
    }

    /// True if the probe passes at this age.
    pub(in crate::nodes) fn passes(self, age: Duration) -> bool {
        match self {
            Course::Fails { from, to } => !(from..to).contains(&age),
            Course::Flaps { every } => (age.as_nanos() / every.as_nanos()).is_multiple_of(2),
        }
    }

    /// True if the result is the same from this age on.
    pub(in crate::nodes) fn is_settled(self, age: Duration) -> bool {
        match self {
            Course::Fails { from, to } => from == Duration::MAX || to != Duration::MAX && age >= to,
            Course::Flaps { .. } => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn courses_are_read_and_others_refused() {
        let passes = |text: &str, second: u64| Course::parse(text).unwrap().passes(Duration::from_secs(second));
        for (text, expected) in [
            ("passes", [true, true, true]),
            ("fails", [false, false, false]),
            ("fails after 30s", [true, false, false]),
            ("fails after 30s for 10s", [true, false, true]),
            ("fails for 31s", [false, false, true]),
            ("passes after 45s", [false, false, true]),
            ("flaps every 30s", [true, false, true]),
        ] {
            assert_eq!([0, 30, 60].map(|second| passes(text, second)), expected, "{text}");
        }
        for bad in ["", "sometimes", "fails after", "fails after soon", "flaps every 0s", "fails 30s"] {
            assert!(Course::parse(bad).is_err(), "{bad}");
        }
    }
}
