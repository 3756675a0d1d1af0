//! How long a request may take: `timeout=30s` in the query, never more than the server's own limit.

use std::time::Duration;

use machinery::Status;
use machinery::go_text::quote;
use machinery::query::Query;

/// The time a request that is no watch has.
pub fn of_request(query: &Query, max: Duration) -> Result<Duration, Status> {
    let Some(text) = query.get("timeout") else { return Ok(max) };
    let asked = parse_duration(text).map_err(|why| {
        Status::bad_request(format!("invalid timeout specified in the request URL - time: {why} {}", quote(text)))
    })?;
    Ok(if asked.is_zero() { max } else { asked.min(max) })
}

/// `1h15m30.5s`: a sequence of numbers with units. A negative one counts as nothing.
fn parse_duration(text: &str) -> Result<Duration, String> {
    let invalid = || "invalid duration".to_owned();
    let (negative, mut rest) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    if rest == "0" {
        return Ok(Duration::ZERO);
    }
    if rest.is_empty() {
        return Err(invalid());
    }
    let mut seconds = 0.0_f64;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(rest.len());
        let number: f64 = rest[..digits].parse().map_err(|_| invalid())?;
        rest = &rest[digits..];
        let unit_len = rest.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(rest.len());
        let unit = match &rest[..unit_len] {
            "" => return Err("missing unit in duration".to_owned()),
            "ns" => 1e-9,
            "us" | "µs" | "μs" => 1e-6,
            "ms" => 1e-3,
            "s" => 1.0,
            "m" => 60.0,
            "h" => 3600.0,
            unknown => return Err(format!("unknown unit {} in duration", quote(unknown))),
        };
        seconds += number * unit;
        rest = &rest[unit_len..];
    }
    if negative {
        return Ok(Duration::ZERO);
    }
    // The longest that can be written in the reference's 64 bits of nanoseconds.
    if seconds > 9_223_372_036.0 { Err(invalid()) } else { Ok(Duration::from_secs_f64(seconds)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(query: &str) -> Result<Duration, String> {
        of_request(&Query::parse(query), Duration::from_secs(60)).map_err(|status| status.message)
    }

    #[test]
    fn a_timeout_can_only_shorten() {
        for (query, seconds) in [
            ("", 60.0),
            ("timeout=30s", 30.0),
            ("timeout=1m", 60.0),
            ("timeout=1h", 60.0),
            ("timeout=0", 60.0),
            ("timeout=0s", 60.0),
            ("timeout=-5s", 60.0),
            ("timeout=1.5s", 1.5),
            ("timeout=500ms", 0.5),
            ("timeout=0m10s", 10.0),
        ] {
            assert_eq!(ask(query), Ok(Duration::from_secs_f64(seconds)), "{query}");
        }
    }

    #[test]
    fn what_is_no_duration_is_refused() {
        let says = |why: &str| Err(format!("invalid timeout specified in the request URL - time: {why}"));
        assert_eq!(ask("timeout=abc"), says("invalid duration \"abc\""));
        assert_eq!(ask("timeout="), says("invalid duration \"\""));
        assert_eq!(ask("timeout=30"), says("missing unit in duration \"30\""));
        assert_eq!(ask("timeout=3x"), says("unknown unit \"x\" in duration \"3x\""));
        assert_eq!(ask("timeout=99999999999h"), says("invalid duration \"99999999999h\""));
        assert_eq!(ask("timeout=1.2.3s"), says("invalid duration \"1.2.3s\""));
    }
}
