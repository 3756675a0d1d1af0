//! Patterns of the shell: `*`, `?`, `[a-z]`, and `\` before a character that means itself.

/// Longest pattern and text that are compared; longer ones do not match.
pub(super) const LENGTH_MAX: usize = 4096;
/// Longest pattern; longer ones do not match.
const PATTERN_MAX: usize = 256;
/// Comparisons of one pattern with one text; after them it does not match.
const WORK_MAX: usize = 100_000;
/// Comparisons while a beginning or an end is removed.
pub(super) const TRIM_WORK_MAX: usize = 1_000_000;

/// True if the whole text matches.
pub(super) fn matches(pattern: &str, text: &str) -> bool {
    let mut work = WORK_MAX;
    matches_within(pattern, text, &mut work)
}

/// As [`matches`], with at most this much work, which is used up.
pub(super) fn matches_within(pattern: &str, text: &str, work: &mut usize) -> bool {
    if pattern.len() > PATTERN_MAX || *work == 0 || text.len() > LENGTH_MAX {
        return false;
    }
    let (pattern, text): (Vec<char>, Vec<char>) = (pattern.chars().collect(), text.chars().collect());
    let (mut p, mut t) = (0, 0);
    // The last `*`, and how much of the text it stands for so far.
    let mut star: Option<(usize, usize)> = None;
    *work = work.saturating_sub(text.len() / 4);
    while t < text.len() {
        *work = work.saturating_sub(if pattern.get(p) == Some(&'[') { pattern.len() } else { 1 });
        if *work == 0 {
            return false;
        }
        if pattern.get(p) == Some(&'*') {
            star = Some((p, t));
            p += 1;
            continue;
        }
        if let Some(next) = one(&pattern, p, text[t]) {
            p = next;
            t += 1;
            continue;
        }
        let Some((at, taken)) = star else { return false };
        star = Some((at, taken + 1));
        p = at + 1;
        t = taken + 1;
    }
    pattern[p..].iter().all(|c| *c == '*')
}

/// The position after the element at `p`, if it matches this character.
fn one(pattern: &[char], p: usize, c: char) -> Option<usize> {
    match pattern.get(p)? {
        '?' => Some(p + 1),
        '\\' => (pattern.get(p + 1) == Some(&c)).then_some(p + 2),
        '[' => {
            let close = pattern[p + 1..].iter().skip(1).position(|c| *c == ']').map(|at| p + 2 + at);
            let Some(close) = close else { return (c == '[').then_some(p + 1) };
            let set = &pattern[p + 1..close];
            let (negated, set) = match set.split_first() {
                Some(('!' | '^', rest)) => (true, rest),
                _ => (false, set),
            };
            let mut found = false;
            let mut at = 0;
            while at < set.len() {
                if set.get(at + 1) == Some(&'-') && at + 2 < set.len() {
                    found |= (set[at]..=set[at + 2]).contains(&c);
                    at += 3;
                } else {
                    found |= set[at] == c;
                    at += 1;
                }
            }
            (found != negated).then_some(close + 1)
        }
        other => (*other == c).then_some(p + 1),
    }
}

/// A text as a pattern that matches only itself.
pub(super) fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        if matches!(c, '*' | '?' | '[' | ']' | '\\') {
            escaped.push('\\');
        }
        escaped.push(c);
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_as_in_a_shell() {
        for (pattern, text, expected) in [
            ("*.log", "a.log", true),
            ("*.log", "a.txt", false),
            ("a?c", "abc", true),
            ("[a-c]x", "bx", true),
            ("[!a-c]x", "bx", false),
            ("\\*", "*", true),
            ("\\*", "x", false),
            ("a*b*c", "a-b-b-c", true),
            ("", "", true),
            ("[", "[", true),
        ] {
            assert_eq!(matches(pattern, text), expected, "{pattern} {text}");
        }
        assert!(matches(&escape("a*[b]"), "a*[b]"));
    }
}
