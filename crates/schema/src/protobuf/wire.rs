//! Tags, numbers and lengths of protobuf: reading and writing.

/// Wire type of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wire {
    Varint,
    Fixed64,
    Bytes,
    StartGroup,
    EndGroup,
    Fixed32,
}

impl Wire {
    fn from_number(number: u64) -> Option<Wire> {
        Some(match number {
            0 => Wire::Varint,
            1 => Wire::Fixed64,
            2 => Wire::Bytes,
            3 => Wire::StartGroup,
            4 => Wire::EndGroup,
            5 => Wire::Fixed32,
            _ => return None,
        })
    }
}

/// Largest nesting of skipped groups.
const GROUPS_MAX: usize = 32;

/// Reads a message. Every length is checked against the remaining bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Reader { rest: bytes }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    pub(super) fn varint(&mut self) -> Result<u64, String> {
        let mut value = 0u64;
        for (at, byte) in self.rest.iter().enumerate() {
            if at == 10 {
                return Err("proto: integer overflow".to_owned());
            }
            // One bit of the tenth byte counts; the others are dropped, like in Go.
            value |= u64::from(byte & 0x7f) << (7 * at);
            if byte & 0x80 == 0 {
                self.rest = &self.rest[at + 1..];
                return Ok(value);
            }
        }
        Err(if self.rest.len() >= 10 { "proto: integer overflow" } else { "unexpected EOF" }.to_owned())
    }

    /// Reads the number and the wire type of the next field. `message` is for the error text.
    pub(super) fn tag(&mut self, message: &str) -> Result<(u32, Wire), String> {
        let tag = self.varint()?;
        // Kubernetes truncates the number to 32 bits.
        #[expect(clippy::cast_possible_truncation, reason = "cut on purpose")]
        let number = (tag >> 3) as i32;
        let wire = tag & 7;
        if wire == 4 {
            return Err(format!("proto: {message}: wiretype end group for non-group"));
        }
        match (u32::try_from(number), Wire::from_number(wire)) {
            (Ok(1..), None) => Err(format!("proto: illegal wireType {wire}")),
            (Ok(number @ 1..), Some(wire)) => Ok((number, wire)),
            _ => Err(format!("proto: {message}: illegal tag {number} (wire type {wire})")),
        }
    }

    pub(super) fn bytes(&mut self) -> Result<&'a [u8], String> {
        let length = self.varint()?;
        if length > i64::MAX as u64 {
            return Err("proto: negative length found during unmarshaling".to_owned());
        }
        self.take(usize::try_from(length).unwrap_or(usize::MAX))
    }

    pub(super) fn fixed64(&mut self) -> Result<u64, String> {
        let bytes = self.take(8)?;
        Ok(bytes.iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte)))
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8], String> {
        let (taken, rest) = self.rest.split_at_checked(length).ok_or("unexpected EOF")?;
        self.rest = rest;
        Ok(taken)
    }

    /// Skips an unknown field.
    pub(super) fn skip(&mut self, wire: Wire) -> Result<(), String> {
        match wire {
            Wire::Varint => self.varint().map(drop),
            Wire::Fixed64 => self.take(8).map(drop),
            Wire::Fixed32 => self.take(4).map(drop),
            Wire::Bytes => self.bytes().map(drop),
            Wire::StartGroup => {
                let mut open = 1;
                while open > 0 {
                    match Wire::from_number(self.varint()? & 7) {
                        Some(Wire::StartGroup) if open == GROUPS_MAX => return Err("proto: too many groups".to_owned()),
                        Some(Wire::StartGroup) => open += 1,
                        Some(Wire::EndGroup) => open -= 1,
                        Some(plain) => self.skip(plain)?,
                        None => return Err("proto: illegal wireType in a group".to_owned()),
                    }
                }
                Ok(())
            }
            Wire::EndGroup => Err("proto: unexpected end of group".to_owned()),
        }
    }
}

pub(crate) fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        #[expect(clippy::cast_possible_truncation, reason = "seven bits at a time")]
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    #[expect(clippy::cast_possible_truncation, reason = "the loop left seven bits")]
    out.push(value as u8);
}

/// Returns the encoded length of a number.
pub(super) fn varint_len(value: u64) -> usize {
    (64 - (value | 1).leading_zeros() as usize).div_ceil(7)
}

pub(crate) fn put_tag(out: &mut Vec<u8>, number: u32, wire: Wire) {
    let wire = match wire {
        Wire::Varint => 0,
        Wire::Fixed64 => 1,
        Wire::Bytes => 2,
        Wire::StartGroup => 3,
        Wire::EndGroup => 4,
        Wire::Fixed32 => 5,
    };
    put_varint(out, u64::from(number) << 3 | wire);
}

pub(crate) fn put_bytes(out: &mut Vec<u8>, number: u32, bytes: &[u8]) {
    put_tag(out, number, Wire::Bytes);
    put_varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// Writes a nested message. Its length comes first and is known last: one byte is reserved, and a longer length moves
/// the message. Most messages are short.
pub(crate) fn put_message<E>(
    out: &mut Vec<u8>,
    number: u32,
    content: impl FnOnce(&mut Vec<u8>) -> Result<(), E>,
) -> Result<(), E> {
    put_tag(out, number, Wire::Bytes);
    out.push(0);
    let start = out.len();
    content(out)?;
    let end = out.len();
    let length = (end - start) as u64;
    let more = varint_len(length) - 1;
    if more > 0 {
        out.resize(end + more, 0);
        out.copy_within(start..end, start + more);
    }
    let mut at = start - 1;
    let mut left = length;
    while left >= 0x80 {
        #[expect(clippy::cast_possible_truncation, reason = "seven bits at a time")]
        let byte = left as u8 | 0x80;
        out[at] = byte;
        at += 1;
        left >>= 7;
    }
    #[expect(clippy::cast_possible_truncation, reason = "the loop left seven bits")]
    let byte = left as u8;
    out[at] = byte;
    Ok(())
}
