//! The schedule time of a cron job that is due, and the time of the next run.

use std::time::Duration;

use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::batch::v1::CronJob;

use super::schedule::Schedule;

/// Wakes a moment after the time, so that it has passed by every clock.
const MOMENT: Duration = Duration::from_millis(100);
/// More missed times than this are worth a warning.
const MANY: i64 = 100;

/// The schedule times since the last run of a cron job.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Due {
    /// From when on.
    since: Timestamp,
    /// The last that has passed, if any.
    pub(super) time: Option<Timestamp>,
    /// There were more than anybody would start.
    pub(super) many_missed: bool,
    missed: bool,
}

/// The last scheduled time that has passed, within the starting deadline if that counts. An error if the schedule never
/// comes, or too fast.
fn passed(
    job: &CronJob,
    schedule: &Schedule,
    zone: &TimeZone,
    now: Timestamp,
    by_deadline: bool,
) -> Result<Due, String> {
    let created = job.metadata.creation_timestamp.as_ref().map(|time| time.0);
    let last = job.status.as_ref().and_then(|status| status.last_schedule_time.as_ref()).map(|time| time.0);
    let mut since = last.or(created).unwrap_or(now);
    let deadline = job.spec.starting_deadline_seconds.filter(|_| by_deadline);
    if let Some(seconds) = deadline {
        let earliest = now.checked_sub(SignedDuration::from_secs(seconds)).unwrap_or(since);
        since = since.max(earliest);
    }
    let none = Due { since, time: None, many_missed: false, missed: false };
    let never = || "the schedule has no time".to_owned();
    let first = schedule.next(since, zone).ok_or_else(never)?;
    let second = schedule.next(first, zone).ok_or_else(never)?;
    if now < first {
        return Ok(none);
    }
    if now < second {
        return Ok(Due { time: Some(first), ..none });
    }
    let apart = second.duration_since(first).as_secs();
    if apart < 1 {
        return Err("time difference between two schedules is less than 1 second".into());
    }
    // A guess from the first two, so that a year of missed minutes is not counted one by one.
    let missed = now.duration_since(first).as_secs() / apart + 1;
    let mut from = first.checked_add(SignedDuration::from_secs((missed - 2) * apart)).unwrap_or(first);
    let mut time = None;
    while let Some(next) = schedule.next(from, zone).filter(|next| *next <= now) {
        time = Some(next);
        from = next;
    }
    Ok(Due { since, time, many_missed: missed > MANY, missed: true })
}

/// The schedule time that is due, if any.
pub(super) fn due(job: &CronJob, schedule: &Schedule, zone: &TimeZone, now: Timestamp) -> Result<Due, String> {
    passed(job, schedule, zone, now, true)
}

/// Time until the next schedule time (CJ-3).
pub(super) fn next_wake(job: &CronJob, schedule: &Schedule, zone: &TimeZone, now: Timestamp) -> Option<Duration> {
    let from = match passed(job, schedule, zone, now, false) {
        Err(_) => now,
        Ok(due) => due.time.unwrap_or(if due.missed { now } else { due.since }),
    };
    let next = schedule.next(from, zone)?.duration_since(now);
    Some(Duration::try_from(next).unwrap_or_default() + MOMENT)
}

/// True if a time is past the starting deadline (CJ-2).
pub(super) fn is_too_late(job: &CronJob, time: Timestamp, now: Timestamp) -> bool {
    let deadline = job.spec.starting_deadline_seconds;
    deadline.is_some_and(|seconds| time.checked_add(SignedDuration::from_secs(seconds)).is_ok_and(|last| last < now))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn job(created: &str, last: Option<&str>, deadline: Option<i64>) -> CronJob {
        serde_json::from_value(json!({
            "metadata": {"creationTimestamp": created},
            "spec": {"schedule": "", "jobTemplate": {}, "startingDeadlineSeconds": deadline},
            "status": {"lastScheduleTime": last},
        }))
        .unwrap()
    }

    fn time(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    #[test]
    fn cj_2_only_the_most_recent_missed_time_is_due() {
        let hourly = Schedule::parse("@hourly").unwrap();
        let at = |job: &CronJob, now: &str| {
            let due = due(job, &hourly, &TimeZone::UTC, time(now)).unwrap();
            (due.time.map(|time| time.to_string()), due.many_missed)
        };
        let new = job("2026-01-01T00:30:00Z", None, None);
        assert_eq!(at(&new, "2026-01-01T00:59:59Z"), (None, false));
        assert_eq!(at(&new, "2026-01-01T01:00:00Z"), (Some("2026-01-01T01:00:00Z".into()), false));
        assert_eq!(at(&new, "2026-01-01T09:10:00Z"), (Some("2026-01-01T09:00:00Z".into()), false));
        assert_eq!(at(&new, "2026-01-09T09:10:00Z"), (Some("2026-01-09T09:00:00Z".into()), true));
        let ran = job("2026-01-01T00:30:00Z", Some("2026-01-01T09:00:00Z"), None);
        assert_eq!(at(&ran, "2026-01-01T09:10:00Z"), (None, false));
        // Within the deadline there are never many.
        let strict = job("2026-01-01T00:30:00Z", None, Some(600));
        assert_eq!(at(&strict, "2026-01-09T09:10:00Z"), (None, false));
        assert_eq!(at(&strict, "2026-01-09T09:09:00Z"), (Some("2026-01-09T09:00:00Z".into()), false));
        let uneven = Schedule::parse("30 6-16/4 * * 1-5").unwrap();
        let due = due(&new, &uneven, &TimeZone::UTC, time("2026-01-12T11:00:00Z")).unwrap();
        assert_eq!(due.time, Some(time("2026-01-12T10:30:00Z")));
    }

    #[test]
    fn cj_3_the_next_look_is_a_moment_after_the_next_time() {
        let hourly = Schedule::parse("@hourly").unwrap();
        let wake = |job: &CronJob, now: &str| next_wake(job, &hourly, &TimeZone::UTC, time(now)).unwrap();
        let new = job("2026-01-01T00:30:00Z", None, None);
        assert_eq!(wake(&new, "2026-01-01T00:59:00Z"), Duration::from_millis(60_100));
        assert_eq!(wake(&new, "2026-01-01T01:00:00Z"), Duration::from_millis(3_600_100));
        assert_eq!(wake(&new, "2026-01-05T00:59:00Z"), Duration::from_millis(60_100));
        assert!(is_too_late(
            &job("2026-01-01T00:30:00Z", None, Some(10)),
            time("2026-01-01T01:00:00Z"),
            time("2026-01-01T01:00:11Z")
        ));
        assert!(!is_too_late(&new, time("2026-01-01T01:00:00Z"), time("2027-01-01T01:00:11Z")));
    }

    #[test]
    fn cj_2_a_schedule_that_never_comes_is_an_error() {
        let never = Schedule::parse("0 0 30 2 *").unwrap();
        assert!(
            due(&job("2026-01-01T00:30:00Z", None, None), &never, &TimeZone::UTC, time("2026-01-02T00:00:00Z"))
                .is_err()
        );
    }
}
