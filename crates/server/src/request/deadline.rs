//! Time limits of requests: `timeout=30s` in the query, at most the server's own limit.

use std::time::Duration;

use machinery::Status;
use machinery::go_text::quote;
use machinery::query::Query;

/// Returns the time limit of a request other than a watch.
pub fn request_timeout(query: &Query, max: Duration) -> Result<Duration, Status> {
    let Some(text) = query.get("timeout") else { return Ok(max) };
    let wanted = parse_duration(text).map_err(|why| {
        Status::bad_request(format!("invalid timeout specified in the request URL - time: {why} {}", quote(text)))
    })?;
    Ok(if wanted.is_zero() { max } else { wanted.min(max) })
}

/// Parses `1h15m30.5s`: a sequence of numbers with units. A negative duration is zero.
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
    // The longest duration in the reference's 64-bit nanoseconds.
    if seconds > 9_223_372_036.0 { Err(invalid()) } else { Ok(Duration::from_secs_f64(seconds)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn timeout(query: &str) -> Result<Duration, String> {
        request_timeout(&Query::parse(query), Duration::from_secs(60)).map_err(|status| status.message)
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
            assert_eq!(timeout(query), Ok(Duration::from_secs_f64(seconds)), "{query}");
        }
    }

    #[test]
    fn what_is_no_duration_is_refused() {
        let error = |why: &str| Err(format!("invalid timeout specified in the request URL - time: {why}"));
        assert_eq!(timeout("timeout=abc"), error("invalid duration \"abc\""));
        assert_eq!(timeout("timeout="), error("invalid duration \"\""));
        assert_eq!(timeout("timeout=30"), error("missing unit in duration \"30\""));
        assert_eq!(timeout("timeout=3x"), error("unknown unit \"x\" in duration \"3x\""));
        assert_eq!(timeout("timeout=99999999999h"), error("invalid duration \"99999999999h\""));
        assert_eq!(timeout("timeout=1.2.3s"), error("invalid duration \"1.2.3s\""));
    }
}
