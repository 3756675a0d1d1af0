//! Descriptions of kinds and fields, which the build script takes from the `k8s-openapi` crate.

use std::io::Read as _;

const PACKED: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/texts.deflate"));

/// The unpacked descriptions: a megabyte, so they are not kept.
pub(crate) struct Texts {
    lines: String,
    /// Offsets of the definitions, sorted by name.
    starts: Vec<usize>,
}

impl Texts {
    /// Unpacks the descriptions; takes a few milliseconds.
    pub(crate) fn unpack() -> Self {
        let mut lines = String::new();
        // The bytes are part of the binary; a test reads them.
        let _ = flate2::read::DeflateDecoder::new(PACKED).read_to_string(&mut lines);
        let mut starts = Vec::with_capacity(700);
        let mut at = 0;
        for line in lines.split_inclusive('\n') {
            if !line.starts_with('\t') {
                starts.push(at);
            }
            at += line.len();
        }
        Texts { lines, starts }
    }

    /// Returns the description of a definition.
    pub(crate) fn of(&self, definition: &str) -> Option<String> {
        let head = self.block(definition)?.lines().next()?;
        head.split_once('\t').map(|(_, text)| plain(text))
    }

    /// Returns the description of a field.
    pub(crate) fn of_field(&self, definition: &str, field: &str) -> Option<String> {
        let fields = self.block(definition)?.lines().skip(1);
        let mut texts = fields.filter_map(|line| line.strip_prefix('\t')?.split_once('\t'));
        texts.find(|(name, _)| *name == field).map(|(_, text)| plain(text))
    }

    fn block(&self, definition: &str) -> Option<&str> {
        let name = |start: &usize| self.lines[*start..].split('\t').next().unwrap_or_default();
        let at = self.starts.binary_search_by(|start| name(start).cmp(definition)).ok()?;
        let end = self.starts.get(at + 1).copied().unwrap_or(self.lines.len());
        Some(&self.lines[self.starts[at]..end])
    }
}

/// Unescapes the inside of a string literal. Rust and JSON agree on the escapes that occur.
fn plain(literal: &str) -> String {
    serde_json::from_str(&format!("\"{literal}\"")).unwrap_or_else(|_| literal.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_found_by_definition_and_field() {
        let texts = Texts::unpack();
        assert!(texts.starts.len() > 600, "{}", texts.starts.len());
        assert!(texts.of("io.k8s.api.core.v1.Pod").unwrap().starts_with("Pod is"));
        assert!(texts.of_field("io.k8s.api.core.v1.PodSpec", "containers").is_some());
        assert!(texts.of_field("io.k8s.api.core.v1.Pod", "spec").is_some(), "a field that refers to a definition");
        assert!(texts.of_field("io.k8s.api.core.v1.HostPathVolumeSource", "type").unwrap().contains("\"\""));
        assert!(texts.of_field("io.k8s.api.core.v1.Pod", "nope").is_none());
        assert!(texts.of("io.k8s.api.core.v1.Nope").is_none());
    }

    #[test]
    fn every_literal_is_one_that_json_reads() {
        let texts = Texts::unpack();
        for line in texts.lines.lines() {
            let literal = line.rsplit('\t').next().unwrap();
            let read: Result<String, _> = serde_json::from_str(&format!("\"{literal}\""));
            assert!(read.is_ok(), "{line}");
        }
    }
}
