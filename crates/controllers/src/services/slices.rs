//! How the endpoints of a service are divided among slices.
//!
//! Slices are grouped by family and by what the ports of the service are on the pods. Within a group an endpoint stays
//! where it is; new ones go first into slices that must be written anyway, then into one that has room for all of them,
//! then into new ones. So few slices change, and every reader of slices is told little.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Node, Pod, Service};
use k8s_openapi::api::discovery::v1::{Endpoint, EndpointConditions, EndpointPort, EndpointSlice};
use kube::ResourceExt as _;
use std::sync::Arc;

use super::backends::{self, Family, Port};
use super::endpoints::HEADLESS;
use crate::owners;
use crate::pods::{is_ready, is_terminating};

/// So many endpoints at most in a slice (EP-4).
pub(super) const ENDPOINTS_MAX: usize = 100;
pub(super) const SERVICE_NAME: &str = "kubernetes.io/service-name";
pub(super) const MANAGED_BY: (&str, &str) =
    ("endpointslice.kubernetes.io/managed-by", "endpointslice-controller.k8s.io");
const ZONE: &str = "topology.kubernetes.io/zone";

/// What is to be written.
#[derive(Debug, Default)]
pub(super) struct Plan {
    pub(super) create: Vec<EndpointSlice>,
    pub(super) update: Vec<EndpointSlice>,
    pub(super) delete: Vec<EndpointSlice>,
    /// Pods left out because their node is unknown (EP-5).
    pub(super) skipped: Vec<String>,
}

/// An endpoint by what it is, whatever its state.
type Identity = (Vec<String>, String);

fn identity(endpoint: &Endpoint) -> Identity {
    let uid = endpoint.target_ref.as_ref().and_then(|target| target.uid.clone()).unwrap_or_default();
    (endpoint.addresses.clone(), uid)
}

/// What has to be written so that the slices say what the pods are.
pub(super) fn plan(
    service: &Service,
    pods: &[Arc<Pod>],
    node: impl Fn(&str) -> Option<Arc<Node>>,
    existing: &[Arc<EndpointSlice>],
) -> Plan {
    let mut plan = Plan::default();
    let families = backends::families(service);
    for family in &families {
        let slices = existing.iter().filter(|slice| slice.address_type == family.name());
        plan_family(service, pods, &node, slices.map(|slice| (**slice).clone()).collect(), *family, &mut plan);
    }
    let served = |slice: &Arc<EndpointSlice>| families.iter().any(|family| slice.address_type == family.name());
    plan.delete.extend(existing.iter().filter(|slice| !served(slice)).map(|slice| (**slice).clone()));
    plan
}

fn plan_family(
    service: &Service,
    pods: &[Arc<Pod>],
    node: &impl Fn(&str) -> Option<Arc<Node>>,
    existing: Vec<EndpointSlice>,
    family: Family,
    plan: &mut Plan,
) {
    let count = existing.len();
    let (ours, others): (Vec<_>, Vec<_>) = existing.into_iter().partition(|slice| is_owned_by(slice, service));
    let mut by_ports: BTreeMap<Vec<Port>, Vec<EndpointSlice>> = BTreeMap::new();
    for slice in ours {
        by_ports.entry(ports_of(&slice)).or_default().push(slice);
    }
    let mut create = Vec::new();
    let mut update = Vec::new();
    let mut delete = others;
    for (ports, wanted) in wanted(service, pods, node, family, plan) {
        let slices = by_ports.remove(&ports).unwrap_or_default();
        divide(service, family, ports, wanted, slices, &mut create, &mut update, &mut delete);
    }
    delete.extend(by_ports.into_values().flatten());
    if delete.len() == count && create.is_empty() && update.is_empty() {
        // Nobody answers. One empty slice says so.
        let placeholder = new_slice(service, family, &[]);
        match delete.as_slice() {
            [only] if is_same_placeholder(only, &placeholder) => delete.clear(),
            _ => create.push(placeholder),
        }
    }
    // A slice that would be deleted while another is created becomes that one.
    let mut kept = Vec::new();
    for slice in delete {
        match is_owned_by(&slice, service).then(|| create.pop()).flatten() {
            Some(new) => {
                let metadata = k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta {
                    labels: new.metadata.labels,
                    owner_references: new.metadata.owner_references,
                    ..slice.metadata
                };
                update.push(EndpointSlice { metadata, ..new });
            }
            None => kept.push(slice),
        }
    }
    plan.create.extend(create);
    plan.update.extend(update);
    plan.delete.extend(kept);
}

/// The endpoints there should be, by the ports they answer on.
fn wanted(
    service: &Service,
    pods: &[Arc<Pod>],
    node: &impl Fn(&str) -> Option<Arc<Node>>,
    family: Family,
    plan: &mut Plan,
) -> BTreeMap<Vec<Port>, BTreeMap<Identity, Endpoint>> {
    let mut groups: BTreeMap<Vec<Port>, BTreeMap<Identity, Endpoint>> = BTreeMap::new();
    let publishes_not_ready = backends::publishes_not_ready(service);
    for pod in pods.iter().filter(|pod| backends::counts(pod, true)) {
        let mut ports = backends::ports(service, pod);
        ports.sort();
        let group = groups.entry(ports).or_default();
        let node_name = pod.spec.as_ref().and_then(|spec| spec.node_name.clone()).unwrap_or_default();
        let its_node = node(&node_name);
        if its_node.is_none() && !publishes_not_ready {
            let (namespace, service) = (service.namespace().unwrap_or_default(), service.name_any());
            let pod = pod.name_any();
            plan.skipped
                .push(format!("skipping Pod {pod} for Service {namespace}/{service}: Node {node_name} Not Found"));
            continue;
        }
        let addresses = backends::addresses(pod, family);
        if addresses.is_empty() {
            continue;
        }
        let (serving, terminating) = (is_ready(pod), is_terminating(pod));
        let endpoint = Endpoint {
            addresses,
            conditions: Some(EndpointConditions {
                ready: Some(publishes_not_ready || (serving && !terminating)),
                serving: Some(serving),
                terminating: Some(terminating),
            }),
            hostname: backends::hostname(pod, service),
            node_name: Some(node_name).filter(|name| !name.is_empty()),
            target_ref: Some(backends::target(pod)),
            zone: its_node.and_then(|node| node.labels().get(ZONE).cloned()).filter(|zone| !zone.is_empty()),
            ..Endpoint::default()
        };
        group.insert(identity(&endpoint), endpoint);
    }
    groups
}

/// Divides the endpoints of one group among its slices.
fn divide(
    service: &Service,
    family: Family,
    ports: Vec<Port>,
    mut wanted: BTreeMap<Identity, Endpoint>,
    existing: Vec<EndpointSlice>,
    create: &mut Vec<EndpointSlice>,
    update: &mut Vec<EndpointSlice>,
    delete: &mut Vec<EndpointSlice>,
) {
    let labels = labels(service);
    let (mut changed, mut unchanged) = (Vec::new(), Vec::new());
    for mut slice in existing {
        let before = slice.endpoints.clone().unwrap_or_default();
        let kept: Vec<Endpoint> = before.iter().filter_map(|endpoint| wanted.remove(&identity(endpoint))).collect();
        let same_labels = slice.metadata.labels.as_ref() == Some(&labels);
        if kept.is_empty() && !before.is_empty() {
            delete.push(slice);
        } else if kept != before || !same_labels {
            slice.endpoints = Some(kept);
            slice.metadata.labels = Some(labels.clone());
            changed.push(slice);
        } else {
            unchanged.push(slice);
        }
    }
    // The fullest first.
    changed.sort_by_key(|slice| std::cmp::Reverse(len(slice)));
    changed.iter_mut().for_each(|slice| fill(slice, &mut wanted));
    while !wanted.is_empty() {
        let roomy = unchanged.iter().enumerate().filter(|(_, slice)| len(slice) + wanted.len() <= ENDPOINTS_MAX);
        let fullest = roomy.max_by_key(|(_, slice)| len(slice)).map(|(at, _)| at);
        match fullest {
            Some(at) => {
                let mut slice = unchanged.swap_remove(at);
                fill(&mut slice, &mut wanted);
                changed.push(slice);
            }
            None => {
                let mut slice = new_slice(service, family, &ports);
                fill(&mut slice, &mut wanted);
                create.push(slice);
            }
        }
    }
    update.extend(changed);
    // An empty slice beside others says nothing.
    if !create.is_empty() || !update.is_empty() || unchanged.iter().any(|slice| len(slice) > 0) {
        delete.extend(unchanged.into_iter().filter(|slice| len(slice) == 0));
    } else {
        delete.extend(unchanged);
    }
}

fn len(slice: &EndpointSlice) -> usize {
    slice.endpoints.as_ref().map_or(0, Vec::len)
}

fn fill(slice: &mut EndpointSlice, wanted: &mut BTreeMap<Identity, Endpoint>) {
    let endpoints = slice.endpoints.get_or_insert_default();
    while endpoints.len() < ENDPOINTS_MAX
        && let Some((_, endpoint)) = wanted.pop_first()
    {
        endpoints.push(endpoint);
    }
}

fn is_owned_by(slice: &EndpointSlice, service: &Service) -> bool {
    let owners = slice.owner_references().iter();
    service.metadata.uid.as_ref().is_some_and(|uid| owners.clone().any(|owner| owner.uid == *uid))
}

fn is_same_placeholder(slice: &EndpointSlice, placeholder: &EndpointSlice) -> bool {
    len(slice) == 0
        && ports_of(slice).is_empty()
        && slice.metadata.labels == placeholder.metadata.labels
        && slice.metadata.owner_references == placeholder.metadata.owner_references
}

fn ports_of(slice: &EndpointSlice) -> Vec<Port> {
    let ports = slice.ports.iter().flatten();
    let mut ports: Vec<Port> = ports
        .map(|port| Port {
            name: port.name.clone().unwrap_or_default(),
            number: port.port.unwrap_or_default(),
            protocol: port.protocol.clone().unwrap_or_else(|| "TCP".to_owned()),
            application: port.app_protocol.clone(),
        })
        .collect();
    ports.sort();
    ports
}

fn labels(service: &Service) -> BTreeMap<String, String> {
    let mut labels = service.labels().clone();
    labels.remove(HEADLESS);
    if backends::is_headless(service) {
        labels.insert(HEADLESS.to_owned(), String::new());
    }
    labels.insert(SERVICE_NAME.to_owned(), service.name_any());
    labels.insert(MANAGED_BY.0.to_owned(), MANAGED_BY.1.to_owned());
    labels
}

fn new_slice(service: &Service, family: Family, ports: &[Port]) -> EndpointSlice {
    let mut slice = EndpointSlice {
        address_type: family.name().to_owned(),
        endpoints: Some(Vec::new()),
        ports: Some(
            ports
                .iter()
                .map(|port| EndpointPort {
                    name: Some(port.name.clone()),
                    port: Some(port.number),
                    protocol: Some(port.protocol.clone()),
                    app_protocol: port.application.clone(),
                })
                .collect(),
        ),
        ..EndpointSlice::default()
    };
    slice.metadata.generate_name = Some(format!("{}-", service.name_any()));
    slice.metadata.namespace = service.metadata.namespace.clone();
    slice.metadata.labels = Some(labels(service));
    slice.metadata.owner_references = Some(vec![owners::reference(service)]);
    slice
}
