//! Values that can be verified by themselves, shared by the writing process and the tests that kill it.

use bytes::Bytes;

/// A value that is a function of its tag: the tag, then bytes and a length that follow from it.
pub(crate) fn value(tag: u64) -> Bytes {
    let mut state = tag.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    // Mostly a few kilobytes; sometimes many pages.
    let length = if next() % 50 == 0 { next() % 200_000 } else { next() % 4_000 };
    let mut value = format!("{tag:016x}").into_bytes();
    value.extend((0..length).map(|_| next() as u8));
    value.into()
}

/// The tag of a value, if the value is complete.
pub(crate) fn tag_of(found: &[u8]) -> Option<u64> {
    let tag = u64::from_str_radix(std::str::from_utf8(found.get(..16)?).ok()?, 16).ok()?;
    (value(tag) == found).then_some(tag)
}
