//! The header blocks of SPDY/3: names and values with their lengths, compressed over the whole connection.
//!
//! ```text
//!   00 00 00 01                      one header
//!   00 00 00 0a s t r e a m t y p e  its name, in lower case
//!   00 00 00 06 s t d o u t          its value
//! ```

use flate2::{Compress, Compression, Decompress, FlushCompress, FlushDecompress, Status};

use super::dictionary::DICTIONARY;
use super::frame::Malformed;

/// Largest header block, uncompressed.
pub const HEADER_BLOCK_BYTES_MAX: usize = 32 * 1024;
/// Headers of one stream.
pub const HEADERS_MAX: usize = 64;
/// Bytes that are decompressed at once.
const STEP_BYTES: usize = 4 * 1024;

/// Names in lower case, and values.
pub type Headers = Vec<(String, String)>;

/// Decompresses the header blocks of one peer.
pub struct Inflater(Decompress);

impl Default for Inflater {
    fn default() -> Self {
        Inflater(Decompress::new(true))
    }
}

impl Inflater {
    /// Reads the next block.
    pub fn read(&mut self, block: &[u8]) -> Result<Headers, Malformed> {
        parse(&self.inflate(block)?)
    }

    fn inflate(&mut self, mut block: &[u8]) -> Result<Vec<u8>, Malformed> {
        let mut plain = Vec::new();
        loop {
            let mut step = [0; STEP_BYTES];
            let (read, written) = (self.0.total_in(), self.0.total_out());
            let result = self.0.decompress(block, &mut step, FlushDecompress::Sync);
            let consumed = usize::try_from(self.0.total_in() - read).unwrap_or(block.len());
            let made = usize::try_from(self.0.total_out() - written).unwrap_or_default();
            block = block.get(consumed..).unwrap_or_default();
            plain.extend_from_slice(step.get(..made).unwrap_or_default());
            if plain.len() > HEADER_BLOCK_BYTES_MAX {
                return Err(Malformed("a header block is too large"));
            }
            match result {
                Err(error) if error.needs_dictionary().is_some() => {
                    self.0.set_dictionary(&DICTIONARY).map_err(|_| Malformed("headers have another dictionary"))?;
                }
                Err(_) => return Err(Malformed("a header block cannot be decompressed")),
                Ok(Status::StreamEnd) => return Err(Malformed("the compression of headers ended")),
                Ok(Status::Ok | Status::BufError) if consumed == 0 && made == 0 => return Ok(plain),
                Ok(Status::Ok | Status::BufError) => {}
            }
        }
    }
}

/// Compresses the header blocks that are sent to one peer.
pub struct Deflater(Compress);

impl Default for Deflater {
    fn default() -> Self {
        let mut compress = Compress::new(Compression::fast(), true);
        // Fails only where the compression has begun already.
        let _ = compress.set_dictionary(&DICTIONARY);
        Deflater(compress)
    }
}

impl Deflater {
    /// The next block.
    pub fn write(&mut self, headers: &[(&str, &str)]) -> Vec<u8> {
        let mut plain = (headers.len() as u32).to_be_bytes().to_vec();
        for text in headers.iter().flat_map(|(name, value)| [name, value]) {
            plain.extend_from_slice(&(text.len() as u32).to_be_bytes());
            plain.extend_from_slice(text.as_bytes());
        }
        // Enough room for a block that cannot be made smaller, with the marks of zlib.
        let mut block = Vec::with_capacity(plain.len() * 2 + 256);
        let _ = self.0.compress_vec(&plain, &mut block, FlushCompress::Sync);
        block
    }
}

/// Reads an uncompressed block.
pub fn parse(mut block: &[u8]) -> Result<Headers, Malformed> {
    const SHORT: Malformed = Malformed("a header block is too short");
    fn number(block: &mut &[u8]) -> Result<usize, Malformed> {
        let (head, rest) = block.split_first_chunk::<4>().ok_or(SHORT)?;
        *block = rest;
        Ok(u32::from_be_bytes(*head) as usize)
    }
    fn text(block: &mut &[u8]) -> Result<String, Malformed> {
        let len = number(block)?;
        let (text, rest) = block.split_at_checked(len).ok_or(SHORT)?;
        *block = rest;
        String::from_utf8(text.to_vec()).map_err(|_| Malformed("a header is not UTF-8"))
    }
    let count = number(&mut block)?;
    if count > HEADERS_MAX {
        return Err(Malformed("a stream has too many headers"));
    }
    let mut headers = Headers::with_capacity(count);
    for _ in 0..count {
        let name = text(&mut block)?;
        headers.push((name.to_ascii_lowercase(), text(&mut block)?));
    }
    Ok(headers)
}

/// The first value of a header.
#[must_use]
pub fn value<'h>(headers: &'h [(String, String)], name: &str) -> &'h str {
    let found = headers.iter().find(|(known, _)| known == name);
    found.and_then(|(_, values)| values.split('\0').next()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_compressed_over_the_whole_connection() {
        let (mut deflater, mut inflater) = (Deflater::default(), Inflater::default());
        for number in 0..20 {
            let port = format!("{number}");
            let sent = [("streamtype", "data"), ("port", port.as_str()), ("requestid", "7")];
            let block = deflater.write(&sent);
            let read = inflater.read(&block).unwrap();
            assert_eq!(read.iter().map(|(n, v)| (n.as_str(), v.as_str())).collect::<Vec<_>>(), sent);
        }
        assert_eq!(inflater.read(&deflater.write(&[])).unwrap(), []);
    }

    #[test]
    fn sp_2_large_and_broken_blocks_are_refused() {
        let mut deflater = Deflater::default();
        let large = "a".repeat(HEADER_BLOCK_BYTES_MAX);
        let block = deflater.write(&[("a", &large)]);
        assert_eq!(Inflater::default().read(&block), Err(Malformed("a header block is too large")));
        let many = vec![("a", "b"); HEADERS_MAX + 1];
        assert!(Inflater::default().read(&Deflater::default().write(&many)).is_err());
        assert!(Inflater::default().read(b"nonsense").is_err());
        for block in
            [&[][..], &[0, 0, 0, 1], &[0, 0, 0, 1, 255, 255, 255, 255], &[0, 0, 0, 1, 0, 0, 0, 1, 0xff, 0, 0, 0, 0]]
        {
            assert!(parse(block).is_err(), "{block:?}");
        }
    }
}
