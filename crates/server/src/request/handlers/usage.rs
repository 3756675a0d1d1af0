//! GET of what nodes and pods use: computed from the objects of the cluster for each answer.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use bytes::Bytes;
use machinery::Status;
use machinery::json::{Value, json};
use machinery::options::ListOptions;
use registry::{MadeList, Registry, Shape, Target, View};

use crate::request::handlers::Call;
use crate::request::operation::Operation;
use crate::request::reply::{self, Reply};
use crate::request::routing::ResourceRoute;
use crate::usage::{Amounts, PodUsage, Usage};

const NODES: &str = "core/nodes";
const PODS: &str = "core/pods";
/// The time that a measurement covers, in the words of the API.
const WINDOW: &str = "15s";

pub(super) async fn answer(call: &Call<'_>, route: &ResourceRoute) -> Result<Reply, Status> {
    let asked = call.negotiate(route)?;
    let Some(usage) = call.server.usage.get() else {
        return Err(Status::service_unavailable("no node is measured yet"));
    };
    let target = &route.target;
    let options = match route.operation {
        Operation::List => call.list_options().await?,
        _ => ListOptions::default(),
    };
    for requirement in options.field_selector.requirements() {
        if target.kind.selectable(&requirement.field).is_none() {
            return Err(Status::bad_request(target.kind.unknown_field_message(&requirement.field)));
        }
    }
    let now = call.server.clock.now();
    let request = Measuring {
        registry: Arc::clone(call.registry),
        usage: Arc::clone(usage),
        target: target.clone(),
        options,
        timestamp: now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
        with_sums: matches!(asked.form.shape, Shape::Table { .. }),
    };
    let pods = call.registry.cache().collection(PODS).len();
    let mut items = if pods >= call.server.limits.heavy_checks_min {
        let bytes = call.server.limits.heavy_bytes_min;
        Box::pin(call.heavy(bytes, async move { Ok(request.items()) })).await?
    } else {
        request.items()
    };
    if let Some(name) = &target.name {
        let kind = Some(Arc::clone(&target.kind));
        let value = items.pop().ok_or_else(|| missing(target, name))?;
        return call.show(200, View::Made { kind, value }, target, &asked).await;
    }
    asked.fits_list(&target.kind)?;
    let list = MadeList { kind: Arc::clone(&target.kind), items };
    Ok(reply::rendered(200, asked.form.encoding, list.render(&asked.form, now)?))
}

/// The resource has the name of the kind in this message, and a pod its namespace.
fn missing(target: &Target, name: &str) -> Status {
    let resource = machinery::GroupResource::new(&*target.kind.gvk.group, target.kind.gvk.kind.to_lowercase());
    match &target.namespace {
        Some(namespace) => Status::not_found(&resource, &format!("{namespace}/{name}")),
        None => Status::not_found(&resource, name),
    }
}

/// A request for what nodes or pods use.
struct Measuring {
    registry: Arc<Registry>,
    usage: Arc<dyn Usage>,
    target: Target,
    options: ListOptions,
    timestamp: String,
    /// Whether a pod shows the sum of its containers, for a table.
    with_sums: bool,
}

impl Measuring {
    fn items(&self) -> Vec<Value> {
        let mut items = if self.target.kind.namespaced { self.pods() } else { self.nodes() };
        items.retain(|item| self.selects(item));
        items
    }

    fn selects(&self, item: &Value) -> bool {
        let kind = &self.target.kind;
        let is_named = self.target.name.as_ref().is_none_or(|name| item["metadata"]["name"] == name.as_str());
        let has = |field: &str, expected: &machinery::fields::Requirement| {
            kind.selectable(field).is_some_and(|field| expected.accepts(&field.value(item)))
        };
        is_named
            && self.options.label_selector.matches_value(&item["metadata"]["labels"])
            && self.options.field_selector.requirements().iter().all(|wanted| has(&wanted.field, wanted))
    }

    fn nodes(&self) -> Vec<Value> {
        let mut by_node: HashMap<String, Amounts> = HashMap::new();
        for pod in self.measured_pods(None) {
            let total = pod.total();
            let sum = by_node.entry(pod.node).or_default();
            *sum = std::mem::take(sum).plus(total);
        }
        let node = |node: MeasuredNode| {
            let used = self.usage.of_node(&node.json, by_node.remove(&node.name).unwrap_or_default());
            self.object(json!({"name": node.name, "labels": node.labels}), "usage", used.to_value())
        };
        self.measured_nodes().into_iter().map(node).collect()
    }

    fn pods(&self) -> Vec<Value> {
        let pods = self.measured_pods(self.target.namespace.as_deref());
        let pod = |pod: &PodUsage| {
            let containers: Value =
                pod.containers.iter().map(|(name, used)| json!({"name": name, "usage": used.to_value()})).collect();
            let metadata = json!({"name": pod.name, "namespace": pod.namespace, "labels": pod.labels});
            let mut object = self.object(metadata, "containers", containers);
            if self.with_sums {
                object["usage"] = pod.total().to_value();
            }
            object
        };
        pods.iter().map(pod).collect()
    }

    fn object(&self, mut metadata: Value, field: &str, value: Value) -> Value {
        metadata["creationTimestamp"] = self.timestamp.as_str().into();
        let mut object = json!({
            "kind": self.target.kind.gvk.kind,
            "apiVersion": self.target.kind.group_version().to_string(),
            "metadata": metadata,
            "timestamp": self.timestamp,
            "window": WINDOW,
        });
        object[field] = value;
        object
    }

    fn measured_nodes(&self) -> Vec<MeasuredNode> {
        let cache = self.registry.cache();
        let collection = cache.collection(NODES);
        let snapshot = cache.snapshot(&collection);
        let measured = snapshot
            .scan(collection.name(), None, None)
            .filter(|node| self.usage.is_measured(&|label| node.label(label).map(str::to_owned)));
        measured.map(|node| MeasuredNode::new(node.name(), node.labels(), node.encoded().whole())).collect()
    }

    fn measured_pods(&self, namespace: Option<&str>) -> Vec<PodUsage> {
        let nodes: HashSet<String> = self.measured_nodes().into_iter().map(|node| node.name).collect();
        let cache = self.registry.cache();
        let collection = cache.collection(PODS);
        let snapshot = cache.snapshot(&collection);
        let pods: Vec<Bytes> =
            snapshot.scan(collection.name(), namespace, None).map(|pod| pod.encoded().whole().clone()).collect();
        let mut pods = self.usage.of_pods(&pods);
        pods.retain(|pod| nodes.contains(&pod.node));
        pods
    }
}

struct MeasuredNode {
    name: String,
    labels: Value,
    json: Bytes,
}

impl MeasuredNode {
    fn new(name: &str, labels: &[(Box<str>, Box<str>)], json: &Bytes) -> Self {
        let labels = labels.iter().map(|(key, value)| (key.to_string(), Value::from(&**value))).collect();
        MeasuredNode { name: name.to_owned(), labels, json: json.clone() }
    }
}
