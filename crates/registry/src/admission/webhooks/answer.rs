//! The answer of a webhook: decoded, checked against the review, and its refusal as a `Status`.

use std::borrow::Cow;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use machinery::Status;
use machinery::go_json::{self, json_kind};
use machinery::go_text::quote;
use machinery::json::{self, Value};
use machinery::status::{Cause, Details, Outcome};

/// Why an answer is of no use.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Flaw {
    /// It is not a review at all: the text follows `failed to call webhook: `.
    Undecodable(String),
    /// It contradicts the review: the text follows `received invalid webhook response: `.
    Invalid(String),
}

/// What a webhook answers.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Answer {
    pub(super) allowed: bool,
    pub(super) status: Value,
    pub(super) patch: Vec<u8>,
    pub(super) patch_type: String,
    pub(super) warnings: Vec<String>,
    pub(super) annotations: Vec<(String, String)>,
}

/// Decodes and checks an answer to the review `uid` of a version.
pub(super) fn read(body: &[u8], version: &str, uid: &str, mutating: bool) -> Result<Answer, Flaw> {
    let review = json::from_slice(body).map_err(|error| {
        let error = go_json::syntax_error(body).unwrap_or_else(|| error.to_string());
        Flaw::Undecodable(format!("couldn't get version/kind; json parse error: {error}"))
    })?;
    let review = review.parsed();
    let decoded = Decoded::read(&review, version).map_err(Flaw::Undecodable)?;
    decoded.check(version, uid, mutating).map_err(Flaw::Invalid)
}

/// A review as the reference decodes it, before it is checked.
struct Decoded<'a> {
    kind: &'a str,
    api_version: &'a str,
    response: Option<Response<'a>>,
}

struct Response<'a> {
    uid: &'a str,
    has_patch_type: bool,
    answer: Answer,
}

impl<'a> Decoded<'a> {
    fn read(review: &'a Value, version: &str) -> Result<Self, String> {
        if !review.is_object() {
            let kind = json_kind(review);
            return Err(format!(
                "couldn't get version/kind; json parse error: json: cannot unmarshal {kind} into Go value of type \
                 struct {{ APIVersion string \"json:\\\"apiVersion,omitempty\\\"\"; Kind string \"json:\\\"kind,omitempty\\\"\" }}"
            ));
        }
        let kind = text(review, "", "kind")?;
        let api_version = text(review, "", "apiVersion")?;
        let group_version = format!("admission.k8s.io/{version}");
        if !kind.is_empty() && !api_version.is_empty() && kind != "AdmissionReview" {
            return Err(format!("no kind {} is registered for version {}", quote(kind), quote(api_version)));
        }
        if !api_version.is_empty() && api_version != group_version && !kind.is_empty() {
            let name = |version: &str| version.rsplit('/').next().unwrap_or_default().to_owned();
            return Err(if matches!(api_version, "admission.k8s.io/v1" | "admission.k8s.io/v1beta1") {
                let (from, to) = (name(api_version), name(&group_version));
                format!("converting ({from}.AdmissionReview) to ({to}.AdmissionReview): unknown conversion")
            } else {
                format!("no kind {} is registered for version {}", quote(kind), quote(api_version))
            });
        }
        let response = match &review["response"] {
            Value::Null => None,
            response if response.is_object() => Some(Response::read(response)?),
            other => return Err(wrong_type(other, "AdmissionReview.response", "v1.AdmissionResponse")),
        };
        Ok(Decoded { kind, api_version, response })
    }

    fn check(self, version: &str, uid: &str, mutating: bool) -> Result<Answer, String> {
        let Some(response) = self.response else { return Err("webhook response was absent".to_owned()) };
        let mut answer = response.answer;
        if version != "v1" {
            if mutating && !answer.patch.is_empty() {
                answer.patch_type = JSON_PATCH.to_owned();
            } else {
                answer.patch.clear();
            }
            return Ok(answer);
        }
        if response.uid != uid {
            return Err(format!("expected response.uid={}, got {}", quote(uid), quote(response.uid)));
        }
        if (self.kind, self.api_version) != ("AdmissionReview", "admission.k8s.io/v1") {
            return Err(format!(
                "expected webhook response of admission.k8s.io/v1, Kind=AdmissionReview, got {}, Kind={}",
                self.api_version, self.kind
            ));
        }
        let (has_patch, has_type) = (!answer.patch.is_empty(), response.has_patch_type);
        let flaw = match (mutating, has_patch, has_type) {
            (true, true, false) => "webhook returned response.patch but not response.patchType",
            (true, false, true) => "webhook returned response.patchType but not response.patch",
            (true, true, true) if answer.patch_type.is_empty() => "webhook returned invalid response.patchType of \"\"",
            (false, true, _) => "validating webhook may not return response.patch",
            (false, false, true) => "validating webhook may not return response.patchType",
            _ => return Ok(answer),
        };
        Err(flaw.to_owned())
    }
}

/// The only type of a patch.
pub(super) const JSON_PATCH: &str = "JSONPatch";

impl<'a> Response<'a> {
    fn read(response: &'a Value) -> Result<Self, String> {
        const AT: &str = "AdmissionReview.response";
        let allowed = match &response["allowed"] {
            Value::Bool(allowed) => *allowed,
            Value::Null => false,
            other => return Err(wrong_type(other, "AdmissionReview.response.allowed", "bool")),
        };
        let status = &response["status"];
        if !status.is_null() && !status.is_object() {
            return Err(wrong_type(status, "AdmissionReview.response.status", "v1.Status"));
        }
        for member in ["message", "reason", "status"] {
            text(status, "AdmissionReview.response.status", member)?;
        }
        let code = &status["code"];
        if !code.is_null() && code.as_i64().and_then(|code| i32::try_from(code).ok()).is_none() {
            return Err(wrong_type(code, "AdmissionReview.response.status.code", "int32"));
        }
        let patch = text(response, AT, "patch")?;
        let patch = STANDARD.decode(patch).map_err(|error| match error {
            base64::DecodeError::InvalidByte(at, _) => format!("illegal base64 data at input byte {at}"),
            _ => format!("illegal base64 data at input byte {}", patch.len().saturating_sub(1)),
        })?;
        let mut warnings = Vec::new();
        match &response["warnings"] {
            Value::Null => {}
            Value::Array(texts) => {
                for warning in texts.iter() {
                    match warning {
                        Value::String(warning) => warnings.push(warning.to_string()),
                        Value::Null => warnings.push(String::new()),
                        other => return Err(wrong_type(other, "AdmissionReview.response.warnings", "string")),
                    }
                }
            }
            other => return Err(wrong_type(other, "AdmissionReview.response.warnings", "[]string")),
        }
        let mut annotations = Vec::new();
        match &response["auditAnnotations"] {
            Value::Null => {}
            Value::Object(texts) => {
                for (key, value) in texts {
                    match value {
                        Value::String(value) => annotations.push((key.to_string(), value.to_string())),
                        Value::Null => annotations.push((key.to_string(), String::new())),
                        other => return Err(wrong_type(other, "AdmissionReview.response.auditAnnotations", "string")),
                    }
                }
            }
            other => return Err(wrong_type(other, "AdmissionReview.response.auditAnnotations", "map[string]string")),
        }
        Ok(Response {
            uid: text(response, AT, "uid")?,
            has_patch_type: !response["patchType"].is_null(),
            answer: Answer {
                allowed,
                status: status.clone(),
                patch,
                patch_type: text(response, AT, "patchType")?.to_owned(),
                warnings,
                annotations,
            },
        })
    }
}

/// A member that is a text, or absent.
fn text<'a>(object: &'a Value, at: &str, member: &str) -> Result<&'a str, String> {
    match &object[member] {
        Value::Null => Ok(""),
        Value::String(text) => Ok(text.as_str()),
        other => {
            let at = if at.is_empty() { "AdmissionReview" } else { at };
            Err(wrong_type(other, &format!("{at}.{member}"), "string"))
        }
    }
}

fn wrong_type(found: &Value, field: &str, wanted: &str) -> String {
    format!("json: cannot unmarshal {} into Go struct field {field} of type {wanted}", json_kind(found))
}

/// The refusal of a webhook as its client sees it.
pub(super) fn refusal(webhook: &str, status: &Value) -> Status {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let denied = format!("admission webhook {} denied the request", quote(webhook));
    let (message, reason) = (text(&status["message"]), text(&status["reason"]));
    let message = match (message.as_str(), reason.as_str()) {
        ("", "") => format!("{denied} without explanation"),
        ("", why) | (why, _) => format!("{denied}: {why}"),
    };
    let code =
        status["code"].as_i64().and_then(|code| u16::try_from(code).ok()).filter(|code| (400..1000).contains(code));
    Status {
        code: code.unwrap_or(400),
        outcome: Outcome::Failure,
        reason: Some(Cow::Owned(reason)).filter(|reason: &Cow<'static, str>| !reason.is_empty()),
        message,
        details: status["details"].is_object().then(|| details(&status["details"])),
        continue_token: None,
    }
}

fn details(details: &Value) -> Details {
    let text = |value: &Value, member: &str| value[member].as_str().unwrap_or_default().to_owned();
    let causes = details["causes"].as_array().into_iter().flatten();
    Details {
        name: text(details, "name"),
        group: text(details, "group"),
        kind: text(details, "kind"),
        uid: text(details, "uid"),
        causes: causes
            .map(|cause| Cause {
                reason: Cow::Owned(text(cause, "reason")),
                message: text(cause, "message"),
                field: text(cause, "field"),
            })
            .collect(),
        retry_after_seconds: details["retryAfterSeconds"]
            .as_u64()
            .and_then(|n| u32::try_from(n).ok())
            .unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests {
    use machinery::json::json;

    use super::*;

    fn review(response: Value) -> Value {
        json!({"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "response": response})
    }

    fn answer(review: &Value, mutating: bool) -> Result<Answer, Flaw> {
        read(json::to_string(review).as_bytes(), "v1", "u", mutating)
    }

    fn invalid(response: Value, mutating: bool) -> String {
        match answer(&review(response), mutating) {
            Err(Flaw::Invalid(why)) => why,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn wh_20_an_answer_must_match_its_review() {
        assert_eq!(invalid(Value::Null, false), "webhook response was absent");
        assert_eq!(invalid(json!({"uid": "x"}), false), r#"expected response.uid="u", got "x""#);
        assert_eq!(invalid(json!({"allowed": true}), false), r#"expected response.uid="u", got """#);
        let mut other = review(json!({"uid": "u", "allowed": true}));
        other["kind"] = json!("");
        let expected =
            "expected webhook response of admission.k8s.io/v1, Kind=AdmissionReview, got admission.k8s.io/v1, Kind=";
        assert_eq!(answer(&other, false), Err(Flaw::Invalid(expected.to_owned())));
        assert!(answer(&review(json!({"uid": "u", "allowed": true})), false).unwrap().allowed);
        assert!(!answer(&review(json!({"uid": "u"})), false).unwrap().allowed, "nothing is a refusal");
    }

    #[test]
    fn wh_21_patches_have_a_type_and_come_from_mutating_webhooks() {
        let patch = json!({"uid": "u", "allowed": true, "patch": "W10="});
        let kind = json!({"uid": "u", "allowed": true, "patchType": "JSONPatch"});
        let empty = json!({"uid": "u", "allowed": true, "patch": "W10=", "patchType": ""});
        assert_eq!(invalid(patch.clone(), true), "webhook returned response.patch but not response.patchType");
        assert_eq!(invalid(kind.clone(), true), "webhook returned response.patchType but not response.patch");
        assert_eq!(invalid(empty, true), "webhook returned invalid response.patchType of \"\"");
        assert_eq!(invalid(patch, false), "validating webhook may not return response.patch");
        assert_eq!(invalid(kind, false), "validating webhook may not return response.patchType");
        let both = json!({"uid": "u", "allowed": true, "patch": "W10=", "patchType": "JSONPatch"});
        assert_eq!(answer(&review(both), true).unwrap().patch, b"[]");
    }

    #[test]
    fn wh_22_the_older_version_is_checked_less() {
        let old = json!({"response": {"allowed": true, "patch": "W10="}});
        let read = |mutating| read(json::to_string(&old).as_bytes(), "v1beta1", "u", mutating).unwrap();
        assert_eq!((read(true).patch, read(true).patch_type), (b"[]".to_vec(), "JSONPatch".to_owned()));
        assert!(read(false).patch.is_empty(), "the patch of a validating webhook is ignored");
    }

    #[test]
    fn wh_32_what_is_no_review_is_a_failed_call() {
        for (body, why) in [
            ("<html>", "couldn't get version/kind"),
            ("[]", "couldn't get version/kind"),
            (r#"{"kind":"X","apiVersion":"v1"}"#, "no kind \"X\" is registered"),
            (r#"{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1beta1"}"#, "converting (v1beta1."),
            (r#"{"response":{"allowed":"yes"}}"#, "json: cannot unmarshal string into Go struct field"),
            (r#"{"response":{"patch":"%%%"}}"#, "illegal base64 data at input byte 0"),
            (r#"{"response":{"warnings":[1]}}"#, "json: cannot unmarshal number"),
            (r#"{"response":{"auditAnnotations":{"a":{}}}}"#, "json: cannot unmarshal object"),
            (r#"{"response":{"status":{"code":"x"}}}"#, "json: cannot unmarshal string"),
        ] {
            match read(body.as_bytes(), "v1", "u", true) {
                Err(Flaw::Undecodable(text)) => assert!(text.starts_with(why), "{body}: {text}"),
                other => panic!("{body}: {other:?}"),
            }
        }
    }

    #[test]
    fn verbs_14_27_wh_30_a_refusal_is_the_status_of_the_webhook() {
        let of = |status: Value| refusal("h.example.com", &status);
        let teapot = of(json!({"code": 418, "message": "no", "reason": "Teapot"}));
        assert_eq!((teapot.code, teapot.reason()), (418, "Teapot"));
        assert_eq!(teapot.message, r#"admission webhook "h.example.com" denied the request: no"#);
        let nothing = of(Value::Null);
        assert_eq!((nothing.code, nothing.reason()), (400, ""));
        assert_eq!(nothing.message, r#"admission webhook "h.example.com" denied the request without explanation"#);
        assert_eq!(of(json!({"code": 200})).code, 400);
        assert_eq!(of(json!({"code": 70000})).code, 400);
        assert!(of(json!({"reason": "R"})).message.ends_with("denied the request: R"));
        let causes =
            of(json!({"details": {"causes": [{"field": "f", "message": "m", "reason": "R"}], "retryAfterSeconds": 3}}));
        assert_eq!(causes.details.as_ref().unwrap().causes[0].field, "f");
        assert_eq!(causes.retry_after_seconds(), Some(3));
    }
}
