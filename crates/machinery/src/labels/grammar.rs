//! Parser of label selectors: tokens, then requirements joined by commas. Messages are the reference's.

use super::{Operator, Requirement};
use crate::field_error::FieldError;
use crate::names;

pub(super) fn parse(text: &str) -> Result<Vec<Requirement>, String> {
    let mut tokens = Tokens::new(text);
    let mut requirements = Vec::new();
    loop {
        match tokens.peek() {
            Token::Word(_) | Token::Not => {
                let requirement =
                    requirement(&mut tokens).map_err(|why| format!("unable to parse requirement: {why}"))?;
                requirements.push(requirement);
                match tokens.next() {
                    Token::End => return Ok(requirements),
                    Token::Comma => match tokens.peek() {
                        Token::Word(_) | Token::Not => {}
                        other => return Err(format!("found '{}', expected: identifier after ','", other.text())),
                    },
                    other => return Err(format!("found '{}', expected: ',' or 'end of string'", other.text())),
                }
            }
            Token::End => return Ok(requirements),
            other => return Err(format!("found '{}', expected: !, identifier, or 'end of string'", other.text())),
        }
    }
}

fn requirement(tokens: &mut Tokens<'_>) -> Result<Requirement, String> {
    let mut token = tokens.next();
    let negated = token == Token::Not;
    if negated {
        token = tokens.next();
    }
    let Token::Word(key) = token else { return Err(format!("found '{}', expected: identifier", token.text())) };
    let objections = names::qualified_name(key);
    if !objections.is_empty() {
        // The reference checks the key without a path here, and prints `<nil>` for it.
        return Err(FieldError::invalid("<nil>", key, objections.join("; ")).to_string());
    }
    if negated {
        return Requirement::new(key, Operator::DoesNotExist, Vec::new());
    }
    if matches!(tokens.peek(), Token::End | Token::Comma) {
        return Requirement::new(key, Operator::Exists, Vec::new());
    }
    let token = tokens.next();
    let operator = match token {
        Token::Word("in") => Operator::In,
        Token::Word("notin") => Operator::NotIn,
        Token::Equals => Operator::Equals,
        Token::DoubleEquals => Operator::DoubleEquals,
        Token::NotEquals => Operator::NotEquals,
        Token::Greater => Operator::GreaterThan,
        Token::Less => Operator::LessThan,
        other => return Err(format!("found '{}', expected: in, notin, =, ==, !=, gt, lt", other.text())),
    };
    let values = match operator {
        Operator::In | Operator::NotIn => value_set(tokens)?,
        _ => vec![single_value(tokens)?],
    };
    Requirement::new(key, operator, values)
}

fn single_value(tokens: &mut Tokens<'_>) -> Result<String, String> {
    if matches!(tokens.peek(), Token::End | Token::Comma) {
        return Ok(String::new());
    }
    match tokens.next() {
        Token::Word(value) => Ok(value.to_owned()),
        other => Err(format!("found '{}', expected: identifier", other.text())),
    }
}

/// Parses `(a,b)`. A missing value between commas or parentheses is the empty string.
fn value_set(tokens: &mut Tokens<'_>) -> Result<Vec<String>, String> {
    match tokens.next() {
        Token::Open => {}
        other => return Err(format!("found '{}' expected: '('", other.text())),
    }
    match tokens.peek() {
        Token::Word(_) | Token::Comma => {}
        Token::Close => {
            tokens.next();
            return Ok(vec![String::new()]);
        }
        other => return Err(format!("found '{}', expected: ',', ')' or identifier", other.text())),
    }
    let mut values = Vec::new();
    loop {
        match tokens.next() {
            Token::Word(value) => {
                values.push(value.to_owned());
                match tokens.peek() {
                    Token::Comma => {}
                    Token::Close => {
                        tokens.next();
                        return Ok(values);
                    }
                    other => return Err(format!("found '{}', expected: ',' or ')'", other.text())),
                }
            }
            Token::Comma => {
                if values.is_empty() || tokens.peek() == Token::Comma {
                    values.push(String::new());
                }
                if tokens.peek() == Token::Close {
                    tokens.next();
                    values.push(String::new());
                    return Ok(values);
                }
            }
            other => return Err(format!("found '{}', expected: ',', or identifier", other.text())),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Token<'a> {
    /// A key, a value, `in` or `notin`, depending on the position.
    Word(&'a str),
    Open,
    Close,
    Comma,
    Not,
    Equals,
    DoubleEquals,
    NotEquals,
    Greater,
    Less,
    End,
}

impl<'a> Token<'a> {
    fn text(self) -> &'a str {
        match self {
            Token::Word(word) => word,
            Token::Open => "(",
            Token::Close => ")",
            Token::Comma => ",",
            Token::Not => "!",
            Token::Equals => "=",
            Token::DoubleEquals => "==",
            Token::NotEquals => "!=",
            Token::Greater => ">",
            Token::Less => "<",
            Token::End => "",
        }
    }
}

struct Tokens<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Tokens<'a> {
    fn new(text: &'a str) -> Self {
        Tokens { text, at: 0 }
    }

    fn byte(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn peek(&self) -> Token<'a> {
        Tokens { text: self.text, at: self.at }.next()
    }

    fn next(&mut self) -> Token<'a> {
        while self.byte().is_some_and(is_blank) {
            self.at += 1;
        }
        let token = match self.byte() {
            // A NUL ends the text, as in the reference.
            None | Some(0) => return Token::End,
            Some(b'(') => self.take(1, Token::Open),
            Some(b')') => self.take(1, Token::Close),
            Some(b',') => self.take(1, Token::Comma),
            Some(b'>') => self.take(1, Token::Greater),
            Some(b'<') => self.take(1, Token::Less),
            Some(b'=') if self.second() == Some(b'=') => self.take(2, Token::DoubleEquals),
            Some(b'=') => self.take(1, Token::Equals),
            Some(b'!') if self.second() == Some(b'=') => self.take(2, Token::NotEquals),
            Some(b'!') => self.take(1, Token::Not),
            Some(_) => {
                let rest = &self.text[self.at..];
                // Every byte that ends a word is ASCII, so the split is between characters.
                let end = rest.bytes().position(|b| b == 0 || is_blank(b) || is_symbol(b)).unwrap_or(rest.len());
                self.take(end, Token::Word(&rest[..end]))
            }
        };
        if self.byte() == Some(0) {
            self.at += 1;
        }
        token
    }

    fn second(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at + 1).copied()
    }

    fn take(&mut self, len: usize, token: Token<'a>) -> Token<'a> {
        self.at += len;
        token
    }
}

fn is_blank(b: u8) -> bool {
    matches!(b, b' ' | b'\t' | b'\r' | b'\n')
}

fn is_symbol(b: u8) -> bool {
    matches!(b, b'=' | b'!' | b'(' | b')' | b',' | b'>' | b'<')
}

#[cfg(test)]
mod tests {
    use crate::labels::Selector;

    const NAME_PART: &str = "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
    const VALUE: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";

    #[track_caller]
    fn refused(text: &str, want: &str) {
        assert_eq!(Selector::parse(text).map(|selector| selector.to_string()), Err(want.to_owned()), "{text}");
    }

    #[test]
    fn refused_operator_repeated() {
        refused("a=b=c", "found '=', expected: ',' or 'end of string'");
        refused("a===b", "unable to parse requirement: found '=', expected: identifier");
        refused("a=!b", "unable to parse requirement: found '!', expected: identifier");
        refused("a!==b", "unable to parse requirement: found '=', expected: identifier");
    }

    #[test]
    fn refused_words_without_operator() {
        refused("a b", "unable to parse requirement: found 'b', expected: in, notin, =, ==, !=, gt, lt");
        refused("a exists", "unable to parse requirement: found 'exists', expected: in, notin, =, ==, !=, gt, lt");
        refused("a=b c", "found 'c', expected: ',' or 'end of string'");
        refused("a!b", "unable to parse requirement: found '!', expected: in, notin, =, ==, !=, gt, lt");
        refused("a!", "unable to parse requirement: found '!', expected: in, notin, =, ==, !=, gt, lt");
        refused("a,", "found '', expected: identifier after ','");
        refused(",a", "found ',', expected: !, identifier, or 'end of string'");
    }

    #[test]
    fn refused_parentheses() {
        refused("(", "found '(', expected: !, identifier, or 'end of string'");
        refused("a in", "unable to parse requirement: found '' expected: '('");
        refused("a in b", "unable to parse requirement: found 'b' expected: '('");
        refused("a in (b", "unable to parse requirement: found '', expected: ',' or ')'");
        refused("a in (b c)", "unable to parse requirement: found 'c', expected: ',' or ')'");
        refused("a=(b)", "unable to parse requirement: found '(', expected: identifier");
        refused("a in (", "unable to parse requirement: found '', expected: ',', ')' or identifier");
        refused("a in )", "unable to parse requirement: found ')' expected: '('");
        refused("a notin", "unable to parse requirement: found '' expected: '('");
        refused("a notin )b(", "unable to parse requirement: found ')' expected: '('");
    }

    #[test]
    fn refused_negation() {
        refused("!", "unable to parse requirement: found '', expected: identifier");
        refused("!a=b", "found '=', expected: ',' or 'end of string'");
        refused("!a in (b)", "found 'in', expected: ',' or 'end of string'");
        refused("!!a", "unable to parse requirement: found '!', expected: identifier");
    }

    #[test]
    fn refused_numbers_wanted() {
        let integer = "for 'Gt', 'Lt' operators, the value must be an integer";
        refused("a>b", &format!("unable to parse requirement: values[0]: Invalid value: \"b\": {integer}"));
        refused("a>", &format!("unable to parse requirement: values[0]: Invalid value: \"\": {integer}"));
        refused("a<1.5", &format!("unable to parse requirement: values[0]: Invalid value: \"1.5\": {integer}"));
        refused("a>-1", &format!("unable to parse requirement: values[0][a]: Invalid value: \"-1\": {VALUE}"));
        refused(
            "a<99999999999999999999",
            &format!("unable to parse requirement: values[0]: Invalid value: \"99999999999999999999\": {integer}"),
        );
    }

    #[test]
    fn refused_bad_keys() {
        refused("-a=b", &format!("unable to parse requirement: <nil>: Invalid value: \"-a\": {NAME_PART}"));
        refused("/a", "unable to parse requirement: <nil>: Invalid value: \"/a\": prefix part must be non-empty");
        refused(
            "a/",
            &format!(
                "unable to parse requirement: <nil>: Invalid value: \"a/\": name part must be non-empty; {NAME_PART}"
            ),
        );
        refused("a$=b", &format!("unable to parse requirement: <nil>: Invalid value: \"a$\": {NAME_PART}"));
    }

    #[test]
    fn refused_bad_characters() {
        for (text, value) in [("a=b/c", "b/c"), ("a=-b", "-b"), ("a in (b,-c)", "-c"), ("a=@", "@")] {
            refused(text, &format!("unable to parse requirement: values[0][a]: Invalid value: \"{value}\": {VALUE}"));
        }
    }
}
