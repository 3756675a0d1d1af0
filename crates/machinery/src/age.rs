//! Durations as people read them: cells of tables (spec 01 §11), and a shorter form for some of them.

use jiff::{SignedDuration, Timestamp};

/// Formats the time since `time`; `<unknown>` if there is none.
#[must_use]
pub fn since(time: Option<Timestamp>, now: Timestamp) -> String {
    time.map_or_else(|| "<unknown>".to_owned(), |time| human(now.duration_since(time)))
}

/// Formats with two units while the second matters (`5m30s`), with one above that (`3d`).
#[must_use]
pub fn human(duration: SignedDuration) -> String {
    let seconds = duration.as_secs();
    let (minutes, hours) = (seconds / 60, seconds / 3600);
    let (days, years) = (hours / 24, hours / 24 / 365);
    match () {
        () if seconds < -1 => "<invalid>".to_owned(),
        () if seconds < 0 => "0s".to_owned(),
        () if seconds < 120 => format!("{seconds}s"),
        () if minutes < 10 => two_units(minutes, "m", seconds % 60, "s"),
        () if minutes < 180 => format!("{minutes}m"),
        () if hours < 8 => two_units(hours, "h", minutes % 60, "m"),
        () if hours < 48 => format!("{hours}h"),
        () if hours < 24 * 8 => two_units(days, "d", hours % 24, "h"),
        () if hours < 24 * 365 * 2 => format!("{days}d"),
        () if hours < 24 * 365 * 8 => two_units(years, "y", days % 365, "d"),
        () => format!("{years}y"),
    }
}

/// Formats with one unit.
#[must_use]
pub fn short(duration: SignedDuration) -> String {
    let seconds = duration.as_secs();
    match seconds {
        ..-1 => "<invalid>".to_owned(),
        -1 => "0s".to_owned(),
        0..60 => format!("{seconds}s"),
        60..3600 => format!("{}m", seconds / 60),
        3600..86_400 => format!("{}h", seconds / 3600),
        86_400..31_536_000 => format!("{}d", seconds / 86_400),
        _ => format!("{}y", seconds / 31_536_000),
    }
}

fn two_units(first: i64, unit: &str, second: i64, second_unit: &str) -> String {
    if second == 0 { format!("{first}{unit}") } else { format!("{first}{unit}{second}{second_unit}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_range_has_its_form() {
        const DAY: i64 = 24 * 3600;
        for (seconds, want) in [
            (-2, "<invalid>"),
            (-1, "0s"),
            (0, "0s"),
            (119, "119s"),
            (120, "2m"),
            (121, "2m1s"),
            (599, "9m59s"),
            (600, "10m"),
            (3 * 3600 - 1, "179m"),
            (3 * 3600, "3h"),
            (3 * 3600 + 60, "3h1m"),
            (8 * 3600, "8h"),
            (2 * DAY - 1, "47h"),
            (2 * DAY, "2d"),
            (2 * DAY + 3600, "2d1h"),
            (8 * DAY, "8d"),
            (2 * 365 * DAY - 1, "729d"),
            (2 * 365 * DAY, "2y"),
            (2 * 365 * DAY + DAY, "2y1d"),
            (8 * 365 * DAY, "8y"),
        ] {
            assert_eq!(human(SignedDuration::from_secs(seconds)), want, "{seconds}");
        }
        assert_eq!(short(SignedDuration::from_secs(90)), "1m");
        assert_eq!(short(SignedDuration::from_secs(400 * DAY)), "1y");
        assert_eq!(since(None, Timestamp::UNIX_EPOCH), "<unknown>");
    }
}
