//! What an evaluation may use: the costs that Kubernetes counts, and the work that those do not see.

use crate::value::{Fault, Outcome};

/// One call of one rule may cost this much.
pub(crate) const CALL_LIMIT: u64 = 1_000_000;
/// Steps that have no cost of their own: elements compared, lists walked. A cheap expression may ask for far more of
/// them than its cost says (`[x] == [x]` costs one, however long `x` is).
const WORK_LIMIT: u64 = 5_000_000;
/// Bytes that functions on strings may make.
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

    /// Charges for a step; past the limit nothing goes on.
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
