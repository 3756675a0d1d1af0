//! Endpoints: the addresses behind a service in one object, for clients that know no slices.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use client::controller::{Action, Predicate, Run, RunError};
use client::events::EventType;
use client::informer::{Event, InformerConfig, SharedInformer};
use client::list_watch::ApiListWatch;
use client::reflector::ReflectorConfig;
use client::store::Store;
use client::{Error, Key};
use k8s_openapi::api::core::v1::{
    EndpointAddress, EndpointPort, EndpointSubset, Endpoints, ObjectReference, Pod, Service,
};
use kube::ResourceExt as _;
use kube::api::DeleteParams;

use super::backends::{self, Port};
use super::triggers::{Triggers, annotate};
use super::{TRIES, WORKERS, enqueue_services, is_ours, pods_of, unless_deleted};
use crate::context::{Context, Tools};
use crate::pods::is_ready;
use crate::reconciling::{self, server_message};
use crate::requests::Api;

/// Most addresses of one Endpoints object (EP-6).
const ADDRESSES_MAX: usize = 1000;
const OVER_CAPACITY: &str = "endpoints.kubernetes.io/over-capacity";
const MANAGED_BY: (&str, &str) = ("endpoints.kubernetes.io/managed-by", "endpoint-controller");
pub(super) const HEADLESS: &str = "service.kubernetes.io/headless";
/// Endpoints that are a lock and not a service.
const LEADER: &str = "control-plane.alpha.kubernetes.io/leader";

/// Runs until the context's stop.
pub(crate) async fn run(context: Context) {
    let services = context.informers.informer::<Service>();
    let pods = context.informers.informer::<Pod>();
    // An old kind, and its only reader knows.
    let source = ApiListWatch::all::<Endpoints>(context.reader.clone()).without_warnings();
    let reflector = ReflectorConfig { without_managed_fields: true, ..ReflectorConfig::default() };
    let endpoints = SharedInformer::new(source, InformerConfig { reflector, ..InformerConfig::default() });
    let tools = context.tools("endpoint-controller").follow(&endpoints);
    let controller = context.controller("endpoint").read_your_writes(tools.writes.clone());
    let queue = controller.queue();
    // Endpoints of services that were deleted while no controller ran, and endpoints that another client deleted.
    let left_over = Predicate::new(|event: &Event<Endpoints>| match event {
        Event::Added { object, initial: true } => !object.annotations().contains_key(LEADER),
        Event::Deleted { .. } => true,
        _ => false,
    });
    let controller = controller
        .on(&services, Predicate::version_changed())
        .on(&pods, enqueue_services(services.store(), queue))
        .on(&endpoints, left_over);
    match endpoints.start(context.stop.clone()) {
        Ok(run) => context.tasks.spawn(run),
        Err(error) => return tracing::error!(%error, "cannot start an informer"),
    };
    let reconciler = Arc::new(Reconciler {
        tools: tools.clone(),
        services: services.store(),
        pods: pods.store(),
        endpoints: endpoints.store(),
        triggers: Triggers::default(),
    });
    let reconcile = move |run: Run| {
        let reconciler = reconciler.clone();
        async move { reconciling::give_up_after(TRIES, &run, reconciler.reconcile(&run.key).await) }
    };
    reconciling::run(context, controller, WORKERS, reconcile).await;
}

struct Reconciler {
    tools: Tools,
    services: Store<Service>,
    pods: Store<Pod>,
    endpoints: Store<Endpoints>,
    triggers: Triggers,
}

impl Reconciler {
    async fn reconcile(&self, key: &Key) -> Result<Action, RunError> {
        let Some(service) = self.services.get(key) else {
            self.triggers.forget(key);
            self.tools.writes.forget(key);
            if self.endpoints.get(key).is_some() {
                let api = Api::<Endpoints>::namespaced(&self.tools.client, key.namespace().unwrap_or_default());
                unless_deleted(api.delete(key.name(), &DeleteParams::default()).await)?;
            }
            return Ok(Action::done());
        };
        if !is_ours(&service) {
            return Ok(Action::done());
        }
        let pods = pods_of(&service, &self.pods);
        let since = self.triggers.since(&service, &pods);
        let known = self.endpoints.get(key);
        let Some(mut wanted) = wanted(&service, &pods, known.as_deref()) else { return Ok(Action::done()) };
        annotate(&mut wanted.metadata.annotations, since);
        let writer = self.tools.writer(&*service);
        let written = match known {
            None => writer.create(&wanted).await,
            Some(_) => writer.replace(wanted.clone()).await,
        };
        if let Err(error) = unless_deleted(written) {
            self.report(&wanted, key, &error);
            return Err(error.into());
        }
        Ok(Action::done())
    }

    fn report(&self, endpoints: &Endpoints, key: &Key, error: &Error) {
        let error = server_message(error);
        let about = ObjectReference {
            api_version: Some("v1".to_owned()),
            kind: Some("Endpoints".to_owned()),
            namespace: key.namespace().map(str::to_owned),
            name: Some(key.name().to_owned()),
            uid: endpoints.metadata.uid.clone(),
            resource_version: endpoints.metadata.resource_version.clone(),
            ..ObjectReference::default()
        };
        let (reason, message) = match endpoints.metadata.resource_version {
            None => ("FailedToCreateEndpoint", format!("Failed to create endpoint for service {key}: {error}")),
            Some(_) => ("FailedToUpdateEndpoint", format!("Failed to update endpoint {key}: {error}")),
        };
        self.tools.recorder.record(&about, EventType::Warning, reason, &message);
    }
}

/// The object as it should be; none if it is.
fn wanted(service: &Service, pods: &[Arc<Pod>], known: Option<&Endpoints>) -> Option<Endpoints> {
    let (subsets, truncated) = truncate(subsets(service, pods));
    let mut wanted = known.cloned().unwrap_or_default();
    wanted.metadata.name = service.metadata.name.clone();
    wanted.metadata.namespace = service.metadata.namespace.clone();
    wanted.subsets = (!subsets.is_empty()).then_some(subsets);
    let mut labels = service.labels().clone();
    labels.remove(HEADLESS);
    if backends::is_headless(service) {
        labels.insert(HEADLESS.to_owned(), String::new());
    }
    labels.insert(MANAGED_BY.0.to_owned(), MANAGED_BY.1.to_owned());
    wanted.metadata.labels = Some(labels);
    if truncated {
        wanted.annotations_mut().insert(OVER_CAPACITY.to_owned(), "truncated".to_owned());
    } else if let Some(annotations) = &mut wanted.metadata.annotations {
        annotations.remove(OVER_CAPACITY);
    }
    (known != Some(&wanted)).then_some(wanted)
}

/// The addresses of a port by IP and UID, with their readiness.
type Addresses = BTreeMap<(IpAddr, String), (EndpointAddress, bool)>;

/// The addresses behind a service: those that answer on the same ports together.
fn subsets(service: &Service, pods: &[Arc<Pod>]) -> Vec<EndpointSubset> {
    let publishes_not_ready = backends::publishes_not_ready(service);
    let no_ports = service.spec.as_ref().and_then(|spec| spec.ports.as_ref()).is_none_or(Vec::is_empty);
    let family = backends::families(service)[0];
    // By port; none is the port of a headless service without any.
    let mut by_port: BTreeMap<Option<Port>, Addresses> = BTreeMap::new();
    for pod in pods.iter().filter(|pod| backends::counts(pod, publishes_not_ready)) {
        let Some(ip) = backends::addresses(pod, family).into_iter().next() else { continue };
        let Ok(parsed) = ip.parse::<IpAddr>() else { continue };
        let address = EndpointAddress {
            ip,
            hostname: backends::hostname(pod, service),
            node_name: pod.spec.as_ref().and_then(|spec| spec.node_name.clone()),
            target_ref: Some(backends::target(pod)),
        };
        let ready = publishes_not_ready || is_ready(pod);
        let key = (parsed, pod.uid().unwrap_or_default());
        let ports: Vec<Option<Port>> = match no_ports {
            true if backends::is_headless(service) => vec![None],
            true => Vec::new(),
            false => backends::ports(service, pod).into_iter().map(Some).collect(),
        };
        for port in ports {
            by_port.entry(port).or_default().insert(key.clone(), (address.clone(), ready));
        }
    }
    let mut groups: Vec<(Vec<Port>, Addresses)> = Vec::new();
    for (port, addresses) in by_port {
        match groups.iter_mut().find(|(_, known)| *known == addresses) {
            Some((ports, _)) => ports.extend(port),
            None => groups.push((port.into_iter().collect(), addresses)),
        }
    }
    groups.into_iter().map(|(ports, addresses)| subset(ports, addresses)).collect()
}

fn subset(ports: Vec<Port>, addresses: Addresses) -> EndpointSubset {
    let (ready, not_ready): (Vec<_>, Vec<_>) = addresses.into_values().partition(|(_, ready)| *ready);
    let some = |all: Vec<(EndpointAddress, bool)>| -> Option<Vec<EndpointAddress>> {
        (!all.is_empty()).then(|| all.into_iter().map(|(address, _)| address).collect())
    };
    let ports: Vec<EndpointPort> = ports
        .into_iter()
        .map(|port| EndpointPort {
            name: Some(port.name).filter(|name| !name.is_empty()),
            port: port.number,
            protocol: Some(port.protocol),
            app_protocol: port.application,
        })
        .collect();
    EndpointSubset {
        addresses: some(ready),
        not_ready_addresses: some(not_ready),
        ports: (!ports.is_empty()).then_some(ports),
    }
}

/// Keeps ready addresses before others, and no more than there may be.
fn truncate(mut subsets: Vec<EndpointSubset>) -> (Vec<EndpointSubset>, bool) {
    let mut room = ADDRESSES_MAX;
    let mut truncated = false;
    let mut cut = |addresses: &mut Option<Vec<EndpointAddress>>| {
        if let Some(all) = addresses {
            truncated |= all.len() > room;
            all.truncate(room);
            room -= all.len();
            if all.is_empty() {
                *addresses = None;
            }
        }
    };
    subsets.iter_mut().for_each(|subset| cut(&mut subset.addresses));
    subsets.iter_mut().for_each(|subset| cut(&mut subset.not_ready_addresses));
    subsets.retain(|subset| subset.addresses.is_some() || subset.not_ready_addresses.is_some());
    (subsets, truncated)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn service(spec: Value) -> Service {
        let service = json!({"metadata": {"name": "s", "namespace": "n", "labels": {"l": "1"}}, "spec": spec});
        serde_json::from_value(service).unwrap()
    }

    fn pod(name: &str, ip: &str, ready: bool) -> Arc<Pod> {
        let ready = if ready { "True" } else { "False" };
        let pod = json!({
            "metadata": {"name": name, "namespace": "n", "uid": name},
            "spec": {"nodeName": "node", "containers": [{"name": "c", "ports": [{"name": name, "containerPort": 1}]}]},
            "status": {"phase": "Running", "podIPs": [{"ip": ip}], "conditions": [{"type": "Ready", "status": ready}]},
        });
        Arc::new(serde_json::from_value(pod).unwrap())
    }

    fn said(subsets: &[EndpointSubset]) -> Vec<String> {
        let ips = |all: &Option<Vec<EndpointAddress>>| {
            all.iter().flatten().map(|address| address.ip.clone()).collect::<Vec<_>>().join(" ")
        };
        let ports = |all: &Option<Vec<EndpointPort>>| {
            all.iter().flatten().map(|port| port.port.to_string()).collect::<Vec<_>>().join(" ")
        };
        let one = |s: &EndpointSubset| {
            format!("{} | {} | {}", ips(&s.addresses), ips(&s.not_ready_addresses), ports(&s.ports))
        };
        subsets.iter().map(one).collect()
    }

    #[test]
    fn ep_6_addresses_that_answer_on_the_same_ports_stand_together() {
        let two = json!({"ports": [{"name": "a", "port": 80}, {"name": "b", "port": 81}], "clusterIP": "10.0.0.1"});
        let pods = [pod("a", "10.1.0.10", true), pod("b", "10.1.0.9", true), pod("c", "10.1.0.8", false)];
        assert_eq!(said(&subsets(&service(two), &pods)), ["10.1.0.9 10.1.0.10 | 10.1.0.8 | 80 81"]);
        let named = json!({"ports": [{"name": "a", "port": 80}, {"name": "b", "port": 81, "targetPort": "b"}], "clusterIP": "10.0.0.1"});
        let apart = said(&subsets(&service(named), &pods[..2]));
        assert_eq!(apart, ["10.1.0.9 10.1.0.10 |  | 80", "10.1.0.9 |  | 1"]);
        let headless = service(json!({"clusterIP": "None"}));
        assert_eq!(said(&subsets(&headless, &pods[..1])), ["10.1.0.10 |  | "]);
        let publishes = json!({"clusterIP": "None", "publishNotReadyAddresses": true});
        assert_eq!(said(&subsets(&service(publishes), &pods[2..])), ["10.1.0.8 |  | "]);
    }

    #[test]
    fn ep_6_more_than_a_thousand_are_cut_and_that_is_said() {
        let some = service(json!({"ports": [{"port": 80}], "clusterIP": "10.0.0.1"}));
        let mut pods: Vec<Arc<Pod>> =
            (0..999).map(|at| pod(&format!("p{at}"), &format!("10.1.{}.{}", at / 250, at % 250 + 1), true)).collect();
        pods.push(pod("x", "10.9.0.1", false));
        assert!(!wanted(&some, &pods, None).unwrap().annotations().contains_key(OVER_CAPACITY));
        pods.push(pod("y", "10.9.0.2", false));
        let cut = wanted(&some, &pods, None).unwrap();
        assert_eq!(cut.annotations()[OVER_CAPACITY], "truncated");
        let subset = &cut.subsets.as_ref().unwrap()[0];
        let lens = (subset.addresses.as_ref().unwrap().len(), subset.not_ready_addresses.as_ref().unwrap().len());
        assert_eq!(lens, (999, 1));
        assert!(wanted(&some, &pods, Some(&cut)).is_none(), "nothing changed, nothing is written");
        let again = wanted(&some, &pods[..3], Some(&cut)).unwrap();
        assert!(!again.annotations().contains_key(OVER_CAPACITY));
    }

    #[test]
    fn ep_6_labels_are_those_of_the_service_and_who_manages() {
        let made = wanted(&service(json!({"clusterIP": "None"})), &[], None).unwrap();
        let labels: Vec<(&str, &str)> = made.labels().iter().map(|(name, value)| (&**name, &**value)).collect();
        assert_eq!(
            labels,
            [
                ("endpoints.kubernetes.io/managed-by", "endpoint-controller"),
                ("l", "1"),
                ("service.kubernetes.io/headless", "")
            ]
        );
    }
}
