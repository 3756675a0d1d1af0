//! Translates regular expressions from Go's dialect to Rust's.
//!
//! The differences: `\d`, `\w`, `\s` and `\b` mean ASCII in Go; character classes in Go have neither nested classes nor
//! intersections; `\Q…\E`, octal escapes and a literal `{` exist only in Go.

use regex_automata::meta::BuildError;

const REPEAT_MAX: u32 = 1_000;

/// Translates an expression, or returns Go's error text.
pub(super) fn translate(pattern: &str) -> Result<String, String> {
    Translator { rest: pattern, out: String::with_capacity(pattern.len() + 16), groups: 0 }.run()
}

fn wrong(what: &str, part: &str) -> String {
    format!("error parsing regexp: {what}: `{part}`")
}

/// Returns Go's error text for an expression that does not compile.
pub(super) fn error_text(pattern: &str, error: &BuildError) -> String {
    if error.size_limit().is_some() {
        return "error parsing regexp: expression too large".to_owned();
    }
    let text = error.syntax_error().map_or_else(|| error.to_string(), ToString::to_string);
    let last = text.lines().last().unwrap_or("");
    let what = match last {
        _ if last.contains("repetition operator missing expression") => "missing argument to repetition operator",
        _ if last.contains("unclosed group") => "missing closing )",
        _ if last.contains("unopened group") => "unexpected )",
        _ if last.contains("invalid character class range") => "invalid character class range",
        _ if last.contains("duplicate capture group name") => "duplicate capture group name",
        _ => "invalid or unsupported Perl syntax",
    };
    wrong(what, pattern)
}

struct Translator<'p> {
    rest: &'p str,
    out: String,
    groups: usize,
}

impl Translator<'_> {
    fn next(&mut self) -> Option<char> {
        let c = self.rest.chars().next()?;
        self.rest = &self.rest[c.len_utf8()..];
        Some(c)
    }

    fn literal(&mut self, c: char) {
        if c.is_ascii_alphanumeric() || !c.is_ascii() {
            self.out.push(c);
        } else {
            self.out.push_str(&format!("\\x{{{:X}}}", c as u32));
        }
    }

    fn run(mut self) -> Result<String, String> {
        while let Some(c) = self.next() {
            match c {
                '\\' => self.escape(false)?,
                '[' => self.class()?,
                '{' => self.repeat()?,
                '}' => self.literal('}'),
                '(' => {
                    self.groups += 1;
                    self.out.push('(');
                    if self.rest.starts_with("?") {
                        self.group()?;
                    }
                }
                c => self.out.push(c),
            }
        }
        Ok(self.out)
    }

    /// After `(`: flags and names that both dialects have; others are errors, as in Go.
    fn group(&mut self) -> Result<(), String> {
        let rest = self.rest;
        if rest.starts_with("?P<") || rest.starts_with("?<") && !rest.starts_with("?<=") && !rest.starts_with("?<!") {
            return Ok(());
        }
        let end = rest.find([':', ')']).unwrap_or(rest.len());
        let flags = &rest[1..end.max(1)];
        if flags.bytes().all(|b| b"imsU-".contains(&b)) && end < rest.len() {
            return Ok(());
        }
        let shown = rest.char_indices().nth(2).map_or(rest, |(at, _)| &rest[..at]);
        Err(wrong("invalid or unsupported Perl syntax", &format!("({shown}")))
    }

    fn repeat(&mut self) -> Result<(), String> {
        let Some((inner, after)) = self.rest.split_once('}') else {
            self.literal('{');
            return Ok(());
        };
        let (low, high) = inner.split_once(',').unwrap_or((inner, inner));
        let digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
        if !digits(low) || !(high.is_empty() || digits(high)) {
            self.literal('{');
            return Ok(());
        }
        let number = |text: &str| text.parse::<u32>().unwrap_or(u32::MAX);
        if number(low) > REPEAT_MAX || (!high.is_empty() && (number(high) > REPEAT_MAX || number(high) < number(low))) {
            return Err(wrong("invalid repeat count", &format!("{{{inner}}}")));
        }
        self.out.push_str(&format!("{{{inner}}}"));
        self.rest = after;
        Ok(())
    }

    /// After a backslash.
    fn escape(&mut self, in_class: bool) -> Result<(), String> {
        let Some(c) = self.next() else {
            return Err("error parsing regexp: trailing backslash at end of expression: ``".to_owned());
        };
        match c {
            'd' => self.out.push_str("[0-9]"),
            'D' => self.out.push_str("[^0-9]"),
            'w' => self.out.push_str("[0-9A-Za-z_]"),
            'W' => self.out.push_str("[^0-9A-Za-z_]"),
            's' => self.out.push_str("[\\t\\n\\x0C\\r\\x20]"),
            'S' => self.out.push_str("[^\\t\\n\\x0C\\r\\x20]"),
            'b' if !in_class => self.out.push_str("(?-u:\\b)"),
            'B' | 'A' | 'z' if !in_class => {
                self.out.push('\\');
                self.out.push(c);
            }
            'a' | 'f' | 't' | 'n' | 'r' | 'v' => {
                self.out.push('\\');
                self.out.push(c);
            }
            'p' | 'P' => {
                self.out.push('\\');
                self.out.push(c);
                if self.rest.starts_with('{')
                    && let Some((name, after)) = self.rest.split_once('}')
                {
                    self.out.push_str(name);
                    self.out.push('}');
                    self.rest = after;
                } else if let Some(name) = self.next() {
                    self.out.push(name);
                }
            }
            'Q' if !in_class => {
                let (quoted, after) = self.rest.split_once("\\E").unwrap_or((self.rest, ""));
                self.rest = after;
                quoted.chars().for_each(|c| self.literal(c));
            }
            'E' if !in_class => {}
            'x' => {
                let (digits, after) = match self.rest.strip_prefix('{').and_then(|rest| rest.split_once('}')) {
                    Some(found) => found,
                    None => self.rest.split_at_checked(2).unwrap_or(("", self.rest)),
                };
                let code = u32::from_str_radix(digits, 16).ok().and_then(char::from_u32);
                match code {
                    Some(code) => self.out.push_str(&format!("\\x{{{:X}}}", code as u32)),
                    None => return Err(wrong("invalid escape sequence", "\\x")),
                }
                self.rest = after;
            }
            '0'..='7' => {
                let mut code = c as u32 - '0' as u32;
                let more = self.rest.bytes().take(2).take_while(|b| (b'0'..=b'7').contains(b)).count();
                if c != '0' && more == 0 {
                    return Err(wrong("invalid escape sequence", &format!("\\{c}")));
                }
                for digit in self.rest.bytes().take(more) {
                    code = code * 8 + u32::from(digit - b'0');
                }
                self.rest = &self.rest[more..];
                self.out.push_str(&format!("\\x{{{code:X}}}"));
            }
            c if c.is_ascii() && !c.is_ascii_alphanumeric() => self.literal(c),
            c => return Err(wrong("invalid escape sequence", &format!("\\{c}"))),
        }
        Ok(())
    }

    /// After `[`.
    fn class(&mut self) -> Result<(), String> {
        let whole = self.rest;
        let missing = || wrong("missing closing ]", &format!("[{whole}"));
        self.out.push('[');
        if self.rest.starts_with('^') {
            self.next();
            self.out.push('^');
        }
        let mut first = true;
        loop {
            let c = self.next().ok_or_else(missing)?;
            match c {
                ']' if !first => break,
                '[' if self.rest.starts_with(':') => match self.rest.split_once(":]") {
                    Some((name, after)) if name[1..].bytes().all(|b| b.is_ascii_lowercase() || b == b'^') => {
                        self.out.push_str(&format!("[{name}:]"));
                        self.rest = after;
                    }
                    Some((name, _)) => return Err(wrong("invalid character class range", &format!("[{name}:]"))),
                    None => self.literal('['),
                },
                '\\' => self.escape(true)?,
                // A range, or a literal dash at an end, which Rust needs escaped.
                '-' if !first && !self.rest.starts_with(']') => self.out.push('-'),
                c => self.literal(c),
            }
            first = false;
        }
        self.out.push(']');
        Ok(())
    }
}
