//! The encoding of values in DER, as far as a certificate needs it.

use jiff::Timestamp;
use jiff::tz::TimeZone;

pub(crate) const SEQUENCE: u8 = 0x30;
const BOOLEAN: u8 = 0x01;
const INTEGER: u8 = 0x02;
const BIT_STRING: u8 = 0x03;
const OCTET_STRING: u8 = 0x04;
const OBJECT_IDENTIFIER: u8 = 0x06;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;

/// A value with its tag and length.
pub(crate) fn value(tag: u8, content: &[u8]) -> Vec<u8> {
    let mut out = vec![tag];
    match u8::try_from(content.len()) {
        Ok(short @ ..0x80) => out.push(short),
        _ => {
            let bytes = content.len().to_be_bytes();
            let digits = &bytes[bytes.iter().take_while(|byte| **byte == 0).count()..];
            // A length has at most eight digits.
            out.push(0x80 | u8::try_from(digits.len()).unwrap_or(0x7f));
            out.extend_from_slice(digits);
        }
    }
    out.extend_from_slice(content);
    out
}

pub(crate) fn sequence(parts: &[&[u8]]) -> Vec<u8> {
    value(SEQUENCE, &parts.concat())
}

/// An explicit tag of the context around a value.
pub(crate) fn explicit(number: u8, content: &[u8]) -> Vec<u8> {
    value(0xa0 | number, content)
}

/// A positive integer.
pub(crate) fn integer(digits: &[u8]) -> Vec<u8> {
    let mut digits = &digits[digits.iter().take_while(|digit| **digit == 0).count()..];
    if digits.is_empty() {
        digits = &[0];
    }
    let sign: &[u8] = if digits[0] & 0x80 == 0 { &[] } else { &[0] };
    value(INTEGER, &[sign, digits].concat())
}

pub(crate) fn boolean(is: bool) -> Vec<u8> {
    value(BOOLEAN, &[if is { 0xff } else { 0 }])
}

pub(crate) fn octet_string(content: &[u8]) -> Vec<u8> {
    value(OCTET_STRING, content)
}

pub(crate) fn bit_string(content: &[u8]) -> Vec<u8> {
    value(BIT_STRING, &[&[0], content].concat())
}

/// A bit string of flags, of which the first is the highest bit; without trailing zeros.
pub(crate) fn flags(set: &[u16]) -> Vec<u8> {
    let Some(last) = set.iter().max() else { return value(BIT_STRING, &[0]) };
    let mut bytes = vec![0_u8; usize::from(last / 8) + 1];
    for bit in set {
        bytes[usize::from(bit / 8)] |= 0x80 >> (bit % 8);
    }
    let unused = 7 - u8::try_from(last % 8).unwrap_or_default();
    bytes.insert(0, unused);
    value(BIT_STRING, &bytes)
}

pub(crate) fn object_identifier(arcs: &[u64]) -> Vec<u8> {
    let mut content = Vec::new();
    let first = match arcs {
        [first, second, ..] => first * 40 + second,
        _ => 0,
    };
    for arc in std::iter::once(&first).chain(arcs.iter().skip(2)) {
        let mut digits = vec![u8::try_from(arc & 0x7f).unwrap_or_default()];
        let mut rest = arc >> 7;
        while rest > 0 {
            digits.push(0x80 | u8::try_from(rest & 0x7f).unwrap_or_default());
            rest >>= 7;
        }
        content.extend(digits.iter().rev());
    }
    value(OBJECT_IDENTIFIER, &content)
}

/// A time to the second, in the short form until 2049.
pub(crate) fn time(at: Timestamp) -> Vec<u8> {
    let zoned = at.to_zoned(TimeZone::UTC);
    if (1950..2050).contains(&zoned.year()) {
        return value(UTC_TIME, zoned.strftime("%y%m%d%H%M%SZ").to_string().as_bytes());
    }
    value(GENERALIZED_TIME, zoned.strftime("%Y%m%d%H%M%SZ").to_string().as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_encoded_in_the_shortest_form() {
        assert_eq!(value(4, &[1]), [4, 1, 1]);
        assert_eq!(value(4, &[0; 0x80])[..3], [4, 0x81, 0x80]);
        assert_eq!(value(4, &[0; 0x1234])[..4], [4, 0x82, 0x12, 0x34]);
        assert_eq!(integer(&[0, 0x80]), [2, 2, 0, 0x80]);
        assert_eq!(integer(&[0, 0]), [2, 1, 0]);
        assert_eq!(object_identifier(&[1, 2, 840, 113_549]), [6, 6, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d]);
        assert_eq!(flags(&[0, 2]), [3, 2, 5, 0xa0]);
        assert_eq!(flags(&[8]), [3, 3, 7, 0, 0x80]);
        assert_eq!(boolean(true), [1, 1, 0xff]);
    }

    #[test]
    fn times_have_four_digits_for_the_year_from_2050() {
        let at = |text: &str| time(text.parse().unwrap());
        assert_eq!(at("2049-12-31T23:59:59Z"), [&[0x17, 13][..], b"491231235959Z"].concat());
        assert_eq!(at("2050-01-01T00:00:00Z"), [&[0x18, 15][..], b"20500101000000Z"].concat());
    }
}
