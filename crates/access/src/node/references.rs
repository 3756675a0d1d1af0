//! The objects that a pod or a volume names, as far as its node may read them.

use machinery::json::Value;

/// The annotation of a pod that only mirrors one that a node runs by itself.
const MIRROR: &str = "kubernetes.io/config.mirror";
/// Members of a pod's spec that have containers.
const CONTAINERS: [&str; 3] = ["containers", "initContainers", "ephemeralContainers"];
/// Volume sources that name a secret in the member after them.
const SECRET_SOURCES: [(&str, &str); 7] = [
    ("cephfs", "secretRef"),
    ("cinder", "secretRef"),
    ("flexVolume", "secretRef"),
    ("rbd", "secretRef"),
    ("scaleIO", "secretRef"),
    ("iscsi", "secretRef"),
    ("storageos", "secretRef"),
];
/// Secrets of a CSI volume that a node uses; the others are for controllers.
const CSI_NODE_SECRETS: [&str; 3] = ["nodePublishSecretRef", "nodeStageSecretRef", "nodeExpandSecretRef"];

/// A kind of object that a pod leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    Secret,
    ConfigMap,
    Claim,
    Account,
    ResourceClaim,
}

/// A pod that is bound to a node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pod {
    pub node: String,
    /// Kind and name of each object, in the pod's namespace. Sorted, each once.
    pub objects: Vec<(Kind, String)>,
}

/// A volume that is bound to a claim.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Volume {
    /// Namespace and name of the claim.
    pub claim: (String, String),
    /// Namespace and name of each secret.
    pub secrets: Vec<(String, String)>,
}

impl Pod {
    /// Reads a pod; none if it is not bound to a node.
    #[must_use]
    pub fn read(pod: &Value) -> Option<Self> {
        let spec = &pod["spec"];
        let node = text(&spec["nodeName"])?.to_owned();
        // A node creates the mirrors of its pods: they must not lead to anything.
        if pod["metadata"]["annotations"].get(MIRROR).is_some() {
            return Some(Pod { node, objects: Vec::new() });
        }
        let mut found = Vec::new();
        let mut add = |kind: Kind, name: &Value| found.extend(text(name).map(|name| (kind, name.to_owned())));
        add(Kind::Account, &spec["serviceAccountName"]);
        for secret in items(&spec["imagePullSecrets"]) {
            add(Kind::Secret, &secret["name"]);
        }
        for container in CONTAINERS.iter().flat_map(|member| items(&spec[*member])) {
            for source in items(&container["envFrom"]) {
                add(Kind::Secret, &source["secretRef"]["name"]);
                add(Kind::ConfigMap, &source["configMapRef"]["name"]);
            }
            for variable in items(&container["env"]) {
                add(Kind::Secret, &variable["valueFrom"]["secretKeyRef"]["name"]);
                add(Kind::ConfigMap, &variable["valueFrom"]["configMapKeyRef"]["name"]);
            }
        }
        for volume in items(&spec["volumes"]) {
            add(Kind::Secret, &volume["azureFile"]["secretName"]);
            add(Kind::Secret, &volume["secret"]["secretName"]);
            add(Kind::Secret, &volume["csi"]["nodePublishSecretRef"]["name"]);
            for (source, member) in SECRET_SOURCES {
                add(Kind::Secret, &volume[source][member]["name"]);
            }
            for source in items(&volume["projected"]["sources"]) {
                add(Kind::Secret, &source["secret"]["name"]);
                add(Kind::ConfigMap, &source["configMap"]["name"]);
            }
            add(Kind::ConfigMap, &volume["configMap"]["name"]);
            add(Kind::Claim, &volume["persistentVolumeClaim"]["claimName"]);
            if volume["ephemeral"].is_object() {
                let claim = [text(&pod["metadata"]["name"]), text(&volume["name"])];
                if let [Some(pod), Some(volume)] = claim {
                    add(Kind::Claim, &format!("{pod}-{volume}").into());
                }
            }
        }
        for claim in items(&spec["resourceClaims"]) {
            add(Kind::ResourceClaim, &claim["resourceClaimName"]);
        }
        // Claims that were created from a template.
        for claim in items(&pod["status"]["resourceClaimStatuses"]) {
            add(Kind::ResourceClaim, &claim["resourceClaimName"]);
        }
        add(Kind::ResourceClaim, &pod["status"]["extendedResourceClaimStatus"]["resourceClaimName"]);
        found.sort_unstable();
        found.dedup();
        Some(Pod { node, objects: found })
    }
}

impl Volume {
    /// Reads a volume; none if it is not bound to a claim.
    #[must_use]
    pub fn read(volume: &Value) -> Option<Self> {
        let spec = &volume["spec"];
        let reference = &spec["claimRef"];
        let claim = (text(&reference["namespace"])?.to_owned(), text(&reference["name"])?.to_owned());
        let mut secrets = Vec::new();
        let mut add = |namespace: &Value, name: &Value| {
            let namespace = text(namespace).unwrap_or(&claim.0);
            secrets.extend(text(name).map(|name| (namespace.to_owned(), name.to_owned())));
        };
        let azure = &spec["azureFile"];
        add(&azure["secretNamespace"], &azure["secretName"]);
        for (source, member) in SECRET_SOURCES {
            let secret = &spec[source][member];
            add(&secret["namespace"], &secret["name"]);
        }
        for member in CSI_NODE_SECRETS {
            let secret = &spec["csi"][member];
            add(&secret["namespace"], &secret["name"]);
        }
        secrets.sort_unstable();
        secrets.dedup();
        Some(Volume { claim, secrets })
    }
}

fn text(value: &Value) -> Option<&str> {
    value.as_str().filter(|text| !text.is_empty())
}

fn items(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

#[cfg(test)]
mod tests {
    use machinery::json::json;

    use super::*;

    #[test]
    fn az_135_a_pod_leads_to_what_its_containers_and_volumes_name() {
        let pod = json!({
            "metadata": {"name": "p", "namespace": "a"},
            "spec": {
                "nodeName": "n",
                "serviceAccountName": "robot",
                "imagePullSecrets": [{"name": "pull"}],
                "containers": [{
                    "envFrom": [{"secretRef": {"name": "s1"}}, {"configMapRef": {"name": "c1"}}],
                    "env": [{"valueFrom": {"secretKeyRef": {"name": "s2"}}}, {"valueFrom": {"configMapKeyRef": {"name": "c2"}}}],
                }],
                "initContainers": [{"envFrom": [{"secretRef": {"name": "s3"}}]}],
                "ephemeralContainers": [{"env": [{"valueFrom": {"configMapKeyRef": {"name": "c3"}}}]}],
                "volumes": [
                    {"name": "v", "secret": {"secretName": "s4"}},
                    {"name": "v", "configMap": {"name": "c4"}},
                    {"name": "v", "projected": {"sources": [{"secret": {"name": "s5"}}, {"configMap": {"name": "c5"}}]}},
                    {"name": "v", "csi": {"nodePublishSecretRef": {"name": "s6"}}},
                    {"name": "v", "persistentVolumeClaim": {"claimName": "claim"}},
                    {"name": "scratch", "ephemeral": {}},
                ],
                "resourceClaims": [{"name": "x", "resourceClaimName": "r1"}],
            },
            "status": {"resourceClaimStatuses": [{"name": "y", "resourceClaimName": "r2"}]},
        });
        let read = Pod::read(&pod).unwrap();
        assert_eq!(read.node, "n");
        let of = |kind: Kind| -> Vec<&str> {
            read.objects.iter().filter(|(found, _)| *found == kind).map(|(_, name)| name.as_str()).collect()
        };
        assert_eq!(of(Kind::Secret), ["pull", "s1", "s2", "s3", "s4", "s5", "s6"]);
        assert_eq!(of(Kind::ConfigMap), ["c1", "c2", "c3", "c4", "c5"]);
        assert_eq!(of(Kind::Claim), ["claim", "p-scratch"]);
        assert_eq!(of(Kind::Account), ["robot"]);
        assert_eq!(of(Kind::ResourceClaim), ["r1", "r2"]);
        let mut mirror = pod;
        mirror["metadata"]["annotations"] = json!({"kubernetes.io/config.mirror": "x"});
        assert_eq!(Pod::read(&mirror).unwrap().objects, []);
        assert_eq!(Pod::read(&json!({"spec": {"containers": []}})), None);
    }

    #[test]
    fn az_135_a_volume_leads_to_the_secrets_that_nodes_use() {
        let volume = json!({"spec": {
            "claimRef": {"namespace": "a", "name": "claim"},
            "csi": {
                "nodeStageSecretRef": {"namespace": "b", "name": "stage"},
                "controllerPublishSecretRef": {"namespace": "b", "name": "controller"},
            },
            "iscsi": {"secretRef": {"name": "chap"}},
        }});
        let read = Volume::read(&volume).unwrap();
        assert_eq!(read.claim, ("a".to_owned(), "claim".to_owned()));
        let secrets: Vec<(&str, &str)> = read.secrets.iter().map(|(a, b)| (a.as_str(), b.as_str())).collect();
        assert_eq!(secrets, [("a", "chap"), ("b", "stage")]);
        assert_eq!(Volume::read(&json!({"spec": {}})), None);
    }
}
