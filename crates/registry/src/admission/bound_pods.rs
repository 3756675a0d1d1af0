//! Plugins about pods that are bound to a node: PodTopologyLabels, NodeDeclaredFeatureValidator and PodResizeValidator.

use machinery::Status;
use machinery::go_text::quote;
use machinery::json::{Map, Value, json};

use super::plugin::{Attributes, Decision, Operation, Plugin, States};
use crate::collections::{NODES, PODS};
use crate::meta;
use crate::read::view;
use crate::reserve::amounts::{Half, of_pod};
use crate::storage::Storage;

/// The labels of a node that its pods take over.
const TOPOLOGY: [&str; 2] = ["topology.kubernetes.io/zone", "topology.kubernetes.io/region"];

/// The feature that a node needs for a change of the resources of a whole pod.
const POD_LEVEL_RESIZE: &str = "InPlacePodLevelResourcesVerticalScaling";

/// Gives a pod, or the binding of one, the topology labels of its node.
pub(super) struct PodTopologyLabels {
    storage: Storage,
}

impl PodTopologyLabels {
    pub(super) fn new(storage: Storage) -> Self {
        PodTopologyLabels { storage }
    }

    async fn label(&self, object: &mut Value, node: &str) -> Result<(), Status> {
        let Some(node) = self.storage.current_named(NODES, None, node).await? else { return Ok(()) };
        for (key, value) in TOPOLOGY.into_iter().filter_map(|key| Some((key, node.label(key)?))) {
            let labels = meta::of_mut(object).entry("labels").or_insert_with(|| Value::Object(Map::new()));
            labels[key] = json!(value);
        }
        Ok(())
    }
}

impl Plugin for PodTopologyLabels {
    fn name(&self) -> &'static str {
        "PodTopologyLabels"
    }

    fn concerns(&self, attributes: &Attributes<'_>) -> bool {
        attributes.operation == Operation::Create
            && attributes.target.kind.collection == PODS
            && matches!(attributes.subresource(), None | Some("binding"))
    }

    fn mutate<'a>(
        &'a self,
        attributes: &'a Attributes<'a>,
        object: &'a mut Value,
        _: Option<&'a Value>,
    ) -> Decision<'a> {
        let node = match attributes.subresource() {
            Some(_) if object["target"]["kind"] != "Node" => "",
            Some(_) => object["target"]["name"].as_str().unwrap_or_default(),
            None => object["spec"]["nodeName"].as_str().unwrap_or_default(),
        };
        if node.is_empty() {
            return Decision::ADMIT;
        }
        let node = node.to_owned();
        Decision::later(async move { self.label(object, &node).await })
    }
}

/// Whether an update changes the spec of a pod that is bound to a node.
fn changes_bound<'a>(states: States<'a>) -> Option<(&'a Value, &'a Value, &'a str)> {
    let (Some(old), Some(new)) = (states.old, states.new) else { return None };
    // The generation first: most updates leave the spec alone, and it need not be parsed for them.
    if old["metadata"]["generation"] == new["metadata"]["generation"] {
        return None;
    }
    let node = new["spec"]["nodeName"].as_str().filter(|node| !node.is_empty())?;
    Some((old, new, node))
}

async fn node_of(storage: &Storage, attributes: &Attributes<'_>, pod: &Value, name: &str) -> Result<Value, Status> {
    match storage.current_named(NODES, None, name).await? {
        Some(node) => view::parse(&node),
        None => Err(attributes.forbidden(pod, format!("node {} not found", quote(name)))),
    }
}

/// Refuses an update that needs a feature which the node of the pod does not declare.
pub(super) struct NodeDeclaredFeatureValidator {
    storage: Storage,
}

impl NodeDeclaredFeatureValidator {
    pub(super) fn new(storage: Storage) -> Self {
        NodeDeclaredFeatureValidator { storage }
    }
}

impl Plugin for NodeDeclaredFeatureValidator {
    fn name(&self) -> &'static str {
        "NodeDeclaredFeatureValidator"
    }

    fn concerns(&self, attributes: &Attributes<'_>) -> bool {
        attributes.operation == Operation::Update
            && attributes.target.kind.collection == PODS
            && matches!(attributes.subresource(), None | Some("resize"))
    }

    fn validate<'a>(&'a self, attributes: &'a Attributes<'a>, states: States<'a>) -> Decision<'a> {
        let Some((old, new, name)) = changes_bound(states) else { return Decision::ADMIT };
        if old["spec"]["resources"] == new["spec"]["resources"] {
            return Decision::ADMIT;
        }
        Decision::later(async move {
            let node = node_of(&self.storage, attributes, new, name).await?;
            let declared = node["status"]["declaredFeatures"].as_array().map(Vec::as_slice).unwrap_or_default();
            if declared.iter().any(|feature| feature == POD_LEVEL_RESIZE) {
                return Ok(());
            }
            let node = quote(name);
            let why = format!("pod update requires features {POD_LEVEL_RESIZE} which are not available on node {node}");
            Err(attributes.forbidden(new, why))
        })
    }
}

/// Refuses a resize that the node of the pod cannot do.
pub(super) struct PodResizeValidator {
    storage: Storage,
}

impl PodResizeValidator {
    pub(super) fn new(storage: Storage) -> Self {
        PodResizeValidator { storage }
    }
}

impl Plugin for PodResizeValidator {
    fn name(&self) -> &'static str {
        "PodResizeValidator"
    }

    fn concerns(&self, attributes: &Attributes<'_>) -> bool {
        attributes.operation == Operation::Update
            && attributes.subresource() == Some("resize")
            && attributes.target.kind.collection == PODS
    }

    fn validate<'a>(&'a self, attributes: &'a Attributes<'a>, states: States<'a>) -> Decision<'a> {
        let Some((_, pod, name)) = changes_bound(states) else { return Decision::ADMIT };
        Decision::later(async move {
            let node = node_of(&self.storage, attributes, pod, name).await?;
            let (why, cause) = match obstacle(pod, &node) {
                Some(obstacle) => obstacle,
                None => return Ok(()),
            };
            Err(attributes.forbidden(pod, why).with_cause(cause, "", ""))
        })
    }
}

/// Why a node cannot resize a pod, and the reason of the cause.
fn obstacle(pod: &Value, node: &Value) -> Option<(String, &'static str)> {
    let system = &node["metadata"]["labels"]["kubernetes.io/os"];
    if let Some(system) = system.as_str().filter(|system| *system != "linux") {
        let (name, system) = (quote(meta::name(node)), quote(system));
        let why = format!("pod resize is only supported on linux nodes, node {name} is {system}");
        return Some((why, "UnsupportedPlatform"));
    }
    let requests = of_pod(pod, Half::Requests);
    let allocatable = crate::reserve::amounts::Amounts::from_value(&node["status"]["allocatable"]);
    let mut short = Vec::new();
    for (name, milli) in [("cpu", true), ("memory", false)] {
        let (asked, there) = (requests.get(name).unwrap_or_default(), allocatable.get(name).unwrap_or_default());
        if asked > there {
            let shown =
                |amount: machinery::quantity::Quantity| if milli { amount.milli_value() } else { amount.value() };
            short.push(format!("{name}, requested: {}, allocatable: {}", shown(asked), shown(there)));
        }
    }
    let why = format!("node didn't have enough allocatable resources: {}", short.join("; "));
    (!short.is_empty()).then_some((why, "NodeCapacity"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pl_23_a_resize_must_fit_the_node() {
        let pod = |cpu: &str, memory: &str| json!({"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": cpu, "memory": memory}}}]}});
        let node = |system: &str| {
            json!({
                "metadata": {"name": "n", "labels": {"kubernetes.io/os": system}},
                "status": {"allocatable": {"cpu": "1", "memory": "1Mi"}},
            })
        };
        assert_eq!(obstacle(&pod("1", "1Mi"), &node("linux")), None);
        let why = "node didn't have enough allocatable resources: cpu, requested: 2000, allocatable: 1000; memory, \
                   requested: 2097152, allocatable: 1048576";
        assert_eq!(obstacle(&pod("2", "2Mi"), &node("linux")), Some((why.to_owned(), "NodeCapacity")));
        let why = "pod resize is only supported on linux nodes, node \"n\" is \"windows\"";
        assert_eq!(obstacle(&pod("1", "1Mi"), &node("windows")), Some((why.to_owned(), "UnsupportedPlatform")));
    }
}
