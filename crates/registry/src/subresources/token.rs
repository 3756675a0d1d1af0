//! Tokens of service accounts: checks a request for one and makes its claims. The server signs them.

use machinery::json::{Value, json};
use machinery::options::CreateOptions;
use machinery::{FieldError, GroupResource, GroupVersionKind, Status};

use crate::admission::plugin::{Attributes, Operation, Options, States};
use crate::body;
use crate::collections::{NODES, PODS, SECRETS, SERVICE_ACCOUNTS};
use crate::meta;
use crate::read::view;
use crate::registry::Registry;
use crate::request::{Body, Target, WriteRequest};

const SECONDS_DEFAULT: i64 = 3600;
/// The lifetime that kubelets request for pods. Pods that read their token only once get a longer one, and the audit log
/// tells when they use it later than that.
const SECONDS_OF_PODS: i64 = 3607;
const SECONDS_EXTENDED: i64 = 365 * 24 * 3600;

/// The server's terms of a token.
#[derive(Clone, Copy, Debug)]
pub struct TokenTerms<'a> {
    /// The audiences of this server, which a token has that names none.
    pub audiences: &'a [String],
    /// Longest lifetime.
    pub seconds_max: Option<i64>,
}

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

/// Checks a request for a token.
pub(crate) async fn request(
    registry: &Registry,
    request: WriteRequest<'_, CreateOptions>,
    body: &Body,
    terms: TokenTerms<'_>,
) -> Result<TokenGrant, Status> {
    let WriteRequest { target, options, ctx } = request;
    let gvk = GroupVersionKind::new("authentication.k8s.io", "v1", "TokenRequest");
    let mut request = body::object_of(&gvk, body, options.field_validation, ctx)?;
    body::check_namespace(target, &mut request)?;
    let attributes = Attributes::new(Operation::Create, target, Options::Create(options), ctx);
    registry.admission().mutate(&attributes, &mut request, None).await?;
    let kind = GroupResource::new("authentication.k8s.io", "TokenRequest");
    let (name, namespace) = (target.name(), target.namespace.as_deref().unwrap_or_default());
    let stated = meta::name(&request);
    if !stated.is_empty() && stated != name {
        let error = FieldError::invalid("metadata.name", stated, "must match the service account name if specified");
        return Err(Status::invalid(&kind, name, &[error]));
    }
    let account = must_find(registry, SERVICE_ACCOUNTS, Some(namespace), name).await?;
    let (stated, uid) = (meta::uid(&request), meta::uid(&account));
    if !stated.is_empty() && stated != uid {
        let why =
            format!("the UID in the token request ({stated}) does not match the UID of the service account ({uid})");
        return Err(Status::conflict(&kind, name, why));
    }
    let now = registry.now();
    fill_in(&mut request, &account, terms.audiences, now);
    let errors = schema::validation::validate_token_request(&request);
    if !errors.is_empty() {
        return Err(Status::invalid(&kind, "", &errors));
    }
    registry.admission().validate(&attributes, States::new(None, Some(&request))).await?;
    // Looked up after everything that can be refused without it.
    let bound = bound_objects(registry, target, &request["spec"]["boundObjectRef"]).await?;
    let mut seconds = request["spec"]["expirationSeconds"].as_i64().unwrap_or(SECONDS_DEFAULT);
    if let Some(max) = terms.seconds_max.filter(|max| seconds > *max) {
        ctx.warnings.push(format!("requested expiration of {seconds} seconds shortened to {max} seconds"));
        seconds = max;
        request["spec"]["expirationSeconds"] = json!(seconds);
    }

    let audience = request["spec"]["audiences"].clone();
    let mut about = json!({"namespace": namespace});
    let is_of_pod = bound.iter().any(|(member, _)| *member == "pod");
    for (member, object) in bound.into_iter().chain([("serviceaccount", account.clone())]) {
        about[member] = reference(&object);
    }
    let issued = now.as_second();
    let mut until = issued + seconds;
    let audiences = audience.as_array().into_iter().flatten().filter_map(Value::as_str);
    if is_of_pod
        && seconds == SECONDS_OF_PODS
        && audiences.clone().all(|one| terms.audiences.iter().any(|own| own == one))
    {
        about["warnafter"] = json!(until);
        until = issued + SECONDS_EXTENDED;
    }
    let id = uuid::Uuid::new_v4().to_string();
    if ctx.annotations.are_kept() {
        ctx.annotations.set("authentication.kubernetes.io/issued-credential-id", format!("JTI={id}"));
    }
    let claims = json!({
        "aud": audience,
        "exp": until,
        "iat": issued,
        "jti": id,
        "kubernetes.io": about,
        "nbf": issued,
        "sub": format!("system:serviceaccount:{namespace}:{name}"),
    });
    Ok(TokenGrant { request, claims, expires: issued + seconds })
}

/// Sets what a request may leave out.
fn fill_in(request: &mut Value, account: &Value, audiences: &[String], now: jiff::Timestamp) {
    let metadata = meta::of_mut(request);
    for (member, value) in [
        ("name", meta::name(account)),
        ("namespace", meta::text(account, "namespace")),
        ("uid", meta::uid(account)),
        ("creationTimestamp", &meta::timestamp(now)),
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
    if spec.get("expirationSeconds").is_none_or(Value::is_null) {
        spec["expirationSeconds"] = json!(SECONDS_DEFAULT);
    }
    if spec.get("boundObjectRef").is_none() {
        spec["boundObjectRef"] = Value::Null;
    }
    request["status"] = json!({});
}

/// Name and UID of an object; a node that does not exist has no UID.
fn reference(object: &Value) -> Value {
    let mut reference = json!({"name": meta::name(object)});
    if !meta::uid(object).is_empty() {
        reference["uid"] = json!(meta::uid(object));
    }
    reference
}

async fn must_find(
    registry: &Registry,
    collection: &str,
    namespace: Option<&str>,
    name: &str,
) -> Result<Value, Status> {
    if name.is_empty() {
        return Err(Status::bad_request("Name parameter required."));
    }
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
