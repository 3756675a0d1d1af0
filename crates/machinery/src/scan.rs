//! Skips through JSON text without parsing it: finds the end of a value, the members of an object.
//!
//! For text that this project wrote, or that is parsed afterwards: skipped text is not checked, except that it ends.

use std::ops::Range;

use crate::encoded::Malformed;

/// A position in JSON text. Each step returns what it stepped over, or [`Malformed`] where the text does not continue so.
#[derive(Clone, Debug)]
pub struct Scan<'a> {
    text: &'a [u8],
    at: usize,
}

impl<'a> Scan<'a> {
    /// The beginning of `text`.
    #[must_use]
    pub fn new(text: &'a [u8]) -> Self {
        Scan { text, at: 0 }
    }

    /// Returns the next byte that is not white space.
    pub fn peek(&mut self) -> Option<u8> {
        while let Some(byte) = self.text.get(self.at) {
            if !matches!(byte, b' ' | b'\n' | b'\r' | b'\t') {
                return Some(*byte);
            }
            self.at += 1;
        }
        None
    }

    /// Consumes a byte if it is next.
    pub fn take(&mut self, byte: u8) -> bool {
        let is_next = self.peek() == Some(byte);
        self.at += usize::from(is_next);
        is_next
    }

    /// Steps over a byte that has to be next.
    pub fn expect(&mut self, byte: u8) -> Result<(), Malformed> {
        if self.take(byte) { Ok(()) } else { Err(Malformed) }
    }

    /// Consumes a string; returns its inside with the escapes.
    pub fn string(&mut self) -> Result<&'a [u8], Malformed> {
        self.expect(b'"')?;
        let from = self.at;
        self.at = string_end(self.text, from)?;
        Ok(&self.text[from..self.at - 1])
    }

    /// Consumes a value; returns its text.
    pub fn value(&mut self) -> Result<&'a [u8], Malformed> {
        let byte = self.peek().ok_or(Malformed)?;
        let from = self.at;
        match byte {
            b'"' => {
                self.string()?;
            }
            // Brackets of the other kind are balanced inside.
            b'{' => self.balanced(b'{', b'}')?,
            b'[' => self.balanced(b'[', b']')?,
            _ => {
                let is_end = |byte: &u8| matches!(byte, b',' | b'}' | b']' | b' ' | b'\n' | b'\r' | b'\t');
                self.at = self.text[self.at..].iter().position(is_end).map_or(self.text.len(), |end| self.at + end);
                if self.at == from {
                    return Err(Malformed);
                }
            }
        }
        Ok(&self.text[from..self.at])
    }

    fn balanced(&mut self, open: u8, close: u8) -> Result<(), Malformed> {
        let (mut at, mut depth) = (self.at, 0_usize);
        loop {
            let byte = *self.text.get(at).ok_or(Malformed)?;
            at += 1;
            if byte == b'"' {
                at = string_end(self.text, at)?;
            } else if byte == open {
                depth += 1;
            } else if byte == close {
                depth -= 1;
                if depth == 0 {
                    self.at = at;
                    return Ok(());
                }
            }
        }
    }

    /// Consumes the name of the next member, after `{` (`first`) or after another member; `None` at the end of the object.
    pub fn member(&mut self, first: bool) -> Result<Option<&'a [u8]>, Malformed> {
        if self.take(b'}') {
            return Ok(None);
        }
        if !first {
            self.expect(b',')?;
        }
        let name = self.string()?;
        self.expect(b':')?;
        Ok(Some(name))
    }

    /// Returns whether an item follows, after `[` (`first`) or after another item.
    pub fn item(&mut self, first: bool) -> Result<bool, Malformed> {
        if self.take(b']') {
            return Ok(false);
        }
        if !first {
            self.expect(b',')?;
        }
        Ok(true)
    }
}

/// Returns the index after the string whose inside begins at `at`.
pub(crate) fn string_end(text: &[u8], mut at: usize) -> Result<usize, Malformed> {
    loop {
        at += text.get(at..).and_then(quote_or_backslash).ok_or(Malformed)?;
        if text[at] == b'"' {
            return Ok(at + 1);
        }
        at += 2;
    }
}

/// Finds the first quote or backslash, eight bytes at a time. Strings in objects are short: a search that is made for long texts
/// (`memchr`) costs three times as much.
fn quote_or_backslash(bytes: &[u8]) -> Option<usize> {
    const ONES: u64 = u64::from_le_bytes([1; 8]);
    // Sets the top bit of each byte that is zero; above the lowest of them perhaps of others too.
    let zeros = |word: u64| word.wrapping_sub(ONES) & !word & (ONES << 7);
    let (words, rest) = bytes.as_chunks::<8>();
    for (at, word) in words.iter().enumerate() {
        let word = u64::from_le_bytes(*word);
        let found = zeros(word ^ (ONES * u64::from(b'"'))) | zeros(word ^ (ONES * u64::from(b'\\')));
        if found != 0 {
            return Some(at * 8 + found.trailing_zeros() as usize / 8);
        }
    }
    let at = rest.iter().position(|byte| matches!(byte, b'"' | b'\\'))?;
    Some(words.len() * 8 + at)
}

/// Iterates over the members of an object as texts: names without quotes but with escapes, and values. Ends early where the
/// text is malformed.
pub fn members(text: &str) -> impl Iterator<Item = (&str, &str)> {
    let mut scan = Scan::new(text.as_bytes());
    let mut is_over = !scan.take(b'{');
    let mut first = true;
    std::iter::from_fn(move || {
        if is_over {
            return None;
        }
        let mut next = || {
            let name = scan.member(std::mem::take(&mut first)).ok()??;
            let value = scan.value().ok()?;
            // Both begin and end at ASCII bytes, so they are whole characters.
            Some((std::str::from_utf8(name).ok()?, std::str::from_utf8(value).ok()?))
        };
        let found = next();
        is_over = found.is_none();
        found
    })
}

/// Returns the range of a member's value in the text of an object; `None` if there is no such member, or several. Text after the
/// object is ignored.
#[must_use]
pub fn member_range(text: &[u8], name: &str) -> Option<Range<usize>> {
    let mut scan = Scan::new(text);
    scan.expect(b'{').ok()?;
    let mut found = None;
    let mut first = true;
    while let Some(member) = scan.member(std::mem::take(&mut first)).ok()? {
        let length = scan.value().ok()?.len();
        if member == name.as_bytes() && found.replace(scan.at - length..scan.at).is_some() {
            return None;
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_range_of_a_member_is_found_if_its_name_is_unique() {
        let text = br#" {"a":{"b":1}, "b" : {"a":"}"} ,"c":2}"#;
        assert_eq!(member_range(text, "b").map(|at| &text[at]), Some(&br#"{"a":"}"}"#[..]));
        assert_eq!(member_range(text, "d"), None);
        assert_eq!(member_range(br#"{"a":1,"b":2,"a":3}"#, "a"), None);
        for odd in ["", "[]", "{", r#"{"a":1"#, r#"{"a":1 "b":2}"#, r#"{"a"}"#] {
            assert_eq!(member_range(odd.as_bytes(), "a"), None, "{odd}");
        }
    }

    #[test]
    fn members_are_found_as_texts() {
        let text = r#"{"a":{"}":"{"},"b\"":[1,{"c":"]"}], "d" : true,"e":"x\\"}"#;
        let found: Vec<_> = members(text).collect();
        assert_eq!(found, [("a", r#"{"}":"{"}"#), (r#"b\""#, r#"[1,{"c":"]"}]"#), ("d", "true"), ("e", r#""x\\""#)]);
        assert_eq!(members("{}").count(), 0);
        assert_eq!(members("[]").count(), 0);
        assert_eq!(members(r#"{"a":1,"b"#).count(), 1);
    }

    #[test]
    fn the_first_quote_or_backslash_is_found_at_every_position() {
        for length in 0..20 {
            let text = vec![b'x'; length];
            assert_eq!(quote_or_backslash(&text), None);
            for at in 0..length {
                for byte in [b'"', b'\\'] {
                    let mut text = vec![0xe9; length];
                    text[at] = byte;
                    // Bytes after a match do not matter.
                    text.iter_mut().skip(at + 1).for_each(|later| *later = byte + 1);
                    assert_eq!(quote_or_backslash(&text), Some(at));
                }
            }
        }
    }

    #[test]
    fn a_value_without_an_end_is_malformed() {
        for text in ["", "{", "[", "\"", "\"\\", "{\"a\":", "[[]", ","] {
            assert!(Scan::new(text.as_bytes()).value().is_err(), "{text}");
        }
    }
}
