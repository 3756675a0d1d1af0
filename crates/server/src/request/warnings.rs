//! `Warning` headers: `299 - "text"`, without duplicates, bounded in size.

use std::collections::HashSet;

use http::{HeaderMap, HeaderValue, header};

/// Characters of all texts together. Above this each text is cut to [`CUT`], and those that still do not fit are dropped.
const TOTAL_MAX: usize = 4096;
const CUT: usize = 256;

/// Adds a header for each text.
pub fn add(headers: &mut HeaderMap, texts: &[String]) {
    let mut seen = HashSet::with_capacity(texts.len());
    let unique: Vec<&str> =
        texts.iter().map(String::as_str).filter(|text| is_sendable(text) && seen.insert(*text)).collect();
    let total: usize = unique.iter().map(|text| text.chars().count()).sum();
    let mut written = 0;
    for text in unique {
        let cut: String = if total > TOTAL_MAX { text.chars().take(CUT).collect() } else { text.to_owned() };
        written += cut.chars().count();
        if written > TOTAL_MAX {
            return;
        }
        if let Ok(value) = HeaderValue::from_bytes(format!("299 - {}", quoted(&cut)).as_bytes()) {
            headers.append(header::WARNING, value);
        }
    }
}

/// Texts with control characters are not sent, as in the reference.
fn is_sendable(text: &str) -> bool {
    !text.is_empty() && !text.chars().any(char::is_control)
}

/// An HTTP quoted string.
fn quoted(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for character in text.chars() {
        match character {
            '"' | '\\' => quoted.extend(['\\', character]),
            other => quoted.push(other),
        }
    }
    quoted.push('"');
    quoted
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(texts: &[&str]) -> Vec<String> {
        let texts: Vec<String> = texts.iter().map(|text| (*text).to_owned()).collect();
        let mut headers = HeaderMap::new();
        add(&mut headers, &texts);
        headers.get_all(header::WARNING).iter().map(|v| String::from_utf8(v.as_bytes().to_vec()).unwrap()).collect()
    }

    #[test]
    fn texts_are_quoted_and_unique() {
        assert_eq!(
            shown(&["unknown field \"spec.x\"", "a\\b", "c\nd", "unknown field \"spec.x\"", ""]),
            [r#"299 - "unknown field \"spec.x\"""#, r#"299 - "a\\b""#]
        );
    }

    #[test]
    fn too_much_is_cut() {
        let long: Vec<String> = (0..30).map(|n| format!("{n:02}{}", "ü".repeat(300))).collect();
        let texts: Vec<&str> = long.iter().map(String::as_str).collect();
        let shown = shown(&texts);
        assert_eq!(shown.len(), 16, "sixteen times 256 are 4096");
        assert!(shown.iter().all(|text| text.chars().count() == 256 + "299 - \"\"".len()));
    }
}
