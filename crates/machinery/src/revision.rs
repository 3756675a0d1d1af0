//! Revisions: positions in the single order of changes.

use std::fmt;
use std::num::ParseIntError;
use std::str::FromStr;

/// A position in the store's single order of changes. Each write gets exactly one; they never decrease.
///
/// Clients see it as `metadata.resourceVersion`, a decimal string. Zero is before every change: no object has it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Revision(pub u64);

impl Revision {
    /// The revision before the first change.
    pub const ZERO: Revision = Revision(0);

    /// Returns the revision that follows this one.
    #[must_use]
    pub fn next(self) -> Revision {
        Revision(self.0 + 1)
    }

    #[must_use]
    pub fn is_zero(self) -> bool {
        self.0 == 0
    }
}

impl fmt::Display for Revision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for Revision {
    type Err = ParseIntError;

    fn from_str(s: &str) -> Result<Self, Self::Err> {
        s.parse().map(Revision)
    }
}
