//! The cost of a call that is made. The numbers are those of Kubernetes: a rule that fits its budget there fits here.

use crate::value::{List, Outcome, Val};

use super::{AUTHORIZER_CHECK, CallCost, LIST, Meter, PATTERN, TRAVERSAL};

/// Rounds up.
fn part(size: u64, factor: f64) -> u64 {
    (size as f64 * factor).ceil() as u64
}

/// Returns the cost of a new list after `size` steps.
fn allocated(size: f64) -> u64 {
    if size < 0.0 {
        // Kubernetes computes with unsigned numbers, which wrap around.
        return (size as i64 as u64).wrapping_add(1 + LIST);
    }
    (size as u64).saturating_add(1 + LIST)
}

impl CallCost {
    /// Returns the cost of a call with these operands. An operand that failed counts as a value of size one.
    pub(crate) fn actual(self, args: &[Val<'_>], result: Option<&Val<'_>>, meter: &mut Meter) -> Outcome<u64> {
        let size = |at: usize| args.get(at).map_or(1, optional_size);
        let result_size = result.map_or(1, Val::size);
        let scan = |factor: f64| part(args.first().map_or(1, Val::size), factor);
        Ok(match self {
            CallCost::Unit | CallCost::AppendList => 1,
            CallCost::AuthorizerCheck => AUTHORIZER_CHECK,
            CallCost::Scan(factor) => scan(factor),
            CallCost::Transform
            | CallCost::Affix
            | CallCost::StringToBytes
            | CallCost::BytesToString
            | CallCost::Quote => scan(TRAVERSAL),
            CallCost::Replace | CallCost::Split => scan(2.0 * TRAVERSAL),
            CallCost::Aggregate => match args.first() {
                Some(value) => walk(value, meter)?,
                None => 0,
            },
            CallCost::Compare => part(size(0).min(size(1)), TRAVERSAL),
            CallCost::Equality => match args.first() {
                Some(Val::Quantity(_) | Val::Ip(_) | Val::Cidr(_) | Val::Format(_) | Val::Url(_) | Val::Semver(_)) => 1,
                _ => part(size(0).min(size(1)), TRAVERSAL),
            },
            CallCost::Concat => part(size(0).saturating_add(size(1)), TRAVERSAL),
            CallCost::Contains => part(size(0), TRAVERSAL).saturating_mul(part(size(1), TRAVERSAL)),
            // One more character, so that an empty text does not make every pattern free.
            CallCost::Matches | CallCost::Find => {
                part(size(0).saturating_add(1), TRAVERSAL).saturating_mul(part(size(1), PATTERN))
            }
            CallCost::InList => size(1),
            CallCost::Validate => match args.first() {
                Some(Val::Format(format)) => {
                    part(size(1).saturating_add(1), TRAVERSAL).saturating_mul(part(format.pattern_length(), PATTERN))
                }
                _ => 1,
            },
            CallCost::Join => part(result_size, 2.0 * TRAVERSAL),
            CallCost::Slice | CallCost::ListRange | CallCost::Reverse => allocated(result_size as f64),
            CallCost::Flatten => {
                let depth = match args.get(1) {
                    Some(Val::Int(depth)) => *depth as f64,
                    _ => 1.0,
                };
                allocated(size(0) as f64 * depth)
            }
            CallCost::Pairs { operand: at, .. } => {
                let strings = match args.get(at) {
                    Some(Val::List(list)) if list.len() > 0 => {
                        matches!(list.get(0), Ok(Val::String(_) | Val::Bytes(_)))
                    }
                    _ => false,
                };
                let factor = if strings { 2.0 + TRAVERSAL } else { 2.0 };
                allocated(size(at) as f64 * size(at) as f64 * factor)
            }
            CallCost::Sets => ((size(0) as f64 * size(1) as f64) as u64).saturating_add(1),
            CallCost::SetsEquivalent => ((size(0) as f64 * size(1) as f64 * 2.0) as u64).saturating_add(1),
            CallCost::Network { parsed, masked } => {
                let mut cost = part(size(0) * 2, TRAVERSAL);
                if masked {
                    cost += part(size(0), TRAVERSAL) + 1;
                }
                if parsed { cost.saturating_add(part(size(1), TRAVERSAL)) } else { cost }
            }
        })
    }
}

/// Returns the size of a value; an optional has the size of its content.
fn optional_size(value: &Val<'_>) -> u64 {
    match value {
        Val::Optional(Some(inner)) => optional_size(inner),
        other => other.size(),
    }
}

/// Returns the cost of visiting a value with everything nested in it.
fn walk(value: &Val<'_>, meter: &mut Meter) -> Outcome<u64> {
    Ok(match value {
        Val::String(text) => (text.len() as f64 * TRAVERSAL) as u64,
        Val::Bytes(bytes) => (bytes.len() as f64 * TRAVERSAL) as u64,
        Val::List(list) => walk_list(list, meter)?,
        Val::Map(map) => {
            let mut cost = 0_u64;
            meter.work(map.len())?;
            for key in map.keys() {
                let value = map.get(&key).ok().flatten().map_or(Ok(1), |value| walk(&value, meter))?;
                cost = cost.saturating_add(walk(&key, meter)?).saturating_add(value);
            }
            cost
        }
        _ => 1,
    })
}

fn walk_list(list: &List<'_>, meter: &mut Meter) -> Outcome<u64> {
    meter.work(list.len())?;
    let mut cost = 0_u64;
    for element in list.iter() {
        let element = element.map_or(Ok(1), |value| walk(&value, meter))?;
        cost = cost.saturating_add(element);
    }
    Ok(cost)
}
