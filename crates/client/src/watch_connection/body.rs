//! The body of an answer, cut out of what its connection brings.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes, BytesMut};
use http_body::{Body, Frame};
use tokio::io::AsyncRead;
use tokio_util::io::poll_read_buf;

use super::BoxError;
use super::exchange::Malformed;

/// What is asked of the connection at once: the most that a TLS record carries.
pub(super) const READ_BYTES: usize = 16 << 10;
/// The line that names a piece's length, and everything after the last piece, must end within so many bytes.
const LINE_BYTES_MAX: usize = 16 << 10;

/// How the end of a body is told.
pub(super) enum Framing {
    /// Each piece names its length; one of length 0 is the last.
    Chunks(Chunk),
    /// So many bytes are to come.
    Length(u64),
    UntilClosed,
}

/// Where in the pieces of a body its reader stands.
pub(super) enum Chunk {
    Size,
    /// So many bytes of it are to come.
    Data(u64),
    DataEnd,
    /// After the last piece.
    Trailers,
    End,
}

/// What can be made of the bytes that are there.
enum Part {
    Data(Bytes),
    End,
    NeedsMore,
}

impl Framing {
    pub(super) fn chunks() -> Self {
        Self::Chunks(Chunk::Size)
    }

    /// Takes the next part of the body out of `read`.
    fn take(&mut self, read: &mut BytesMut) -> Result<Part, Malformed> {
        match self {
            Self::Chunks(chunk) => chunk.take(read),
            Self::Length(0) => Ok(Part::End),
            Self::Length(left) => Ok(take_of(left, read)),
            Self::UntilClosed if read.is_empty() => Ok(Part::NeedsMore),
            Self::UntilClosed => Ok(Part::Data(read.split().freeze())),
        }
    }
}

impl Chunk {
    fn take(&mut self, read: &mut BytesMut) -> Result<Part, Malformed> {
        loop {
            match self {
                Self::Size => match httparse::parse_chunk_size(read).map_err(|_| Malformed::Chunk)? {
                    httparse::Status::Complete((line, size)) => {
                        read.advance(line);
                        *self = if size == 0 { Self::Trailers } else { Self::Data(size) };
                    }
                    httparse::Status::Partial => return wait_for_line(read),
                },
                Self::Data(0) => *self = Self::DataEnd,
                Self::Data(left) => return Ok(take_of(left, read)),
                Self::DataEnd => match read.get(..2) {
                    Some(b"\r\n") => {
                        read.advance(2);
                        *self = Self::Size;
                    }
                    Some(_) => return Err(Malformed::Chunk),
                    None => return Ok(Part::NeedsMore),
                },
                // They say nothing that a watch wants to know.
                Self::Trailers => match memchr::memchr(b'\n', read) {
                    Some(end) => {
                        let blank = matches!(&read[..end], b"" | b"\r");
                        read.advance(end + 1);
                        if blank {
                            *self = Self::End;
                        }
                    }
                    None => return wait_for_line(read),
                },
                Self::End => return Ok(Part::End),
            }
        }
    }
}

/// As many of the bytes that are to come as are there.
fn take_of(left: &mut u64, read: &mut BytesMut) -> Part {
    if read.is_empty() {
        return Part::NeedsMore;
    }
    let length = usize::try_from(*left).map_or(read.len(), |left| left.min(read.len()));
    *left -= length as u64;
    Part::Data(read.split_to(length).freeze())
}

fn wait_for_line(read: &BytesMut) -> Result<Part, Malformed> {
    if read.len() > LINE_BYTES_MAX { Err(Malformed::Chunk) } else { Ok(Part::NeedsMore) }
}

/// The body of an answer, with its connection. Dropping it closes the connection.
pub(super) struct AnswerBody<I> {
    io: I,
    /// What was read and not handed out yet.
    read: BytesMut,
    framing: Framing,
}

impl<I> AnswerBody<I> {
    pub(super) fn new(io: I, read: BytesMut, framing: Framing) -> Self {
        Self { io, read, framing }
    }
}

impl<I: AsyncRead + Unpin> Body for AnswerBody<I> {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let Self { io, read, framing } = self.get_mut();
        loop {
            match framing.take(read) {
                Ok(Part::Data(bytes)) => return Poll::Ready(Some(Ok(Frame::data(bytes)))),
                Ok(Part::End) => return Poll::Ready(None),
                Ok(Part::NeedsMore) => {}
                Err(malformed) => return Poll::Ready(Some(Err(malformed.into()))),
            }
            // Nothing is allocated as long as whoever took the last part has let go of it.
            read.reserve(READ_BYTES);
            if ready!(poll_read_buf(Pin::new(&mut *io), cx, read))? == 0 {
                return Poll::Ready(match framing {
                    Framing::UntilClosed => None,
                    _ => Some(Err(io::Error::from(io::ErrorKind::UnexpectedEof).into())),
                });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::rngs::StdRng;
    use rand::{Rng, SeedableRng};

    /// What is read of text that arrives in pieces of any sizes, until its end or a fault; and whether it came to its end.
    fn read_in_pieces(random: &mut StdRng, text: &[u8]) -> (Vec<u8>, Result<bool, ()>) {
        let (mut framing, mut read, mut body) = (Framing::chunks(), BytesMut::new(), Vec::new());
        let mut left = text;
        loop {
            match framing.take(&mut read) {
                Ok(Part::Data(bytes)) => {
                    assert!(!bytes.is_empty(), "an empty part would be taken for progress");
                    body.extend_from_slice(&bytes);
                }
                Ok(Part::End) => return (body, Ok(true)),
                Ok(Part::NeedsMore) if left.is_empty() => return (body, Ok(false)),
                Ok(Part::NeedsMore) => {
                    let (piece, rest) = left.split_at(random.random_range(1..=left.len().min(9)));
                    read.extend_from_slice(piece);
                    left = rest;
                }
                Err(_) => return (body, Err(())),
            }
        }
    }

    #[test]
    fn chunks_of_any_sizes_that_arrive_in_any_pieces_are_the_body_and_nothing_else() {
        for seed in 0..3_000 {
            let random = &mut StdRng::seed_from_u64(seed);
            let (mut body, mut text) = (Vec::new(), Vec::new());
            for _ in 0..random.random_range(0..5) {
                // With the bytes in it that mean something between chunks.
                let chunk: Vec<u8> =
                    (0..random.random_range(1..40)).map(|_| b"\r\n0;a{"[random.random_range(0..6)]).collect();
                let extension = ["", ";a", "; a=\"b\"", " "][random.random_range(0..4)];
                text.extend_from_slice(format!("{:x}{extension}\r\n", chunk.len()).as_bytes());
                text.extend_from_slice(&chunk);
                text.extend_from_slice(b"\r\n");
                body.extend_from_slice(&chunk);
            }
            text.extend_from_slice(["0\r\n\r\n", "0\r\nx: y\r\n\r\n"][random.random_range(0..2)].as_bytes());
            assert_eq!(read_in_pieces(random, &text), (body.clone(), Ok(true)), "seed {seed}");
            // Cut anywhere: a beginning of the body, and no end.
            let cut = random.random_range(0..text.len());
            let (begun, ended) = read_in_pieces(random, &text[..cut]);
            assert!(ended == Ok(false) && body.starts_with(&begun), "seed {seed} cut at {cut}");
            // Damaged anywhere: whatever comes of it, it does not depend on the pieces.
            let mut damaged = text.clone();
            let at = random.random_range(0..damaged.len());
            damaged[at] = random.random();
            assert_eq!(
                read_in_pieces(random, &damaged),
                read_in_pieces(random, &damaged),
                "seed {seed} damaged at {at}"
            );
        }
    }
}
