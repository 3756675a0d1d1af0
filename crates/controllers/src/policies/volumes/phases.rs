//! What a volume is while and after its claim is there, and what becomes of it then.

use std::sync::Arc;

use client::controller::{Action, Controller, Predicate, Run, RunError};
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
    let controller = Controller::new("persistentvolume-phases")
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

/// What a volume is to become.
#[derive(Debug, PartialEq, Eq)]
enum Fate {
    /// Free to be taken.
    Available,
    /// Its claim is there, or will finish binding.
    Bound,
    /// Binding is not complete; the claim's side goes on.
    Wait,
    /// It was chosen for a claim that took another.
    Unbind,
    /// Its claim is gone.
    Release,
}

fn fate(volume: &PersistentVolume, claim: Option<&PersistentVolumeClaim>) -> Fate {
    let Some(to) = claim_of(volume) else { return Fate::Available };
    if to.uid.as_deref().unwrap_or_default().is_empty() {
        // Set aside by hand; free until that claim comes.
        return Fate::Available;
    }
    let Some(claim) = claim.filter(|claim| claim.metadata.uid == to.uid) else { return Fate::Release };
    let taken = claim.spec.as_ref().and_then(|spec| spec.volume_name.as_deref()).unwrap_or_default();
    if taken.is_empty() {
        Fate::Wait
    } else if Some(taken) == volume.metadata.name.as_deref() {
        Fate::Bound
    } else if volume.annotations().contains_key(PROVISIONED_BY) {
        Fate::Release
    } else if volume.annotations().contains_key(BOUND_BY_CONTROLLER) {
        Fate::Unbind
    } else {
        Fate::Wait
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
        match fate(volume, claim.as_ref()) {
            Fate::Available => self.set_phase(volume, "Available").await.map(|_| ()),
            Fate::Bound => self.set_phase(volume, "Bound").await.map(|_| ()),
            Fate::Wait => Ok(()),
            Fate::Unbind => self.unbind(volume).await,
            Fate::Release => {
                let released = match phase(volume) {
                    "Released" | "Failed" => volume.clone(),
                    _ => self.set_phase(volume, "Released").await?,
                };
                self.reclaim(&released).await
            }
        }
    }

    /// The claim that a volume names. Before it counts as gone it is looked for on the server: the watch of claims may be
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

    /// What becomes of a volume whose claim is gone.
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
        assert_eq!(fate(&volume(Value::Null, "x"), None), Fate::Available);
        assert_eq!(fate(&volume(json!({"namespace": "n", "name": "c"}), "x"), None), Fate::Available);
        assert_eq!(fate(&volume(mine(), "x"), None), Fate::Release);
        assert_eq!(fate(&volume(mine(), "x"), Some(&claim("another", "v"))), Fate::Release);
        assert_eq!(fate(&volume(mine(), "x"), Some(&claim("u", ""))), Fate::Wait);
        assert_eq!(fate(&volume(mine(), "x"), Some(&claim("u", "v"))), Fate::Bound);
        assert_eq!(fate(&volume(mine(), BOUND_BY_CONTROLLER), Some(&claim("u", "w"))), Fate::Unbind);
        assert_eq!(fate(&volume(mine(), PROVISIONED_BY), Some(&claim("u", "w"))), Fate::Release);
    }
}
