//! Kinds that a Kubernetes server can read, served or not. An object of another version of its kind is refused for its version; an
//! object of an unknown version is not of a registered kind.

use machinery::GroupVersionKind;

use crate::facts::Types;

const UNSERVED: &str = include_str!("registered.tsv");

/// Reports whether the kind is known in this version.
pub(crate) fn knows(gvk: &GroupVersionKind) -> bool {
    Types::get().kind(gvk).is_some() || is_unserved(gvk)
}

/// Reports whether the kind is known in this version, but not served.
pub(crate) fn is_unserved(gvk: &GroupVersionKind) -> bool {
    UNSERVED.lines().any(|line| {
        let mut columns = line.split('\t');
        columns.next() == Some(gvk.group.as_str())
            && columns.next() == Some(gvk.version.as_str())
            && columns.next().is_some_and(|kinds| kinds.split(' ').any(|kind| kind == gvk.kind))
    })
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
