//! Dates as HTTP headers write them (RFC 9110 §5.6.7).

use jiff::Timestamp;

/// Formats a time as `Sun, 06 Nov 1994 08:49:37 GMT`. HTTP has no dates outside the years 1970 to 9999: earlier times are
/// written as the first of them.
pub(crate) fn http_date(at: Timestamp) -> String {
    httpdate::fmt_http_date(at.max(Timestamp::UNIX_EPOCH).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_those_of_the_rfc() {
        assert_eq!(http_date("1994-11-06T08:49:37.9Z".parse().unwrap()), "Sun, 06 Nov 1994 08:49:37 GMT");
        assert_eq!(http_date("1969-12-31T23:59:59Z".parse().unwrap()), "Thu, 01 Jan 1970 00:00:00 GMT");
        assert_eq!(http_date(Timestamp::MAX), "Thu, 30 Dec 9999 22:00:00 GMT");
    }
}
