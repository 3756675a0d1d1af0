//! Limits of an evaluation: the cost that Kubernetes counts, and work that has no cost there.

use crate::value::{Fault, Outcome};

/// Cost limit of one evaluation of a rule.
pub(crate) const CALL_LIMIT: u64 = 1_000_000;
/// Limit of steps without a cost of their own: elements compared, lists visited. A cheap expression may need many of
/// them (`[x] == [x]` costs one, however long `x` is).
const WORK_LIMIT: u64 = 5_000_000;
/// Limit of bytes that string functions create.
const BYTES_LIMIT: u64 = 32 * 1024 * 1024;

#[derive(Debug)]
pub(crate) struct Meter {
    cost: u64,
    limit: u64,
    work: u64,
    bytes: u64,
}

impl Meter {
    pub(crate) fn new(limit: u64) -> Meter {
        Meter { cost: 0, limit, work: 0, bytes: 0 }
    }

    pub(crate) fn cost(&self) -> u64 {
        self.cost
    }

    /// Charges for a step; fails beyond the limit.
    pub(crate) fn charge(&mut self, cost: u64) -> Outcome<()> {
        self.cost = self.cost.saturating_add(cost);
        if self.cost > self.limit { Err(Fault::Limit) } else { Ok(()) }
    }

    pub(crate) fn work(&mut self, steps: u64) -> Outcome<()> {
        self.work = self.work.saturating_add(steps);
        if self.work > WORK_LIMIT { Err(Fault::Limit) } else { Ok(()) }
    }

    pub(crate) fn bytes(&mut self, bytes: usize) -> Outcome<()> {
        self.bytes = self.bytes.saturating_add(bytes as u64);
        if self.bytes > BYTES_LIMIT { Err(Fault::Limit) } else { Ok(()) }
    }
}
