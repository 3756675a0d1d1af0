//! The one form in which a quantity is written: `1000m` is `1`, `0.5` is `500m`, `1024Mi` is `1Gi`.

const MALFORMED: &str = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'";
const NUMERIC: &str = "unable to parse numeric part of quantity";
const SUFFIX: &str = "unable to parse quantity's suffix";

/// Quantities are counted in billionths; nothing finer is kept.
const NANO_EXPONENT: i32 = -9;
const BINARY_MAX: i128 = i64::MAX as i128 * 1_000_000_000;
const VALUE_MAX: i128 = i128::MAX / 10_000;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Format {
    Decimal,
    Exponent,
    Binary,
}

/// The canonical text of a quantity, or what the reference says about a malformed one.
pub(super) fn canonical(text: &str) -> Result<String, &'static str> {
    let text = text.trim();
    let (nanos, format, is_kept) = parse(text)?;
    if is_kept {
        return Ok(text.to_owned());
    }
    if nanos == 0 {
        return Ok("0".to_owned());
    }
    let whole = nanos % 1_000_000_000 == 0;
    let units = nanos / 1_000_000_000;
    if format == Format::Binary && whole && units.abs() >= 1024 {
        let (mut number, mut power) = (units, 0);
        while number % 1024 == 0 && power < 6 {
            number /= 1024;
            power += 1;
        }
        let suffix = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"][power];
        return Ok(format!("{number}{suffix}"));
    }
    let (mut number, mut exponent) = (nanos, NANO_EXPONENT);
    while number % 10 == 0 {
        number /= 10;
        exponent += 1;
    }
    while exponent % 3 != 0 {
        number *= 10;
        exponent -= 1;
    }
    if format == Format::Exponent {
        return Ok(if exponent == 0 { number.to_string() } else { format!("{number}e{exponent}") });
    }
    while exponent > 18 {
        number *= 1000;
        exponent -= 3;
    }
    let suffix = ["n", "u", "m", "", "k", "M", "G", "T", "P", "E"][usize::try_from(exponent / 3 + 3).unwrap_or(3)];
    Ok(format!("{number}{suffix}"))
}

/// The amount, how it was written, and whether the reference takes that writing for canonical.
fn parse(text: &str) -> Result<(i128, Format, bool), &'static str> {
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let number_length = unsigned.bytes().take_while(|b| b.is_ascii_digit() || *b == b'.').count();
    let (number, suffix) = unsigned.split_at(number_length);
    if number.is_empty() {
        return Err(MALFORMED);
    }
    let letters = suffix.bytes().take_while(|b| b"eEinumkKMGTP".contains(b)).count();
    let tail = &suffix[letters..];
    let tail_digits = tail.strip_prefix(['+', '-']).unwrap_or(tail);
    if !tail_digits.bytes().all(|b| b.is_ascii_digit()) {
        return Err(MALFORMED);
    }
    let (base, power, format) = unit(suffix)?;
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if fraction.contains('.') || (whole.is_empty() && fraction.is_empty()) {
        return Err(NUMERIC);
    }
    let magnitude = scale(whole, fraction, base, power);
    let nanos = if text.starts_with('-') { -magnitude } else { magnitude };
    Ok((nanos, format, is_kept(whole.trim_start_matches('0'), fraction, power, format)))
}

/// The reference's own quick test: short numbers with a power of a thousand and no three zeros at the end are written as
/// they came, which keeps a plus sign and odd exponents too.
fn is_kept(whole: &str, fraction: &str, power: i32, format: Format) -> bool {
    let digits = whole.len().max(1) + fraction.len();
    if format == Format::Binary {
        let value: i64 = whole.parse().unwrap_or(0);
        return fraction.is_empty() && digits <= 14 - 3 * power.unsigned_abs() as usize && value & 7 != 0;
    }
    let scale = power - i32::try_from(fraction.len()).unwrap_or(i32::MAX);
    let zeros =
        if fraction.len() >= 3 { fraction.ends_with("000") } else { format!("{whole}{fraction}").ends_with("000") };
    digits <= 18 && scale >= NANO_EXPONENT && scale % 3 == 0 && !zeros && !whole.is_empty()
}

/// The base and power that a suffix stands for.
fn unit(suffix: &str) -> Result<(i128, i32, Format), &'static str> {
    let decimal = |power| Ok((10, power, Format::Decimal));
    let binary = |power| Ok((1024, power, Format::Binary));
    match suffix {
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
        "Ki" => binary(1),
        "Mi" => binary(2),
        "Gi" => binary(3),
        "Ti" => binary(4),
        "Pi" => binary(5),
        "Ei" => binary(6),
        _ => match suffix.strip_prefix(['e', 'E']).map(str::parse::<i32>) {
            Some(Ok(power)) => Ok((10, power, Format::Exponent)),
            _ => Err(SUFFIX),
        },
    }
}

/// Billionths, capped at the largest quantity; a rest below one billionth counts as one.
fn scale(whole: &str, fraction: &str, base: i128, power: i32) -> i128 {
    let (mut multiplier, exponent) = if base == 10 { (1, power) } else { (1i128 << (10 * power), 0) };
    // The value is digits × 10^(shift) billionths.
    let digits = || whole.bytes().chain(fraction.bytes()).skip_while(|d| *d == b'0');
    let shift = i64::from(exponent) - i64::from(NANO_EXPONENT) - fraction.len() as i64;
    let count = digits().count() as i64;
    if count == 0 {
        return 0;
    }
    let largest = if base == 10 { VALUE_MAX } else { BINARY_MAX };
    if count + shift > 36 {
        return largest;
    }
    // More than 35 digits are below what is kept; they only say that there is a rest.
    let kept = (count + shift.min(0)).clamp(0, 36);
    let taken = if shift >= 0 { count } else { kept };
    let mut rest = digits().skip(usize::try_from(taken).unwrap_or(0)).any(|d| d != b'0');
    let mut value: i128 = 0;
    for digit in digits().take(usize::try_from(taken).unwrap_or(0)) {
        value = value.saturating_mul(10).saturating_add(i128::from(digit - b'0'));
    }
    for _ in 0..shift.max(0) {
        value = value.saturating_mul(10);
    }
    if multiplier > 1 && rest {
        // A binary multiple of a very long fraction: keep the lost digits in the product as far as they count.
        let lost: f64 = digits()
            .skip(usize::try_from(taken).unwrap_or(0))
            .take(15)
            .zip(1..)
            .fold(0.0, |sum, (d, at)| sum + f64::from(d - b'0') / 10f64.powi(at));
        let extra = lost * multiplier as f64;
        value = value.saturating_mul(multiplier).saturating_add(extra.floor() as i128);
        rest = extra.fract() > 1e-9;
        multiplier = 1;
    }
    value = value.saturating_mul(multiplier).saturating_add(i128::from(rest));
    value.min(largest)
}

#[cfg(test)]
mod tests {
    use super::canonical;

    #[test]
    fn one_form_for_each_amount() {
        for (text, wanted) in [
            ("1", "1"),
            ("1000m", "1"),
            ("0.5", "500m"),
            ("1500m", "1500m"),
            ("100000k", "100M"),
            ("1024Mi", "1Gi"),
            ("1.5Gi", "1536Mi"),
            ("0.5Ki", "512"),
            ("1Ki", "1Ki"),
            ("1536", "1536"),
            ("0", "0"),
            ("0.0", "0"),
            ("-0", "0"),
            ("-1500m", "-1500m"),
            ("+2000", "2k"),
            ("1e3", "1e3"),
            ("12E2", "1200"),
            ("1E", "1E"),
            ("2n", "2n"),
            ("0.0000000001", "1n"),
            ("100m", "100m"),
            ("128974848", "128974848"),
            ("129M", "129M"),
            ("123Mi", "123Mi"),
            ("9999999999999999999", "9999999999999999999"),
            ("9999999999999999999Ki", "9223372036854775807"),
            ("+1", "+1"),
            ("1e-3", "1e-3"),
            ("12e3", "12e3"),
            ("007", "007"),
            (".5", "500m"),
            ("5.", "5."),
            ("1000Ki", "1000Ki"),
        ] {
            assert_eq!(canonical(text).as_deref(), Ok(wanted), "{text}");
        }
    }

    #[test]
    fn malformed_ones_are_refused_in_three_ways() {
        for text in ["", "abc", "1 2", "1x", "--1", "1Gib", " "] {
            assert!(canonical(text).unwrap_err().starts_with("quantities must match"), "{text}");
        }
        assert_eq!(canonical("1ee"), Err("unable to parse quantity's suffix"));
        assert_eq!(canonical("1K"), Err("unable to parse quantity's suffix"));
        assert_eq!(canonical("1.2.3"), Err("unable to parse numeric part of quantity"));
    }
}
