//! The expressions of KWOK's `ResourceUsage`: the part of CEL that its examples use.
//!
//! `"key" in pod.metadata.annotations ? Quantity(pod.metadata.annotations["key"]) : Quantity("1m")`
//!
//! Literals, paths of `pod`, `["key"]`, `in`, `? :`, `&&`, `||`, `!`, comparisons, `+ - * /`, parentheses, `Quantity(…)`,
//! `Rand()`, `pod.SinceSecond()` and `container`. What is not known is refused when it is read.

use serde_json::Value;

use super::curve::amount;

/// Longest expression, in bytes.
const LENGTH_MAX: usize = 4_096;
/// Deepest nesting.
const DEPTH_MAX: usize = 32;
/// Words and signs of an expression at most: each may be one more level of what is evaluated.
const TOKENS_MAX: usize = 256;

#[derive(Debug, Clone, PartialEq)]
pub struct Expression(Term);

#[derive(Debug, Clone, PartialEq)]
enum Term {
    Number(f64),
    Text(String),
    Truth(bool),
    Pod,
    Container,
    Member(Box<Term>, Box<Term>),
    Quantity(Box<Term>),
    Random,
    Age,
    Not(Box<Term>),
    Binary(&'static str, Box<Term>, Box<Term>),
    Choice(Box<[Term; 3]>),
}

/// What an expression can refer to.
pub struct Scope<'a> {
    pub pod: &'a Value,
    pub container: &'a str,
    /// Since the start of the pod, in seconds.
    pub age: f64,
}

#[derive(Debug, Clone, PartialEq)]
enum Found<'a> {
    Number(f64),
    Text(std::borrow::Cow<'a, str>),
    Truth(bool),
    Object(&'a Value),
}

impl Expression {
    /// Parses an expression; the error names what is not understood.
    pub fn parse(text: &str) -> Result<Expression, String> {
        if text.len() > LENGTH_MAX {
            return Err(format!("the expression is longer than {LENGTH_MAX} bytes"));
        }
        let mut parser = Parser { tokens: tokens(text)?, at: 0 };
        let term = parser.choice(0)?;
        match parser.tokens.get(parser.at) {
            None => Ok(Expression(term)),
            Some(token) => Err(format!("{token:?} is not understood in the expression {:?}", text.trim())),
        }
    }

    /// The amount; none if the expression has none for this pod.
    #[must_use]
    pub fn amount(&self, scope: &Scope<'_>) -> Option<f64> {
        match evaluate(&self.0, scope)? {
            Found::Number(number) if number.is_finite() && number >= 0.0 => Some(number),
            _ => None,
        }
    }
}

fn evaluate<'a>(term: &'a Term, scope: &Scope<'a>) -> Option<Found<'a>> {
    let number = |term: &'a Term| match evaluate(term, scope)? {
        Found::Number(number) => Some(number),
        _ => None,
    };
    let truth = |term: &'a Term| match evaluate(term, scope)? {
        Found::Truth(truth) => Some(truth),
        _ => None,
    };
    Some(match term {
        Term::Number(number) => Found::Number(*number),
        Term::Text(text) => Found::Text(text.as_str().into()),
        Term::Truth(truth) => Found::Truth(*truth),
        Term::Pod => Found::Object(scope.pod),
        Term::Container => Found::Text(scope.container.into()),
        Term::Random => Found::Number(rand::random()),
        Term::Age => Found::Number(scope.age),
        Term::Quantity(inner) => match evaluate(inner, scope)? {
            Found::Text(text) => Found::Number(amount(&text).ok()?),
            Found::Number(number) => Found::Number(number),
            _ => return None,
        },
        Term::Not(inner) => Found::Truth(!truth(inner)?),
        Term::Member(of, key) => {
            let (Found::Object(of), Found::Text(key)) = (evaluate(of, scope)?, evaluate(key, scope)?) else {
                return None;
            };
            found(of.get(&*key)?)?
        }
        Term::Choice(parts) => {
            let [condition, one, other] = &**parts;
            return evaluate(if truth(condition)? { one } else { other }, scope);
        }
        Term::Binary("&&", a, b) => Found::Truth(truth(a)? && truth(b)?),
        Term::Binary("||", a, b) => Found::Truth(truth(a)? || truth(b)?),
        Term::Binary("in", key, of) => {
            let Found::Text(key) = evaluate(key, scope)? else { return None };
            // A map that is missing has no keys.
            let has = match evaluate(of, scope) {
                Some(Found::Object(of)) => of.get(&*key).is_some(),
                _ => false,
            };
            Found::Truth(has)
        }
        Term::Binary(operator @ ("==" | "!="), a, b) => {
            Found::Truth((evaluate(a, scope)? == evaluate(b, scope)?) == (*operator == "=="))
        }
        Term::Binary(operator, a, b) => {
            let (a, b) = (number(a)?, number(b)?);
            match *operator {
                "<" => Found::Truth(a < b),
                "<=" => Found::Truth(a <= b),
                ">" => Found::Truth(a > b),
                ">=" => Found::Truth(a >= b),
                "+" => Found::Number(a + b),
                "-" => Found::Number(a - b),
                "*" => Found::Number(a * b),
                _ => Found::Number(a / b),
            }
        }
    })
}

fn found(value: &Value) -> Option<Found<'_>> {
    Some(match value {
        Value::String(text) => Found::Text(text.as_str().into()),
        Value::Bool(truth) => Found::Truth(*truth),
        Value::Number(number) => Found::Number(number.as_f64()?),
        Value::Null => return None,
        Value::Array(_) | Value::Object(_) => Found::Object(value),
    })
}

#[derive(Debug, Clone, PartialEq)]
enum Token {
    Number(f64),
    Text(String),
    Word(String),
    Sign(&'static str),
}

const SIGNS: [&str; 21] =
    ["&&", "||", "==", "!=", "<=", ">=", "<", ">", "?", ":", "(", ")", "[", "]", ".", ",", "+", "-", "*", "/", "!"];

fn tokens(text: &str) -> Result<Vec<Token>, String> {
    let mut tokens = Vec::new();
    let mut rest = text.trim_start();
    while let Some(first) = rest.chars().next() {
        let length = if first == '"' || first == '\'' {
            let end = rest[1..].find(first).ok_or("a text of the expression has no end")?;
            if rest[1..=end].contains('\\') {
                return Err("`\\` in a text of the expression is not understood".to_owned());
            }
            tokens.push(Token::Text(rest[1..=end].to_owned()));
            end + 2
        } else if first.is_ascii_digit() {
            let length = rest.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(rest.len());
            let number = rest[..length].parse().map_err(|_| format!("{:?} is no number", &rest[..length]))?;
            tokens.push(Token::Number(number));
            length
        } else if first.is_ascii_alphabetic() || first == '_' {
            let length = rest.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).unwrap_or(rest.len());
            tokens.push(Token::Word(rest[..length].to_owned()));
            length
        } else {
            let sign = SIGNS.iter().find(|sign| rest.starts_with(**sign));
            let sign = sign.ok_or_else(|| format!("{first:?} is not understood in the expression"))?;
            tokens.push(Token::Sign(sign));
            sign.len()
        };
        if tokens.len() > TOKENS_MAX {
            return Err(format!("the expression has more than {TOKENS_MAX} words and signs"));
        }
        rest = rest[length..].trim_start();
    }
    Ok(tokens)
}

struct Parser {
    tokens: Vec<Token>,
    at: usize,
}

/// The operators of two sides, the loosest first.
const LEVELS: [&[&str]; 5] = [&["||"], &["&&"], &["==", "!=", "<=", ">=", "<", ">", "in"], &["+", "-"], &["*", "/"]];

impl Parser {
    fn takes(&mut self, sign: &str) -> bool {
        let is = match self.tokens.get(self.at) {
            Some(Token::Sign(found)) => *found == sign,
            Some(Token::Word(word)) => sign == "in" && word == "in",
            _ => false,
        };
        self.at += usize::from(is);
        is
    }

    fn expect(&mut self, sign: &str) -> Result<(), String> {
        if self.takes(sign) { Ok(()) } else { Err(format!("the expression should have `{sign}` somewhere")) }
    }

    fn choice(&mut self, depth: usize) -> Result<Term, String> {
        if depth > DEPTH_MAX {
            return Err(format!("the expression is nested deeper than {DEPTH_MAX}"));
        }
        let condition = self.binary(0, depth)?;
        if !self.takes("?") {
            return Ok(condition);
        }
        let one = self.choice(depth + 1)?;
        self.expect(":")?;
        let other = self.choice(depth + 1)?;
        Ok(Term::Choice(Box::new([condition, one, other])))
    }

    fn binary(&mut self, level: usize, depth: usize) -> Result<Term, String> {
        let Some(operators) = LEVELS.get(level) else { return self.unary(depth) };
        let mut left = self.binary(level + 1, depth)?;
        while let Some(operator) = operators.iter().copied().find(|operator| self.takes(operator)) {
            let right = self.binary(level + 1, depth)?;
            left = Term::Binary(operator, Box::new(left), Box::new(right));
        }
        Ok(left)
    }

    fn unary(&mut self, depth: usize) -> Result<Term, String> {
        if depth > DEPTH_MAX {
            return Err(format!("the expression is nested deeper than {DEPTH_MAX}"));
        }
        if self.takes("!") {
            return Ok(Term::Not(Box::new(self.unary(depth + 1)?)));
        }
        let mut term = self.primary(depth)?;
        loop {
            if self.takes("[") {
                let key = self.choice(depth + 1)?;
                self.expect("]")?;
                term = Term::Member(Box::new(term), Box::new(key));
            } else if self.takes(".") {
                let Some(Token::Word(name)) = self.tokens.get(self.at).cloned() else {
                    return Err("the expression has `.` without a name".to_owned());
                };
                self.at += 1;
                term = if !self.takes("(") {
                    Term::Member(Box::new(term), Box::new(Term::Text(name)))
                } else if name == "SinceSecond" && term == Term::Pod {
                    self.expect(")")?;
                    Term::Age
                } else {
                    return Err(format!("the function {name} is not simulated"));
                };
            } else {
                return Ok(term);
            }
        }
    }

    fn primary(&mut self, depth: usize) -> Result<Term, String> {
        if self.takes("(") {
            let inner = self.choice(depth + 1)?;
            self.expect(")")?;
            return Ok(inner);
        }
        let token = self.tokens.get(self.at).cloned().ok_or("the expression ends too early")?;
        self.at += 1;
        Ok(match token {
            Token::Number(number) => Term::Number(number),
            Token::Text(text) => Term::Text(text),
            Token::Sign(sign) => return Err(format!("`{sign}` is not understood in the expression")),
            Token::Word(word) => match (word.as_str(), self.takes("(")) {
                ("pod", false) => Term::Pod,
                ("container", false) => Term::Container,
                ("true" | "false", false) => Term::Truth(word == "true"),
                ("Quantity", true) => {
                    let inner = self.choice(depth + 1)?;
                    self.expect(")")?;
                    Term::Quantity(Box::new(inner))
                }
                ("Rand", true) => {
                    self.expect(")")?;
                    Term::Random
                }
                (word, true) => return Err(format!("the function {word} is not simulated")),
                (word, false) => return Err(format!("the variable {word} is not simulated")),
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn mx_7_expressions_of_kwok_are_computed() {
        let pod = json!({"metadata": {"annotations": {"use": "250m"}}, "spec": {"n": 3}});
        let of = |text: &str| {
            let scope = Scope { pod: &pod, container: "c", age: 90.0 };
            Expression::parse(text).unwrap_or_else(|why| panic!("{text}: {why}")).amount(&scope)
        };
        for (text, expected) in [
            (r#"Quantity("1Mi")"#, Some(1_048_576.0)),
            (
                r#""use" in pod.metadata.annotations ? Quantity(pod.metadata.annotations["use"]) : Quantity("1m")"#,
                Some(0.25),
            ),
            (r#""no" in pod.metadata.annotations ? Quantity("2") : Quantity("1m")"#, Some(0.001)),
            (r#""no" in pod.metadata.labels ? 2 : 1"#, Some(1.0)),
            ("pod.SinceSecond() / 60 * 2 + 1", Some(4.0)),
            ("pod.spec.n >= 3 && !(container == 'd') ? 7 : 8", Some(7.0)),
            ("(1 + 2) * 3", Some(9.0)),
            ("pod.spec.missing + 1", None),
            ("1 - 2", None),
            ("'text'", None),
        ] {
            assert_eq!(of(text), expected, "{text}");
        }
        assert!((0.0..1.0).contains(&of("Rand()").unwrap()));
    }

    #[test]
    fn mx_7_what_is_not_computed_is_named() {
        for (bad, word) in [
            ("", "too early"),
            ("Sum(1)", "Sum"),
            ("node.metadata", "node"),
            ("pod.Usage('cpu')", "Usage"),
            ("1 +", "too early"),
            ("1 2", "2.0"),
            ("'a", "no end"),
            ("(1", "`)`"),
            ("1 # 2", "#"),
        ] {
            let error = Expression::parse(bad).unwrap_err();
            assert!(error.contains(word), "{bad}: {error}");
        }
        assert!(Expression::parse(&"(".repeat(1_000)).is_err());
        assert!(Expression::parse(&"!".repeat(1_000)).is_err());
        assert!(Expression::parse(&"1".repeat(5_000)).is_err());
    }
}
