//! Leader election on a Lease: one of many candidates acts, and it stops acting before another may begin.
//!
//! - `lock`: reading and writing the Lease
//! - `elector`: acquiring, renewing, losing, releasing
//!
//! ```text
//! leader      renew ✓ ─────2 s───── renew ✗ … ✗ ──────┤ 10 s after the start of the last good renew: stops acting
//! candidate   sees that renew ─────────────────────────────────────┤ 15 s after it saw it: may take over
//! ```
//!
//! The times written in the Lease are never compared with a clock: clocks differ. A candidate measures how long *it* has
//! seen no change, the leader how long ago *it* sent its last successful renewal.

mod elector;
mod lock;
#[cfg(test)]
mod tests;

pub use elector::{ElectionConfig, ElectionHealth, Elector, InvalidElection, LeaderGuard, Outcome, Transition};
pub use lock::{ApiLease, Held, LeaseLock, LeaseRecord};
