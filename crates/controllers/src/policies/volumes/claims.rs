//! A claim is bound, waits, or gets a volume made for it.
//!
//! Binding is four writes, volume before claim, each of which may be the last before a crash: the next run continues from
//! what is there.

use std::sync::Arc;

use client::controller::{Action, Predicate, Run, RunError};
use client::events::{EventRecorder, EventType};
use client::informer::Event;
use client::store::Store;
use client::{Error, Key};
use k8s_openapi::api::core::v1::{
    HostPathVolumeSource, Node, PersistentVolume, PersistentVolumeClaim, PersistentVolumeClaimStatus,
    PersistentVolumeSpec, Pod,
};
use k8s_openapi::api::storage::v1::StorageClass;
use kube::{Client, Resource as _, ResourceExt as _};

use super::matching::{best, class_of, mismatch};
use super::{
    BIND_COMPLETED, BOUND_BY_CONTROLLER, COMPONENT, PROVISIONED_BY, SELECTED_NODE, YES, belongs_to, claim_of, phase,
    reference_to,
};
use crate::context::Context;
use crate::policies::protection::claims_of;
use crate::reconciling;
use crate::requests::Api;

const PROVISIONER: [&str; 2] =
    ["volume.kubernetes.io/storage-provisioner", "volume.beta.kubernetes.io/storage-provisioner"];
const NO_PROVISIONER: &str = "kubernetes.io/no-provisioner";

/// Runs until the context's stop.
pub(super) async fn run(context: Context) {
    let claims = context.informers.informer::<PersistentVolumeClaim>();
    let volumes = context.informers.informer::<PersistentVolume>();
    let classes = context.informers.informer::<StorageClass>();
    let pods = context.informers.informer::<Pod>();
    let nodes = context.informers.informer::<Node>();
    let changed = Predicate::version_changed();
    // A volume concerns the claim it names; a free one all that wait.
    let waiting = claims.store();
    let of_volume = move |volume: &PersistentVolume| match claim_of(volume) {
        Some(to) => vec![Key::new(to.namespace.as_deref(), to.name.as_deref().unwrap_or_default())],
        None if phase(volume) == "Available" => unbound(&waiting, |_| true),
        None => Vec::new(),
    };
    let waiting = claims.store();
    let of_class = move |class: &StorageClass| unbound(&waiting, |claim| class_of(claim) == class.name_any());
    let waiting = claims.store();
    // The event of a claim that waits for its first consumer names the pod.
    let first_seen = Predicate::new(move |event: &Event<Pod>| match event {
        Event::Added { object, .. } => {
            claims_of(object).iter().any(|key| waiting.get(key).is_some_and(|claim| !is_complete(&claim)))
        }
        _ => false,
    });
    let controller = context
        .controller("persistentvolume-binder")
        .on(&claims, Predicate::new(|event| !matches!(event, Event::Deleted { .. })).and(changed))
        .mapped(&volumes, of_volume, Predicate::version_changed())
        .mapped(&classes, of_class, Predicate::version_changed())
        .mapped(&pods, claims_of, first_seen)
        .mapped(&nodes, |_: &Node| Vec::new(), Predicate::new(|_| false));
    let binder = Arc::new(Binder {
        client: context.client.clone(),
        claims: claims.store(),
        volumes: volumes.store(),
        classes: classes.store(),
        pods: pods.store(),
        nodes: nodes.store(),
        recorder: context.recorder(COMPONENT),
    });
    let reconcile = move |run: Run| {
        let binder = binder.clone();
        async move { binder.reconcile(&run.key).await }
    };
    // One at a time: two claims must not take the same volume.
    reconciling::run(context, controller, 1, reconcile).await;
}

fn is_complete(claim: &PersistentVolumeClaim) -> bool {
    claim.annotations().contains_key(BIND_COMPLETED)
}

fn unbound(claims: &Store<PersistentVolumeClaim>, wanted: impl Fn(&PersistentVolumeClaim) -> bool) -> Vec<Key> {
    let snapshot = claims.snapshot();
    let waiting = snapshot.iter().filter(|claim| !is_complete(claim) && wanted(claim));
    waiting.map(|claim| Key::of(&**claim)).collect()
}

struct Binder {
    client: Client,
    claims: Store<PersistentVolumeClaim>,
    volumes: Store<PersistentVolume>,
    classes: Store<StorageClass>,
    pods: Store<Pod>,
    nodes: Store<Node>,
    recorder: EventRecorder,
}

impl Binder {
    async fn reconcile(&self, key: &Key) -> Result<Action, RunError> {
        let Some(claim) = self.claims.get(key) else { return Ok(Action::done()) };
        let ended = if is_complete(&claim) { self.keep(&claim).await } else { self.find(&claim).await };
        match ended {
            Err(error) if error.is_not_found() => {}
            other => other?,
        }
        Ok(Action::done())
    }

    fn event(&self, claim: &PersistentVolumeClaim, kind: EventType, reason: &str, message: &str) {
        self.recorder.record(&claim.object_ref(&()), kind, reason, message);
    }

    /// A claim that is not bound yet.
    async fn find(&self, claim: &PersistentVolumeClaim) -> Result<(), Error> {
        let asked = claim.spec.as_ref().and_then(|spec| spec.volume_name.as_deref()).unwrap_or_default();
        if !asked.is_empty() {
            return self.take(claim, asked).await;
        }
        let class = class_of(claim);
        let known = self.classes.get(&Key::new(None, class));
        let mode = known.as_ref().and_then(|class| class.volume_binding_mode.as_deref());
        let node = claim.annotations().get(SELECTED_NODE);
        let waits = mode == Some("WaitForFirstConsumer") && node.is_none();
        let node = node.and_then(|name| self.nodes.get(&Key::new(None, name)));
        let volumes: Vec<Arc<PersistentVolume>> = self.volumes.snapshot().iter().cloned().collect();
        if let Some(volume) = best(&volumes, claim, !waits, node.as_deref()) {
            return self.bind(&volume, claim).await;
        }
        if waits {
            let (reason, message) = self.waited_for(claim);
            self.event(claim, EventType::Normal, reason, &message);
        } else if !class.is_empty() {
            match known {
                Some(class) => return self.provision(claim, &class).await,
                None => {
                    let message = format!("storageclass.storage.k8s.io {class:?} not found");
                    self.event(claim, EventType::Warning, "ProvisioningFailed", &message);
                }
            }
        } else {
            let message = "no persistent volumes available for this claim and no storage class is set";
            self.event(claim, EventType::Normal, "FailedBinding", message);
        }
        self.set_phase(claim, "Pending").await
    }

    /// The reason for which a claim waits for its first consumer.
    fn waited_for(&self, claim: &PersistentVolumeClaim) -> (&'static str, String) {
        let namespace = claim.namespace().unwrap_or_default();
        let snapshot = self.pods.snapshot();
        let unscheduled = |pod: &&Arc<Pod>| pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_none());
        let uses = |pod: &&Arc<Pod>| claims_of(pod).contains(&Key::of(claim));
        let pods = snapshot.in_namespace(&namespace).filter(unscheduled).filter(uses);
        let names: Vec<String> = pods.map(|pod| pod.name_any()).collect();
        match names.as_slice() {
            [] => ("WaitForFirstConsumer", "waiting for first consumer to be created before binding".to_owned()),
            [name] => ("WaitForPodScheduled", format!("waiting for pod {name} to be scheduled")),
            names => ("WaitForPodScheduled", format!("waiting for pods {} to be scheduled", names.join(","))),
        }
    }

    /// A claim that names its volume.
    async fn take(&self, claim: &PersistentVolumeClaim, name: &str) -> Result<(), Error> {
        let Some(volume) = self.volumes.get(&Key::new(None, name)) else {
            return self.set_phase(claim, "Pending").await;
        };
        if claim_of(&volume).is_none() {
            if let Some(why) = mismatch(&volume, claim) {
                let message = format!("Cannot bind to requested volume {name:?}: {why}");
                self.event(claim, EventType::Warning, "VolumeMismatch", &message);
                return self.set_phase(claim, "Pending").await;
            }
            return self.bind(&volume, claim).await;
        }
        if belongs_to(&volume, claim) {
            return self.bind(&volume, claim).await;
        }
        let message = format!("volume {name:?} already bound to a different claim.");
        self.event(claim, EventType::Warning, "FailedBinding", &message);
        self.set_phase(claim, "Pending").await
    }

    /// A claim that was bound stays so, or has lost its volume.
    async fn keep(&self, claim: &PersistentVolumeClaim) -> Result<(), Error> {
        let name = claim.spec.as_ref().and_then(|spec| spec.volume_name.as_deref()).unwrap_or_default();
        let volume = self.volumes.get(&Key::new(None, name)).filter(|_| !name.is_empty());
        let (reason, message) = match volume {
            Some(volume) if claim_of(&volume).is_none() || belongs_to(&volume, claim) => {
                return self.bind(&volume, claim).await;
            }
            Some(_) => {
                ("ClaimMisbound", "Two claims are bound to the same volume, this one is bound incorrectly".to_owned())
            }
            None if name.is_empty() => {
                let message = "Bound claim has lost reference to PersistentVolume. Data on the volume is lost!";
                ("ClaimLost", message.to_owned())
            }
            None => ("ClaimLost", "Bound claim has lost its PersistentVolume. Data on the volume is lost!".to_owned()),
        };
        if claim.status.as_ref().and_then(|status| status.phase.as_deref()) != Some("Lost") {
            self.event(claim, EventType::Warning, reason, &message);
        }
        self.set_phase(claim, "Lost").await
    }

    async fn bind(&self, volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> Result<(), Error> {
        let volumes = Api::<PersistentVolume>::all(&self.client);
        let claims = Api::<PersistentVolumeClaim>::namespaced(&self.client, &claim.namespace().unwrap_or_default());

        let mut wanted = volume.clone();
        let spec = wanted.spec.get_or_insert_default();
        let chosen = spec.claim_ref.is_none();
        if spec.claim_ref.as_ref().is_none_or(|to| to.uid != claim.metadata.uid) {
            spec.claim_ref = Some(reference_to(claim));
        }
        if chosen {
            wanted.annotations_mut().insert(BOUND_BY_CONTROLLER.to_owned(), YES.to_owned());
        }
        let mut volume = volume.clone();
        if wanted != volume {
            volume = volumes.replace(&wanted).await?;
        }
        if phase(&volume) != "Bound" {
            volume.status.get_or_insert_default().phase = Some("Bound".to_owned());
            volume = volumes.replace_status(&volume).await?;
        }

        let mut wanted = claim.clone();
        let spec = wanted.spec.get_or_insert_default();
        if spec.volume_name.as_deref().unwrap_or_default().is_empty() {
            spec.volume_name = volume.metadata.name.clone();
            wanted.annotations_mut().insert(BOUND_BY_CONTROLLER.to_owned(), YES.to_owned());
        }
        wanted.annotations_mut().insert(BIND_COMPLETED.to_owned(), YES.to_owned());
        let mut claim = claim.clone();
        if wanted != claim {
            claim = claims.replace(&wanted).await?;
        }
        let status = claim.status.clone().unwrap_or_default();
        let spec = volume.spec.unwrap_or_default();
        let bound = PersistentVolumeClaimStatus {
            phase: Some("Bound".to_owned()),
            access_modes: spec.access_modes,
            // A claim may be granted more later; that is not ours to take back.
            capacity: status.capacity.clone().or(spec.capacity),
            ..status.clone()
        };
        if bound != status {
            claim.status = Some(bound);
            claims.replace_status(&claim).await?;
        }
        Ok(())
    }

    /// Makes a volume for a claim. It is bound when the watch shows it.
    async fn provision(&self, claim: &PersistentVolumeClaim, class: &StorageClass) -> Result<(), Error> {
        if class.provisioner == NO_PROVISIONER {
            let message = format!("no volume plugin matched name: {NO_PROVISIONER}");
            self.event(claim, EventType::Warning, "ProvisioningFailed", &message);
            return self.set_phase(claim, "Pending").await;
        }
        let claims = Api::<PersistentVolumeClaim>::namespaced(&self.client, &claim.namespace().unwrap_or_default());
        let mut wanted = claim.clone();
        for name in PROVISIONER {
            wanted.annotations_mut().insert(name.to_owned(), class.provisioner.clone());
        }
        let mut claim = claim.clone();
        if wanted != claim {
            claim = claims.replace(&wanted).await?;
        }
        let volume = volume_for(&claim, class);
        let name = volume.name_any();
        match Api::<PersistentVolume>::all(&self.client).create(&volume).await {
            Ok(_) => {
                let message = format!("Successfully provisioned volume {name} using {}", class.provisioner);
                self.event(&claim, EventType::Normal, "ProvisioningSucceeded", &message);
                Ok(())
            }
            Err(error) if error.is_already_exists() => Ok(()),
            Err(error) => Err(error),
        }
    }

    async fn set_phase(&self, claim: &PersistentVolumeClaim, phase: &str) -> Result<(), Error> {
        let status = claim.status.clone().unwrap_or_default();
        let mut wanted = PersistentVolumeClaimStatus { phase: Some(phase.to_owned()), ..status.clone() };
        if phase != "Bound" {
            (wanted.access_modes, wanted.capacity) = (None, None);
        }
        if wanted == status {
            return Ok(());
        }
        let written = PersistentVolumeClaim { status: Some(wanted), ..claim.clone() };
        let api = Api::<PersistentVolumeClaim>::namespaced(&self.client, &claim.namespace().unwrap_or_default());
        api.replace_status(&written).await?;
        Ok(())
    }
}

/// A volume as a provisioner of this class would make it, with nothing behind it.
fn volume_for(claim: &PersistentVolumeClaim, class: &StorageClass) -> PersistentVolume {
    let name = format!("pvc-{}", claim.uid().unwrap_or_default());
    let asked = claim.spec.clone().unwrap_or_default();
    let mut volume = PersistentVolume::default();
    let path = format!("/var/lib/dogwatch/{name}");
    volume.metadata.name = Some(name);
    volume.annotations_mut().insert(PROVISIONED_BY.to_owned(), class.provisioner.clone());
    volume.spec = Some(PersistentVolumeSpec {
        access_modes: asked.access_modes,
        capacity: asked.resources.and_then(|resources| resources.requests),
        claim_ref: Some(reference_to(claim)),
        host_path: Some(HostPathVolumeSource { path, type_: Some("DirectoryOrCreate".to_owned()) }),
        mount_options: class.mount_options.clone(),
        persistent_volume_reclaim_policy: Some(class.reclaim_policy.clone().unwrap_or_else(|| "Delete".to_owned())),
        storage_class_name: class.metadata.name.clone(),
        volume_attributes_class_name: asked.volume_attributes_class_name,
        volume_mode: asked.volume_mode,
        ..PersistentVolumeSpec::default()
    });
    volume
}
