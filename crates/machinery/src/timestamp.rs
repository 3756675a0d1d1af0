//! Times in objects: RFC 3339 in UTC, to the second (`Time`) or to the microsecond (`MicroTime`).

use jiff::Timestamp;
use jiff::civil::date;

use crate::go_text::quote;

const LAYOUT: &str = "2006-01-02T15:04:05Z07:00";

/// Formats `2026-11-15T08:30:00Z`, as in creationTimestamp and most others. Fractions are truncated.
#[must_use]
pub fn seconds(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// Formats `2026-11-15T08:30:00.000000Z`, as in leases and events.
#[must_use]
pub fn micros(time: Timestamp) -> String {
    let micros = time.subsec_nanosecond().rem_euclid(1_000_000_000) / 1000;
    format!("{}.{micros:06}Z", time.strftime("%Y-%m-%dT%H:%M:%S"))
}

/// Parses RFC 3339, with or without a fraction, in any zone. The error is that of Go's `time.Parse`.
pub fn parse(text: &str) -> Result<Timestamp, String> {
    let fault = |rest: &str, element: &str| {
        format!("parsing time {} as {}: cannot parse {} as {}", quote(text), quote(LAYOUT), quote(rest), quote(element))
    };
    let out_of_range = |what: &str| format!("parsing time {}: {what} out of range", quote(text));
    let mut rest = text;
    let mut numbers = [0_i16; 6];
    // The day is checked at the end, when month and year are known.
    let elements = [
        ("2006", 4, "", 0..=9999, ""),
        ("01", 2, "-", 1..=12, "month"),
        ("02", 2, "-", 0..=99, ""),
        ("15", 2, "T", 0..=23, "hour"),
        ("04", 2, ":", 0..=59, "minute"),
        ("05", 2, ":", 0..=59, "second"),
    ];
    for (i, (element, width, before, range, name)) in elements.into_iter().enumerate() {
        rest = rest.strip_prefix(before).ok_or_else(|| fault(rest, before))?;
        let digits = rest.get(..width).filter(|digits| digits.bytes().all(|b| b.is_ascii_digit()));
        numbers[i] = digits.and_then(|digits| digits.parse().ok()).ok_or_else(|| fault(rest, element))?;
        if !range.contains(&numbers[i]) {
            return Err(out_of_range(name));
        }
        rest = &rest[width..];
    }
    let mut nanos = 0_i64;
    if let Some(tail) = rest.strip_prefix(['.', ',']) {
        let len = tail.bytes().position(|b| !b.is_ascii_digit()).unwrap_or(tail.len());
        if len == 0 {
            return Err(fault(rest, "Z07:00"));
        }
        let digits = &tail[..len.min(9)];
        nanos = digits.parse::<i64>().unwrap_or_default() * 10_i64.pow(9 - digits.len() as u32);
        rest = &tail[len..];
    }
    let offset_seconds = match rest.as_bytes() {
        [b'Z', ..] => {
            rest = &rest[1..];
            0
        }
        [sign @ (b'+' | b'-'), h1, h2, b':', m1, m2, ..] if [h1, h2, m1, m2].iter().all(|b| b.is_ascii_digit()) => {
            let two = |a: &u8, b: &u8| i64::from(a - b'0') * 10 + i64::from(b - b'0');
            let (hours, minutes) = (two(h1, h2), two(m1, m2));
            if hours > 24 || minutes > 60 {
                return Err(out_of_range(if hours > 24 { "time zone offset hour" } else { "time zone offset minute" }));
            }
            rest = &rest[6..];
            (hours * 3600 + minutes * 60) * if *sign == b'-' { -1 } else { 1 }
        }
        _ => return Err(fault(rest, "Z07:00")),
    };
    if !rest.is_empty() {
        return Err(format!("parsing time {}: extra text: {}", quote(text), quote(rest)));
    }
    let [year, month, day, hour, minute, second] = numbers;
    // The month is checked already; the numbers have at most two digits.
    if day < 1 || day > i16::from(date(year, month as i8, 1).days_in_month()) {
        return Err(out_of_range("day"));
    }
    let civil = date(year, month as i8, day as i8).at(hour as i8, minute as i8, second as i8, 0);
    let time = jiff::tz::Offset::UTC.to_timestamp(civil).map_err(|_| out_of_range("year"))?;
    let nanos = time.as_nanosecond() + i128::from(nanos) - i128::from(offset_seconds) * 1_000_000_000;
    Timestamp::from_nanosecond(nanos).map_err(|_| out_of_range("year"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_and_writes() {
        for (text, want_seconds, want_micros) in [
            ("2026-11-15T08:30:00Z", "2026-11-15T08:30:00Z", "2026-11-15T08:30:00.000000Z"),
            ("2026-11-15T08:30:00.1234567Z", "2026-11-15T08:30:00Z", "2026-11-15T08:30:00.123456Z"),
            ("2026-11-15T08:30:00+02:30", "2026-11-15T06:00:00Z", "2026-11-15T06:00:00.000000Z"),
            ("2024-02-29T23:59:59-00:30", "2024-03-01T00:29:59Z", "2024-03-01T00:29:59.000000Z"),
            ("0001-01-01T00:00:00Z", "0001-01-01T00:00:00Z", "0001-01-01T00:00:00.000000Z"),
        ] {
            let time = parse(text).unwrap_or_else(|e| panic!("{text}: {e}"));
            assert_eq!(seconds(time), want_seconds);
            assert_eq!(micros(time), want_micros);
        }
    }

    #[test]
    fn says_what_is_wrong() {
        for (text, want) in [
            ("abc", "parsing time \"abc\" as \"2006-01-02T15:04:05Z07:00\": cannot parse \"abc\" as \"2006\""),
            ("2026-11-15", "parsing time \"2026-11-15\" as \"2006-01-02T15:04:05Z07:00\": cannot parse \"\" as \"T\""),
            (
                "2026-11-15T08:30:00",
                "parsing time \"2026-11-15T08:30:00\" as \"2006-01-02T15:04:05Z07:00\": cannot parse \"\" as \"Z07:00\"",
            ),
            ("2026-13-15T08:30:00Z", "parsing time \"2026-13-15T08:30:00Z\": month out of range"),
            ("2026-02-30T08:30:00Z", "parsing time \"2026-02-30T08:30:00Z\": day out of range"),
            ("2026-02-03T08:30:00Zx", "parsing time \"2026-02-03T08:30:00Zx\": extra text: \"x\""),
        ] {
            assert_eq!(parse(text), Err(want.to_owned()));
        }
    }
}
