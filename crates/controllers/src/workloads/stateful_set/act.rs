//! Doing what the plan of a stateful set says, and reporting it.

use std::sync::Arc;

use client::events::EventType;
use client::{Error, Key};
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::{ControllerRevision, StatefulSet, StatefulSetStatus};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use kube::Resource;
use kube::api::{DeleteParams, Preconditions};

use super::plan::{Place, Places, Step};
use super::{StatefulSets, identity, plan, retention};
use crate::owners::{name, namespace};
use crate::pods;
use crate::reconciling::server_message;
use crate::workloads::batches::slow_start;
use crate::workloads::history::template_of;
use crate::writer::Writer;

/// One run for one set.
pub(super) struct Work<'a> {
    pub(super) control: &'a StatefulSets,
    pub(super) set: &'a StatefulSet,
    pub(super) writer: &'a Writer,
    pub(super) current: &'a ControllerRevision,
    pub(super) update: &'a ControllerRevision,
    pub(super) now: Timestamp,
}

/// What a run did that its report must say.
pub(super) struct Acted {
    /// A pod of the current revision was deleted to make room for the update.
    pub(super) replaced: bool,
}

impl Work<'_> {
    /// Everything that can be done now.
    pub(super) async fn act(&mut self, members: &[Arc<Pod>]) -> Result<Acted, Error> {
        let idle = Acted { replaced: false };
        if self.set.metadata.deletion_timestamp.is_some() {
            return Ok(idle);
        }
        let places = Places::of(self.set, members, self.now);
        let wanted = |place: &Place| plan::step_wanted(self.set, place, self.now);
        if self.each(&places.wanted, wanted).await? {
            return Ok(idle);
        }
        for place in &places.condemned {
            self.keep_claims(place).await?;
        }
        let condemned = |place: &Place| plan::step_condemned(self.set, &places, place, self.now);
        if self.each(&places.condemned, condemned).await? {
            return Ok(idle);
        }
        match plan::next_to_update(self.set, &places.wanted, name(self.update), self.now) {
            Some(pod) => self.delete(&pod).await.map(|()| Acted { replaced: true }),
            None => Ok(idle),
        }
    }

    /// Takes the steps of places, in order or many at a time; true if the rest of the run has to wait.
    async fn each(&self, places: &[Place], step: impl Fn(&Place) -> (Step, bool)) -> Result<bool, Error> {
        if plan::is_ordered(self.set) {
            for place in places {
                let (step, stop) = step(place);
                self.take(step, place).await?;
                if stop {
                    return Ok(true);
                }
            }
            return Ok(false);
        }
        let steps: Vec<Step> = places.iter().map(|place| step(place).0).collect();
        let outcome = slow_start(places.len(), |index| self.take(steps[index], &places[index])).await;
        outcome.failure.map_or(Ok(false), Err)
    }

    async fn take(&self, step: Step, place: &Place) -> Result<(), Error> {
        match (step, &place.pod) {
            (Step::Create, _) => self.create(place.ordinal).await,
            (Step::Replace | Step::Remove, Some(pod)) => self.delete(pod).await,
            (Step::Maintain, Some(pod)) => self.maintain(place, pod).await,
            _ => Ok(()),
        }
    }

    async fn create(&self, ordinal: i64) -> Result<(), Error> {
        let keeps = plan::keeps_current(self.set, ordinal);
        let revision = if keeps { self.current } else { self.update };
        let Some(template) = template_of(revision) else { return Ok(()) };
        let pod = identity::pod(self.set, &template, name(revision), ordinal);
        let claims = identity::claims(self.set, ordinal);
        let known = claims.iter().filter_map(|(_, claim)| self.known_claim(claim));
        if known.into_iter().any(|claim| retention::belongs_to_an_earlier(&pod, &claim, self.set)) {
            // The claim goes with the pod that had this name before; its deletion leads to a new event of the pod.
            return Ok(());
        }
        if let Err(error) = self.make_claims(&pod, ordinal).await {
            self.told("Create", &pod, Some(&error));
            return Err(error);
        }
        match self.writer.create(&pod).await {
            Ok(created) => {
                self.told("Create", &created, None);
                self.keep_claims(&Place { ordinal, pod: Some(Arc::new(created)) }).await
            }
            Err(error) if error.is_already_exists() => Err(error),
            Err(error) => {
                self.told("Create", &pod, Some(&error));
                Err(error)
            }
        }
    }

    async fn delete(&self, pod: &Pod) -> Result<(), Error> {
        // The next pod has the same name: a request that was long on its way must not take that one.
        let this = Preconditions { uid: pod.metadata.uid.clone(), resource_version: None };
        match self.writer.delete(pod, &DeleteParams::default().preconditions(this)).await {
            Err(error) if !error.is_not_found() => {
                self.told("Delete", pod, Some(&error));
                Err(error)
            }
            _ => {
                self.told("Delete", pod, None);
                Ok(())
            }
        }
    }

    async fn maintain(&self, place: &Place, pod: &Arc<Pod>) -> Result<(), Error> {
        if pods::phase(pod) == "Pending" {
            self.make_claims(pod, place.ordinal).await?;
        }
        self.keep_claims(place).await?;
        if !identity::is_itself(self.set, pod, place.ordinal) {
            let mut mended = (**pod).clone();
            identity::identify(self.set, &mut mended, place.ordinal);
            let result = self.writer.replace(mended).await;
            self.told("Update", pod, result.as_ref().err());
            result?;
        }
        Ok(())
    }

    fn known_claim(&self, claim: &PersistentVolumeClaim) -> Option<Arc<PersistentVolumeClaim>> {
        self.control.claims.get(&Key::new(Some(namespace(self.set)), name(claim)))
    }

    async fn make_claims(&self, pod: &Pod, ordinal: i64) -> Result<(), Error> {
        for (_, claim) in identity::claims(self.set, ordinal) {
            match self.known_claim(&claim) {
                Some(known) if known.metadata.deletion_timestamp.is_some() => {
                    return Err(Error::Config(format!("pvc {} is being deleted", name(&claim))));
                }
                Some(_) => {}
                None => match self.writer.create(&claim).await {
                    Err(error) if error.is_already_exists() => return Err(error),
                    result => {
                        self.told_of_claim(&claim, pod, result.as_ref().err());
                        result?;
                    }
                },
            }
        }
        Ok(())
    }

    /// Gives the claims of a place the owners that the retention policy asks for.
    async fn keep_claims(&self, place: &Place) -> Result<(), Error> {
        let Some(pod) = &place.pod else { return Ok(()) };
        for (_, claim) in identity::claims(self.set, place.ordinal) {
            let Some(known) = self.known_claim(&claim) else { continue };
            if let Some(owners) = retention::owners(&known, self.set, pod, place.ordinal) {
                let mut owned = (*known).clone();
                owned.metadata.owner_references = Some(owners).filter(|owners| !owners.is_empty());
                self.writer.replace(owned).await?;
            }
        }
        Ok(())
    }

    /// Writes the status if it changed, and returns it.
    pub(super) async fn report(
        &mut self,
        members: &[Arc<Pod>],
        collisions: i32,
        replaced: bool,
    ) -> Result<StatefulSetStatus, Error> {
        let (current, update) = (name(self.current), name(self.update));
        let mut status = plan::status(self.set, members, current, update, collisions, self.now);
        if replaced {
            status.current_replicas = plan::nonzero(status.current_replicas.unwrap_or(0) - 1);
        }
        plan::complete(self.set, &mut status);
        if self.set.status.as_ref() != Some(&status) {
            let changed = StatefulSet { status: Some(status.clone()), ..self.set.clone() };
            match self.writer.replace_status(changed).await {
                Err(error) if !error.is_not_found() => return Err(error),
                _ => {}
            }
        }
        Ok(status)
    }

    /// Events say what was done to which pod (SS-8).
    fn told(&self, verb: &str, pod: &Pod, failure: Option<&Error>) {
        let what = format!("{verb} Pod {} in StatefulSet {}", name(pod), name(self.set));
        self.event(verb, failure, &what, "successful");
    }

    fn told_of_claim(&self, claim: &PersistentVolumeClaim, pod: &Pod, failure: Option<&Error>) {
        let link = if failure.is_some() { "for Pod" } else { "Pod" };
        let what = format!(
            "{verb} Claim {} {link} {} in StatefulSet {}",
            name(claim),
            name(pod),
            name(self.set),
            verb = "Create"
        );
        self.event("Create", failure, &what, "success");
    }

    fn event(&self, verb: &str, failure: Option<&Error>, what: &str, success: &str) {
        let about = self.set.object_ref(&());
        match failure {
            None => {
                let reason = format!("Successful{verb}");
                self.control.tools.recorder.record(&about, EventType::Normal, &reason, &format!("{what} {success}"));
            }
            Some(error) => {
                let message = format!("{what} failed error: {}", server_message(error));
                self.control.tools.recorder.record(&about, EventType::Warning, &format!("Failed{verb}"), &message);
            }
        }
    }
}
