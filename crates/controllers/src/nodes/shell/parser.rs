//! From tokens to the syntax tree.

use super::SCRIPT_BYTES_MAX;
use super::lexer::{self, DEPTH_MAX, Token, is_name};
use super::syntax::{Command, Part, Redirect, Simple, Target, Word};

/// Parses a script, or returns what is not understood.
pub(super) fn parse(text: &str, depth: usize) -> Result<Command, String> {
    if text.len() > SCRIPT_BYTES_MAX {
        return Err("a command of more than 64 KiB".to_owned());
    }
    let mut parser = Parser { tokens: lexer::tokens(text, depth)?, at: 0, depth };
    let command = parser.list(&[])?;
    match parser.tokens.get(parser.at) {
        None => Ok(command),
        Some(token) => Err(shown(token)),
    }
}

struct Parser {
    tokens: Vec<Token>,
    at: usize,
    depth: usize,
}

fn shown(token: &Token) -> String {
    match token {
        Token::Word(word) => format!("`{}`", word.literal().unwrap_or_else(|| "$".to_owned())),
        Token::Sign("\n") => "the end of a line".to_owned(),
        Token::Sign(sign) | Token::Redirect(_, sign) => format!("`{sign}`"),
    }
}

const RESERVED: [&str; 14] =
    ["if", "then", "elif", "else", "fi", "while", "until", "do", "done", "for", "case", "esac", "{", "}"];

impl Parser {
    fn sign(&self) -> Option<&'static str> {
        match self.tokens.get(self.at) {
            Some(Token::Sign(sign)) => Some(sign),
            _ => None,
        }
    }

    fn take_sign(&mut self, wanted: &str) -> bool {
        let is_it = self.sign() == Some(wanted);
        self.at += usize::from(is_it);
        is_it
    }

    /// The plain word at the current position.
    fn plain(&self) -> Option<&str> {
        match self.tokens.get(self.at) {
            Some(Token::Word(word)) => word.plain(),
            _ => None,
        }
    }

    fn take_plain(&mut self, wanted: &str) -> bool {
        let is_it = self.plain() == Some(wanted);
        self.at += usize::from(is_it);
        is_it
    }

    fn expect(&mut self, wanted: &str) -> Result<(), String> {
        if self.take_plain(wanted) { Ok(()) } else { Err(format!("a missing `{wanted}`")) }
    }

    fn skip_lines(&mut self) {
        while matches!(self.sign(), Some("\n")) {
            self.at += 1;
        }
    }

    /// Counts a level; the caller takes it back.
    fn deeper(&mut self) -> Result<(), String> {
        self.depth += 1;
        if self.depth > DEPTH_MAX { Err("commands nested too deeply".to_owned()) } else { Ok(()) }
    }

    /// Commands up to one of these words, a closing sign, or the end.
    fn list(&mut self, until: &[&str]) -> Result<Command, String> {
        self.deeper()?;
        let mut commands = Vec::new();
        loop {
            while matches!(self.sign(), Some("\n" | ";")) {
                self.at += 1;
            }
            let closed = matches!(self.sign(), Some(")" | ";;"));
            if self.at >= self.tokens.len() || closed || self.plain().is_some_and(|word| until.contains(&word)) {
                break;
            }
            let command = self.and_or()?;
            if self.take_sign("&") {
                commands.push(Command::Background(Box::new(command)));
            } else {
                commands.push(command);
                if !self.is_at_end_of_command(until) {
                    return Err(self.tokens.get(self.at).map_or_else(String::new, shown));
                }
            }
        }
        self.depth -= 1;
        Ok(match commands.len() {
            1 => commands.remove(0),
            _ => Command::Sequence(commands),
        })
    }

    fn is_at_end_of_command(&self, until: &[&str]) -> bool {
        self.at >= self.tokens.len()
            || matches!(self.sign(), Some("\n" | ";" | ")" | ";;"))
            || self.plain().is_some_and(|word| until.contains(&word))
    }

    fn and_or(&mut self) -> Result<Command, String> {
        let first = self.pipeline()?;
        let mut rest = Vec::new();
        while let Some(sign @ ("&&" | "||")) = self.sign() {
            self.at += 1;
            self.skip_lines();
            rest.push((sign == "&&", self.pipeline()?));
        }
        Ok(if rest.is_empty() { first } else { Command::Chain(Box::new(first), rest) })
    }

    fn pipeline(&mut self) -> Result<Command, String> {
        if self.take_plain("!") {
            self.deeper()?;
            let inner = self.pipeline()?;
            self.depth -= 1;
            return Ok(Command::Not(Box::new(inner)));
        }
        let mut commands = vec![self.command()?];
        while self.take_sign("|") {
            self.skip_lines();
            commands.push(self.command()?);
        }
        Ok(if commands.len() == 1 { commands.remove(0) } else { Command::Pipeline(commands) })
    }

    fn command(&mut self) -> Result<Command, String> {
        if self.take_sign("(") {
            let body = self.list(&[])?;
            return if self.take_sign(")") {
                self.no_redirect()?;
                Ok(Command::Subshell(Box::new(body)))
            } else {
                Err("a missing `)`".to_owned())
            };
        }
        let Some(word) = self.plain().map(str::to_owned) else { return self.simple() };
        let compound = match word.as_str() {
            "if" => self.branches()?,
            "while" | "until" => {
                self.at += 1;
                let condition = Box::new(self.list(&["do"])?);
                Command::Loop { until: word == "until", condition, body: Box::new(self.body()?) }
            }
            "for" => self.for_loop()?,
            "case" => self.case()?,
            "{" => {
                self.at += 1;
                let body = self.list(&["}"])?;
                self.expect("}")?;
                body
            }
            "[[" => self.double_brackets()?,
            "function" => {
                self.at += 1;
                let name = self.name()?;
                if self.take_sign("(") && !self.take_sign(")") {
                    return Err("a missing `)`".to_owned());
                }
                self.function(name)?
            }
            _ if RESERVED.contains(&word.as_str()) => return Err(format!("`{word}`")),
            _ if is_function_name(&word) && self.tokens.get(self.at + 1) == Some(&Token::Sign("(")) => {
                self.at += 2;
                if !self.take_sign(")") {
                    return Err("a missing `)`".to_owned());
                }
                self.function(word)?
            }
            _ => return self.simple(),
        };
        self.no_redirect()?;
        Ok(compound)
    }

    fn no_redirect(&self) -> Result<(), String> {
        match self.tokens.get(self.at) {
            Some(token @ Token::Redirect(..)) => Err(format!("{} after a block", shown(token))),
            _ => Ok(()),
        }
    }

    fn function(&mut self, name: String) -> Result<Command, String> {
        self.skip_lines();
        self.deeper()?;
        let body = Box::new(self.command()?);
        self.depth -= 1;
        Ok(Command::Function { name, body })
    }

    fn name(&mut self) -> Result<String, String> {
        let name = self.plain().filter(|name| is_function_name(name)).map(str::to_owned);
        self.at += 1;
        name.ok_or_else(|| "a missing name".to_owned())
    }

    fn body(&mut self) -> Result<Command, String> {
        self.skip_lines();
        self.expect("do")?;
        let body = self.list(&["done"])?;
        self.expect("done")?;
        Ok(body)
    }

    fn branches(&mut self) -> Result<Command, String> {
        let (mut arms, mut otherwise) = (Vec::new(), None);
        self.expect("if")?;
        loop {
            let condition = self.list(&["then"])?;
            self.expect("then")?;
            arms.push((condition, self.list(&["elif", "else", "fi"])?));
            if self.take_plain("elif") {
                continue;
            }
            if self.take_plain("else") {
                otherwise = Some(Box::new(self.list(&["fi"])?));
            }
            self.expect("fi")?;
            return Ok(Command::If { arms, otherwise });
        }
    }

    fn for_loop(&mut self) -> Result<Command, String> {
        self.expect("for")?;
        let name = self.name()?;
        let mut words = Vec::new();
        if self.take_plain("in") {
            while let Some(Token::Word(word)) = self.tokens.get(self.at) {
                words.push(word.clone());
                self.at += 1;
            }
        }
        if matches!(self.sign(), Some(";" | "\n")) {
            self.at += 1;
        }
        Ok(Command::For { name, words, body: Box::new(self.body()?) })
    }

    fn case(&mut self) -> Result<Command, String> {
        self.expect("case")?;
        let Some(Token::Word(word)) = self.tokens.get(self.at).cloned() else {
            return Err("`case` without a word".to_owned());
        };
        self.at += 1;
        self.skip_lines();
        self.expect("in")?;
        let mut arms = Vec::new();
        loop {
            while matches!(self.sign(), Some("\n" | ";;")) {
                self.at += 1;
            }
            if self.take_plain("esac") {
                return Ok(Command::Case { word, arms });
            }
            self.take_sign("(");
            let mut patterns = Vec::new();
            while let Some(Token::Word(pattern)) = self.tokens.get(self.at) {
                patterns.push(pattern.clone());
                self.at += 1;
                if !self.take_sign("|") {
                    break;
                }
            }
            if patterns.is_empty() || !self.take_sign(")") {
                return Err("a missing `)` in `case`".to_owned());
            }
            arms.push((patterns, self.list(&["esac"])?));
        }
    }

    /// `[[ … ]]`, whose signs are words.
    fn double_brackets(&mut self) -> Result<Command, String> {
        self.at += 1;
        let mut words = Vec::new();
        loop {
            match self.tokens.get(self.at) {
                Some(Token::Word(word)) if word.plain() == Some("]]") => {
                    self.at += 1;
                    return Ok(Command::Test(words));
                }
                Some(Token::Word(word)) => words.push(word.clone()),
                Some(Token::Sign(sign @ ("&&" | "||" | "(" | ")"))) => {
                    words.push(Word(vec![Part::Text { text: (*sign).to_owned(), quoted: false }]));
                }
                Some(Token::Redirect(_, sign @ ("<" | ">"))) => {
                    words.push(Word(vec![Part::Text { text: (*sign).to_owned(), quoted: false }]));
                }
                _ => return Err("a missing `]]`".to_owned()),
            }
            self.at += 1;
        }
    }

    fn simple(&mut self) -> Result<Command, String> {
        let mut simple = Simple::default();
        loop {
            match self.tokens.get(self.at) {
                Some(Token::Word(word)) => {
                    match assignment(word).filter(|_| simple.words.is_empty()) {
                        Some(assignment) => simple.assignments.push(assignment),
                        None => simple.words.push(word.clone()),
                    }
                    self.at += 1;
                }
                Some(Token::Redirect(descriptor, kind)) => {
                    let (descriptor, kind) = (*descriptor, *kind);
                    let Some(Token::Word(word)) = self.tokens.get(self.at + 1).cloned() else {
                        return Err(format!("`{kind}` without a file"));
                    };
                    self.at += 2;
                    let to = match kind {
                        "<" => Target::Read(word),
                        ">" => Target::Write(word),
                        ">>" => Target::Append(word),
                        _ => match word.plain().and_then(|word| word.parse().ok()) {
                            Some(other @ 1..=2u8) => Target::Same(other),
                            _ => return Err(format!("`{kind}`")),
                        },
                    };
                    simple.redirects.push(Redirect { descriptor, to });
                }
                _ => break,
            }
        }
        if simple == Simple::default() {
            return Err(self.tokens.get(self.at).map_or_else(|| "an unfinished command".to_owned(), shown));
        }
        Ok(Command::Simple(simple))
    }
}

fn is_function_name(text: &str) -> bool {
    is_name(&text.replace('-', "_"))
}

/// `NAME=word`
fn assignment(word: &Word) -> Option<(String, Word)> {
    let Part::Text { text, quoted: false } = word.0.first()? else { return None };
    let (name, rest) = text.split_once('=')?;
    if !is_name(name) {
        return None;
    }
    let mut parts = word.0.clone();
    if rest.is_empty() {
        parts.remove(0);
    } else {
        parts[0] = Part::Text { text: rest.to_owned(), quoted: false };
    }
    Some((name.to_owned(), Word(parts)))
}
