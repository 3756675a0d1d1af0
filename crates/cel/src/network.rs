//! IP addresses and networks (`ip`, `cidr`).

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use machinery::go_text::quote;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ip(IpAddr);

impl Ip {
    pub(crate) fn parse(text: &str) -> Result<Ip, String> {
        let wrong = |why: String| {
            format!(
                "IP Address {} parse error during conversion from string: ParseAddr({}): {why}",
                quote(text),
                quote(text)
            )
        };
        if let Some((address, zone)) = text.split_once('%')
            && address.contains(':')
        {
            let parsed = address.parse::<Ipv6Addr>();
            return Err(match parsed {
                Ok(_) if !zone.is_empty() => format!("IP address {} with zone value is not allowed", quote(text)),
                Ok(_) => wrong("zone must be a non-empty string".to_owned()),
                Err(_) => wrong("unable to parse IP".to_owned()),
            });
        }
        match text.find(['.', ':']) {
            Some(at) if text.as_bytes()[at] == b'.' => v4(text).map(|ip| Ip(ip.into())).map_err(wrong),
            Some(_) => match text.parse::<Ipv6Addr>() {
                Ok(ip) if ip.to_ipv4_mapped().is_some() => {
                    Err(format!("IPv4-mapped IPv6 address {} is not allowed", quote(text)))
                }
                Ok(ip) => Ok(Ip(ip.into())),
                Err(_) => Err(wrong("unable to parse IP".to_owned())),
            },
            None => Err(wrong("unable to parse IP".to_owned())),
        }
    }

    pub(crate) fn family(self) -> i64 {
        if self.0.is_ipv4() { 4 } else { 6 }
    }

    /// Length in bytes.
    pub(crate) fn len(self) -> u64 {
        if self.0.is_ipv4() { 4 } else { 16 }
    }

    pub(crate) fn is_unspecified(self) -> bool {
        self.0.is_unspecified()
    }

    pub(crate) fn is_loopback(self) -> bool {
        self.0.is_loopback()
    }

    pub(crate) fn is_link_local_multicast(self) -> bool {
        match self.0 {
            IpAddr::V4(ip) => ip.octets()[..3] == [224, 0, 0],
            IpAddr::V6(ip) => ip.segments()[0] & 0xff0f == 0xff02,
        }
    }

    pub(crate) fn is_link_local_unicast(self) -> bool {
        match self.0 {
            IpAddr::V4(ip) => ip.is_link_local(),
            IpAddr::V6(ip) => ip.segments()[0] & 0xffc0 == 0xfe80,
        }
    }

    pub(crate) fn is_global_unicast(self) -> bool {
        let broadcast = matches!(self.0, IpAddr::V4(ip) if ip.is_broadcast());
        !(broadcast
            || self.is_unspecified()
            || self.is_loopback()
            || self.0.is_multicast()
            || self.is_link_local_unicast())
    }

    fn bits(self) -> u128 {
        match self.0 {
            IpAddr::V4(ip) => u128::from(u32::from(ip)) << 96,
            IpAddr::V6(ip) => u128::from(ip),
        }
    }
}

impl fmt::Display for Ip {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

fn v4(text: &str) -> Result<Ipv4Addr, String> {
    let mut octets = [0_u8; 4];
    let mut count = 0;
    let mut value: u32 = 0;
    let mut digits = 0;
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b'0'..=b'9' => {
                if digits == 1 && value == 0 {
                    return Err("IPv4 field has octet with leading zero".to_owned());
                }
                value = value * 10 + u32::from(byte - b'0');
                digits += 1;
                if value > 255 {
                    return Err("IPv4 field has value >255".to_owned());
                }
            }
            b'.' => {
                if digits == 0 || at + 1 == text.len() {
                    return Err(format!(
                        "IPv4 field must have at least one digit (at {})",
                        quote(text.get(at..).unwrap_or(""))
                    ));
                }
                if count == 3 {
                    return Err("IPv4 address too long".to_owned());
                }
                octets[count] = value as u8;
                count += 1;
                value = 0;
                digits = 0;
            }
            _ => return Err(format!("unexpected character (at {})", quote(text.get(at..).unwrap_or("")))),
        }
    }
    if count < 3 {
        return Err("IPv4 address too short".to_owned());
    }
    octets[3] = value as u8;
    Ok(octets.into())
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cidr {
    ip: Ip,
    length: u8,
}

impl Cidr {
    pub(crate) fn parse(text: &str) -> Result<Cidr, String> {
        const PREFIX: &str = "network address parse error during conversion from string: ";
        let wrong = |why: &str| format!("{PREFIX}netip.ParsePrefix({}): {why}", quote(text));
        let (address, length) = text.rsplit_once('/').ok_or_else(|| wrong("no '/'"))?;
        let address: IpAddr = match Ip::parse(address) {
            Ok(ip) => ip.0,
            Err(_) if address.contains('%') => return Err(wrong("IPv6 zones cannot be present in a prefix")),
            Err(why) if why.starts_with("IPv4-mapped") => {
                return Err(format!("IPv4-mapped IPv6 address {} is not allowed", quote(text)));
            }
            Err(why) => {
                let why = why.split_once("): ").map_or("unable to parse IP", |(_, why)| why).to_owned();
                return Err(wrong(&format!("ParseAddr({}): {why}", quote(address))));
            }
        };
        let bits = if address.is_ipv4() { 32 } else { 128 };
        let plain = length.bytes().all(|b| b.is_ascii_digit()) && !(length.len() > 1 && length.starts_with('0'));
        let number = length.parse::<u32>().ok().filter(|_| plain);
        match number {
            Some(number) if number <= bits => Ok(Cidr { ip: Ip(address), length: number as u8 }),
            Some(_) => Err(wrong("prefix length out of range")),
            None => Err(wrong(&format!("bad bits after slash: {}", quote(length)))),
        }
    }

    fn mask(self) -> u128 {
        match u32::from(self.length) {
            0 => 0,
            length => u128::MAX << (128 - length),
        }
    }

    pub(crate) fn contains(self, ip: Ip) -> bool {
        self.ip.family() == ip.family() && (self.ip.bits() ^ ip.bits()) & self.mask() == 0
    }

    pub(crate) fn contains_network(self, other: Cidr) -> bool {
        self.length <= other.length && self.contains(other.ip)
    }

    pub(crate) fn ip(self) -> Ip {
        self.ip
    }

    pub(crate) fn prefix_length(self) -> i64 {
        i64::from(self.length)
    }

    pub(crate) fn masked(self) -> Cidr {
        let bits = self.ip.bits() & self.mask();
        let ip: IpAddr = match self.ip.0 {
            IpAddr::V4(_) => Ipv4Addr::from((bits >> 96) as u32).into(),
            IpAddr::V6(_) => Ipv6Addr::from(bits).into(),
        };
        Cidr { ip: Ip(ip), length: self.length }
    }

    /// Number of bytes that the prefix covers.
    pub(crate) fn len(self) -> u64 {
        u64::from(self.length).div_ceil(8)
    }
}

impl fmt::Display for Cidr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.ip, self.length)
    }
}
