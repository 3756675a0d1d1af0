//! Syntax errors of JSON in the words of Go's decoder, which clients see in 400 responses.

use std::fmt::Write as _;

use crate::json::Value;

/// Deepest nesting accepted, as in the reference.
const DEPTH_MAX: usize = 10_000;

/// Returns the first syntax error; `None` for well-formed JSON.
#[must_use]
pub fn syntax_error(text: &[u8]) -> Option<String> {
    let mut scan = Scan { text, at: 0 };
    match scan.document() {
        Ok(()) => None,
        Err(Fault::End) => Some("unexpected end of JSON input".to_owned()),
        Err(Fault::Depth) => Some("exceeded max depth".to_owned()),
        Err(Fault::Byte(byte, place)) => Some(format!("invalid character {} {place}", quoted(byte))),
    }
}

/// Returns the decoder's name for a kind of value, as in `cannot unmarshal string into …`.
#[must_use]
pub fn json_kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) | Value::Raw(_) => "object",
    }
}

/// Returns a byte in single quotes, as Go prints it.
fn quoted(byte: u8) -> String {
    match byte {
        b'\'' => "'\\''".to_owned(),
        b'"' => "'\"'".to_owned(),
        0x80.. => format!("'\\x{byte:02x}'"),
        _ => {
            let text = crate::go_text::quote(&char::from(byte).to_string());
            let mut out = String::from("'");
            let _ = write!(out, "{}'", &text[1..text.len() - 1]);
            out
        }
    }
}

enum Fault {
    End,
    Depth,
    Byte(u8, &'static str),
}

#[derive(Clone, Copy)]
enum Inside {
    Object,
    Array,
}

struct Scan<'a> {
    text: &'a [u8],
    at: usize,
}

impl Scan<'_> {
    fn document(&mut self) -> Result<(), Fault> {
        let mut nesting: Vec<Inside> = Vec::new();
        loop {
            // A value begins here.
            match self.next_token()? {
                b'{' => {
                    if self.close(b'}')? {
                        // An empty object is a finished value.
                    } else {
                        self.key()?;
                        push(&mut nesting, Inside::Object)?;
                        continue;
                    }
                }
                b'[' => {
                    if !self.close(b']')? {
                        push(&mut nesting, Inside::Array)?;
                        continue;
                    }
                }
                b'"' => self.string()?,
                b'-' => {
                    let byte = self.next_or_blank();
                    self.number(byte)?;
                }
                byte @ b'0'..=b'9' => self.number(byte)?,
                b't' => self.literal(&[
                    (b'r', "in literal true (expecting 'r')"),
                    (b'u', "in literal true (expecting 'u')"),
                    (b'e', "in literal true (expecting 'e')"),
                ])?,
                b'f' => self.literal(&[
                    (b'a', "in literal false (expecting 'a')"),
                    (b'l', "in literal false (expecting 'l')"),
                    (b's', "in literal false (expecting 's')"),
                    (b'e', "in literal false (expecting 'e')"),
                ])?,
                b'n' => self.literal(&[
                    (b'u', "in literal null (expecting 'u')"),
                    (b'l', "in literal null (expecting 'l')"),
                    (b'l', "in literal null (expecting 'l')"),
                ])?,
                byte => return Err(Fault::Byte(byte, "looking for beginning of value")),
            }
            // A value ended here.
            loop {
                match nesting.last() {
                    None => {
                        return match self.next_token() {
                            Ok(byte) => Err(Fault::Byte(byte, "after top-level value")),
                            Err(_) => Ok(()),
                        };
                    }
                    Some(Inside::Object) => match self.next_token()? {
                        b',' => {
                            self.key()?;
                            break;
                        }
                        b'}' => {
                            nesting.pop();
                        }
                        byte => return Err(Fault::Byte(byte, "after object key:value pair")),
                    },
                    Some(Inside::Array) => match self.next_token()? {
                        b',' => break,
                        b']' => {
                            nesting.pop();
                        }
                        byte => return Err(Fault::Byte(byte, "after array element")),
                    },
                }
            }
        }
    }

    fn next(&mut self) -> Result<u8, Fault> {
        let byte = self.text.get(self.at).copied().ok_or(Fault::End)?;
        self.at += 1;
        Ok(byte)
    }

    /// Inside a number, a literal or an escape the reference treats the end of the text as a blank.
    fn next_or_blank(&mut self) -> u8 {
        self.next().unwrap_or(b' ')
    }

    fn skip_blanks(&mut self) {
        while matches!(self.text.get(self.at), Some(b' ' | b'\t' | b'\r' | b'\n')) {
            self.at += 1;
        }
    }

    fn next_token(&mut self) -> Result<u8, Fault> {
        self.skip_blanks();
        self.next()
    }

    /// Consumes the closing bracket if it is next.
    fn close(&mut self, bracket: u8) -> Result<bool, Fault> {
        self.skip_blanks();
        let closes = *self.text.get(self.at).ok_or(Fault::End)? == bracket;
        self.at += usize::from(closes);
        Ok(closes)
    }

    fn key(&mut self) -> Result<(), Fault> {
        match self.next_token()? {
            b'"' => self.string()?,
            byte => return Err(Fault::Byte(byte, "looking for beginning of object key string")),
        }
        match self.next_token()? {
            b':' => Ok(()),
            byte => Err(Fault::Byte(byte, "after object key")),
        }
    }

    fn string(&mut self) -> Result<(), Fault> {
        loop {
            match self.next()? {
                b'"' => return Ok(()),
                b'\\' => match self.next_or_blank() {
                    b'b' | b'f' | b'n' | b'r' | b't' | b'\\' | b'/' | b'"' => {}
                    b'u' => {
                        for _ in 0..4 {
                            let byte = self.next_or_blank();
                            if !byte.is_ascii_hexdigit() {
                                return Err(Fault::Byte(byte, "in \\u hexadecimal character escape"));
                            }
                        }
                    }
                    byte => return Err(Fault::Byte(byte, "in string escape code")),
                },
                byte @ 0..0x20 => return Err(Fault::Byte(byte, "in string literal")),
                _ => {}
            }
        }
    }

    /// Consumes the rest of a number; `first` is its first digit.
    fn number(&mut self, first: u8) -> Result<(), Fault> {
        match first {
            b'0' => {}
            b'1'..=b'9' => self.digits(),
            byte => return Err(Fault::Byte(byte, "in numeric literal")),
        }
        if self.text.get(self.at) == Some(&b'.') {
            self.at += 1;
            let byte = self.next_or_blank();
            if !byte.is_ascii_digit() {
                return Err(Fault::Byte(byte, "after decimal point in numeric literal"));
            }
            self.digits();
        }
        if matches!(self.text.get(self.at), Some(b'e' | b'E')) {
            self.at += 1;
            let mut byte = self.next_or_blank();
            if matches!(byte, b'+' | b'-') {
                byte = self.next_or_blank();
            }
            if !byte.is_ascii_digit() {
                return Err(Fault::Byte(byte, "in exponent of numeric literal"));
            }
            self.digits();
        }
        Ok(())
    }

    fn digits(&mut self) {
        while self.text.get(self.at).is_some_and(u8::is_ascii_digit) {
            self.at += 1;
        }
    }

    fn literal(&mut self, rest: &[(u8, &'static str)]) -> Result<(), Fault> {
        for (want, place) in rest {
            let byte = self.next_or_blank();
            if byte != *want {
                return Err(Fault::Byte(byte, place));
            }
        }
        Ok(())
    }
}

fn push(nesting: &mut Vec<Inside>, inside: Inside) -> Result<(), Fault> {
    nesting.push(inside);
    if nesting.len() > DEPTH_MAX { Err(Fault::Depth) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn well_formed() {
        for text in ["{}", "[]", " [1, -0.5e+3, \"a\\u00e9\\n\", {\"a\": [true, false, null]}] ", "0", "\"\""] {
            assert_eq!(syntax_error(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn words_of_each_fault() {
        for (text, want) in [
            (&b"nope"[..], "invalid character 'o' in literal null (expecting 'u')"),
            (b"\x81\xaa", "invalid character '\\x81' looking for beginning of value"),
            (b"", "unexpected end of JSON input"),
            (b"{", "unexpected end of JSON input"),
            (b"tru", "invalid character ' ' in literal true (expecting 'e')"),
            (b"-", "invalid character ' ' in numeric literal"),
            (b"\"a", "unexpected end of JSON input"),
            (b"{a:1}", "invalid character 'a' looking for beginning of object key string"),
            (b"{\"a\" 1}", "invalid character '1' after object key"),
            (b"{\"a\":1 \"b\"}", "invalid character '\"' after object key:value pair"),
            (b"{\"a\":1,}", "invalid character '}' looking for beginning of object key string"),
            (b"[1 2]", "invalid character '2' after array element"),
            (b"[1,]", "invalid character ']' looking for beginning of value"),
            (b"{} x", "invalid character 'x' after top-level value"),
            (b"\"a\nb\"", "invalid character '\\n' in string literal"),
            (b"\"\\x\"", "invalid character 'x' in string escape code"),
            (b"\"\\u12g\"", "invalid character 'g' in \\u hexadecimal character escape"),
            (b"-x", "invalid character 'x' in numeric literal"),
            (b"1.x", "invalid character 'x' after decimal point in numeric literal"),
            (b"1ex", "invalid character 'x' in exponent of numeric literal"),
            (b"01", "invalid character '1' after top-level value"),
            (b"'a'", "invalid character '\\'' looking for beginning of value"),
            (b"falze", "invalid character 'z' in literal false (expecting 's')"),
        ] {
            assert_eq!(syntax_error(text).as_deref(), Some(want), "{text:?}");
        }
    }

    #[test]
    fn depth_is_bounded() {
        assert_eq!(syntax_error(&vec![b'['; 20_000]).as_deref(), Some("exceeded max depth"));
    }
}
