//! One constructor for each outcome of a request, by the table of spec 02 §1.2.

use std::collections::BTreeMap;

use super::*;

/// Message of a conflict with a newer version of the object.
const MODIFIED: &str = "the object has been modified; please apply your changes to the latest version and try again";

/// Clients check how it begins; the rest is this server's own.
const CONTINUE_EXPIRED: &str = "The provided continue parameter is too old: the revision it began at is compacted. List again from the start, or go on with the token of this answer, which shows the rest as it is now.";

impl Status {
    fn failure(code: u16, reason: &'static str, message: impl Into<String>) -> Self {
        Status {
            code,
            outcome: Outcome::Failure,
            reason: Some(Cow::Borrowed(reason)),
            message: message.into(),
            details: None,
            continue_token: None,
        }
    }

    fn about(mut self, details: Details) -> Self {
        self.details = Some(details);
        self
    }

    fn retry_after(mut self, seconds: u32) -> Self {
        self.details.get_or_insert_default().retry_after_seconds = seconds;
        self
    }

    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::failure(400, reason::BAD_REQUEST, message)
    }

    #[must_use]
    pub fn unauthorized() -> Self {
        Self::failure(401, reason::UNAUTHORIZED, "Unauthorized")
    }

    /// Access is denied. An empty resource means a path that is not a resource; an empty name means a collection.
    pub fn forbidden(gr: &GroupResource, name: &str, why: impl fmt::Display) -> Self {
        let message = if gr.resource.is_empty() && gr.group.is_empty() {
            format!("forbidden: {why}")
        } else if name.is_empty() {
            format!("{gr} is forbidden: {why}")
        } else {
            format!("{gr} {} is forbidden: {why}", quote(name))
        };
        Self::failure(403, reason::FORBIDDEN, message).about(Details::new(gr, name))
    }

    /// A create in a namespace that is being deleted.
    #[must_use]
    pub fn namespace_terminating(gr: &GroupResource, name: &str, namespace: &str) -> Self {
        let why = format!("unable to create new content in namespace {namespace} because it is being terminated");
        Self::forbidden(gr, name, why).with_cause(
            CAUSE_NAMESPACE_TERMINATING,
            format!("namespace {namespace} is being terminated"),
            "metadata.namespace",
        )
    }

    #[must_use]
    pub fn not_found(gr: &GroupResource, name: &str) -> Self {
        let message = format!("{gr} {} not found", quote(name));
        Self::failure(404, reason::NOT_FOUND, message).about(Details::new(gr, name))
    }

    /// The path does not exist.
    #[must_use]
    pub fn router_not_found() -> Self {
        Self::failure(404, reason::NOT_FOUND, "the server could not find the requested resource")
            .about(Details::default())
    }

    pub fn method_not_supported(gr: &GroupResource, verb: impl fmt::Display) -> Self {
        let message = format!("{verb} is not supported on resources of kind {}", quote(&gr.to_string()));
        Self::failure(405, reason::METHOD_NOT_ALLOWED, message).about(Details::new(gr, ""))
    }

    /// The path does not have this method.
    #[must_use]
    pub fn router_method_not_allowed() -> Self {
        Self::failure(
            405,
            reason::METHOD_NOT_ALLOWED,
            "the server does not allow this method on the requested resource",
        )
        .about(Details::default())
    }

    /// Negotiation found no clause that it can serve; `accepted` lists what it can.
    #[must_use]
    pub fn not_acceptable(accepted: &[&str]) -> Self {
        Self::not_acceptable_because(format!("only the following media types are accepted: {}", accepted.join(", ")))
    }

    pub fn not_acceptable_because(message: impl Into<String>) -> Self {
        Self::failure(406, reason::NOT_ACCEPTABLE, message)
    }

    /// The router found no clause whose type the path produces at all.
    #[must_use]
    pub fn router_not_acceptable(available: &[&str]) -> Self {
        let message = format!("406: Not Acceptable\n\nAvailable representations: {}", available.join(", "));
        Self::failure(406, reason::NOT_ACCEPTABLE, message).about(Details::default())
    }

    #[must_use]
    pub fn already_exists(gr: &GroupResource, name: &str) -> Self {
        let message = format!("{gr} {} already exists", quote(name));
        Self::failure(409, reason::ALREADY_EXISTS, message).about(Details::new(gr, name))
    }

    /// The name is taken by an object that is being deleted.
    #[must_use]
    pub fn object_being_deleted(gr: &GroupResource, name: &str) -> Self {
        let mut status = Self::already_exists(gr, name);
        status.message.insert_str(0, "object is being deleted: ");
        status
    }

    /// Every generated name was taken.
    #[must_use]
    pub fn generate_name_conflict(gr: &GroupResource, name: &str) -> Self {
        let mut status = Self::already_exists(gr, name).retry_after(1);
        status.message.push_str(", the server was not able to generate a unique name for the object");
        status
    }

    pub fn conflict(gr: &GroupResource, name: &str, why: impl fmt::Display) -> Self {
        let message = format!("Operation cannot be fulfilled on {gr} {}: {why}", quote(name));
        Self::failure(409, reason::CONFLICT, message).about(Details::new(gr, name))
    }

    /// The object changed since the client read it.
    #[must_use]
    pub fn modified(gr: &GroupResource, name: &str) -> Self {
        Self::conflict(gr, name, MODIFIED)
    }

    /// An apply conflicts with other managers; the fields are pairs of the manager's description (`"kubectl" using apps/v1`)
    /// and the field's path (`.spec.replicas`).
    #[must_use]
    pub fn apply_conflicts(conflicts: &[(String, String)]) -> Self {
        let message = match conflicts {
            [(manager, path)] => format!("Apply failed with 1 conflict: conflict with {manager}: {path}"),
            many => {
                let mut managers: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
                for (manager, path) in many {
                    managers.entry(manager).or_default().push(path);
                }
                let mut lines = Vec::with_capacity(many.len() + managers.len());
                for (manager, paths) in managers {
                    lines.push(format!("conflicts with {manager}:"));
                    lines.extend(paths.into_iter().map(|path| format!("- {path}")));
                }
                format!("Apply failed with {} conflicts: {}", many.len(), lines.join("\n"))
            }
        };
        let causes = conflicts.iter().map(|(manager, path)| Cause {
            reason: Cow::Borrowed(CAUSE_FIELD_MANAGER_CONFLICT),
            message: format!("conflict with {manager}"),
            field: path.clone(),
        });
        let details = Details { causes: causes.collect(), ..Details::default() };
        Self::failure(409, reason::CONFLICT, message).about(details)
    }

    /// The requested revision is compacted.
    pub fn expired(message: impl Into<String>) -> Self {
        Self::failure(410, reason::EXPIRED, message)
    }

    /// The revision of a continue token is compacted; `token` continues from the same key at the latest one.
    pub fn expired_continue(message: impl Into<String>, token: impl Into<String>) -> Self {
        Status { continue_token: Some(token.into()), ..Self::expired(message) }
    }

    /// A list at a compacted revision.
    #[must_use]
    pub fn list_expired() -> Self {
        Self::expired("The resourceVersion for the provided list is too old.")
    }

    /// A page of a list whose revision is compacted; `token` continues from the same key at the latest one.
    pub fn continue_expired(token: impl Into<String>) -> Self {
        Self::expired_continue(CONTINUE_EXPIRED, token)
    }

    /// A watch from a revision before the retained history; `oldest` is the oldest that works.
    pub fn watch_expired(requested: impl fmt::Display, oldest: impl fmt::Display) -> Self {
        Self::expired(format!("too old resource version: {requested} ({oldest})"))
    }

    /// `detail` is for instance `limit is 3145728`.
    pub fn request_entity_too_large(detail: impl fmt::Display) -> Self {
        Self::failure(413, reason::REQUEST_ENTITY_TOO_LARGE, format!("Request entity too large: {detail}"))
    }

    #[must_use]
    pub fn unsupported_media_type(accepted: &[&str]) -> Self {
        let message = format!(
            "the body of the request was in an unknown format - accepted media types include: {}",
            accepted.join(", ")
        );
        Self::failure(415, reason::UNSUPPORTED_MEDIA_TYPE, message)
    }

    /// The path does not accept this patch type.
    #[must_use]
    pub fn router_unsupported_media_type() -> Self {
        Self::failure(415, reason::UNSUPPORTED_MEDIA_TYPE, "415: Unsupported Media Type").about(Details::default())
    }

    /// The object is invalid. `gk` holds the kind where other constructors have the resource.
    #[must_use]
    pub fn invalid(gk: &GroupResource, name: &str, errors: &[FieldError]) -> Self {
        let mut message = format!("{gk} {} is invalid", quote(name));
        if !errors.is_empty() {
            message.push_str(": ");
            message.push_str(&field_error::join(errors));
        }
        let mut details = Details::new(gk, name);
        let mut bytes = 0;
        for error in errors {
            let cause =
                Cause { reason: Cow::Borrowed(error.kind.reason()), message: error.body(), field: error.field.clone() };
            bytes += cause.message.len() + cause.field.len();
            details.causes.push(cause);
            if bytes > field_error::TEXT_BYTES_MAX {
                break;
            }
        }
        Self::failure(422, reason::INVALID, message).about(details)
    }

    /// Options of a request that contradict each other; `kind` is for instance `ListOptions`.
    #[must_use]
    pub fn options_invalid(kind: &str, errors: &[FieldError]) -> Self {
        Self::invalid(&GroupResource::new("meta.k8s.io", kind), "", errors)
    }

    #[must_use]
    pub fn list_options_invalid(errors: &[FieldError]) -> Self {
        Self::options_invalid("ListOptions", errors)
    }

    #[must_use]
    pub fn delete_options_invalid(errors: &[FieldError]) -> Self {
        Self::options_invalid("DeleteOptions", errors)
    }

    /// A patch that cannot be applied to the object.
    #[must_use]
    pub fn unprocessable() -> Self {
        Self::failure(422, reason::INVALID, "the server rejected our request due to an error in our request")
            .about(Details::default())
    }

    pub fn too_many_requests(message: impl Into<String>, retry_after_seconds: u32) -> Self {
        Self::failure(429, reason::TOO_MANY_REQUESTS, message).retry_after(retry_after_seconds)
    }

    /// An eviction that the pod's disruption budget does not allow.
    #[must_use]
    pub fn disruption_budget(why: &str, retry_after_seconds: Option<u32>) -> Self {
        let message = "Cannot evict pod as it would violate the pod's disruption budget.";
        let cause = Cause { reason: "DisruptionBudget".into(), message: why.to_owned(), field: String::new() };
        let details = Details { causes: vec![cause], ..Details::default() };
        let status = Self::failure(429, reason::TOO_MANY_REQUESTS, message).about(details);
        match retry_after_seconds {
            Some(seconds) => status.retry_after(seconds),
            None => status,
        }
    }

    /// The request is for something that this server cannot do by design.
    #[must_use]
    pub fn not_implemented(message: impl Into<String>) -> Self {
        Self::failure(501, "NotImplemented", message)
    }

    pub fn internal(why: impl fmt::Display) -> Self {
        let why = why.to_string();
        Self::failure(500, reason::INTERNAL_ERROR, format!("Internal error occurred: {why}")).with_cause("", why, "")
    }

    /// 500 with the bare text and no reason, for errors that the reference did not map to a code.
    pub fn unmapped(message: impl Into<String>) -> Self {
        Status { reason: None, ..Self::failure(500, "", message) }
    }

    pub fn service_unavailable(message: impl Into<String>) -> Self {
        Self::failure(503, reason::SERVICE_UNAVAILABLE, message)
    }

    pub fn timeout(why: impl fmt::Display) -> Self {
        Self::failure(504, reason::TIMEOUT, format!("Timeout: {why}")).about(Details::default())
    }

    /// The server waited but did not reach the requested revision.
    pub fn too_large_resource_version(requested: impl fmt::Display, current: impl fmt::Display) -> Self {
        Self::timeout(format_args!("Too large resource version: {requested}, current: {current}"))
            .with_cause(CAUSE_RESOURCE_VERSION_TOO_LARGE, "Too large resource version", "")
            .retry_after(1)
    }

    /// An object was removed at once.
    #[must_use]
    pub fn deleted(gr: &GroupResource, name: &str, uid: &str) -> Self {
        let mut details = Details::new(gr, name);
        uid.clone_into(&mut details.uid);
        Status {
            code: 0,
            outcome: Outcome::Success,
            reason: None,
            message: String::new(),
            details: Some(details),
            continue_token: None,
        }
    }

    /// A binding or an eviction was accepted.
    #[must_use]
    pub fn success_created() -> Self {
        Status {
            code: 201,
            outcome: Outcome::Success,
            reason: None,
            message: String::new(),
            details: None,
            continue_token: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pods() -> GroupResource {
        GroupResource::new("", "pods")
    }

    fn deployments() -> GroupResource {
        GroupResource::new("apps", "deployments")
    }

    #[track_caller]
    fn check(status: &Status, want: &str) {
        assert_eq!(String::from_utf8_lossy(&status.to_json()), want);
    }

    #[test]
    fn rows_400_to_405() {
        check(
            &Status::bad_request("no <good>"),
            r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"no \u003cgood\u003e","reason":"BadRequest","code":400}"#,
        );
        check(
            &Status::unauthorized(),
            r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"Unauthorized","reason":"Unauthorized","code":401}"#,
        );
        check(
            &Status::forbidden(&deployments(), "d", "why"),
            r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"deployments.apps \"d\" is forbidden: why","reason":"Forbidden","details":{"name":"d","group":"apps","kind":"deployments"},"code":403}"#,
        );
        assert_eq!(Status::forbidden(&pods(), "", "why").message, "pods is forbidden: why");
        assert_eq!(Status::forbidden(&GroupResource::default(), "", "why").message, "forbidden: why");
        check(
            &Status::namespace_terminating(&GroupResource::new("", "configmaps"), "x", "n"),
            r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"configmaps \"x\" is forbidden: unable to create new content in namespace n because it is being terminated","reason":"Forbidden","details":{"name":"x","kind":"configmaps","causes":[{"reason":"NamespaceTerminating","message":"namespace n is being terminated","field":"metadata.namespace"}]},"code":403}"#,
        );
        assert_eq!(Status::not_found(&deployments(), "d").message, "deployments.apps \"d\" not found");
        check(
            &Status::router_not_found(),
            r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"the server could not find the requested resource","reason":"NotFound","details":{},"code":404}"#,
        );
        check(
            &Status::method_not_supported(&deployments(), "watch"),
            r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"watch is not supported on resources of kind \"deployments.apps\"","reason":"MethodNotAllowed","details":{"group":"apps","kind":"deployments"},"code":405}"#,
        );
        assert_eq!(
            Status::router_method_not_allowed().message,
            "the server does not allow this method on the requested resource"
        );
    }

    #[test]
    fn rows_406_to_415() {
        assert_eq!(
            Status::router_not_acceptable(&["application/json", "application/yaml"]).message,
            "406: Not Acceptable\n\nAvailable representations: application/json, application/yaml"
        );
        assert_eq!(
            Status::not_acceptable(&["application/json"]).message,
            "only the following media types are accepted: application/json"
        );
        assert_eq!(
            Status::object_being_deleted(&pods(), "a").message,
            "object is being deleted: pods \"a\" already exists"
        );
        let conflict = Status::generate_name_conflict(&pods(), "a");
        assert_eq!(
            conflict.message,
            "pods \"a\" already exists, the server was not able to generate a unique name for the object"
        );
        assert_eq!(conflict.retry_after_seconds(), Some(1));
        assert_eq!(
            Status::modified(&deployments(), "d").message,
            "Operation cannot be fulfilled on deployments.apps \"d\": the object has been modified; please apply your changes to the latest version and try again"
        );
        check(
            &Status::expired_continue("too old", "tok"),
            r#"{"kind":"Status","apiVersion":"v1","metadata":{"continue":"tok"},"status":"Failure","message":"too old","reason":"Expired","code":410}"#,
        );
        assert_eq!(
            Status::request_entity_too_large("limit is 3145728").message,
            "Request entity too large: limit is 3145728"
        );
        check(
            &Status::router_unsupported_media_type(),
            r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"415: Unsupported Media Type","reason":"UnsupportedMediaType","details":{},"code":415}"#,
        );
    }

    #[test]
    fn apply_conflicts_name_each_manager_once() {
        let one = |manager: &str, path: &str| (manager.to_owned(), path.to_owned());
        check(
            &Status::apply_conflicts(&[one("\"one\" using v1", ".data.a")]),
            r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"Apply failed with 1 conflict: conflict with \"one\" using v1: .data.a","reason":"Conflict","details":{"causes":[{"reason":"FieldManagerConflict","message":"conflict with \"one\" using v1","field":".data.a"}]},"code":409}"#,
        );
        assert_eq!(
            Status::apply_conflicts(&[one("\"b\"", ".x"), one("\"a\"", ".y"), one("\"b\"", ".z")]).message,
            "Apply failed with 3 conflicts: conflicts with \"a\":\n- .y\nconflicts with \"b\":\n- .x\n- .z"
        );
    }

    #[test]
    fn row_422_invalid() {
        let gk = GroupResource::new("", "ConfigMap");
        let error = FieldError::required("metadata.name", "name or generateName is required");
        check(
            &Status::invalid(&gk, "", &[error]),
            r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"ConfigMap \"\" is invalid: metadata.name: Required value: name or generateName is required","reason":"Invalid","details":{"kind":"ConfigMap","causes":[{"reason":"FieldValueRequired","message":"Required value: name or generateName is required","field":"metadata.name"}]},"code":422}"#,
        );
        let twice = FieldError::forbidden("a", "no");
        let status = Status::invalid(&gk, "x", &[twice.clone(), twice]);
        assert_eq!(status.message, "ConfigMap \"x\" is invalid: a: Forbidden: no");
        assert_eq!(status.details.map(|details| details.causes.len()), Some(2), "causes are not collapsed");
        let status = Status::list_options_invalid(&[FieldError::forbidden("sendInitialEvents", "no")]);
        assert_eq!(status.message, "ListOptions.meta.k8s.io \"\" is invalid: sendInitialEvents: Forbidden: no");
        let patch = Status::invalid(&GroupResource::default(), "", &[FieldError::invalid("patch", "{", "bad")]);
        assert_eq!(patch.message, " \"\" is invalid: patch: Invalid value: \"{\": bad");
    }

    #[test]
    fn rows_429_to_504() {
        check(
            &Status::internal("boom"),
            r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"Internal error occurred: boom","reason":"InternalError","details":{"causes":[{"message":"boom"}]},"code":500}"#,
        );
        check(
            &Status::unmapped("raw"),
            r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"raw","code":500}"#,
        );
        check(
            &Status::too_large_resource_version(999, 5),
            r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"Timeout: Too large resource version: 999, current: 5","reason":"Timeout","details":{"causes":[{"reason":"ResourceVersionTooLarge","message":"Too large resource version"}],"retryAfterSeconds":1},"code":504}"#,
        );
    }

    #[test]
    fn successes() {
        check(
            &Status::deleted(&deployments(), "d", "u-1"),
            r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Success","details":{"name":"d","group":"apps","kind":"deployments","uid":"u-1"}}"#,
        );
        assert_eq!(Status::deleted(&deployments(), "d", "u-1").http_code(), 200);
        check(
            &Status::success_created(),
            r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Success","code":201}"#,
        );
    }
}
