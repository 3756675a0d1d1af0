//! Pods that a stricter level of their namespace would refuse, as warnings.

use std::collections::{BTreeMap, HashSet};
use std::time::{Duration, Instant};

use machinery::json::Value;

use super::checks::violations;
use super::policy::Standard;
use crate::collections::PODS;
use crate::meta;
use crate::read::view;
use crate::request::Warnings;
use crate::storage::Storage;

/// Most pods that are checked.
const PODS_MAX: usize = 3000;
/// Longest time that is spent on them.
const TIME_MAX: Duration = Duration::from_secs(1);

/// Warns of the pods of a namespace that violate a standard: those of one controller once, before the others.
pub(super) fn warn(
    storage: &Storage,
    namespace: &str,
    standard: Standard,
    warnings: &Warnings,
    is_exempt: impl Fn(&str) -> bool,
) {
    let began = Instant::now();
    let cache = storage.cache();
    let snapshot = cache.snapshot(&cache.collection(PODS));
    let parsed = snapshot.scan(PODS, Some(namespace), None).filter_map(|item| view::parse(item).ok());
    let pods =
        prioritized(parsed.filter(|pod| !is_exempt(pod["spec"]["runtimeClassName"].as_str().unwrap_or_default())));
    let mut by_reasons: BTreeMap<String, (String, usize)> = BTreeMap::new();
    let mut checked = 0;
    for pod in pods.iter().take(PODS_MAX) {
        checked += 1;
        let found = violations(&standard, pod);
        if !found.is_empty() {
            let reasons: Vec<&str> = found.iter().map(|violation| violation.reason).collect();
            let name = meta::name(pod);
            let first = by_reasons.entry(reasons.join(", ")).or_insert_with(|| (name.to_owned(), 0));
            if name < first.0.as_str() {
                name.clone_into(&mut first.0);
            }
            first.1 += 1;
        }
        if began.elapsed() > TIME_MAX {
            break;
        }
    }
    if checked < pods.len() {
        let total = pods.len();
        warnings.push(format!(
            "new PodSecurity enforce level only checked against the first {checked} of {total} existing pods"
        ));
    }
    if by_reasons.is_empty() {
        return;
    }
    warnings.push(format!(
        "existing pods in namespace \"{namespace}\" violate the new PodSecurity enforce level \"{standard}\""
    ));
    let mut texts: Vec<String> = by_reasons
        .into_iter()
        .map(|(reasons, (name, count))| match count {
            1 => format!("{name}: {reasons}"),
            2 => format!("{name} (and 1 other pod): {reasons}"),
            _ => format!("{name} (and {} other pods): {reasons}", count - 1),
        })
        .collect();
    texts.sort();
    texts.into_iter().for_each(|text| warnings.push(text));
}

/// The first pod of each controller and those without one, then the rest.
fn prioritized(pods: impl Iterator<Item = Value>) -> Vec<Value> {
    let (mut first, mut rest) = (Vec::new(), Vec::new());
    let mut seen: HashSet<String> = HashSet::new();
    for pod in pods {
        let owners = pod["metadata"]["ownerReferences"].as_array().into_iter().flatten();
        let controller = owners.filter(|owner| owner["controller"] == true).find_map(|owner| owner["uid"].as_str());
        match controller {
            Some(uid) if !seen.insert(uid.to_owned()) => rest.push(pod),
            _ => first.push(pod),
        }
    }
    first.append(&mut rest);
    first
}

#[cfg(test)]
mod tests {
    use machinery::json::json;

    use super::*;

    #[test]
    fn ps_5_one_pod_of_each_controller_comes_first() {
        let pod = |name: &str, owner: Option<&str>| {
            let owners: Vec<Value> = owner.into_iter().map(|uid| json!({"uid": uid, "controller": true})).collect();
            json!({"metadata": {"name": name, "ownerReferences": owners}})
        };
        let pods = [pod("a", Some("1")), pod("b", Some("1")), pod("c", None), pod("d", Some("2"))];
        let names: Vec<String> = prioritized(pods.into_iter()).iter().map(|pod| meta::name(pod).to_owned()).collect();
        assert_eq!(names, ["a", "c", "d", "b"]);
    }
}
