//! Escaping of field names in expressions: `a-b` is `a__dash__b`, `namespace` is `__namespace__`.

use crate::parser::RESERVED;

/// Keywords of the grammar.
const WORDS: [&str; 4] = ["true", "false", "null", "in"];

/// Reports whether CEL reserves this word.
#[must_use]
pub(crate) fn is_reserved(name: &str) -> bool {
    WORDS.contains(&name) || RESERVED.contains(&name)
}

/// Escapes a field name; `None` if expressions cannot name the field.
#[must_use]
pub(crate) fn escape(name: &str) -> Option<String> {
    if name.is_empty() || name.starts_with(|c: char| c.is_ascii_digit()) {
        return None;
    }
    if is_reserved(name) {
        return Some(format!("__{name}__"));
    }
    let mut escaped = String::with_capacity(name.len());
    let mut rest = name;
    while let Some(c) = rest.chars().next() {
        if let Some(after) = rest.strip_prefix("__") {
            escaped.push_str("__underscores__");
            rest = after;
            continue;
        }
        match c {
            '.' => escaped.push_str("__dot__"),
            '-' => escaped.push_str("__dash__"),
            '/' => escaped.push_str("__slash__"),
            c if c.is_ascii_alphanumeric() || c == '_' => escaped.push(c),
            _ => return None,
        }
        rest = &rest[c.len_utf8()..];
    }
    Some(escaped)
}

/// Reverts [`escape`]; `None` if no name has this escaped form.
#[must_use]
pub(crate) fn unescape(escaped: &str) -> Option<std::borrow::Cow<'_, str>> {
    if !escaped.contains("__") {
        return Some(escaped.into());
    }
    let mut name = String::with_capacity(escaped.len());
    let mut rest = escaped;
    while !rest.is_empty() {
        let word = rest.strip_prefix("__").and_then(|after| {
            let end = after.find('_')?;
            (end > 0 && after[end..].starts_with("__")).then(|| &after[..end])
        });
        let Some(word) = word else {
            let c = rest.chars().next()?;
            name.push(c);
            rest = &rest[c.len_utf8()..];
            continue;
        };
        match word {
            "underscores" => name.push_str("__"),
            "dot" => name.push('.'),
            "dash" => name.push('-'),
            "slash" => name.push('/'),
            word if is_reserved(word) && escaped.len() == word.len() + 4 => name.push_str(word),
            _ => return None,
        }
        rest = &rest[word.len() + 4..];
    }
    Some(name.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_escaped_and_back() {
        for (name, want) in [
            ("a", "a"),
            ("a-b", "a__dash__b"),
            ("a.b/c", "a__dot__b__slash__c"),
            ("a__b", "a__underscores__b"),
            ("a_b", "a_b"),
            ("namespace", "__namespace__"),
            ("namespaces", "namespaces"),
        ] {
            assert_eq!(escape(name).as_deref(), Some(want));
            assert_eq!(unescape(want).as_deref(), Some(name));
        }
        for name in ["", "1a", "a b", "ü"] {
            assert_eq!(escape(name), None);
        }
        for wrong in ["a__what__b", "x__namespace__"] {
            assert_eq!(unescape(wrong), None);
        }
    }
}
