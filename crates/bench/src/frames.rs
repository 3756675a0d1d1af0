//! Events in the body of a watch, found without decoding: they end with a newline, and JSON has none inside.

use memchr::memchr_iter;
use memchr::memmem::Finder;

/// The annotation with the due time of a write, in nanoseconds of the generator's own clock.
pub(crate) const DUE: &str = "bench/due";

/// Splits a body into lines; a line that is whole in one piece is not copied.
#[derive(Default)]
pub(crate) struct Lines {
    begun: Vec<u8>,
}

impl Lines {
    pub(crate) fn feed(&mut self, piece: &[u8], mut each: impl FnMut(&[u8])) {
        let mut start = 0;
        for end in memchr_iter(b'\n', piece) {
            if self.begun.is_empty() {
                each(&piece[start..end]);
            } else {
                self.begun.extend_from_slice(&piece[start..end]);
                each(&self.begun);
                self.begun.clear();
            }
            start = end + 1;
        }
        self.begun.extend_from_slice(&piece[start..]);
    }
}

/// Finds `"name":"123"` in text that is not parsed.
pub(crate) struct Field {
    finder: Finder<'static>,
}

impl Field {
    pub(crate) fn new(name: &str) -> Self {
        Field { finder: Finder::new(format!("\"{name}\":\"").as_bytes()).into_owned() }
    }

    pub(crate) fn text<'a>(&self, line: &'a [u8]) -> Option<&'a str> {
        let start = self.finder.find(line)? + self.finder.needle().len();
        let length = memchr::memchr(b'"', &line[start..])?;
        std::str::from_utf8(&line[start..start + length]).ok()
    }

    pub(crate) fn number(&self, line: &[u8]) -> Option<u64> {
        self.text(line)?.parse().ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_the_same_however_they_arrive() {
        let body = b"{\"a\":1}\n\n{\"b\":2}\n{\"unfinished";
        for piece in 1..=body.len() {
            let (mut lines, mut found) = (Lines::default(), Vec::new());
            for part in body.chunks(piece) {
                lines.feed(part, |line| found.push(String::from_utf8_lossy(line).into_owned()));
            }
            assert_eq!(found, ["{\"a\":1}", "", "{\"b\":2}"], "in pieces of {piece}");
        }
    }

    #[test]
    fn a_field_is_found_despite_its_entry_in_managed_fields() {
        let line = br#"{"f:bench/due":{},"bench/due":"12345","resourceVersion":"7"}"#;
        assert_eq!(Field::new(DUE).number(line), Some(12_345));
        assert_eq!(Field::new("resourceVersion").text(line), Some("7"));
        assert_eq!(Field::new("missing").number(line), None);
        assert_eq!(Field::new(DUE).number(br#"{"bench/due":"12"#), None);
    }
}
