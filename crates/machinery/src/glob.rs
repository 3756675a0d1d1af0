//! Patterns in which `*` stands for any characters.

/// Returns whether a text fits a pattern.
#[must_use]
pub fn fits(pattern: &str, text: &str) -> bool {
    let mut parts = pattern.split('*');
    let Some(mut rest) = text.strip_prefix(parts.next().unwrap_or_default()) else { return false };
    let mut last = None;
    for part in parts {
        // Each part is found as early as possible, and the last must be at the end.
        if let Some(part) = last.replace(part) {
            let Some(at) = rest.find(part) else { return false };
            rest = &rest[at + str::len(part)..];
        }
    }
    last.map_or(rest.is_empty(), |last| rest.ends_with(last))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_stands_for_any_characters() {
        let fitting = [
            ("a", "a"),
            ("a*", "a"),
            ("a*", "abc"),
            ("*c", "abc"),
            ("a*c", "ac"),
            ("*b*", "abc"),
            ("*", ""),
            ("a**c", "abc"),
        ];
        for (pattern, text) in fitting {
            assert!(fits(pattern, text), "{pattern} {text}");
        }
        for (pattern, text) in [("a", "ab"), ("a*c", "ab"), ("a*a", "a"), ("", "a"), ("*b*c*", "acb"), ("*b*c", "abx")]
        {
            assert!(!fits(pattern, text), "{pattern} {text}");
        }
    }
}
