//! Kinds that a Kubernetes server can read, served or not. An object of another version of its kind is refused for its version; an
//! object of an unknown version is not of a registered kind.

use std::sync::LazyLock;

use machinery::GroupVersionKind;

use crate::facts::Types;

const UNSERVED: &str = include_str!("registered.tsv");

/// Reports whether the kind is known in this version.
pub(crate) fn knows(gvk: &GroupVersionKind) -> bool {
    Types::get().kind(gvk).is_some() || is_unserved(gvk)
}

/// Reports whether the kind is known in this version, but not served.
pub(crate) fn is_unserved(gvk: &GroupVersionKind) -> bool {
    /// Group, version and kind, sorted: every patch asks.
    static TABLE: LazyLock<Vec<(&str, &str, &str)>> = LazyLock::new(|| {
        let mut all: Vec<_> = UNSERVED.lines().flat_map(kinds_of_line).collect();
        all.sort_unstable();
        all
    });
    TABLE.binary_search(&(&gvk.group, &gvk.version, &gvk.kind)).is_ok()
}

/// The kinds of a line: group, version, and names with blanks between them.
fn kinds_of_line(line: &'static str) -> impl Iterator<Item = (&'static str, &'static str, &'static str)> {
    let mut columns = line.split('\t');
    let mut next = || columns.next().unwrap_or_default();
    let (group, version, kinds) = (next(), next(), next());
    kinds.split(' ').map(move |kind| (group, version, kind))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_versions_are_known_and_invented_ones_are_not() {
        assert!(knows(&GroupVersionKind::new("apps", "v1", "Deployment")));
        assert!(is_unserved(&GroupVersionKind::new("apps", "v1beta1", "Deployment")));
        assert!(!knows(&GroupVersionKind::new("apps", "v3", "Deployment")));
        assert!(!knows(&GroupVersionKind::new("apps", "v1", "ConfigMap")));
    }
}
