//! Validation of addresses and address ranges. Old fields accept leading zeros (`010.0.0.1`), new ones do not.

use std::net::{IpAddr, Ipv4Addr};

use machinery::field_error::{FieldError, Path};

use super::Errors;

const ADDRESS: &str = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)";
const RANGE: &str = "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)";

/// Parses an address, accepting leading zeros.
pub(super) fn parse(text: &str) -> Option<IpAddr> {
    text.parse().ok().or_else(|| {
        let mut parts = [0u8; 4];
        let mut given = text.split('.');
        for part in &mut parts {
            let digits = given.next()?;
            if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
                return None;
            }
            *part =
                digits.trim_start_matches('0').parse().or_else(|_| "0".parse()).ok().filter(|_| digits.len() <= 6)?;
            if digits.trim_start_matches('0').len() > 3 || digits.parse::<u32>().ok()? > 255 {
                return None;
            }
        }
        given.next().is_none().then(|| IpAddr::V4(Ipv4Addr::from(parts)))
    })
}

pub(super) fn address(errors: &mut Errors, path: &Path<'_>, value: &str) {
    if parse(value).is_none() {
        errors.push(FieldError::invalid(path, value, ADDRESS));
    }
}

/// Checks an address by the rule of newer fields.
pub(super) fn strict_address(errors: &mut Errors, path: &Path<'_>, value: &str) -> Option<IpAddr> {
    match (value.parse().ok(), parse(value)) {
        (Some(address), _) => Some(address),
        (None, Some(_)) => {
            errors.push(FieldError::invalid(path, value, "must not have leading 0s"));
            None
        }
        (None, None) => {
            errors.push(FieldError::invalid(path, value, ADDRESS));
            None
        }
    }
}

/// Parses a range into its address and the length of its prefix.
pub(super) fn parse_range(text: &str) -> Option<(IpAddr, u8)> {
    let (address, length) = text.split_once('/')?;
    let address = parse(address)?;
    let length = length.parse().ok()?;
    (length <= if address.is_ipv4() { 32 } else { 128 }).then_some((address, length))
}

pub(super) fn range(errors: &mut Errors, path: &Path<'_>, value: &str) {
    if parse_range(value).is_none() {
        errors.push(FieldError::invalid(path, value, RANGE));
    }
}

/// Returns whether one range contains another and is larger.
pub(super) fn holds(outer: (IpAddr, u8), inner: (IpAddr, u8)) -> bool {
    let bits = |address: IpAddr| match address {
        IpAddr::V4(address) => (u128::from(u32::from(address)) << 96, 32),
        IpAddr::V6(address) => (u128::from(address), 128),
    };
    let ((outer_bits, width), (inner_bits, inner_width)) = (bits(outer.0), bits(inner.0));
    let mask = if outer.1 == 0 { 0 } else { u128::MAX << (128 - u32::from(outer.1)) };
    width == inner_width && outer.1 < inner.1 && outer_bits & mask == inner_bits & mask
}

/// Refuses addresses that other hosts cannot reach.
pub(super) fn reachable(errors: &mut Errors, path: &Path<'_>, value: &str) {
    let Some(address) = parse(value) else { return };
    let mut refuse = |why: &str| errors.push(FieldError::invalid(path, value, why));
    if address.is_unspecified() {
        refuse(&format!("may not be unspecified ({value})"));
    }
    if address.is_loopback() {
        refuse("may not be in the loopback range (127.0.0.0/8, ::1/128)");
    }
    match address {
        IpAddr::V4(address) if address.is_link_local() => {
            refuse("may not be in the link-local range (169.254.0.0/16, fe80::/10)")
        }
        IpAddr::V6(address) if (address.segments()[0] & 0xffc0) == 0xfe80 => {
            refuse("may not be in the link-local range (169.254.0.0/16, fe80::/10)");
        }
        _ => {}
    }
    if address.is_multicast() {
        let link_local = match address {
            IpAddr::V4(address) => address.octets()[..3] == [224, 0, 0],
            IpAddr::V6(address) => (address.segments()[0] & 0xff0f) == 0xff02,
        };
        if link_local {
            refuse("may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_with_leading_zeros_are_old() {
        assert!(parse("010.001.0.1").is_some() && parse("300.1.1.1").is_none() && parse("1.2.3").is_none());
        let mut errors = Errors::new();
        strict_address(&mut errors, &Path::new("a"), "010.1.2.3");
        assert_eq!(errors[0].detail, "must not have leading 0s");
    }

    #[test]
    fn ranges_hold_smaller_ones() {
        let range = |text| parse_range(text).unwrap();
        assert!(holds(range("10.0.0.0/8"), range("10.1.0.0/16")));
        assert!(!holds(range("10.0.0.0/16"), range("10.1.0.0/16")));
        assert!(!holds(range("10.0.0.0/16"), range("10.0.0.0/16")));
        assert!(parse_range("10.0.0.0").is_none() && parse_range("10.0.0.0/33").is_none());
    }
}
