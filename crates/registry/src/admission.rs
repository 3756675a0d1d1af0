//! What other objects say about a write: namespaces that are not there or are ending, priority classes, protected names.

use std::time::Duration;

use cache::Item;
use machinery::{GroupResource, Status};
use serde_json::{Value, json};

use crate::meta;
use crate::registry::Registry;
use crate::request::{Context, Target};
use crate::view;

/// A namespace made a moment ago on another server may not have arrived here.
const NAMESPACE_WAIT: Duration = Duration::from_millis(50);
const IMMORTAL_NAMESPACES: [&str; 3] = ["default", "kube-system", "kube-public"];
const SYSTEM_PRIORITY_CLASSES: [&str; 2] = ["system-node-critical", "system-cluster-critical"];

impl Registry {
    pub(crate) async fn admit_create(&self, target: &Target, object: &mut Value, ctx: &Context) -> Result<(), Status> {
        if let Some(namespace) = target.namespace.as_deref().filter(|_| target.kind.namespaced) {
            self.admit_into_namespace(target, object, namespace).await?;
        }
        match target.kind.collection.as_str() {
            "core/pods" => {
                self.resolve_priority(target, object).await?;
                self.find_runtime_class(target, object).await?;
            }
            "certificates.k8s.io/certificatesigningrequests" => sign_with(object, ctx),
            _ => {}
        }
        Ok(())
    }

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

    async fn admit_into_namespace(&self, target: &Target, object: &Value, namespace: &str) -> Result<(), Status> {
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

    async fn namespace(&self, name: &str) -> Result<Option<std::sync::Arc<Item>>, Status> {
        self.lookup("", "v1", "namespaces", None, name).await
    }

    /// Where a namespace's phase stands among its selectable fields.
    fn phase_slot(&self) -> usize {
        self.cache.collection("core/namespaces").spec().slot("status.phase").unwrap_or_default()
    }

    /// A pod's priority comes from its class, or from the class that is the default, or is zero.
    async fn resolve_priority(&self, target: &Target, pod: &mut Value) -> Result<(), Status> {
        let class = pod["spec"]["priorityClassName"].as_str().unwrap_or_default().to_owned();
        let found = if class.is_empty() {
            self.default_priority_class()
        } else {
            let found = self.lookup("scheduling.k8s.io", "v1", "priorityclasses", None, &class).await?;
            let found = found.ok_or_else(|| {
                let why = format!("no PriorityClass with name {class} was found");
                Status::forbidden(&target.gr(), meta::name(pod), why)
            })?;
            Some(view::parse(&found)?)
        };
        let (priority, policy) = match &found {
            Some(found) => {
                if class.is_empty() {
                    pod["spec"]["priorityClassName"] = json!(meta::name(found));
                }
                (found["value"].as_i64().unwrap_or_default(), found["preemptionPolicy"].clone())
            }
            None => (0, Value::Null),
        };
        if let Some(said) = pod["spec"]["priority"].as_i64().filter(|said| *said != priority) {
            let why = format!(
                "the integer value of priority ({said}) must not be provided in pod spec; priority admission controller computed {priority} from the given PriorityClass name"
            );
            return Err(Status::forbidden(&target.gr(), meta::name(pod), why));
        }
        let policy = policy.as_str().unwrap_or("PreemptLowerPriority");
        if let Some(said) = pod["spec"]["preemptionPolicy"].as_str().filter(|said| *said != policy) {
            let why = format!(
                "the string value of PreemptionPolicy ({said}) must not be provided in pod spec; priority admission controller computed {policy} from the given PriorityClass name"
            );
            return Err(Status::forbidden(&target.gr(), meta::name(pod), why));
        }
        pod["spec"]["priority"] = json!(priority);
        pod["spec"]["preemptionPolicy"] = json!(policy);
        Ok(())
    }

    /// A runtime class that a pod names must be there; its overhead and placement become the pod's.
    async fn find_runtime_class(&self, target: &Target, pod: &mut Value) -> Result<(), Status> {
        let class = pod["spec"]["runtimeClassName"].as_str().unwrap_or_default().to_owned();
        if class.is_empty() {
            return Ok(());
        }
        let found = self.lookup("node.k8s.io", "v1", "runtimeclasses", None, &class).await?;
        let Some(found) = found else {
            let why = format!("pod rejected: RuntimeClass \"{class}\" not found");
            return Err(Status::forbidden(&target.gr(), meta::name(pod), why));
        };
        let found = view::parse(&found)?;
        if let Some(overhead) = found["overhead"].get("podFixed") {
            pod["spec"]["overhead"] = overhead.clone();
        }
        Ok(())
    }

    /// The class marked as the default; of several the one with the lowest value.
    fn default_priority_class(&self) -> Option<Value> {
        let collection = self.cache.collection("scheduling.k8s.io/priorityclasses");
        let snapshot = self.cache.snapshot(&collection);
        let classes = snapshot.scan(collection.name(), None, None).filter_map(|item| view::parse(item).ok());
        classes.filter(|class| class["globalDefault"] == true).min_by_key(|class| class["value"].as_i64())
    }
}

/// A certificate is asked for by whoever sends the request, whatever it says.
fn sign_with(request: &mut Value, ctx: &Context) {
    let spec = &mut request["spec"];
    spec["username"] = json!(ctx.user.name);
    spec["groups"] = json!(ctx.user.groups);
    for (member, value) in [("uid", json!(ctx.user.uid)), ("extra", json!(ctx.user.extra))] {
        let empty = value == json!("") || value == json!({});
        if !empty {
            spec[member] = value;
        } else if let Some(spec) = spec.as_object_mut() {
            spec.shift_remove(member);
        }
    }
}
