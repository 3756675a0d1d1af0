//! Checked arithmetic, comparison across number types, and conversions to and from text.

use std::cmp::Ordering;

use crate::value::{Fault, Outcome, Val};

const OVERFLOW: Fault = Fault::from_static("integer overflow");
const UNSIGNED_OVERFLOW: Fault = Fault::from_static("unsigned integer overflow");

/// Compares int, uint and double in any combination; `None` if one is NaN or not a number.
pub(crate) fn compare(a: &Val<'_>, b: &Val<'_>) -> Option<Ordering> {
    match (a, b) {
        (Val::Double(a), Val::Double(b)) => a.partial_cmp(b),
        (Val::Double(a), b) => compare_double(*a, integer(b)?),
        (a, Val::Double(b)) => compare_double(*b, integer(a)?).map(Ordering::reverse),
        (a, b) => Some(integer(a)?.cmp(&integer(b)?)),
    }
}

fn integer(of: &Val<'_>) -> Option<i128> {
    match of {
        Val::Int(value) => Some(i128::from(*value)),
        Val::Uint(value) => Some(i128::from(*value)),
        _ => None,
    }
}

fn compare_double(a: f64, b: i128) -> Option<Ordering> {
    if a.is_nan() {
        return None;
    }
    if a >= 1.9e19 {
        return Some(Ordering::Greater);
    }
    if a <= -1.9e19 {
        return Some(Ordering::Less);
    }
    let whole = a.floor();
    Some((whole as i128).cmp(&b).then(if a > whole { Ordering::Greater } else { Ordering::Equal }))
}

/// `+`, `-`, `*`, `/`, `%` of numbers of one type; `None` for other operands.
pub(crate) fn arithmetic<'a>(operator: char, a: &Val<'a>, b: &Val<'a>) -> Option<Outcome<Val<'a>>> {
    let result = match (a, b) {
        (Val::Int(a), Val::Int(b)) => match operator {
            '+' => a.checked_add(*b).ok_or(OVERFLOW),
            '-' => a.checked_sub(*b).ok_or(OVERFLOW),
            '*' => a.checked_mul(*b).ok_or(OVERFLOW),
            '/' if *b == 0 => Err(Fault::from_static("division by zero")),
            '/' => a.checked_div(*b).ok_or(OVERFLOW),
            _ if *b == 0 => Err(Fault::from_static("modulus by zero")),
            _ => a.checked_rem(*b).ok_or(OVERFLOW),
        }
        .map(Val::Int),
        (Val::Uint(a), Val::Uint(b)) => match operator {
            '+' => a.checked_add(*b).ok_or(UNSIGNED_OVERFLOW),
            '-' => a.checked_sub(*b).ok_or(UNSIGNED_OVERFLOW),
            '*' => a.checked_mul(*b).ok_or(UNSIGNED_OVERFLOW),
            '/' => a.checked_div(*b).ok_or(Fault::from_static("division by zero")),
            _ => a.checked_rem(*b).ok_or(Fault::from_static("modulus by zero")),
        }
        .map(Val::Uint),
        (Val::Double(a), Val::Double(b)) => match operator {
            '+' => Ok(a + b),
            '-' => Ok(a - b),
            '*' => Ok(a * b),
            '/' => Ok(a / b),
            _ => return None,
        }
        .map(Val::Double),
        _ => return None,
    };
    Some(result)
}

/// `int(x)`; `None` if the type has no conversion.
pub(crate) fn to_int(of: &Val<'_>) -> Option<Outcome<i64>> {
    Some(match of {
        Val::Int(value) => Ok(*value),
        Val::Uint(value) => i64::try_from(*value).map_err(|_| OVERFLOW),
        Val::Double(value) if value.is_finite() && value.abs() < 9_223_372_036_854_775_808.0 => {
            // The limits are refused, since a double cannot represent them exactly.
            if *value <= -9_223_372_036_854_775_808.0 { Err(OVERFLOW) } else { Ok(*value as i64) }
        }
        Val::Double(_) => Err(OVERFLOW),
        Val::String(text) => parse_int(text).ok_or(Fault::from_static("type conversion error from 'string' to 'int'")),
        Val::Timestamp(time) => Ok(time.seconds()),
        Val::Duration(span) => Ok(span.nanoseconds()),
        _ => return None,
    })
}

fn parse_int(text: &str) -> Option<i64> {
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    (!digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit())).then(|| text.parse().ok()).flatten()
}

/// `uint(x)`
pub(crate) fn to_uint(of: &Val<'_>) -> Option<Outcome<u64>> {
    Some(match of {
        Val::Uint(value) => Ok(*value),
        Val::Int(value) => u64::try_from(*value).map_err(|_| UNSIGNED_OVERFLOW),
        Val::Double(value) if *value >= 0.0 && *value < 18_446_744_073_709_551_616.0 => Ok(*value as u64),
        Val::Double(_) => Err(UNSIGNED_OVERFLOW),
        Val::String(text) if text.bytes().all(|b| b.is_ascii_digit()) => {
            text.parse().map_err(|_| Fault::from_static("type conversion error from 'string' to 'uint'"))
        }
        Val::String(_) => Err(Fault::from_static("type conversion error from 'string' to 'uint'")),
        _ => return None,
    })
}

/// `double(x)`
pub(crate) fn to_double(of: &Val<'_>) -> Option<Outcome<f64>> {
    Some(match of {
        Val::Double(value) => Ok(*value),
        Val::Int(value) => Ok(*value as f64),
        Val::Uint(value) => Ok(*value as f64),
        Val::String(text) => {
            let plain = text.strip_prefix(['+', '-']).unwrap_or(text).to_ascii_lowercase();
            let valid = matches!(&*plain, "inf" | "infinity" | "nan")
                || (plain.starts_with(|c: char| c.is_ascii_digit() || c == '.') && !plain.contains("inf"));
            let value = if valid { text.parse::<f64>().ok() } else { None };
            let overflown = value.is_some_and(f64::is_infinite) && !plain.starts_with("inf");
            value.filter(|_| !overflown).ok_or(Fault::from_static("type conversion error from 'string' to 'double'"))
        }
        _ => return None,
    })
}

/// Formats a double like Go (`%g` with the shortest digits: with an exponent from a million on).
pub(crate) fn double_text(value: f64) -> String {
    if value.is_nan() {
        return "NaN".to_owned();
    }
    if value.is_infinite() {
        return if value > 0.0 { "+Inf" } else { "-Inf" }.to_owned();
    }
    if value == 0.0 {
        return if value.is_sign_negative() { "-0" } else { "0" }.to_owned();
    }
    let scientific = format!("{value:e}");
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let power: i32 = exponent.parse().unwrap_or(0);
    if (-4..6).contains(&power) {
        return format!("{value}");
    }
    let sign = if power < 0 { '-' } else { '+' };
    format!("{digits}e{sign}{:02}", power.unsigned_abs())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_different_types_are_compared_by_what_they_are() {
        for (a, b, want) in [
            (Val::Int(1), Val::Uint(1), Some(Ordering::Equal)),
            (Val::Int(-1), Val::Uint(u64::MAX), Some(Ordering::Less)),
            (Val::Double(1.5), Val::Int(1), Some(Ordering::Greater)),
            (Val::Int(-2), Val::Double(-1.5), Some(Ordering::Less)),
            (Val::Double(1e300), Val::Uint(u64::MAX), Some(Ordering::Greater)),
            (Val::Double(f64::NAN), Val::Int(1), None),
            (Val::Int(i64::MAX), Val::Double(9_223_372_036_854_775_807.0), Some(Ordering::Less)),
        ] {
            assert_eq!(compare(&a, &b), want, "{a} {b}");
        }
    }

    #[test]
    fn doubles_are_written_as_go_does() {
        for (value, want) in [
            (1.0, "1"),
            (-0.5, "-0.5"),
            (1e20, "1e+20"),
            (1234567.0, "1.234567e+06"),
            (1.5e-7, "1.5e-07"),
            (123456.789, "123456.789"),
            (f64::INFINITY, "+Inf"),
        ] {
            assert_eq!(double_text(value), want);
        }
    }
}
