//! The answers to requests that policies refuse.

use machinery::Status;
use machinery::json::Value;
use machinery::status::{Cause, reason};

use super::super::plugin::Attributes;
use super::compiled::Reason;

/// Most further denials that are shown.
const CAUSES_MAX: usize = 64;

/// A denial by one policy.
#[derive(Clone, Debug)]
pub(super) struct Denial {
    pub(super) message: String,
    pub(super) reason: Reason,
}

impl Denial {
    /// The denial of a validating policy; `binding` is absent if the policy itself cannot be used.
    pub(super) fn validating(policy: &str, binding: Option<&str>, why: &str, reason: Reason) -> Self {
        let message = match binding {
            Some(binding) => {
                format!("ValidatingAdmissionPolicy '{policy}' with binding '{binding}' denied request: {why}")
            }
            None => format!("ValidatingAdmissionPolicy '{policy}' denied request: {why}"),
        };
        Denial { message, reason }
    }

    /// The denial of a mutating policy.
    pub(super) fn mutating(policy: &str, binding: Option<&str>, why: &str, reason: Reason) -> Self {
        let message = match binding {
            Some(binding) => format!("policy '{policy}' with binding '{binding}' denied request: {why}"),
            None => format!("policy {} denied request: {why}", machinery::go_text::quote(policy)),
        };
        Denial { message, reason }
    }
}

fn causes(denials: &[Denial], shown: usize) -> impl Iterator<Item = Cause> {
    let cause = |denial: &Denial| Cause { reason: "".into(), message: denial.message.clone(), field: String::new() };
    denials.iter().take(shown).map(cause)
}

/// The refusal of a request by validating policies: the first denial is the answer, and further ones may be causes of it.
pub(super) fn refuse_invalid(attributes: &Attributes<'_>, object: Option<&Value>, denials: &[Denial]) -> Status {
    let first = denials.first();
    let why = first.map_or("", |denial| &denial.message);
    let mut status = attributes.forbidden(object.unwrap_or(&Value::Null), why);
    let (code, word) = match first.map_or(Reason::Invalid, |denial| denial.reason) {
        Reason::Invalid => (422, reason::INVALID),
        Reason::Forbidden => (403, reason::FORBIDDEN),
        Reason::RequestEntityTooLarge => (413, reason::REQUEST_ENTITY_TOO_LARGE),
        Reason::Unauthorized => (401, reason::UNAUTHORIZED),
    };
    status.code = code;
    status.reason = Some(word.into());
    // The reference shows the first; more is shown to those who ask for it.
    let shown = if attributes.explains() { CAUSES_MAX } else { 1 };
    status.details.get_or_insert_default().causes.extend(causes(denials, shown));
    status
}

/// The refusal of a request by mutating policies: the first denial is the answer, and all are causes.
pub(super) fn refuse_mutation(attributes: &Attributes<'_>, object: &Value, denials: &[Denial]) -> Status {
    let mut status = attributes.forbidden(object, "");
    if let Some(first) = denials.first() {
        status.message.clone_from(&first.message);
        if first.reason == Reason::Invalid {
            status.reason = Some(reason::INVALID.into());
        }
    }
    status.details.get_or_insert_default().causes.extend(causes(denials, CAUSES_MAX));
    status
}
