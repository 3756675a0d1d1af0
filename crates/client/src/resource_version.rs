//! `ResourceVersion`: a point in the history of any Kubernetes API server.
//!
//! This is not `machinery::Revision`, the number that our own store assigns. A client has to return a version exactly as it
//! received it: servers may use numbers of more than 64 bits or other texts, and `""` and `"0"` have meanings of their own in
//! a request.

use std::cmp::Ordering;
use std::fmt;
use std::sync::Arc;

/// A resource version as the server wrote it.
///
/// Well-formed versions (decimal, first digit not 0) are ordered: the longer is newer, equally long ones compare as
/// text. `""` (unset) and `"0"` (any) are requests, not points in history, and compare with nothing.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct ResourceVersion(Arc<str>);

impl ResourceVersion {
    /// No version: in a request, the most recent state.
    pub fn unset() -> Self {
        Self("".into())
    }

    /// Version 0: in a request, any state that the server has cached.
    pub fn any() -> Self {
        Self("0".into())
    }

    /// The text as the server sent it.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// True for `""`.
    pub fn is_unset(&self) -> bool {
        self.0.is_empty()
    }

    /// True if this names a point in history that can be compared with others.
    pub fn is_comparable(&self) -> bool {
        let bytes = self.0.as_bytes();
        matches!(bytes.first(), Some(b'1'..=b'9')) && bytes.iter().all(u8::is_ascii_digit)
    }

    /// The order of two versions, if both have one.
    pub fn compare(&self, other: &Self) -> Option<Ordering> {
        if !self.is_comparable() || !other.is_comparable() {
            return None;
        }
        Some(self.0.len().cmp(&other.0.len()).then_with(|| self.0.cmp(&other.0)))
    }

    /// True if both are comparable and this one is older.
    pub fn is_before(&self, other: &Self) -> bool {
        self.compare(other) == Some(Ordering::Less)
    }

    /// True if both are comparable and this one is the same or newer.
    pub fn reaches(&self, other: &Self) -> bool {
        matches!(self.compare(other), Some(Ordering::Greater | Ordering::Equal))
    }

    /// The last 15 digits as a number, for a gauge: more would not fit a float exactly.
    pub fn as_gauge(&self) -> u64 {
        let text = self.as_str();
        let tail = text.get(text.len().saturating_sub(15)..).unwrap_or_default();
        tail.parse().unwrap_or(0)
    }
}

impl Default for ResourceVersion {
    fn default() -> Self {
        Self::unset()
    }
}

impl From<&str> for ResourceVersion {
    fn from(text: &str) -> Self {
        Self(text.into())
    }
}

impl From<String> for ResourceVersion {
    fn from(text: String) -> Self {
        Self(text.into())
    }
}

impl fmt::Display for ResourceVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for ResourceVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rv:{}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rv(text: &str) -> ResourceVersion {
        text.into()
    }

    #[test]
    fn only_well_formed_versions_compare() {
        assert_eq!(rv("9").compare(&rv("10")), Some(Ordering::Less));
        assert_eq!(rv("12").compare(&rv("11")), Some(Ordering::Greater));
        assert_eq!(rv("99999999999999999999998").compare(&rv("99999999999999999999999")), Some(Ordering::Less));
        for odd in ["", "0", "01", "1a", "-1"] {
            assert_eq!(rv(odd).compare(&rv("5")), None, "{odd:?}");
            assert!(!rv(odd).is_before(&rv("5")));
        }
        assert!(rv("5").reaches(&rv("5")));
    }

    #[test]
    fn si_18_gauge_keeps_the_last_fifteen_digits() {
        assert_eq!(rv("1234567890123456789").as_gauge(), 567890123456789);
        assert_eq!(rv("42").as_gauge(), 42);
        assert_eq!(rv("x").as_gauge(), 0);
    }
}
