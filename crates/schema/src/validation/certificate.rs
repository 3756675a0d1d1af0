//! CertificateSigningRequests: the request, its signer and usages, and the conditions of its status.

use std::collections::HashSet;

use base64::Engine as _;
use certificates::CertificateRequest;
use certificates::certificate::check_content;
use machinery::field_error::{FieldError, Path};
use machinery::go_text::quote;
use machinery::json::Value;
use machinery::names::{self, Objections};

use super::Errors;
use super::rules::{one_of, required, word};
use crate::walk::Walk as _;

const SPEC: Path<'static> = Path::new("spec");

const USAGES: [&str; 23] = [
    "any",
    "cert sign",
    "client auth",
    "code signing",
    "content commitment",
    "crl sign",
    "data encipherment",
    "decipher only",
    "digital signature",
    "email protection",
    "encipher only",
    "ipsec end system",
    "ipsec tunnel",
    "ipsec user",
    "key agreement",
    "key encipherment",
    "microsoft sgc",
    "netscape sgc",
    "ocsp signing",
    "s/mime",
    "server auth",
    "signing",
    "timestamping",
];

const LEGACY: &str = "kubernetes.io/legacy-unknown";
/// Conditions that are a decision: they are never false, and stay.
const DECISIONS: [&str; 3] = ["Approved", "Denied", "Failed"];

/// Checks a request. What is wrong in the stored one already is not refused in an update.
pub(super) fn validate(request: &Value, old: Option<&Value>, errors: &mut Errors) {
    let spec = request.at("spec");
    let checked = CertificateRequest::from_field(spec.text("request")).and_then(|parsed| parsed.check_signature());
    if let Err(why) = checked {
        errors.push(FieldError::invalid(SPEC.child("request"), spec.at("request").clone(), why));
    }
    validate_usages(spec, old, errors);
    validate_signer(spec.text("signerName"), old, errors);
    if let Some(seconds) = spec.int("expirationSeconds").filter(|seconds| *seconds < 600) {
        let why = "may not specify a duration less than 600 seconds (10 minutes)";
        errors.push(FieldError::invalid(SPEC.child("expirationSeconds"), seconds, why));
    }
    validate_conditions(request, old, errors);
    let (issued, before) = (request.text("status.certificate"), old.map(|old| old.text("status.certificate")));
    if Some(issued) != before
        && !issued.is_empty()
        && before.is_none_or(|before| before.is_empty() || check_content(&decode(before)).is_ok())
        && let Err(why) = check_content(&decode(issued))
    {
        errors.push(FieldError::invalid("status.certificate", "<certificate data>", why));
    }
}

fn decode(text: &str) -> Vec<u8> {
    base64::engine::general_purpose::STANDARD.decode(text).unwrap_or_default()
}

fn validate_usages(spec: &Value, old: Option<&Value>, errors: &mut Errors) {
    let (usages, list) = (spec.list("usages"), SPEC.child("usages"));
    let before = old.map(|old| old.list("spec.usages")).unwrap_or_default();
    let text = |usage: &Value| usage.as_str().unwrap_or_default().to_owned();
    if usages.is_empty() {
        required(errors, &list);
    }
    if before.iter().all(|usage| USAGES.contains(&text(usage).as_str())) {
        for (i, usage) in usages.iter().enumerate() {
            word(errors, &list.index(i), &text(usage), &USAGES);
        }
    }
    let mut seen = HashSet::new();
    if before.iter().all(|usage| seen.insert(text(usage))) {
        seen.clear();
        for (i, usage) in usages.iter().enumerate() {
            if !seen.insert(text(usage)) {
                errors.push(FieldError::duplicate(list.index(i), text(usage)));
            }
        }
    }
}

fn validate_signer(name: &str, old: Option<&Value>, errors: &mut Errors) {
    let path = &SPEC.child("signerName");
    if name.is_empty() {
        return required(errors, path);
    }
    if name == LEGACY && old.is_none_or(|old| old.text("spec.signerName") != LEGACY) {
        let why = "the legacy signerName is not allowed via this API version";
        errors.push(FieldError::invalid(path, name, why));
        return;
    }
    let [domain, rest] = name.split('/').collect::<Vec<_>>()[..] else {
        let why = "must be a fully qualified domain and path of the form 'example.com/signer-name'";
        errors.push(FieldError::invalid(path, name, why));
        return;
    };
    if domain.len() > names::DNS_SUBDOMAIN_MAX {
        errors.push(FieldError::too_long(path, names::DNS_SUBDOMAIN_MAX));
    }
    validate_labels(domain, names::dns1123_label, path, errors);
    if domain.split('.').count() < 2 {
        let why = "should be a domain with at least two segments separated by dots";
        errors.push(FieldError::invalid(path, domain, why));
    }
    validate_labels(rest, names::dns1123_subdomain, path, errors);
    // A label, a dot and a subdomain: enough for the name of a namespaced object.
    let longest = names::DNS_SUBDOMAIN_MAX + names::DNS_LABEL_MAX + 1;
    if rest.len() > longest {
        errors.push(FieldError::too_long(path, longest));
    }
}

/// Checks the parts of a text between dots; the first that is wrong is reported.
fn validate_labels(text: &str, rule: fn(&str) -> Objections, path: &Path<'_>, errors: &mut Errors) {
    let wrong = text.split('.').map(|label| (label, rule(label))).find(|(_, why)| !why.is_empty());
    for (label, why) in wrong.into_iter().flat_map(|(label, whys)| whys.into_iter().map(move |why| (label, why))) {
        errors.push(FieldError::invalid(path, text, format!("validating label {}: {why}", quote(label))));
    }
}

fn validate_conditions(request: &Value, old: Option<&Value>, errors: &mut Errors) {
    let list = Path::new("status.conditions");
    let had = |kind: &str| old.is_some_and(|old| count(old, kind) > 0);
    let had_both = had("Approved") && had("Denied");
    let before = old.map(|old| old.list("status.conditions")).unwrap_or_default();
    let mut seen = HashSet::new();
    let had_duplicates = !before.iter().all(|condition| seen.insert(condition.text("type")));
    seen.clear();
    let (mut approved, mut denied) = (false, false);
    for (i, condition) in request.list("status.conditions").iter().enumerate() {
        let (path, kind) = (list.index(i), condition.text("type"));
        if kind.is_empty() && !had("") {
            required(errors, &path.child("type"));
        }
        let words: &[&str] = if DECISIONS.contains(&kind) { &["True"] } else { &["False", "True", "Unknown"] };
        one_of(errors, &path.child("status"), condition.text("status"), words);
        approved |= kind == "Approved";
        denied |= kind == "Denied";
        if approved && denied && matches!(kind, "Approved" | "Denied") && !had_both {
            errors.push(FieldError::invalid(list, kind, "Approved and Denied conditions are mutually exclusive"));
        }
        if !seen.insert(kind) && !had_duplicates {
            errors.push(FieldError::duplicate(path.child("type"), kind));
        }
    }
}

/// Checks a write to `/approval`: no decision is taken back.
pub(super) fn validate_approval(new: &Value, old: &Value, errors: &mut Errors) {
    validate(new, Some(old), errors);
    keep_decisions(new, old, errors);
}

/// Checks a write to `/status`: it decides nothing, and a certificate is written once.
pub(super) fn validate_status(new: &Value, old: &Value, errors: &mut Errors) {
    validate(new, Some(old), errors);
    keep_decisions(new, old, errors);
    for kind in ["Approved", "Denied"] {
        if count(new, kind) > count(old, kind) {
            let why = format!("updates may not add a condition of type {kind:?}");
            errors.push(FieldError::forbidden("status.conditions", why));
        }
    }
    let (issued, before) = (new.text("status.certificate"), old.text("status.certificate"));
    if issued != before && !before.is_empty() {
        let why = "updates may not modify existing certificate content";
        errors.push(FieldError::forbidden("status.certificate", why));
    }
}

fn keep_decisions(new: &Value, old: &Value, errors: &mut Errors) {
    for kind in DECISIONS {
        if count(new, kind) < count(old, kind) {
            let why = format!("updates may not remove a condition of type {kind:?}");
            errors.push(FieldError::forbidden("status.conditions", why));
        }
    }
}

/// The number of conditions of a type.
fn count(request: &Value, kind: &str) -> usize {
    request.list("status.conditions").iter().filter(|condition| condition.text("type") == kind).count()
}
