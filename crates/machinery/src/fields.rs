//! Field selectors: parsing, and matching with an object's fields (spec 01 §4).
//!
//! Each resource decides which fields it can be selected by: [`Selector::try_map`] lets it refuse or rename them.

use std::fmt;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operator {
    Equals,
    NotEquals,
}

/// One condition on one field.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Requirement {
    pub field: String,
    pub operator: Operator,
    pub value: String,
}

impl Requirement {
    /// Returns whether a value meets the requirement. An absent field counts as the empty string.
    #[must_use]
    pub fn accepts(&self, value: &str) -> bool {
        (self.value == value) == (self.operator == Operator::Equals)
    }
}

/// A list of requirements that must all be met. The default has none and so selects everything.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Selector {
    requirements: Vec<Requirement>,
}

impl Selector {
    #[must_use]
    pub fn everything() -> Self {
        Selector::default()
    }

    #[must_use]
    pub fn new(requirements: Vec<Requirement>) -> Self {
        Selector { requirements }
    }

    /// Creates `field=value`.
    pub fn equal(field: impl Into<String>, value: impl Into<String>) -> Self {
        Self::new(vec![Requirement { field: field.into(), operator: Operator::Equals, value: value.into() }])
    }

    /// Parses the text form. The error is the message of the 400 response.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut terms = split_terms(text);
        terms.sort_unstable();
        let mut requirements = Vec::new();
        for term in terms.into_iter().filter(|term| !term.is_empty()) {
            let (field, operator, value) =
                split_term(term).ok_or_else(|| format!("invalid selector: '{text}'; can't understand '{term}'"))?;
            let value = unescape(value)?;
            // The reference ignores a bare operator.
            if !(field.is_empty() && value.is_empty()) {
                requirements.push(Requirement { field: field.to_owned(), operator, value });
            }
        }
        Ok(Selector { requirements })
    }

    #[must_use]
    pub fn is_everything(&self) -> bool {
        self.requirements.is_empty()
    }

    #[must_use]
    pub fn requirements(&self) -> &[Requirement] {
        &self.requirements
    }

    /// Returns the value that a field must have, by the first requirement that fixes it.
    #[must_use]
    pub fn equality(&self, field: &str) -> Option<&str> {
        self.equalities().find(|(name, _)| *name == field).map(|(_, value)| value)
    }

    /// Iterates over the fields that must have one fixed value.
    pub fn equalities(&self) -> impl Iterator<Item = (&str, &str)> {
        let equal = self.requirements.iter().filter(|requirement| requirement.operator == Operator::Equals);
        equal.map(|requirement| (requirement.field.as_str(), requirement.value.as_str()))
    }

    /// Returns whether an object matches; `field` returns its fields by name, and `None` counts as the empty string.
    pub fn matches<'a>(&self, field: impl Fn(&str) -> Option<&'a str>) -> bool {
        self.requirements.iter().all(|requirement| requirement.accepts(field(&requirement.field).unwrap_or_default()))
    }

    /// Lets a resource refuse the fields that it cannot be selected by, or replace old names.
    pub fn try_map<E>(self, mut rename: impl FnMut(&str) -> Result<Option<String>, E>) -> Result<Self, E> {
        let mut requirements = self.requirements;
        for requirement in &mut requirements {
            if let Some(name) = rename(&requirement.field)? {
                requirement.field = name;
            }
        }
        Ok(Selector { requirements })
    }
}

impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, Requirement { field, operator, value }) in self.requirements.iter().enumerate() {
            let comma = if i > 0 { "," } else { "" };
            let operator = if *operator == Operator::Equals { "=" } else { "!=" };
            write!(f, "{comma}{field}{operator}{}", escape(value))?;
        }
        Ok(())
    }
}

/// Splits at commas without a preceding backslash; the backslashes stay.
fn split_terms(text: &str) -> Vec<&str> {
    let mut terms = Vec::new();
    let (mut start, mut escaped) = (0, false);
    for (i, b) in text.bytes().enumerate() {
        match b {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b',' => {
                terms.push(&text[start..i]);
                start = i + 1;
            }
            _ => {}
        }
    }
    terms.push(&text[start..]);
    terms
}

/// Splits at the first operator: a field name cannot contain one.
fn split_term(term: &str) -> Option<(&str, Operator, &str)> {
    let bytes = term.as_bytes();
    for (i, b) in bytes.iter().enumerate() {
        let (operator, len) = match (b, bytes.get(i + 1)) {
            (b'!', Some(b'=')) => (Operator::NotEquals, 2),
            (b'=', Some(b'=')) => (Operator::Equals, 2),
            (b'=', _) => (Operator::Equals, 1),
            _ => continue,
        };
        return Some((&term[..i], operator, &term[i + len..]));
    }
    None
}

fn unescape(value: &str) -> Result<String, String> {
    let mut out = String::with_capacity(value.len());
    let mut chars = value.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => match chars.next() {
                Some(c @ ('\\' | ',' | '=')) => out.push(c),
                Some(c) => return Err(format!("invalid field selector: invalid escape sequence: \\{c}")),
                None => return Err("invalid field selector: invalid escape sequence: \\".to_owned()),
            },
            // The reference prints the number of the character.
            ',' | '=' => {
                return Err(format!("invalid field selector: unescaped character in value: {}", u32::from(c)));
            }
            c => out.push(c),
        }
    }
    Ok(out)
}

fn escape(value: &str) -> String {
    let mut out = String::with_capacity(value.len());
    for c in value.chars() {
        if matches!(c, '\\' | ',' | '=') {
            out.push('\\');
        }
        out.push(c);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn parse(text: &str) -> Selector {
        Selector::parse(text).unwrap_or_else(|e| panic!("{text}: {e}"))
    }

    #[track_caller]
    fn refused(text: &str, want: &str) {
        assert_eq!(Selector::parse(text), Err(want.to_owned()), "{text}");
    }

    #[test]
    fn operators_and_missing_fields() {
        let fields = |name: &str| (name == "a").then_some("1");
        for (text, want) in [
            ("a=1", true),
            ("a==1", true),
            ("a!=1", false),
            ("a=2", false),
            ("b=", true),
            ("b!=", false),
            ("b!=x", true),
            ("a=1,b=x", false),
            ("a=1,a=2", false),
            ("", true),
            (",,", true),
            ("!=,=", true),
            ("a= 1", false),
            (" a=1", false),
        ] {
            assert_eq!(parse(text).matches(fields), want, "{text}");
        }
    }

    #[test]
    fn escapes() {
        let selector = parse(r"a=x\,y\=z\\,b=1");
        assert_eq!(selector.equality("a"), Some(r"x,y=z\"));
        assert_eq!(selector.equality("b"), Some("1"));
        assert_eq!(parse(&selector.to_string()), selector);
        refused(r"metadata.name=a\x", r"invalid field selector: invalid escape sequence: \x");
        refused("metadata.name=a\\", "invalid field selector: invalid escape sequence: \\");
    }

    #[test]
    fn refused_grammar() {
        refused("metadata.name", "invalid selector: 'metadata.name'; can't understand 'metadata.name'");
        refused("metadata.name>a", "invalid selector: 'metadata.name>a'; can't understand 'metadata.name>a'");
        refused("metadata.name=a=b", "invalid field selector: unescaped character in value: 61");
        refused(
            "metadata.name in (a)",
            "invalid selector: 'metadata.name in (a)'; can't understand 'metadata.name in (a)'",
        );
        refused("!metadata.name", "invalid selector: '!metadata.name'; can't understand '!metadata.name'");
    }

    #[test]
    fn a_resource_may_refuse_or_rename_fields() {
        let rename = |field: &str| match field {
            "spec.host" => Ok(Some("spec.nodeName".to_owned())),
            "metadata.name" => Ok(None),
            other => Err(format!("field label not supported: {other}")),
        };
        let selector = parse("spec.host=n,metadata.name!=x").try_map(rename);
        assert_eq!(selector.map(|s| s.to_string()), Ok("metadata.name!=x,spec.nodeName=n".to_owned()));
        assert_eq!(parse("spec.foo=1").try_map(rename), Err("field label not supported: spec.foo".to_owned()));
    }
}
