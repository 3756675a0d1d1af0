//! The phase of a volume during and after the life of its claim, and its reclaim.

use std::sync::Arc;

use client::controller::{Action, Predicate, Run, RunError};
use client::events::{EventRecorder, EventType};
use client::informer::Event;
use client::store::Store;
use client::{Error, Key};
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use kube::api::{DeleteParams, Preconditions};
use kube::{Client, Resource as _, ResourceExt as _};

use super::{BOUND_BY_CONTROLLER, COMPONENT, PROVISIONED_BY, claim_of, phase};
use crate::context::Context;
use crate::reconciling;
use crate::requests::Api;

/// Runs until the context's stop.
pub(super) async fn run(context: Context) {
    let volumes = context.informers.informer::<PersistentVolume>();
    let claims = context.informers.informer::<PersistentVolumeClaim>();
    let of_claim = |claim: &PersistentVolumeClaim| {
        let name = claim.spec.as_ref().and_then(|spec| spec.volume_name.as_deref()).unwrap_or_default();
        if name.is_empty() { Vec::new() } else { vec![Key::new(None, name)] }
    };
    let controller = context
        .controller("persistentvolume-phases")
        .on(&volumes, Predicate::new(|event| !matches!(event, Event::Deleted { .. })))
        .mapped(&claims, of_claim, Predicate::version_changed());
    let keeper = Arc::new(Keeper {
        client: context.client.clone(),
        volumes: volumes.store(),
        claims: claims.store(),
        recorder: context.recorder(COMPONENT),
    });
    let reconcile = move |run: Run| {
        let keeper = keeper.clone();
        async move { keeper.reconcile(&run.key).await }
    };
    reconciling::run(context, controller, 1, reconcile).await;
}

struct Keeper {
    client: Client,
    volumes: Store<PersistentVolume>,
    claims: Store<PersistentVolumeClaim>,
    recorder: EventRecorder,
}

/// The next state of a volume.
#[derive(Debug, PartialEq, Eq)]
enum NextState {
    /// Free to be taken.
    Available,
    /// Its claim is there, or will finish binding.
    Bound,
    /// Binding is not complete; the claim's side continues.
    Wait,
    /// It was chosen for a claim that took another.
    Unbind,
    /// Its claim is gone.
    Release,
}

fn next_state(volume: &PersistentVolume, claim: Option<&PersistentVolumeClaim>) -> NextState {
    let Some(to) = claim_of(volume) else { return NextState::Available };
    if to.uid.as_deref().unwrap_or_default().is_empty() {
        // Reserved by hand: available until that claim exists.
        return NextState::Available;
    }
    let Some(claim) = claim.filter(|claim| claim.metadata.uid == to.uid) else { return NextState::Release };
    let taken = claim.spec.as_ref().and_then(|spec| spec.volume_name.as_deref()).unwrap_or_default();
    if taken.is_empty() {
        NextState::Wait
    } else if Some(taken) == volume.metadata.name.as_deref() {
        NextState::Bound
    } else if volume.annotations().contains_key(PROVISIONED_BY) {
        NextState::Release
    } else if volume.annotations().contains_key(BOUND_BY_CONTROLLER) {
        NextState::Unbind
    } else {
        NextState::Wait
    }
}

impl Keeper {
    async fn reconcile(&self, key: &Key) -> Result<Action, RunError> {
        let Some(volume) = self.volumes.get(key) else { return Ok(Action::done()) };
        match self.keep(&volume).await {
            Err(error) if error.is_not_found() => {}
            other => other?,
        }
        Ok(Action::done())
    }

    async fn keep(&self, volume: &PersistentVolume) -> Result<(), Error> {
        let claim = self.claim(volume).await?;
        match next_state(volume, claim.as_ref()) {
            NextState::Available => self.set_phase(volume, "Available").await.map(|_| ()),
            NextState::Bound => self.set_phase(volume, "Bound").await.map(|_| ()),
            NextState::Wait => Ok(()),
            NextState::Unbind => self.unbind(volume).await,
            NextState::Release => {
                let released = match phase(volume) {
                    "Released" | "Failed" => volume.clone(),
                    _ => self.set_phase(volume, "Released").await?,
                };
                self.reclaim(&released).await
            }
        }
    }

    /// The claim that a volume names. A claim that is not in the store is read from the server: the watch of claims may be
    /// behind that of volumes.
    async fn claim(&self, volume: &PersistentVolume) -> Result<Option<PersistentVolumeClaim>, Error> {
        let Some(to) = claim_of(volume) else { return Ok(None) };
        let (namespace, name) = (to.namespace.as_deref(), to.name.as_deref().unwrap_or_default());
        let known = self.claims.get(&Key::new(namespace, name)).filter(|claim| claim.metadata.uid == to.uid);
        if let Some(claim) = known {
            return Ok(Some((*claim).clone()));
        }
        let api = Api::<PersistentVolumeClaim>::namespaced(&self.client, namespace.unwrap_or_default());
        api.get(name).await
    }

    async fn set_phase(&self, volume: &PersistentVolume, wanted: &str) -> Result<PersistentVolume, Error> {
        if phase(volume) == wanted {
            return Ok(volume.clone());
        }
        let mut written = volume.clone();
        let status = written.status.get_or_insert_default();
        status.phase = Some(wanted.to_owned());
        status.message = None;
        let api = Api::<PersistentVolume>::all(&self.client);
        api.replace_status(&written).await
    }

    async fn unbind(&self, volume: &PersistentVolume) -> Result<(), Error> {
        let mut written = volume.clone();
        written.spec.get_or_insert_default().claim_ref = None;
        written.annotations_mut().remove(BOUND_BY_CONTROLLER);
        let api = Api::<PersistentVolume>::all(&self.client);
        let written = api.replace(&written).await?;
        self.set_phase(&written, "Available").await.map(|_| ())
    }

    /// Deletes, or keeps, a volume whose claim was deleted.
    async fn reclaim(&self, volume: &PersistentVolume) -> Result<(), Error> {
        let policy = volume.spec.as_ref().and_then(|spec| spec.persistent_volume_reclaim_policy.as_deref());
        match policy {
            Some("Delete") if volume.metadata.deletion_timestamp.is_none() => {
                let preconditions = Some(Preconditions { uid: volume.uid(), resource_version: None });
                let params = DeleteParams { preconditions, ..DeleteParams::default() };
                Api::<PersistentVolume>::all(&self.client).delete(&volume.name_any(), &params).await?;
                Ok(())
            }
            Some("Recycle") if phase(volume) != "Failed" => {
                let message = "No recycler plugin found for the volume!";
                let about = volume.object_ref(&());
                self.recorder.record(&about, EventType::Warning, "VolumeFailedRecycle", message);
                self.set_phase(volume, "Failed").await.map(|_| ())
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn the_claim_decides_what_a_volume_is() {
        let volume = |claim_ref: Value, annotation: &str| -> PersistentVolume {
            let volume =
                json!({"metadata": {"name": "v", "annotations": {annotation: "yes"}}, "spec": {"claimRef": claim_ref}});
            serde_json::from_value(volume).unwrap()
        };
        let claim = |uid: &str, volume: &str| -> PersistentVolumeClaim {
            serde_json::from_value(json!({"metadata": {"name": "c", "uid": uid}, "spec": {"volumeName": volume}}))
                .unwrap()
        };
        let mine = || json!({"namespace": "n", "name": "c", "uid": "u"});
        assert_eq!(next_state(&volume(Value::Null, "x"), None), NextState::Available);
        assert_eq!(next_state(&volume(json!({"namespace": "n", "name": "c"}), "x"), None), NextState::Available);
        assert_eq!(next_state(&volume(mine(), "x"), None), NextState::Release);
        assert_eq!(next_state(&volume(mine(), "x"), Some(&claim("another", "v"))), NextState::Release);
        assert_eq!(next_state(&volume(mine(), "x"), Some(&claim("u", ""))), NextState::Wait);
        assert_eq!(next_state(&volume(mine(), "x"), Some(&claim("u", "v"))), NextState::Bound);
        assert_eq!(next_state(&volume(mine(), BOUND_BY_CONTROLLER), Some(&claim("u", "w"))), NextState::Unbind);
        assert_eq!(next_state(&volume(mine(), PROVISIONED_BY), Some(&claim("u", "w"))), NextState::Release);
    }
}
