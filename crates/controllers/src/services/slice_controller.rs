//! The controller that writes the slices of services.

use std::sync::Arc;
use std::time::Duration;

use client::controller::{Action, OwnerMatch, Predicate, Run, RunError};
use client::events::EventType;
use client::informer::Event;
use client::store::Store;
use client::workqueue::ItemExponential;
use client::{Error, Key};
use k8s_openapi::api::core::v1::{Node, Pod, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::DeleteParams;
use kube::{Resource as _, ResourceExt as _};

use super::slices::{MANAGED_BY, Plan, SERVICE_NAME, plan};
use super::triggers::{Triggers, annotate};
use super::{TRIES, WORKERS, enqueue_services, is_ours, pods_of, unless_deleted};
use crate::context::{Context, Tools};
use crate::reconciling::{self, server_message};

/// Runs until the context's stop.
pub(crate) async fn run(context: Context) {
    let services = context.informers.informer::<Service>();
    let pods = context.informers.informer::<Pod>();
    let nodes = context.informers.informer::<Node>();
    let slices = context.informers.informer::<EndpointSlice>();
    let tools = context.tools("endpoint-slice-controller").follow(&slices);
    let controller = context.controller("endpointslice").limiter(limiter()).read_your_writes(tools.writes.clone());
    let queue = controller.queue();
    let touched = Predicate::new(|event: &Event<EndpointSlice>| {
        let ours = |slice: &Arc<EndpointSlice>| slice.labels().get(MANAGED_BY.0).is_some_and(|by| by == MANAGED_BY.1);
        matches!(event, Event::Updated { old: slice, .. } | Event::Deleted { object: slice, .. } if ours(slice))
    });
    let controller = controller
        .on(&services, Predicate::version_changed())
        .on(&pods, enqueue_services(services.store(), queue))
        .owned(&slices, OwnerMatch::of::<Service>(&()), touched);
    let reconciler = Arc::new(Reconciler {
        tools: tools.clone(),
        services: services.store(),
        pods: pods.store(),
        nodes: nodes.store(),
        slices: slices.store(),
        triggers: Triggers::default(),
    });
    let reconcile = move |run: Run| {
        let reconciler = reconciler.clone();
        async move { reconciling::give_up_after(TRIES, &run, reconciler.reconcile(&run.key).await) }
    };
    context.informers.start(&context.stop);
    // No event of a node wakes a service, so the controller does not wait for them by itself.
    if context.stop.run_until_cancelled(nodes.wait_synced()).await.is_some() {
        reconciling::run(context, controller, WORKERS, reconcile).await;
    }
}

/// A second after a failure, doubled, up to 1000 s (EP-8).
fn limiter() -> ItemExponential<Key> {
    ItemExponential::new(Duration::from_secs(1), Duration::from_secs(1000))
}

struct Reconciler {
    tools: Tools,
    services: Store<Service>,
    pods: Store<Pod>,
    nodes: Store<Node>,
    slices: Store<EndpointSlice>,
    triggers: Triggers,
}

impl Reconciler {
    async fn reconcile(&self, key: &Key) -> Result<Action, RunError> {
        let Some(service) = self.services.get(key) else {
            // The garbage collector deletes its slices: it owns them.
            self.triggers.forget(key);
            self.tools.writes.forget(key);
            return Ok(Action::done());
        };
        if !is_ours(&service) {
            return Ok(Action::done());
        }
        let pods = pods_of(&service, &self.pods);
        let since = self.triggers.since(&service, &pods);
        let existing = self.slices_of(&service);
        let plan = plan(&service, &pods, |name| self.nodes.get(&Key::new(None, name)), &existing);
        let skipped = plan.skipped.join(", ");
        self.carry_out(&service, plan, since).await.map_err(|error| self.report(&service, error))?;
        if skipped.is_empty() { Ok(Action::done()) } else { Err(RunError::retry(skipped)) }
    }

    fn slices_of(&self, service: &Service) -> Vec<Arc<EndpointSlice>> {
        let (namespace, name) = (service.namespace().unwrap_or_default(), service.name_any());
        let snapshot = self.slices.snapshot();
        let ours = |slice: &&Arc<EndpointSlice>| {
            let labels = slice.labels();
            labels.get(SERVICE_NAME) == Some(&name)
                && labels.get(MANAGED_BY.0).is_some_and(|by| by == MANAGED_BY.1)
                && slice.metadata.deletion_timestamp.is_none()
        };
        snapshot.in_namespace(&namespace).filter(ours).cloned().collect()
    }

    async fn carry_out(&self, service: &Service, plan: Plan, since: Option<jiff::Timestamp>) -> Result<(), Error> {
        let writer = self.tools.writer(service);
        // A service that is being deleted gets no new slices: they would only have to be collected.
        let create = if service.metadata.deletion_timestamp.is_none() { plan.create } else { Vec::new() };
        for mut slice in create {
            annotate(&mut slice.metadata.annotations, since);
            unless_deleted(writer.create(&slice).await)?;
        }
        for mut slice in plan.update {
            annotate(&mut slice.metadata.annotations, since);
            unless_deleted(writer.replace(slice).await)?;
        }
        for slice in plan.delete {
            unless_deleted(writer.delete(&slice, &DeleteParams::default()).await)?;
        }
        Ok(())
    }

    fn report(&self, service: &Service, error: Error) -> RunError {
        // After a conflict the next run sees the slice as it is now.
        if !error.is_conflict() {
            let message = format!(
                "Error updating Endpoint Slices for Service {}/{}: {}",
                service.namespace().unwrap_or_default(),
                service.name_any(),
                server_message(&error)
            );
            let about = service.object_ref(&());
            self.tools.recorder.record(&about, EventType::Warning, "FailedToUpdateEndpointSlices", &message);
        }
        RunError::retry(error)
    }
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "a moment to begin with")]
mod tests {
    use super::*;
    use client::workqueue::RateLimiter as _;

    #[tokio::test(start_paused = true)]
    async fn ep_8_a_second_doubled_up_to_a_thousand_and_fifteen_times() {
        let (limiter, key) = (limiter(), Key::new(Some("default"), "web"));
        let mut waits = Vec::new();
        loop {
            let run = Run { key: key.clone(), id: 1, failures: limiter.retries(&key) };
            match reconciling::give_up_after(TRIES, &run, Err(RunError::retry("again"))) {
                Err(RunError::Retry(_)) => waits.push(limiter.when(&key, tokio::time::Instant::now()).as_secs()),
                _ => break,
            }
            tokio::time::advance(Duration::from_secs(1000)).await;
        }
        assert_eq!(waits, [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1000, 1000, 1000, 1000, 1000]);
    }
}
