//! The part of jq that keys of stages use. What is not understood is refused when the stage is read.
//!
//! ```text
//!   .metadata.labels["key"]
//!   .status.conditions.[] | select( .type == "Ready" ) | .status
//!   .spec.replicas // 1
//! ```
//!
//! A subset of its own, because a full jq has loops without a bound, and these expressions come from users and run in the
//! same task as all nodes. Here every expression ends: there are no definitions, no recursion and no generators but `.[]`.

use std::cell::Cell;

use serde_json::Value;

/// How deep expressions may be nested.
const DEPTH_MAX: usize = 32;
/// Values that one expression may produce at a time.
const VALUES_MAX: usize = 10_000;
/// Longest expression.
const TEXT_BYTES_MAX: usize = 4 * 1024;
/// Parts of an expression. Chains are nested too, so this bounds every recursion over expressions.
const PARTS_MAX: usize = 256;
/// Bytes of all values that the parts of an expression produce for one object, as [`weight`] counts them.
const WORK_MAX: usize = 16 * 1024 * 1024;
/// What a value takes besides its text.
const VALUE_BYTES: usize = 32;

/// A compiled expression.
#[derive(Debug, Clone, PartialEq)]
pub(in crate::nodes) struct Query(Expression);

#[derive(Debug, Clone, PartialEq)]
enum Expression {
    Identity,
    Field(Box<Expression>, String),
    Index(Box<Expression>, i64),
    Each(Box<Expression>),
    /// `f?`
    Try(Box<Expression>),
    Pipe(Box<Expression>, Box<Expression>),
    Comma(Box<Expression>, Box<Expression>),
    Alternative(Box<Expression>, Box<Expression>),
    Binary(&'static str, Box<Expression>, Box<Expression>),
    Literal(Value),
    Collect(Box<Expression>),
    Call(String, Vec<Expression>),
}

/// The expression does not apply to the value, as in `.a` of a number.
#[derive(Debug)]
struct Mismatch;

impl Query {
    pub(in crate::nodes) fn parse(text: &str) -> Result<Self, String> {
        if text.len() > TEXT_BYTES_MAX {
            return Err(format!("an expression has more than {TEXT_BYTES_MAX} bytes"));
        }
        let mut parser = Parser { text: text.chars().collect(), at: 0, depth: 0, parts: 0 };
        let expression = parser.pipe().map_err(|why| format!("the expression {text:?} has {why}"))?;
        parser.skip();
        if parser.at < parser.text.len() {
            let rest: String = parser.text[parser.at..].iter().collect();
            return Err(format!("the expression {text:?} has `{rest}`, which is not understood"));
        }
        Ok(Query(expression))
    }

    /// The values other than null; none if the expression does not apply.
    pub(in crate::nodes) fn values(&self, input: &Value) -> Option<Vec<Value>> {
        let budget = Budget(Cell::new(WORK_MAX));
        let values = evaluate(&self.0, input, &budget).ok()?;
        // Used up inside of `?` or `//`: what is left out does not count as missing.
        if budget.0.get() == 0 {
            return None;
        }
        Some(values.into_iter().filter(|value| !value.is_null()).collect())
    }
}

/// About the bytes of a value, with all values in it.
pub(super) fn weight(value: &Value) -> usize {
    VALUE_BYTES
        + match value {
            Value::String(text) => text.len(),
            Value::Array(items) => items.iter().map(weight).sum(),
            Value::Object(members) => members.iter().map(|(name, value)| name.len() + weight(value)).sum(),
            _ => 0,
        }
}

/// What an expression may still produce.
struct Budget(Cell<usize>);

impl Budget {
    /// Once it is used up, nothing more is evaluated.
    fn take(&self, bytes: usize) -> Result<(), Mismatch> {
        let left = self.0.get().checked_sub(bytes);
        self.0.set(left.unwrap_or_default());
        left.map(|_| ()).ok_or(Mismatch)
    }
}

fn evaluate(expression: &Expression, input: &Value, budget: &Budget) -> Result<Vec<Value>, Mismatch> {
    budget.take(VALUE_BYTES)?;
    let values = evaluate_part(expression, input, budget)?;
    budget.take(values.iter().map(weight).sum())?;
    Ok(values)
}

fn evaluate_part(expression: &Expression, input: &Value, budget: &Budget) -> Result<Vec<Value>, Mismatch> {
    let bounded = |values: Vec<Value>| if values.len() > VALUES_MAX { Err(Mismatch) } else { Ok(values) };
    Ok(match expression {
        Expression::Identity => vec![input.clone()],
        Expression::Literal(value) => vec![value.clone()],
        Expression::Field(of, name) => each(of, input, budget, |value| match value {
            Value::Object(members) => Ok(members.get(name).cloned().unwrap_or(Value::Null)),
            Value::Null => Ok(Value::Null),
            _ => Err(Mismatch),
        })?,
        Expression::Index(of, at) => each(of, input, budget, |value| match value {
            Value::Array(items) => {
                let at = if *at < 0 { at + items.len() as i64 } else { *at };
                Ok(usize::try_from(at).ok().and_then(|at| items.get(at)).cloned().unwrap_or(Value::Null))
            }
            Value::Null => Ok(Value::Null),
            _ => Err(Mismatch),
        })?,
        Expression::Each(of) => {
            let mut all = Vec::new();
            for value in evaluate(of, input, budget)? {
                match value {
                    Value::Array(items) => all.extend(items),
                    Value::Object(members) => all.extend(members.into_iter().map(|(_, value)| value)),
                    _ => return Err(Mismatch),
                }
            }
            bounded(all)?
        }
        Expression::Try(of) => evaluate(of, input, budget).unwrap_or_default(),
        Expression::Pipe(left, right) => {
            let mut all = Vec::new();
            for value in evaluate(left, input, budget)? {
                all.extend(evaluate(right, &value, budget)?);
            }
            bounded(all)?
        }
        Expression::Comma(left, right) => {
            let mut all = evaluate(left, input, budget)?;
            all.extend(evaluate(right, input, budget)?);
            bounded(all)?
        }
        Expression::Alternative(left, right) => {
            let values = evaluate(left, input, budget).unwrap_or_default();
            let true_ones: Vec<Value> = values.into_iter().filter(is_true).collect();
            if true_ones.is_empty() { evaluate(right, input, budget)? } else { true_ones }
        }
        Expression::Binary(sign, left, right) => {
            let mut all = Vec::new();
            for right in evaluate(right, input, budget)? {
                for left in evaluate(left, input, budget)? {
                    all.push(Value::Bool(compare(sign, &left, &right)));
                }
            }
            bounded(all)?
        }
        Expression::Collect(of) => vec![Value::Array(evaluate(of, input, budget)?)],
        Expression::Call(name, arguments) => call(name, arguments, input, budget)?,
    })
}

fn each(
    of: &Expression,
    input: &Value,
    budget: &Budget,
    get: impl Fn(&Value) -> Result<Value, Mismatch>,
) -> Result<Vec<Value>, Mismatch> {
    evaluate(of, input, budget)?.iter().map(get).collect()
}

fn is_true(value: &Value) -> bool {
    !matches!(value, Value::Null | Value::Bool(false))
}

fn compare(sign: &str, left: &Value, right: &Value) -> bool {
    let ordering = || match (left, right) {
        (Value::Number(left), Value::Number(right)) => left.as_f64().partial_cmp(&right.as_f64()),
        (Value::String(left), Value::String(right)) => Some(left.cmp(right)),
        _ => None,
    };
    let same = || match (left, right) {
        (Value::Number(left), Value::Number(right)) => left.as_f64() == right.as_f64(),
        _ => left == right,
    };
    match sign {
        "==" => same(),
        "!=" => !same(),
        "<" => ordering().is_some_and(std::cmp::Ordering::is_lt),
        "<=" => ordering().is_some_and(std::cmp::Ordering::is_le),
        ">" => ordering().is_some_and(std::cmp::Ordering::is_gt),
        ">=" => ordering().is_some_and(std::cmp::Ordering::is_ge),
        "and" => is_true(left) && is_true(right),
        _ => is_true(left) || is_true(right),
    }
}

/// Functions, with the number of their arguments.
const FUNCTIONS: [(&str, usize); 17] = [
    ("select", 1),
    ("map", 1),
    ("has", 1),
    ("startswith", 1),
    ("endswith", 1),
    ("contains", 1),
    ("any", 1),
    ("all", 1),
    ("not", 0),
    ("length", 0),
    ("keys", 0),
    ("first", 0),
    ("last", 0),
    ("any", 0),
    ("all", 0),
    ("tostring", 0),
    ("empty", 0),
];

fn call(name: &str, arguments: &[Expression], input: &Value, budget: &Budget) -> Result<Vec<Value>, Mismatch> {
    let argument = || arguments.first().map_or(Ok(Vec::new()), |argument| evaluate(argument, input, budget));
    let items = || input.as_array().ok_or(Mismatch);
    let text = |value: &Value| value.as_str().map(str::to_owned).ok_or(Mismatch);
    let passes = |item: &Value| match arguments.first() {
        Some(argument) => evaluate(argument, item, budget).map(|values| values.iter().any(is_true)),
        None => Ok(is_true(item)),
    };
    Ok(match name {
        "select" => {
            let count = argument()?.iter().filter(|value| is_true(value)).count();
            // Before the copies are made.
            budget.take(weight(input).saturating_mul(count))?;
            vec![input.clone(); count]
        }
        "map" => {
            let mut all = Vec::new();
            for item in items()? {
                all.extend(arguments.first().map_or(Ok(Vec::new()), |argument| evaluate(argument, item, budget))?);
            }
            vec![Value::Array(all)]
        }
        "has" => {
            let found = |name: &Value| match (input, name) {
                (Value::Object(members), Value::String(name)) => Ok(Value::Bool(members.contains_key(name))),
                (Value::Array(items), Value::Number(at)) => {
                    Ok(Value::Bool(at.as_u64().is_some_and(|at| at < items.len() as u64)))
                }
                _ => Err(Mismatch),
            };
            argument()?.iter().map(found).collect::<Result<_, _>>()?
        }
        "startswith" | "endswith" | "contains" => {
            let input = text(input)?;
            let test = |part: &Value| {
                let part = text(part)?;
                Ok(Value::Bool(match name {
                    "startswith" => input.starts_with(&part),
                    "endswith" => input.ends_with(&part),
                    _ => input.contains(&part),
                }))
            };
            argument()?.iter().map(test).collect::<Result<_, _>>()?
        }
        "any" | "all" => {
            let results = items()?.iter().map(passes).collect::<Result<Vec<bool>, _>>()?;
            let result = if name == "any" { results.contains(&true) } else { !results.contains(&false) };
            vec![Value::Bool(result)]
        }
        "not" => vec![Value::Bool(!is_true(input))],
        "length" => vec![match input {
            Value::Null => 0.into(),
            Value::String(text) => text.chars().count().into(),
            Value::Array(items) => items.len().into(),
            Value::Object(members) => members.len().into(),
            Value::Number(_) => input.clone(),
            Value::Bool(_) => return Err(Mismatch),
        }],
        "keys" => {
            let mut names: Vec<&String> = input.as_object().ok_or(Mismatch)?.keys().collect();
            names.sort();
            vec![names.into_iter().cloned().collect::<Vec<_>>().into()]
        }
        "first" => vec![items()?.first().cloned().unwrap_or(Value::Null)],
        "last" => vec![items()?.last().cloned().unwrap_or(Value::Null)],
        "tostring" => vec![Value::String(input.as_str().map_or_else(|| input.to_string(), str::to_owned))],
        _ => Vec::new(),
    })
}

struct Parser {
    text: Vec<char>,
    at: usize,
    depth: usize,
    parts: usize,
}

impl Parser {
    fn skip(&mut self) {
        while self.text.get(self.at).is_some_and(|c| c.is_whitespace()) {
            self.at += 1;
        }
    }

    fn peek(&self) -> Option<char> {
        self.text.get(self.at).copied()
    }

    fn begins(&self, with: &str) -> bool {
        with.chars().enumerate().all(|(ahead, c)| self.text.get(self.at + ahead) == Some(&c))
    }

    fn take(&mut self, sign: &str) -> bool {
        self.skip();
        let is_it = self.begins(sign);
        self.at += if is_it { sign.len() } else { 0 };
        is_it
    }

    fn count_part(&mut self) -> Result<(), String> {
        self.parts += 1;
        if self.parts > PARTS_MAX { Err("too many parts".to_owned()) } else { Ok(()) }
    }

    fn pipe(&mut self) -> Result<Expression, String> {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return Err("too many nested parts".to_owned());
        }
        let mut left = self.comma()?;
        while !self.begins("||") && self.take("|") {
            self.count_part()?;
            left = Expression::Pipe(Box::new(left), Box::new(self.comma()?));
        }
        self.depth -= 1;
        Ok(left)
    }

    fn comma(&mut self) -> Result<Expression, String> {
        let mut left = self.alternative()?;
        while self.take(",") {
            self.count_part()?;
            left = Expression::Comma(Box::new(left), Box::new(self.alternative()?));
        }
        Ok(left)
    }

    fn alternative(&mut self) -> Result<Expression, String> {
        let left = self.binary(0)?;
        if self.take("//") {
            self.count_part()?;
            return Ok(Expression::Alternative(Box::new(left), Box::new(self.alternative()?)));
        }
        Ok(left)
    }

    fn binary(&mut self, level: usize) -> Result<Expression, String> {
        const LEVELS: [&[&str]; 3] = [&["or"], &["and"], &["==", "!=", "<=", ">=", "<", ">"]];
        let Some(signs) = LEVELS.get(level) else { return self.postfix() };
        let mut left = self.binary(level + 1)?;
        loop {
            self.skip();
            let Some(sign) = signs.iter().find(|sign| self.begins(sign)) else { return Ok(left) };
            self.at += sign.len();
            self.count_part()?;
            let right = self.binary(level + 1)?;
            left = Expression::Binary(sign, Box::new(left), Box::new(right));
        }
    }

    fn postfix(&mut self) -> Result<Expression, String> {
        let mut of = self.term()?;
        loop {
            self.count_part()?;
            if self.begins("[") || self.begins(".[") {
                self.at += if self.begins(".[") { 2 } else { 1 };
                of = self.bracket(of)?;
            } else if self.begins(".") {
                self.at += 1;
                of = self.field(of)?;
            } else if self.begins("?") {
                self.at += 1;
                of = Expression::Try(Box::new(of));
            } else {
                return Ok(of);
            }
        }
    }

    /// After `[`.
    fn bracket(&mut self, of: Expression) -> Result<Expression, String> {
        let of = Box::new(of);
        self.skip();
        let inside = match self.peek() {
            Some(']') => {
                self.at += 1;
                return Ok(Expression::Each(of));
            }
            Some('"') => Expression::Field(of, self.string()?),
            _ => {
                let number = self.word(|c| c == '-' || c.is_ascii_digit());
                Expression::Index(of, number.parse().map_err(|_| "a `[` without a name or a number".to_owned())?)
            }
        };
        if self.take("]") { Ok(inside) } else { Err("a missing `]`".to_owned()) }
    }

    fn field(&mut self, of: Expression) -> Result<Expression, String> {
        if self.peek() == Some('"') {
            return Ok(Expression::Field(Box::new(of), self.string()?));
        }
        let name = self.word(|c| c == '_' || c.is_ascii_alphanumeric());
        if name.is_empty() { Err("a `.` without a name".to_owned()) } else { Ok(Expression::Field(Box::new(of), name)) }
    }

    fn word(&mut self, is_in: impl Fn(char) -> bool) -> String {
        let from = self.at;
        while self.peek().is_some_and(&is_in) {
            self.at += 1;
        }
        self.text[from..self.at].iter().collect()
    }

    fn string(&mut self) -> Result<String, String> {
        let from = self.at;
        self.at += 1;
        while let Some(c) = self.peek() {
            self.at += 1;
            match c {
                '\\' => self.at += 1,
                '"' => {
                    let text: String = self.text[from..self.at.min(self.text.len())].iter().collect();
                    return serde_json::from_str(&text).map_err(|_| "a text that cannot be read".to_owned());
                }
                _ => {}
            }
        }
        Err("a missing `\"`".to_owned())
    }

    fn term(&mut self) -> Result<Expression, String> {
        self.skip();
        match self.peek() {
            Some('.') => {
                self.at += 1;
                match self.peek() {
                    Some('[') => {
                        self.at += 1;
                        self.bracket(Expression::Identity)
                    }
                    Some(c) if c == '"' || c == '_' || c.is_ascii_alphabetic() => self.field(Expression::Identity),
                    _ => Ok(Expression::Identity),
                }
            }
            Some('(') => {
                self.at += 1;
                let inside = self.pipe()?;
                if self.take(")") { Ok(inside) } else { Err("a missing `)`".to_owned()) }
            }
            Some('[') => {
                self.at += 1;
                let inside = if self.take("]") {
                    return Ok(Expression::Literal(Value::Array(Vec::new())));
                } else {
                    self.pipe()?
                };
                if self.take("]") { Ok(Expression::Collect(Box::new(inside))) } else { Err("a missing `]`".to_owned()) }
            }
            Some('"') => Ok(Expression::Literal(self.string()?.into())),
            Some(c) if c == '-' || c.is_ascii_digit() => {
                let number = self.word(|c| c == '-' || c == '.' || c.is_ascii_digit());
                let number = serde_json::from_str(&number).map_err(|_| format!("`{number}`"))?;
                Ok(Expression::Literal(number))
            }
            Some(c) if c.is_ascii_alphabetic() => self.function(),
            Some(c) => Err(format!("`{c}`, which is not understood")),
            None => Err("no end".to_owned()),
        }
    }

    fn function(&mut self) -> Result<Expression, String> {
        let name = self.word(|c| c == '_' || c.is_ascii_alphanumeric());
        match name.as_str() {
            "true" | "false" => return Ok(Expression::Literal((name == "true").into())),
            "null" => return Ok(Expression::Literal(Value::Null)),
            _ => {}
        }
        let mut arguments = Vec::new();
        if self.begins("(") {
            self.at += 1;
            arguments.push(self.pipe()?);
            if !self.take(")") {
                return Err("a missing `)`".to_owned());
            }
        }
        if !FUNCTIONS.contains(&(name.as_str(), arguments.len())) {
            return Err(format!("the function `{name}`, which is not understood"));
        }
        Ok(Expression::Call(name, arguments))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn kw_1_the_expressions_of_published_stages_are_understood() {
        let object = json!({
            "metadata": {"labels": {"a.b/c": "x"}, "ownerReferences": [{"kind": "Job"}]},
            "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"},
                {"type": "Other", "status": "False"}]}, "spec": {"n": 3}});
        for (text, expected) in [
            (".metadata.labels[\"a.b/c\"]", Some(vec![json!("x")])),
            (".metadata.annotations[\"none\"]", Some(vec![])),
            (".metadata.deletionTimestamp", Some(vec![])),
            (".metadata.ownerReferences.[].kind", Some(vec![json!("Job")])),
            (".status.conditions.[] | select( .type == \"Ready\" ) | .status", Some(vec![json!("True")])),
            (".status.containerStatuses.[].state.running.startedAt", None),
            (".status.conditions[0].type", Some(vec![json!("Ready")])),
            (".status.conditions | length", Some(vec![json!(2)])),
            (".status.none // .spec.n", Some(vec![json!(3)])),
            (".spec.n >= 3 and (.status.phase | startswith(\"Run\"))", Some(vec![json!(true)])),
            ("[.status.conditions[].type] | any(. == \"Other\")", Some(vec![json!(true)])),
            (".spec.n.x", None),
            (".spec.n.x?", Some(vec![])),
        ] {
            assert_eq!(Query::parse(text).unwrap().values(&object), expected, "{text}");
        }
        for bad in ["", ".a |", ".a[", "def f: .; f", "repeat(.)", ".a..b", "select(.a", "@base64", ".a + 1"] {
            assert!(Query::parse(bad).is_err(), "{bad}");
        }
        assert!(Query::parse(&"(".repeat(10_000)).is_err());
    }

    #[test]
    fn kw_7_expressions_are_bounded() {
        for chain in [".a", "?", "[0]", "|.", ",.", "//.", " or .", "==."] {
            let text = |count: usize| format!(".b{}", chain.repeat(count));
            assert!(Query::parse(&text(50)).is_ok(), "{chain}");
            assert!(Query::parse(&text(600)).is_err(), "{chain}");
            assert!(Query::parse(&text(100_000)).is_err(), "{chain}");
        }
        let doubled = |count: usize| vec!["[.,.]"; count].join("|");
        assert_eq!(Query::parse(&doubled(3)).unwrap().values(&json!(1)).map(|values| values.len()), Some(1));
        assert_eq!(Query::parse(&doubled(40)).unwrap().values(&json!(1)), None);
        // Also where failures are caught.
        let caught = vec!["([.,.]?)"; 20].join("|") + &"|.[]?".repeat(20);
        assert_eq!(Query::parse(&caught).unwrap().values(&json!("x".repeat(1000))), None);
    }
}
