//! What a call costs when it is made. The numbers are those of Kubernetes: a rule that fits its budget there fits here.

use crate::meter::Meter;
use crate::value::{List, Outcome, Val};

/// For each character of a string that is walked.
pub(crate) const TRAVERSAL: f64 = 0.1;
/// For each character of a regular expression.
pub(crate) const PATTERN: f64 = 0.25;
pub(crate) const LIST: u64 = 10;
pub(crate) const MAP: u64 = 30;

/// How the price of a call follows from its arguments.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Price {
    One,
    /// So much for each character of the first argument.
    First(f64),
    /// The first argument is walked with everything in it.
    Walk,
    /// The smaller of the two.
    Smaller,
    /// The same, but one for the types that Kubernetes adds.
    Equality,
    Sum,
    Product,
    Pattern,
    InList,
    Format,
    /// So much for each character of the result.
    Result(f64),
    /// A new list as long as the result.
    Output,
    Flatten,
    /// Each element is compared with each other, of the argument with this number.
    Pairs(usize),
    Sets(f64),
    Network {
        parsed: bool,
        masked: bool,
    },
}

/// The price of a function with this overload; empty where it is known only when it is called.
pub(crate) fn of(function: &str, overload: &str) -> Price {
    match overload {
        "list_slice" | "lists_range" | "list_reverse" => return Price::Output,
        "list_flatten" | "list_flatten_int" => return Price::Flatten,
        "list_distinct" => return Price::Pairs(0),
        "list_sets_contains_list" | "list_sets_intersects_list" => return Price::Sets(1.0),
        "list_sets_equivalent_list" => return Price::Sets(2.0),
        _ if overload.starts_with("list_") && overload.ends_with("_sort") => return Price::Pairs(0),
        _ if overload.ends_with("_sortByAssociatedKeys") => return Price::Pairs(1),
        _ => {}
    }
    match function {
        "isSorted" | "sum" | "max" | "min" | "indexOf" | "lastIndexOf" => return Price::Walk,
        "url" | "lowerAscii" | "upperAscii" | "substring" | "trim" | "cidr" | "isIP" | "isCIDR" | "quantity"
        | "isQuantity" | "semver" | "isSemver" => return Price::First(TRAVERSAL),
        "replace" | "split" | "ip.isCanonical" => return Price::First(2.0 * TRAVERSAL),
        "join" => return Price::Result(2.0 * TRAVERSAL),
        "find" | "findAll" => return Price::Pattern,
        "ip" if overload == "cidr_ip" => return Price::One,
        "ip" => return Price::First(TRAVERSAL),
        "containsIP" => return Price::Network { parsed: overload == "cidr_contains_ip_string", masked: false },
        "containsCIDR" => return Price::Network { parsed: overload == "cidr_contains_cidr_string", masked: true },
        "validate" => return Price::Format,
        "_==_" => return Price::Equality,
        _ => {}
    }
    match overload {
        "starts_with_string" | "ends_with_string" | "string_to_bytes" | "bytes_to_string" | "strings_quote"
        | "string_format" => Price::First(TRAVERSAL),
        "in_list" => Price::InList,
        "not_equals"
        | "less_string"
        | "greater_string"
        | "less_equals_string"
        | "greater_equals_string"
        | "less_bytes"
        | "greater_bytes"
        | "less_equals_bytes"
        | "greater_equals_bytes" => Price::Smaller,
        "add_string" | "add_bytes" => Price::Sum,
        "matches_string" => Price::Pattern,
        "contains_string" => Price::Product,
        _ => Price::One,
    }
}

fn part(size: u64, factor: f64) -> u64 {
    (size as f64 * factor).ceil() as u64
}

fn allocated(size: f64) -> u64 {
    if size < 0.0 {
        // The reference computes with unsigned numbers, which come around.
        return (size as i64 as u64).wrapping_add(1 + LIST);
    }
    (size as u64).saturating_add(1 + LIST)
}

impl Price {
    /// Whether it is known only when the call has been made.
    pub(crate) fn is_of_result(self) -> bool {
        matches!(self, Price::Result(_) | Price::Output)
    }

    pub(crate) fn amount(self, args: &[Val<'_>], result: Option<&Val<'_>>, meter: &mut Meter) -> Outcome<u64> {
        let size = |at: usize| args.get(at).map_or(1, optional_size);
        let result_size = result.map_or(1, Val::size);
        Ok(match self {
            Price::One => 1,
            Price::First(factor) => part(args.first().map_or(1, Val::size), factor),
            Price::Walk => match args.first() {
                Some(value) => walk(value, meter)?,
                None => 0,
            },
            Price::Smaller => part(size(0).min(size(1)), TRAVERSAL),
            Price::Equality => match args.first() {
                Some(Val::Quantity(_) | Val::Ip(_) | Val::Cidr(_) | Val::Format(_) | Val::Url(_) | Val::Semver(_)) => 1,
                _ => part(size(0).min(size(1)), TRAVERSAL),
            },
            Price::Sum => part(size(0).saturating_add(size(1)), TRAVERSAL),
            Price::Product => part(size(0), TRAVERSAL).saturating_mul(part(size(1), TRAVERSAL)),
            // One more character, so that the empty text does not make every expression free.
            Price::Pattern => part(size(0).saturating_add(1), TRAVERSAL).saturating_mul(part(size(1), PATTERN)),
            Price::InList => size(1),
            Price::Format => match args.first() {
                Some(Val::Format(format)) => {
                    part(size(1).saturating_add(1), TRAVERSAL).saturating_mul(part(format.pattern_length(), PATTERN))
                }
                _ => 1,
            },
            Price::Result(factor) => part(result_size, factor),
            Price::Output => allocated(result_size as f64),
            Price::Flatten => {
                let depth = match args.get(1) {
                    Some(Val::Int(depth)) => *depth as f64,
                    _ => 1.0,
                };
                allocated(size(0) as f64 * depth)
            }
            Price::Pairs(at) => {
                let strings = match args.get(at) {
                    Some(Val::List(list)) if list.len() > 0 => {
                        matches!(list.get(0), Ok(Val::String(_) | Val::Bytes(_)))
                    }
                    _ => false,
                };
                let factor = if strings { 2.0 + TRAVERSAL } else { 2.0 };
                allocated(size(at) as f64 * size(at) as f64 * factor)
            }
            Price::Sets(factor) => ((size(0) as f64 * size(1) as f64 * factor) as u64).saturating_add(1),
            Price::Network { parsed, masked } => {
                let mut cost = part(size(0) * 2, TRAVERSAL);
                if masked {
                    cost += part(size(0), TRAVERSAL) + 1;
                }
                if parsed { cost.saturating_add(part(size(1), TRAVERSAL)) } else { cost }
            }
        })
    }
}

/// An optional counts as what is in it.
fn optional_size(value: &Val<'_>) -> u64 {
    match value {
        Val::Optional(Some(inner)) => optional_size(inner),
        other => other.size(),
    }
}

/// Walks everything in a value.
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
