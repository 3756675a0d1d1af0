//! The order of API versions: `v2, v1, v1beta1, v1alpha1, other words`.

use std::cmp::Ordering;

/// Compares two versions; the lesser is listed first. Stable precedes beta and alpha, higher numbers are first; other names are last, in
/// alphabetical order.
#[must_use]
pub fn compare_versions(a: &str, b: &str) -> Ordering {
    match (rank(a), rank(b)) {
        (Some(a), Some(b)) => b.cmp(&a),
        (Some(_), None) => Ordering::Less,
        (None, Some(_)) => Ordering::Greater,
        (None, None) => a.cmp(b),
    }
}

/// Returns stability (2 stable, 1 beta, 0 alpha), major and minor number.
fn rank(version: &str) -> Option<(u8, u64, u64)> {
    let rest = version.strip_prefix('v')?;
    let (major, rest) = number(rest)?;
    if rest.is_empty() {
        return Some((2, major, 0));
    }
    let (stability, rest) =
        if let Some(rest) = rest.strip_prefix("beta") { (1, rest) } else { (0, rest.strip_prefix("alpha")?) };
    let (minor, rest) = number(rest)?;
    rest.is_empty().then_some((stability, major, minor))
}

fn number(text: &str) -> Option<(u64, &str)> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    if text.starts_with('0') {
        return None;
    }
    Some((text[..digits].parse().ok()?, &text[digits..]))
}

#[cfg(test)]
mod tests {
    use super::compare_versions;

    #[test]
    fn stable_first_then_beta_then_alpha_then_words() {
        let mut versions =
            ["foo10", "v1alpha1", "v10", "v3beta1", "v11beta2", "v2", "v1", "v12alpha1", "foo1", "v11alpha2"];
        versions.sort_by(|a, b| compare_versions(a, b));
        assert_eq!(
            versions,
            ["v10", "v2", "v1", "v11beta2", "v3beta1", "v12alpha1", "v11alpha2", "v1alpha1", "foo1", "foo10"]
        );
    }
}
