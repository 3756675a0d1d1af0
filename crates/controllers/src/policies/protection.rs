//! Claims that pods use and volumes that are bound stay until they are not: a finalizer holds them.

use std::sync::Arc;

use client::controller::{Action, Predicate, Run, RunError};
use client::informer::Event;
use client::retry::{RetrySteps, retry_on_conflict};
use client::{Error, Key};
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, Pod};
use kube::{Client, Resource, ResourceExt as _};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::context::Context;
use crate::reconciling;
use crate::requests::Api;

const OF_CLAIMS: &str = "kubernetes.io/pvc-protection";
const OF_VOLUMES: &str = "kubernetes.io/pv-protection";

/// The change of a finalizer.
#[derive(Debug, PartialEq, Eq)]
enum Step {
    Add,
    /// If the object is not in use.
    Remove,
    Nothing,
}

fn step<K: Resource>(object: &K, finalizer: &str) -> Step {
    let has = object.finalizers().iter().any(|held| held == finalizer);
    match (object.meta().deletion_timestamp.is_some(), has) {
        (false, false) => Step::Add,
        (true, true) => Step::Remove,
        _ => Step::Nothing,
    }
}

/// Adds or removes a finalizer, whatever others write meanwhile.
async fn set<K>(api: &Api<K>, name: &str, finalizer: &str, held: bool) -> Result<(), Error>
where
    K: Resource<DynamicType = ()> + DeserializeOwned + Serialize,
{
    let attempt = || async {
        let Some(object) = api.get(name).await? else { return Ok(()) };
        let wanted = if held { Step::Add } else { Step::Remove };
        if step(&object, finalizer) != wanted {
            return Ok(());
        }
        let mut object = object;
        object.finalizers_mut().retain(|one| one != finalizer);
        if held {
            object.finalizers_mut().push(finalizer.to_owned());
        }
        // An update and not a patch: that is what the role of the controller allows.
        match api.replace(&object).await {
            Err(error) if error.is_not_found() => Ok(()),
            other => other.map(|_| ()),
        }
    };
    retry_on_conflict(RetrySteps::DEFAULT, attempt).await
}

/// Runs the protection of claims until the context's stop.
pub(crate) async fn run_claims(context: Context) {
    let claims = context.informers.informer::<PersistentVolumeClaim>();
    let pods = context.informers.informer::<Pod>();
    let ended = Predicate::new(|event: &Event<Pod>| matches!(event, Event::Deleted { .. }));
    let controller = context
        .controller("pvc-protection")
        .on(&claims, Predicate::new(|event| !matches!(event, Event::Deleted { .. })))
        .mapped(&pods, claims_of, ended);
    let (claims, pods, client) = (claims.store(), pods.store(), context.client.clone());
    let reconcile = move |run: Run| {
        let step = claims.get(&run.key).map_or(Step::Nothing, |claim| step(&*claim, OF_CLAIMS));
        let namespace = run.key.namespace().unwrap_or_default().to_owned();
        let used = step == Step::Remove && {
            let uses = |pod: &Arc<Pod>| uses(pod, run.key.name());
            pods.snapshot().in_namespace(&namespace).any(uses)
        };
        let client = client.clone();
        async move {
            let api = Api::<PersistentVolumeClaim>::namespaced(&client, &namespace);
            match step {
                Step::Add => set(&api, run.key.name(), OF_CLAIMS, true).await?,
                Step::Remove if !used && !is_used(&client, &run.key).await? => {
                    set(&api, run.key.name(), OF_CLAIMS, false).await?;
                }
                _ => {}
            }
            Ok::<_, RunError>(Action::done())
        }
    };
    reconciling::run(context, controller, 1, reconcile).await;
}

/// True if a pod uses a claim, by a live read: the watch may not have shown a pod that was just bound.
async fn is_used(client: &Client, claim: &Key) -> Result<bool, Error> {
    let api = Api::<Pod>::namespaced(client, claim.namespace().unwrap_or_default());
    Ok(api.list().await?.iter().any(|pod| uses(pod, claim.name())))
}

/// A pod without a node will not be started with a claim that is being deleted.
fn uses(pod: &Pod, claim: &str) -> bool {
    let on_node = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()).is_some_and(|node| !node.is_empty());
    on_node && claims_of(pod).iter().any(|key| key.name() == claim)
}

/// The claims that a pod names, and those made for its ephemeral volumes.
pub(super) fn claims_of(pod: &Pod) -> Vec<Key> {
    let volumes = pod.spec.as_ref().and_then(|spec| spec.volumes.as_deref()).unwrap_or_default();
    let named = |volume: &k8s_openapi::api::core::v1::Volume| match &volume.persistent_volume_claim {
        Some(claim) => Some(claim.claim_name.clone()),
        None => volume.ephemeral.as_ref().map(|_| format!("{}-{}", pod.name_any(), volume.name)),
    };
    let names = volumes.iter().filter_map(named);
    names.map(|name| Key::new(pod.metadata.namespace.as_deref(), &name)).collect()
}

/// Runs the protection of volumes until the context's stop.
pub(crate) async fn run_volumes(context: Context) {
    let volumes = context.informers.informer::<PersistentVolume>();
    let controller = context
        .controller("pv-protection")
        .on(&volumes, Predicate::new(|event| !matches!(event, Event::Deleted { .. })));
    let (volumes, client) = (volumes.store(), context.client.clone());
    let reconcile = move |run: Run| {
        let volume = volumes.get(&run.key);
        let step = volume.as_ref().map_or(Step::Nothing, |volume| step(&**volume, OF_VOLUMES));
        let phase = volume.and_then(|volume| volume.status.as_ref()?.phase.clone());
        let api = Api::<PersistentVolume>::all(&client);
        async move {
            match step {
                Step::Add => set(&api, run.key.name(), OF_VOLUMES, true).await?,
                Step::Remove if phase.as_deref() != Some("Bound") => {
                    set(&api, run.key.name(), OF_VOLUMES, false).await?;
                }
                _ => {}
            }
            Ok::<_, RunError>(Action::done())
        }
    };
    reconciling::run(context, controller, 1, reconcile).await;
}
