//! The estimated cost of one call, and the size of its result.

use crate::ast::Literal;
use crate::types::{Extra, Type};

use super::origin::{Origin, Step};
use super::range::Range;
use super::{AUTHORIZER_CHECK, CallCost, LIST, PATTERN, TRAVERSAL};

/// Bytes of an IP address.
const ADDRESS: Range = Range { min: 4, max: 16 };
/// Length of the longest name of a format.
const FORMAT_NAME: Range = Range { min: 1, max: 64 };
/// Assumed length of the pattern of a format.
const FORMAT_PATTERN: f64 = 128.0;

/// The target or an argument of a call.
pub(super) struct Operand<'n, 's> {
    pub(super) origin: Option<Origin<'s>>,
    pub(super) value_type: &'n Type,
    pub(super) size: Option<Range>,
    pub(super) literal: Option<&'n Literal>,
}

impl<'n, 's> Operand<'n, 's> {
    pub(super) fn size(&self) -> Range {
        self.size.unwrap_or(Range::UNKNOWN)
    }

    fn scanned(&self, factor: f64) -> Range {
        self.size().scaled(factor)
    }

    /// Returns the value of an integer literal.
    fn int_or(&self, otherwise: u64) -> u64 {
        match self.literal {
            Some(Literal::Int(value)) => u64::try_from(*value).unwrap_or(0),
            _ => otherwise,
        }
    }

    /// Returns an operand that stands for each element of a list.
    fn element(&self) -> Option<Operand<'n, 's>> {
        let value_type = match self.value_type {
            Type::List(inner) | Type::Optional(inner) | Type::Kind(Some(inner)) => inner,
            Type::Map(inner) => &inner.0,
            _ => return None,
        };
        let origin = self.origin.map(|origin| origin.step(&Step::Element));
        Some(Operand { origin, value_type, size: origin.and_then(Origin::size), literal: None })
    }
}

/// The cost of a call without that of its operands, and the size of its result where it is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CallEstimate {
    pub(super) cost: Range,
    pub(super) result: Option<Range>,
}

impl CallEstimate {
    const ONE: CallEstimate = CallEstimate::cost(Range::fixed(1));

    pub(super) const fn cost(cost: Range) -> CallEstimate {
        CallEstimate { cost, result: None }
    }

    pub(super) fn new(cost: Range, result: Range) -> CallEstimate {
        CallEstimate { cost, result: Some(result) }
    }

    /// A new list of `size` elements, each of which costs `factor`.
    fn new_list(factor: f64, size: Range) -> CallEstimate {
        CallEstimate::new(size.scaled(factor).plus(Range::fixed(1 + LIST)), size)
    }
}

impl CallCost {
    /// Estimates a call with these operands.
    pub(super) fn estimate(self, operands: &[Operand<'_, '_>]) -> CallEstimate {
        self.estimate_string(operands).or_else(|| self.estimate_list(operands)).unwrap_or_else(|| {
            match (self, operands) {
                (CallCost::Compare, [a, b]) => compared(a, b),
                (CallCost::Equality, [a, b]) => equality(a, b),
                (CallCost::Network { parsed, masked }, [_, other]) => {
                    let mut cost = ADDRESS.plus(ADDRESS).scaled(TRAVERSAL);
                    if masked {
                        cost = cost.plus(ADDRESS.scaled(TRAVERSAL)).plus(Range::fixed(1));
                    }
                    if parsed {
                        cost = cost.plus(other.scanned(TRAVERSAL));
                    }
                    CallEstimate::cost(cost)
                }
                (CallCost::AuthorizerCheck, _) => CallEstimate::cost(Range::fixed(AUTHORIZER_CHECK)),
                _ => CallEstimate::ONE,
            }
        })
    }

    /// Rules of functions on strings and bytes.
    fn estimate_string(self, operands: &[Operand<'_, '_>]) -> Option<CallEstimate> {
        Some(match (self, operands) {
            (CallCost::Scan(factor), [text, ..]) => CallEstimate::cost(text.scanned(factor)),
            (CallCost::Transform, [text, ..]) => CallEstimate::new(text.scanned(TRAVERSAL), text.size()),
            (CallCost::Affix, [_, affix]) => CallEstimate::cost(affix.scanned(TRAVERSAL)),
            (CallCost::Replace, [text, old, new, ..]) => {
                let result = replaced(text.size(), old.size(), new.size());
                CallEstimate::new(text.scanned(2.0 * TRAVERSAL), result)
            }
            (CallCost::Split, [text, _, rest @ ..]) => {
                let max = match rest.first().and_then(|limit| limit.literal) {
                    Some(Literal::Int(limit)) => *limit as u64,
                    _ => text.size().max,
                };
                CallEstimate::new(text.scanned(2.0 * TRAVERSAL), Range { min: 0, max })
            }
            (CallCost::Join, [list, rest @ ..]) => {
                let result = joined(list, rest.first());
                CallEstimate::new(result.scaled(TRAVERSAL), result)
            }
            (CallCost::StringToBytes, [text]) => {
                let size = text.size();
                CallEstimate::new(text.scanned(TRAVERSAL), Range { max: size.max.wrapping_mul(4), ..size })
            }
            (CallCost::BytesToString, [bytes]) => {
                let size = bytes.size();
                CallEstimate::new(bytes.scanned(TRAVERSAL), Range { min: size.min / 4, ..size })
            }
            (CallCost::Quote, [text]) => {
                let Range { min, max } = text.size();
                let result = Range { min: min.wrapping_add(2), max: max.wrapping_mul(2).wrapping_add(2) };
                CallEstimate::new(text.scanned(TRAVERSAL), result)
            }
            (CallCost::Concat, [a, b]) => {
                let result = a.size().plus(b.size());
                CallEstimate::new(result.scaled(TRAVERSAL), result)
            }
            (CallCost::Contains, [text, part]) => {
                CallEstimate::cost(text.scanned(TRAVERSAL).times(part.scanned(TRAVERSAL)))
            }
            (CallCost::Matches, [text, pattern]) => CallEstimate::cost(searched(text, pattern)),
            (CallCost::Find, [text, pattern, ..]) => {
                CallEstimate::new(searched(text, pattern), Range { min: 0, max: text.size().max })
            }
            (CallCost::Validate, [_, text]) => {
                CallEstimate::cost(text.scanned(TRAVERSAL).scaled(FORMAT_PATTERN * PATTERN))
            }
            _ => return None,
        })
    }

    /// Rules of functions on lists.
    fn estimate_list(self, operands: &[Operand<'_, '_>]) -> Option<CallEstimate> {
        Some(match (self, operands) {
            (CallCost::Aggregate, [list, ..]) => CallEstimate::cost(aggregated(list)),
            (CallCost::AppendList, [a, b]) => CallEstimate::new(Range::fixed(1), a.size().plus(b.size())),
            (CallCost::InList, [_, list]) => CallEstimate::cost(list.size()),
            (CallCost::Slice, [list, start, end]) => {
                let (start, end) = (start.int_or(0), end.int_or(list.size().max));
                CallEstimate::new_list(1.0, Range::fixed(end.wrapping_sub(start)))
            }
            (CallCost::ListRange, [count]) => CallEstimate::new_list(1.0, Range::fixed(count.int_or(u64::MAX))),
            (CallCost::Reverse, [list]) => CallEstimate::new_list(1.0, list.size()),
            (CallCost::Flatten, [list, rest @ ..]) => {
                let depth = rest.first().map_or(1.0, |depth| depth.int_or(u64::MAX) as f64);
                CallEstimate::new_list(depth, list.size())
            }
            (CallCost::Pairs { operand, text }, _) => {
                let size = operands.get(operand)?.size();
                CallEstimate::new_list(if text { 2.0 + TRAVERSAL } else { 2.0 }, size.times(size))
            }
            (CallCost::Sets, [a, b]) => CallEstimate::cost(a.size().times(b.size()).plus(Range::fixed(1))),
            (CallCost::SetsEquivalent, [a, b]) => {
                CallEstimate::cost(a.size().times(b.size()).scaled(2.0).plus(Range::fixed(1)))
            }
            _ => return None,
        })
    }
}

/// Returns the cost of comparing two values of any type.
fn compared(a: &Operand<'_, '_>, b: &Operand<'_, '_>) -> CallEstimate {
    let max = a.size().max.min(b.size().max);
    CallEstimate::cost(Range { min: u64::from(max > 0), max }.scaled(TRAVERSAL))
}

/// Like [`compared`]; Kubernetes assigns other costs to the types that it adds.
fn equality(a: &Operand<'_, '_>, b: &Operand<'_, '_>) -> CallEstimate {
    match a.value_type {
        Type::Extra(extra) if a.value_type == b.value_type => match extra {
            Extra::Format => CallEstimate::cost(FORMAT_NAME.scaled(TRAVERSAL)),
            Extra::Url => {
                let max = b.size.map_or(1, |size| size.max);
                CallEstimate::cost(Range { min: 1, max }.scaled(TRAVERSAL))
            }
            _ => CallEstimate::ONE,
        },
        _ => compared(a, b),
    }
}

/// Returns the cost of searching a pattern. The text counts one more character, so that an empty one is not free.
fn searched(text: &Operand<'_, '_>, pattern: &Operand<'_, '_>) -> Range {
    text.size().plus(Range::fixed(1)).scaled(TRAVERSAL).times(pattern.scanned(PATTERN))
}

/// Returns the cost of visiting every element of a list, or every character of a string.
fn aggregated(list: &Operand<'_, '_>) -> Range {
    let Some(element) = list.element() else {
        return list.scanned(TRAVERSAL);
    };
    let mut each = Range::fixed(1);
    if matches!(element.value_type, Type::String | Type::Bytes) {
        each = each.plus(element.scanned(TRAVERSAL));
    }
    list.size().times(each)
}

/// Returns the length of the elements of a list with a separator between them.
fn joined(list: &Operand<'_, '_>, separator: Option<&Operand<'_, '_>>) -> Range {
    let count = list.size();
    let elements = list.element().map_or(Range::ZERO, |element| count.times(element.size()));
    let gaps = Range { min: count.min.saturating_sub(1), max: count.max.saturating_sub(1) };
    separator.map_or(elements, |separator| elements.plus(separator.size().times(gaps)))
}

/// Returns the length of a string after a part of it was replaced.
fn replaced(size: Range, old: Range, new: Range) -> Range {
    let (mut count, mut kept) = (Range::ZERO, Range::ZERO);
    if old.min == 0 {
        count.max = size.max.saturating_add(1);
        kept.max = size.max;
    } else if new.max <= old.min {
        kept.max = size.max;
    } else {
        count.max = (size.max as f64 / old.min as f64).ceil() as u64;
    }
    if old.max == 0 {
        count.min = size.min.saturating_add(1);
        kept.min = size.min;
    } else if old.max <= new.min {
        kept.min = size.min;
    } else {
        count.min = (size.min as f64 / old.max as f64).ceil() as u64;
    }
    count.times(new).plus(kept)
}
