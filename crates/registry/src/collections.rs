//! Names of the collections that code refers to, and the selectable fields of all of them.

use std::collections::HashSet;
use std::sync::Arc;

use cache::{FieldSpec, Spec};
use schema::kind::Kind;
use schema::kinds::Kinds;

pub(crate) const API_SERVICES: &str = "apiregistration.k8s.io/apiservices";
pub(crate) const CERTIFICATE_SIGNING_REQUESTS: &str = "certificates.k8s.io/certificatesigningrequests";
pub(crate) const CLUSTER_ROLES: &str = "rbac.authorization.k8s.io/clusterroles";
pub(crate) const CLUSTER_ROLE_BINDINGS: &str = "rbac.authorization.k8s.io/clusterrolebindings";
pub(crate) const CONFIG_MAPS: &str = "core/configmaps";
pub(crate) const CRON_JOBS: &str = "batch/cronjobs";
pub(crate) const CSI_DRIVERS: &str = "storage.k8s.io/csidrivers";
pub(crate) const CSI_NODES: &str = "storage.k8s.io/csinodes";
pub(crate) const DAEMON_SETS: &str = "apps/daemonsets";
pub(crate) const DEFINITIONS: &str = "apiextensions.k8s.io/customresourcedefinitions";
pub(crate) const DEPLOYMENTS: &str = "apps/deployments";
pub(crate) const DISRUPTION_BUDGETS: &str = "policy/poddisruptionbudgets";
pub(crate) const ENDPOINT_SLICES: &str = "discovery.k8s.io/endpointslices";
pub(crate) const EVENTS: &str = "core/events";
pub(crate) const FLOW_SCHEMAS: &str = "flowcontrol.apiserver.k8s.io/flowschemas";
pub(crate) const INGRESSES: &str = "networking.k8s.io/ingresses";
pub(crate) const INGRESS_CLASSES: &str = "networking.k8s.io/ingressclasses";
pub(crate) const JOBS: &str = "batch/jobs";
pub(crate) const LEASES: &str = "coordination.k8s.io/leases";
pub(crate) const LIMIT_RANGES: &str = "core/limitranges";
pub(crate) const NAMESPACES: &str = "core/namespaces";
pub(crate) const NODES: &str = "core/nodes";
pub(crate) const PERSISTENT_VOLUME_CLAIMS: &str = "core/persistentvolumeclaims";
pub(crate) const PERSISTENT_VOLUMES: &str = "core/persistentvolumes";
pub(crate) const PODS: &str = "core/pods";
pub(crate) const POD_TEMPLATES: &str = "core/podtemplates";
pub(crate) const PRIORITY_CLASSES: &str = "scheduling.k8s.io/priorityclasses";
pub(crate) const PRIORITY_LEVELS: &str = "flowcontrol.apiserver.k8s.io/prioritylevelconfigurations";
pub(crate) const REPLICATION_CONTROLLERS: &str = "core/replicationcontrollers";
pub(crate) const REPLICA_SETS: &str = "apps/replicasets";
pub(crate) const RESOURCE_CLAIMS: &str = "resource.k8s.io/resourceclaims";
pub(crate) const RESOURCE_QUOTAS: &str = "core/resourcequotas";
pub(crate) const RESOURCE_SLICES: &str = "resource.k8s.io/resourceslices";
pub(crate) const ROLES: &str = "rbac.authorization.k8s.io/roles";
pub(crate) const ROLE_BINDINGS: &str = "rbac.authorization.k8s.io/rolebindings";
pub(crate) const RUNTIME_CLASSES: &str = "node.k8s.io/runtimeclasses";
pub(crate) const SECRETS: &str = "core/secrets";
pub(crate) const SERVICES: &str = "core/services";
pub(crate) const SERVICE_ACCOUNTS: &str = "core/serviceaccounts";
pub(crate) const STATEFUL_SETS: &str = "apps/statefulsets";
pub(crate) const STORAGE_CLASSES: &str = "storage.k8s.io/storageclasses";
pub(crate) const VOLUME_ATTRIBUTES_CLASSES: &str = "storage.k8s.io/volumeattributesclasses";
pub(crate) const VOLUME_ATTACHMENTS: &str = "storage.k8s.io/volumeattachments";

/// The selectable fields of each stored collection.
pub(crate) fn specs(kinds: &Kinds) -> Vec<(String, Spec)> {
    let mut by_collection: Vec<(&str, Vec<&Arc<Kind>>)> = Vec::new();
    for kind in kinds.iter().filter(|kind| kind.stored()) {
        match by_collection.iter_mut().find(|(name, _)| *name == kind.collection) {
            Some((_, served)) => served.push(kind),
            None => by_collection.push((&kind.collection, vec![kind])),
        }
    }
    by_collection.into_iter().map(|(name, served)| (name.to_owned(), selectable(served))).collect()
}

/// The selectable fields of a collection: those of all kinds that are served from its objects. Name and namespace are
/// selectable everywhere and not among them.
pub(crate) fn selectable<'a>(kinds: impl IntoIterator<Item = &'a Arc<Kind>>) -> Spec {
    let mut fields: Vec<FieldSpec> = Vec::new();
    let mut labels: HashSet<&str> = HashSet::new();
    for field in kinds.into_iter().flat_map(|kind| &kind.fields) {
        let generic = matches!(field.label.as_str(), "metadata.name" | "metadata.namespace");
        if !generic && labels.insert(&field.label) {
            fields.push(FieldSpec {
                label: field.label.clone(),
                paths: field.paths.clone(),
                absent: field.absent.clone(),
            });
        }
    }
    Spec::new(fields)
}
