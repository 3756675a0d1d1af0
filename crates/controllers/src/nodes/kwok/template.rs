//! Go templates, as far as stages use them: the syntax.
//!
//! `gtmpl` is the one published crate for these. Its last release is years old, it has no bound on what a template does, and
//! it treats values that are missing as errors, where stages rely on them; so the needed part is here.

use serde_json::Value;

/// A parsed template.
#[derive(Debug, Clone, PartialEq)]
pub(in crate::nodes) struct Template(pub(super) Vec<Node>);

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Node {
    Text(String),
    Output(Pipeline),
    If { arms: Vec<(Pipeline, Vec<Node>)>, otherwise: Vec<Node> },
    With { value: Pipeline, body: Vec<Node>, otherwise: Vec<Node> },
    Range { value: Pipeline, body: Vec<Node>, otherwise: Vec<Node> },
}

/// `$a, $b := command | command`
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Pipeline {
    pub(super) variables: Vec<String>,
    /// True for `:=`.
    pub(super) declares: bool,
    pub(super) commands: Vec<Vec<Operand>>,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Operand {
    /// `.a.b`
    Field(Vec<String>),
    /// `$a.b`; `$` has an empty name.
    Variable(String, Vec<String>),
    Function(String),
    Literal(Value),
    Nested(Box<Pipeline>, Vec<String>),
}

/// How deep blocks and parentheses may be nested.
const DEPTH_MAX: usize = 32;
/// Longest template.
const TEMPLATE_BYTES_MAX: usize = 256 * 1024;

impl Template {
    /// Parses a template, or returns what is not understood. `functions` are the known ones.
    pub(in crate::nodes) fn parse(text: &str) -> Result<Self, String> {
        if text.len() > TEMPLATE_BYTES_MAX {
            return Err("a template of more than 256 KiB".to_owned());
        }
        let mut parser = Blocks { pieces: pieces(text.trim())?, at: 0, depth: 0 };
        let nodes = parser.body()?;
        match parser.end() {
            None => Ok(Template(nodes)),
            Some(word) => Err(format!("`{{{{ {word} }}}}` without a beginning")),
        }
    }
}

/// Texts and actions in turn.
enum Piece {
    Text(String),
    Action(String),
}

fn pieces(text: &str) -> Result<Vec<Piece>, String> {
    let mut found = Vec::new();
    let (mut rest, mut trims) = (text, false);
    loop {
        let start = rest.find("{{");
        let mut before = &rest[..start.unwrap_or(rest.len())];
        if trims {
            before = before.trim_start();
        }
        let Some(start) = start else {
            found.push(Piece::Text(before.to_owned()));
            return Ok(found);
        };
        let mut action = &rest[start + 2..];
        if let Some(trimmed) = action.strip_prefix("- ") {
            before = before.trim_end();
            action = trimmed;
        }
        found.push(Piece::Text(before.to_owned()));
        let end = end_of(action).ok_or("a missing `}}`")?;
        rest = &action[end + 2..];
        let mut inside = &action[..end];
        trims = inside.ends_with(" -");
        if trims {
            inside = &inside[..inside.len() - 2];
        }
        if !inside.trim_start().starts_with("/*") {
            found.push(Piece::Action(inside.trim().to_owned()));
        }
    }
}

/// The position of `}}` outside of texts.
fn end_of(action: &str) -> Option<usize> {
    let bytes = action.as_bytes();
    let (mut at, mut quote) = (0, None);
    while at < bytes.len() {
        match (quote, bytes[at]) {
            (Some(b'"'), b'\\') => at += 1,
            (Some(open), byte) if byte == open => quote = None,
            (None, byte @ (b'"' | b'`')) => quote = Some(byte),
            (None, b'}') if bytes.get(at + 1) == Some(&b'}') => return Some(at),
            _ => {}
        }
        at += 1;
    }
    None
}

struct Blocks {
    pieces: Vec<Piece>,
    at: usize,
    depth: usize,
}

impl Blocks {
    /// The word that ends a body: `end`, `else`, `else if …`.
    fn end(&self) -> Option<&str> {
        match self.pieces.get(self.at) {
            Some(Piece::Action(action)) => Some(action),
            _ => None,
        }
    }

    fn body(&mut self) -> Result<Vec<Node>, String> {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return Err("blocks nested too deeply".to_owned());
        }
        let mut nodes = Vec::new();
        while let Some(piece) = self.pieces.get(self.at) {
            let action = match piece {
                Piece::Text(text) => {
                    nodes.push(Node::Text(text.clone()));
                    self.at += 1;
                    continue;
                }
                Piece::Action(action) => action.clone(),
            };
            let (word, rest) = action.split_once(char::is_whitespace).unwrap_or((&action, ""));
            match word {
                "end" | "else" => break,
                "if" | "with" | "range" => {
                    self.at += 1;
                    nodes.push(self.block(word, rest)?);
                }
                "define" | "template" | "block" | "break" | "continue" => return Err(format!("`{{{{ {word} }}}}`")),
                _ => {
                    nodes.push(Node::Output(pipeline(&action)?));
                    self.at += 1;
                }
            }
        }
        self.depth -= 1;
        Ok(nodes)
    }

    fn block(&mut self, word: &str, rest: &str) -> Result<Node, String> {
        let value = pipeline(rest)?;
        let body = self.body()?;
        let mut arms = vec![(value, body)];
        let mut otherwise = Vec::new();
        loop {
            let action = self.end().ok_or("a missing `{{ end }}`")?.to_owned();
            self.at += 1;
            if action == "end" {
                break;
            }
            let condition = action.strip_prefix("else").unwrap_or_default().trim();
            match condition.strip_prefix("if ") {
                Some(condition) if word == "if" => {
                    let condition = pipeline(condition)?;
                    arms.push((condition, self.body()?));
                }
                _ if condition.is_empty() => otherwise = self.body()?,
                _ => return Err(format!("`{{{{ {action} }}}}`")),
            }
        }
        if word == "if" {
            return Ok(Node::If { arms, otherwise });
        }
        let (value, body) = arms.swap_remove(0);
        Ok(match word {
            "with" => Node::With { value, body, otherwise },
            _ => Node::Range { value, body, otherwise },
        })
    }
}

fn pipeline(text: &str) -> Result<Pipeline, String> {
    let mut parser = Words { text: text.chars().collect(), at: 0, depth: 0 };
    let parsed = parser.pipeline()?;
    parser.skip();
    if parser.at < parser.text.len() {
        let rest: String = parser.text[parser.at..].iter().collect();
        return Err(format!("`{rest}`"));
    }
    Ok(parsed)
}

struct Words {
    text: Vec<char>,
    at: usize,
    depth: usize,
}

impl Words {
    fn skip(&mut self) {
        while self.text.get(self.at).is_some_and(|c| c.is_whitespace()) {
            self.at += 1;
        }
    }

    fn peek(&self) -> Option<char> {
        self.text.get(self.at).copied()
    }

    fn name(&mut self) -> String {
        let from = self.at;
        while self.peek().is_some_and(|c| c == '_' || c.is_ascii_alphanumeric()) {
            self.at += 1;
        }
        self.text[from..self.at].iter().collect()
    }

    fn pipeline(&mut self) -> Result<Pipeline, String> {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return Err("too many nested parts".to_owned());
        }
        let (variables, declares) = self.declaration();
        let mut commands = vec![Vec::new()];
        loop {
            self.skip();
            match self.peek() {
                None | Some(')') => break,
                Some('|') => {
                    self.at += 1;
                    commands.push(Vec::new());
                }
                Some(_) => {
                    let operand = self.operand()?;
                    if let Some(command) = commands.last_mut() {
                        command.push(operand);
                    }
                }
            }
        }
        self.depth -= 1;
        if commands.iter().any(Vec::is_empty) {
            return Err("an action without a command".to_owned());
        }
        Ok(Pipeline { variables, declares, commands })
    }

    /// Reads `$a, $b :=` or `$a =`. Without either, nothing is taken.
    fn declaration(&mut self) -> (Vec<String>, bool) {
        let from = self.at;
        let mut variables = Vec::new();
        loop {
            self.skip();
            if self.peek() != Some('$') {
                break;
            }
            self.at += 1;
            variables.push(self.name());
            self.skip();
            match (self.peek(), self.text.get(self.at + 1)) {
                (Some(','), _) => self.at += 1,
                (Some(':'), Some('=')) => {
                    self.at += 2;
                    return (variables, true);
                }
                (Some('='), next) if next != Some(&'=') => {
                    self.at += 1;
                    return (variables, false);
                }
                _ => break,
            }
        }
        self.at = from;
        (Vec::new(), false)
    }

    fn chain(&mut self) -> Vec<String> {
        let mut names = Vec::new();
        while self.peek() == Some('.') {
            self.at += 1;
            let name = self.name();
            if !name.is_empty() {
                names.push(name);
            }
        }
        names
    }

    fn operand(&mut self) -> Result<Operand, String> {
        match self.peek() {
            Some('.') => Ok(Operand::Field(self.chain())),
            Some('$') => {
                self.at += 1;
                let name = self.name();
                Ok(Operand::Variable(name, self.chain()))
            }
            Some('(') => {
                self.at += 1;
                let inside = self.pipeline()?;
                if self.peek() != Some(')') {
                    return Err("a missing `)`".to_owned());
                }
                self.at += 1;
                Ok(Operand::Nested(Box::new(inside), self.chain()))
            }
            Some(quote @ ('"' | '`')) => self.text(quote).map(|text| Operand::Literal(text.into())),
            Some(c) if c == '-' || c.is_ascii_digit() => {
                let from = self.at;
                while self.peek().is_some_and(|c| c == '-' || c == '.' || c.is_ascii_digit()) {
                    self.at += 1;
                }
                let number: String = self.text[from..self.at].iter().collect();
                serde_json::from_str(&number).map(Operand::Literal).map_err(|_| format!("`{number}`"))
            }
            Some(c) if c == '_' || c.is_ascii_alphabetic() => Ok(match self.name().as_str() {
                "true" => Operand::Literal(true.into()),
                "false" => Operand::Literal(false.into()),
                "nil" => Operand::Literal(Value::Null),
                name => {
                    if !super::functions::is_known(name) {
                        return Err(format!("the function `{name}`"));
                    }
                    Operand::Function(name.to_owned())
                }
            }),
            Some(c) => Err(format!("`{c}`")),
            None => Err("an unfinished action".to_owned()),
        }
    }

    fn text(&mut self, quote: char) -> Result<String, String> {
        let from = self.at;
        self.at += 1;
        while let Some(c) = self.peek() {
            self.at += 1;
            if c == '\\' && quote == '"' {
                self.at += 1;
            } else if c == quote {
                let text: String = self.text[from..self.at].iter().collect();
                return match quote {
                    '`' => Ok(text.trim_matches('`').to_owned()),
                    _ => serde_json::from_str(&text).map_err(|_| format!("`{text}`")),
                };
            }
        }
        Err("a text without an end".to_owned())
    }
}
