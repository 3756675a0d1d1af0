//! Namespaces that are not there or are ending, and names that may not go.

use std::sync::Arc;
use std::time::Duration;

use cache::Item;
use machinery::json::Value;
use machinery::{GroupResource, Status};

use crate::meta;
use crate::registry::Registry;
use crate::request::{Context, Target};

/// A namespace made a moment ago on another server may not have arrived here.
const NAMESPACE_WAIT: Duration = Duration::from_millis(50);
const IMMORTAL_NAMESPACES: [&str; 3] = ["default", "kube-system", "kube-public"];
const SYSTEM_PRIORITY_CLASSES: [&str; 2] = ["system-node-critical", "system-cluster-critical"];

impl Registry {
    pub(crate) fn admit_delete(&self, target: &Target, _ctx: &Context) -> Result<(), Status> {
        let why = match target.kind.collection.as_str() {
            "core/namespaces" if IMMORTAL_NAMESPACES.contains(&target.name()) => "this namespace may not be deleted",
            "scheduling.k8s.io/priorityclasses" if SYSTEM_PRIORITY_CLASSES.contains(&target.name()) => {
                "this is a system priority class and cannot be deleted"
            }
            _ => return Ok(()),
        };
        Err(Status::forbidden(&target.gr(), target.name(), why))
    }

    pub(super) async fn admit_into_namespace(
        &self,
        target: &Target,
        object: &Value,
        namespace: &str,
    ) -> Result<(), Status> {
        let mut found = self.namespace(namespace).await?;
        if found.is_none() {
            tokio::time::sleep(NAMESPACE_WAIT).await;
            found = self.namespace(namespace).await?;
        }
        let Some(found) = found else {
            return Err(Status::not_found(&GroupResource::new("", "namespaces"), namespace));
        };
        if &*found.fields()[self.phase_slot()] == "Terminating" {
            return Err(Status::namespace_terminating(&target.gr(), meta::name(object), namespace));
        }
        Ok(())
    }

    async fn namespace(&self, name: &str) -> Result<Option<Arc<Item>>, Status> {
        self.lookup("", "v1", "namespaces", None, name).await
    }

    /// Where a namespace's phase stands among its selectable fields.
    fn phase_slot(&self) -> usize {
        self.cache().collection("core/namespaces").spec().slot("status.phase").unwrap_or_default()
    }
}
