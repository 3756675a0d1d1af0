//! The usage of an object, and the quotas that count it.

use std::collections::{BTreeMap, BTreeSet};

use machinery::json::{Value, json};
use machinery::labels::Selector;
use machinery::quantity::{Notation, Quantity};
use schema::kind::Kind;

use crate::collections::{
    CONFIG_MAPS, EVENTS, PERSISTENT_VOLUME_CLAIMS, PODS, REPLICATION_CONTROLLERS, RESOURCE_QUOTAS, SECRETS, SERVICES,
};
use crate::meta;
use crate::reserve::amounts::{Amounts, Half, of_pod};

/// Computes the usage of the objects of one kind.
pub(super) struct Evaluator<'a> {
    kind: &'a Kind,
    class: Class,
    /// `count/deployments.apps`
    count: String,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Class {
    Pod,
    Service,
    Claim,
    /// Only the number of objects is counted.
    Other,
}

const OF_PODS: [&str; 10] = [
    "cpu",
    "memory",
    "ephemeral-storage",
    "requests.cpu",
    "requests.memory",
    "requests.ephemeral-storage",
    "limits.cpu",
    "limits.memory",
    "limits.ephemeral-storage",
    "pods",
];
/// Resources that every container must state where a quota counts them.
const MUST_STATE: [&str; 6] = ["cpu", "memory", "requests.cpu", "requests.memory", "limits.cpu", "limits.memory"];
const OF_SERVICES: [&str; 3] = ["services", "services.loadbalancers", "services.nodeports"];
const OF_CLAIMS: [&str; 2] = ["persistentvolumeclaims", "requests.storage"];
const BY_CLASS: &str = ".storageclass.storage.k8s.io/";

fn one() -> Quantity {
    Quantity::new(1, Notation::Decimal)
}

impl<'a> Evaluator<'a> {
    /// None for a kind that no quota counts.
    pub(super) fn new(kind: &'a Kind) -> Option<Self> {
        let class = match kind.collection.as_str() {
            EVENTS => return None,
            PODS => Class::Pod,
            SERVICES => Class::Service,
            PERSISTENT_VOLUME_CLAIMS => Class::Claim,
            _ if !kind.stored() || !kind.namespaced => return None,
            _ => Class::Other,
        };
        Some(Evaluator { kind, class, count: format!("count/{}", kind.group_resource()) })
    }

    /// Whether a quota may refuse this write. `old` is none for a create.
    pub(super) fn handles(&self, subresource: Option<&str>, old: Option<&Value>, new: &Value) -> bool {
        match (self.class, subresource, old) {
            (_, None, None) => true,
            (Class::Pod, None, Some(old)) => has_deadline(old) != has_deadline(new),
            (Class::Pod, Some("resize"), Some(_)) => true,
            (Class::Service | Class::Claim, None, Some(_)) => true,
            _ => false,
        }
    }

    /// The older name of the count, which some kinds have.
    fn alias(&self) -> Option<&str> {
        let known = [CONFIG_MAPS, RESOURCE_QUOTAS, REPLICATION_CONTROLLERS, SECRETS];
        known.contains(&self.kind.collection.as_str()).then_some(self.kind.plural.as_str())
    }

    /// Whether objects of this kind take the resource that a quota names.
    pub(super) fn matches_name(&self, name: &str) -> bool {
        if name == self.count || Some(name) == self.alias() {
            return true;
        }
        match self.class {
            Class::Pod => {
                let foreign = name.contains('/') && !name.contains("kubernetes.io/") && name.starts_with("requests.");
                OF_PODS.contains(&name)
                    || name.starts_with("hugepages-")
                    || name.starts_with("requests.hugepages-")
                    || foreign
            }
            Class::Service => OF_SERVICES.contains(&name),
            Class::Claim => {
                OF_CLAIMS.contains(&name) || OF_CLAIMS.iter().any(|of| name.ends_with(&format!("{BY_CLASS}{of}")))
            }
            Class::Other => false,
        }
    }

    /// Whether a quota counts this object: it names a resource the object takes, and the object is in its scopes.
    pub(super) fn counts(&self, quota: &Value, object: &Value) -> bool {
        let hard = quota["status"]["hard"].as_object();
        hard.is_some_and(|hard| hard.keys().any(|name| self.matches_name(name))) && self.in_scope(quota, object)
    }

    pub(super) fn in_scope(&self, quota: &Value, object: &Value) -> bool {
        let scopes = quota["spec"]["scopes"].as_array().into_iter().flatten();
        let named = scopes.map(|scope| json!({"scopeName": scope, "operator": "Exists"}));
        let selected = quota["spec"]["scopeSelector"]["matchExpressions"].as_array().into_iter().flatten().cloned();
        named.chain(selected).all(|scope| match self.class {
            Class::Pod => pod_in_scope(&scope, object),
            Class::Claim => claim_in_scope(&scope, object),
            Class::Service | Class::Other => false,
        })
    }

    /// What an object takes, by resource.
    pub(super) fn usage(&self, object: &Value) -> Amounts {
        let mut usage = Amounts::default();
        usage.set(self.count.as_str(), one());
        if let Some(alias) = self.alias() {
            usage.set(alias, one());
        }
        match self.class {
            Class::Pod if runs(object) => {
                let (mut requests, mut limits) = (of_pod(object, Half::Requests), of_pod(object, Half::Limits));
                let overhead = Amounts::from_value(&object["spec"]["overhead"]);
                limits.add(&overhead.only(|name| limits.get(name).is_some_and(|limit| !limit.is_zero())));
                requests.add(&overhead);
                usage.add(&named(&requests, &limits));
            }
            Class::Pod | Class::Other => {}
            Class::Service => service(object, &mut usage),
            Class::Claim => claim(object, &mut usage),
        }
        usage
    }

    /// What a write takes from a quota: none if nothing; an error if the quota has not enough.
    pub(super) fn wanted(&self, quota: &Value, old: Option<&Value>, new: &Value) -> Result<Option<Amounts>, String> {
        if !self.counts(quota, new) {
            return Ok(None);
        }
        let name = meta::name(quota);
        let (hard, used) =
            (Amounts::from_value(&quota["status"]["hard"]), Amounts::from_value(&quota["status"]["used"]));
        let counted: Vec<&str> = hard.0.keys().map(String::as_str).filter(|name| self.matches_name(name)).collect();
        if self.class == Class::Pod
            && let Some(why) = unstated(&counted, new)
        {
            return Err(format!("failed quota: {name}: {why}"));
        }
        if counted.iter().any(|resource| used.get(resource).is_none()) {
            return Err(format!("status unknown for quota: {name}, resources: {}", counted.join(",")));
        }
        let mut wanted = self.usage(new);
        if let Some(old) = old.filter(|old| self.counts(quota, old)) {
            wanted = wanted.beyond(&self.usage(old));
        }
        let wanted = wanted.only(|name| hard.0.contains_key(name)).beyond(&Amounts::default());
        if wanted.is_empty() {
            return Ok(None);
        }
        let mut sum = used.clone();
        sum.add(&wanted);
        let too_much = |name: &str| wanted.get(name).is_some() && sum.get(name) > hard.get(name);
        let exceeded = wanted.only(too_much);
        if exceeded.is_empty() {
            return Ok(Some(wanted));
        }
        let (used, hard) = (used.only(too_much), hard.only(too_much));
        Err(format!("exceeded quota: {name}, requested: {exceeded}, used: {used}, limited: {hard}"))
    }
}

/// Requests and limits under the names that quotas use.
fn named(requests: &Amounts, limits: &Amounts) -> Amounts {
    let mut usage = Amounts::default();
    usage.set("pods", one());
    for name in ["cpu", "memory", "ephemeral-storage"] {
        if let Some(request) = requests.get(name) {
            usage.set(name, request.clone());
            usage.set(format!("requests.{name}"), request);
        }
        if let Some(limit) = limits.get(name) {
            usage.set(format!("limits.{name}"), limit);
        }
    }
    for (name, request) in &requests.0 {
        let foreign = name.contains('/') && !name.contains("kubernetes.io/");
        if name.starts_with("hugepages-") {
            usage.set(name.as_str(), request.clone());
        }
        if foreign || name.starts_with("hugepages-") {
            usage.set(format!("requests.{name}"), request.clone());
        }
    }
    usage
}

/// The containers that do not state a resource that a quota counts.
fn unstated(counted: &[&str], pod: &Value) -> Option<String> {
    let whole = |half: Half| !half.of(&pod["spec"]["resources"]).is_empty();
    if whole(Half::Requests) || whole(Half::Limits) {
        return None;
    }
    let mut missing: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for list in ["containers", "initContainers"] {
        for container in pod["spec"][list].as_array().into_iter().flatten() {
            let resources = &container["resources"];
            let stated = named(&Half::Requests.of(resources), &Half::Limits.of(resources));
            for resource in counted.iter().filter(|name| MUST_STATE.contains(name) && stated.get(name).is_none()) {
                missing.entry(resource).or_default().insert(container["name"].as_str().unwrap_or_default());
            }
        }
    }
    if missing.is_empty() {
        return None;
    }
    let texts = missing.into_iter().map(|(resource, containers)| {
        let containers: Vec<&str> = containers.into_iter().collect();
        format!("{resource} for: {}", containers.join(","))
    });
    Some(format!("must specify {}", texts.collect::<Vec<_>>().join("; ")))
}

/// A finished pod is only counted; one that is being deleted takes its share until it is gone.
fn runs(pod: &Value) -> bool {
    !matches!(pod["status"]["phase"].as_str(), Some("Succeeded" | "Failed"))
}

fn has_deadline(pod: &Value) -> bool {
    pod["spec"]["activeDeadlineSeconds"].as_i64().is_some_and(|seconds| seconds >= 0)
}

/// Whether the operator of a scope selects `value`.
fn selects(scope: &Value, value: Option<&str>) -> bool {
    let name = scope["scopeName"].as_str().unwrap_or_default();
    let expression = json!({"key": name, "operator": scope["operator"], "values": scope["values"]});
    let labels = value.map_or_else(|| json!({}), |value| json!({name: value}));
    Selector::from_label_selector(&json!({"matchExpressions": [expression]}))
        .is_ok_and(|selector| selector.matches_value(&labels))
}

fn pod_in_scope(scope: &Value, pod: &Value) -> bool {
    let best_effort = || schema::strategy::qos_class(&pod["spec"]) == "BestEffort";
    match scope["scopeName"].as_str().unwrap_or_default() {
        "Terminating" => has_deadline(pod),
        "NotTerminating" => !has_deadline(pod),
        "BestEffort" => best_effort(),
        "NotBestEffort" => !best_effort(),
        "PriorityClass" => selects(scope, pod["spec"]["priorityClassName"].as_str().filter(|class| !class.is_empty())),
        "CrossNamespacePodAffinity" => reaches_across(pod),
        _ => false,
    }
}

/// Whether an affinity of a pod selects pods of other namespaces.
fn reaches_across(pod: &Value) -> bool {
    let across = |term: &Value| {
        term["namespaces"].as_array().is_some_and(|namespaces| !namespaces.is_empty())
            || term["namespaceSelector"].is_object()
    };
    ["podAffinity", "podAntiAffinity"].into_iter().any(|which| {
        let affinity = &pod["spec"]["affinity"][which];
        let required = affinity["requiredDuringSchedulingIgnoredDuringExecution"].as_array();
        let preferred = affinity["preferredDuringSchedulingIgnoredDuringExecution"].as_array();
        required.into_iter().flatten().any(across)
            || preferred.into_iter().flatten().any(|term| across(&term["podAffinityTerm"]))
    })
}

fn claim_in_scope(scope: &Value, claim: &Value) -> bool {
    if scope["scopeName"] != "VolumeAttributesClass" {
        return false;
    }
    let classes = [
        &claim["spec"]["volumeAttributesClassName"],
        &claim["status"]["currentVolumeAttributesClassName"],
        &claim["status"]["modifyVolumeStatus"]["targetVolumeAttributesClassName"],
    ];
    let mut classes = classes.into_iter().filter_map(Value::as_str).filter(|class| !class.is_empty()).peekable();
    match classes.peek() {
        None => selects(scope, None),
        Some(_) => classes.any(|class| selects(scope, Some(class))),
    }
}

fn service(service: &Value, usage: &mut Amounts) {
    let ports = service["spec"]["ports"].as_array().map(Vec::as_slice).unwrap_or_default();
    let kind = service["spec"]["type"].as_str().unwrap_or_default();
    let balanced = kind == "LoadBalancer";
    let node_ports = match kind {
        "LoadBalancer" if service["spec"]["allocateLoadBalancerNodePorts"] == false => {
            ports.iter().filter(|port| port["nodePort"].as_i64().unwrap_or_default() != 0).count()
        }
        "NodePort" | "LoadBalancer" => ports.len(),
        _ => 0,
    };
    let count = |count: usize| Quantity::new(i64::try_from(count).unwrap_or(i64::MAX), Notation::Decimal);
    usage.set("services", one());
    usage.set("services.loadbalancers", count(usize::from(balanced)));
    usage.set("services.nodeports", count(node_ports));
}

/// The class of a claim: the old annotation counts before the field.
pub(crate) fn storage_class(claim: &Value) -> &str {
    let annotated = claim["metadata"]["annotations"]["volume.beta.kubernetes.io/storage-class"].as_str();
    annotated.or_else(|| claim["spec"]["storageClassName"].as_str()).unwrap_or_default()
}

fn claim(claim: &Value, usage: &mut Amounts) {
    usage.set("persistentvolumeclaims", one());
    let class = storage_class(claim);
    if !class.is_empty() {
        usage.set(format!("{class}{BY_CLASS}persistentvolumeclaims"), one());
    }
    let asked = Amounts::from_value(&claim["spec"]["resources"]["requests"]).get("storage");
    let allocated = Amounts::from_value(&claim["status"]["allocatedResources"]).get("storage");
    let Some(storage) = asked.map(|asked| allocated.filter(|more| *more > asked).unwrap_or(asked)) else { return };
    usage.set("requests.storage", storage.clone());
    if !class.is_empty() {
        usage.set(format!("{class}{BY_CLASS}requests.storage"), storage);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use schema::kinds::builtin;

    fn usage(group: &str, plural: &str, object: &Value) -> String {
        let kind = builtin().get(group, "v1", plural).unwrap();
        Evaluator::new(kind).unwrap().usage(object).to_string()
    }

    fn quota(hard: Value, used: Value) -> Value {
        json!({"metadata": {"name": "q"}, "spec": {}, "status": {"hard": hard, "used": used}})
    }

    fn pods() -> Evaluator<'static> {
        Evaluator::new(builtin().get("", "v1", "pods").unwrap()).unwrap()
    }

    fn pod(resources: Value) -> Value {
        json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "resources": resources}]}})
    }

    #[test]
    fn usage_of_objects() {
        let asking = pod(json!({"requests": {"cpu": "1", "example.com/gpu": "2"}, "limits": {"cpu": "2"}}));
        assert_eq!(
            usage("", "pods", &asking),
            "count/pods=1,cpu=1,limits.cpu=2,pods=1,requests.cpu=1,requests.example.com/gpu=2"
        );
        let mut ended = asking.clone();
        ended["status"] = json!({"phase": "Failed"});
        assert_eq!(usage("", "pods", &ended), "count/pods=1");
        assert_eq!(usage("apps", "deployments", &json!({})), "count/deployments.apps=1");
        assert_eq!(usage("", "secrets", &json!({})), "count/secrets=1,secrets=1");
        let service = json!({"spec": {"type": "LoadBalancer", "ports": [{}, {}]}});
        assert_eq!(
            usage("", "services", &service),
            "count/services=1,services=1,services.loadbalancers=1,services.nodeports=2"
        );
        let claim = json!({"spec": {"storageClassName": "fast", "resources": {"requests": {"storage": "1Gi"}}}});
        assert_eq!(
            usage("", "persistentvolumeclaims", &claim),
            "count/persistentvolumeclaims=1,fast.storageclass.storage.k8s.io/persistentvolumeclaims=1,\
             fast.storageclass.storage.k8s.io/requests.storage=1Gi,persistentvolumeclaims=1,requests.storage=1Gi"
        );
        assert!(Evaluator::new(builtin().get("", "v1", "events").unwrap()).is_none());
        assert!(Evaluator::new(builtin().get("", "v1", "nodes").unwrap()).is_none());
    }

    #[test]
    fn a_refusal_names_what_is_exceeded() {
        let wanted = |hard: Value, used: Value, pod: Value| {
            pods().wanted(&quota(hard, used), None, &pod).map(|wanted| wanted.map(|w| w.to_string()))
        };
        assert_eq!(wanted(json!({"pods": "1"}), json!({"pods": "0"}), pod(json!({}))), Ok(Some("pods=1".into())));
        assert_eq!(
            wanted(json!({"pods": "1"}), json!({"pods": "1"}), pod(json!({}))),
            Err("exceeded quota: q, requested: pods=1, used: pods=1, limited: pods=1".into())
        );
        assert_eq!(
            wanted(json!({"limits.cpu": "1"}), json!({"limits.cpu": "0"}), pod(json!({}))),
            Err("failed quota: q: must specify limits.cpu for: c".into())
        );
        assert_eq!(
            wanted(json!({"pods": "1"}), json!({}), pod(json!({}))),
            Err("status unknown for quota: q, resources: pods".into())
        );
        assert_eq!(wanted(json!({"services": "0"}), json!({"services": "0"}), pod(json!({}))), Ok(None));
    }

    #[test]
    fn scopes_choose_pods() {
        let mut scoped = quota(json!({"pods": "1"}), json!({"pods": "0"}));
        let counts = |quota: &Value, pod: &Value| pods().counts(quota, pod);
        scoped["spec"]["scopes"] = json!(["BestEffort"]);
        assert!(counts(&scoped, &pod(json!({}))));
        assert!(!counts(&scoped, &pod(json!({"requests": {"cpu": "1"}}))));
        scoped["spec"] = json!({"scopeSelector": {"matchExpressions": [
            {"scopeName": "PriorityClass", "operator": "In", "values": ["high"]},
        ]}});
        assert!(!counts(&scoped, &pod(json!({}))));
        let mut high = pod(json!({}));
        high["spec"]["priorityClassName"] = json!("high");
        assert!(counts(&scoped, &high));
        let services = Evaluator::new(builtin().get("", "v1", "services").unwrap()).unwrap();
        scoped["status"]["hard"] = json!({"services": "1"});
        assert!(!services.counts(&scoped, &json!({})));
    }
}
