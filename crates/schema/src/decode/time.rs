//! Parses times like Go, with its error texts.

use std::borrow::Cow;

/// An instant in UTC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Moment {
    /// Seconds since 1970.
    seconds: i64,
    nanos: u32,
}

const RFC3339: &str = "2006-01-02T15:04:05Z07:00";
const RFC3339_MICRO: &str = "2006-01-02T15:04:05.000000Z07:00";

/// Returns the canonical form in whole seconds, UTC; `None` for the zero time, which is written as null.
pub(super) fn seconds(text: &str) -> Result<Option<Cow<'_, str>>, String> {
    if is_plainly_whole(text) {
        return Ok(Some(Cow::Borrowed(text)));
    }
    let moment = parse(text, RFC3339, false)?;
    Ok(moment.map(|m| date(m.seconds)).map(|d| kept(text, format!("{d}Z"))))
}

/// Recognises the usual canonical times without parsing. Days that not every month has are left to the parser.
fn is_plainly_whole(text: &str) -> bool {
    let bytes = text.as_bytes();
    let two = |at: usize, range: std::ops::RangeInclusive<u8>| {
        let (tens, ones) = (bytes[at].wrapping_sub(b'0'), bytes[at + 1].wrapping_sub(b'0'));
        tens < 10 && ones < 10 && range.contains(&(tens * 10 + ones))
    };
    bytes.len() == "2006-01-02T15:04:05Z".len()
        && [bytes[4], bytes[7], bytes[10], bytes[13], bytes[16], bytes[19]] == *b"--T::Z"
        // Year 1 may be the zero time.
        && two(0, 1..=99)
        && two(2, 0..=99)
        && two(5, 1..=12)
        && two(8, 1..=28)
        && two(11, 0..=23)
        && two(14, 0..=59)
        && two(17, 0..=59)
}

fn kept(text: &str, written: String) -> Cow<'_, str> {
    if written == text { Cow::Borrowed(text) } else { Cow::Owned(written) }
}

/// Returns the canonical form with six fractional digits, which the input must have.
pub(super) fn micros(text: &str) -> Result<Option<Cow<'_, str>>, String> {
    let moment = parse(text, RFC3339_MICRO, true)?;
    Ok(moment.map(|m| kept(text, format!("{}.{:06}Z", date(m.seconds), m.nanos / 1000))))
}

/// Returns seconds since 1970 and nanoseconds of a time in either form; `None` for an invalid or the zero time.
pub(crate) fn parts(text: &str) -> Option<(i64, u32)> {
    let moment = parse(text, RFC3339, false).ok()??;
    Some((moment.seconds, moment.nanos))
}

/// Formats seconds and nanoseconds: six fractional digits if there are nanoseconds. `None` outside of years 0 to 9999.
pub(crate) fn written(seconds: i64, nanos: Option<i64>) -> Option<String> {
    const SECOND: i64 = 1_000_000_000;
    let seconds = seconds.checked_add(nanos.unwrap_or_default().div_euclid(SECOND))?;
    let years = days_from_civil(0, 1, 1) * 86_400..days_from_civil(10_000, 1, 1) * 86_400;
    let date = years.contains(&seconds).then(|| date(seconds))?;
    Some(match nanos {
        None => format!("{date}Z"),
        Some(nanos) => format!("{date}.{:06}Z", nanos.rem_euclid(SECOND) / 1000),
    })
}

struct Reader<'a> {
    whole: &'a str,
    rest: &'a str,
    layout: &'static str,
}

impl<'a> Reader<'a> {
    fn failed(&self, element: &str) -> String {
        let quote = machinery::go_text::quote;
        format!(
            "parsing time {} as {}: cannot parse {} as {}",
            quote(self.whole),
            quote(self.layout),
            quote(self.rest),
            quote(element)
        )
    }

    fn out_of_range(&self, what: &str) -> String {
        format!("parsing time {}: {what} out of range", machinery::go_text::quote(self.whole))
    }

    fn digits(&mut self, count: usize, element: &str) -> Result<i64, String> {
        let digits = self.rest.as_bytes().get(..count).filter(|d| d.iter().all(u8::is_ascii_digit));
        let value = digits.map(|d| d.iter().fold(0, |sum, d| sum * 10 + i64::from(d - b'0')));
        let value = value.ok_or_else(|| self.failed(element))?;
        self.rest = &self.rest[count..];
        Ok(value)
    }

    fn literal(&mut self, text: &str) -> Result<(), String> {
        self.rest = self.rest.strip_prefix(text).ok_or_else(|| self.failed(text))?;
        Ok(())
    }

    /// Parses a fraction of a second, in nanoseconds. It is optional in the plain layout, after a dot or a comma.
    fn fraction(&mut self, required: bool) -> Result<u32, String> {
        let separated = self.rest.strip_prefix(['.', ',']);
        let length = separated.map_or(0, |rest| rest.bytes().take_while(u8::is_ascii_digit).count());
        if required && (length < 6 || !self.rest.starts_with('.')) {
            return Err(self.failed(".000000"));
        }
        if length == 0 {
            return Ok(0);
        }
        let rest = separated.unwrap_or_default();
        // With six digits in the layout exactly six are read; a seventh is an error in the zone.
        let taken = if required { 6 } else { length };
        let nanos = rest
            .bytes()
            .take(taken)
            .take(9)
            .fold((0u32, 100_000_000u32), |(sum, unit), digit| (sum + u32::from(digit - b'0') * unit, unit / 10));
        self.rest = &rest[taken..];
        Ok(nanos.0)
    }

    /// Minutes east of UTC.
    fn zone(&mut self) -> Result<i64, String> {
        if let Some(rest) = self.rest.strip_prefix('Z') {
            self.rest = rest;
            return Ok(0);
        }
        let bytes = self.rest.as_bytes();
        let well = bytes.len() >= 6
            && matches!(bytes[0], b'+' | b'-')
            && bytes[3] == b':'
            && [1, 2, 4, 5].iter().all(|at| bytes[*at].is_ascii_digit());
        if !well {
            return Err(self.failed("Z07:00"));
        }
        let two = |at: usize| i64::from(bytes[at] - b'0') * 10 + i64::from(bytes[at + 1] - b'0');
        let (hours, minutes) = (two(1), two(4));
        if hours > 24 {
            return Err(self.out_of_range("time zone offset hour"));
        }
        if minutes > 60 {
            return Err(self.out_of_range("time zone offset minute"));
        }
        let sign = if bytes[0] == b'-' { -1 } else { 1 };
        self.rest = &self.rest[6..];
        Ok(sign * (hours * 60 + minutes))
    }
}

fn parse(text: &str, layout: &'static str, micro: bool) -> Result<Option<Moment>, String> {
    let mut reader = Reader { whole: text, rest: text, layout };
    let year = reader.digits(4, "2006")?;
    reader.literal("-")?;
    let month = reader.digits(2, "01")?;
    if !(1..=12).contains(&month) {
        return Err(reader.out_of_range("month"));
    }
    reader.literal("-")?;
    let day = reader.digits(2, "02")?;
    reader.literal("T")?;
    let hour = reader.digits(2, "15")?;
    if hour > 23 {
        return Err(reader.out_of_range("hour"));
    }
    reader.literal(":")?;
    let minute = reader.digits(2, "04")?;
    if minute > 59 {
        return Err(reader.out_of_range("minute"));
    }
    reader.literal(":")?;
    let second = reader.digits(2, "05")?;
    if second > 59 {
        return Err(reader.out_of_range("second"));
    }
    let nanos = reader.fraction(micro)?;
    let offset = reader.zone()?;
    if !reader.rest.is_empty() {
        let quote = machinery::go_text::quote;
        return Err(format!("parsing time {}: extra text: {}", quote(text), quote(reader.rest)));
    }
    if day < 1 || day > days_in_month(year, month) {
        return Err(reader.out_of_range("day"));
    }
    let seconds = days_from_civil(year, month, day) * 86_400 + hour * 3600 + minute * 60 + second - offset * 60;
    let zero = days_from_civil(1, 1, 1) * 86_400;
    Ok((seconds != zero || nanos != 0).then_some(Moment { seconds, nanos }))
}

fn is_leap(year: i64) -> bool {
    year % 4 == 0 && (year % 100 != 0 || year % 400 == 0)
}

fn days_in_month(year: i64, month: i64) -> i64 {
    match month {
        2 if is_leap(year) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// Returns days since 1970-01-01 in the proleptic Gregorian calendar.
fn days_from_civil(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - 719_468
}

/// Formats seconds since 1970 as `2006-01-02T15:04:05`.
fn date(seconds: i64) -> String {
    let days = seconds.div_euclid(86_400) + 719_468;
    let clock = seconds.rem_euclid(86_400);
    let era = days.div_euclid(146_097);
    let day_of_era = days.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}", clock / 3600, clock / 60 % 60, clock % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_become_utc_without_fraction() {
        assert_eq!(seconds("2024-02-29T23:30:00+02:00").unwrap().unwrap(), "2024-02-29T21:30:00Z");
        assert_eq!(seconds("2024-01-01T00:00:00.999Z").unwrap().unwrap(), "2024-01-01T00:00:00Z");
        assert_eq!(seconds("1969-12-31T23:59:59Z").unwrap().unwrap(), "1969-12-31T23:59:59Z");
        assert_eq!(seconds("0001-01-01T00:00:00Z").unwrap(), None);
    }

    #[test]
    fn what_looks_whole_is() {
        for year in ["0000", "0001", "0099", "0100", "1969", "2024", "9999"] {
            for (month, day) in [("00", "01"), ("01", "00"), ("02", "28"), ("02", "29"), ("12", "31"), ("13", "01")] {
                for clock in ["00:00:00", "23:59:59", "24:00:00", "12:60:00", "12:00:60", "1:00:000", "12-00-00"] {
                    let text = format!("{year}-{month}-{day}T{clock}Z");
                    if is_plainly_whole(&text) {
                        let moment = parse(&text, RFC3339, false).unwrap().unwrap();
                        assert_eq!(format!("{}Z", date(moment.seconds)), text);
                    }
                }
            }
        }
        assert!(is_plainly_whole("2024-02-28T23:30:00Z"));
        assert!(!is_plainly_whole("0001-01-01T00:00:00Z") && !is_plainly_whole("2024-02-28t23:30:00Z"));
    }

    #[test]
    fn micro_times_want_six_digits() {
        assert_eq!(micros("2024-01-02T03:04:05.123456Z").unwrap().unwrap(), "2024-01-02T03:04:05.123456Z");
        assert_eq!(
            micros("2024-01-02T03:04:05Z").unwrap_err(),
            r#"parsing time "2024-01-02T03:04:05Z" as "2006-01-02T15:04:05.000000Z07:00": cannot parse "Z" as ".000000""#
        );
    }

    #[test]
    fn refusals_read_like_gos() {
        for (text, wanted) in [
            ("nope", r#"parsing time "nope" as "2006-01-02T15:04:05Z07:00": cannot parse "nope" as "2006""#),
            ("2024-01-02", r#"parsing time "2024-01-02" as "2006-01-02T15:04:05Z07:00": cannot parse "" as "T""#),
            ("2024-13-02T00:00:00Z", r#"parsing time "2024-13-02T00:00:00Z": month out of range"#),
            ("2023-02-29T00:00:00Z", r#"parsing time "2023-02-29T00:00:00Z": day out of range"#),
            ("2023-02-20T00:00:00Zx", r#"parsing time "2023-02-20T00:00:00Zx": extra text: "x""#),
        ] {
            assert_eq!(seconds(text).unwrap_err(), wanted);
        }
    }
}
