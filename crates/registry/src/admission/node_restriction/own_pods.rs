//! The pods of a node: it creates mirror pods, and changes and removes only pods that are bound to it.

use machinery::Status;
use machinery::go_text::quote;
use machinery::json::Value;

use super::{Request, same};
use crate::admission::plugin::Operation;
use crate::collections::{NODES, PODS};
use crate::meta;
use crate::read::view;

const MIRROR: &str = "kubernetes.io/config.mirror";

/// Volumes that need nothing of the API.
const PLAIN_VOLUMES: [&str; 22] = [
    "awsElasticBlockStore",
    "azureDisk",
    "cephfs",
    "cinder",
    "downwardAPI",
    "emptyDir",
    "fc",
    "flexVolume",
    "flocker",
    "gcePersistentDisk",
    "gitRepo",
    "hostPath",
    "image",
    "iscsi",
    "nfs",
    "photonPersistentDisk",
    "portworxVolume",
    "quobyte",
    "rbd",
    "scaleIO",
    "storageos",
    "vsphereVolume",
];

/// Volumes that name objects of the API, with what they name.
const VOLUMES: [(&str, &str); 5] = [
    ("csi", "csidrivers (via CSI volumes)"),
    ("glusterfs", "endpoints (via glusterFS volumes)"),
    ("persistentVolumeClaim", "persistentvolumeclaims"),
    ("ephemeral", "persistentvolumeclaims (via ephemeral volumes)"),
    ("azureFile", "secrets (via azureFile volumes)"),
];

/// Projected sources that name objects of the API, beside secrets and config maps.
const PROJECTED: [(&str, &str); 3] = [
    ("serviceAccountToken", "serviceaccounts (via projected volumes)"),
    ("clusterTrustBundle", "clustertrustbundles"),
    ("podCertificate", "podcertificates"),
];

/// Where a volume names a secret.
const VOLUME_SECRETS: [&[&str]; 11] = [
    &["secret", "secretName"],
    &["azureFile", "secretName"],
    &["cephfs", "secretRef", "name"],
    &["cinder", "secretRef", "name"],
    &["flexVolume", "secretRef", "name"],
    &["rbd", "secretRef", "name"],
    &["scaleIO", "secretRef", "name"],
    &["iscsi", "secretRef", "name"],
    &["storageos", "secretRef", "name"],
    &["csi", "nodePublishSecretRef", "name"],
    &["projected", "sources", "secret"],
];

pub(super) fn admit(request: &Request<'_>) -> Result<(), Status> {
    let node = quote(request.node);
    match (request.attributes.subresource(), request.attributes.operation) {
        (None, Operation::Create) => admit_create(request),
        (None, Operation::Delete) => {
            if request.old.is_some_and(|pod| is_bound(pod, request.node)) {
                return Ok(());
            }
            request.refuse(format!("node {node} can only delete pods with spec.nodeName set to itself"))
        }
        (None, _) => {
            let operation = quote(request.operation());
            let why = format!("unexpected operation {operation}, node {node} can only create and delete mirror pods");
            request.refuse(why)
        }
        (Some("status"), Operation::Update) => admit_status(request),
        (Some("eviction"), Operation::Create) => admit_eviction(request),
        (Some("status" | "eviction"), _) => request.unexpected_operation(),
        (Some(other), _) => {
            let why = format!("unexpected pod subresource {}, only 'status' and 'eviction' are allowed", quote(other));
            request.refuse(why)
        }
    }
}

fn is_bound(pod: &Value, node: &str) -> bool {
    pod["spec"]["nodeName"] == node
}

fn admit_create(request: &Request<'_>) -> Result<(), Status> {
    let (pod, node) = (request.object, quote(request.node));
    if pod["metadata"]["annotations"].get(MIRROR).is_none() {
        let why = format!("pod does not have {} annotation, node {node} can only create mirror pods", quote(MIRROR));
        return request.refuse(why);
    }
    if !is_bound(pod, request.node) {
        return request.refuse(format!("node {node} can only create pods with spec.nodeName set to itself"));
    }
    check_owner(request, &node)?;
    match referenced(pod) {
        Err(why) => request.refuse(format!("error checking mirror pod for API references: {why}")),
        Ok(Some(kind)) => request.refuse(format!("node {node} can not create pods that reference {kind}")),
        Ok(None) => Ok(()),
    }
}

/// The only owner of a mirror pod is the Node object.
fn check_owner(request: &Request<'_>, node: &str) -> Result<(), Status> {
    let owners = request.object["metadata"]["ownerReferences"].as_array().map(|list| &**list).unwrap_or_default();
    let owner = match owners {
        [owner] => owner,
        [] => return request.refuse(format!("node {node} can only create pods with an owner reference set to itself")),
        _ => {
            let why = format!("node {node} can only create pods with a single owner reference set to itself");
            return request.refuse(why);
        }
    };
    if owner["apiVersion"] != "v1" || owner["kind"] != "Node" || owner["name"] != request.node {
        return request.refuse(format!("node {node} can only create pods with an owner reference set to itself"));
    }
    if owner["controller"] != true {
        let why = format!("node {node} can only create pods with a controller owner reference set to itself");
        return request.refuse(why);
    }
    if owner["blockOwnerDeletion"] == true {
        return request.refuse(format!("node {node} must not set blockOwnerDeletion on an owner reference"));
    }
    let Some(item) = request.storage.cached(NODES, None, request.node) else {
        let nodes = machinery::GroupResource::new("", "nodes");
        return Err(Status::not_found(&nodes, request.node));
    };
    let (stated, uid) = (owner["uid"].as_str().unwrap_or_default(), view::parse(&item)?);
    let uid = meta::uid(&uid);
    if stated == uid {
        return Ok(());
    }
    request.refuse(format!("node {} UID mismatch: expected {stated} got {uid}", request.node))
}

/// The kind of an API object that a pod names, if it names one.
fn referenced(pod: &Value) -> Result<Option<&'static str>, String> {
    let spec = &pod["spec"];
    if spec["serviceAccountName"].as_str().is_some_and(|name| !name.is_empty()) {
        return Ok(Some("serviceaccounts"));
    }
    let list = |of: &Value, member: &str| of[member].as_array().cloned().unwrap_or_default();
    let containers: Vec<Value> =
        ["containers", "initContainers", "ephemeralContainers"].iter().flat_map(|member| list(spec, member)).collect();
    let in_containers = |key: &str, whole: &str| {
        containers.iter().any(|container| {
            list(container, "env").iter().any(|variable| variable["valueFrom"][key].is_object())
                || list(container, "envFrom").iter().any(|source| source[whole].is_object())
        })
    };
    let volumes = list(spec, "volumes");
    let in_volumes = |path: &[&str]| {
        volumes.iter().any(|volume| match path {
            ["projected", "sources", kind] => {
                list(&volume["projected"], "sources").iter().any(|s| s[*kind].is_object())
            }
            path => {
                let found = path.iter().try_fold(volume, |value, member| value.get(*member));
                found.is_some_and(|name| name.as_str().is_some_and(|name| !name.is_empty()))
            }
        })
    };
    let pulls = !list(spec, "imagePullSecrets").is_empty();
    if pulls || in_containers("secretKeyRef", "secretRef") || VOLUME_SECRETS.iter().any(|path| in_volumes(path)) {
        return Ok(Some("secrets"));
    }
    let maps = volumes.iter().any(|volume| volume["configMap"].is_object());
    if maps || in_containers("configMapKeyRef", "configMapRef") || in_volumes(&["projected", "sources", "configMap"]) {
        return Ok(Some("configmaps"));
    }
    if !list(spec, "resourceClaims").is_empty() {
        return Ok(Some("resourceclaims"));
    }
    for volume in &volumes {
        if let Some(kind) = referenced_by_volume(volume)? {
            return Ok(Some(kind));
        }
    }
    Ok(None)
}

fn referenced_by_volume(volume: &Value) -> Result<Option<&'static str>, String> {
    let given = |member: &str| volume[member].is_object();
    if PLAIN_VOLUMES.iter().any(|member| given(member)) {
        return Ok(None);
    }
    if let Some((_, kind)) = VOLUMES.iter().find(|(member, _)| given(member)) {
        return Ok(Some(kind));
    }
    if !given("projected") {
        return Err(format!("unknown volume type for volume  {}", quote(volume["name"].as_str().unwrap_or_default())));
    }
    let sources = volume["projected"]["sources"].as_array().map(|list| &**list).unwrap_or_default();
    for source in sources {
        if let Some((_, kind)) = PROJECTED.iter().find(|(member, _)| source[*member].is_object()) {
            return Ok(Some(kind));
        }
    }
    Ok(None)
}

fn admit_status(request: &Request<'_>) -> Result<(), Status> {
    let (node, new) = (quote(request.node), request.object);
    let Some(old) = request.old.filter(|old| is_bound(old, request.node)) else {
        let why = format!("node {node} can only update pod status for pods with spec.nodeName set to itself");
        return request.refuse(why);
    };
    if !same(&new["metadata"]["labels"], &old["metadata"]["labels"]) {
        return request.refuse(format!("node {node} cannot update labels through pod status"));
    }
    let status = |member: &str| same(&new["status"][member], &old["status"][member]);
    if !status("resourceClaimStatuses") {
        return request.refuse(format!("node {node} cannot update resource claim statues"));
    }
    if !status("extendedResourceClaimStatus") {
        return request.refuse(format!("node {node} cannot update extended resource claim status"));
    }
    Ok(())
}

fn admit_eviction(request: &Request<'_>) -> Result<(), Status> {
    let (target, name) = (request.attributes.target, request.name());
    if name.is_empty() {
        return request.refuse("could not determine pod from request data");
    }
    let Some(pod) = request.storage.cached(PODS, target.namespace.as_deref(), name) else {
        return Err(Status::not_found(&target.gr(), name));
    };
    if is_bound(&view::parse(&pod)?, request.node) {
        return Ok(());
    }
    request.refuse(format!("node {} can only evict pods with spec.nodeName set to itself", request.node))
}

#[cfg(test)]
mod tests {
    use super::*;
    use machinery::json::json;

    #[test]
    fn mirror_pods_name_nothing_of_the_api() {
        let of = |spec: Value| referenced(&json!({"spec": spec}));
        let volume = |source: Value| {
            let mut volume = json!({"name": "v"});
            let (member, value) = source.as_object().unwrap().iter().next().unwrap();
            volume[member.as_str()] = value.clone();
            of(json!({"volumes": [volume]}))
        };
        assert_eq!(of(json!({"volumes": [{"name": "v", "hostPath": {"path": "/"}}]})), Ok(None));
        assert_eq!(of(json!({"serviceAccountName": "a"})), Ok(Some("serviceaccounts")));
        assert_eq!(of(json!({"imagePullSecrets": [{"name": "s"}]})), Ok(Some("secrets")));
        let env = |from: Value| of(json!({"initContainers": [{"env": [{"name": "A", "valueFrom": from}]}]}));
        assert_eq!(env(json!({"secretKeyRef": {"name": "s", "key": "k"}})), Ok(Some("secrets")));
        assert_eq!(env(json!({"configMapKeyRef": {"name": "s", "key": "k"}})), Ok(Some("configmaps")));
        assert_eq!(env(json!({"fieldRef": {"fieldPath": "metadata.name"}})), Ok(None));
        assert_eq!(volume(json!({"secret": {"secretName": "s"}})), Ok(Some("secrets")));
        assert_eq!(volume(json!({"configMap": {"name": "s"}})), Ok(Some("configmaps")));
        assert_eq!(volume(json!({"persistentVolumeClaim": {"claimName": "c"}})), Ok(Some("persistentvolumeclaims")));
        let token = json!({"projected": {"sources": [{"downwardAPI": {}}, {"serviceAccountToken": {"path": "t"}}]}});
        assert_eq!(volume(token), Ok(Some("serviceaccounts (via projected volumes)")));
        assert_eq!(volume(json!({"projected": {"sources": [{"downwardAPI": {}}]}})), Ok(None));
        assert_eq!(volume(json!({"new": {}})), Err("unknown volume type for volume  \"v\"".to_owned()));
    }
}
