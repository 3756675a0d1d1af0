//! Timestamps and durations in the syntax of Go.

use std::cmp::Ordering;

use jiff::civil::{Date, DateTime};
use jiff::tz::{Offset, TimeZone};
use jiff::{SignedDuration, Timestamp};

use crate::value::{Fault, Outcome};

/// A duration in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Span(i64);

const UNITS: [(&str, f64); 8] =
    [("ns", 1.0), ("us", 1e3), ("µs", 1e3), ("μs", 1e3), ("ms", 1e6), ("s", 1e9), ("m", 60e9), ("h", 3600e9)];

impl Span {
    pub(crate) const fn from_nanoseconds(nanoseconds: i64) -> Span {
        Span(nanoseconds)
    }

    pub(crate) fn nanoseconds(self) -> i64 {
        self.0
    }

    pub(crate) fn is_zero(self) -> bool {
        self.0 == 0
    }

    /// `1h30m`, `-1.5s`, `0`
    pub(crate) fn parse(text: &str) -> Option<Span> {
        let (negative, mut rest) = match text.as_bytes().first()? {
            b'-' => (true, &text[1..]),
            b'+' => (false, &text[1..]),
            _ => (false, text),
        };
        if rest == "0" {
            return Some(Span(0));
        }
        if rest.is_empty() {
            return None;
        }
        let mut total: u64 = 0;
        while !rest.is_empty() {
            let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
            let (number, after) = rest.split_at(end);
            let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
            if (whole.is_empty() && fraction.is_empty()) || fraction.contains('.') {
                return None;
            }
            let end = after.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(after.len());
            let (unit, after) = after.split_at(end);
            let (_, scale) = UNITS.iter().find(|(name, _)| *name == unit)?;
            let whole: u64 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
            let mut value = whole.checked_mul(*scale as u64)?;
            if !fraction.is_empty() {
                let digits: f64 = format!("0.{fraction}").parse().ok()?;
                // Rounded where doubles are inexact, truncated below a nanosecond.
                value = value.checked_add((digits * scale + 1e-6) as u64)?;
            }
            total = total.checked_add(value)?;
            if total > 1 << 63 {
                return None;
            }
            rest = after;
        }
        if negative {
            return Some(Span((total as i64).wrapping_neg()));
        }
        i64::try_from(total).ok().map(Span)
    }

    /// Accepts `3 days` and `2 weeks` too, like the format `duration` of a schema.
    pub(crate) fn parse_lenient(text: &str) -> Option<Span> {
        if let Some(span) = Span::parse(text) {
            return Some(span);
        }
        let mut total: i64 = 0;
        let mut found = false;
        let mut rest = text;
        while let Some(start) = rest.find(|c: char| c.is_ascii_digit()) {
            rest = &rest[start..];
            let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
            let (number, after) = rest.split_at(end);
            let after = after.trim_start();
            let end = after.find(|c: char| !c.is_alphabetic()).unwrap_or(after.len());
            let (unit, after) = after.split_at(end);
            let unit = unit.to_lowercase();
            let nanoseconds = match &*unit {
                "ns" | "nano" => 1,
                "us" | "µs" | "micro" => 1_000,
                "ms" | "milli" => 1_000_000,
                "s" | "sec" => 1_000_000_000,
                "m" | "min" => 60_000_000_000,
                "h" | "hr" => 3_600_000_000_000,
                "d" => 86_400_000_000_000,
                "w" | "wk" => 604_800_000_000_000,
                _ => [
                    ("nano", 1),
                    ("micro", 1_000),
                    ("milli", 1_000_000),
                    ("second", 1_000_000_000),
                    ("minute", 60_000_000_000),
                    ("hour", 3_600_000_000_000),
                    ("day", 86_400_000_000_000),
                    ("week", 604_800_000_000_000),
                ]
                .into_iter()
                .find(|(name, _)| unit.starts_with(name))
                .map_or(0, |(_, nanoseconds)| nanoseconds),
            };
            if nanoseconds > 0 {
                found = true;
                total = total.checked_add(number.parse::<i64>().ok()?.checked_mul(nanoseconds)?)?;
            }
            rest = after;
        }
        found.then_some(Span(total))
    }

    pub(crate) fn plus(self, other: Span) -> Outcome<Span> {
        self.0.checked_add(other.0).map(Span).ok_or(Fault::from_static("duration overflow"))
    }

    pub(crate) fn minus(self, other: Span) -> Outcome<Span> {
        self.0.checked_sub(other.0).map(Span).ok_or(Fault::from_static("duration overflow"))
    }

    /// Formats in seconds: `5400s`, `0.5s`.
    pub(crate) fn to_text(self) -> String {
        format!("{}s", self.0 as f64 / 1e9)
    }
}

/// An instant with its UTC offset. [`Timestamp`] is not used because it ends a day before the year 9999 does.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Time {
    /// Seconds since 1970.
    nanoseconds: i128,
    offset: Offset,
}

impl PartialEq for Time {
    fn eq(&self, other: &Self) -> bool {
        self.nanoseconds == other.nanoseconds
    }
}

impl Eq for Time {}

impl PartialOrd for Time {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Time {
    fn cmp(&self, other: &Self) -> Ordering {
        self.nanoseconds.cmp(&other.nanoseconds)
    }
}

const SECOND: i128 = 1_000_000_000;
/// Range of CEL timestamps: year 1 to the end of year 9999.
const FIRST: i128 = -62_135_596_800;
const LAST: i128 = 253_402_300_799;
const EPOCH: DateTime = DateTime::constant(1970, 1, 1, 0, 0, 0, 0);

/// Converts a civil time at an offset.
fn instant(local: DateTime, offset: Offset) -> i128 {
    local.duration_since(EPOCH).as_nanos() - i128::from(offset.seconds()) * SECOND
}

impl Time {
    fn new(nanoseconds: i128, offset: Offset) -> Outcome<Time> {
        if (FIRST..=LAST).contains(&nanoseconds.div_euclid(SECOND)) {
            Ok(Time { nanoseconds, offset })
        } else {
            Err(Fault::from_static("timestamp overflow"))
        }
    }

    pub(crate) fn from_seconds(seconds: i64) -> Outcome<Time> {
        Time::new(i128::from(seconds) * SECOND, Offset::UTC)
    }

    pub(crate) fn seconds(self) -> i64 {
        self.nanoseconds.div_euclid(SECOND) as i64
    }

    pub(crate) fn is_zero(self) -> bool {
        self.nanoseconds == FIRST * SECOND
    }

    /// Parses RFC 3339 like Go.
    pub(crate) fn parse(text: &str) -> Option<Time> {
        read(text, false)
    }

    /// Parses the format `date-time` of a schema: the offset is optional; an empty text is the epoch.
    pub(crate) fn parse_lenient(text: &str) -> Option<Time> {
        if text.is_empty() {
            return Time::from_seconds(0).ok();
        }
        read(text, true)
    }

    /// `2006-01-02`
    pub(crate) fn parse_date(text: &str) -> Option<Time> {
        let (year, month, day) = date(text)?;
        let date = Date::new(year, month, day).ok()?;
        Time::new(instant(date.at(0, 0, 0, 0), Offset::UTC), Offset::UTC).ok()
    }

    pub(crate) fn plus(self, span: Span) -> Outcome<Time> {
        Time::new(self.nanoseconds + i128::from(span.0), self.offset)
    }

    pub(crate) fn minus(self, span: Span) -> Outcome<Time> {
        Time::new(self.nanoseconds - i128::from(span.0), self.offset)
    }

    pub(crate) fn since(self, other: Time) -> Outcome<Span> {
        let nanoseconds = self.nanoseconds - other.nanoseconds;
        i64::try_from(nanoseconds).map(Span).map_err(|_| Fault::from_static("integer overflow"))
    }

    /// Returns the civil time at an offset, clamped to the supported range.
    fn local(self, offset: Offset) -> DateTime {
        let since = self.nanoseconds + i128::from(offset.seconds()) * SECOND;
        EPOCH.saturating_add(SignedDuration::try_from_nanos_i128(since).unwrap_or(SignedDuration::ZERO))
    }

    pub(crate) fn to_text(self) -> String {
        let local = self.local(self.offset);
        let mut text = format!(
            "{:04}-{:02}-{:02}T{:02}:{:02}:{:02}",
            local.year(),
            local.month(),
            local.day(),
            local.hour(),
            local.minute(),
            local.second()
        );
        let fraction = local.subsec_nanosecond();
        if fraction != 0 {
            text.push('.');
            text.push_str(format!("{fraction:09}").trim_end_matches('0'));
        }
        let seconds = self.offset.seconds();
        if seconds == 0 {
            text.push('Z');
        } else {
            let sign = if seconds < 0 { '-' } else { '+' };
            let minutes = seconds.unsigned_abs() / 60;
            text.push_str(&format!("{sign}{:02}:{:02}", minutes / 60, minutes % 60));
        }
        text
    }

    /// Returns the civil time in a time zone: a name (`Europe/Berlin`), an offset (`+02:00`), or UTC.
    pub(crate) fn calendar(self, zone: Option<&str>) -> Outcome<DateTime> {
        let Some(zone) = zone else {
            return Ok(self.local(Offset::UTC));
        };
        let Some((hours, minutes)) = zone.split_once(':') else {
            if matches!(zone, "" | "UTC" | "Local") {
                return Ok(self.local(Offset::UTC));
            }
            let zone = TimeZone::get(zone).map_err(|_| Fault::new(format!("unknown time zone {zone}")))?;
            let at = Timestamp::from_nanosecond(self.nanoseconds).unwrap_or(Timestamp::MAX);
            return Ok(self.local(zone.to_offset(at)));
        };
        let number = |text: &str| {
            text.parse::<i32>().map_err(|_| Fault::new(format!("strconv.Atoi: parsing {text:?}: invalid syntax")))
        };
        let (hours, minutes) = (number(hours)?, number(minutes)?);
        let minutes = if zone.starts_with('-') { minutes.saturating_neg() } else { minutes };
        let offset = hours.checked_mul(60).and_then(|h| h.checked_add(minutes)).and_then(|m| m.checked_mul(60));
        let offset = offset
            .and_then(|seconds| Offset::from_seconds(seconds).ok())
            .ok_or_else(|| Fault::new(format!("unknown time zone {zone}")))?;
        Ok(self.local(offset))
    }
}

fn digits(text: &str, from: usize, count: usize) -> Option<i16> {
    let part = text.get(from..from + count)?;
    part.bytes().all(|b| b.is_ascii_digit()).then(|| part.parse().ok()).flatten()
}

fn date(text: &str) -> Option<(i16, i8, i8)> {
    let bytes = text.as_bytes();
    if bytes.len() != 10 || bytes[4] != b'-' || bytes[7] != b'-' {
        return None;
    }
    Some((digits(text, 0, 4)?, digits(text, 5, 2)? as i8, digits(text, 8, 2)? as i8))
}

fn read(text: &str, lenient: bool) -> Option<Time> {
    let (year, month, day) = date(text.get(..10)?)?;
    let clock = text.get(10..)?.strip_prefix('T')?;
    let bytes = clock.as_bytes();
    if bytes.len() < 8 || bytes[2] != b':' || bytes[5] != b':' {
        return None;
    }
    let (hour, minute, second) = (digits(clock, 0, 2)?, digits(clock, 3, 2)?, digits(clock, 6, 2)?);
    if second > 59 {
        return None;
    }
    let mut rest = clock.get(8..)?;
    let mut nanoseconds = 0;
    if let Some(fraction) = rest.strip_prefix(['.', ',']) {
        let end = fraction.find(|c: char| !c.is_ascii_digit()).unwrap_or(fraction.len());
        if end == 0 {
            return None;
        }
        let shown: String = fraction[..end].chars().chain("000000000".chars()).take(9).collect();
        nanoseconds = shown.parse().ok()?;
        rest = &fraction[end..];
    }
    let offset = match rest {
        "Z" => Offset::UTC,
        "" if lenient => Offset::UTC,
        _ => {
            let negative = match rest.as_bytes().first()? {
                b'-' => true,
                b'+' => false,
                _ => return None,
            };
            if rest.len() != 6 || rest.as_bytes()[3] != b':' {
                return None;
            }
            let (hours, minutes) = (i32::from(digits(rest, 1, 2)?), i32::from(digits(rest, 4, 2)?));
            if hours > 24 || minutes > 60 {
                return None;
            }
            let seconds = (hours * 60 + minutes) * 60;
            Offset::from_seconds(if negative { -seconds } else { seconds }).ok()?
        }
    };
    let date = Date::new(year, month, day).ok()?;
    let time = jiff::civil::Time::new(hour as i8, minute as i8, second as i8, nanoseconds).ok()?;
    Time::new(instant(date.to_datetime(time), offset), offset).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_read_and_written() {
        for (text, want) in [
            ("1h30m", Some("5400s")),
            ("-1.5s", Some("-1.5s")),
            ("0", Some("0s")),
            ("100ms", Some("0.1s")),
            (".5s", Some("0.5s")),
            ("1", None),
            ("", None),
            ("1x", None),
            ("1.2.3s", None),
            ("9999999h", None),
        ] {
            assert_eq!(Span::parse(text).map(Span::to_text).as_deref(), want, "{text}");
        }
        assert_eq!(Span::parse_lenient("3 days").map(Span::to_text).as_deref(), Some("259200s"));
        assert_eq!(Span::parse_lenient("nothing"), None);
    }

    #[test]
    fn times_keep_the_offset_they_were_written_with() {
        for (text, want) in [
            ("2020-02-29T01:02:03Z", Some("2020-02-29T01:02:03Z")),
            ("2020-01-01T00:00:00.120+02:30", Some("2020-01-01T00:00:00.12+02:30")),
            ("2020-01-01T00:00:00", None),
            ("2021-02-29T00:00:00Z", None),
            ("2020-01-01t00:00:00z", None),
            ("0000-01-01T00:00:00Z", None),
        ] {
            assert_eq!(Time::parse(text).map(Time::to_text).as_deref(), want, "{text}");
        }
        assert!(Time::parse_lenient("2020-01-01T00:00:00").is_some());
    }
}
