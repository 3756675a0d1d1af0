//! JSONPath as in printer columns: `.status.conditions[?(@.type=="Ready")].status`.
//!
//! The language of `kubectl -o jsonpath` without templates: fields, indexes and slices, `*`, `..`, unions and filters.
//! Missing fields have no results.
//!
//! Written by hand: `serde_json_path` implements RFC 9535, which has other syntax (no relaxed fields, other filters and
//! escapes) and other errors, and Kubernetes refuses a definition with the error text of its own parser.

use machinery::json::Value;

/// Largest number of results; only the first is used.
const RESULTS_MAX: usize = 1000;

/// A parsed path.
#[derive(Clone, Debug, PartialEq)]
pub struct JsonPath {
    steps: Vec<Step>,
}

#[derive(Clone, Debug, PartialEq)]
enum Step {
    Field(String),
    Wildcard,
    Recursive,
    Slice {
        from: Option<i64>,
        to: Option<i64>,
        derived: bool,
        step: Option<i64>,
    },
    Union(Vec<JsonPath>),
    Filter {
        left: JsonPath,
        operator: String,
        right: JsonPath,
    },
    /// A constant in a filter.
    Constant(Value),
}

impl JsonPath {
    /// Parses a path. Errors have the text of Kubernetes.
    pub fn parse(text: &str) -> Result<JsonPath, String> {
        let mut parser = Parser { text, at: 0, steps: Vec::new(), depth: 0 };
        parser.run()?;
        Ok(JsonPath { steps: parser.steps })
    }

    /// Returns all values at the path.
    #[must_use]
    pub fn find<'a>(&'a self, value: &'a Value) -> Vec<&'a Value> {
        let mut found = vec![value];
        for step in &self.steps {
            if *step == Step::Recursive {
                let mut all = Vec::new();
                found.iter().for_each(|value| descend(value, &mut all));
                found = all;
                continue;
            }
            let mut next = Vec::new();
            for value in found {
                apply(step, value, &mut next);
                if next.len() > RESULTS_MAX {
                    break;
                }
            }
            found = next;
        }
        found
    }
}

fn descend<'a>(value: &'a Value, all: &mut Vec<&'a Value>) {
    if all.len() > RESULTS_MAX {
        return;
    }
    match value {
        Value::Object(map) => {
            all.push(value);
            map.values().for_each(|value| descend(value, all));
        }
        Value::Array(items) => {
            all.push(value);
            items.iter().for_each(|value| descend(value, all));
        }
        _ => {}
    }
}

fn apply<'a>(step: &'a Step, value: &'a Value, found: &mut Vec<&'a Value>) {
    match step {
        Step::Field(name) if name.is_empty() => found.push(value),
        Step::Field(name) => found.extend(value.as_object().and_then(|map| map.get(name))),
        Step::Wildcard => match value {
            Value::Object(map) => found.extend(map.values()),
            Value::Array(items) => found.extend(items),
            _ => {}
        },
        Step::Slice { from, to, derived, step } => {
            let Value::Array(items) = value else { return };
            let length = items.len() as i64;
            let mut start = from.unwrap_or(0);
            if start < 0 {
                start += length;
            }
            let mut end = to.unwrap_or(length);
            if end < 0 || (end == 0 && *derived) {
                end += length;
            }
            let stride = step.unwrap_or(1).max(1);
            let mut at = start.max(0);
            while at < end.min(length) {
                found.extend(usize::try_from(at).ok().and_then(|at| items.get(at)));
                at += stride;
            }
        }
        Step::Union(paths) => paths.iter().for_each(|path| found.extend(path.find(value))),
        Step::Filter { left, operator, right } => {
            let Value::Array(items) = value else { return };
            found.extend(items.iter().filter(|item| admits(left, operator, right, item)));
        }
        Step::Constant(constant) => found.push(constant),
        Step::Recursive => {}
    }
}

fn admits(left: &JsonPath, operator: &str, right: &JsonPath, item: &Value) -> bool {
    let lefts = left.find(item);
    if operator == "exists" {
        return !lefts.is_empty();
    }
    let rights = right.find(item);
    let ([left], [right]) = (lefts.as_slice(), rights.as_slice()) else { return false };
    let order = match (left, right) {
        (Value::Number(a), Value::Number(b)) => a.as_f64().zip(b.as_f64()).and_then(|(a, b)| a.partial_cmp(&b)),
        (Value::String(a), Value::String(b)) => Some(a.cmp(b)),
        (Value::Bool(a), Value::Bool(b)) => Some(a.cmp(b)),
        _ => None,
    };
    match (operator, order) {
        ("==", order) => order.is_some_and(std::cmp::Ordering::is_eq),
        ("!=", order) => !order.is_some_and(std::cmp::Ordering::is_eq),
        ("<", Some(order)) => order.is_lt(),
        (">", Some(order)) => order.is_gt(),
        ("<=", Some(order)) => order.is_le(),
        (">=", Some(order)) => order.is_ge(),
        _ => false,
    }
}

struct Parser<'a> {
    text: &'a str,
    at: usize,
    steps: Vec<Step>,
    depth: usize,
}

/// Largest nesting of filters.
const DEPTH_MAX: usize = 16;

impl Parser<'_> {
    fn rest(&self) -> &str {
        &self.text[self.at..]
    }

    fn next(&mut self) -> Option<char> {
        let c = self.rest().chars().next()?;
        self.at += c.len_utf8();
        Some(c)
    }

    fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }

    fn inner(&self, text: &str) -> Result<JsonPath, String> {
        if self.depth >= DEPTH_MAX {
            return Err("nested too deeply".to_owned());
        }
        let mut parser = Parser { text, at: 0, steps: Vec::new(), depth: self.depth + 1 };
        parser.run()?;
        Ok(JsonPath { steps: parser.steps })
    }

    fn run(&mut self) -> Result<(), String> {
        loop {
            if self.rest().starts_with("[?(") {
                self.filter()?;
                continue;
            }
            if self.rest().starts_with("..") {
                if self.steps.last() == Some(&Step::Recursive) {
                    return Err("invalid multiple recursive descent".to_owned());
                }
                self.at += 2;
                self.steps.push(Step::Recursive);
                if self.peek().is_some_and(|c| c == '_' || c.is_alphanumeric()) {
                    self.field();
                }
                continue;
            }
            match self.next() {
                None => return Ok(()),
                Some('\r' | '\n') => return Err("unclosed action".to_owned()),
                Some(' ' | '@' | '$') => {}
                Some('[') => self.array()?,
                Some(quote @ ('"' | '\'')) => self.quoted(quote)?,
                Some('.') => self.field(),
                Some(c) if c == '+' || c == '-' || c.is_numeric() => {
                    self.at -= c.len_utf8();
                    self.number()?;
                }
                Some(c) if c == '_' || c.is_alphanumeric() => {
                    self.at -= c.len_utf8();
                    let word = self.word();
                    let constant = match word.as_str() {
                        "true" => Value::Bool(true),
                        "false" => Value::Bool(false),
                        _ => return Err(format!("unrecognized identifier {word}")),
                    };
                    self.steps.push(Step::Constant(constant));
                }
                Some(c) => return Err(format!("unrecognized character in action: U+{:04X} '{c}'", u32::from(c))),
            }
        }
    }

    /// Reads up to the next unescaped character that ends a name.
    fn word(&mut self) -> String {
        let mut word = String::new();
        while let Some(c) = self.peek() {
            if c == '\\' {
                self.next();
                word.extend(self.next());
                continue;
            }
            if matches!(c, ' ' | '\t' | '\r' | '\n' | '.' | ',' | '[' | ']' | '$' | '@' | '{' | '}') {
                break;
            }
            word.push(c);
            self.next();
        }
        word
    }

    fn field(&mut self) {
        let word = self.word();
        self.steps.push(if word == "*" { Step::Wildcard } else { Step::Field(word) });
    }

    fn number(&mut self) -> Result<(), String> {
        let text = self.rest();
        let sign = usize::from(text.starts_with(['+', '-']));
        let digits = text[sign..].find(|c: char| c != '.' && !c.is_numeric()).unwrap_or(text.len() - sign);
        let number = &text[..sign + digits];
        let value = match (number.parse::<i64>(), number.parse::<f64>()) {
            (Ok(whole), _) => Value::from(whole),
            (_, Ok(float)) => Value::from(float),
            _ => return Err(format!("cannot parse number {number}")),
        };
        self.at += sign + digits;
        self.steps.push(Step::Constant(value));
        Ok(())
    }

    fn quoted(&mut self, quote: char) -> Result<(), String> {
        let mut text = String::new();
        loop {
            match self.next() {
                None | Some('\n') => return Err("unterminated quoted string".to_owned()),
                Some('\\') => text.extend(self.next()),
                Some(c) if c == quote => break,
                Some(c) => text.push(c),
            }
        }
        self.steps.push(Step::Constant(Value::from(text)));
        Ok(())
    }

    fn array(&mut self) -> Result<(), String> {
        let Some(end) = self.rest().find(']').filter(|end| !self.rest()[..*end].contains('\n')) else {
            return Err("unterminated array".to_owned());
        };
        let text = self.rest()[..end].to_owned();
        self.at += end + 1;
        let text = if text == "*" { ":" } else { text.as_str() };
        if text.contains(',') {
            let paths = text.split(',').map(|part| self.inner(&format!("[{}]", part.trim_matches(' '))));
            let paths = paths.collect::<Result<Vec<_>, _>>()?;
            self.steps.push(Step::Union(paths));
            return Ok(());
        }
        if let Some(key) = text.strip_prefix('\'').and_then(|key| key.strip_suffix('\'')) {
            let path = self.inner(&format!(".{key}"))?;
            self.steps.extend(path.steps);
            return Ok(());
        }
        let bad = || format!("invalid array index {text}");
        let number = |part: &str| match part {
            "" => Ok(None),
            part => part.parse::<i64>().map(Some).map_err(|_| bad()),
        };
        let parts: Vec<&str> = text.split(':').collect();
        let slice = match parts.as_slice() {
            [""] => return Err(bad()),
            [one] => {
                let from = number(one)?;
                Step::Slice { from, to: from.map(|from| from + 1), derived: true, step: None }
            }
            [from, to] => Step::Slice { from: number(from)?, to: number(to)?, derived: false, step: None },
            [from, to, step] => {
                Step::Slice { from: number(from)?, to: number(to)?, derived: false, step: number(step)? }
            }
            _ => return Err(bad()),
        };
        self.steps.push(slice);
        Ok(())
    }

    fn filter(&mut self) -> Result<(), String> {
        self.at += "[?(".len();
        let start = self.at;
        let mut quote = None;
        loop {
            match self.next() {
                None | Some('\n') => return Err("unterminated filter".to_owned()),
                Some('\\') => {
                    self.next();
                }
                Some(c @ ('"' | '\'')) => match quote {
                    None => quote = Some(c),
                    Some(open) if open == c => quote = None,
                    Some(_) => {}
                },
                Some(')') if quote.is_none() => break,
                Some(_) => {}
            }
        }
        let text = self.text[start..self.at - 1].to_owned();
        if self.next() != Some(']') {
            return Err("unclosed array expect ]".to_owned());
        }
        let is_operator = |c: char| matches!(c, '!' | '<' | '>' | '=');
        let filter = match text.find(is_operator).filter(|at| *at > 0) {
            None => Step::Filter { left: self.inner(&text)?, operator: "exists".to_owned(), right: self.inner("")? },
            Some(at) => {
                let after = text[at..].find(|c| !is_operator(c)).map_or(text.len(), |length| at + length);
                if after == text.len() {
                    return Err("unterminated filter".to_owned());
                }
                let (left, right) = (self.inner(&text[..at])?, self.inner(&text[after..])?);
                Step::Filter { left, operator: text[at..after].to_owned(), right }
            }
        };
        self.steps.push(filter);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use machinery::json::json;

    use super::*;

    #[test]
    fn paths_find_what_they_say() {
        let object = json!({"spec": {"a": "1", "l": [1, 2, 3], "odd.name": true},
            "status": {"conditions": [{"type": "Ready", "status": "True"}, {"type": "Other", "status": "False"}]}});
        for (path, found) in [
            (".spec.a", json!(["1"])),
            (".spec.l[0]", json!([1])),
            (".spec.l[-1]", json!([3])),
            (".spec.l[*]", json!([1, 2, 3])),
            (".spec.l[0:2]", json!([1, 2])),
            (".spec['a']", json!(["1"])),
            (r".spec.odd\.name", json!([true])),
            (r#".status.conditions[?(@.type=="Ready")].status"#, json!(["True"])),
            (".status.conditions[?(@.type=='Other')].status", json!(["False"])),
            (".spec..a", json!(["1"])),
            (".nope.x", json!([])),
        ] {
            let parsed = JsonPath::parse(path).unwrap();
            assert_eq!(json!(parsed.find(&object)), found, "{path}");
        }
    }

    #[test]
    fn what_is_no_path_is_refused() {
        for path in [".spec[a", ".spec[?(@.a", ".a....b", ".spec[1:2:3:4]", ".a[?(@.x==)]"] {
            assert!(JsonPath::parse(path).is_err(), "{path}");
        }
        let deep = "[?(".repeat(200);
        assert!(JsonPath::parse(&deep).is_err());
    }
}
