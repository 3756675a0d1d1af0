//! Costs of expressions: estimated when a definition is accepted, counted when a rule runs.
//!
//! Clients see both numbers, so they are those of Kubernetes. One table, [`CallCost::for_call`], assigns a cost rule to
//! each function; the same rule gives the estimate from the sizes that a schema allows and the actual cost from values.
//!
//! - this file: the table
//! - `actual`: the cost of a call with values
//! - `estimate`: the bounds of a whole expression, with the parts `call` (one call), `origin` (positions in the schema)
//!   and `range` (numbers from a minimum to a maximum)
//! - `meter`: the running total of an evaluation, and limits on work that has no cost

mod actual;
mod call;
mod estimate;
mod meter;
mod origin;
mod range;

pub(crate) use estimate::estimate;
pub(crate) use meter::{CALL_LIMIT, Meter};

/// Cost per character of a string that is scanned.
const TRAVERSAL: f64 = 0.1;
/// Cost per character of a regular expression.
const PATTERN: f64 = 0.25;
/// Cost of creating a list.
pub(crate) const LIST: u64 = 10;
/// Cost of creating a map.
pub(crate) const MAP: u64 = 30;
/// Cost of creating a message.
pub(crate) const STRUCT: u64 = 40;
/// Cost of a question to the authorizer.
const AUTHORIZER_CHECK: u64 = 350_000;

/// The rule by which the cost of a call follows from its operands (target first, then arguments) and its result.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum CallCost {
    /// One, whatever the operands are.
    Unit,
    /// A factor for each character of the first operand.
    Scan(f64),
    /// Scans the first operand; the result is at most as long.
    Transform,
    /// `startsWith`, `endsWith`: the estimate counts the second operand, the actual cost the first.
    Affix,
    Replace,
    Split,
    Join,
    StringToBytes,
    BytesToString,
    Quote,
    /// Visits every element of the first operand, nested ones included.
    Aggregate,
    /// Scans the shorter of two operands.
    Compare,
    /// Like `Compare`, but cheaper for the types that Kubernetes adds.
    Equality,
    /// Scans both operands into a new string.
    Concat,
    AppendList,
    /// A regular expression that tests a string.
    Matches,
    /// A regular expression that returns parts of a string.
    Find,
    Contains,
    InList,
    Validate,
    Slice,
    ListRange,
    Reverse,
    Flatten,
    /// Compares each element of the operand with this index to each other one; `text` if the overload is one for
    /// strings or bytes.
    Pairs {
        operand: usize,
        text: bool,
    },
    /// Compares each element of a list with each of another.
    Sets,
    /// Like `Sets`, in both directions.
    SetsEquivalent,
    Network {
        /// The second operand is a string that must be parsed.
        parsed: bool,
        /// The address is masked first.
        masked: bool,
    },
    AuthorizerCheck,
}

impl CallCost {
    /// Returns the rule of an overload; `overload` is empty where it is known only at run time.
    pub(crate) fn for_call(function: &str, overload: &str) -> CallCost {
        Self::for_list_overload(overload)
            .or_else(|| Self::for_function(function, overload))
            .unwrap_or_else(|| Self::for_standard_overload(overload))
    }

    /// The list and set libraries.
    fn for_list_overload(overload: &str) -> Option<CallCost> {
        let text = overload.contains("_string_") || overload.contains("_bytes_");
        Some(match overload {
            "list_slice" => CallCost::Slice,
            "lists_range" => CallCost::ListRange,
            "list_reverse" => CallCost::Reverse,
            "list_flatten" | "list_flatten_int" => CallCost::Flatten,
            "list_distinct" => CallCost::Pairs { operand: 0, text: false },
            "list_sets_contains_list" | "list_sets_intersects_list" => CallCost::Sets,
            "list_sets_equivalent_list" => CallCost::SetsEquivalent,
            _ if overload.starts_with("list_") && overload.ends_with("_sort") => CallCost::Pairs { operand: 0, text },
            _ if overload.ends_with("_sortByAssociatedKeys") => CallCost::Pairs { operand: 1, text },
            _ => return None,
        })
    }

    /// Functions to which Kubernetes assigns a cost by name. Its other functions cost one.
    fn for_function(function: &str, overload: &str) -> Option<CallCost> {
        let parsed = overload.ends_with("_string");
        Some(match function {
            "isSorted" | "sum" | "max" | "min" | "indexOf" | "lastIndexOf" => CallCost::Aggregate,
            "url" | "lowerAscii" | "upperAscii" | "substring" | "trim" => CallCost::Transform,
            "ip" if overload == "cidr_ip" => CallCost::Unit,
            "cidr" | "isIP" | "isCIDR" | "ip" | "quantity" | "isQuantity" | "semver" | "isSemver" => {
                CallCost::Scan(TRAVERSAL)
            }
            "ip.isCanonical" => CallCost::Scan(2.0 * TRAVERSAL),
            "replace" => CallCost::Replace,
            "split" => CallCost::Split,
            "join" => CallCost::Join,
            "find" | "findAll" => CallCost::Find,
            "containsIP" => CallCost::Network { parsed, masked: false },
            "containsCIDR" => CallCost::Network { parsed, masked: true },
            "validate" => CallCost::Validate,
            "check" => CallCost::AuthorizerCheck,
            "_==_" => CallCost::Equality,
            _ => return None,
        })
    }

    /// The standard library of the language. Overloads that are not listed cost one.
    fn for_standard_overload(overload: &str) -> CallCost {
        match overload {
            "string_format" => CallCost::Scan(TRAVERSAL),
            "starts_with_string" | "ends_with_string" => CallCost::Affix,
            "string_to_bytes" => CallCost::StringToBytes,
            "bytes_to_string" => CallCost::BytesToString,
            "strings_quote" => CallCost::Quote,
            "in_list" => CallCost::InList,
            "matches_string" => CallCost::Matches,
            "contains_string" => CallCost::Contains,
            "add_string" | "add_bytes" => CallCost::Concat,
            "add_list" => CallCost::AppendList,
            "not_equals"
            | "less_string"
            | "greater_string"
            | "less_equals_string"
            | "greater_equals_string"
            | "less_bytes"
            | "greater_bytes"
            | "less_equals_bytes"
            | "greater_equals_bytes" => CallCost::Compare,
            _ => CallCost::Unit,
        }
    }

    /// Reports whether the cost is known only after the call.
    pub(crate) fn depends_on_result(self) -> bool {
        matches!(self, CallCost::Join | CallCost::Slice | CallCost::ListRange | CallCost::Reverse)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_overload_decides_before_the_function_and_unknown_calls_cost_one() {
        for (function, overload, want) in [
            ("sort", "list_string_sort", CallCost::Pairs { operand: 0, text: true }),
            ("sort", "list_int_sort", CallCost::Pairs { operand: 0, text: false }),
            ("@sortByAssociatedKeys", "list_bytes_sortByAssociatedKeys", CallCost::Pairs { operand: 1, text: true }),
            ("ip", "string_to_ip", CallCost::Scan(TRAVERSAL)),
            ("ip", "cidr_ip", CallCost::Unit),
            ("containsIP", "cidr_contains_ip_string", CallCost::Network { parsed: true, masked: false }),
            ("containsCIDR", "cidr_contains_cidr", CallCost::Network { parsed: false, masked: true }),
            ("_==_", "equals", CallCost::Equality),
            ("_!=_", "not_equals", CallCost::Compare),
            ("_<_", "less_int64", CallCost::Unit),
            // The overload is known only at run time.
            ("sort", "", CallCost::Unit),
            ("url", "", CallCost::Transform),
        ] {
            assert_eq!(CallCost::for_call(function, overload), want, "{function} {overload}");
        }
    }
}
