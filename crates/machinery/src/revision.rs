//! The one counter that orders everything: a position in the log of changes.

use std::fmt;
use std::num::ParseIntError;
use std::str::FromStr;

/// A position in the store's single order of changes. A write gets exactly one; they never go back.
///
/// Clients see it as `metadata.resourceVersion`, a decimal string. Zero is "before everything": no object carries it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Revision(pub u64);

impl Revision {
    /// Before the first change.
    pub const ZERO: Revision = Revision(0);

    /// The revision that follows this one.
    #[must_use]
    pub fn next(self) -> Revision {
        Revision(self.0 + 1)
    }

    /// The revision before this one; zero stays zero.
    #[must_use]
    pub fn prev(self) -> Revision {
        Revision(self.0.saturating_sub(1))
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
