//! What some kinds do in code, beyond what their data describes (crate `schema`).
//!
//! Verbs are generic over kinds and call the [`KindBehaviour`] of the kind at hand, which is looked up once for each request;
//! its methods do nothing unless a kind overrides them. One module for each kind (or group of like kinds) that has code.
//! `definitions/` follows CustomResourceDefinitions, which add kinds; [`usage`] has the kinds of `metrics.k8s.io`.

mod certificate_signing_requests;
pub(crate) mod definitions;
mod jobs;
mod namespaces;
mod pods;
mod priority_classes;
mod roles;
mod services;
pub mod usage;
mod workloads;

use access::User;
use jiff::Timestamp;
use machinery::Status;
use machinery::json::Value;
use machinery::options::DeleteOptions;
use schema::kind::Kind;
pub use schema::kinds::{Kinds, builtin, compare_versions};

use crate::collections::{
    CERTIFICATE_SIGNING_REQUESTS, CLUSTER_ROLE_BINDINGS, CLUSTER_ROLES, CRON_JOBS, DAEMON_SETS, DEFINITIONS,
    DEPLOYMENTS, JOBS, NAMESPACES, POD_TEMPLATES, PODS, PRIORITY_CLASSES, REPLICA_SETS, REPLICATION_CONTROLLERS,
    ROLE_BINDINGS, ROLES, SERVICES, STATEFUL_SETS,
};
use crate::request::Context;
use crate::reserve::Reservation;
use crate::subresources::node::{NodeAnswer, NodeRequest};
use crate::write::delete::DeleteStep;

/// The code of a kind. Each method is a place where some kind differs from all others.
pub(crate) trait KindBehaviour: Send + Sync {
    /// Whether objects are sent many times with the same spec, so that it pays to remember specs.
    fn repeats_specs(&self) -> bool {
        false
    }

    /// Whether a write may give rights, which its user must hold itself.
    fn grants_rights(&self) -> bool {
        false
    }

    /// Completes a new object after admission, from who creates it.
    fn complete_new(&self, _object: &mut Value, _user: &User) {}

    /// Fills in what must be there before the object is validated, and may have to be reserved.
    fn prepare(&self, _reservation: &mut Reservation<'_>, _object: &mut Value, _old: Option<&Value>) {}

    /// Reserves what a valid object needs.
    fn reserve(
        &self,
        _reservation: &mut Reservation<'_>,
        _kind: &Kind,
        _object: &mut Value,
        _old: Option<&Value>,
    ) -> Result<(), Status> {
        Ok(())
    }

    /// The pod, or the pods that this object leads to.
    fn pod_template<'v>(&self, _object: &'v Value) -> Option<&'v Value> {
        None
    }

    /// The label selector of a workload.
    fn label_selector(&self, workload: &Value) -> Value {
        workload["spec"]["selector"].clone()
    }

    /// The reason why an object may not be deleted, by its name.
    fn undeletable(&self, _name: &str) -> Option<&'static str> {
        None
    }

    /// Warns of the consequences of a deletion.
    fn warn_of_deletion(&self, _options: &DeleteOptions, _ctx: &Context) {}

    /// The step that a DELETE takes, where it is not the same as for all kinds.
    fn delete_step(&self, _object: &Value, _options: &DeleteOptions, _now: Timestamp) -> Option<DeleteStep> {
        None
    }

    /// Whether the preconditions of a DELETE are refused in the words of an update.
    fn checks_preconditions_as_update(&self) -> bool {
        false
    }

    /// Whether something else than its finalizers keeps an object that is being deleted.
    fn is_held(&self, _object: &Value) -> bool {
        false
    }

    /// Checks a request to the object's node before the object is looked up.
    fn check_node_request(&self, _request: &NodeRequest<'_>) -> Result<(), Status> {
        Ok(())
    }

    /// Finds the node that serves a request to the object.
    fn locate_node_request(&self, _request: &NodeRequest<'_>, _object: &Value) -> Result<NodeAnswer, Status> {
        Ok(NodeAnswer::Address)
    }
}

/// Every kind that has no code of its own.
struct Plain;

impl KindBehaviour for Plain {}

/// Looks up the code of a kind.
pub(crate) fn behaviour(kind: &Kind) -> &'static dyn KindBehaviour {
    match kind.collection.as_str() {
        PODS => &pods::Pods,
        SERVICES => &services::Services,
        NAMESPACES => &namespaces::Namespaces,
        DEPLOYMENTS | REPLICA_SETS | STATEFUL_SETS | DAEMON_SETS => &workloads::Workloads,
        REPLICATION_CONTROLLERS => &workloads::ReplicationControllers,
        POD_TEMPLATES => &workloads::PodTemplates,
        JOBS => &jobs::Jobs,
        CRON_JOBS => &jobs::CronJobs,
        CERTIFICATE_SIGNING_REQUESTS => &certificate_signing_requests::CertificateSigningRequests,
        PRIORITY_CLASSES => &priority_classes::PriorityClasses,
        ROLES | CLUSTER_ROLES | ROLE_BINDINGS | CLUSTER_ROLE_BINDINGS => &roles::Roles,
        DEFINITIONS => &definitions::CustomResourceDefinitions,
        _ => &Plain,
    }
}

/// A member that is an object, or nothing.
fn object_at<'v>(object: &'v Value, path: &[&str]) -> Option<&'v Value> {
    path.iter().try_fold(object, |value, member| value.get(*member)).filter(|value| value.is_object())
}

#[cfg(test)]
mod tests {
    use super::*;
    use machinery::json::json;

    #[test]
    fn workloads_have_their_pods_in_different_places() {
        let template = |group: &str, plural: &str, object: &Value| {
            let kind = builtin().get(group, "v1", plural).unwrap();
            behaviour(kind).pod_template(object).cloned()
        };
        let job = json!({"spec": {"jobTemplate": {"spec": {"template": {"a": 1}}}}});
        assert_eq!(template("batch", "cronjobs", &job), Some(json!({"a": 1})));
        assert_eq!(template("", "configmaps", &job), None);
        assert_eq!(template("apps", "deployments", &json!({})), None);
        assert_eq!(template("", "podtemplates", &json!({"template": {"a": 1}})), Some(json!({"a": 1})));
        for (group, plural) in [("apps", "statefulsets"), ("batch", "jobs"), ("", "replicationcontrollers")] {
            assert_eq!(template(group, plural, &job["spec"]["jobTemplate"]), Some(json!({"a": 1})), "{plural}");
        }
    }

    #[test]
    fn only_kinds_with_code_are_special() {
        let kinds = builtin();
        let object = json!({"spec": {"finalizers": ["kubernetes"]}});
        assert!(behaviour(kinds.get("", "v1", "namespaces").unwrap()).is_held(&object));
        assert!(!behaviour(kinds.get("", "v1", "configmaps").unwrap()).is_held(&object));
        let classes = behaviour(kinds.get("scheduling.k8s.io", "v1", "priorityclasses").unwrap());
        assert!(classes.undeletable("system-node-critical").is_some() && classes.undeletable("mine").is_none());
    }
}
