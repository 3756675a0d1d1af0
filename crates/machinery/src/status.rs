//! `Status`: the response to a request that failed, or that succeeded without an object to return.
//!
//! There is one constructor for each row of spec 02 §1.2. It sets code, reason, message and details together, so that no
//! caller can mix them. The wire form keeps the reference's order of members and omits empty ones.

use std::borrow::Cow;
use std::fmt;

use crate::json::{Map, Value};

use crate::field_error::{self, FieldError};
use crate::go_text::{self, quote};
use crate::gvk::GroupResource;

mod constructors;

/// The reasons that clients know; a webhook may send others.
pub mod reason {
    pub const BAD_REQUEST: &str = "BadRequest";
    pub const UNAUTHORIZED: &str = "Unauthorized";
    pub const FORBIDDEN: &str = "Forbidden";
    pub const NOT_FOUND: &str = "NotFound";
    pub const METHOD_NOT_ALLOWED: &str = "MethodNotAllowed";
    pub const NOT_ACCEPTABLE: &str = "NotAcceptable";
    pub const ALREADY_EXISTS: &str = "AlreadyExists";
    pub const CONFLICT: &str = "Conflict";
    pub const EXPIRED: &str = "Expired";
    pub const GONE: &str = "Gone";
    pub const REQUEST_ENTITY_TOO_LARGE: &str = "RequestEntityTooLarge";
    pub const UNSUPPORTED_MEDIA_TYPE: &str = "UnsupportedMediaType";
    pub const INVALID: &str = "Invalid";
    pub const TOO_MANY_REQUESTS: &str = "TooManyRequests";
    pub const INTERNAL_ERROR: &str = "InternalError";
    pub const SERVICE_UNAVAILABLE: &str = "ServiceUnavailable";
    pub const TIMEOUT: &str = "Timeout";
}

/// The `reason` of the cause of an error for a resourceVersion in the future.
pub const CAUSE_RESOURCE_VERSION_TOO_LARGE: &str = "ResourceVersionTooLarge";
/// The `reason` of the causes of a refused apply.
pub const CAUSE_FIELD_MANAGER_CONFLICT: &str = "FieldManagerConflict";
/// The `reason` of the cause when a namespace is being deleted.
pub const CAUSE_NAMESPACE_TERMINATING: &str = "NamespaceTerminating";

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Outcome {
    Success,
    Failure,
}

impl Outcome {
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Outcome::Success => "Success",
            Outcome::Failure => "Failure",
        }
    }
}

/// One of the reasons why a request failed. Empty members are omitted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cause {
    pub reason: Cow<'static, str>,
    pub message: String,
    pub field: String,
}

/// The subject of a `Status`. With all members empty it is shown as `"details":{}`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Details {
    pub name: String,
    pub group: String,
    /// The resource (`pods`); the kind (`Pod`) in Invalid errors and in failed preconditions.
    pub kind: String,
    pub uid: String,
    pub causes: Vec<Cause>,
    /// Above zero also sent as the header `Retry-After`.
    pub retry_after_seconds: u32,
}

impl Details {
    fn new(gr: &GroupResource, name: &str) -> Self {
        Details { name: name.to_owned(), group: gr.group.clone(), kind: gr.resource.clone(), ..Details::default() }
    }
}

/// The response to a request that failed, or that succeeded without an object to return.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    /// HTTP status code. Zero is omitted from the body; [`Status::http_code`] returns the code to send.
    pub code: u16,
    pub outcome: Outcome,
    pub reason: Option<Cow<'static, str>>,
    pub message: String,
    pub details: Option<Details>,
    /// `metadata.continue`: the token with which an expired list can continue.
    pub continue_token: Option<String>,
}

impl Status {
    /// Returns the code of the status line: that of the body, or 200 if the body has none.
    #[must_use]
    pub fn http_code(&self) -> u16 {
        if self.code == 0 { 200 } else { self.code }
    }

    #[must_use]
    pub fn reason(&self) -> &str {
        self.reason.as_deref().unwrap_or_default()
    }

    /// Returns whether the reason is this one.
    #[must_use]
    pub fn is(&self, reason: &str) -> bool {
        self.reason() == reason
    }

    #[must_use]
    pub fn is_not_found(&self) -> bool {
        self.is(reason::NOT_FOUND)
    }

    #[must_use]
    pub fn is_conflict(&self) -> bool {
        self.is(reason::CONFLICT)
    }

    #[must_use]
    pub fn is_already_exists(&self) -> bool {
        self.is(reason::ALREADY_EXISTS)
    }

    /// Returns the value of the header `Retry-After`.
    #[must_use]
    pub fn retry_after_seconds(&self) -> Option<u32> {
        self.details.as_ref().map(|details| details.retry_after_seconds).filter(|seconds| *seconds > 0)
    }

    /// Adds a cause.
    #[must_use]
    pub fn with_cause(mut self, reason: &'static str, message: impl Into<String>, field: impl Into<String>) -> Self {
        let cause = Cause { reason: Cow::Borrowed(reason), message: message.into(), field: field.into() };
        self.details.get_or_insert_default().causes.push(cause);
        self
    }

    /// Returns the wire form, members in the reference's order.
    #[must_use]
    pub fn to_value(&self) -> Value {
        let mut metadata = Map::new();
        put(&mut metadata, "continue", self.continue_token.as_deref().unwrap_or_default());
        let mut status = Map::new();
        put(&mut status, "kind", "Status");
        put(&mut status, "apiVersion", "v1");
        status.insert("metadata", Value::Object(metadata));
        put(&mut status, "status", self.outcome.as_str());
        put(&mut status, "message", &self.message);
        put(&mut status, "reason", self.reason());
        if let Some(details) = &self.details {
            status.insert("details", details.to_value());
        }
        if self.code != 0 {
            status.insert("code", self.code.into());
        }
        Value::Object(status)
    }

    /// Returns the wire form as bytes, without a line end.
    #[must_use]
    pub fn to_json(&self) -> Vec<u8> {
        go_text::json_bytes(&self.to_value())
    }
}

impl Details {
    fn to_value(&self) -> Value {
        let mut details = Map::new();
        put(&mut details, "name", &self.name);
        put(&mut details, "group", &self.group);
        put(&mut details, "kind", &self.kind);
        put(&mut details, "uid", &self.uid);
        if !self.causes.is_empty() {
            let causes = self.causes.iter().map(|cause| {
                let mut member = Map::new();
                put(&mut member, "reason", &cause.reason);
                put(&mut member, "message", &cause.message);
                put(&mut member, "field", &cause.field);
                Value::Object(member)
            });
            details.insert("causes", causes.collect());
        }
        if self.retry_after_seconds > 0 {
            details.insert("retryAfterSeconds", self.retry_after_seconds.into());
        }
        Value::Object(details)
    }
}

fn put(map: &mut Map, name: &str, value: &str) {
    if !value.is_empty() {
        map.insert(name.to_owned(), Value::from(value));
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.message.is_empty() { self.outcome.as_str() } else { &self.message })
    }
}

impl std::error::Error for Status {}
