//! The roles and bindings that every cluster has.
//!
//! `objects.tsv` holds them as facts; [`objects`] reads it. [`reconcile`] decides what becomes of one that is already there, perhaps
//! in a state that an administrator or an earlier version has left.

mod reconcile;

use std::fmt;

use machinery::json::{Map, Value, json};

pub use reconcile::{Step, reconcile};

const OBJECTS: &str = include_str!("objects.tsv");

const GROUP: &str = "rbac.authorization.k8s.io";
/// The annotation that lets an administrator keep an object as it is: `false`.
pub const AUTO_UPDATE: &str = "rbac.authorization.kubernetes.io/autoupdate";

/// A role or binding that every cluster has.
#[derive(Clone, Debug, PartialEq)]
pub struct Object {
    /// `clusterroles`, `roles`, `clusterrolebindings` or `rolebindings`.
    pub resource: &'static str,
    pub namespace: Option<&'static str>,
    pub name: &'static str,
    pub value: Value,
}

/// A line of the table that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadLine(usize);

impl fmt::Display for BadLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {} of the table of bootstrap objects cannot be read", self.0)
    }
}

/// Reads the table: roles of the cluster, their bindings, then roles and bindings of namespaces.
pub fn objects() -> Result<Vec<Object>, BadLine> {
    let mut objects: Vec<Object> = Vec::new();
    for (number, line) in OBJECTS.lines().enumerate().filter(|(_, line)| !line.starts_with('#')) {
        read_line(&mut objects, line).ok_or(BadLine(number + 1))?;
    }
    Ok(objects)
}

fn read_line(objects: &mut Vec<Object>, line: &'static str) -> Option<()> {
    let columns: Vec<&'static str> = line.split('\t').collect();
    match columns.as_slice() {
        ["role", namespace, name, labels @ ..] => objects.push(role(namespace, name, labels)?),
        ["selects", label] => {
            let (key, value) = label.split_once('=')?;
            let mut labels = Map::new();
            labels.insert(key, value.into());
            let selectors = &mut objects.last_mut()?.value["aggregationRule"]["clusterRoleSelectors"];
            push(selectors, json!({"matchLabels": Value::from(labels)}));
        }
        ["rule", verbs, groups, resources, names @ ..] => {
            let groups: Vec<&str> = groups.split(' ').map(|group| if group == "core" { "" } else { group }).collect();
            let mut rule = json!({"verbs": items(verbs), "apiGroups": groups, "resources": items(resources)});
            if let [names] = names {
                rule["resourceNames"] = json!(items(names));
            }
            push(&mut objects.last_mut()?.value["rules"], rule);
        }
        ["paths", verbs, paths] => {
            let rule = json!({"verbs": items(verbs), "nonResourceURLs": items(paths)});
            push(&mut objects.last_mut()?.value["rules"], rule);
        }
        ["binding", namespace, name, kind, role] => objects.push(binding(namespace, name, kind, role)),
        ["subject", "ServiceAccount", namespace, name] => {
            let subject = json!({"kind": "ServiceAccount", "name": name, "namespace": namespace});
            push(&mut objects.last_mut()?.value["subjects"], subject);
        }
        ["subject", kind, name] => {
            let subject = json!({"kind": kind, "apiGroup": GROUP, "name": name});
            push(&mut objects.last_mut()?.value["subjects"], subject);
        }
        _ => return None,
    }
    Some(())
}

fn items(column: &str) -> Vec<&str> {
    column.split(' ').collect()
}

fn push(list: &mut Value, item: Value) {
    if let Some(items) = list.as_array_mut() {
        items.push(item);
    } else {
        *list = vec![item].into();
    }
}

fn role(namespace: &'static str, name: &'static str, labels: &[&'static str]) -> Option<Object> {
    let namespace = (namespace != "-").then_some(namespace);
    let (resource, kind) = if namespace.is_some() { ("roles", "Role") } else { ("clusterroles", "ClusterRole") };
    let mut value = object(kind, namespace, name);
    for label in labels {
        let (key, text) = label.split_once('=')?;
        value["metadata"]["labels"][key] = text.into();
    }
    value["rules"] = Value::Null;
    Some(Object { resource, namespace, name, value })
}

fn binding(namespace: &'static str, name: &'static str, kind: &str, role: &str) -> Object {
    let namespace = (namespace != "-").then_some(namespace);
    let (resource, own_kind) = if namespace.is_some() {
        ("rolebindings", "RoleBinding")
    } else {
        ("clusterrolebindings", "ClusterRoleBinding")
    };
    let mut value = object(own_kind, namespace, name);
    value["roleRef"] = json!({"apiGroup": GROUP, "kind": kind, "name": role});
    Object { resource, namespace, name, value }
}

fn object(kind: &str, namespace: Option<&str>, name: &str) -> Value {
    let mut metadata = json!({
        "name": name,
        "labels": {"kubernetes.io/bootstrapping": "rbac-defaults"},
        "annotations": {AUTO_UPDATE: "true"},
    });
    if let Some(namespace) = namespace {
        metadata["namespace"] = namespace.into();
    }
    json!({"kind": kind, "apiVersion": format!("{GROUP}/v1"), "metadata": metadata})
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(resource: &str, name: &str) -> Value {
        let objects = objects().unwrap();
        let found = objects.into_iter().find(|object| object.resource == resource && object.name == name);
        found.unwrap_or_else(|| panic!("{resource} {name}")).value
    }

    #[test]
    fn az_100_101_102_103_104_roles_of_everyone() {
        assert_eq!(
            named("clusterroles", "cluster-admin")["rules"],
            json!([
                {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]},
                {"verbs": ["*"], "nonResourceURLs": ["*"]},
            ])
        );
        let public =
            json!([{"verbs": ["get"], "nonResourceURLs": ["/healthz", "/livez", "/readyz", "/version", "/version/"]}]);
        assert_eq!(named("clusterroles", "system:public-info-viewer")["rules"], public);
        let discovery = named("clusterroles", "system:discovery");
        assert_eq!(discovery["rules"][0]["nonResourceURLs"].as_array().unwrap().len(), 11);
        let basic = named("clusterroles", "system:basic-user");
        assert_eq!(basic["rules"][0]["resources"], json!(["selfsubjectaccessreviews", "selfsubjectrulesreviews"]));
        assert_eq!(basic["rules"][1]["resources"], json!(["selfsubjectreviews"]));
        let monitoring = named("clusterroles", "system:monitoring").to_string();
        assert!(monitoring.contains("/metrics/slis") && monitoring.contains("nodes/metrics"), "{monitoring}");
    }

    #[test]
    fn az_105_106_107_108_aggregated_roles() {
        let to = |role: &str| format!("rbac.authorization.k8s.io/aggregate-to-{role}");
        for (role, into) in [("view", "edit"), ("edit", "admin")] {
            let value = named("clusterroles", role);
            assert_eq!(value["aggregationRule"]["clusterRoleSelectors"], json!([{"matchLabels": {to(role): "true"}}]));
            assert_eq!(value["metadata"]["labels"][to(into).as_str()], "true");
            assert!(value["rules"].is_null());
        }
        for role in ["admin", "edit", "view"] {
            let part = named("clusterroles", &format!("system:aggregate-to-{role}"));
            assert_eq!(part["metadata"]["labels"][to(role).as_str()], "true");
        }
        let view = named("clusterroles", "system:aggregate-to-view").to_string();
        assert!(!view.contains("\"secrets\"") && !view.contains("\"roles\""), "{view}");
    }

    #[test]
    fn az_109_110_111_112_113_114_components_certificates_and_controllers() {
        let objects = objects().unwrap();
        for name in ["system:node", "system:kube-scheduler", "system:kube-dns", "system:auth-delegator"] {
            assert!(!named("clusterroles", name)["rules"].as_array().unwrap().is_empty(), "{name}");
        }
        let approver = "system:certificates.k8s.io:kubelet-serving-approver";
        assert_eq!(
            named("clusterroles", approver)["rules"][0]["resourceNames"],
            json!(["kubernetes.io/kubelet-serving"])
        );
        assert!(named("clusterrolebindings", "system:node")["subjects"].is_null());
        assert_eq!(
            named("clusterrolebindings", "cluster-admin")["subjects"],
            json!([{"kind": "Group", "apiGroup": GROUP, "name": "system:masters"}])
        );
        let controllers = objects
            .iter()
            .filter(|object| object.resource == "clusterrolebindings" && object.name.starts_with("system:controller:"));
        let mut count = 0;
        for binding in controllers {
            count += 1;
            let account = binding.name.trim_start_matches("system:controller:");
            let subject = json!([{"kind": "ServiceAccount", "name": account, "namespace": "kube-system"}]);
            assert_eq!(binding.value["subjects"], subject);
            assert!(objects.iter().any(|role| role.resource == "clusterroles" && role.name == binding.name));
        }
        assert_eq!(count, 38);
        let reader = named("rolebindings", "system::extension-apiserver-authentication-reader");
        assert_eq!(reader["roleRef"]["name"], "extension-apiserver-authentication-reader");
        assert_eq!(reader["metadata"]["namespace"], "kube-system");
    }

    #[test]
    fn az_115_counts() {
        let objects = objects().unwrap();
        let count = |resource: &str| objects.iter().filter(|object| object.resource == resource).count();
        let counts = ["clusterroles", "clusterrolebindings", "roles", "rolebindings"].map(count);
        assert_eq!(counts, [69, 50, 7, 7]);
        for object in &objects {
            let metadata = &object.value["metadata"];
            assert_eq!(metadata["labels"]["kubernetes.io/bootstrapping"], "rbac-defaults");
            assert_eq!(metadata["annotations"][AUTO_UPDATE], "true");
        }
    }
}
