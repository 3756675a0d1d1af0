//! A pod runs as a service account of its namespace, and gets its token (PR-1, PR-2).
//!
//! Only where somebody makes the accounts: a server that runs without that controller would refuse every pod.

use std::time::Duration;

use machinery::json::{Value, json};
use machinery::{Status, random_name};

use crate::meta;
use crate::registry::Registry;
use crate::request::Target;
use crate::view;

const DEFAULT: &str = "default";
const VOLUME: &str = "kube-api-access-";
const MOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
const MIRROR: &str = "kubernetes.io/config.mirror";
/// Seconds for which a token is asked for: an hour, and a little so that it can be told from one that was asked for by hand.
const TOKEN_SECONDS: i64 = 3607;
/// How often a namespace that has just been made is asked for its account, and how long after each time: the account
/// follows the namespace within moments.
const LOOKS: u32 = 60;
const BETWEEN_LOOKS: Duration = Duration::from_millis(25);

impl Registry {
    pub(super) async fn find_service_account(&self, target: &Target, pod: &mut Value) -> Result<(), Status> {
        if !self.settings().service_accounts {
            return Ok(());
        }
        let annotated = |name: &str| pod["metadata"]["annotations"].get(name).is_some();
        if annotated(MIRROR) {
            return Ok(());
        }
        let namespace = target.namespace.as_deref().unwrap_or_default();
        let name = match pod["spec"]["serviceAccountName"].as_str().unwrap_or_default() {
            "" => DEFAULT.to_owned(),
            name => name.to_owned(),
        };
        let Some(account) = self.service_account(namespace, &name).await? else {
            let why = format!("error looking up service account {namespace}/{name}: serviceaccount {name:?} not found");
            return Err(Status::forbidden(&target.gr(), said_name(pod), why));
        };
        pod["spec"]["serviceAccountName"] = json!(name);
        pod["spec"]["serviceAccount"] = json!(name);
        let said = |object: &Value| object["automountServiceAccountToken"].as_bool();
        if said(&pod["spec"]).or_else(|| said(&account)).unwrap_or(true) {
            mount_token(pod);
        }
        let secrets = account["imagePullSecrets"].as_array().filter(|secrets| !secrets.is_empty());
        if let Some(secrets) = secrets
            && pod["spec"]["imagePullSecrets"].as_array().is_none_or(Vec::is_empty)
        {
            let names = secrets.iter().map(|secret| json!({"name": secret["name"]}));
            pod["spec"]["imagePullSecrets"] = Value::from(names.collect::<Vec<_>>());
        }
        Ok(())
    }

    /// The account; the default one is waited for.
    async fn service_account(&self, namespace: &str, name: &str) -> Result<Option<Value>, Status> {
        let looks = if name == DEFAULT { LOOKS } else { 1 };
        for look in 0..looks {
            if look > 0 {
                tokio::time::sleep(BETWEEN_LOOKS).await;
            }
            if let Some(item) = self.lookup("", "v1", "serviceaccounts", Some(namespace), name).await? {
                return Ok(Some(view::parse(&item)?));
            }
        }
        Ok(None)
    }
}

/// The name that was sent: of a generated one its beginning.
fn said_name(pod: &Value) -> &str {
    match meta::text(pod, "generateName") {
        "" => meta::name(pod),
        prefix => prefix,
    }
}

/// Mounts the token into every container that has nothing at its place.
fn mount_token(pod: &mut Value) {
    let volumes = pod["spec"]["volumes"].as_array().map(Vec::as_slice).unwrap_or_default();
    let known = volumes.iter().filter_map(|volume| volume["name"].as_str()).find(|name| name.starts_with(VOLUME));
    let known = known.map(str::to_owned);
    let name = known.clone().unwrap_or_else(|| format!("{VOLUME}{}", random_name::suffix(rand::random())));
    let mut used = false;
    for list in ["initContainers", "containers"] {
        for container in pod["spec"].get_mut(list).and_then(Value::as_array_mut).into_iter().flatten() {
            let mounts = container["volumeMounts"].as_array().map(Vec::as_slice).unwrap_or_default();
            if mounts.iter().any(|mount| mount["mountPath"] == MOUNT) {
                continue;
            }
            push(container, "volumeMounts", json!({"name": name, "readOnly": true, "mountPath": MOUNT}));
            used = true;
        }
    }
    if known.is_none() && used {
        push(&mut pod["spec"], "volumes", json!({"name": name, "projected": token_volume()}));
    }
}

fn push(object: &mut Value, list: &str, value: Value) {
    if !object[list].is_array() {
        object[list] = json!([]);
    }
    if let Some(items) = object[list].as_array_mut() {
        items.push(value);
    }
}

fn token_volume() -> Value {
    json!({
        "defaultMode": 420,
        "sources": [
            {"serviceAccountToken": {"expirationSeconds": TOKEN_SECONDS, "path": "token"}},
            {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
            {"downwardAPI": {"items": [
                {"path": "namespace", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}}]}},
        ],
    })
}
