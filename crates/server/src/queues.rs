//! The work that built-in controllers have still to do, for those who wait until it is done.

use std::time::Duration;

/// Looks at the work queues of the controllers of a world.
pub trait Queues: Send + Sync {
    /// The queues that are not empty: keys are in line, in work, or come in line within this time of the machine.
    fn busy(&self, within: Duration) -> Vec<BusyQueue>;
}

/// A queue that is not empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BusyQueue {
    /// The name of the controller.
    pub controller: String,
    pub queued: usize,
    pub working: usize,
    /// Some of the keys that are in line, in work or due.
    pub keys: Vec<BusyKey>,
}

/// A key of a queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BusyKey {
    pub key: String,
    pub state: &'static str,
    /// The time of the machine until it comes in line.
    pub due_in: Option<Duration>,
}
