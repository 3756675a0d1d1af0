//! Splits the text of an expression into tokens.

use crate::source::Issues;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Eof,
    Ident,
    /// A name in backquotes, which Kubernetes does not support.
    EscapedIdent,
    Int,
    Uint,
    Float,
    String,
    Bytes,
    True,
    False,
    Null,
    In,
    /// An operator or a bracket, by its text.
    Mark(&'static str),
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Token {
    pub(crate) kind: Kind,
    /// Offsets in characters.
    pub(crate) start: u32,
    pub(crate) end: u32,
}

const MARKS: [&str; 26] = [
    "==", "!=", "<=", ">=", "&&", "||", "<", ">", "[", "]", "{", "}", "(", ")", ".", ",", "-", "!", "?", ":", "+", "*",
    "/", "%", "&", "|",
];

/// Returns all tokens; the last is [`Kind::Eof`]. Text that is not a token is reported and skipped.
pub(crate) fn tokens(text: &[char], issues: &mut Issues) -> Vec<Token> {
    let mut tokens = Vec::with_capacity(text.len() / 3 + 1);
    let mut at = 0;
    while at < text.len() {
        let c = text[at];
        if matches!(c, '\t' | ' ' | '\r' | '\n' | '\u{c}') {
            at += 1;
            continue;
        }
        if c == '/' && text.get(at + 1) == Some(&'/') {
            while at < text.len() && text[at] != '\n' {
                at += 1;
            }
            continue;
        }
        match token(text, at) {
            Ok((kind, end)) => {
                tokens.push(Token { kind, start: at as u32, end: end as u32 });
                at = end;
            }
            Err(end) => {
                let wrong = escape(&text[at..end]);
                issues.report(at as u32, format!("Syntax error: token recognition error at: '{wrong}'"));
                at = end;
            }
        }
    }
    let end = text.len() as u32;
    tokens.push(Token { kind: Kind::Eof, start: end, end });
    tokens
}

/// Escapes a text for a message.
pub(crate) fn escape(text: &[char]) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text {
        match c {
            '\n' => shown.push_str("\\n"),
            '\r' => shown.push_str("\\r"),
            '\t' => shown.push_str("\\t"),
            c => shown.push(*c),
        }
    }
    shown
}

/// Returns the token at an offset and its end, or the end of the text that is not a token.
fn token(text: &[char], at: usize) -> Result<(Kind, usize), usize> {
    let c = text[at];
    match c {
        '"' | '\'' => return string(text, at).map(|end| (Kind::String, end)),
        '0'..='9' => return Ok(number(text, at)),
        '.' if text.get(at + 1).is_some_and(char::is_ascii_digit) => return Ok(number(text, at)),
        '`' => return escaped_ident(text, at),
        'A'..='Z' | 'a'..='z' | '_' => {
            if let Some(found) = prefixed_string(text, at) {
                return Ok(found);
            }
            let mut end = at + 1;
            while text.get(end).is_some_and(|c| c.is_ascii_alphanumeric() || *c == '_') {
                end += 1;
            }
            let kind = match &text[at..end] {
                ['t', 'r', 'u', 'e'] => Kind::True,
                ['f', 'a', 'l', 's', 'e'] => Kind::False,
                ['n', 'u', 'l', 'l'] => Kind::Null,
                ['i', 'n'] => Kind::In,
                _ => Kind::Ident,
            };
            return Ok((kind, end));
        }
        _ => {}
    }
    for mark in MARKS {
        if mark.chars().enumerate().all(|(i, c)| text.get(at + i) == Some(&c)) {
            return match mark {
                // Half of an operator; the message includes the character after it.
                "&" | "|" => Err((at + 2).min(text.len())),
                mark => Ok((Kind::Mark(mark), at + mark.len())),
            };
        }
    }
    Err(if c == '=' { (at + 2).min(text.len()) } else { at + 1 })
}

fn number(text: &[char], at: usize) -> (Kind, usize) {
    let digits = |mut end: usize| {
        while text.get(end).is_some_and(char::is_ascii_digit) {
            end += 1;
        }
        end
    };
    let unsigned = |end: usize| matches!(text.get(end), Some('u' | 'U'));
    if text[at] == '0' && text.get(at + 1) == Some(&'x') && text.get(at + 2).is_some_and(char::is_ascii_hexdigit) {
        let mut end = at + 2;
        while text.get(end).is_some_and(char::is_ascii_hexdigit) {
            end += 1;
        }
        return if unsigned(end) { (Kind::Uint, end + 1) } else { (Kind::Int, end) };
    }
    let mut end = digits(at);
    let mut kind = Kind::Int;
    if text.get(end) == Some(&'.') && text.get(end + 1).is_some_and(char::is_ascii_digit) {
        end = digits(end + 1);
        kind = Kind::Float;
    }
    if matches!(text.get(end), Some('e' | 'E')) {
        let sign = usize::from(matches!(text.get(end + 1), Some('+' | '-')));
        let exponent = end + 1 + sign;
        if text.get(exponent).is_some_and(char::is_ascii_digit) {
            end = digits(exponent);
            kind = Kind::Float;
        }
    }
    if kind == Kind::Int && unsigned(end) { (Kind::Uint, end + 1) } else { (kind, end) }
}

fn escaped_ident(text: &[char], at: usize) -> Result<(Kind, usize), usize> {
    let mut end = at + 1;
    while text.get(end).is_some_and(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-' | '/' | ' ')) {
        end += 1;
    }
    if end > at + 1 && text.get(end) == Some(&'`') {
        Ok((Kind::EscapedIdent, end + 1))
    } else {
        Err((end + 1).min(text.len()))
    }
}

/// A string with a prefix: `r'…'`, `b'…'`, `br'…'`. Otherwise the letter starts a name.
fn prefixed_string(text: &[char], at: usize) -> Option<(Kind, usize)> {
    let mut kind = Kind::String;
    let mut next = at;
    if matches!(text[next], 'b' | 'B') {
        kind = Kind::Bytes;
        next += 1;
    }
    let raw = matches!(text.get(next), Some('r' | 'R'));
    if raw {
        next += 1;
    }
    if !matches!(text.get(next), Some('"' | '\'')) {
        return None;
    }
    let end = if raw { raw_string(text, next) } else { string(text, next).ok() };
    end.map(|end| (kind, end))
}

fn is_triple(text: &[char], at: usize) -> bool {
    let quote = text.get(at);
    quote.is_some() && text.get(at + 1) == quote && text.get(at + 2) == quote
}

fn raw_string(text: &[char], at: usize) -> Option<usize> {
    let quote = text[at];
    if is_triple(text, at) {
        let mut end = at + 3;
        while end < text.len() {
            if text[end] == quote && is_triple(text, end) {
                return Some(end + 3);
            }
            end += 1;
        }
        return Some(at + 2);
    }
    let mut end = at + 1;
    loop {
        match text.get(end)? {
            '\n' | '\r' => return None,
            c if *c == quote => return Some(end + 1),
            _ => end += 1,
        }
    }
}

/// Returns the end of a string literal, or the end of the text that is not one.
fn string(text: &[char], at: usize) -> Result<usize, usize> {
    let quote = text[at];
    let triple = is_triple(text, at);
    let mut end = if triple { at + 3 } else { at + 1 };
    // Without a closing delimiter, the first two of three quotes are an empty string.
    let failed = |end: usize| if triple { Ok(at + 2) } else { Err(end.min(text.len())) };
    loop {
        match text.get(end) {
            None => return failed(end),
            Some('\\') => match escape_end(text, end) {
                Ok(next) => end = next,
                Err(wrong) => return failed(wrong),
            },
            Some('\n' | '\r') if !triple => return failed(end + 1),
            Some(c) if *c == quote => {
                if !triple {
                    return Ok(end + 1);
                }
                if is_triple(text, end) {
                    return Ok(end + 3);
                }
                end += 1;
            }
            Some(_) => end += 1,
        }
    }
}

/// Returns the end of an escape sequence, or the end of the text that is not one.
fn escape_end(text: &[char], at: usize) -> Result<usize, usize> {
    let (count, digit): (usize, fn(&char) -> bool) = match text.get(at + 1) {
        Some('a' | 'b' | 'f' | 'n' | 'r' | 't' | 'v' | '"' | '\'' | '\\' | '?' | '`') => return Ok(at + 2),
        Some('x' | 'X') => (2, char::is_ascii_hexdigit),
        Some('u') => (4, char::is_ascii_hexdigit),
        Some('U') => (8, char::is_ascii_hexdigit),
        Some('0'..='3') => (2, |c| matches!(c, '0'..='7')),
        _ => return Err(at + 2),
    };
    for i in 0..count {
        if !text.get(at + 2 + i).is_some_and(digit) {
            return Err(at + 3 + i);
        }
    }
    Ok(at + 2 + count)
}
