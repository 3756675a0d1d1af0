//! ServiceAccount: a pod runs as a service account of its namespace and gets its token (PR-1, PR-2).
//!
//! Only where a controller creates the accounts: a server that runs without that controller would refuse every pod.

use std::time::Duration;

use machinery::json::{Value, json};
use machinery::{Status, random_name};

use super::mountable_secrets;
use super::plugin::{Attributes, Decision, Operation, Plugin, States};
use crate::collections::{PODS, SERVICE_ACCOUNTS};
use crate::read::view;
use crate::storage::Storage;

const DEFAULT: &str = "default";
const VOLUME: &str = "kube-api-access-";
const MOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
const MIRROR: &str = "kubernetes.io/config.mirror";
/// Lifetime of a token in seconds: an hour, and seven seconds that distinguish it from one that was requested by hand.
const TOKEN_SECONDS: i64 = 3607;
/// How often the default account is looked for, and the pause in between: it is created moments after its namespace.
const LOOKUPS: u32 = 60;
const LOOKUP_PAUSE: Duration = Duration::from_millis(25);

pub(super) struct ServiceAccount {
    storage: Storage,
    enabled: bool,
}

impl ServiceAccount {
    pub(super) fn new(storage: Storage, enabled: bool) -> Self {
        ServiceAccount { storage, enabled }
    }

    async fn assign(&self, attributes: &Attributes<'_>, pod: &mut Value) -> Result<(), Status> {
        if is_mirror(pod) {
            return match mountable_secrets::mirror_objection(pod) {
                Some(why) => Err(attributes.forbidden(pod, why)),
                None => Ok(()),
            };
        }
        let target = attributes.target;
        let namespace = target.namespace.as_deref().unwrap_or_default();
        let name = match pod["spec"]["serviceAccountName"].as_str().unwrap_or_default() {
            "" => DEFAULT.to_owned(),
            name => name.to_owned(),
        };
        let Some(account) = self.find(namespace, &name).await? else {
            let why = format!("error looking up service account {namespace}/{name}: serviceaccount {name:?} not found");
            return Err(attributes.forbidden(pod, why));
        };
        pod["spec"]["serviceAccountName"] = json!(name);
        pod["spec"]["serviceAccount"] = json!(name);
        let automount = |object: &Value| object["automountServiceAccountToken"].as_bool();
        if automount(&pod["spec"]).or_else(|| automount(&account)).unwrap_or(true) {
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

    /// Checks the account that a pod has in the end, and the secrets that it refers to.
    fn check(&self, attributes: &Attributes<'_>, pod: &Value) -> Result<(), Status> {
        let (namespace, name) =
            (attributes.namespace(), pod["spec"]["serviceAccountName"].as_str().unwrap_or_default());
        if name.is_empty() {
            let why = format!("no service account specified for pod {namespace}/{}", crate::meta::name(pod));
            return Err(attributes.forbidden(pod, why));
        }
        let Some(account) = self.storage.cached(SERVICE_ACCOUNTS, Some(namespace), name) else {
            let why = format!("error looking up service account {namespace}/{name}: serviceaccount {name:?} not found");
            return Err(attributes.forbidden(pod, why));
        };
        // Most accounts have no annotation: they are not parsed.
        if memchr::memmem::find(account.encoded().whole(), b"enforce-mountable-secrets").is_none() {
            return Ok(());
        }
        let account = view::parse(&account)?;
        let ephemeral = attributes.operation == Operation::Update;
        match mountable_secrets::objection(&account, pod, ephemeral) {
            Some(why) if mountable_secrets::are_enforced(&account) => Err(attributes.forbidden(pod, why)),
            _ => Ok(()),
        }
    }

    /// The account; waits for the default one.
    async fn find(&self, namespace: &str, name: &str) -> Result<Option<Value>, Status> {
        let lookups = if name == DEFAULT { LOOKUPS } else { 1 };
        for lookup in 0..lookups {
            if lookup > 0 {
                tokio::time::sleep(LOOKUP_PAUSE).await;
            }
            if let Some(item) = self.storage.current_named(SERVICE_ACCOUNTS, Some(namespace), name).await? {
                return Ok(Some(view::parse(&item)?));
            }
        }
        Ok(None)
    }
}

impl Plugin for ServiceAccount {
    fn name(&self) -> &'static str {
        "ServiceAccount"
    }

    fn concerns(&self, attributes: &Attributes<'_>) -> bool {
        let adds = attributes.operation == Operation::Update
            && attributes.subresource() == Some("ephemeralcontainers")
            && attributes.target.kind.collection == PODS;
        self.enabled && (adds || attributes.writes(Operation::Create, PODS))
    }

    fn mutate<'a>(&'a self, attributes: &'a Attributes<'a>, pod: &'a mut Value, _: Option<&'a Value>) -> Decision<'a> {
        if attributes.operation == Operation::Create {
            Decision::later(self.assign(attributes, pod))
        } else {
            Decision::ADMIT
        }
    }

    fn validate<'a>(&'a self, attributes: &'a Attributes<'a>, states: States<'a>) -> Decision<'a> {
        match states.new {
            Some(pod) if !is_mirror(pod) => Decision::Now(self.check(attributes, pod)),
            _ => Decision::ADMIT,
        }
    }
}

fn is_mirror(pod: &Value) -> bool {
    pod["metadata"]["annotations"].get(MIRROR).is_some()
}

/// Mounts the token into every container that has nothing mounted there.
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
