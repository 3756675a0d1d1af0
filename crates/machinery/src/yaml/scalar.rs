//! Resolution of unquoted words: null, a boolean, a number or a string.

use crate::json::{Number, Value};

use crate::go_text;

/// A resolved word.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Scalar {
    Null,
    Bool(bool),
    Int(i128),
    Float(f64),
    /// `<<`: merges the members of another mapping.
    Merge,
    Text,
}

pub(super) fn resolve(word: &str) -> Scalar {
    match word {
        "" | "~" | "null" | "Null" | "NULL" => return Scalar::Null,
        "y" | "Y" | "yes" | "Yes" | "YES" | "true" | "True" | "TRUE" | "on" | "On" | "ON" => return Scalar::Bool(true),
        "n" | "N" | "no" | "No" | "NO" | "false" | "False" | "FALSE" | "off" | "Off" | "OFF" => {
            return Scalar::Bool(false);
        }
        ".nan" | ".NaN" | ".NAN" => return Scalar::Float(f64::NAN),
        ".inf" | ".Inf" | ".INF" | "+.inf" | "+.Inf" | "+.INF" => return Scalar::Float(f64::INFINITY),
        "-.inf" | "-.Inf" | "-.INF" => return Scalar::Float(f64::NEG_INFINITY),
        "<<" => return Scalar::Merge,
        _ => {}
    }
    match word.as_bytes()[0] {
        b'.' => float(word).unwrap_or(Scalar::Text),
        b'0'..=b'9' | b'+' | b'-' => {
            let plain = word.replace('_', "");
            integer(&plain).map(Scalar::Int).or_else(|| float(&plain)).unwrap_or(Scalar::Text)
        }
        _ => Scalar::Text,
    }
}

/// Parses a decimal integer, or one with a prefix: `0x`, `0b`, `0o`, and a bare `0` for octal.
fn integer(plain: &str) -> Option<i128> {
    let (negative, digits) = match plain.as_bytes() {
        [b'-', ..] => (true, &plain[1..]),
        [b'+', ..] => (false, &plain[1..]),
        _ => (false, plain),
    };
    let lower = digits.get(..2).map(str::to_ascii_lowercase);
    let (radix, digits) = match lower.as_deref() {
        Some("0x") => (16, &digits[2..]),
        Some("0b") => (2, &digits[2..]),
        Some("0o") => (8, &digits[2..]),
        Some(two) if two.starts_with('0') => (8, &digits[1..]),
        _ => (10, digits),
    };
    if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_alphanumeric()) {
        return None;
    }
    let value = i128::from_str_radix(digits, radix).ok()?;
    let value = if negative { -value } else { value };
    // Unsigned numbers have no sign, not even a plus.
    let max = if plain.starts_with(['+', '-']) { i128::from(i64::MAX) } else { i128::from(u64::MAX) };
    (i128::from(i64::MIN)..=max).contains(&value).then_some(value)
}

fn float(plain: &str) -> Option<Scalar> {
    let unsigned = plain.strip_prefix(['-', '+']).unwrap_or(plain);
    let (mantissa, exponent) = match unsigned.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, Some(exponent)),
        None => (unsigned, None),
    };
    let all_digits = |text: &str| text.bytes().all(|b| b.is_ascii_digit());
    let mantissa_ok = match mantissa.split_once('.') {
        Some(("", fraction)) => !fraction.is_empty() && all_digits(fraction),
        Some((whole, fraction)) => all_digits(whole) && all_digits(fraction),
        None => !mantissa.is_empty() && all_digits(mantissa),
    };
    let exponent_ok = exponent.is_none_or(|exponent| {
        let digits = exponent.strip_prefix(['-', '+']).unwrap_or(exponent);
        !digits.is_empty() && all_digits(digits)
    });
    let value: f64 = (mantissa_ok && exponent_ok).then(|| plain.parse().ok())??;
    value.is_finite().then_some(Scalar::Float(value))
}

/// Converts a resolved word to JSON; the error is for numbers that JSON cannot represent.
pub(super) fn to_json(scalar: &Scalar, word: &str) -> Result<Value, String> {
    Ok(match scalar {
        Scalar::Null => Value::Null,
        Scalar::Bool(value) => Value::Bool(*value),
        Scalar::Int(value) => match (i64::try_from(*value), u64::try_from(*value)) {
            (Ok(signed), _) => signed.into(),
            (_, Ok(unsigned)) => unsigned.into(),
            _ => Value::from(word),
        },
        // Whole numbers lose their fraction in the reference's conversion to JSON.
        Scalar::Float(value) if value.fract() == 0.0 && value.abs() < 9e15 => (*value as i64).into(),
        Scalar::Float(value) => {
            let number = Number::from_f64(*value);
            number.map(Value::Number).ok_or_else(|| {
                let shown = if value.is_nan() {
                    "NaN"
                } else if *value > 0.0 {
                    "+Inf"
                } else {
                    "-Inf"
                };
                format!("json: unsupported value: {shown}")
            })?
        }
        Scalar::Merge | Scalar::Text => Value::from(word),
    })
}

/// Converts a resolved word to the key of a JSON object.
pub(super) fn to_key(scalar: &Scalar, word: &str) -> Option<String> {
    match scalar {
        Scalar::Null => None,
        Scalar::Bool(value) => Some(value.to_string()),
        Scalar::Int(value) => Some(value.to_string()),
        Scalar::Float(value) if value.is_finite() => Some(go_text::float(*value)),
        Scalar::Float(_) | Scalar::Merge | Scalar::Text => Some(word.to_owned()),
    }
}

/// Returns whether a text stays a string without quotes.
pub(super) fn is_plain_text(text: &str) -> bool {
    matches!(resolve(text), Scalar::Text | Scalar::Merge) && !is_base_60(text) && !is_timestamp(text)
}

/// Returns whether a text is a number of base 60 (`1:30`) to some parsers.
fn is_base_60(text: &str) -> bool {
    let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
    let mut parts = unsigned.split(':');
    let first = parts.next().unwrap_or_default();
    if !first.starts_with(|c: char| c.is_ascii_digit()) || !first.bytes().all(|b| b.is_ascii_digit() || b == b'_') {
        return false;
    }
    let mut rest: Vec<&str> = parts.collect();
    let Some(last) = rest.pop() else { return false };
    let (last, fraction) = last.split_once('.').unwrap_or((last, ""));
    rest.push(last);
    fraction.bytes().all(|b| b.is_ascii_digit() || b == b'_')
        && rest.iter().all(|part| {
            part.bytes().all(|b| b.is_ascii_digit())
                && (part.len() == 1 || (part.len() == 2 && part.as_bytes()[0] <= b'5'))
        })
}

/// Returns whether a text is a time (`2020-01-01`) to other parsers; here it is a string.
fn is_timestamp(text: &str) -> bool {
    let number = |text: &str, max: u32| {
        (1..=2).contains(&text.len())
            && text.bytes().all(|b| b.is_ascii_digit())
            && text.parse().is_ok_and(|n: u32| n <= max)
    };
    let (date, time) = match text.split_once(['T', 't', ' ']) {
        Some((date, time)) => (date, Some(time)),
        None => (text, None),
    };
    let parts: Vec<&str> = date.split('-').collect();
    let [year, month, day] = parts.as_slice() else { return false };
    if year.len() != 4 || !year.bytes().all(|b| b.is_ascii_digit()) || !number(month, 12) || !number(day, 31) {
        return false;
    }
    let Some(time) = time else { return true };
    let clock = time.split(['Z', '+', '-']).next().unwrap_or_default();
    let parts: Vec<&str> = clock.split(':').collect();
    let [hour, minute, second] = parts.as_slice() else { return false };
    let second = second.split('.').next().unwrap_or_default();
    number(hour, 23) && number(minute, 59) && number(second, 59)
}
