//! From the text of a script to its tokens.

use super::parser;
use super::syntax::{Default, Part, Word};

/// How deep commands may be nested inside each other.
pub(super) const DEPTH_MAX: usize = 24;

/// A token of a script.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Token {
    Word(Word),
    /// `;` `&` `&&` `||` `|` `(` `)` `;;` and the end of a line.
    Sign(&'static str),
    /// `>`, `>>`, `<`, `>&` with the descriptor in front of it.
    Redirect(u8, &'static str),
}

/// Splits a script into tokens, or returns what is not understood.
pub(super) fn tokens(text: &str, depth: usize) -> Result<Vec<Token>, String> {
    if depth > DEPTH_MAX {
        return Err("commands nested too deeply".to_owned());
    }
    let mut lexer = Lexer { text: text.chars().collect(), at: 0, depth };
    let mut found = Vec::new();
    while let Some(token) = lexer.next()? {
        found.push(token);
    }
    Ok(found)
}

struct Lexer {
    text: Vec<char>,
    at: usize,
    depth: usize,
}

const SIGNS: [&str; 9] = ["&&", "||", ";;", ";", "&", "|", "(", ")", "\n"];

impl Lexer {
    fn peek(&self, ahead: usize) -> Option<char> {
        self.text.get(self.at + ahead).copied()
    }

    fn begins(&self, with: &str) -> bool {
        with.chars().enumerate().all(|(ahead, c)| self.peek(ahead) == Some(c))
    }

    fn next(&mut self) -> Result<Option<Token>, String> {
        self.skip_blanks();
        let Some(c) = self.peek(0) else { return Ok(None) };
        let descriptor = match (c, self.peek(1)) {
            ('0'..='2', Some('<' | '>')) => {
                self.at += 1;
                Some(c as u8 - b'0')
            }
            _ => None,
        };
        match self.peek(0) {
            Some('>') => {
                let kind = ["&>", ">>", ">&", ">|", ">"].into_iter().find(|kind| self.begins(kind)).unwrap_or(">");
                self.at += kind.len();
                let kind = if kind == ">|" { ">" } else { kind };
                return Ok(Some(Token::Redirect(descriptor.unwrap_or(1), kind)));
            }
            Some('<') => {
                if self.begins("<<") {
                    return Err("`<<`".to_owned());
                }
                self.at += 1;
                return Ok(Some(Token::Redirect(descriptor.unwrap_or(0), "<")));
            }
            _ => {}
        }
        if let Some(sign) = SIGNS.into_iter().find(|sign| self.begins(sign)) {
            self.at += sign.len();
            return Ok(Some(Token::Sign(sign)));
        }
        self.word().map(|word| Some(Token::Word(word)))
    }

    fn skip_blanks(&mut self) {
        loop {
            match (self.peek(0), self.peek(1)) {
                (Some('\\'), Some('\n')) => self.at += 2,
                (Some(' ' | '\t' | '\r'), _) => self.at += 1,
                (Some('#'), _) => {
                    while self.peek(0).is_some_and(|c| c != '\n') {
                        self.at += 1;
                    }
                }
                _ => return,
            }
        }
    }

    fn word(&mut self) -> Result<Word, String> {
        let mut parts = Vec::new();
        while let Some(c) = self.peek(0) {
            match c {
                ' ' | '\t' | '\r' | '\n' | ';' | '&' | '|' | '(' | ')' | '<' | '>' => break,
                '\'' => {
                    let text = self.until('\'')?;
                    push(&mut parts, &text, true);
                }
                '"' => self.double_quotes(&mut parts)?,
                '\\' => {
                    self.at += 1;
                    if let Some(c) = self.peek(0) {
                        self.at += 1;
                        if c != '\n' {
                            push(&mut parts, &c.to_string(), true);
                        }
                    }
                }
                '`' => {
                    let text = self.until('`')?;
                    parts.push(self.output(&text, false)?);
                }
                '$' => self.dollar(&mut parts, false)?,
                _ => {
                    self.at += 1;
                    push(&mut parts, &c.to_string(), false);
                }
            }
        }
        Ok(Word(parts))
    }

    /// The text up to the closing character; the opening one is at the current position.
    fn until(&mut self, close: char) -> Result<String, String> {
        self.at += 1;
        let mut text = String::new();
        while let Some(c) = self.peek(0) {
            self.at += 1;
            if c == close {
                return Ok(text);
            }
            text.push(c);
        }
        Err(format!("a missing `{close}`"))
    }

    fn double_quotes(&mut self, parts: &mut Vec<Part>) -> Result<(), String> {
        self.at += 1;
        push(parts, "", true);
        while let Some(c) = self.peek(0) {
            match c {
                '"' => {
                    self.at += 1;
                    return Ok(());
                }
                '\\' => {
                    let next = self.peek(1);
                    self.at += 2;
                    match next {
                        Some('\n') => {}
                        Some(c @ ('"' | '\\' | '$' | '`')) => push(parts, &c.to_string(), true),
                        Some(c) => push(parts, &format!("\\{c}"), true),
                        None => break,
                    }
                }
                '`' => {
                    let text = self.until('`')?;
                    parts.push(self.output(&text, true)?);
                }
                '$' => self.dollar(parts, true)?,
                _ => {
                    self.at += 1;
                    push(parts, &c.to_string(), true);
                }
            }
        }
        Err("a missing `\"`".to_owned())
    }

    fn output(&self, text: &str, quoted: bool) -> Result<Part, String> {
        Ok(Part::Output { command: Box::new(parser::parse(text, self.depth + 1)?), quoted })
    }

    fn dollar(&mut self, parts: &mut Vec<Part>, quoted: bool) -> Result<(), String> {
        if self.begins("$((") {
            self.at += 3;
            let text = self.balanced('(', ')')?;
            if self.peek(0) != Some(')') {
                return Err("a missing `))`".to_owned());
            }
            self.at += 1;
            parts.push(Part::Number(inner(&text, self.depth + 1)?));
            return Ok(());
        }
        match self.peek(1) {
            Some('(') => {
                self.at += 2;
                let text = self.balanced('(', ')')?;
                parts.push(self.output(&text, quoted)?);
            }
            Some('{') => {
                self.at += 2;
                let text = self.balanced('{', '}')?;
                parts.push(braces(&text, quoted, self.depth)?);
            }
            Some(c) if c == '_' || c.is_ascii_alphabetic() => {
                self.at += 1;
                let mut name = String::new();
                while let Some(c) = self.peek(0).filter(|c| *c == '_' || c.is_ascii_alphanumeric()) {
                    name.push(c);
                    self.at += 1;
                }
                parts.push(Part::Variable { name, default: None, quoted });
            }
            Some(c @ ('0'..='9' | '?' | '$' | '!' | '#' | '@' | '*' | '-')) => {
                self.at += 2;
                parts.push(Part::Variable { name: c.to_string(), default: None, quoted });
            }
            _ => {
                self.at += 1;
                push(parts, "$", quoted);
            }
        }
        Ok(())
    }

    /// The text up to the closing sign of what has just been opened, with quotes skipped.
    fn balanced(&mut self, open: char, close: char) -> Result<String, String> {
        let (from, mut depth) = (self.at, 1);
        while let Some(c) = self.peek(0) {
            match c {
                '\\' => self.at += 1,
                '\'' | '"' => {
                    let mut escaped = false;
                    self.at += 1;
                    while let Some(inside) = self.peek(0) {
                        if inside == c && !escaped {
                            break;
                        }
                        escaped = inside == '\\' && c == '"' && !escaped;
                        self.at += 1;
                    }
                }
                _ if c == open => depth += 1,
                _ if c == close => {
                    depth -= 1;
                    if depth == 0 {
                        let text = self.text[from..self.at].iter().collect();
                        self.at += 1;
                        return Ok(text);
                    }
                }
                _ => {}
            }
            self.at += 1;
        }
        Err(format!("a missing `{close}`"))
    }
}

/// The text inside `${ }`.
fn braces(text: &str, quoted: bool, depth: usize) -> Result<Part, String> {
    if let Some(name) = text.strip_prefix('#')
        && is_name(name)
    {
        return Ok(Part::Variable { name: name.to_owned(), default: Some(Default::Length), quoted });
    }
    let end = text.find(|c: char| !(c == '_' || c.is_ascii_alphanumeric())).unwrap_or(text.len());
    let (name, rest) = text.split_at(end);
    let special = matches!(text, "?" | "$" | "!" | "#" | "@" | "*");
    if !special && !is_name(name) && name.parse::<u32>().is_err() {
        return Err(format!("`${{{text}}}`"));
    }
    if special || rest.is_empty() {
        let name = if special { text } else { name };
        return Ok(Part::Variable { name: name.to_owned(), default: None, quoted });
    }
    let (also_empty, sign) = match rest.strip_prefix(':') {
        Some(sign) => (true, sign),
        None => (false, rest),
    };
    let word = |skip: usize| inner(sign.get(skip..).unwrap_or_default(), depth + 1);
    let default = match sign.chars().next() {
        Some('-') => Default::Use { word: word(1)?, also_empty },
        Some('=') => Default::Assign { word: word(1)?, also_empty },
        Some('?') => Default::Fail { word: word(1)?, also_empty },
        Some('+') => Default::Instead { word: word(1)?, also_empty },
        Some('%') if !also_empty => {
            let longest = sign.starts_with("%%");
            Default::TrimEnd { pattern: word(1 + usize::from(longest))?, longest }
        }
        Some('#') if !also_empty => {
            let longest = sign.starts_with("##");
            Default::TrimStart { pattern: word(1 + usize::from(longest))?, longest }
        }
        _ => return Err(format!("`${{{text}}}`")),
    };
    Ok(Part::Variable { name: name.to_owned(), default: Some(default), quoted })
}

/// A word that may have blanks, as inside `${name:-…}` and `$(( … ))`.
fn inner(text: &str, depth: usize) -> Result<Word, String> {
    if depth > DEPTH_MAX {
        return Err("commands nested too deeply".to_owned());
    }
    let mut lexer = Lexer { text: text.chars().collect(), at: 0, depth };
    let mut parts = Vec::new();
    while let Some(c) = lexer.peek(0) {
        let before = lexer.at;
        parts.extend(lexer.word()?.0);
        if lexer.at == before {
            lexer.at += 1;
            push(&mut parts, &c.to_string(), false);
        }
    }
    Ok(Word(parts))
}

pub(super) fn is_name(text: &str) -> bool {
    let mut letters = text.chars();
    letters.next().is_some_and(|c| c == '_' || c.is_ascii_alphabetic())
        && letters.all(|c| c == '_' || c.is_ascii_alphanumeric())
}

/// Appends a text, to the last part if that is of the same kind.
fn push(parts: &mut Vec<Part>, more: &str, now_quoted: bool) {
    match parts.last_mut() {
        Some(Part::Text { text, quoted }) if *quoted == now_quoted => text.push_str(more),
        _ => parts.push(Part::Text { text: more.to_owned(), quoted: now_quoted }),
    }
}
