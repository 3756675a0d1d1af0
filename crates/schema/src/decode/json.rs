//! Parses JSON: keeps the last of duplicate keys and reports duplicates. Errors have the text of Go's decoder, which
//! clients see and compare.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::hash::{BuildHasher as _, DefaultHasher, Hasher as _, RandomState};

use machinery::json::{self, Value};
use serde::de::{DeserializeSeed, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};

/// A parsed document.
#[derive(Debug)]
pub struct Document {
    pub value: Value,
    /// An object has a duplicate key; [`duplicates`] finds it.
    pub has_duplicates: bool,
}

/// Parses a text. Errors have Go's text.
pub fn parse(text: &[u8]) -> Result<Document, String> {
    match json::from_slice_noting_duplicates(text) {
        Ok((value, has_duplicates)) => Ok(Document { value, has_duplicates }),
        Err(_) => lenient(text),
    }
}

/// Handles a text that serde_json refused: returns Go's error, or the value where Go accepts more (invalid UTF-8 and
/// lone surrogates become U+FFFD).
fn lenient(text: &[u8]) -> Result<Document, String> {
    Scanner::new(text).check()?;
    let repaired = repair(text);
    match json::from_slice_noting_duplicates(repaired.as_bytes()) {
        Ok((value, has_duplicates)) => Ok(Document { value, has_duplicates }),
        Err(error) if error.to_string().starts_with("recursion limit") => Err("exceeded max depth".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

/// Replaces invalid UTF-8 and lone `\uD8xx` surrogates.
fn repair(text: &[u8]) -> String {
    let text = String::from_utf8_lossy(text);
    let bytes = text.as_bytes();
    let mut out = String::with_capacity(text.len());
    let mut from = 0;
    let mut at = 0;
    let unit = |at: usize| {
        let digits = text.get(at + 2..at + 6).filter(|_| bytes[at] == b'\\' && bytes.get(at + 1) == Some(&b'u'));
        digits.and_then(|digits| u16::from_str_radix(digits, 16).ok())
    };
    while at < bytes.len() {
        if bytes[at] != b'\\' {
            at += 1;
            continue;
        }
        match unit(at) {
            Some(0xd800..=0xdbff) if at + 6 < bytes.len() && matches!(unit(at + 6), Some(0xdc00..=0xdfff)) => at += 12,
            Some(0xd800..=0xdfff) => {
                out.push_str(&text[from..at]);
                out.push_str("\\ufffd");
                at += 6;
                from = at;
            }
            _ => at += 2,
        }
    }
    out.push_str(&text[from.min(text.len())..]);
    out
}

/// Most paths of duplicate keys that are reported. The reference's decoder ends there too: a path may be as long as the text,
/// and a text may have as many as it has bytes.
pub(super) const COMPLAINTS_MAX: usize = 100;

/// Returns the paths of duplicate keys in the order of the text, each once, [`COMPLAINTS_MAX`] at most:
/// `spec.containers[0].image`.
///
/// Only for documents that have some: a second pass is cheaper than tracking the path while parsing.
pub fn duplicates(text: &[u8]) -> Vec<String> {
    let mut found = Vec::new();
    let mut known = HashSet::new();
    visit_keys(text, &RandomState::new(), &mut |path, hash, is_new| {
        if !is_new && known.insert(hash) {
            found.push(path.to_owned());
        }
        found.len() < COMPLAINTS_MAX
    });
    found
}

/// Returns the positions of the first and of the second key of each path, among all keys in order; the largest number for
/// none.
pub(super) fn key_positions(text: &[u8], paths: &[String]) -> Vec<[usize; 2]> {
    const NONE: usize = usize::MAX;
    let seed = RandomState::new();
    let hash = |path: &str| finish(&seed.build_hasher(), path);
    let mut positions: HashMap<u64, [usize; 2]> = paths.iter().map(|path| (hash(path), [NONE; 2])).collect();
    let mut at = 0;
    visit_keys(text, &seed, &mut |_, hash, _| {
        match positions.get_mut(&hash) {
            Some([first @ NONE, _]) => *first = at,
            Some([_, second @ NONE]) => *second = at,
            _ => {}
        }
        at += 1;
        true
    });
    paths.iter().map(|path| positions[&hash(path)]).collect()
}

/// Called with the path of a key, the hash of the path, and whether its object has no such key before. Returns false to end.
type Visit<'a> = dyn FnMut(&str, u64, bool) -> bool + 'a;

/// Visits the keys of a document in order.
fn visit_keys(text: &[u8], seed: &RandomState, visit: &mut Visit<'_>) {
    let mut path = String::new();
    let mut deserializer = serde_json::Deserializer::from_slice(text);
    // The text was parsed before, so the only error is the end that the visitor asks for.
    let _ = Keys { path: &mut path, hasher: seed.build_hasher(), visit }.deserialize(&mut deserializer);
}

/// Returns the hash of a text that follows what a hasher has read.
fn finish(hasher: &DefaultHasher, text: &str) -> u64 {
    let mut hasher = hasher.clone();
    hasher.write(text.as_bytes());
    hasher.finish()
}

/// Visits the keys below a path. A path may be long, and its hash is continued from that of the path above it.
struct Keys<'a, 'v> {
    path: &'a mut String,
    hasher: DefaultHasher,
    visit: &'a mut Visit<'v>,
}

impl<'de> DeserializeSeed<'de> for Keys<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Keys<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E>(self, _: &str) -> Result<(), E> {
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        let length = self.path.len();
        for index in 0.. {
            let step = format!("[{index}]");
            self.path.push_str(&step);
            let mut hasher = self.hasher.clone();
            hasher.write(step.as_bytes());
            let more = items.next_element_seed(Keys { path: self.path, hasher, visit: self.visit })?.is_some();
            self.path.truncate(length);
            if !more {
                break;
            }
        }
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<(), A::Error> {
        let length = self.path.len();
        let mut seen = HashSet::new();
        while let Some(key) = entries.next_key::<String>()? {
            let mut hasher = self.hasher.clone();
            if length > 0 {
                self.path.push('.');
                hasher.write(b".");
            }
            self.path.push_str(&key);
            hasher.write(key.as_bytes());
            if !(self.visit)(self.path, hasher.finish(), seen.insert(key)) {
                return Err(A::Error::custom("enough keys"));
            }
            entries.next_value_seed(Keys { path: self.path, hasher, visit: self.visit })?;
            self.path.truncate(length);
        }
        Ok(())
    }
}

/// Deeper documents are refused, like in Go (there at 10 000; here at the limit of the parser).
const DEPTH_MAX: usize = 127;

/// Finds the first syntax error and returns Go's text for it.
struct Scanner<'a> {
    text: &'a [u8],
    at: usize,
}

const END: &str = "unexpected end of JSON input";

impl<'a> Scanner<'a> {
    fn new(text: &'a [u8]) -> Self {
        Scanner { text, at: 0 }
    }

    fn check(mut self) -> Result<(), String> {
        self.value(0)?;
        self.space();
        match self.peek() {
            None => Ok(()),
            Some(_) => Err(self.unexpected("after top-level value")),
        }
    }

    fn peek(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    fn space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\r' | b'\n')) {
            self.at += 1;
        }
    }

    fn unexpected(&self, context: &str) -> String {
        match self.peek() {
            None => END.to_owned(),
            Some(byte) => format!("invalid character {} {context}", quote_byte(byte)),
        }
    }

    fn value(&mut self, depth: usize) -> Result<(), String> {
        self.space();
        match self.peek() {
            Some(b'{' | b'[') if depth >= DEPTH_MAX => Err("exceeded max depth".to_owned()),
            Some(b'{') => self.object(depth),
            Some(b'[') => self.array(depth),
            Some(b'"') => self.string(),
            Some(b'-' | b'0'..=b'9') => self.number(),
            Some(b't') => self.literal("true"),
            Some(b'f') => self.literal("false"),
            Some(b'n') => self.literal("null"),
            _ => Err(self.unexpected("looking for beginning of value")),
        }
    }

    fn object(&mut self, depth: usize) -> Result<(), String> {
        self.at += 1;
        self.space();
        if self.peek() == Some(b'}') {
            self.at += 1;
            return Ok(());
        }
        loop {
            self.space();
            if self.peek() != Some(b'"') {
                return Err(self.unexpected("looking for beginning of object key string"));
            }
            self.string()?;
            self.space();
            if self.peek() != Some(b':') {
                return Err(self.unexpected("after object key"));
            }
            self.at += 1;
            self.value(depth + 1)?;
            self.space();
            match self.peek() {
                Some(b',') => self.at += 1,
                Some(b'}') => {
                    self.at += 1;
                    return Ok(());
                }
                _ => return Err(self.unexpected("after object key:value pair")),
            }
        }
    }

    fn array(&mut self, depth: usize) -> Result<(), String> {
        self.at += 1;
        self.space();
        if self.peek() == Some(b']') {
            self.at += 1;
            return Ok(());
        }
        loop {
            self.value(depth + 1)?;
            self.space();
            match self.peek() {
                Some(b',') => self.at += 1,
                Some(b']') => {
                    self.at += 1;
                    return Ok(());
                }
                _ => return Err(self.unexpected("after array element")),
            }
        }
    }

    fn string(&mut self) -> Result<(), String> {
        self.at += 1;
        loop {
            match self.peek() {
                Some(b'"') => {
                    self.at += 1;
                    return Ok(());
                }
                Some(b'\\') => {
                    self.at += 1;
                    match self.peek() {
                        Some(b'b' | b'f' | b'n' | b'r' | b't' | b'\\' | b'/' | b'"') => self.at += 1,
                        Some(b'u') => {
                            self.at += 1;
                            for _ in 0..4 {
                                if !self.peek().is_some_and(|b| b.is_ascii_hexdigit()) {
                                    return Err(self.unexpected("in \\u hexadecimal character escape"));
                                }
                                self.at += 1;
                            }
                        }
                        _ => return Err(self.unexpected("in string escape code")),
                    }
                }
                Some(0..0x20) | None => return Err(self.unexpected("in string literal")),
                Some(_) => self.at += 1,
            }
        }
    }

    fn number(&mut self) -> Result<(), String> {
        if self.peek() == Some(b'-') {
            self.at += 1;
        }
        match self.peek() {
            Some(b'0') => self.at += 1,
            Some(b'1'..=b'9') => self.digits(),
            _ => return Err(self.unexpected("in numeric literal")),
        }
        if self.peek() == Some(b'.') {
            self.at += 1;
            if !self.peek().is_some_and(|b| b.is_ascii_digit()) {
                return Err(self.unexpected("after decimal point in numeric literal"));
            }
            self.digits();
        }
        if matches!(self.peek(), Some(b'e' | b'E')) {
            self.at += 1;
            if matches!(self.peek(), Some(b'+' | b'-')) {
                self.at += 1;
            }
            if !self.peek().is_some_and(|b| b.is_ascii_digit()) {
                return Err(self.unexpected("in exponent of numeric literal"));
            }
            self.digits();
        }
        Ok(())
    }

    fn digits(&mut self) {
        while self.peek().is_some_and(|b| b.is_ascii_digit()) {
            self.at += 1;
        }
    }

    fn literal(&mut self, word: &'static str) -> Result<(), String> {
        for expected in word.bytes() {
            if self.peek() != Some(expected) {
                let context = format!("in literal {word} (expecting {})", quote_byte(expected));
                return Err(self.unexpected(&context));
            }
            self.at += 1;
        }
        Ok(())
    }
}

/// Quotes a byte like Go's errors: as the character with its number.
fn quote_byte(byte: u8) -> String {
    match byte {
        b'\'' => r"'\''".to_owned(),
        b'"' => "'\"'".to_owned(),
        b'\\' => r"'\\'".to_owned(),
        b'\n' => r"'\n'".to_owned(),
        b'\r' => r"'\r'".to_owned(),
        b'\t' => r"'\t'".to_owned(),
        0x07 => r"'\a'".to_owned(),
        0x08 => r"'\b'".to_owned(),
        0x0b => r"'\v'".to_owned(),
        0x0c => r"'\f'".to_owned(),
        0..0x20 | 0x7f => format!("'\\x{byte:02x}'"),
        0x80..=0xa0 | 0xad => format!("'\\u{byte:04x}'"),
        _ => format!("'{}'", char::from(byte)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(text: &str) -> String {
        parse(text.as_bytes()).unwrap_err()
    }

    #[test]
    fn refusals_read_like_gos() {
        for (text, wanted) in [
            ("", "unexpected end of JSON input"),
            ("{", "unexpected end of JSON input"),
            ("hello", "invalid character 'h' looking for beginning of value"),
            ("{\"a\":}", "invalid character '}' looking for beginning of value"),
            ("{} trailing", "invalid character 't' after top-level value"),
            ("nope", "invalid character 'o' in literal null (expecting 'u')"),
            ("{nope", "invalid character 'n' looking for beginning of object key string"),
            ("[1 2]", "invalid character '2' after array element"),
            ("{\"a\" 1}", "invalid character '1' after object key"),
            ("{\"a\":1 \"b\":2}", "invalid character '\"' after object key:value pair"),
            ("\"\\x\"", "invalid character 'x' in string escape code"),
            ("1.", "unexpected end of JSON input"),
            ("-x", "invalid character 'x' in numeric literal"),
        ] {
            assert_eq!(refusal(text), wanted, "{text}");
        }
    }

    #[test]
    fn the_last_duplicate_wins_and_all_are_named() {
        let text = br#"{"metadata":{"name":"a","name":"b"},"list":[{},{"x":1,"x":2,"x":3}],"data":{"k":1}}"#;
        let document = parse(text).unwrap();
        assert!(document.has_duplicates);
        assert_eq!(document.value["metadata"]["name"], "b");
        assert_eq!(duplicates(text), ["metadata.name", "list[1].x"]);
        assert!(!parse(b"{\"a\":{\"a\":1}}").unwrap().has_duplicates);
    }

    #[test]
    fn a_duplicate_is_named_once_and_a_hundred_at_most() {
        assert_eq!(duplicates(br#"{"a":{"x":1,"x":2},"a":{"x":3,"x":4},"a":0}"#), ["a.x", "a"]);
        let many: Vec<String> = (0..150).map(|at| format!("\"k{at}\":1,\"k{at}\":2")).collect();
        let found = duplicates(format!("{{{}}}", many.join(",")).as_bytes());
        assert_eq!((found.len(), found.last().map(String::as_str)), (100, Some("k99")));
    }

    #[test]
    fn keys_are_found_at_their_positions() {
        let text = br#"{"a":{"b":1},"a":{"c":[{"d":1}]}}"#;
        assert_eq!(
            key_positions(text, &["a.c[0].d".into(), "a".into(), "x".into()]),
            [[4, usize::MAX], [0, 2], [usize::MAX; 2]]
        );
    }

    #[test]
    fn what_is_no_unicode_is_replaced() {
        assert_eq!(parse(b"\"a\xffb\"").unwrap().value, "a\u{fffd}b");
        assert_eq!(parse(br#""a\ud800b""#).unwrap().value, "a\u{fffd}b");
        assert_eq!(parse(br#""\ud83d\ude00""#).unwrap().value, "😀");
    }

    #[test]
    fn depth_is_bounded() {
        let deep = "[".repeat(100_000);
        assert_eq!(refusal(&deep), "exceeded max depth");
        let closed = format!("{}{}", "[".repeat(5000), "]".repeat(5000));
        assert_eq!(refusal(&closed), "exceeded max depth");
    }
}
