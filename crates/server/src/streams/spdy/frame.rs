//! The frames of SPDY/3.1: their heads, and the control frames.
//!
//! ```text
//!   control   1 version:15 type:16   flags:8 length:24   payload
//!   data      0 stream:31            flags:8 length:24   payload
//! ```

use super::headers::{Deflater, Headers, Inflater};

/// Largest payload of a control frame. Data frames may have any length and are read in pieces.
pub const CONTROL_BYTES_MAX: usize = 16 * 1024;
/// Bytes of the head of a frame.
pub const HEAD_BYTES: usize = 8;

const VERSION: u16 = 3;
const CONTROL: u8 = 0x80;
const FIN: u8 = 1;

const SYN_STREAM: u16 = 1;
const SYN_REPLY: u16 = 2;
const RST_STREAM: u16 = 3;
const PING: u16 = 6;
const GOAWAY: u16 = 7;
const HEADERS: u16 = 8;

/// The peer does not speak SPDY/3.1, or sends more than it may.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Malformed(pub &'static str);

/// The head of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Head {
    Data { stream: u32, ends: bool, bytes: usize },
    Control { kind: u16, flags: u8, bytes: usize },
}

/// A control frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Control {
    /// The peer opens a stream.
    Open { stream: u32, ends: bool, headers: Headers },
    /// The peer gives up a stream.
    Reset { stream: u32 },
    /// To be sent back, if the peer sent it first.
    Ping(u32),
    /// The peer opens no more streams.
    GoAway,
    /// Settings, windows and replies, which need no answer: the other implementation has no windows either.
    Other,
}

impl Head {
    pub fn parse(head: [u8; HEAD_BYTES]) -> Result<Self, Malformed> {
        let [a, b, c, d, flags, e, f, g] = head;
        let bytes = u32::from_be_bytes([0, e, f, g]) as usize;
        if a & CONTROL == 0 {
            return Ok(Head::Data { stream: u32::from_be_bytes([a, b, c, d]), ends: flags & FIN != 0, bytes });
        }
        if u16::from_be_bytes([a & !CONTROL, b]) != VERSION {
            return Err(Malformed("a frame has another version of SPDY"));
        }
        if bytes > CONTROL_BYTES_MAX {
            return Err(Malformed("a control frame is too large"));
        }
        Ok(Head::Control { kind: u16::from_be_bytes([c, d]), flags, bytes })
    }
}

impl Control {
    /// Reads the payload of a control frame. Blocks of headers are always decompressed, since the next ones refer to them.
    pub fn parse(kind: u16, flags: u8, payload: &[u8], inflater: &mut Inflater) -> Result<Self, Malformed> {
        const SHORT: Malformed = Malformed("a control frame is too short");
        let (first, rest) = match payload.split_first_chunk::<4>() {
            Some((first, rest)) => (u32::from_be_bytes(*first), rest),
            None => return Err(SHORT),
        };
        let stream = first & 0x7fff_ffff;
        Ok(match kind {
            SYN_STREAM => {
                // The associated stream, the priority and the slot say nothing here.
                let block = rest.get(6..).ok_or(SHORT)?;
                let headers = inflater.read(block)?;
                if stream == 0 || stream % 2 == 0 {
                    return Err(Malformed("a client opens streams of odd numbers"));
                }
                Control::Open { stream, ends: flags & FIN != 0, headers }
            }
            SYN_REPLY | HEADERS => {
                inflater.read(rest)?;
                Control::Other
            }
            RST_STREAM => Control::Reset { stream },
            PING => Control::Ping(first),
            GOAWAY => Control::GoAway,
            _ => Control::Other,
        })
    }
}

/// The head of a data frame.
#[must_use]
pub fn data_head(stream: u32, ends: bool, bytes: usize) -> [u8; HEAD_BYTES] {
    let [a, b, c, d] = (stream & 0x7fff_ffff).to_be_bytes();
    let [_, e, f, g] = (bytes as u32).to_be_bytes();
    [a, b, c, d, if ends { FIN } else { 0 }, e, f, g]
}

fn control(kind: u16, payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![CONTROL, VERSION as u8];
    frame.extend_from_slice(&kind.to_be_bytes());
    frame.extend_from_slice(&(payload.len() as u32).to_be_bytes());
    frame.extend_from_slice(payload);
    frame
}

/// Accepts a stream of the peer.
#[must_use]
pub fn reply(stream: u32, deflater: &mut Deflater) -> Vec<u8> {
    let mut payload = stream.to_be_bytes().to_vec();
    payload.extend(deflater.write(&[]));
    control(SYN_REPLY, &payload)
}

/// Gives up a stream, with the status `CANCEL` or another one.
#[must_use]
pub fn reset(stream: u32, status: u32) -> Vec<u8> {
    control(RST_STREAM, &[stream.to_be_bytes(), status.to_be_bytes()].concat())
}

#[must_use]
pub fn ping(id: u32) -> Vec<u8> {
    control(PING, &id.to_be_bytes())
}

/// Announces the end of the connection: no stream after this one was accepted.
#[must_use]
pub fn go_away(last: u32) -> Vec<u8> {
    control(GOAWAY, &[last.to_be_bytes(), [0; 4]].concat())
}

/// Opens a stream, as a client does; for tests and fuzzing.
#[must_use]
pub fn open(stream: u32, headers: &[(&str, &str)], deflater: &mut Deflater) -> Vec<u8> {
    let mut payload = [stream.to_be_bytes(), [0; 4]].concat();
    payload.extend([0, 0]);
    payload.extend(deflater.write(headers));
    control(SYN_STREAM, &payload)
}

/// Reads all frames of a connection, as far as they can be read; for fuzzing.
pub fn read_all(mut bytes: &[u8]) -> Result<usize, Malformed> {
    let mut inflater = Inflater::default();
    let mut count = 0;
    while let Some((head, rest)) = bytes.split_first_chunk::<HEAD_BYTES>() {
        bytes = rest;
        let len = match Head::parse(*head)? {
            Head::Data { bytes: len, .. } => len,
            Head::Control { kind, flags, bytes: len } => {
                let payload = bytes.get(..len).unwrap_or(bytes);
                Control::parse(kind, flags, payload, &mut inflater)?;
                len
            }
        };
        bytes = bytes.get(len..).unwrap_or_default();
        count += 1;
    }
    Ok(count)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(frame: &[u8], inflater: &mut Inflater) -> Result<Control, Malformed> {
        let (head, payload) = frame.split_first_chunk::<HEAD_BYTES>().unwrap();
        let Head::Control { kind, flags, bytes } = Head::parse(*head)? else { panic!("a data frame") };
        assert_eq!(bytes, payload.len());
        Control::parse(kind, flags, payload, inflater)
    }

    #[test]
    fn sp_1_frames_are_read_as_they_are_written() {
        let (mut deflater, mut inflater) = (Deflater::default(), Inflater::default());
        let opened = parse(&open(3, &[("streamType", "error")], &mut deflater), &mut inflater).unwrap();
        let headers = vec![("streamtype".to_owned(), "error".to_owned())];
        assert_eq!(opened, Control::Open { stream: 3, ends: false, headers });
        assert_eq!(parse(&reply(3, &mut deflater), &mut inflater), Ok(Control::Other));
        assert_eq!(parse(&ping(7), &mut inflater), Ok(Control::Ping(7)));
        assert_eq!(parse(&reset(5, 8), &mut inflater), Ok(Control::Reset { stream: 5 }));
        assert_eq!(parse(&go_away(5), &mut inflater), Ok(Control::GoAway));
        assert_eq!(Head::parse(data_head(5, true, 70_000)), Ok(Head::Data { stream: 5, ends: true, bytes: 70_000 }));
    }

    #[test]
    fn sp_2_frames_that_no_client_sends_are_refused() {
        let mut inflater = Inflater::default();
        let even = open(2, &[], &mut Deflater::default());
        assert!(parse(&even, &mut inflater).is_err());
        assert!(Head::parse([CONTROL, 2, 0, 1, 0, 0, 0, 0]).is_err(), "SPDY/2");
        assert!(Head::parse([CONTROL, 3, 0, 1, 0, 0xff, 0xff, 0xff]).is_err(), "too large");
        assert!(parse(&control(PING, &[0]), &mut inflater).is_err());
        assert!(parse(&control(SYN_STREAM, &[0; 8]), &mut inflater).is_err());
    }
}
