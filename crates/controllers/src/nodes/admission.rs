//! Whether a node takes a pod that its creator has bound to it: nothing has looked at the node before, as a scheduler does.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{Node, Pod};

use crate::placement::affinity_allows;
use crate::scheduler::amounts::{Amounts, request_of, units};
use crate::scheduler::filters::Reason;

/// Why a node does not take a pod, in the words of a kubelet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Refusal {
    pub(super) reason: String,
    pub(super) message: String,
}

/// True for a pod that a scheduler has bound: it fits.
pub(super) fn was_scheduled(pod: &Pod) -> bool {
    let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
    conditions.iter().any(|condition| condition.type_ == "PodScheduled" && condition.status == "True")
}

/// The first reason why the node does not take the pod beside those that run there.
pub(super) fn refusal(pod: &Pod, node: &Node, others: &[Arc<Pod>]) -> Option<Refusal> {
    let wanted = request_of(pod);
    let allocatable = node.status.as_ref().and_then(|status| status.allocatable.as_ref());
    let requests: Vec<_> = others.iter().map(|other| request_of(other)).collect();
    let mut used = Amounts::default();
    requests.iter().for_each(|request| used.add(&request.amounts));
    let pods_max = allocatable.and_then(|resources| resources.get("pods")).map(units);
    let count = i64::try_from(others.len()).unwrap_or(i64::MAX);
    if let Some(capacity) = pods_max.filter(|capacity| count >= *capacity) {
        return Some(shortage("pods", 1, count, capacity));
    }
    let (has, wants) = (Amounts::of(allocatable), &wanted.amounts);
    let own = [
        ("cpu", wants.cpu, used.cpu, has.cpu),
        ("memory", wants.memory, used.memory, has.memory),
        ("ephemeral-storage", wants.storage, used.storage, has.storage),
    ];
    // A resource that the node does not have belongs to the cluster, and is not the node's concern.
    let others = wants.others.iter().filter_map(|(name, wanted)| {
        let used = used.others.get(name).copied().unwrap_or_default();
        Some((name.as_str(), *wanted, used, *has.others.get(name)?))
    });
    let short =
        own.into_iter().chain(others).find(|(_, wanted, used, has)| *wanted > 0 && used.saturating_add(*wanted) > *has);
    if let Some((name, wanted, used, has)) = short {
        return Some(shortage(name, wanted, used, has));
    }
    if pod.spec.as_ref().is_some_and(|spec| !affinity_allows(spec, node)) {
        return Some(failed("NodeAffinity", &Reason::NodeAffinity));
    }
    let mut taken = requests.iter().flat_map(|request| &request.ports);
    if taken.any(|port| wanted.ports.iter().any(|wanted| wanted.collides(port))) {
        return Some(failed("NodePorts", &Reason::Ports));
    }
    None
}

fn shortage(resource: &str, wanted: i64, used: i64, capacity: i64) -> Refusal {
    Refusal {
        reason: format!("OutOf{resource}"),
        message: format!(
            "Node didn't have enough resource: {resource}, requested: {wanted}, used: {used}, capacity: {capacity}"
        ),
    }
}

fn failed(predicate: &str, reason: &Reason) -> Refusal {
    Refusal { reason: predicate.to_owned(), message: format!("Predicate {predicate} failed: {}", reason.text()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn pod(spec: Value) -> Arc<Pod> {
        let container = json!({"name": "c", "resources": {"requests": spec["requests"]}, "ports": spec["ports"]});
        let spec = json!({"containers": [container], "nodeSelector": spec["selector"]});
        Arc::new(serde_json::from_value(json!({"metadata": {"name": "p"}, "spec": spec})).unwrap())
    }

    fn node() -> Node {
        let allocatable = json!({"cpu": "2", "memory": "1Gi", "pods": "3", "example.com/gpu": "1"});
        let node =
            json!({"metadata": {"name": "n", "labels": {"disk": "ssd"}}, "status": {"allocatable": allocatable}});
        serde_json::from_value(node).unwrap()
    }

    fn refused(wanted: Value, others: &[Arc<Pod>]) -> Option<(String, String)> {
        refusal(&pod(wanted), &node(), others).map(|refusal| (refusal.reason, refusal.message))
    }

    #[test]
    fn na_17_a_node_refuses_what_it_has_no_room_for() {
        let half = pod(
            json!({"requests": {"cpu": "1500m", "example.com/gpu": "1"}, "ports": [{"containerPort": 80, "hostPort": 80}]}),
        );
        let said = |reason: &str, message: &str| Some((reason.to_owned(), message.to_owned()));
        assert_eq!(refused(json!({"requests": {"cpu": "500m"}}), std::slice::from_ref(&half)), None);
        assert_eq!(
            refused(json!({"requests": {"cpu": "1"}}), std::slice::from_ref(&half)),
            said("OutOfcpu", "Node didn't have enough resource: cpu, requested: 1000, used: 1500, capacity: 2000")
        );
        assert_eq!(
            refused(json!({"requests": {"example.com/gpu": "1"}}), std::slice::from_ref(&half)),
            said(
                "OutOfexample.com/gpu",
                "Node didn't have enough resource: example.com/gpu, requested: 1, used: 1, capacity: 1"
            )
        );
        assert_eq!(refused(json!({"requests": {"example.com/of-the-cluster": "1"}}), &[]), None);
        let small = pod(json!({}));
        assert_eq!(
            refused(json!({}), &[small.clone(), small.clone(), small.clone()]),
            said("OutOfpods", "Node didn't have enough resource: pods, requested: 1, used: 3, capacity: 3")
        );
        assert_eq!(
            refused(json!({"ports": [{"containerPort": 1, "hostPort": 80}]}), &[half]),
            said("NodePorts", "Predicate NodePorts failed: node(s) didn't have free ports for the requested pod ports")
        );
        assert_eq!(
            refused(json!({"selector": {"disk": "hdd"}}), &[]),
            said("NodeAffinity", "Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector")
        );
        assert_eq!(refused(json!({"selector": {"disk": "ssd"}}), &[]), None);
    }
}
