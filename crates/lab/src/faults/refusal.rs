//! The errors that faults answer with.

use std::borrow::Cow;

use machinery::status::{Details, Outcome, reason};
use machinery::{GroupResource, Status};
use server::disturbance::Disturbed;

use super::spec::ErrorEffect;

/// Codes, their reasons, and what the server usually says.
const REASONS: [(u16, &str, &str); 15] = [
    (400, reason::BAD_REQUEST, "the server rejected our request for an unknown reason"),
    (401, reason::UNAUTHORIZED, "Unauthorized"),
    (403, reason::FORBIDDEN, "forbidden"),
    (404, reason::NOT_FOUND, "the server could not find the requested resource"),
    (405, reason::METHOD_NOT_ALLOWED, "the server does not allow this method on the requested resource"),
    (
        409,
        reason::CONFLICT,
        "the object has been modified; please apply your changes to the latest version and try again",
    ),
    (409, reason::ALREADY_EXISTS, "the object exists already"),
    (410, reason::EXPIRED, "The resourceVersion for the provided watch is too old."),
    (410, reason::GONE, "the object is gone"),
    (413, reason::REQUEST_ENTITY_TOO_LARGE, "Request entity too large"),
    (422, reason::INVALID, "the object is invalid"),
    (429, reason::TOO_MANY_REQUESTS, "too many requests, please try again later"),
    (500, reason::INTERNAL_ERROR, "Internal error occurred"),
    (503, reason::SERVICE_UNAVAILABLE, "the server is currently unable to handle the request"),
    (504, reason::TIMEOUT, "the server was unable to return a response in the time allotted"),
];

/// The Retry-After of an overloaded server, unless the fault has another one.
const RETRY_AFTER_SECONDS: u32 = 1;

/// The error of a fault. The code decides the reason, or the reason the code; without either it is an internal error.
pub(super) fn given(error: &ErrorEffect, fault: &str, request: &Disturbed) -> Status {
    let known = REASONS.iter().find(|(code, reason, _)| match (&error.reason, error.code) {
        (Some(wanted), _) => wanted == reason,
        (None, Some(wanted)) => wanted == *code,
        (None, None) => *reason == reason::INTERNAL_ERROR,
    });
    let code = error.code.or(known.map(|known| known.0)).unwrap_or(500);
    let reason = error.reason.clone().map(Cow::Owned).or(known.map(|known| Cow::Borrowed(known.1)));
    let usual = known.map_or("the request was refused", |known| known.2);
    let message = error.message.clone().unwrap_or_else(|| format!("{usual} (fault {fault})"));
    let retry = error.retry_after_seconds.or((code == 429 || code == 503).then_some(RETRY_AFTER_SECONDS));
    let details = Details {
        name: request.name.clone(),
        group: request.group.clone(),
        kind: request.resource.clone(),
        retry_after_seconds: retry.unwrap_or_default(),
        ..Details::default()
    };
    Status { code, outcome: Outcome::Failure, reason, message, details: Some(details), continue_token: None }
}

/// The conflict of an object that another client has changed.
pub(super) fn conflict(request: &Disturbed) -> Status {
    Status::modified(&GroupResource::new(&*request.group, &*request.resource), &request.name)
}
