//! Schedules of cron jobs: five fields of a crontab, or a name for a common one, in a time zone.
//!
//! As in the reference, days are those of the month *or* of the week if both are restricted, and *and* if one is `*`; a time
//! that the clock skips in spring is skipped, one that it shows twice in autumn happens twice.
//!
//! Written by hand because the reference has five fields and these rules of its own; `jiff-cron` 0.3 and `cron` 0.17 expect
//! seconds first and years last, and decide days and skipped times in other ways.

use std::time::Duration;

use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp, Zoned};

/// A schedule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Schedule {
    Fields(Fields),
    /// `@every`: a fixed interval.
    Every(Duration),
}

/// Each a set of numbers as bits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Fields {
    minutes: u64,
    hours: u64,
    days: u64,
    months: u64,
    weekdays: u64,
    /// True if the days of the month, and of the week, are `*` or `?`.
    any_day: bool,
    any_weekday: bool,
}

const MONTHS: [&str; 12] = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];
const WEEKDAYS: [&str; 7] = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"];
/// A schedule that does not happen within this time never does: the 30th of February.
const HORIZON: SignedDuration = SignedDuration::from_hours(5 * 366 * 24);

impl Schedule {
    /// Parses a schedule; the error is the reason that it is invalid.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let text = text.trim();
        if let Some(rest) = text.strip_prefix("@every ") {
            let every = duration(rest).ok_or_else(|| format!("failed to parse duration {text}"))?;
            // Less than a second is a second; fractions are cut.
            return Ok(Self::Every(Duration::from_secs(every.as_secs().max(1))));
        }
        let fields = match text {
            "@yearly" | "@annually" => "0 0 1 1 *",
            "@monthly" => "0 0 1 * *",
            "@weekly" => "0 0 * * 0",
            "@daily" | "@midnight" => "0 0 * * *",
            "@hourly" => "0 * * * *",
            name if name.starts_with('@') => return Err(format!("unrecognized descriptor: {name}")),
            fields => fields,
        };
        let fields: Vec<&str> = fields.split_whitespace().collect();
        let [minutes, hours, days, months, weekdays] = fields[..] else {
            return Err(format!("expected exactly 5 fields, found {}: [{}]", fields.len(), fields.join(" ")));
        };
        let (days, any_day) = field(days, 1, 31, &[])?;
        let (weekdays, any_weekday) = field(weekdays, 0, 6, &WEEKDAYS)?;
        Ok(Self::Fields(Fields {
            minutes: field(minutes, 0, 59, &[])?.0,
            hours: field(hours, 0, 23, &[])?.0,
            days,
            months: field(months, 1, 12, &MONTHS)?.0,
            weekdays,
            any_day,
            any_weekday,
        }))
    }

    /// The first match after `after`; none if there is none in the next years.
    pub(super) fn next(&self, after: Timestamp, zone: &TimeZone) -> Option<Timestamp> {
        match self {
            Self::Every(every) => {
                let whole = Timestamp::from_second(after.as_second()).ok()?;
                whole.checked_add(SignedDuration::try_from(*every).ok()?).ok()
            }
            Self::Fields(fields) => fields.next(after, zone),
        }
    }
}

impl Fields {
    fn next(&self, after: Timestamp, zone: &TimeZone) -> Option<Timestamp> {
        let minute = after.as_second().div_euclid(60) + 1;
        let mut time = Timestamp::from_second(minute * 60).ok()?;
        let horizon = after.checked_add(HORIZON).ok()?;
        while time <= horizon {
            let local = time.to_zoned(zone.clone());
            let next = if !has(self.months, local.month()) {
                start_of(local.date().last_of_month().tomorrow().ok()?, zone)?
            } else if !self.is_day(&local) {
                start_of(local.date().tomorrow().ok()?, zone)?
            } else if !has(self.hours, local.hour()) {
                time.checked_add(SignedDuration::from_mins(60 - i64::from(local.minute()))).ok()?
            } else if !has(self.minutes, local.minute()) {
                time.checked_add(SignedDuration::from_mins(1)).ok()?
            } else {
                return Some(time);
            };
            // A day that begins twice must not lead back.
            time = next.max(time.checked_add(SignedDuration::from_mins(1)).ok()?);
        }
        None
    }

    fn is_day(&self, local: &Zoned) -> bool {
        let day = has(self.days, local.day());
        let weekday = has(self.weekdays, local.weekday().to_sunday_zero_offset());
        if self.any_day || self.any_weekday { day && weekday } else { day || weekday }
    }
}

fn has(set: u64, number: i8) -> bool {
    u32::try_from(number).is_ok_and(|number| set & (1 << number) != 0)
}

fn start_of(date: jiff::civil::Date, zone: &TimeZone) -> Option<Timestamp> {
    date.to_datetime(jiff::civil::Time::midnight()).to_zoned(zone.clone()).ok().map(|zoned| zoned.timestamp())
}

/// The numbers of a field; also whether it is `*` or `?`.
fn field(text: &str, low: u32, high: u32, words: &[&str]) -> Result<(u64, bool), String> {
    let (mut numbers, mut any) = (0, false);
    for part in text.split(',') {
        let (range, step) = match part.split_once('/') {
            Some((range, step)) => (range, Some(step)),
            None => (part, None),
        };
        let (first, last, open) = match range {
            "*" | "?" => (low, high, true),
            _ => {
                let (first, last) = range.split_once('-').map_or((range, None), |(first, last)| (first, Some(last)));
                let first_number = number(first, words, low)?;
                let last = match last {
                    Some(last) => number(last, words, low)?,
                    // From this on.
                    None if step.is_some() => high,
                    None => first_number,
                };
                (first_number, last, false)
            }
        };
        let step = step.map_or(Ok(1), |step| number(step, &[], 0))?;
        if first < low || last > high {
            return Err(format!("{part}: not between {low} and {high}"));
        }
        if first > last {
            return Err(format!("beginning of range ({first}) beyond end of range ({last}): {part}"));
        }
        let step_size = usize::try_from(step).ok().filter(|step| *step > 0);
        let step_size = step_size.ok_or_else(|| format!("step of range should be a positive number: {part}"))?;
        for number in (first..=last).step_by(step_size) {
            numbers |= 1 << number;
        }
        any |= open && step == 1;
    }
    Ok((numbers, any))
}

fn number(text: &str, words: &[&str], low: u32) -> Result<u32, String> {
    let lower = text.to_ascii_lowercase();
    if let Some(position) = words.iter().position(|word| *word == lower) {
        return Ok(u32::try_from(position).unwrap_or(0) + low);
    }
    text.parse().map_err(|_| format!("failed to parse int from {text}"))
}

/// A duration as Go writes it: `1h30m`, `90s`, `1.5h`.
fn duration(text: &str) -> Option<Duration> {
    let mut rest = text.trim();
    let mut total = 0.0;
    if rest.is_empty() {
        return None;
    }
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let amount: f64 = rest[..digits].parse().ok()?;
        rest = &rest[digits..];
        let end = rest.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(rest.len());
        let unit = match &rest[..end] {
            "h" => 3600.0,
            "m" => 60.0,
            "s" => 1.0,
            "ms" => 1e-3,
            "us" | "µs" => 1e-6,
            "ns" => 1e-9,
            _ => return None,
        };
        total += amount * unit;
        rest = &rest[end..];
    }
    Duration::try_from_secs_f64(total).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn next(schedule: &str, zone: &str, after: &str) -> String {
        let zone = TimeZone::get(zone).unwrap();
        let after: Timestamp = after.parse().unwrap();
        Schedule::parse(schedule).unwrap().next(after, &zone).map_or("never".into(), |time| time.to_string())
    }

    #[test]
    fn cj_1_next_times() {
        let rows = [
            ("* * * * *", "2026-01-01T00:00:00Z", "2026-01-01T00:01:00Z"),
            ("* * * * *", "2026-01-01T00:00:59.9Z", "2026-01-01T00:01:00Z"),
            ("*/15 * * * *", "2026-01-01T00:31:00Z", "2026-01-01T00:45:00Z"),
            ("5/20 * * * *", "2026-01-01T00:31:00Z", "2026-01-01T00:45:00Z"),
            ("0 9-17/4 * * 1-5", "2026-01-02T17:30:00Z", "2026-01-05T09:00:00Z"),
            ("30 6 1,15 * *", "2026-01-01T06:30:00Z", "2026-01-15T06:30:00Z"),
            // Days of the month or of the week: Friday the 2nd comes before the 13th.
            ("0 0 13 * FRI", "2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"),
            ("0 0 13 * *", "2026-01-01T00:00:00Z", "2026-01-13T00:00:00Z"),
            ("0 0 */2 * MON", "2026-01-01T00:00:00Z", "2026-01-03T00:00:00Z"),
            ("0 0 29 2 *", "2026-01-01T00:00:00Z", "2028-02-29T00:00:00Z"),
            ("0 0 30 feb *", "2026-01-01T00:00:00Z", "never"),
            ("@hourly", "2026-01-01T00:00:00Z", "2026-01-01T01:00:00Z"),
            ("@weekly", "2026-01-01T00:00:00Z", "2026-01-04T00:00:00Z"),
            ("@yearly", "2026-01-01T00:00:00Z", "2027-01-01T00:00:00Z"),
            ("@every 1h30m", "2026-01-01T00:00:00.5Z", "2026-01-01T01:30:00Z"),
            ("@every 0.5s", "2026-01-01T00:00:00Z", "2026-01-01T00:00:01Z"),
        ];
        for (schedule, after, expected) in rows {
            assert_eq!(next(schedule, "UTC", after), expected, "{schedule} after {after}");
        }
    }

    #[test]
    fn cj_1_time_zones_and_the_days_on_which_the_clock_changes() {
        assert_eq!(next("0 9 * * *", "America/New_York", "2026-01-01T00:00:00Z"), "2026-01-01T14:00:00Z");
        assert_eq!(next("0 9 * * *", "Asia/Kolkata", "2026-01-01T00:00:00Z"), "2026-01-01T03:30:00Z");
        // 2026-03-08: 02:30 does not exist in New York, so the day is left out.
        assert_eq!(next("30 2 * * *", "America/New_York", "2026-03-08T00:00:00Z"), "2026-03-09T06:30:00Z");
        // 2026-11-01: 01:30 comes twice.
        assert_eq!(next("30 1 * * *", "America/New_York", "2026-11-01T00:00:00Z"), "2026-11-01T05:30:00Z");
        assert_eq!(next("30 1 * * *", "America/New_York", "2026-11-01T05:30:00Z"), "2026-11-01T06:30:00Z");
        // Midnight does not exist in Havana on 2026-03-08.
        assert_eq!(next("30 * 8 3 *", "America/Havana", "2026-03-08T04:30:00Z"), "2026-03-08T05:30:00Z");
    }

    #[test]
    fn cj_1_what_is_no_schedule() {
        for bad in [
            "",
            "* * * *",
            "60 * * * *",
            "* * * * 7",
            "5-1 * * * *",
            "*/0 * * * *",
            "@sometimes",
            "@every",
            "@every x",
            "a * * * *",
            "* * 0 * *",
        ] {
            assert!(Schedule::parse(bad).is_err(), "{bad:?}");
        }
    }
}
