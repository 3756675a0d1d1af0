//! A list of shared slices that is sent as one piece: one HTTP/1.1 chunk, one run of TLS records, no copy.

use std::io::IoSlice;

use bytes::{Buf, Bytes};

/// A buffer over shared slices.
///
/// hyper writes it with vectored I/O and as one chunk: a list of ten thousand items has one chunk header.
#[derive(Clone, Debug, Default)]
pub struct Chunk {
    /// The first slice; most responses have only this one, and allocate no vector.
    front: Bytes,
    /// The following slices, from `next` on. Those before `next` have been taken and are empty.
    rest: Vec<Bytes>,
    next: usize,
    remaining: usize,
}

impl Chunk {
    /// Puts a slice before others without moving them.
    #[must_use]
    pub fn with_front(front: Bytes, rest: Vec<Bytes>) -> Self {
        let remaining = front.len() + rest.iter().map(Bytes::len).sum::<usize>();
        let mut chunk = Chunk { front, rest, next: 0, remaining };
        chunk.refill_front();
        chunk
    }

    /// Takes the rest of the first slice, if it is not empty.
    pub fn pop(&mut self) -> Option<Bytes> {
        self.refill_front();
        if self.front.is_empty() {
            return None;
        }
        self.remaining -= self.front.len();
        let front = std::mem::take(&mut self.front);
        self.refill_front();
        Some(front)
    }

    /// Replaces an empty first slice by the next one that is not empty.
    fn refill_front(&mut self) {
        while self.front.is_empty() {
            let Some(slot) = self.rest.get_mut(self.next) else { return };
            // Taken out, so that a long list that is being sent does not keep the objects that were already sent.
            self.front = std::mem::take(slot);
            self.next += 1;
        }
    }
}

impl From<Bytes> for Chunk {
    fn from(bytes: Bytes) -> Self {
        Chunk { remaining: bytes.len(), front: bytes, rest: Vec::new(), next: 0 }
    }
}

impl From<Vec<u8>> for Chunk {
    fn from(bytes: Vec<u8>) -> Self {
        Bytes::from(bytes).into()
    }
}

impl From<Vec<Bytes>> for Chunk {
    fn from(slices: Vec<Bytes>) -> Self {
        Chunk::with_front(Bytes::new(), slices)
    }
}

impl Buf for Chunk {
    fn remaining(&self) -> usize {
        self.remaining
    }

    fn chunk(&self) -> &[u8] {
        &self.front
    }

    fn chunks_vectored<'a>(&'a self, slices: &mut [IoSlice<'a>]) -> usize {
        if slices.is_empty() || self.remaining == 0 {
            return 0;
        }
        let rest = self.rest.get(self.next..).unwrap_or_default();
        let parts = std::iter::once(&self.front).chain(rest).filter(|part| !part.is_empty());
        let mut filled = 0;
        for (slot, part) in slices.iter_mut().zip(parts) {
            *slot = IoSlice::new(part);
            filled += 1;
        }
        filled
    }

    fn advance(&mut self, mut count: usize) {
        assert!(count <= self.remaining, "advanced past the end");
        self.remaining -= count;
        while count > 0 {
            let step = count.min(self.front.len());
            self.front.advance(step);
            count -= step;
            self.refill_front();
        }
    }

    fn copy_to_bytes(&mut self, len: usize) -> Bytes {
        if len == self.front.len() {
            return self.pop().unwrap_or_default();
        }
        if len < self.front.len() {
            self.remaining -= len;
            return self.front.split_to(len);
        }
        let mut copy = Vec::with_capacity(len);
        while copy.len() < len {
            let step = (len - copy.len()).min(self.front.len());
            copy.extend_from_slice(&self.front[..step]);
            self.advance(step);
        }
        copy.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chunk(parts: &[&'static str]) -> Chunk {
        parts.iter().map(|part| Bytes::from_static(part.as_bytes())).collect::<Vec<_>>().into()
    }

    #[test]
    fn reads_as_one_run_of_bytes() {
        for step in 1..=9 {
            let mut chunk = chunk(&["", "ab", "", "cde", "f", ""]);
            assert_eq!(chunk.remaining(), 6);
            let mut read = Vec::new();
            while chunk.has_remaining() {
                assert!(!chunk.chunk().is_empty());
                let part = chunk.copy_to_bytes(step.min(chunk.remaining()));
                read.extend_from_slice(&part);
            }
            assert_eq!(read, b"abcdef", "in steps of {step}");
        }
    }

    #[test]
    fn vectored_slices_are_shared_and_never_empty() {
        let mut chunk = chunk(&["ab", "", "cde", "f"]);
        chunk.advance(1);
        let mut slices = [IoSlice::new(&[]); 8];
        let filled = chunk.chunks_vectored(&mut slices);
        let parts: Vec<&[u8]> = slices[..filled].iter().map(|slice| &**slice).collect();
        assert_eq!(parts, [&b"b"[..], b"cde", b"f"]);
        chunk.advance(5);
        assert!(!chunk.has_remaining());
        assert_eq!(chunk.chunks_vectored(&mut [IoSlice::new(&[]); 2]), 0);
    }

    #[test]
    fn pops_slices_without_copying() {
        let shared = Bytes::from(vec![7; 100]);
        let mut chunk = Chunk::from(vec![Bytes::new(), shared.clone(), Bytes::from_static(b"x")]);
        assert_eq!(chunk.pop().unwrap().as_ptr(), shared.as_ptr());
        assert_eq!(chunk.remaining(), 1);
        assert_eq!(chunk.pop().unwrap(), "x");
        assert_eq!(chunk.pop(), None);
        assert_eq!(chunk.remaining(), 0);
    }
}
