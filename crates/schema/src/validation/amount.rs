//! Quantities, as far as comparing them goes.

use machinery::field_error::{FieldError, Path};
use serde_json::Value;

use super::Errors;
use super::rules::NOT_NEGATIVE;

/// An exact amount in billionths, large enough for what a quantity can say; larger ones saturate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Amount(i128);

const UNIT: i128 = 1_000_000_000;

impl Amount {
    pub(super) const ZERO: Amount = Amount(0);

    pub(super) fn parse(text: &str) -> Option<Self> {
        let end = text.find(|c: char| !c.is_ascii_digit() && !".+-".contains(c)).unwrap_or(text.len());
        let (mut number, mut suffix) = text.split_at(end);
        let mut exponent: i32 = 0;
        // `1e3`, but `1E` is a suffix.
        if let Some(digits) = suffix.strip_prefix(['e', 'E'])
            && let Ok(value) = digits.parse()
        {
            exponent = value;
            suffix = "";
        } else if let Some(at) = number[1.min(number.len())..].find(['+', '-']) {
            number = &number[..=at];
        }
        let scale: i128 = match suffix {
            "" => UNIT,
            "n" => 1,
            "u" => 1_000,
            "m" => 1_000_000,
            "k" => UNIT * 1_000,
            "M" => UNIT * 1_000_000,
            "G" => UNIT * 1_000_000_000,
            "T" => UNIT * 1_000_000_000_000,
            "P" => UNIT * 1_000_000_000_000_000,
            "E" => UNIT * 1_000_000_000_000_000_000,
            "Ki" => UNIT << 10,
            "Mi" => UNIT << 20,
            "Gi" => UNIT << 30,
            "Ti" => UNIT << 40,
            "Pi" => UNIT << 50,
            "Ei" => UNIT << 60,
            _ => return None,
        };
        let (negative, digits) = match number.strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, number.strip_prefix('+').unwrap_or(number)),
        };
        let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
        if whole.is_empty() && fraction.is_empty() {
            return None;
        }
        let mut value: i128 = 0;
        for digit in whole.bytes() {
            value = value.saturating_mul(10).saturating_add(i128::from(digit.wrapping_sub(b'0')));
        }
        value = value.saturating_mul(scale);
        let mut place = scale;
        for digit in fraction.bytes() {
            place /= 10;
            value = value.saturating_add(place.saturating_mul(i128::from(digit.wrapping_sub(b'0'))));
        }
        for _ in 0..exponent.unsigned_abs().min(40) {
            value = if exponent < 0 { value / 10 } else { value.saturating_mul(10) };
        }
        Some(Amount(if negative { -value } else { value }))
    }

    /// What JSON says; something that is no quantity is zero, since decoding has refused it before.
    pub(super) fn of(value: &Value) -> Self {
        let parsed = match value {
            Value::String(text) => Self::parse(text),
            Value::Number(number) => Self::parse(&number.to_string()),
            _ => None,
        };
        parsed.unwrap_or(Self::ZERO)
    }

    pub(super) fn is_negative(self) -> bool {
        self.0 < 0
    }

    pub(super) fn is_whole(self) -> bool {
        self.0 % UNIT == 0
    }

    /// Rounded up to a whole number.
    pub(super) fn whole(self) -> i64 {
        let (quotient, rest) = (self.0.div_euclid(UNIT), self.0.rem_euclid(UNIT));
        i64::try_from(quotient + i128::from(rest > 0)).unwrap_or(i64::MAX)
    }

    /// Whether it is a positive multiple of another.
    pub(super) fn is_multiple_of(self, size: Self) -> bool {
        size.0 > 0 && self.0 > 0 && self.0 % size.0 == 0
    }
}

impl std::ops::Add for Amount {
    type Output = Amount;

    fn add(self, other: Amount) -> Amount {
        Amount(self.0.saturating_add(other.0))
    }
}

/// How a quantity reads in a message.
pub(super) fn text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

pub(super) fn not_negative(errors: &mut Errors, path: &Path<'_>, value: &Value) {
    if Amount::of(value).is_negative() {
        errors.push(FieldError::invalid(path, text(value), NOT_NEGATIVE));
    }
}

pub(super) fn positive(errors: &mut Errors, path: &Path<'_>, value: &Value) {
    if Amount::of(value) <= Amount::ZERO {
        errors.push(FieldError::invalid(path, text(value), "must be greater than zero"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_compare_across_suffixes() {
        let amount = |text: &str| Amount::parse(text).unwrap();
        assert!(amount("1Gi") > amount("1G") && amount("1000m") == amount("1") && amount("1e3") == amount("1k"));
        assert!(amount("-1Gi").is_negative() && !amount("1500m").is_whole() && amount("2").is_whole());
        assert!(amount("1E") == amount("1000P") && amount("0.5Gi") == amount("512Mi"));
        assert!(amount("4Mi").is_multiple_of(amount("2Mi")) && !amount("3Mi").is_multiple_of(amount("2Mi")));
        assert_eq!((amount("1500m").whole(), amount("-1Gi").whole()), (2, -1_073_741_824));
        assert_eq!(Amount::parse("abc"), None);
        assert_eq!(Amount::parse(""), None);
    }
}
