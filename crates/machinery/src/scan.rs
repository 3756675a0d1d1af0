//! Steps over JSON text without reading it: where a value ends, which members an object has.
//!
//! For text that this project wrote, or that is read afterwards: what is stepped over is not checked, only that it ends.

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

    /// The next byte that is no space.
    pub fn peek(&mut self) -> Option<u8> {
        while let Some(byte) = self.text.get(self.at) {
            if !matches!(byte, b' ' | b'\n' | b'\r' | b'\t') {
                return Some(*byte);
            }
            self.at += 1;
        }
        None
    }

    /// Steps over a byte if it comes next.
    pub fn take(&mut self, byte: u8) -> bool {
        let is_next = self.peek() == Some(byte);
        self.at += usize::from(is_next);
        is_next
    }

    /// Steps over a byte that has to be next.
    pub fn expect(&mut self, byte: u8) -> Result<(), Malformed> {
        if self.take(byte) { Ok(()) } else { Err(Malformed) }
    }

    /// The inside of a string, escapes and all.
    pub fn string(&mut self) -> Result<&'a [u8], Malformed> {
        self.expect(b'"')?;
        let from = self.at;
        self.at = string_end(self.text, from)?;
        Ok(&self.text[from..self.at - 1])
    }

    /// The text of the value that comes next.
    pub fn value(&mut self) -> Result<&'a [u8], Malformed> {
        let byte = self.peek().ok_or(Malformed)?;
        let from = self.at;
        match byte {
            b'"' => {
                self.string()?;
            }
            // The other sort of bracket is balanced inside.
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

    /// The name of the next member, behind `{` (`first`) or behind another member; none at the end of the object.
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

    /// Whether an item comes next, behind `[` (`first`) or behind another item.
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

/// The place behind the string whose inside begins at `at`.
fn string_end(text: &[u8], mut at: usize) -> Result<usize, Malformed> {
    loop {
        at += text.get(at..).and_then(quote_or_backslash).ok_or(Malformed)?;
        if text[at] == b'"' {
            return Ok(at + 1);
        }
        at += 2;
    }
}

/// Where the first quote or backslash stands. Eight bytes at a time: strings in objects are short, so that a search made for
/// long texts costs three times as much.
fn quote_or_backslash(bytes: &[u8]) -> Option<usize> {
    const ONES: u64 = u64::from_le_bytes([1; 8]);
    // The top bit of each byte that is zero; above the lowest of them some others too.
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

/// The members of an object as texts: names without their quotes but with their escapes, and values. Ends early where the
/// text is no object.
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
            // Both begin and end at quotes, brackets or commas.
            Some((std::str::from_utf8(name).ok()?, std::str::from_utf8(value).ok()?))
        };
        let found = next();
        is_over = found.is_none();
        found
    })
}

/// Where the value of a member stands in the text of an object; none if there is no such member, or several. What follows the
/// object is not looked at.
#[must_use]
pub fn place_of(text: &[u8], name: &str) -> Option<Range<usize>> {
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
    fn a_member_is_found_where_it_stands_if_it_stands_once() {
        let text = br#" {"a":{"b":1}, "b" : {"a":"}"} ,"c":2}"#;
        assert_eq!(place_of(text, "b").map(|at| &text[at]), Some(&br#"{"a":"}"}"#[..]));
        assert_eq!(place_of(text, "d"), None);
        assert_eq!(place_of(br#"{"a":1,"b":2,"a":3}"#, "a"), None);
        for odd in ["", "[]", "{", r#"{"a":1"#, r#"{"a":1 "b":2}"#, r#"{"a"}"#] {
            assert_eq!(place_of(odd.as_bytes(), "a"), None, "{odd}");
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
    fn the_first_quote_or_backslash_is_found_wherever_it_stands() {
        for length in 0..20 {
            let text = vec![b'x'; length];
            assert_eq!(quote_or_backslash(&text), None);
            for at in 0..length {
                for byte in [b'"', b'\\'] {
                    let mut text = vec![0xe9; length];
                    text[at] = byte;
                    // What follows a match does not matter.
                    text.iter_mut().skip(at + 1).for_each(|later| *later = byte + 1);
                    assert_eq!(quote_or_backslash(&text), Some(at));
                }
            }
        }
    }

    #[test]
    fn what_does_not_end_is_malformed() {
        for text in ["", "{", "[", "\"", "\"\\", "{\"a\":", "[[]", ","] {
            assert!(Scan::new(text.as_bytes()).value().is_err(), "{text}");
        }
    }
}
