//! Who answers for a service: its pods as Endpoints and as EndpointSlices.
//!
//! - `backends`: which pods answer, under which address and on which ports
//! - `endpoints`: the one object a service that older clients read
//! - `slices`: how endpoints are divided among slices; `slice_controller`: making the slices so
//! - `triggers`: since when what is said is so
//! - this file: which services a change of a pod concerns

mod backends;
pub(crate) mod endpoints;
pub(crate) mod slice_controller;
mod slices;
#[cfg(test)]
mod slices_tests;
mod triggers;

use std::sync::Arc;
use std::time::Duration;

use client::controller::Predicate;
use client::informer::Event;
use client::store::Store;
use client::workqueue::WorkQueue;
use client::{Error, Key};
use k8s_openapi::api::core::v1::{Pod, Service};

use crate::pods;

const WORKERS: usize = 5;
/// After so many failures in a row a service waits for the next change.
const TRIES: u32 = 15;
/// Changes of pods that come together are answered together: without it a service of 1 000 pods would be written 1 000
/// times, each time whole.
const BATCH: Duration = Duration::from_millis(20);

/// Whether the controllers say who answers for a service (EP-1).
fn is_ours(service: &Service) -> bool {
    let Some(spec) = &service.spec else { return false };
    spec.type_.as_deref() != Some("ExternalName") && spec.selector.is_some()
}

fn selects(service: &Service, pod: &Pod) -> bool {
    let Some(selector) = service.spec.as_ref().and_then(|spec| spec.selector.as_ref()) else { return false };
    let labels = pod.metadata.labels.as_ref();
    !selector.is_empty() && selector.iter().all(|(name, value)| labels.and_then(|all| all.get(name)) == Some(value))
}

/// The pods of a service.
fn pods_of(service: &Service, pods: &Store<Pod>) -> Vec<Arc<Pod>> {
    let namespace = service.metadata.namespace.as_deref().unwrap_or_default();
    pods.snapshot().in_namespace(namespace).filter(|pod| selects(service, pod)).cloned().collect()
}

/// Brings the services of a pod that changed into the queue.
fn wakes_services(services: Store<Service>, queue: WorkQueue<Key>) -> Predicate<Pod> {
    Predicate::new(move |event| {
        let states: Vec<&Arc<Pod>> = match event {
            Event::Updated { old, new } if !says_another(old, new) => return false,
            Event::Updated { old, new } => vec![old, new],
            Event::Added { object, .. } | Event::Deleted { object, .. } => vec![object],
            _ => return false,
        };
        let Some(namespace) = states[0].metadata.namespace.as_deref() else { return false };
        for service in services.snapshot().in_namespace(namespace) {
            if states.iter().any(|pod| selects(service, pod)) {
                queue.add_after(Key::of(&**service), BATCH);
            }
        }
        false
    })
}

/// Whether a change of a pod can change what is said of it.
fn says_another(old: &Pod, new: &Pod) -> bool {
    let said = |pod: &Pod| {
        let spec = pod.spec.as_ref();
        let status = pod.status.as_ref();
        (
            pods::is_terminating(pod),
            pods::is_terminal(pod),
            pods::is_ready(pod),
            status.and_then(|status| status.pod_ips.clone()),
            spec.and_then(|spec| spec.node_name.clone()),
            spec.and_then(|spec| spec.hostname.clone()),
            pod.metadata.labels.clone(),
        )
    };
    said(old) != said(new)
}

/// What a write that came too late for its object ends in.
fn unless_gone<T>(written: Result<T, Error>) -> Result<Option<T>, Error> {
    match written {
        Ok(written) => Ok(Some(written)),
        Err(error) if error.is_not_found() || crate::reconciling::is_namespace_terminating(&error) => Ok(None),
        Err(error) => Err(error),
    }
}
