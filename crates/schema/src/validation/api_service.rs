//! Validation of APIServices.

use machinery::field_error::{FieldError, Path};
use machinery::json::Value;
use machinery::names;

use super::Errors;
use super::rules::{objections, optional, required};
use crate::walk::Walk as _;

const SPEC: Path<'static> = Path::new("spec");
const GROUP_PRIORITY_MAX: i64 = 20_000;
const VERSION_PRIORITY_MAX: i64 = 1000;

pub(super) fn validate(object: &Value, errors: &mut Errors) {
    let spec = object.at("spec");
    let (group, version) = (spec.text("group"), spec.text("version"));
    let wanted = format!("{version}.{group}");
    let name = object.text("metadata.name");
    if !name.is_empty() && name != wanted {
        let why = format!("must be `spec.version+\".\"+spec.group`: {}", machinery::go_text::quote(&wanted));
        errors.push(FieldError::invalid("metadata.name", name, why));
    }
    if group.is_empty() && version != "v1" {
        let why = "only v1 may have an empty group and it better be legacy kube";
        errors.push(FieldError::required(SPEC.child("group"), why));
    }
    optional(errors, &SPEC.child("group"), group, names::dns1123_subdomain);
    objections(errors, &SPEC.child("version"), version, names::dns1035_label(version));
    for (member, max) in [("groupPriorityMinimum", GROUP_PRIORITY_MAX), ("versionPriority", VERSION_PRIORITY_MAX)] {
        let value = spec.int(member).unwrap_or_default();
        if !(1..=max).contains(&value) {
            let why = format!("must be positive and less than {max}");
            errors.push(FieldError::invalid(SPEC.child(member), value, why));
        }
    }
    let bundle = spec.text("caBundle");
    let skips = spec.flag("insecureSkipTLSVerify") == Some(true);
    let service = spec.at("service");
    if service.is_null() {
        if !bundle.is_empty() {
            let shown = format!("{} bytes", decoded_len(bundle));
            errors.push(FieldError::invalid(
                SPEC.child("caBundle"),
                shown,
                "local APIServices may not have a caBundle",
            ));
        }
        if skips {
            let why = "local APIServices may not have insecureSkipTLSVerify";
            errors.push(FieldError::invalid(SPEC.child("insecureSkipTLSVerify"), true, why));
        }
        return;
    }
    let path = SPEC.child("service");
    for member in ["namespace", "name"] {
        if service.text(member).is_empty() {
            required(errors, &path.child(member));
        }
    }
    let port = service.int("port").unwrap_or_default();
    if !(1..=65_535).contains(&port) {
        let why = "port is not valid: must be between 1 and 65535, inclusive";
        errors.push(FieldError::invalid(path.child("port"), port, why));
    }
    if skips && !bundle.is_empty() {
        let why = "may not be true if caBundle is present";
        errors.push(FieldError::invalid(SPEC.child("insecureSkipTLSVerify"), true, why));
    }
}

/// The length of what base64 encodes.
fn decoded_len(text: &str) -> usize {
    text.len() / 4 * 3 - text.bytes().rev().take_while(|byte| *byte == b'=').count().min(2)
}

#[cfg(test)]
mod tests {
    use machinery::json::json;

    use super::*;

    fn errors(name: &str, spec: Value) -> Vec<String> {
        let mut errors = Errors::default();
        validate(&json!({"metadata": {"name": name}, "spec": spec}), &mut errors);
        errors.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn agg_2_names_priorities_and_services_are_checked() {
        let service = json!({"namespace": "n", "name": "s", "port": 443});
        let spec = |more: Value| {
            let mut spec =
                json!({"group": "g.example.com", "version": "v1", "groupPriorityMinimum": 1000, "versionPriority": 15});
            for (name, value) in more.as_object().into_iter().flat_map(|more| more.iter()) {
                spec[name.as_str()] = value.clone();
            }
            spec
        };
        assert_eq!(errors("v1.g.example.com", spec(json!({"service": service}))), [""; 0]);
        assert_eq!(errors("v1.g.example.com", spec(json!({}))), [""; 0]);
        for (name, more, expected) in [
            (
                "v2.g.example.com",
                json!({}),
                "metadata.name: Invalid value: \"v2.g.example.com\": must be `spec.version+\".\"+spec.group`: \"v1.g.example.com\"",
            ),
            (
                "v1.g.example.com",
                json!({"groupPriorityMinimum": 0}),
                "spec.groupPriorityMinimum: Invalid value: 0: must be positive and less than 20000",
            ),
            (
                "v1.g.example.com",
                json!({"versionPriority": 1001}),
                "spec.versionPriority: Invalid value: 1001: must be positive and less than 1000",
            ),
            (
                "v1.g.example.com",
                json!({"caBundle": "Q0E="}),
                "spec.caBundle: Invalid value: \"2 bytes\": local APIServices may not have a caBundle",
            ),
            (
                "v1.g.example.com",
                json!({"insecureSkipTLSVerify": true}),
                "spec.insecureSkipTLSVerify: Invalid value: true: local APIServices may not have insecureSkipTLSVerify",
            ),
            (
                "v1.g.example.com",
                json!({"service": {"name": "s", "port": 443}}),
                "spec.service.namespace: Required value",
            ),
            (
                "v1.g.example.com",
                json!({"service": {"namespace": "n", "port": 443}}),
                "spec.service.name: Required value",
            ),
            (
                "v1.g.example.com",
                json!({"service": {"namespace": "n", "name": "s", "port": 0}}),
                "spec.service.port: Invalid value: 0: port is not valid: must be between 1 and 65535, inclusive",
            ),
            (
                "v1.g.example.com",
                json!({"service": service, "caBundle": "Q0E=", "insecureSkipTLSVerify": true}),
                "spec.insecureSkipTLSVerify: Invalid value: true: may not be true if caBundle is present",
            ),
        ] {
            assert_eq!(errors(name, spec(more)), [expected]);
        }
    }
}
