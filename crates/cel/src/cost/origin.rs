//! Positions in the schema: what a value was read from bounds its size.

use crate::shape::{Kind, Shape};

use super::range::Range;

/// The part of the schema that a value was read from.
#[derive(Clone, Copy, Debug)]
pub(super) enum Origin<'s> {
    Schema(&'s Shape),
    /// A key of a map.
    MapKey,
    /// A value that the schema does not describe.
    Unknown,
}

/// A step from a value to one of its parts.
pub(super) enum Step<'n> {
    Field(&'n str),
    Element,
    Key,
    Position,
}

impl<'s> Origin<'s> {
    pub(super) fn step(self, step: &Step<'_>) -> Origin<'s> {
        let Origin::Schema(shape) = self else {
            return Origin::Unknown;
        };
        let next = match step {
            Step::Field(name) => shape.field(name).map(|shape| Origin::Schema(shape)),
            Step::Element => shape.element().map(|shape| Origin::Schema(shape)),
            Step::Key if shape.kind == Kind::Object && shape.additional.is_some() => Some(Origin::MapKey),
            Step::Key | Step::Position => None,
        };
        next.unwrap_or(Origin::Unknown)
    }

    /// Returns the size that the schema allows.
    pub(super) fn size(self) -> Option<Range> {
        match self {
            Origin::Schema(shape) => Some(Range { min: 0, max: shape.max_elements }),
            Origin::MapKey => Some(Range::ZERO),
            Origin::Unknown => None,
        }
    }
}
