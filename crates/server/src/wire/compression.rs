//! gzip for large responses other than watches, if the client accepts it.

use std::io::Write as _;

use bytes::{Buf as _, Bytes};
use flate2::Compression;
use flate2::write::GzEncoder;
use http::{HeaderMap, header};

use crate::wire::chunk::Chunk;

/// Responses of at most this size are not compressed.
pub const BYTES_MIN: usize = 128 * 1024;

/// Returns whether the client accepts a bare `gzip`; one with a quality does not count, as in the reference.
#[must_use]
pub fn accepted(headers: &HeaderMap) -> bool {
    headers
        .get_all(header::ACCEPT_ENCODING)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .any(|token| token.trim() == "gzip")
}

/// Compresses the content at the fastest level. CPU-bound: 35 MB take more than a tenth of a second, so call it on a
/// blocking thread.
#[must_use]
pub fn gzip(mut content: Chunk) -> Bytes {
    let mut encoder = GzEncoder::new(Vec::with_capacity(content.remaining() / 4), Compression::fast());
    while let Some(part) = content.pop() {
        // Writing into a vector cannot fail.
        let _ = encoder.write_all(&part);
    }
    encoder.finish().unwrap_or_default().into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read as _;

    #[test]
    fn only_a_bare_gzip_counts() {
        for (value, expected) in
            [("gzip", true), ("deflate, gzip, br", true), ("gzip;q=1.0", false), ("*", false), ("identity", false)]
        {
            let headers = HeaderMap::from_iter([(header::ACCEPT_ENCODING, value.parse().unwrap())]);
            assert_eq!(accepted(&headers), expected, "{value}");
        }
        assert!(!accepted(&HeaderMap::new()));
    }

    #[test]
    fn compressed_content_is_the_same() {
        let parts: Vec<Bytes> = (0..1000).map(|n| Bytes::from(format!("item {n}, "))).collect();
        let plain: Vec<u8> = parts.concat();
        let mut read = Vec::new();
        flate2::read::GzDecoder::new(&*gzip(parts.into())).read_to_end(&mut read).unwrap();
        assert_eq!(read, plain);
    }
}
