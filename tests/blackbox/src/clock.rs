//! The wall clock, to compare with the times in a server's answers.

/// The current time of this machine, which is also that of the servers under test.
#[allow(clippy::disallowed_methods, reason = "black-box tests know no crate that has a Clock")]
#[must_use]
pub fn now() -> jiff::Timestamp {
    jiff::Timestamp::now()
}
