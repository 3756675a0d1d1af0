//! The secrets that a pod may refer to: only those of its service account if the account has an annotation for that, and none
//! for a mirror pod.

use machinery::json::Value;

/// The annotation of an account whose pods may only refer to its secrets.
const ENFORCED: &str = "kubernetes.io/enforce-mountable-secrets";

/// Whether pods of an account may only refer to the secrets that it names.
pub(super) fn are_enforced(account: &Value) -> bool {
    let value = account["metadata"]["annotations"][ENFORCED].as_str().unwrap_or_default();
    matches!(value, "1" | "t" | "T" | "true" | "TRUE" | "True")
}

/// Why a mirror pod is refused.
pub(super) fn mirror_objection(pod: &Value) -> Option<&'static str> {
    let spec = &pod["spec"];
    if !text(spec, "serviceAccountName").is_empty() {
        return Some("a mirror pod may not reference service accounts");
    }
    let volumes = || items(spec, "volumes");
    let sources = || volumes().flat_map(|volume| items(&volume["projected"], "sources"));
    let of_volumes = volumes().any(|volume| volume["secret"].is_object() || other_secret(volume))
        || sources().any(|source| source["secret"].is_object());
    let of_containers = containers(spec).any(|(_, container)| secrets_of(container).next().is_some());
    if of_volumes || of_containers || items(spec, "imagePullSecrets").next().is_some() {
        return Some("a mirror pod may not reference secrets");
    }
    sources()
        .any(|source| source["serviceAccountToken"].is_object())
        .then_some("a mirror pod may not use ServiceAccountToken volume projections")
}

/// Whether a volume of another kind refers to a secret.
fn other_secret(volume: &Value) -> bool {
    let members = volume.as_object().into_iter().flatten();
    members.filter(|(name, _)| name.as_str() != "name").any(|(_, source)| {
        ["secretRef", "secretName", "nodePublishSecretRef"]
            .into_iter()
            .any(|member| source[member].is_object() || source[member].as_str().is_some_and(|name| !name.is_empty()))
    })
}

/// Why a pod is refused that refers to a secret which its account does not name.
pub(super) fn objection(account: &Value, pod: &Value, ephemeral: bool) -> Option<String> {
    let (spec, owner) = (&pod["spec"], text(&account["metadata"], "name"));
    let names = |list: &str, name: &str| items(account, list).any(|secret| secret["name"] == name);
    let refused = |what: String, secret: &str| {
        format!(
            "{what} referencing secret.secretName=\"{secret}\" is not allowed because service account {owner} does not \
             reference that secret"
        )
    };
    if !ephemeral {
        for volume in items(spec, "volumes").filter(|volume| volume["secret"].is_object()) {
            let secret = text(&volume["secret"], "secretName");
            if !names("secrets", secret) {
                return Some(format!(
                    "volume with secret.secretName=\"{secret}\" is not allowed because service account {owner} does not \
                     reference that secret"
                ));
            }
        }
    }
    for (kind, container) in containers(spec).filter(|(kind, _)| (*kind == "ephemeral container") == ephemeral) {
        let mut unknown = secrets_of(container).filter(|(_, secret)| !names("secrets", secret));
        if let Some((variable, secret)) = unknown.next() {
            let name = text(container, "name");
            let what = match variable {
                Some(variable) => format!("{kind} {name} with envVar {variable}"),
                None => format!("{kind} {name} with envFrom"),
            };
            return Some(refused(what, secret));
        }
    }
    if ephemeral {
        return None;
    }
    let pulls = items(spec, "imagePullSecrets").enumerate();
    let mut unknown = pulls.filter(|(_, secret)| !names("imagePullSecrets", text(secret, "name")));
    unknown.next().map(|(at, secret)| {
        format!(
            "imagePullSecrets[{at}].name=\"{}\" is not allowed because service account {owner} does not reference that \
             imagePullSecret",
            text(secret, "name")
        )
    })
}

/// The containers of a pod in the order in which they are looked at, with the word for their kind.
fn containers(spec: &Value) -> impl Iterator<Item = (&'static str, &Value)> {
    let lists = [
        ("initContainers", "init container"),
        ("containers", "container"),
        ("ephemeralContainers", "ephemeral container"),
    ];
    lists.into_iter().flat_map(move |(list, kind)| items(spec, list).map(move |container| (kind, container)))
}

/// The secrets in the environment of a container; with the variable, unless all of a secret is taken.
fn secrets_of(container: &Value) -> impl Iterator<Item = (Option<&str>, &str)> {
    let variables = items(container, "env").filter_map(|variable| {
        let secret = &variable["valueFrom"]["secretKeyRef"];
        secret.is_object().then(|| (Some(text(variable, "name")), text(secret, "name")))
    });
    let whole = items(container, "envFrom").filter_map(|from| {
        let secret = &from["secretRef"];
        secret.is_object().then(|| (None, text(secret, "name")))
    });
    variables.chain(whole)
}

fn items<'v>(value: &'v Value, list: &str) -> impl Iterator<Item = &'v Value> {
    value[list].as_array().into_iter().flatten()
}

fn text<'v>(value: &'v Value, member: &str) -> &'v str {
    value[member].as_str().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use machinery::json::json;

    use super::*;

    #[test]
    fn pl_3_a_mirror_pod_refers_to_no_account_and_no_secret() {
        let of = |spec: Value| mirror_objection(&json!({"spec": spec}));
        assert_eq!(of(json!({"containers": [{"name": "c"}]})), None);
        assert_eq!(of(json!({"serviceAccountName": "a"})), Some("a mirror pod may not reference service accounts"));
        for spec in [
            json!({"volumes": [{"name": "v", "secret": {"secretName": "s"}}]}),
            json!({"volumes": [{"name": "v", "projected": {"sources": [{"secret": {"name": "s"}}]}}]}),
            json!({"volumes": [{"name": "v", "cephfs": {"secretRef": {"name": "s"}}}]}),
            json!({"imagePullSecrets": [{"name": "s"}]}),
            json!({"containers": [{"env": [{"name": "e", "valueFrom": {"secretKeyRef": {"name": "s"}}}]}]}),
        ] {
            assert_eq!(of(spec.clone()), Some("a mirror pod may not reference secrets"), "{spec}");
        }
        let token = json!({"volumes": [{"projected": {"sources": [{"serviceAccountToken": {"path": "t"}}]}}]});
        assert_eq!(of(token), Some("a mirror pod may not use ServiceAccountToken volume projections"));
    }

    #[test]
    fn pl_3_pods_of_a_strict_account_refer_to_its_secrets() {
        let account = json!({
            "metadata": {"name": "a", "annotations": {ENFORCED: "true"}},
            "secrets": [{"name": "mine"}],
            "imagePullSecrets": [{"name": "pull"}],
        });
        assert!(are_enforced(&account) && !are_enforced(&json!({})));
        let of = |spec: Value| objection(&account, &json!({"spec": spec}), false);
        let env = |secret: &str| json!([{"name": "e", "valueFrom": {"secretKeyRef": {"name": secret}}}]);
        assert_eq!(
            of(json!({"containers": [{"name": "c", "env": env("mine")}], "imagePullSecrets": [{"name": "pull"}]})),
            None
        );
        assert_eq!(
            of(json!({"initContainers": [{"name": "i", "env": env("other")}]})).unwrap(),
            "init container i with envVar e referencing secret.secretName=\"other\" is not allowed because service account a \
             does not reference that secret"
        );
        assert!(
            of(json!({"containers": [{"name": "c", "envFrom": [{"secretRef": {"name": "x"}}]}]}))
                .unwrap()
                .starts_with("container c with envFrom referencing")
        );
        assert!(
            of(json!({"volumes": [{"secret": {"secretName": "x"}}]}))
                .unwrap()
                .starts_with("volume with secret.secretName=\"x\" is not allowed")
        );
        assert!(
            of(json!({"imagePullSecrets": [{"name": "mine"}]}))
                .unwrap()
                .starts_with("imagePullSecrets[0].name=\"mine\"")
        );
        let late = json!({"spec": {"ephemeralContainers": [{"name": "e", "env": env("x")}]}});
        assert!(objection(&account, &late, true).unwrap().starts_with("ephemeral container e with envVar e"));
        assert_eq!(objection(&account, &late, false), None);
    }
}
