//! Durations in the objects of the lab, as Go writes them.

use std::time::Duration;

/// Longer ones are as long as this: a moment so far away must still be one that a clock can show.
const LONGEST: Duration = Duration::from_secs(100 * 366 * 24 * 3600);

/// Reads `1h2m3.5s`, as Go writes durations.
pub(crate) fn parse_duration(text: &str) -> Option<Duration> {
    let mut rest = text.trim_start_matches('+');
    if rest == "0" {
        return Some(Duration::ZERO);
    }
    let mut seconds = 0.0;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.').filter(|end| *end > 0)?;
        let (number, tail) = rest.split_at(digits);
        let unit = tail.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(tail.len());
        let (unit, tail) = tail.split_at(unit);
        let factor = match unit {
            "h" => 3600.0,
            "m" => 60.0,
            "s" => 1.0,
            "ms" => 1e-3,
            "us" | "µs" | "μs" => 1e-6,
            "ns" => 1e-9,
            _ => return None,
        };
        seconds += number.parse::<f64>().ok()? * factor;
        rest = tail;
    }
    Duration::try_from_secs_f64(seconds).ok().filter(|_| !text.is_empty()).map(|read| read.min(LONGEST))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_as_go_writes_them() {
        assert_eq!(parse_duration("200ms"), Some(Duration::from_millis(200)));
        assert_eq!(parse_duration("1h2m3.5s"), Some(Duration::from_millis(3_723_500)));
        assert_eq!(parse_duration("0"), Some(Duration::ZERO));
        for wrong in ["", "1", "s", "1x", "-1s", "1s2"] {
            assert_eq!(parse_duration(wrong), None, "{wrong}");
        }
    }
}
