//! The order of groups in discovery, and of versions in a group.

/// The priorities of an APIService; the higher comes first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Priority {
    pub group: i64,
    pub version: i64,
}

/// Those of group versions that come from definitions.
pub const CUSTOM: Priority = Priority { group: 1000, version: 100 };

/// Those of measured nodes and pods, as metrics-server is installed.
pub const METRICS: Priority = Priority { group: 100, version: 100 };

/// Versions with their priority.
type Versions = &'static [(&'static str, i64)];

/// Group, priority of the group, versions with theirs. The numbers are the reference's: clients see them.
const BUILTIN: &[(&str, i64, Versions)] = &[
    ("", 18_000, &[("v1", 1)]),
    ("apps", 17_800, &[("v1", 15)]),
    ("events.k8s.io", 17_750, &[("v1", 15)]),
    ("authentication.k8s.io", 17_700, &[("v1", 15)]),
    ("authorization.k8s.io", 17_600, &[("v1", 15)]),
    ("autoscaling", 17_500, &[("v2", 30), ("v1", 15)]),
    ("batch", 17_400, &[("v1", 15)]),
    ("certificates.k8s.io", 17_300, &[("v1", 15), ("v1beta1", 9), ("v1alpha1", 1)]),
    ("networking.k8s.io", 17_200, &[("v1", 15), ("v1beta1", 9)]),
    ("policy", 17_100, &[("v1", 15)]),
    ("rbac.authorization.k8s.io", 17_000, &[("v1", 15)]),
    ("storage.k8s.io", 16_800, &[("v1", 15), ("v1beta1", 9), ("v1alpha1", 1)]),
    ("admissionregistration.k8s.io", 16_700, &[("v1", 15), ("v1beta1", 12), ("v1alpha1", 9)]),
    ("apiextensions.k8s.io", 16_700, &[("v1", 15)]),
    ("scheduling.k8s.io", 16_600, &[("v1", 15), ("v1beta1", 9), ("v1alpha3", 3)]),
    ("coordination.k8s.io", 16_500, &[("v1", 15), ("v1beta1", 13), ("v1alpha2", 12)]),
    ("node.k8s.io", 16_300, &[("v1", 15)]),
    ("discovery.k8s.io", 16_200, &[("v1", 15)]),
    ("resource.k8s.io", 16_200, &[("v1", 21), ("v1beta2", 15), ("v1beta1", 9), ("v1alpha3", 1)]),
    ("flowcontrol.apiserver.k8s.io", 16_100, &[("v1", 21)]),
    ("internal.apiserver.k8s.io", 16_000, &[("v1alpha1", 9)]),
    ("storagemigration.k8s.io", 15_800, &[("v1", 15), ("v1beta1", 9)]),
];

/// The priorities of a built-in group version; none for the group of APIServices itself, which always comes first and has no
/// object.
#[must_use]
pub fn builtin(group: &str, version: &str) -> Option<Priority> {
    let (_, priority, versions) = BUILTIN.iter().find(|(name, ..)| *name == group)?;
    let (_, version) = versions.iter().find(|(name, _)| *name == version)?;
    Some(Priority { group: *priority, version: *version })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agg_1_every_built_in_group_version_has_a_priority_and_groups_have_their_order() {
        let mut last = i64::MAX;
        for group in crate::kinds::builtin().groups().filter(|group| group.name != super::super::GROUP) {
            for version in &group.versions {
                let priority = builtin(&group.name, &version.name);
                let priority = priority.unwrap_or_else(|| panic!("{}/{} has no priority", group.name, version.name));
                assert!(priority.group <= last, "{} is not in its place", group.name);
                last = priority.group;
            }
        }
        assert_eq!(builtin("example.com", "v1"), None);
    }
}
