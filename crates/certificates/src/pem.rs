//! PEM blocks: the text form of keys, requests and certificates.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

/// Type of the block of a certificate request.
pub const CERTIFICATE_REQUEST: &str = "CERTIFICATE REQUEST";
/// Type of the block of a certificate.
pub const CERTIFICATE: &str = "CERTIFICATE";

/// One block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block {
    pub kind: String,
    /// Whether lines `Name: value` precede the content.
    pub has_headers: bool,
    pub content: Vec<u8>,
}

/// Malformed blocks that are skipped. Each is searched for its end in all of the text, so that there must not be many.
const SKIPPED_MAX: usize = 64;

/// Returns the first block of a text and the text after it. Text before the block and some blocks that are malformed are skipped.
#[must_use]
pub fn decode(text: &str) -> Option<(Block, &str)> {
    const BEGIN: &str = "-----BEGIN ";
    let mut rest = text;
    for _ in 0..=SKIPPED_MAX {
        let start = line_start(rest, BEGIN)?;
        let after = &rest[start + BEGIN.len()..];
        rest = after;
        let Some((kind, body)) = after.split_once("-----") else { continue };
        if kind.contains('\n') {
            continue;
        }
        let end = format!("-----END {kind}-----");
        let Some(stop) = line_start(body, &end) else { continue };
        let Some((has_headers, content)) = read_body(&body[..stop]) else { continue };
        return Some((Block { kind: kind.to_owned(), has_headers, content }, &body[stop + end.len()..]));
    }
    None
}

/// The position of the first line that begins with a text.
fn line_start(text: &str, wanted: &str) -> Option<usize> {
    if text.starts_with(wanted) {
        return Some(0);
    }
    text.match_indices(wanted).map(|(at, _)| at).find(|at| text.as_bytes()[..*at].ends_with(b"\n"))
}

fn read_body(body: &str) -> Option<(bool, Vec<u8>)> {
    let lines = body.lines().map(str::trim);
    let has_headers = lines.clone().any(|line| line.contains(':'));
    let content: String = lines.filter(|line| !line.contains(':')).collect();
    STANDARD.decode(content).ok().map(|content| (has_headers, content))
}

/// Writes a block in lines of 64 characters.
#[must_use]
pub fn encode(kind: &str, content: &[u8]) -> String {
    const LINE: usize = 64;
    let text = STANDARD.encode(content);
    let mut out = format!("-----BEGIN {kind}-----\n");
    let mut rest = text.as_str();
    while !rest.is_empty() {
        let (line, next) = rest.split_at(rest.len().min(LINE));
        out.push_str(line);
        out.push('\n');
        rest = next;
    }
    out.push_str(&format!("-----END {kind}-----\n"));
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_of_malformed_blocks_is_not_searched_for_long() {
        let block = encode(CERTIFICATE, b"content");
        let few = "-----BEGIN A-----\n".repeat(SKIPPED_MAX) + &block;
        assert_eq!(decode(&few).map(|(block, _)| block.content), Some(b"content".to_vec()));
        let many = "-----BEGIN A-----\n".repeat(SKIPPED_MAX + 1) + &block;
        assert_eq!(decode(&many), None);
    }

    #[test]
    fn blocks_are_found_in_text_and_written_back() {
        let block = encode(CERTIFICATE, &[7; 100]);
        assert!(block.lines().all(|line| line.len() <= 64));
        let text = format!("subject=me\n{block}issuer\n{block}");
        let (first, rest) = decode(&text).unwrap();
        assert_eq!(
            (first.kind.as_str(), first.has_headers, first.content.as_slice()),
            (CERTIFICATE, false, &[7; 100][..])
        );
        let (second, rest) = decode(rest).unwrap();
        assert_eq!((second, decode(rest)), (first, None));
    }

    #[test]
    fn what_is_malformed_is_no_block() {
        for text in
            ["", "nope", "-----BEGIN A-----\nAAAA\n-----END B-----\n", "-----BEGIN A-----\n!!\n-----END A-----\n"]
        {
            assert_eq!(decode(text), None, "{text}");
        }
        assert_eq!(decode("x -----BEGIN A-----\nAAAA\n-----END A-----\n"), None, "not at the start of a line");
        let (block, _) = decode("-----BEGIN A-----\nDEK-Info: x\n\nAAAA\n-----END A-----\n").unwrap();
        assert!(block.has_headers);
        assert_eq!(block.content, [0, 0, 0]);
    }
}
