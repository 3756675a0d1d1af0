//! The `fieldPath` of a rule: `.spec.replicas`, `.spec['foo.bar']`.

use machinery::json::Value;

use crate::shape::{additional_of, properties_of};

/// Returns the path in the form that errors use, or an error if the schema has no such field.
pub(crate) fn normalize(path: &str, schema: &Value) -> Result<String, &'static str> {
    const END: &str = "unexpected end of JSON path";
    let mut shown = String::new();
    let mut at = schema;
    let mut rest = path;
    while !rest.is_empty() {
        let name = if let Some(after) = rest.strip_prefix('[') {
            let quoted = after.strip_prefix('\'').ok_or("expected single quoted string")?;
            let (name, after) = quoted_name(quoted)?;
            rest = after.strip_prefix(']').ok_or(if after.is_empty() { END } else { "expected ]" })?;
            name
        } else if let Some(after) = rest.strip_prefix('.') {
            let end = after.find(['.', '[', ']']).unwrap_or(after.len());
            if end == 0 {
                return Err(if after.is_empty() { END } else { "does not refer to a valid field" });
            }
            rest = &after[end..];
            after[..end].to_owned()
        } else {
            return Err("expected [ or .");
        };
        if let Some(properties) = properties_of(at) {
            at = properties.get(&name).ok_or("does not refer to a valid field")?;
            if !shown.is_empty() {
                shown.push('.');
            }
            shown.push_str(&name);
        } else if let Some(additional) = additional_of(at) {
            at = additional;
            shown.push_str(&format!("[{name}]"));
        } else {
            return Err("does not refer to a valid field");
        }
    }
    Ok(shown)
}

/// Returns the unescaped text up to the closing quote, and the rest.
fn quoted_name(text: &str) -> Result<(String, &str), &'static str> {
    let mut name = String::new();
    let mut characters = text.char_indices();
    while let Some((at, c)) = characters.next() {
        match c {
            '\'' => return Ok((name, &text[at + 1..])),
            '\\' => name.push(match characters.next().map(|(_, c)| c) {
                Some('a') => '\u{7}',
                Some('b') => '\u{8}',
                Some('f') => '\u{c}',
                Some('n') => '\n',
                Some('r') => '\r',
                Some('t') => '\t',
                Some('v') => '\u{b}',
                Some(c @ ('\'' | '\\')) => c,
                _ => return Err("invalid string literal"),
            }),
            c => name.push(c),
        }
    }
    Err("unexpected end of JSON path")
}

#[cfg(test)]
mod tests {
    use super::*;
    use machinery::json::json;

    #[test]
    fn paths_lead_through_fields_and_maps() {
        let schema = json!({"type": "object", "properties": {
            "spec": {"type": "object", "properties": {"a.b": {"type": "string"}, "n": {"type": "integer"}}},
            "labels": {"type": "object", "additionalProperties": {"type": "string"}},
        }});
        for (path, want) in [
            (".spec.n", Ok("spec.n")),
            (".spec['a.b']", Ok("spec.a.b")),
            (".labels['x']", Ok("labels[x]")),
            (".labels.x", Ok("labels[x]")),
            ("spec", Err("expected [ or .")),
            (".nothing", Err("does not refer to a valid field")),
            (".spec.n.x", Err("does not refer to a valid field")),
            (".spec[", Err("expected single quoted string")),
            (".spec['n'", Err("unexpected end of JSON path")),
        ] {
            assert_eq!(normalize(path, &schema).as_deref().map_err(|why| *why), want, "{path}");
        }
    }
}
