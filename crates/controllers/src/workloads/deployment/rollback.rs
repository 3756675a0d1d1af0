//! Back to an old template because an annotation asks for it (DP-6). kubectl does this itself; older clients do not.

use client::Error;
use client::controller::Action;
use client::events::EventType;
use k8s_openapi::api::apps::v1::ReplicaSet;

use super::revisions::{self, NOT_COPIED, ROLLBACK};
use super::rollout::Rollout;
use crate::owners::name;
use crate::workloads::template::{self, HASH_LABEL};

impl Rollout<'_> {
    /// Takes the template of a revision, 0 for the one before this, and removes the request in any case.
    pub(super) async fn roll_back(&mut self, revision: i64) -> Result<Action, Error> {
        if self.new.is_none() {
            self.make_new().await?;
        }
        let wanted = if revision == 0 { self.revision_before() } else { Some(revision) };
        let Some(wanted) = wanted else {
            return self
                .drop_request(Some(("DeploymentRollbackRevisionNotFound", "Unable to find last revision.")))
                .await;
        };
        let found = self.old.iter().chain(&self.new).find(|set| revisions::revision(set) == Some(wanted)).cloned();
        let Some(set) = found else {
            let message = "Unable to find the revision to rollback to.";
            return self.drop_request(Some(("DeploymentRollbackRevisionNotFound", message))).await;
        };
        let actual = set.spec.as_ref().and_then(|spec| spec.template.as_ref());
        let current = self.deployment.spec.as_ref().map(|spec| &spec.template);
        if current.zip(actual).is_some_and(|(current, actual)| template::same(current, actual)) {
            let message = format!(
                "The rollback revision contains the same template as current deployment {:?}",
                name(&self.deployment)
            );
            return self.drop_request(Some(("DeploymentRollbackTemplateUnchanged", &message))).await;
        }
        self.take_from(&set);
        let action = self.drop_request(None).await?;
        let message = format!("Rolled back deployment {:?} to revision {wanted}", name(&self.deployment));
        self.event(EventType::Normal, "DeploymentRollback", &message);
        Ok(action)
    }

    /// The second highest revision.
    fn revision_before(&self) -> Option<i64> {
        let mut all: Vec<i64> = self.old.iter().chain(&self.new).filter_map(|set| revisions::revision(set)).collect();
        all.sort_unstable();
        all.iter().rev().nth(1).copied().filter(|revision| *revision > 0)
    }

    /// The template of a set, and its annotations: they say why that template was made.
    fn take_from(&mut self, set: &ReplicaSet) {
        let mut template = set.spec.as_ref().and_then(|spec| spec.template.clone()).unwrap_or_default();
        if let Some(labels) = template.metadata.as_mut().and_then(|meta| meta.labels.as_mut()) {
            labels.remove(HASH_LABEL);
        }
        self.deployment.spec.get_or_insert_default().template = template;
        let annotations = self.deployment.metadata.annotations.get_or_insert_default();
        annotations.retain(|name, _| NOT_COPIED.contains(&name.as_str()));
        for (name, value) in set.metadata.annotations.iter().flatten() {
            if !NOT_COPIED.contains(&name.as_str()) {
                annotations.insert(name.clone(), value.clone());
            }
        }
    }

    async fn drop_request(&mut self, warning: Option<(&str, &str)>) -> Result<Action, Error> {
        if let Some((reason, message)) = warning {
            self.event(EventType::Warning, reason, message);
        }
        self.deployment.metadata.annotations.get_or_insert_default().remove(ROLLBACK);
        self.deployment = self.writer.replace(self.deployment.clone()).await?;
        Ok(Action::done())
    }
}
