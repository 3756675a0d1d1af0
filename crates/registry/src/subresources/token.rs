//! Tokens of service accounts: checks of a request for one, its claims, and whether they still hold. The server signs
//! them.

use machinery::json::{Value, json};
use machinery::options::CreateOptions;
use machinery::{FieldError, GroupResource, GroupVersionKind, Status};

use crate::body;
use crate::collections::{NODES, PODS, SECRETS, SERVICE_ACCOUNTS};
use crate::meta;
use crate::read::view;
use crate::registry::Registry;
use crate::request::{Body, Target, WriteRequest};

const SECONDS_DEFAULT: i64 = 3600;
/// Clocks differ: what was deleted a moment ago may still be in use.
const LEEWAY_SECONDS: i64 = 60;

/// A token to be signed.
#[derive(Debug)]
pub struct TokenGrant {
    /// The request as it is answered, without its status.
    pub request: Value,
    /// The claims of the token; the signer adds the issuer.
    pub claims: Value,
    /// Seconds since the epoch.
    pub expires: i64,
}

/// Checks a request for a token. `audiences` are those of a token that names none.
pub(crate) async fn request(
    registry: &Registry,
    request: WriteRequest<'_, CreateOptions>,
    body: &Body,
    audiences: &[String],
) -> Result<TokenGrant, Status> {
    let WriteRequest { target, options, ctx } = request;
    let gvk = GroupVersionKind::new("authentication.k8s.io", "v1", "TokenRequest");
    let mut request = body::object_of(&gvk, body, options.field_validation, ctx)?;
    let kind = GroupResource::new("authentication.k8s.io", "TokenRequest");
    let (name, namespace) = (target.name(), target.namespace.as_deref().unwrap_or_default());
    for (member, is, what) in [("name", name, "name"), ("namespace", namespace, "namespace")] {
        let stated = meta::text(&request, member);
        if !stated.is_empty() && stated != is {
            let why = format!("must match the service account {what} if specified");
            let error = FieldError::invalid(format!("metadata.{member}"), stated, why);
            return Err(Status::invalid(&kind, name, &[error]));
        }
    }
    let account = must_find(registry, SERVICE_ACCOUNTS, Some(namespace), name).await?;
    let (stated, uid) = (meta::uid(&request), meta::uid(&account));
    if !stated.is_empty() && stated != uid {
        let why =
            format!("the UID in the token request ({stated}) does not match the UID of the service account ({uid})");
        return Err(Status::conflict(&kind, name, why));
    }
    let seconds = check_seconds(&request, &kind)?;
    let bound = bound_objects(registry, target, &request["spec"]["boundObjectRef"]).await?;

    let now = registry.now();
    let metadata = meta::of_mut(&mut request);
    for (member, value) in [
        ("name", name.to_owned()),
        ("namespace", namespace.to_owned()),
        ("uid", uid.to_owned()),
        ("creationTimestamp", meta::timestamp(now)),
    ] {
        metadata.insert(member.to_owned(), json!(value));
    }
    if !request["spec"].is_object() {
        request["spec"] = json!({});
    }
    let spec = &mut request["spec"];
    if spec["audiences"].as_array().is_none_or(Vec::is_empty) {
        spec["audiences"] = json!(audiences);
    }
    spec["expirationSeconds"] = json!(seconds);
    if spec.get("boundObjectRef").is_none() {
        spec["boundObjectRef"] = Value::Null;
    }
    let audience = spec["audiences"].clone();
    let mut about = json!({"namespace": namespace});
    for (member, object) in bound.into_iter().chain([("serviceaccount", account.clone())]) {
        about[member] = json!({"name": meta::name(&object), "uid": meta::uid(&object)});
    }
    let issued = now.as_second();
    let claims = json!({
        "aud": audience,
        "exp": issued + seconds,
        "iat": issued,
        "jti": uuid::Uuid::new_v4().to_string(),
        "kubernetes.io": about,
        "nbf": issued,
        "sub": format!("system:serviceaccount:{namespace}:{name}"),
    });
    Ok(TokenGrant { request, claims, expires: issued + seconds })
}

async fn must_find(
    registry: &Registry,
    collection: &str,
    namespace: Option<&str>,
    name: &str,
) -> Result<Value, Status> {
    let found = registry.storage().current_named(collection, namespace, name).await?;
    let plural = collection.trim_start_matches("core/");
    let found = found.ok_or_else(|| Status::not_found(&GroupResource::new("", plural), name))?;
    view::parse(&found)
}

/// The objects that a token is bound to, under their names in its claims.
async fn bound_objects(registry: &Registry, target: &Target, to: &Value) -> Result<Vec<(&'static str, Value)>, Status> {
    if !to.is_object() {
        return Ok(Vec::new());
    }
    let text = |member: &str| to[member].as_str().unwrap_or_default();
    let (group, version) = text("apiVersion").split_once('/').unwrap_or(("", text("apiVersion")));
    let (name, namespace) = (text("name"), target.namespace.as_deref());
    let mut bound = Vec::new();
    match (group, text("kind")) {
        ("", "Pod") => {
            let pod = must_find(registry, PODS, namespace, name).await?;
            if pod["spec"]["serviceAccountName"].as_str().unwrap_or_default() != target.name() {
                return Err(Status::bad_request(format!(
                    "cannot bind token for serviceaccount {:?} to pod running with different serviceaccount name.",
                    target.name()
                )));
            }
            let node = pod["spec"]["nodeName"].as_str().unwrap_or_default().to_owned();
            bound.push(("pod", pod));
            if !node.is_empty() {
                let found = registry.storage().current_named(NODES, None, &node).await?;
                let unknown = json!({"metadata": {"name": node}});
                bound.push(("node", found.map_or(Ok(unknown), |found| view::parse(&found))?));
            }
        }
        ("", "Node") => bound.push(("node", must_find(registry, NODES, None, name).await?)),
        ("", "Secret") => bound.push(("secret", must_find(registry, SECRETS, namespace, name).await?)),
        (group, kind) => {
            let why = format!("cannot bind token to object of type {group}/{version}, Kind={kind}");
            return Err(Status::bad_request(why));
        }
    }
    let (stated, uid) = (text("uid"), meta::uid(&bound[0].1));
    if !stated.is_empty() && stated != uid {
        let why = format!(
            "the UID in the bound object reference ({stated}) does not match the UID in record. The object might have \
             been deleted and then recreated"
        );
        return Err(Status::conflict(&GroupResource::new("", text("kind")), name, why));
    }
    Ok(bound)
}

/// Checks that the account of a token, and what it is bound to, are still there; an error names what is not.
pub(crate) fn check_claims(registry: &Registry, claims: &Value) -> Result<(), String> {
    let about = &claims["kubernetes.io"];
    let namespace = about["namespace"].as_str().unwrap_or_default();
    let name = about["serviceaccount"]["name"].as_str().unwrap_or_default();
    let gone = || "service account token has been invalidated".to_owned();
    let account = cached(registry, SERVICE_ACCOUNTS, Some(namespace), name);
    let account = account.ok_or_else(|| format!("serviceaccounts \"{name}\" not found"))?;
    let (uid, claimed) = (meta::uid(&account), about["serviceaccount"]["uid"].as_str().unwrap_or_default());
    if uid != claimed {
        return Err(format!("service account UID ({uid}) does not match claim ({claimed})"));
    }
    if long_deleted(registry, &account) {
        return Err(format!("service account {namespace}/{name} has been deleted"));
    }
    for (member, collection, scope) in
        [("secret", SECRETS, Some(namespace)), ("pod", PODS, Some(namespace)), ("node", NODES, None)]
    {
        let to = &about[member];
        // The node of a pod is for information.
        if !to.is_object() || (member == "node" && about["pod"].is_object()) {
            continue;
        }
        let object = cached(registry, collection, scope, to["name"].as_str().unwrap_or_default()).ok_or_else(gone)?;
        let (uid, claimed) = (meta::uid(&object), to["uid"].as_str().unwrap_or_default());
        if uid != claimed {
            let why = format!("{member} UID ({uid}) does not match service account {member} ref claim ({claimed})");
            return Err(why);
        }
        if long_deleted(registry, &object) {
            return Err(gone());
        }
    }
    Ok(())
}

fn cached(registry: &Registry, collection: &str, namespace: Option<&str>, name: &str) -> Option<Value> {
    let item = registry.storage().cached(collection, namespace, name)?;
    view::parse(&item).ok()
}

fn long_deleted(registry: &Registry, object: &Value) -> bool {
    let now = registry.now().as_second();
    meta::deletion_timestamp(object).is_some_and(|at| at.as_second() < now - LEEWAY_SECONDS)
}

fn check_seconds(request: &Value, kind: &GroupResource) -> Result<i64, Status> {
    let errors = schema::validation::validate_token_request(request);
    if !errors.is_empty() {
        return Err(Status::invalid(kind, "", &errors));
    }
    Ok(request["spec"]["expirationSeconds"].as_i64().unwrap_or(SECONDS_DEFAULT))
}
