//! The framing of an HTTP/1.1 body: a length, chunks, or the end of the connection.

/// The head of a response.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Head {
    pub(super) status: u16,
    pub(super) framing: Framing,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Framing {
    Length(u64),
    Chunked(Chunked),
    UntilClose,
    Done,
}

/// Inside which part of the chunks the next byte is.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Chunked {
    /// Hexadecimal digits, until the end of their line.
    Size(u64),
    /// The extension after the digits.
    Extension(u64),
    Data(u64),
    /// The line end after data.
    DataEnd,
    /// After the last chunk: lines until an empty one. Counts the bytes of the current line.
    Trailer(usize),
}

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Malformed;

impl Head {
    /// Reads a head that ends with an empty line.
    pub(super) fn parse(head: &[u8]) -> Result<Head, Malformed> {
        let text = std::str::from_utf8(head).map_err(|_| Malformed)?;
        let mut lines = text.split("\r\n");
        let status_line = lines.next().ok_or(Malformed)?;
        let status = status_line.split(' ').nth(1).and_then(|code| code.parse().ok()).ok_or(Malformed)?;
        let mut framing = if status == 204 || status == 304 { Framing::Done } else { Framing::UntilClose };
        for line in lines {
            let Some((name, value)) = line.split_once(':') else { continue };
            if name.eq_ignore_ascii_case("content-length") {
                let length = value.trim().parse().map_err(|_| Malformed)?;
                framing = if length == 0 { Framing::Done } else { Framing::Length(length) };
            } else if name.eq_ignore_ascii_case("transfer-encoding") && value.trim().eq_ignore_ascii_case("chunked") {
                framing = Framing::Chunked(Chunked::Size(0));
            }
        }
        Ok(Head { status, framing })
    }
}

impl Framing {
    pub(super) fn is_done(&self) -> bool {
        *self == Framing::Done
    }

    /// Takes from `input` what belongs to the body and hands over its pieces; gives the number of bytes used.
    pub(super) fn decode(&mut self, input: &[u8], each: &mut dyn FnMut(&[u8])) -> Result<usize, Malformed> {
        match self {
            Framing::Done => Ok(0),
            Framing::UntilClose => {
                each(input);
                Ok(input.len())
            }
            Framing::Length(left) => {
                let taken = input.len().min(usize::try_from(*left).unwrap_or(usize::MAX));
                each(&input[..taken]);
                *left -= taken as u64;
                if *left == 0 {
                    *self = Framing::Done;
                }
                Ok(taken)
            }
            Framing::Chunked(state) => {
                let (used, ended) = state.decode(input, each)?;
                if ended {
                    *self = Framing::Done;
                }
                Ok(used)
            }
        }
    }
}

impl Chunked {
    fn decode(&mut self, input: &[u8], each: &mut dyn FnMut(&[u8])) -> Result<(usize, bool), Malformed> {
        let mut at = 0;
        while at < input.len() {
            let byte = input[at];
            match self {
                Chunked::Data(left) => {
                    let taken = (input.len() - at).min(usize::try_from(*left).unwrap_or(usize::MAX));
                    each(&input[at..at + taken]);
                    at += taken;
                    *left -= taken as u64;
                    if *left == 0 {
                        *self = Chunked::DataEnd;
                    }
                    continue;
                }
                Chunked::Size(size) | Chunked::Extension(size) if byte == b'\n' => {
                    *self = if *size == 0 { Chunked::Trailer(0) } else { Chunked::Data(*size) };
                }
                Chunked::Extension(_) => {}
                Chunked::Size(size) => match char::from(byte).to_digit(16) {
                    Some(digit) => *size = size.checked_mul(16).ok_or(Malformed)? + u64::from(digit),
                    None if byte == b'\r' || byte == b';' => *self = Chunked::Extension(*size),
                    None => return Err(Malformed),
                },
                Chunked::DataEnd => match byte {
                    b'\r' => {}
                    b'\n' => *self = Chunked::Size(0),
                    _ => return Err(Malformed),
                },
                Chunked::Trailer(line) => match byte {
                    b'\n' if *line == 0 => return Ok((at + 1, true)),
                    b'\n' => *line = 0,
                    b'\r' => {}
                    _ => *line += 1,
                },
            }
            at += 1;
        }
        Ok((at, false))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decoded(mut framing: Framing, input: &[u8], piece: usize) -> (Vec<u8>, bool, usize) {
        let (mut body, mut used) = (Vec::new(), 0);
        for part in input.chunks(piece) {
            let taken = framing.decode(part, &mut |bytes| body.extend_from_slice(bytes)).expect("it is well formed");
            used += taken;
            if taken < part.len() {
                break;
            }
        }
        (body, framing.is_done(), used)
    }

    #[test]
    fn a_head_determines_the_framing_of_its_body() {
        let head = |text: &str| Head::parse(text.as_bytes()).expect("a head");
        let long = head("HTTP/1.1 201 Created\r\nContent-Length: 12\r\n\r\n");
        assert_eq!(long, Head { status: 201, framing: Framing::Length(12) });
        let chunked = head("HTTP/1.1 200 OK\r\ntransfer-encoding: Chunked\r\n\r\n").framing;
        assert_eq!(chunked, Framing::Chunked(Chunked::Size(0)));
        assert_eq!(head("HTTP/1.0 200 OK\r\n\r\n").framing, Framing::UntilClose);
        assert_eq!(head("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").framing, Framing::Done);
        assert_eq!(Head::parse(b"SSH-2.0\r\n\r\n"), Err(Malformed));
    }

    #[test]
    fn chunks_are_the_same_however_they_arrive() {
        let wire = b"4\r\nab\nc\r\n1;x=y\r\ne\r\n0\r\nTrailer: 1\r\n\r\nHTTP";
        for piece in 1..=wire.len() {
            let (body, done, used) = decoded(Framing::Chunked(Chunked::Size(0)), wire, piece);
            assert_eq!((body.as_slice(), done), (&b"ab\nce"[..], true), "in pieces of {piece}");
            assert_eq!(used, wire.len() - 4, "what follows is not taken, in pieces of {piece}");
        }
    }

    #[test]
    fn nonsense_is_not_a_chunk() {
        let mut framing = Framing::Chunked(Chunked::Size(0));
        assert_eq!(framing.decode(b"zz\r\n", &mut |_| ()), Err(Malformed));
        let mut framing = Framing::Chunked(Chunked::Size(0));
        assert_eq!(framing.decode(b"1\r\naXX", &mut |_| ()), Err(Malformed));
        let mut framing = Framing::Chunked(Chunked::Size(0));
        assert_eq!(framing.decode(b"fffffffffffffffff\r\n", &mut |_| ()), Err(Malformed));
    }

    #[test]
    fn a_length_ends_the_body() {
        let (body, done, used) = decoded(Framing::Length(3), b"abcdef", 2);
        assert_eq!((body.as_slice(), done, used), (&b"abc"[..], true, 3));
    }
}
