//! From the old template to the new one, step by step, and scaling on the way.

use std::cmp::Reverse;
use std::sync::Arc;

use client::Error;
use client::controller::Action;
use client::events::EventType;
use k8s_openapi::api::apps::v1::{Deployment, DeploymentStatus, ReplicaSet, ReplicaSetSpec};
use kube::Resource;
use kube::api::DeleteParams;

use super::arithmetic::{self, Budget, Share, Size};
use super::revisions::{self, DESIRED, MOST, REVISION, annotate, by_age};
use super::shape::{self, actual, available, is_observed, size};
use super::status::{self, PROGRESSING, TIMED_OUT, condition};
use super::{Deployments, revisions::split};
use crate::owners::{controller_of, name, namespace, reference, uid};
use crate::reconciling::{is_namespace_terminating, server_message};
use crate::workloads::template::{self, HASH_LABEL};
use crate::writer::Writer;
use crate::{conditions, pods};

/// One run for one deployment. What it writes, it goes on with: the deployment and the sets here are always the latest known.
pub(super) struct Rollout<'a> {
    pub(super) control: &'a Deployments,
    pub(super) writer: Writer,
    pub(super) deployment: Deployment,
    pub(super) budget: Budget,
    pub(super) new: Option<Arc<ReplicaSet>>,
    /// In the order of creation.
    pub(super) old: Vec<Arc<ReplicaSet>>,
}

impl<'a> Rollout<'a> {
    pub(super) fn new(
        control: &'a Deployments,
        writer: Writer,
        deployment: &Deployment,
        sets: Vec<Arc<ReplicaSet>>,
    ) -> Self {
        let (new, old) = split(deployment, sets);
        Self { control, writer, deployment: deployment.clone(), budget: shape::budget(deployment), new, old }
    }

    fn replicas(&self) -> i32 {
        self.budget.replicas
    }

    fn total(&self) -> i32 {
        self.old.iter().chain(&self.new).map(|set| size(set)).sum()
    }

    pub(super) fn event(&self, kind: EventType, reason: &str, message: &str) {
        self.control.tools.recorder.record(&self.deployment.object_ref(&()), kind, reason, message);
    }

    fn progressing(&self) -> Option<&str> {
        let conditions = self.deployment.status.as_ref()?.conditions.as_ref();
        Some(conditions::find(conditions, PROGRESSING)?.reason.as_deref().unwrap_or_default())
    }

    fn set_progressing(&mut self, status: &str, reason: &str, message: &str) -> bool {
        let progressing = condition(PROGRESSING, status, reason, message, self.control.tools.clock.now());
        conditions::set(&mut self.deployment.status.get_or_insert_default().conditions, progressing)
    }

    async fn write_status(&mut self) -> Result<(), Error> {
        self.deployment = self.writer.replace_status(self.deployment.clone()).await?;
        Ok(())
    }

    /// A pause and its end are no lack of progress (DP-4).
    pub(super) async fn note_pause(&mut self) -> Result<(), Error> {
        let known = self.progressing();
        if !shape::has_deadline(&self.deployment) || known == Some(TIMED_OUT) {
            return Ok(());
        }
        let changed = match (shape::is_paused(&self.deployment), known == Some("DeploymentPaused")) {
            (true, false) => self.set_progressing("Unknown", "DeploymentPaused", "Deployment is paused"),
            (false, true) => self.set_progressing("Unknown", "DeploymentResumed", "Deployment is resumed"),
            _ => false,
        };
        if changed { self.write_status().await } else { Ok(()) }
    }

    fn next_revision(&self) -> i64 {
        self.old.iter().filter_map(|set| revisions::revision(set)).max().unwrap_or(0) + 1
    }

    /// Keeps the annotations of an existing new replica set and of the deployment up to date (DP-12, DP-13, DP-17).
    pub(super) async fn note_revision(&mut self) -> Result<(), Error> {
        let Some(new) = &self.new else { return Ok(()) };
        let mut changed = (**new).clone();
        let annotated = revisions::note_revision(&mut changed, &self.deployment, self.next_revision());
        let min_ready = shape::min_ready(&self.deployment);
        let spec = changed.spec.get_or_insert_default();
        if annotated || spec.min_ready_seconds.unwrap_or(0) != min_ready {
            spec.min_ready_seconds = (min_ready != 0).then_some(min_ready);
            self.new = Some(Arc::new(self.writer.replace(changed).await?));
            return Ok(());
        }
        let revision = revisions::annotation(&new.metadata, REVISION).unwrap_or_default().to_owned();
        let found = format!("Found new replica set {:?}", name(&**new));
        let mut changed = annotate(&mut self.deployment.metadata, REVISION, &revision);
        if shape::has_deadline(&self.deployment) && self.progressing().is_none() {
            changed |= self.set_progressing("True", "FoundNewReplicaSet", &found);
        }
        if changed { self.write_status().await } else { Ok(()) }
    }

    /// Makes the replica set of the deployment's template.
    pub(super) async fn make_new(&mut self) -> Result<(), Error> {
        let wanted = self.describe_new();
        let made = self.writer.create(&wanted).await;
        let (set, created) = match made {
            Ok(set) => (set, true),
            Err(error) if error.is_already_exists() => (self.take_or_collide(&wanted, error).await?, false),
            Err(error) if is_namespace_terminating(&error) => return Err(error),
            Err(error) => {
                let message =
                    format!("Failed to create new replica set {:?}: {}", name(&wanted), server_message(&error));
                if shape::has_deadline(&self.deployment)
                    && self.set_progressing("False", "ReplicaSetCreateError", &message)
                {
                    // The failure to create is what counts.
                    let _ = self.write_status().await;
                }
                self.event(EventType::Warning, "ReplicaSetCreateError", &message);
                return Err(error);
            }
        };
        if created && size(&set) > 0 {
            let message = format!("Scaled up replica set {} from 0 to {}", name(&set), size(&set));
            self.event(EventType::Normal, "ScalingReplicaSet", &message);
        }
        let revision = self.next_revision().to_string();
        let mut changed = annotate(&mut self.deployment.metadata, REVISION, &revision);
        if created && shape::has_deadline(&self.deployment) {
            let message = format!("Created new replica set {:?}", name(&set));
            self.set_progressing("True", "NewReplicaSetCreated", &message);
            changed = true;
        }
        self.new = Some(Arc::new(set));
        if changed { self.write_status().await } else { Ok(()) }
    }

    fn describe_new(&self) -> ReplicaSet {
        let spec = self.deployment.spec.clone().unwrap_or_default();
        let collisions = self.deployment.status.as_ref().and_then(|status| status.collision_count);
        let hash = template::hash(&spec.template, collisions);
        let mut template = spec.template;
        let labels = template.metadata.get_or_insert_default().labels.get_or_insert_default();
        labels.insert(HASH_LABEL.to_owned(), hash.clone());
        let labels = labels.clone();
        let mut selector = spec.selector;
        selector.match_labels.get_or_insert_default().insert(HASH_LABEL.to_owned(), hash.clone());
        // Recreate comes here only when nothing old is left.
        let replicas = if shape::is_recreate(&self.deployment) {
            self.replicas()
        } else {
            arithmetic::new_size(self.budget, self.total(), 0)
        };
        let mut set = ReplicaSet::default();
        set.metadata.name = Some(revisions::set_name(name(&self.deployment), &hash));
        set.metadata.namespace = Some(namespace(&self.deployment).to_owned());
        set.metadata.owner_references = Some(vec![reference(&self.deployment)]);
        set.metadata.labels = Some(labels);
        set.spec = Some(ReplicaSetSpec {
            replicas: Some(replicas),
            min_ready_seconds: spec.min_ready_seconds,
            selector,
            template: Some(template),
        });
        revisions::note_revision(&mut set, &self.deployment, self.next_revision());
        revisions::note_scale(&mut set, self.budget);
        set
    }

    /// A set of that name is there: it is ours if the template is, otherwise two templates met in one hash and the next run
    /// takes another name (DP-15).
    async fn take_or_collide(&mut self, wanted: &ReplicaSet, error: Error) -> Result<ReplicaSet, Error> {
        let Some(there) = self.writer.read(wanted).await? else { return Err(error) };
        let ours = controller_of(&there.metadata).is_some_and(|owner| owner.uid == uid(&self.deployment));
        let templates = |set: &ReplicaSet| set.spec.as_ref().and_then(|spec| spec.template.clone()).unwrap_or_default();
        if ours && template::same(&templates(wanted), &templates(&there)) {
            return Ok(there);
        }
        let count = &mut self.deployment.status.get_or_insert_default().collision_count;
        *count = Some(count.unwrap_or(0) + 1);
        self.write_status().await?;
        Err(error)
    }

    /// Whether the deployment's size was changed since its sets were sized (DP-7).
    pub(super) fn was_scaled(&self) -> bool {
        let active = self.old.iter().chain(&self.new).filter(|set| size(set) > 0);
        active.filter_map(|set| revisions::count(set, DESIRED)).any(|desired| desired != self.replicas())
    }

    pub(super) async fn scale(&mut self) -> Result<Action, Error> {
        self.resize().await?;
        self.report_numbers().await
    }

    pub(super) async fn scale_while_paused(&mut self) -> Result<Action, Error> {
        self.resize().await?;
        if shape::rollback_to(&self.deployment).is_none() {
            self.forget_history().await?;
        }
        self.report_numbers().await
    }

    async fn resize(&mut self) -> Result<(), Error> {
        let active: Vec<Arc<ReplicaSet>> =
            self.old.iter().chain(&self.new).filter(|set| size(set) > 0).cloned().collect();
        if active.len() <= 1 {
            let newest = self.new.as_ref().or(self.old.last());
            let Some(only) = active.first().or(newest).cloned() else { return Ok(()) };
            return self.set_size(&only, self.replicas()).await.map(|_| ());
        }
        if self.new.as_ref().is_some_and(|new| self.is_saturated(new)) {
            for set in self.old.clone() {
                self.set_size(&set, 0).await?;
            }
            return Ok(());
        }
        if shape::is_recreate(&self.deployment) {
            return Ok(());
        }
        self.resize_in_proportion(active).await
    }

    fn is_saturated(&self, set: &ReplicaSet) -> bool {
        let all = self.replicas();
        size(set) == all && revisions::count(set, DESIRED) == Some(all) && self.measure(set).available == all
    }

    /// A set in the numbers that decide what others may lose.
    ///
    /// Its status lags behind: pods run that it does not report yet, and are not broken. And while its controller has not
    /// looked at it since its size was changed, the status may be from before an earlier change too: pods it lost then do not
    /// come back because the set was made larger again. In both cases the pods themselves are looked at.
    fn measure(&self, set: &ReplicaSet) -> Size {
        let (wanted, reported, observed) = (size(set), available(set), is_observed(set));
        let seen = if observed && reported >= wanted { reported } else { self.control.available_pods(set) };
        let fewest = if observed { reported } else { reported.min(seen) };
        Size::new(wanted, fewest, reported.max(seen))
    }

    async fn resize_in_proportion(&mut self, mut active: Vec<Arc<ReplicaSet>>) -> Result<(), Error> {
        let growing = arithmetic::to_distribute(self.budget, active.iter().map(|set| size(set)).sum()) > 0;
        active.sort_by(|a, b| if growing { by_age(b, a) } else { by_age(a, b) });
        active.sort_by_key(|set| Reverse(size(set)));
        let share = |set: &Arc<ReplicaSet>| Share { wanted: size(set), most_before: revisions::count(set, MOST) };
        let shares: Vec<Share> = active.iter().map(share).collect();
        let in_status = self.deployment.status.as_ref().and_then(|status| status.replicas).unwrap_or(0);
        let sizes = arithmetic::proportional(self.budget, &shares, in_status);
        for (set, wanted) in active.iter().zip(sizes) {
            self.write_size(set, wanted).await?;
        }
        Ok(())
    }

    /// Gives a replica set this size; true if it had another.
    async fn set_size(&mut self, set: &Arc<ReplicaSet>, wanted: i32) -> Result<bool, Error> {
        if size(set) == wanted { Ok(false) } else { self.write_size(set, wanted).await.map(|()| true) }
    }

    /// The same, and notes the scale it was sized for even if the size stays.
    async fn write_size(&mut self, set: &Arc<ReplicaSet>, wanted: i32) -> Result<(), Error> {
        let before = size(set);
        let mut changed = (**set).clone();
        let noted = revisions::note_scale(&mut changed, self.budget);
        if before == wanted && !noted {
            return Ok(());
        }
        changed.spec.get_or_insert_default().replicas = Some(wanted);
        let written = Arc::new(self.writer.replace(changed).await?);
        if before != wanted {
            let direction = if before < wanted { "up" } else { "down" };
            let message = format!("Scaled {direction} replica set {} from {before} to {wanted}", name(&*written));
            self.event(EventType::Normal, "ScalingReplicaSet", &message);
        }
        let known = self.old.iter_mut().chain(&mut self.new).find(|known| uid(&***known) == uid(&*written));
        if let Some(known) = known {
            *known = written;
        }
        Ok(())
    }

    /// A rolling update: one step up or down, then the status (DP-21 to DP-23).
    pub(super) async fn roll(&mut self) -> Result<Action, Error> {
        if self.new.is_none() {
            self.make_new().await?;
        }
        let Some(new) = self.new.clone() else { return Ok(Action::done()) };
        let wanted = arithmetic::new_size(self.budget, self.total(), size(&new));
        if self.set_size(&new, wanted).await? || self.shrink_old(&new).await? {
            return self.report_progress().await;
        }
        self.finish().await
    }

    async fn shrink_old(&mut self, new: &ReplicaSet) -> Result<bool, Error> {
        let active: Vec<usize> = (0..self.old.len()).filter(|index| size(&self.old[*index]) > 0).collect();
        let sizes: Vec<Size> = active.iter().map(|index| self.measure(&self.old[*index])).collect();
        if active.is_empty() {
            return Ok(false);
        }
        let steps = arithmetic::shrink_old(self.budget, &sizes, self.measure(new));
        for (position, wanted) in &steps {
            let set = self.old[active[*position]].clone();
            self.set_size(&set, *wanted).await?;
        }
        Ok(!steps.is_empty())
    }

    /// First all old pods go, then the new ones come (DP-25).
    pub(super) async fn recreate(&mut self) -> Result<Action, Error> {
        let mut shrunk = false;
        for set in self.old.clone() {
            shrunk |= self.set_size(&set, 0).await?;
        }
        if shrunk || self.has_old_pods() {
            return self.report_progress().await;
        }
        if self.new.is_none() {
            self.make_new().await?;
        }
        if let Some(new) = self.new.clone() {
            self.set_size(&new, self.replicas()).await?;
        }
        self.finish().await
    }

    fn has_old_pods(&self) -> bool {
        let reported = self.old.iter().any(|set| actual(set) > 0);
        let there = || self.old.iter().flat_map(|set| self.control.pods.by(uid(&**set)));
        reported || there().any(|pod| !pods::is_terminal(&pod))
    }

    async fn finish(&mut self) -> Result<Action, Error> {
        let status = self.deployment.status.clone().unwrap_or_default();
        if status::is_complete(&self.deployment, self.replicas(), &status) {
            self.forget_history().await?;
        }
        self.report_progress().await
    }

    /// Deletes old replica sets beyond the limit, those of the lowest revisions first (DP-24).
    async fn forget_history(&mut self) -> Result<(), Error> {
        let Some(limit) = shape::history_limit(&self.deployment) else { return Ok(()) };
        let mut kept: Vec<&Arc<ReplicaSet>> =
            self.old.iter().filter(|set| set.metadata.deletion_timestamp.is_none()).collect();
        kept.sort_by_key(|set| revisions::revision(set).unwrap_or(0));
        let excess = kept.len().saturating_sub(limit);
        for set in kept.into_iter().take(excess).filter(|set| is_unused(set)) {
            match self.writer.delete(&**set, &DeleteParams::default()).await {
                Err(error) if !error.is_not_found() => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }

    fn numbers(&self) -> DeploymentStatus {
        status::of(&self.deployment, self.budget, self.new.as_ref(), &self.old, self.control.tools.clock.now())
    }

    /// Reports the numbers; scaling is neither progress nor a lack of it.
    pub(super) async fn report_numbers(&mut self) -> Result<Action, Error> {
        let status = self.numbers();
        if self.deployment.status.as_ref() != Some(&status) {
            self.deployment.status = Some(status);
            self.write_status().await?;
        }
        Ok(Action::done())
    }

    /// Reports the numbers and how the rollout goes.
    async fn report_progress(&mut self) -> Result<Action, Error> {
        let now = self.control.tools.clock.now();
        let mut status = self.numbers();
        let replicas = self.replicas();
        status::judge(&mut status, &self.deployment, replicas, self.new.as_ref(), &self.old, now);
        if self.deployment.status.as_ref() == Some(&status) {
            let next = status::next_look(&self.deployment, replicas, &status, now);
            return Ok(next.map_or(Action::done(), Action::after));
        }
        self.deployment.status = Some(status);
        self.write_status().await?;
        Ok(Action::done())
    }
}

fn is_unused(set: &ReplicaSet) -> bool {
    actual(set) == 0 && size(set) == 0 && is_observed(set)
}
