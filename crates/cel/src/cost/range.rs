//! Numbers from a minimum to a maximum, which saturate.

/// A size or a cost between two bounds, both included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Range {
    pub(crate) min: u64,
    pub(crate) max: u64,
}

impl Range {
    pub(super) const ZERO: Range = Range::fixed(0);
    pub(super) const UNKNOWN: Range = Range { min: 0, max: u64::MAX };

    pub(super) const fn fixed(value: u64) -> Range {
        Range { min: value, max: value }
    }

    pub(super) fn plus(self, other: Range) -> Range {
        Range { min: self.min.saturating_add(other.min), max: self.max.saturating_add(other.max) }
    }

    pub(super) fn times(self, other: Range) -> Range {
        Range { min: self.min.saturating_mul(other.min), max: self.max.saturating_mul(other.max) }
    }

    /// Multiplies by a factor, rounding up.
    pub(super) fn scaled(self, factor: f64) -> Range {
        let one = |value: u64| {
            let product = (value as f64 * factor).ceil();
            if product >= 18_446_744_073_709_551_616.0 { u64::MAX } else { product as u64 }
        };
        Range { min: one(self.min), max: one(self.max) }
    }

    /// Returns the smallest range that contains both.
    pub(super) fn union(self, other: Range) -> Range {
        Range { min: self.min.min(other.min), max: self.max.max(other.max) }
    }
}
