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
/// Longest time of it that is spent on finding those to check, so that some is left to check them.
const SELECTION_TIME_MAX: Duration = Duration::from_millis(500);

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
    let items = || snapshot.scan(PODS, Some(namespace), None);
    let is_checked = |pod: &Value| !is_exempt(pod["spec"]["runtimeClassName"].as_str().unwrap_or_default());
    let parsed = items().map(|item| view::parse(item).ok().filter(is_checked));
    let Prioritized { pods, left_out } = prioritized(parsed, || began.elapsed() <= SELECTION_TIME_MAX);
    let total = items().count().saturating_sub(left_out);
    let mut by_reasons: BTreeMap<String, (String, usize)> = BTreeMap::new();
    let mut checked = 0;
    for pod in &pods {
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
    if checked < total {
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

/// The pods of a namespace that are checked.
struct Prioritized {
    pods: Vec<Value>,
    /// How many were met that need no check.
    left_out: usize,
}

/// The first pod of each controller and those without one, then the rest; at most as many as are checked. `pods` has
/// none for a pod that needs no check. All are read while there is time: a late one may come first, or need no check.
fn prioritized(pods: impl Iterator<Item = Option<Value>>, is_in_time: impl Fn() -> bool) -> Prioritized {
    let (mut first, mut rest, mut left_out) = (Vec::new(), Vec::new(), 0);
    let mut seen: HashSet<String> = HashSet::new();
    for pod in pods {
        match pod {
            None => left_out += 1,
            Some(pod) if first.len() < PODS_MAX => {
                let owners = pod["metadata"]["ownerReferences"].as_array().into_iter().flatten();
                let mut controllers = owners.filter(|owner| owner["controller"] == true);
                match controllers.find_map(|owner| owner["uid"].as_str()) {
                    Some(uid) if !seen.insert(uid.to_owned()) => rest.push(pod),
                    _ => first.push(pod),
                }
                rest.truncate(PODS_MAX - first.len());
            }
            Some(_) => {}
        }
        if !is_in_time() {
            break;
        }
    }
    first.append(&mut rest);
    Prioritized { pods: first, left_out }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::sync::Arc;

    use machinery::json::json;
    use machinery::media::MediaType;
    use machinery::options::CreateOptions;
    use store::Retention;
    use store::memory::MemoryStore;

    use super::super::policy::{Level, Version};
    use super::*;
    use crate::{Body, Context, Registry, Settings, Target, WriteRequest};

    fn pod(name: &str, owner: Option<&str>) -> Value {
        let owners: Vec<Value> = owner.into_iter().map(|uid| json!({"uid": uid, "controller": true})).collect();
        json!({"metadata": {"name": name, "ownerReferences": owners}})
    }

    fn names(found: &Prioritized) -> Vec<&str> {
        found.pods.iter().map(meta::name).collect()
    }

    #[test]
    fn ps_5_one_pod_of_each_controller_comes_first() {
        let pods = [pod("a", Some("1")), pod("b", Some("1")), pod("c", None), pod("d", Some("2"))];
        let found = prioritized(pods.into_iter().map(Some), || true);
        assert_eq!(names(&found), ["a", "c", "d", "b"]);
    }

    #[test]
    fn ps_5_no_more_pods_are_kept_than_are_checked() {
        let replicas = (0..PODS_MAX + 10).map(|_| Some(pod("replica", Some("1"))));
        let found = prioritized(replicas.chain([None, Some(pod("late", None)), None]), || true);
        assert_eq!(found.left_out, 2, "pods that need no check are counted to the end");
        let names = names(&found);
        assert_eq!(names.len(), PODS_MAX);
        assert_eq!(names[..3], ["replica", "late", "replica"]);

        let single = (0..PODS_MAX + 10).map(|_| Some(pod("single", None)));
        let found = prioritized(single.chain([None]), || true);
        assert_eq!((found.pods.len(), found.left_out), (PODS_MAX, 1));
    }

    #[test]
    fn ps_5_pods_are_read_only_while_there_is_time() {
        let read = Cell::new(0);
        let pods = ["a", "b", "c", "d"].map(|name| Some(pod(name, None)));
        let pods = pods.into_iter().inspect(|_| read.set(read.get() + 1));
        let found = prioritized(pods, || read.get() < 2);
        assert_eq!(names(&found), ["a", "b"]);
        assert_eq!(read.get(), 2);

        let exempt = (0..4).map(|_| None).inspect(|_| read.set(read.get() + 1));
        assert_eq!(prioritized(exempt, || false).left_out, 1);
        assert_eq!(read.get(), 3, "those that need no check take time as well");
    }

    async fn create(registry: &Registry, group: &str, plural: &str, object: Value) {
        let kind = Arc::clone(registry.kinds().get(group, "v1", plural).unwrap());
        let namespace = kind.namespaced.then(|| "default".to_owned());
        let target = Target { kind, namespace, name: None, subresource: None };
        let body = Body { bytes: object.to_string().into(), media: MediaType::Json };
        let request = WriteRequest { target: &target, options: &CreateOptions::default(), ctx: &Context::default() };
        registry.create(request, &body).await.unwrap();
    }

    #[tokio::test]
    async fn ps_5_exempt_pods_are_neither_checked_nor_missed() {
        let registry =
            Registry::start(Arc::new(MemoryStore::new(Retention::default())), Settings::default()).await.unwrap();
        let class = json!({"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": "safe"}, "handler": "h"});
        create(&registry, "node.k8s.io", "runtimeclasses", class).await;
        for (name, class) in [("a", Some("safe")), ("b", None), ("c", Some("safe")), ("d", None)] {
            let spec = json!({"hostPID": true, "runtimeClassName": class, "containers": [{"name": "c", "image": "i"}]});
            let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec});
            create(&registry, "", "pods", pod).await;
        }
        let warnings = Warnings::default();
        let standard = Standard { level: Level::Baseline, version: Version::Latest };
        warn(registry.storage(), "default", standard, &warnings, |class| class == "safe");
        let first =
            "existing pods in namespace \"default\" violate the new PodSecurity enforce level \"baseline:latest\"";
        assert_eq!(warnings.take(), [first, "b (and 1 other pod): host namespaces"]);
    }
}
