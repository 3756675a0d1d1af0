//! Retention of history.

use std::time::Duration;

/// A change is kept while it is young *or* among the last of its collection; the size cap overrules both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retention {
    pub age_min: Duration,
    /// Per collection.
    pub changes_min: u64,
    /// Bytes of superseded values over all collections. Beyond it, the oldest history is removed first.
    pub history_bytes_max: u64,
    /// Interval at which the engine looks for history to remove.
    pub interval: Duration,
}

impl Default for Retention {
    fn default() -> Self {
        Retention {
            age_min: Duration::from_secs(300),
            changes_min: 10_000,
            history_bytes_max: 1 << 30,
            interval: Duration::from_secs(30),
        }
    }
}
