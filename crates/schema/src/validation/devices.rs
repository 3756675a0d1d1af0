//! Validation of device classes, claims and slices. Expressions must compile; their cost is not estimated.

use std::collections::HashSet;

use cel::policy::{Declarations, ExpectedType};
use machinery::field_error::{FieldError, Path};
use machinery::json::Value;
use machinery::names;

use super::rules::{immutable, named, objections, required, same, word};
use super::{Errors, storage};
use crate::facts::internal;
use crate::walk::Walk as _;

const SPEC: Path<'static> = Path::new("spec");
/// Longest expression of a selector, in bytes.
const EXPRESSION_MAX: usize = 10 * 1024;

pub(super) fn validate(kind: &str, object: &Value, old: Option<&Value>, errors: &mut Errors) {
    match (kind, old) {
        ("ResourceClaim" | "ResourceClaimTemplate", Some(old)) if !same(object.at("spec"), old.at("spec")) => {
            let shown = internal::shown(&format!("resource.{kind}Spec"), object.at("spec"));
            errors.push(FieldError::invalid(SPEC, shown, super::rules::IMMUTABLE));
        }
        ("ResourceClaim", None) => claim(object.at("spec.devices"), &SPEC.child("devices"), errors),
        ("ResourceClaimTemplate", None) => {
            super::rules::template_meta(errors, &SPEC.child("metadata"), object.at("spec.metadata"));
            claim(object.at("spec.spec.devices"), &SPEC.child("spec.devices"), errors);
        }
        ("DeviceClass", _) => {
            selectors(object.list("spec.selectors"), &SPEC.child("selectors"), errors);
        }
        ("ResourceSlice", old) => slice(object, old, errors),
        _ => {}
    }
}

fn claim(devices: &Value, path: &Path<'_>, errors: &mut Errors) {
    let requests = devices.list("requests");
    let list = path.child("requests");
    let mut seen = HashSet::new();
    for (i, request) in requests.iter().enumerate() {
        let path = list.index(i);
        let name = request.text("name");
        named(errors, &path.child("name"), name, names::dns1123_label);
        let alternatives = request.list("firstAvailable");
        match (request.has("exactly"), alternatives.is_empty()) {
            (false, true) => {
                errors.push(FieldError::required(path, "exactly one of `exactly` or `firstAvailable` is required"));
            }
            (true, false) => {
                let why = "exactly one of `exactly` or `firstAvailable` is required, but multiple fields are set";
                errors.push(FieldError::invalid(path, Value::Null, why));
            }
            (true, true) => device_request(request.at("exactly"), &path.child("exactly"), errors),
            (false, false) => {
                let list = path.child("firstAvailable");
                for (j, alternative) in alternatives.iter().enumerate() {
                    let path = list.index(j);
                    named(errors, &path.child("name"), alternative.text("name"), names::dns1123_label);
                    device_request(alternative, &path, errors);
                }
            }
        }
        if !name.is_empty() && !seen.insert(name) {
            errors.push(FieldError::duplicate(path.child("name"), name));
        }
    }
    let mut known = RequestNames::new();
    for request in requests {
        let name = request.text("name");
        known.insert((name, None));
        known.extend(request.list("firstAvailable").iter().map(|other| (name, Some(other.text("name")))));
    }
    let list = path.child("constraints");
    for (i, constraint) in devices.list("constraints").iter().enumerate() {
        let path = list.index(i);
        request_names(constraint, &known, &path.child("requests"), errors);
        let attribute = constraint.at("matchAttribute").as_str().or(constraint.at("distinctAttribute").as_str());
        match attribute {
            None => required(errors, &path.child("matchAttribute")),
            Some(attribute) => {
                let field = if constraint.has("matchAttribute") { "matchAttribute" } else { "distinctAttribute" };
                qualified(attribute, &path.child(field), errors);
            }
        }
    }
    let list = path.child("config");
    for (i, config) in devices.list("config").iter().enumerate() {
        let path = list.index(i);
        request_names(config, &known, &path.child("requests"), errors);
        if config.has("opaque") {
            storage::driver_name(config.text("opaque.driver"), &path.child("opaque.driver"), errors);
        } else {
            required(errors, &path.child("opaque"));
        }
    }
}

fn device_request(request: &Value, path: &Path<'_>, errors: &mut Errors) {
    named(errors, &path.child("deviceClassName"), request.text("deviceClassName"), names::dns1123_subdomain);
    selectors(request.list("selectors"), &path.child("selectors"), errors);
    let (count, count_path) = (request.int("count").unwrap_or(0), path.child("count"));
    match request.text("allocationMode") {
        "All" if count != 0 => {
            let why = "must not be specified when allocationMode is 'All'";
            errors.push(FieldError::invalid(count_path, count, why));
        }
        "ExactCount" if count <= 0 => {
            errors.push(FieldError::invalid(count_path, count, "must be greater than zero"));
        }
        "All" | "ExactCount" => {}
        other => word(errors, &path.child("allocationMode"), other, &["All", "ExactCount"]),
    }
}

fn selectors(selectors: &[Value], path: &Path<'_>, errors: &mut Errors) {
    if selectors.len() > 32 {
        errors.push(FieldError::too_many(path, selectors.len(), 32));
    }
    for (i, selector) in selectors.iter().enumerate() {
        let path = path.index(i);
        let (text, path_of) = (selector.text("cel.expression"), path.child("cel.expression"));
        if !selector.has("cel") {
            required(errors, &path.child("cel"));
        } else if text.len() > EXPRESSION_MAX {
            errors.push(FieldError::too_long(path_of, EXPRESSION_MAX));
        } else if let Some(why) = Declarations::device().error(text, ExpectedType::BoolOrUnknown) {
            errors.push(FieldError::invalid(path_of, text, why));
        }
    }
}

/// The names of requests, each alone and with its alternatives.
type RequestNames<'a> = HashSet<(&'a str, Option<&'a str>)>;

/// Checks references to requests, by name or by name and alternative: `gpu`, `gpu/large`.
fn request_names(holder: &Value, known: &RequestNames<'_>, path: &Path<'_>, errors: &mut Errors) {
    const WHY: &str =
        "must be the name of a request in the claim or the name of a request and a subrequest separated by '/'";
    for (i, reference) in holder.list("requests").iter().enumerate() {
        let reference = reference.as_str().unwrap_or_default();
        let (name, alternative) = reference.split_once('/').map_or((reference, None), |(n, a)| (n, Some(a)));
        for segment in reference.split('/') {
            objections(errors, &path.index(i), segment, names::dns1123_label(segment));
        }
        if !known.contains(&(name, alternative)) {
            errors.push(FieldError::invalid(path.index(i), reference, WHY));
        }
    }
}

fn qualified(name: &str, path: &Path<'_>, errors: &mut Errors) {
    match name.split_once('/') {
        None => {
            let why = "a fully qualified name must be a domain and a name separated by a slash";
            errors.push(FieldError::invalid(path, name, why));
        }
        Some((domain, rest)) => {
            objections(errors, path, domain, names::dns1123_subdomain(domain));
            if rest.is_empty() {
                errors.push(FieldError::required(path, "the name must not be empty"));
            }
        }
    }
}

fn slice(object: &Value, old: Option<&Value>, errors: &mut Errors) {
    let spec = object.at("spec");
    if let Some(old) = old.map(|old| old.at("spec")) {
        for field in ["driver", "nodeName"] {
            immutable(errors, &SPEC.child(field), spec.at(field), old.at(field));
        }
        immutable(errors, &SPEC.child("pool.name"), spec.at("pool.name"), old.at("pool.name"));
    }
    storage::driver_name(spec.text("driver"), &SPEC.child("driver"), errors);
    let pool = SPEC.child("pool");
    if spec.text("pool.name").is_empty() {
        required(errors, &pool.child("name"));
    }
    let mut seen = HashSet::new();
    let list = SPEC.child("devices");
    for (i, device) in spec.list("devices").iter().enumerate() {
        let (path, name) = (list.index(i), device.text("name"));
        named(errors, &path.child("name"), name, names::dns1123_label);
        if !name.is_empty() && !seen.insert(name) {
            errors.push(FieldError::duplicate(path.child("name"), name));
        }
    }
}
