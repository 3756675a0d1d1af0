//! NamespaceLifecycle: nothing is created in a namespace that is missing or terminating, and some namespaces stay.

use std::time::Duration;

use machinery::json::Value;
use machinery::{GroupResource, Status};

use super::plugin::{Attributes, Decision, Operation, Plugin};
use crate::collections::NAMESPACES;
use crate::storage::Storage;

/// A namespace that was created a moment ago through another server may not be visible here.
const NAMESPACE_WAIT: Duration = Duration::from_millis(50);
const UNDELETABLE: [&str; 3] = ["default", "kube-system", "kube-public"];

pub(super) struct NamespaceLifecycle {
    storage: Storage,
}

impl NamespaceLifecycle {
    pub(super) fn new(storage: Storage) -> Self {
        NamespaceLifecycle { storage }
    }

    async fn admit_into(&self, attributes: &Attributes<'_>, object: &Value, namespace: &str) -> Result<(), Status> {
        let mut found = self.storage.current_named(NAMESPACES, None, namespace).await?;
        if found.is_none() {
            tokio::time::sleep(NAMESPACE_WAIT).await;
            found = self.storage.current_named(NAMESPACES, None, namespace).await?;
        }
        let Some(found) = found else {
            return Err(Status::not_found(&GroupResource::new("", "namespaces"), namespace));
        };
        let spec = self.storage.cache().collection(NAMESPACES).spec();
        let phase = spec.slot("status.phase").and_then(|slot| found.fields().get(slot));
        let creates = attributes.operation == Operation::Create;
        if creates && phase.is_some_and(|phase| &**phase == "Terminating") {
            let name = attributes.name_shown(object);
            return Err(Status::namespace_terminating(&attributes.target.gr(), name, namespace));
        }
        Ok(())
    }
}

/// The namespace that an object is created in.
fn namespace_of<'a>(attributes: &Attributes<'a>) -> Option<&'a str> {
    attributes.target.namespace.as_deref().filter(|_| attributes.target.kind.namespaced)
}

/// Whether rights in a namespace exist is no reason to tell whether the namespace does.
fn is_access_review(attributes: &Attributes<'_>) -> bool {
    let kind = &attributes.target.kind;
    kind.gvk.group == "authorization.k8s.io" && kind.plural == "localsubjectaccessreviews"
}

impl Plugin for NamespaceLifecycle {
    fn name(&self) -> &'static str {
        "NamespaceLifecycle"
    }

    fn concerns(&self, attributes: &Attributes<'_>) -> bool {
        match attributes.operation {
            Operation::Create | Operation::Connect => {
                namespace_of(attributes).is_some() && !is_access_review(attributes)
            }
            Operation::Delete => attributes.target.kind.collection == NAMESPACES,
            Operation::Update => false,
        }
    }

    fn mutate<'a>(
        &'a self,
        attributes: &'a Attributes<'a>,
        object: &'a mut Value,
        _old: Option<&'a Value>,
    ) -> Decision<'a> {
        let target = attributes.target;
        match (attributes.operation, namespace_of(attributes)) {
            (Operation::Create | Operation::Connect, Some(namespace)) => {
                Decision::later(self.admit_into(attributes, object, namespace))
            }
            (Operation::Delete, _) if UNDELETABLE.contains(&target.name()) => {
                let why = "this namespace may not be deleted";
                Decision::Now(Err(Status::forbidden(&target.gr(), target.name(), why)))
            }
            _ => Decision::ADMIT,
        }
    }
}
