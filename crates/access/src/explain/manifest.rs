//! Roles and bindings as objects that can be applied.

use machinery::json::{Text, Value, json};

use crate::authorizer::{Attributes, ResourceAttributes, What};
use crate::identity::User;
use crate::rbac::rule::Rule;

const RBAC: &str = "rbac.authorization.k8s.io";
const ACCOUNT: &str = "system:serviceaccount:";
/// Longest part of a generated name.
const NAME_BYTES_MAX: usize = 60;

/// `pods`, or `pods/log`.
#[must_use]
pub fn full(about: &ResourceAttributes<'_>) -> String {
    if about.subresource.is_empty() {
        about.resource.to_owned()
    } else {
        format!("{}/{}", about.resource, about.subresource)
    }
}

/// The smallest rule that allows a request.
#[must_use]
pub fn smallest_rule(attributes: &Attributes<'_>) -> Rule {
    let one = |text: &str| vec![Text::new(text)];
    match &attributes.what {
        What::Path(path) => Rule { verbs: one(attributes.verb), paths: one(path), ..Rule::default() },
        What::Resource(about) => Rule {
            verbs: one(attributes.verb),
            groups: one(about.group),
            resources: vec![full(about).into()],
            names: if about.name.is_empty() { Vec::new() } else { one(about.name) },
            paths: Vec::new(),
        },
    }
}

/// A role and a binding that allow a request to its user, and nothing else.
#[must_use]
pub fn remedy(attributes: &Attributes<'_>) -> Vec<Value> {
    let (namespace, what) = match &attributes.what {
        What::Path(path) => ("", (*path).to_owned()),
        What::Resource(about) => (about.namespace, full(about)),
    };
    let name = object_name(&format!("{}-{what}", attributes.verb));
    let rule = smallest_rule(attributes);
    vec![role(namespace, &name, &[rule]), binding(namespace, &name, attributes.user)]
}

/// A Role, or a ClusterRole without a namespace.
#[must_use]
pub fn role(namespace: &str, name: &str, rules: &[Rule]) -> Value {
    let kind = if namespace.is_empty() { "ClusterRole" } else { "Role" };
    json!({
        "apiVersion": format!("{RBAC}/v1"),
        "kind": kind,
        "metadata": metadata(namespace, name),
        "rules": rules.iter().map(Rule::to_value).collect::<Vec<Value>>(),
    })
}

/// A binding of the role of the same name to a user.
#[must_use]
pub fn binding(namespace: &str, name: &str, user: &User) -> Value {
    let kind = if namespace.is_empty() { "ClusterRole" } else { "Role" };
    let account = user.name.strip_prefix(ACCOUNT).and_then(|rest| rest.split_once(':'));
    let subject = match account {
        Some((namespace, name)) => json!({"kind": "ServiceAccount", "name": name, "namespace": namespace}),
        None => json!({"kind": "User", "apiGroup": RBAC, "name": user.name}),
    };
    json!({
        "apiVersion": format!("{RBAC}/v1"),
        "kind": format!("{kind}Binding"),
        "metadata": metadata(namespace, name),
        "roleRef": {"apiGroup": RBAC, "kind": kind, "name": name},
        "subjects": [subject],
    })
}

fn metadata(namespace: &str, name: &str) -> Value {
    if namespace.is_empty() { json!({"name": name}) } else { json!({"name": name, "namespace": namespace}) }
}

/// A name for an object from any text.
#[must_use]
pub fn object_name(text: &str) -> String {
    let plain = |letter: char| if letter.is_ascii_alphanumeric() { letter.to_ascii_lowercase() } else { '-' };
    let mut name: String = text.chars().take(NAME_BYTES_MAX).map(plain).collect();
    while name.contains("--") {
        name = name.replace("--", "-");
    }
    let name = name.trim_matches('-');
    if name.is_empty() { "role".to_owned() } else { name.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ba_1_the_remedy_is_the_smallest_role_for_the_request() {
        let user = User { name: "system:serviceaccount:ops:robot".to_owned(), ..User::default() };
        let about = ResourceAttributes {
            resource: "pods",
            subresource: "log",
            namespace: "n",
            name: "p",
            ..Default::default()
        };
        let objects = remedy(&Attributes { user: &user, verb: "get", what: What::Resource(about) });
        assert_eq!(objects[0]["kind"], "Role");
        assert_eq!(objects[0]["metadata"], json!({"name": "get-pods-log", "namespace": "n"}));
        let rule = json!({"verbs": ["get"], "apiGroups": [""], "resources": ["pods/log"], "resourceNames": ["p"]});
        assert_eq!(objects[0]["rules"], json!([rule]));
        assert_eq!(objects[1]["kind"], "RoleBinding");
        assert_eq!(objects[1]["subjects"], json!([{"kind": "ServiceAccount", "name": "robot", "namespace": "ops"}]));
        let paths = remedy(&Attributes { user: &user, verb: "get", what: What::Path("/metrics") });
        assert_eq!(paths[0]["kind"], "ClusterRole");
        assert_eq!(paths[0]["rules"], json!([{"verbs": ["get"], "nonResourceURLs": ["/metrics"]}]));
    }

    #[test]
    fn names_are_valid_for_objects() {
        assert_eq!(object_name("get-/healthz/*"), "get-healthz");
        assert_eq!(object_name("///"), "role");
        assert_eq!(object_name("system:serviceaccount:N:op"), "system-serviceaccount-n-op");
    }
}
