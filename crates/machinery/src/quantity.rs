//! Amounts of resources: `100m`, `1.5Gi`, `2e3`. Exact arithmetic, and the canonical text of the reference.
//!
//! A quantity is `mantissa × 10^scale`; the finest is 10⁻⁹, finer input is rounded up. It keeps the notation that it was
//! written in, one of three, and is printed in it with the smallest number that loses nothing: `1000m` is `1`, `1024Mi` is
//! `1Gi`, `0.5` is `500m`.
//!
//! Written by hand because objects must be stored in canonical form: the crate `kube_quantity` prints `2.5Gi` as it was
//! written, the reference stores `2560Mi`.

use std::cmp::Ordering;
use std::fmt;
use std::str::FromStr;

const NANO: i32 = -9;
/// Most digits of a mantissa. The reference keeps any number of them; here the rest is rounded up.
const DIGITS_MAX: u32 = 36;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Notation {
    /// `n u m k M G T P E`
    #[default]
    Decimal,
    /// `Ki Mi Gi Ti Pi Ei`
    Binary,
    /// `e3`
    Exponent,
}

/// An amount of a resource.
#[derive(Clone, Debug, Default)]
pub struct Quantity {
    mantissa: i128,
    scale: i32,
    notation: Notation,
    /// The original text, where the reference considers it canonical and prints it unchanged (`+1`, `1.500`).
    text: Option<Box<str>>,
}

/// The reason why a text is not a quantity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QuantityError {
    Format,
    Suffix,
}

impl fmt::Display for QuantityError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            QuantityError::Format => {
                "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
            }
            QuantityError::Suffix => "unable to parse quantity's suffix",
        })
    }
}

impl std::error::Error for QuantityError {}

impl Quantity {
    #[must_use]
    pub fn new(value: i64, notation: Notation) -> Self {
        Quantity { mantissa: value.into(), scale: 0, notation, text: None }
    }

    /// Creates a quantity from a number of thousandths.
    #[must_use]
    pub fn from_milli(value: i64) -> Self {
        Quantity { mantissa: value.into(), scale: -3, notation: Notation::Decimal, text: None }
    }

    /// Parses a JSON string or number; null is zero.
    pub fn from_value(value: &crate::json::Value) -> Result<Self, QuantityError> {
        match value {
            crate::json::Value::Null => Ok(Quantity::default()),
            crate::json::Value::String(text) => text.trim().parse(),
            crate::json::Value::Number(number) => number.to_string().parse(),
            _ => Err(QuantityError::Format),
        }
    }

    #[must_use]
    pub fn notation(&self) -> Notation {
        self.notation
    }

    #[must_use]
    pub fn is_zero(&self) -> bool {
        self.mantissa == 0
    }

    #[must_use]
    pub fn is_negative(&self) -> bool {
        self.mantissa < 0
    }

    /// Returns whole units, a fraction rounded away from zero, saturating.
    #[must_use]
    pub fn value(&self) -> i64 {
        self.scaled(0)
    }

    /// Returns thousandths, rounded as [`Quantity::value`].
    #[must_use]
    pub fn milli_value(&self) -> i64 {
        self.scaled(-3)
    }

    fn scaled(&self, scale: i32) -> i64 {
        let (value, _) = rescale(self.mantissa, self.scale, scale);
        i64::try_from(value).unwrap_or(if self.mantissa < 0 { i64::MIN } else { i64::MAX })
    }

    /// Returns whether [`Quantity::value`] is exact.
    #[must_use]
    pub fn is_integer(&self) -> bool {
        rescale(self.mantissa, self.scale, 0).1
    }

    /// Returns the amount if it is a whole number that fits and is not written with a fraction or a small suffix.
    #[must_use]
    pub fn whole(&self) -> Option<i64> {
        let (value, exact) = rescale(self.mantissa, self.scale.max(0), 0);
        i64::try_from(value).ok().filter(|_| exact && self.scale >= 0)
    }

    /// Returns the nearest double.
    #[must_use]
    pub fn approximate(&self) -> f64 {
        format!("{}e{}", self.mantissa, self.scale).parse().unwrap_or(f64::NAN)
    }

    #[must_use]
    pub fn plus(&self, other: &Quantity) -> Quantity {
        let notation = if self.is_zero() { other.notation } else { self.notation };
        let scale = self.scale.min(other.scale).max(NANO);
        let (a, _) = rescale(self.mantissa, self.scale, scale);
        let (b, _) = rescale(other.mantissa, other.scale, scale);
        Quantity { mantissa: a.saturating_add(b), scale, notation, text: None }
    }

    #[must_use]
    pub fn minus(&self, other: &Quantity) -> Quantity {
        self.plus(&other.negated())
    }

    #[must_use]
    pub fn negated(&self) -> Quantity {
        Quantity { mantissa: self.mantissa.saturating_neg(), text: None, ..self.clone() }
    }
}

/// Returns the mantissa at another scale, rounded away from zero and saturating, and whether that is exact.
fn rescale(mantissa: i128, from: i32, to: i32) -> (i128, bool) {
    let places = i64::from(from) - i64::from(to);
    if mantissa == 0 || places == 0 {
        return (mantissa, true);
    }
    let power = u32::try_from(places.unsigned_abs()).ok().and_then(|places| 10_i128.checked_pow(places));
    if places > 0 {
        let product = power.and_then(|power| mantissa.checked_mul(power));
        return match product {
            Some(product) => (product, true),
            None => (if mantissa < 0 { i128::MIN } else { i128::MAX }, false),
        };
    }
    match power {
        Some(power) if mantissa % power == 0 => (mantissa / power, true),
        Some(power) => (mantissa / power + mantissa.signum(), false),
        None => (mantissa.signum(), false),
    }
}

/// Removes factors of ten, so that equal amounts have equal parts.
fn normalised(mut mantissa: i128, mut scale: i32) -> (i128, i32) {
    if mantissa == 0 {
        return (0, 0);
    }
    while mantissa % 10 == 0 {
        mantissa /= 10;
        scale = scale.saturating_add(1);
    }
    (mantissa, scale)
}

impl Ord for Quantity {
    fn cmp(&self, other: &Self) -> Ordering {
        let (a, a_scale) = normalised(self.mantissa, self.scale);
        let (b, b_scale) = normalised(other.mantissa, other.scale);
        if a.signum() != b.signum() || a_scale == b_scale {
            return a.cmp(&b);
        }
        let scale = a_scale.min(b_scale);
        let (a_wide, a_exact) = rescale(a, a_scale, scale);
        let (b_wide, b_exact) = rescale(b, b_scale, scale);
        if a_exact && b_exact {
            return a_wide.cmp(&b_wide);
        }
        // The one that does not fit at the finer scale has the larger magnitude.
        let by_magnitude = if a_exact { Ordering::Less } else { Ordering::Greater };
        if a < 0 { by_magnitude.reverse() } else { by_magnitude }
    }
}

impl PartialOrd for Quantity {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// Compares amounts: `1000m` equals `1`.
impl PartialEq for Quantity {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Quantity {}

impl FromStr for Quantity {
    type Err = QuantityError;

    fn from_str(text: &str) -> Result<Self, QuantityError> {
        let parts = Parts::read(text)?;
        let (base, exponent, mut notation) = suffix(parts.suffix).ok_or(QuantityError::Suffix)?;
        if text == "0" {
            return Ok(Quantity { text: Some(text.into()), ..Quantity::default() });
        }
        let (mut mantissa, mut scale) = parts.number();
        if base == 10 {
            scale = scale.saturating_add(exponent);
        } else {
            // Digits that do not fit are beyond the cap below, or finer than the finest amount.
            let factor = 1_i128 << exponent;
            while mantissa.checked_mul(factor).is_none() {
                (mantissa, scale) = (rescale(mantissa, 0, 1).0, scale.saturating_add(1));
            }
            mantissa *= factor;
        }
        if scale < NANO {
            (mantissa, scale) = (rescale(mantissa, scale, NANO).0, NANO);
        }
        let keeps_text = parts.is_canonical(notation, exponent);
        let mut quantity = Quantity { mantissa, scale, notation, text: None };
        if notation == Notation::Binary {
            let cap = Quantity::new(i64::MAX, notation);
            if quantity > cap {
                quantity = cap;
            }
            if quantity.mantissa > 0 && quantity < Quantity::new(1, notation) {
                notation = Notation::Decimal;
            }
        }
        if parts.is_negative {
            quantity.mantissa = -quantity.mantissa;
        }
        Ok(Quantity { notation, text: keeps_text.then(|| text.into()), ..quantity })
    }
}

fn suffix(text: &str) -> Option<(u32, i32, Notation)> {
    let decimal = |exponent| Some((10, exponent, Notation::Decimal));
    let binary = |exponent| Some((2, exponent, Notation::Binary));
    match text {
        "" => decimal(0),
        "n" => decimal(-9),
        "u" => decimal(-6),
        "m" => decimal(-3),
        "k" => decimal(3),
        "M" => decimal(6),
        "G" => decimal(9),
        "T" => decimal(12),
        "P" => decimal(15),
        "E" => decimal(18),
        "Ki" => binary(10),
        "Mi" => binary(20),
        "Gi" => binary(30),
        "Ti" => binary(40),
        "Pi" => binary(50),
        "Ei" => binary(60),
        _ => {
            let exponent = text.strip_prefix(['e', 'E'])?.parse().ok()?;
            Some((10, exponent, Notation::Exponent))
        }
    }
}

struct Parts<'a> {
    is_negative: bool,
    /// Without leading zeros; empty for zero.
    whole: &'a str,
    fraction: &'a str,
    suffix: &'a str,
}

impl<'a> Parts<'a> {
    fn read(text: &'a str) -> Result<Self, QuantityError> {
        if text.is_empty() {
            return Err(QuantityError::Format);
        }
        let is_negative = text.starts_with('-');
        let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
        let (whole, rest) = split_digits(unsigned.trim_start_matches('0'));
        let (fraction, suffix) = rest.strip_prefix('.').map_or(("", rest), split_digits);
        let letters = suffix.trim_start_matches(['e', 'E', 'i', 'n', 'u', 'm', 'k', 'K', 'M', 'G', 'T', 'P']);
        let digits = letters.strip_prefix(['-', '+']).unwrap_or(letters);
        if !digits.bytes().all(|b| b.is_ascii_digit()) {
            return Err(QuantityError::Format);
        }
        Ok(Parts { is_negative, whole, fraction, suffix })
    }

    /// Returns the digits as one number, and how many of them follow the point.
    fn number(&self) -> (i128, i32) {
        let (mut mantissa, mut scale, mut kept) = (0_i128, 0_i32, 0_u32);
        let mut lost = false;
        for (digits, step) in [(self.whole, 0), (self.fraction, -1)] {
            for digit in digits.bytes() {
                if kept < DIGITS_MAX {
                    mantissa = mantissa * 10 + i128::from(digit - b'0');
                    kept += u32::from(mantissa != 0);
                    scale += step;
                } else {
                    lost |= digit != b'0';
                    scale += step + 1;
                }
            }
        }
        (mantissa + i128::from(lost), scale)
    }

    /// Returns whether the reference prints the text unchanged. Its test is cheap and so accepts some odd texts.
    fn is_canonical(&self, notation: Notation, exponent: i32) -> bool {
        let whole = if self.whole.is_empty() { "0" } else { self.whole };
        let digits = whole.len() + self.fraction.len();
        if notation == Notation::Binary {
            let short = 15 - whole.len() as i64 - i64::from(exponent) * 3 / 10 > 0;
            return self.fraction.is_empty() && short && whole.parse::<i64>().is_ok_and(|value| value & 7 != 0);
        }
        let Some(scale) = exponent.checked_sub(i32::try_from(self.fraction.len()).unwrap_or(i32::MAX)) else {
            return false;
        };
        let ends_in_thousands = whole.bytes().chain(self.fraction.bytes()).rev().take(3).eq(*b"000");
        digits <= 18 && scale >= NANO && scale % 3 == 0 && !ends_in_thousands && !whole.starts_with('0')
    }
}

fn split_digits(text: &str) -> (&str, &str) {
    text.split_at(text.bytes().position(|b| !b.is_ascii_digit()).unwrap_or(text.len()))
}

impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(text) = &self.text {
            return f.write_str(text);
        }
        if self.is_zero() {
            return f.write_str("0");
        }
        let mut notation = self.notation;
        if notation == Notation::Binary {
            let (whole, exact) = rescale(self.mantissa, self.scale, 0);
            if exact && !(-1023..=1023).contains(&whole) {
                let (mut number, mut power) = (whole, 0);
                while number % 1024 == 0 && power < 6 {
                    number /= 1024;
                    power += 1;
                }
                return write!(f, "{number}{}", ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"][power]);
            }
            notation = Notation::Decimal;
        }
        let (mut number, mut exponent) = normalised(self.mantissa, self.scale);
        // Written out, the number would have more digits than fit: only an exponent can express it.
        if exponent > 18 && 10_i128.checked_pow(exponent as u32 - 18).is_none_or(|by| number.checked_mul(by).is_none())
        {
            notation = Notation::Exponent;
        }
        while exponent % 3 != 0 || (notation == Notation::Decimal && exponent > 18) {
            match number.checked_mul(10) {
                Some(wider) => number = wider,
                None => break,
            }
            exponent -= 1;
        }
        match (notation, exponent) {
            (_, 0) => write!(f, "{number}"),
            (Notation::Decimal, -9..=18) if exponent % 3 == 0 => {
                let at = usize::try_from(exponent / 3 + 3).unwrap_or_default();
                write!(f, "{number}{}", ["n", "u", "m", "", "k", "M", "G", "T", "P", "E"][at])
            }
            _ => write!(f, "{number}e{exponent}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn quantity(text: &str) -> Quantity {
        text.parse().unwrap_or_else(|e| panic!("{text}: {e}"))
    }

    #[test]
    fn canonical_text() {
        for (text, want) in [
            ("0", "0"),
            ("1", "1"),
            ("100m", "100m"),
            ("1000m", "1"),
            ("1500m", "1500m"),
            ("0.5", "500m"),
            ("1.5", "1500m"),
            ("0.1", "100m"),
            ("1.500", "1.500"),
            ("+1", "+1"),
            ("-0.5", "-500m"),
            ("1000", "1k"),
            ("1000k", "1M"),
            ("1024Ki", "1Mi"),
            ("1025Ki", "1025Ki"),
            ("1024", "1024"),
            ("1Gi", "1Gi"),
            ("1.5Gi", "1536Mi"),
            ("0.5Ki", "512"),
            ("0.5Mi", "512Ki"),
            ("100Mi", "100Mi"),
            ("2048Mi", "2Gi"),
            ("0.1Ki", "102400m"),
            ("1e3", "1e3"),
            ("1000e3", "1e6"),
            ("12e-1", "1200e-3"),
            ("1E", "1E"),
            ("0.0000000001", "1n"),
            ("1n", "1n"),
            ("100u", "100u"),
            ("0Ki", "0"),
            ("Ki", "0"),
            (".5", "500m"),
            ("8Ki", "8Ki"),
            ("16Ei", "9223372036854775807"),
        ] {
            assert_eq!(quantity(text).to_string(), want, "{text}");
        }
    }

    #[test]
    fn what_is_too_long_to_be_written_out_has_an_exponent() {
        let nines = quantity(&"9".repeat(400)).to_string();
        assert_eq!(nines, "10e399");
        assert_eq!(quantity(&nines).to_string(), nines);
        assert_eq!(quantity(&"9".repeat(30)).to_string(), "9".repeat(30));
    }

    #[test]
    fn refused() {
        for text in ["", "abc", "1.2.3", "1 ", " 1", "1x", "1e1.5", "1e3x"] {
            assert_eq!(text.parse::<Quantity>(), Err(QuantityError::Format), "{text}");
        }
        for text in ["1K", "1mi", "1kk", "1Mi3", "1e", "1ee3"] {
            assert_eq!(text.parse::<Quantity>(), Err(QuantityError::Suffix), "{text}");
        }
    }

    #[test]
    fn values_round_away_from_zero() {
        for (text, value, milli) in [
            ("1500m", 2, 1500),
            ("1", 1, 1000),
            ("-1500m", -2, -1500),
            ("1Gi", 1 << 30, 1000 << 30),
            ("1n", 1, 1),
            ("1e30", i64::MAX, i64::MAX),
        ] {
            assert_eq!((quantity(text).value(), quantity(text).milli_value()), (value, milli), "{text}");
        }
        assert!(quantity("1k").is_integer());
        assert!(!quantity("1m").is_integer());
    }

    #[test]
    fn order_is_by_amount() {
        let sorted = ["-1e40", "-1", "-1m", "0", "1n", "999m", "1", "1k", "1Ki", "1e20", "1e50", "2e50"];
        for (i, a) in sorted.iter().enumerate() {
            for (j, b) in sorted.iter().enumerate() {
                assert_eq!(quantity(a).cmp(&quantity(b)), i.cmp(&j), "{a} {b}");
            }
        }
        assert_eq!(quantity("1000m"), quantity("1"));
        assert_eq!(quantity("1Ki"), quantity("1024"));
    }

    #[test]
    fn sums_keep_the_notation_of_the_first() {
        assert_eq!(quantity("1Gi").plus(&quantity("1Gi")).to_string(), "2Gi");
        assert_eq!(quantity("100m").plus(&quantity("1")).to_string(), "1100m");
        assert_eq!(quantity("0").plus(&quantity("1Gi")).to_string(), "1Gi");
        assert_eq!(quantity("1").minus(&quantity("1500m")).to_string(), "-500m");
    }
}
