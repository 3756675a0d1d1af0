//! The body of a response, decoded from the bytes of its connection.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes, BytesMut};
use http_body::{Body, Frame};
use tokio::io::AsyncRead;
use tokio_util::io::poll_read_buf;

use super::BoxError;
use super::exchange::MalformedResponse;

/// Bytes to read from the connection at once: the most that a TLS record carries.
pub(super) const READ_BYTES: usize = 16 << 10;
/// Longest line with a chunk size, and longest trailer line.
const LINE_BYTES_MAX: usize = 16 << 10;

/// The framing of a body.
pub(super) enum Framing {
    /// Chunked transfer coding.
    Chunks(ChunkState),
    /// Number of bytes that are still missing.
    Length(u64),
    UntilClosed,
}

/// The state of the chunk decoder.
pub(super) enum ChunkState {
    Size,
    /// Number of bytes of the chunk that are still missing.
    Data(u64),
    DataEnd,
    /// After the last chunk.
    Trailers,
    End,
}

/// The result of one decoding step.
enum Decoded {
    Data(Bytes),
    End,
    NeedsMore,
}

impl Framing {
    pub(super) fn chunks() -> Self {
        Self::Chunks(ChunkState::Size)
    }

    /// Takes the next part of the body out of `read`.
    fn take(&mut self, read: &mut BytesMut) -> Result<Decoded, MalformedResponse> {
        match self {
            Self::Chunks(state) => state.take(read),
            Self::Length(0) => Ok(Decoded::End),
            Self::Length(left) => Ok(take_data(left, read)),
            Self::UntilClosed if read.is_empty() => Ok(Decoded::NeedsMore),
            Self::UntilClosed => Ok(Decoded::Data(read.split().freeze())),
        }
    }
}

impl ChunkState {
    fn take(&mut self, read: &mut BytesMut) -> Result<Decoded, MalformedResponse> {
        loop {
            match self {
                Self::Size => match httparse::parse_chunk_size(read).map_err(|_| MalformedResponse::Chunk)? {
                    httparse::Status::Complete((line, size)) => {
                        read.advance(line);
                        *self = if size == 0 { Self::Trailers } else { Self::Data(size) };
                    }
                    httparse::Status::Partial => return wait_for_line(read),
                },
                Self::Data(0) => *self = Self::DataEnd,
                Self::Data(left) => return Ok(take_data(left, read)),
                Self::DataEnd => match read.get(..2) {
                    Some(b"\r\n") => {
                        read.advance(2);
                        *self = Self::Size;
                    }
                    Some(_) => return Err(MalformedResponse::Chunk),
                    None => return Ok(Decoded::NeedsMore),
                },
                // Read and dropped: a watch needs none of them.
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
                Self::End => return Ok(Decoded::End),
            }
        }
    }
}

/// Takes the bytes that have arrived, at most `left`.
fn take_data(left: &mut u64, read: &mut BytesMut) -> Decoded {
    if read.is_empty() {
        return Decoded::NeedsMore;
    }
    let length = usize::try_from(*left).map_or(read.len(), |left| left.min(read.len()));
    *left -= length as u64;
    Decoded::Data(read.split_to(length).freeze())
}

fn wait_for_line(read: &BytesMut) -> Result<Decoded, MalformedResponse> {
    if read.len() > LINE_BYTES_MAX { Err(MalformedResponse::Chunk) } else { Ok(Decoded::NeedsMore) }
}

/// The body of a response, with its connection. Dropping it closes the connection.
pub struct ResponseBody<I> {
    io: I,
    /// Bytes that were read and not decoded yet.
    read: BytesMut,
    framing: Framing,
}

impl<I> ResponseBody<I> {
    pub(super) fn new(io: I, read: BytesMut, framing: Framing) -> Self {
        Self { io, read, framing }
    }
}

impl<I: AsyncRead + Unpin> Body for ResponseBody<I> {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let Self { io, read, framing } = self.get_mut();
        loop {
            match framing.take(read) {
                Ok(Decoded::Data(bytes)) => return Poll::Ready(Some(Ok(Frame::data(bytes)))),
                Ok(Decoded::End) => return Poll::Ready(None),
                Ok(Decoded::NeedsMore) => {}
                Err(malformed) => return Poll::Ready(Some(Err(malformed.into()))),
            }
            // Allocates nothing if the last part has been dropped.
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

    /// Decodes text that arrives in pieces of random sizes. Returns the body up to its end, a fault or the end of the text; `true`
    /// if the body came to its end.
    fn read_in_pieces(random: &mut StdRng, text: &[u8]) -> (Vec<u8>, Result<bool, ()>) {
        let (mut framing, mut read, mut body) = (Framing::chunks(), BytesMut::new(), Vec::new());
        let mut left = text;
        loop {
            match framing.take(&mut read) {
                Ok(Decoded::Data(bytes)) => {
                    assert!(!bytes.is_empty(), "an empty part is not progress");
                    body.extend_from_slice(&bytes);
                }
                Ok(Decoded::End) => return (body, Ok(true)),
                Ok(Decoded::NeedsMore) if left.is_empty() => return (body, Ok(false)),
                Ok(Decoded::NeedsMore) => {
                    let (piece, rest) = left.split_at(random.random_range(1..=left.len().min(9)));
                    read.extend_from_slice(piece);
                    left = rest;
                }
                Err(_) => return (body, Err(())),
            }
        }
    }

    #[test]
    fn chunks_of_any_size_are_decoded_in_whatever_pieces_they_arrive() {
        for seed in 0..3_000 {
            let random = &mut StdRng::seed_from_u64(seed);
            let (mut body, mut text) = (Vec::new(), Vec::new());
            for _ in 0..random.random_range(0..5) {
                // Made of bytes that have a meaning between chunks.
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
            // Damaged anywhere: the result does not depend on the pieces.
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
