//! Optional plugins of pods: where images come from, on which nodes pods run, and what they tolerate.

use std::collections::BTreeSet;

use machinery::json::{Value, json};
use machinery::{FieldError, GroupResource, Path, Status};

use crate::admission::plugin::{Attributes, Decision, Operation, Plugin, States};
use crate::collections::{NAMESPACES, PODS};
use crate::meta;
use crate::read::view;
use crate::storage::Storage;

const CONTAINERS: [&str; 3] = ["initContainers", "containers", "ephemeralContainers"];
const NODE_SELECTOR: &str = "scheduler.alpha.kubernetes.io/node-selector";
const HOSTNAME: &str = "kubernetes.io/hostname";

fn list<'v>(of: &'v Value, member: &str) -> &'v [Value] {
    of[member].as_array().map(|list| &**list).unwrap_or_default()
}

fn writes_pods(attributes: &Attributes<'_>) -> bool {
    attributes.writes(Operation::Create, PODS) || attributes.writes(Operation::Update, PODS)
}

/// Makes every image be pulled, so that a pod cannot use a private image that is on its node already.
pub(super) struct AlwaysPullImages;

impl AlwaysPullImages {
    /// An update without a new image changes nothing.
    fn applies(pod: &Value, old: Option<&Value>) -> bool {
        let images = |pod: &Value| -> BTreeSet<String> {
            let containers = CONTAINERS.iter().flat_map(|member| list(&pod["spec"], member));
            containers.map(|container| container["image"].as_str().unwrap_or_default().to_owned()).collect()
        };
        old.is_none_or(|old| !images(pod).is_subset(&images(old)))
    }

    fn check(attributes: &Attributes<'_>, pod: &Value) -> Result<(), Status> {
        let spec = Path::new("spec");
        let mut wrong = Vec::new();
        let mut check = |path: &Path<'_>, policy: &Value| {
            let policy = policy.as_str().unwrap_or_default();
            if policy != "Always" {
                wrong.push(FieldError::not_supported(path, policy, ["Always"]).to_string());
            }
        };
        for member in CONTAINERS {
            let containers = spec.child(member);
            for (i, container) in list(&pod["spec"], member).iter().enumerate() {
                check(&containers.index(i).child("imagePullPolicy"), &container["imagePullPolicy"]);
            }
        }
        let volumes = spec.child("volumes");
        for (i, volume) in list(&pod["spec"], "volumes").iter().enumerate() {
            if volume["image"].is_object() {
                check(&volumes.index(i).child("image").child("pullPolicy"), &volume["image"]["pullPolicy"]);
            }
        }
        let mut refusals = wrong.into_iter().map(|why| attributes.forbidden(pod, why));
        let Some(mut first) = refusals.next() else { return Ok(()) };
        let others: Vec<String> = refusals.map(|refusal| refusal.message).collect();
        if !others.is_empty() {
            first.message = format!("[{}, {}]", first.message, others.join(", "));
        }
        Err(first)
    }
}

impl Plugin for AlwaysPullImages {
    fn name(&self) -> &'static str {
        "AlwaysPullImages"
    }

    fn concerns(&self, attributes: &Attributes<'_>) -> bool {
        writes_pods(attributes)
    }

    fn mutate<'a>(&'a self, _: &'a Attributes<'a>, pod: &'a mut Value, old: Option<&'a Value>) -> Decision<'a> {
        if !Self::applies(pod, old) {
            return Decision::ADMIT;
        }
        let Some(spec) = pod.get_mut("spec") else { return Decision::ADMIT };
        for member in CONTAINERS {
            for container in spec.get_mut(member).and_then(Value::as_array_mut).into_iter().flatten() {
                container["imagePullPolicy"] = json!("Always");
            }
        }
        for volume in spec.get_mut("volumes").and_then(Value::as_array_mut).into_iter().flatten() {
            if volume["image"].is_object() {
                volume["image"]["pullPolicy"] = json!("Always");
            }
        }
        Decision::ADMIT
    }

    fn validate<'a>(&'a self, attributes: &'a Attributes<'a>, states: States<'a>) -> Decision<'a> {
        let pod = states.new.filter(|pod| Self::applies(pod, states.old));
        Decision::Now(pod.map_or(Ok(()), |pod| Self::check(attributes, pod)))
    }
}

/// Adds the node selector of a namespace to its pods.
pub(super) struct PodNodeSelector {
    storage: Storage,
}

impl PodNodeSelector {
    pub(super) fn new(storage: Storage) -> Self {
        PodNodeSelector { storage }
    }

    /// The selector in the annotation of the pod's namespace.
    async fn selector(&self, attributes: &Attributes<'_>) -> Result<Vec<(String, String)>, Status> {
        let name = attributes.target.namespace.as_deref().unwrap_or_default();
        let Some(namespace) = self.storage.current_named(NAMESPACES, None, name).await? else {
            return Err(Status::internal(format!("namespace {name} does not exist")));
        };
        let namespace = view::parse(&namespace)?;
        let text = namespace["metadata"]["annotations"][NODE_SELECTOR].as_str().unwrap_or_default();
        let mut labels = Vec::new();
        for pair in text.split(',').map(str::trim).filter(|pair| !pair.is_empty()) {
            let Some((key, value)) = pair.split_once('=') else {
                return Err(Status::internal(format!("invalid selector: [{pair}]")));
            };
            labels.push((key.trim().to_owned(), value.trim().to_owned()));
        }
        Ok(labels)
    }

    async fn add(&self, attributes: &Attributes<'_>, pod: &mut Value) -> Result<(), Status> {
        let wanted = self.selector(attributes).await?;
        check_selector(&wanted, pod)?;
        if wanted.is_empty() {
            return Ok(());
        }
        for (key, value) in wanted {
            pod["spec"]["nodeSelector"][key.as_str()] = json!(value);
        }
        Ok(())
    }
}

fn check_selector(wanted: &[(String, String)], pod: &Value) -> Result<(), Status> {
    let given = |key: &str| pod["spec"]["nodeSelector"][key].as_str();
    if wanted.iter().all(|(key, value)| given(key).is_none_or(|given| given == value)) {
        return Ok(());
    }
    let why = "pod node label selector conflicts with its namespace node label selector";
    Err(Status::forbidden(&GroupResource::new("", "pods"), meta::name(pod), why.to_owned()))
}

impl Plugin for PodNodeSelector {
    fn name(&self) -> &'static str {
        "PodNodeSelector"
    }

    fn concerns(&self, attributes: &Attributes<'_>) -> bool {
        attributes.writes(Operation::Create, PODS)
    }

    fn mutate<'a>(&'a self, attributes: &'a Attributes<'a>, pod: &'a mut Value, _: Option<&'a Value>) -> Decision<'a> {
        Decision::later(self.add(attributes, pod))
    }

    fn validate<'a>(&'a self, attributes: &'a Attributes<'a>, states: States<'a>) -> Decision<'a> {
        let Some(pod) = states.new else { return Decision::ADMIT };
        Decision::later(async move { check_selector(&self.selector(attributes).await?, pod) })
    }
}

/// Lets pods that ask for an extended resource run on the nodes that are kept for it.
pub(super) struct ExtendedResourceToleration;

impl Plugin for ExtendedResourceToleration {
    fn name(&self) -> &'static str {
        "ExtendedResourceToleration"
    }

    fn concerns(&self, attributes: &Attributes<'_>) -> bool {
        writes_pods(attributes)
    }

    fn mutate<'a>(&'a self, _: &'a Attributes<'a>, pod: &'a mut Value, _: Option<&'a Value>) -> Decision<'a> {
        let mut resources: BTreeSet<String> = BTreeSet::new();
        for container in ["containers", "initContainers"].iter().flat_map(|member| list(&pod["spec"], member)) {
            let requests = container["resources"]["requests"].as_object();
            let names = requests.into_iter().flat_map(|requests| requests.iter()).map(|(name, _)| name.to_string());
            resources.extend(names.filter(|name| is_extended(name)));
        }
        for resource in resources {
            tolerate(pod, &resource);
        }
        Decision::ADMIT
    }
}

/// Whether a resource is neither of Kubernetes nor a limit of a quota.
fn is_extended(name: &str) -> bool {
    let native = !name.contains('/') || name.contains("kubernetes.io/");
    !native && !name.starts_with("requests.")
}

/// Adds a toleration, or replaces the one that matches.
fn tolerate(pod: &mut Value, resource: &str) {
    let wanted = json!({"key": resource, "operator": "Exists", "effect": "NoSchedule"});
    let Some(spec) = pod.get_mut("spec").and_then(Value::as_object_mut) else { return };
    let mut tolerations = spec.get("tolerations").and_then(Value::as_array).map(|all| all.to_vec()).unwrap_or_default();
    let same = |given: &Value| {
        ["key", "operator", "effect"].iter().all(|member| given[*member] == wanted[*member]) && given["value"].is_null()
    };
    match tolerations.iter().position(same) {
        Some(at) => tolerations[at] = wanted.clone(),
        None => tolerations.push(wanted.clone()),
    }
    spec.insert("tolerations", tolerations.into());
}

/// Refuses pods that keep others away from more than one node.
pub(super) struct LimitPodHardAntiAffinityTopology;

impl LimitPodHardAntiAffinityTopology {
    fn check(attributes: &Attributes<'_>, pod: &Value) -> Result<(), Status> {
        let terms = &pod["spec"]["affinity"]["podAntiAffinity"];
        for term in list(terms, "requiredDuringSchedulingIgnoredDuringExecution") {
            let key = term["topologyKey"].as_str().unwrap_or_default();
            if key != HOSTNAME {
                let why = format!(
                    "affinity.PodAntiAffinity.RequiredDuringScheduling has TopologyKey {key} but only key {HOSTNAME} is \
                     allowed"
                );
                return Err(attributes.forbidden(pod, why));
            }
        }
        Ok(())
    }
}

impl Plugin for LimitPodHardAntiAffinityTopology {
    fn name(&self) -> &'static str {
        "LimitPodHardAntiAffinityTopology"
    }

    fn concerns(&self, attributes: &Attributes<'_>) -> bool {
        writes_pods(attributes)
    }

    fn validate<'a>(&'a self, attributes: &'a Attributes<'a>, states: States<'a>) -> Decision<'a> {
        Decision::Now(states.new.map_or(Ok(()), |pod| Self::check(attributes, pod)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_resources_of_others_are_extended() {
        assert!(is_extended("example.com/gpu"));
        for name in ["cpu", "kubernetes.io/x", "requests.example.com/gpu"] {
            assert!(!is_extended(name), "{name}");
        }
        let mut pod = json!({"spec": {}});
        tolerate(&mut pod, "example.com/gpu");
        tolerate(&mut pod, "example.com/gpu");
        assert_eq!(pod["spec"]["tolerations"].as_array().map(|all| all.len()), Some(1));
    }

    #[test]
    fn a_selector_of_the_namespace_must_agree_with_that_of_the_pod() {
        let wanted = [("a".to_owned(), "b".to_owned())];
        assert!(check_selector(&wanted, &json!({"spec": {"nodeSelector": {"a": "b", "c": "d"}}})).is_ok());
        assert!(check_selector(&wanted, &json!({"spec": {}})).is_ok());
        assert!(check_selector(&wanted, &json!({"spec": {"nodeSelector": {"a": "x"}}})).is_err());
    }
}
