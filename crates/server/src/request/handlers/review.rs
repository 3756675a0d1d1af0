//! Reviews of users, permissions and tokens: computed for each request, never stored.

use machinery::go_text;
use machinery::json::{Map, Value, json};
use machinery::options::CreateOptions;
use machinery::{FieldError, GroupResource, Status};
use registry::{Body, Outcome, View, WriteRequest};

use crate::request::handlers::Call;
use crate::request::operation::Review;
use access::authorizer::{Attributes, Decision, ResourceAttributes, What};
use access::identity::User;

const AUTHORIZATION: &str = "authorization.k8s.io";

/// Computes a review.
pub(super) async fn compute(
    call: &Call<'_>,
    review: Review,
    request: WriteRequest<'_, CreateOptions>,
    body: &Body,
) -> Result<Outcome, Status> {
    let mut object = call.server.registry.decode_unstored(request, body)?;
    object["status"] = match review {
        Review::SelfSubject => {
            object["metadata"]["creationTimestamp"] =
                json!(call.server.clock.now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string());
            json!({"userInfo": call.user.to_value()})
        }
        Review::Token => token(call, &object)?,
        Review::SelfSubjectAccess => {
            check_access(&object, Subject::Myself)?;
            access(call, call.user, &object["spec"]).await
        }
        Review::SubjectAccess => {
            check_access(&object, Subject::Named)?;
            access(call, &subject(&object["spec"]), &object["spec"]).await
        }
        Review::LocalSubjectAccess => {
            check_access(&object, Subject::Local(request.target.namespace.as_deref().unwrap_or_default()))?;
            access(call, &subject(&object["spec"]), &object["spec"]).await
        }
        Review::SelfSubjectRules => rules(call, &object)?,
    };
    Ok(Outcome::new(201, View::Made { kind: None, value: object }))
}

fn text<'v>(value: &'v Value, name: &str) -> &'v str {
    value[name].as_str().unwrap_or_default()
}

fn texts(value: &Value) -> Vec<String> {
    value.as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
}

fn token(call: &Call<'_>, object: &Value) -> Result<Value, Status> {
    let token = text(&object["spec"], "token");
    if token.is_empty() {
        return Err(Status::bad_request("token is required for TokenReview in authentication"));
    }
    let audiences = texts(&object["spec"]["audiences"]);
    let audiences = Some(audiences.as_slice()).filter(|audiences| !audiences.is_empty());
    Ok(match call.server.authenticator.token(token, audiences, call.server.clock.now()) {
        Ok((user, common)) => {
            let mut status = json!({"authenticated": true, "user": user.to_value()});
            if !common.is_empty() {
                status["audiences"] = json!(common);
            }
            status
        }
        Err(why) => json!({"user": {}, "error": why}),
    })
}

/// The user that a review names.
fn subject(spec: &Value) -> User {
    let extra = spec["extra"].as_object().into_iter().flatten().map(|(key, values)| (key.to_string(), texts(values)));
    User {
        name: text(spec, "user").to_owned(),
        uid: text(spec, "uid").to_owned(),
        groups: texts(&spec["groups"]),
        extra: extra.collect(),
    }
}

/// The subject of an access review.
#[derive(Clone, Copy)]
enum Subject<'a> {
    Myself,
    Named,
    /// In this namespace only.
    Local(&'a str),
}

/// The reference names no kind in these refusals.
fn check_access(object: &Value, whose: Subject<'_>) -> Result<(), Status> {
    let spec = &object["spec"];
    let (resource, path) = (spec["resourceAttributes"].is_object(), spec["nonResourceAttributes"].is_object());
    let mut errors = Vec::new();
    if resource && path {
        errors.push(FieldError::invalid(
            "spec.nonResourceAttributes",
            spec["nonResourceAttributes"].clone(),
            "cannot be specified in combination with resourceAttributes",
        ));
    }
    if !resource && !path {
        errors.push(FieldError::invalid(
            "spec.resourceAttributes",
            Value::Null,
            "exactly one of nonResourceAttributes or resourceAttributes must be specified",
        ));
    }
    if !matches!(whose, Subject::Myself) && text(spec, "user").is_empty() && texts(&spec["groups"]).is_empty() {
        errors.push(FieldError::invalid("spec.user", "", "at least one of user or group must be specified"));
    }
    let mut metadata = object["metadata"].as_object().cloned().unwrap_or_default();
    if let Subject::Local(namespace) = whose {
        if path {
            errors.push(FieldError::invalid(
                "spec.nonResourceAttributes",
                spec["nonResourceAttributes"].clone(),
                "disallowed on this kind of request",
            ));
        }
        if resource && text(&spec["resourceAttributes"], "namespace") != namespace {
            errors.push(FieldError::invalid(
                "spec.resourceAttributes.namespace",
                text(&spec["resourceAttributes"], "namespace"),
                "must match metadata.namespace",
            ));
        }
        metadata.shift_remove("namespace");
    }
    let said = metadata.iter().any(|(name, value)| name != "managedFields" && !is_empty(value));
    if said {
        let shown = go_text::json(&object["metadata"]);
        errors.push(FieldError::invalid(
            "metadata",
            serde_json::from_str::<Value>(&shown).unwrap_or_default(),
            "must be empty",
        ));
    }
    if errors.is_empty() {
        return Ok(());
    }
    Err(Status::invalid(&GroupResource::new(AUTHORIZATION, ""), "", &errors))
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(members) => members.is_empty(),
        Value::Bool(_) | Value::Number(_) | Value::Raw(_) => false,
    }
}

/// The authorizer's decision as the status of an access review.
async fn access(call: &Call<'_>, user: &User, spec: &Value) -> Value {
    let resource = &spec["resourceAttributes"];
    let path = &spec["nonResourceAttributes"];
    let (verb, what) = if resource.is_object() {
        let what = ResourceAttributes {
            group: text(resource, "group"),
            version: text(resource, "version"),
            resource: text(resource, "resource"),
            subresource: text(resource, "subresource"),
            namespace: text(resource, "namespace"),
            name: text(resource, "name"),
            ..ResourceAttributes::default()
        };
        (text(resource, "verb"), What::Resource(what))
    } else {
        (text(path, "verb"), What::Path(text(path, "path")))
    };
    let attributes = Attributes { user, verb, what };
    let Decision { allowed, denied, reason, error } = call.server.authorizer.authorize(&attributes).get().await;
    let mut status = Map::new();
    status.insert("allowed", allowed.into());
    if denied {
        status.insert("denied", true.into());
    }
    if !reason.is_empty() {
        status.insert("reason", reason.into());
    }
    if !error.is_empty() {
        status.insert("evaluationError", error.into());
    }
    status.into()
}

/// The rules of the user. An authorizer cannot list rules, so these are the ones that hold for all authenticated users;
/// for others the list is marked as incomplete.
fn rules(call: &Call<'_>, object: &Value) -> Result<Value, Status> {
    if text(&object["spec"], "namespace").is_empty() {
        return Err(Status::bad_request("no namespace on request"));
    }
    let all = call.user.is_master() || call.user.in_group(access::identity::AUTHENTICATED);
    let everything = json!(["*"]);
    Ok(if all {
        json!({
            "resourceRules": [{"verbs": everything, "apiGroups": everything, "resources": everything}],
            "nonResourceRules": [{"verbs": everything, "nonResourceURLs": everything}],
            "incomplete": false,
        })
    } else {
        json!({"resourceRules": [], "nonResourceRules": [], "incomplete": true})
    })
}
