//! Validation of webhook configurations, admission policies and their bindings. Expressions must compile.

use std::collections::HashSet;

use cel::policy::{Declarations, ExpectedType, PolicyVariables};
use machinery::field_error::{FieldError, Path};
use machinery::json::Value;
use machinery::{GroupVersion, names};

use super::Errors;
use super::rules::{objections, one_of, optional_word, required, selector, word};
use crate::walk::Walk as _;

const SPEC: Path<'static> = Path::new("spec");
/// Most variables of a policy: each is compiled with all earlier ones.
const VARIABLES_MAX: usize = 1_000;
/// Longest expression of an audit annotation, in bytes.
const ANNOTATION_MAX: usize = 5 * 1024;

pub(super) fn validate(kind: &str, object: &Value, errors: &mut Errors) {
    match kind {
        "ValidatingWebhookConfiguration" | "MutatingWebhookConfiguration" => webhooks(object, errors),
        "ValidatingAdmissionPolicy" => policy(object, true, errors),
        "MutatingAdmissionPolicy" => policy(object, false, errors),
        "ValidatingAdmissionPolicyBinding" => binding(object.at("spec"), true, errors),
        "MutatingAdmissionPolicyBinding" => binding(object.at("spec"), false, errors),
        _ => {}
    }
}

fn webhooks(object: &Value, errors: &mut Errors) {
    let list = Path::new("webhooks");
    let mut taken = HashSet::new();
    for (i, hook) in object.list("webhooks").iter().enumerate() {
        let path = list.index(i);
        webhook(hook, &path, errors);
        review_versions(hook, &path.child("admissionReviewVersions"), errors);
        let name = hook.text("name");
        if !name.is_empty() && !taken.insert(name) {
            errors.push(FieldError::duplicate(path.child("name"), name));
        }
    }
}

fn webhook(hook: &Value, path: &Path<'_>, errors: &mut Errors) {
    qualified_domain(hook.text("name"), &path.child("name"), errors);
    let list = path.child("rules");
    for (i, rule) in hook.list("rules").iter().enumerate() {
        operations(rule, &list.index(i), errors);
    }
    optional_word(errors, &path.child("failurePolicy"), hook.at("failurePolicy"), &["Fail", "Ignore"]);
    optional_word(errors, &path.child("matchPolicy"), hook.at("matchPolicy"), &["Equivalent", "Exact"]);
    let effects = path.child("sideEffects");
    if hook.has("sideEffects") {
        word(errors, &effects, hook.text("sideEffects"), &["None", "NoneOnDryRun"]);
    } else {
        errors.push(FieldError::required(effects, "must specify one of None, NoneOnDryRun"));
    }
    if let Some(seconds) = hook.int("timeoutSeconds").filter(|seconds| !(1..=30).contains(seconds)) {
        let why = "the timeout value must be between 1 and 30 seconds";
        errors.push(FieldError::invalid(path.child("timeoutSeconds"), seconds, why));
    }
    selector(errors, &path.child("namespaceSelector"), hook.at("namespaceSelector"));
    selector(errors, &path.child("objectSelector"), hook.at("objectSelector"));
    optional_word(errors, &path.child("reinvocationPolicy"), hook.at("reinvocationPolicy"), &["IfNeeded", "Never"]);
    client(hook.at("clientConfig"), &path.child("clientConfig"), errors);
    let declared = Declarations::admission(false, true);
    conditions(hook, &path.child("matchConditions"), &declared, errors);
}

/// Checks the address of a webhook, also of conversion webhooks of CustomResourceDefinitions.
pub(super) fn client(client: &Value, path: &Path<'_>, errors: &mut Errors) {
    match (client.at("url").as_str(), client.at("service")) {
        (Some(url), Value::Null) => {
            super::go_url::webhook_url(errors, &path.child("url"), url);
        }
        (None, service @ Value::Object(_)) => {
            let path = path.child("service");
            // The reference names the other of the two.
            for (field, named) in [("namespace", "name"), ("name", "namespace")] {
                if service.text(field).is_empty() {
                    errors.push(FieldError::required(path.child(named), ""));
                }
            }
            let port = service.int("port").unwrap_or(443);
            if !names::port_number(port).is_empty() {
                let why = "port is not valid: must be between 1 and 65535, inclusive";
                errors.push(FieldError::invalid(path.child("port"), port, why));
            }
            service_path(service.text("path"), &path.child("path"), errors);
        }
        _ => errors.push(FieldError::required(path, "exactly one of url or service is required")),
    }
}

/// Checks the path below a service: segments that are each a subdomain.
fn service_path(target: &str, path: &Path<'_>, errors: &mut Errors) {
    let mut invalid = |why: String| errors.push(FieldError::invalid(path, target, why));
    if matches!(target, "" | "/") {
        return;
    }
    if target == "//" {
        return invalid("segment[0] may not be empty".to_owned());
    }
    if !target.starts_with('/') {
        invalid("must start with a '/'".to_owned());
    }
    // The first character is dropped whatever it is.
    let rest = target.char_indices().nth(1).map_or("", |(at, _)| &target[at..]);
    let rest = rest.strip_suffix('/').unwrap_or(rest);
    for (at, segment) in rest.split('/').enumerate() {
        if segment.is_empty() {
            invalid(format!("segment[{at}] may not be empty"));
            continue;
        }
        for why in names::dns1123_subdomain(segment) {
            invalid(format!("segment[{at}]: {why}"));
        }
    }
}

/// Checks a domain of at least three segments.
fn qualified_domain(name: &str, path: &Path<'_>, errors: &mut Errors) {
    if name.is_empty() {
        return required(errors, path);
    }
    let why = names::dns1123_subdomain(name);
    if !why.is_empty() {
        errors.push(FieldError::invalid(path, name, why.join(",")));
    } else if name.split('.').count() < 3 {
        let why = "should be a domain with at least three segments separated by dots";
        errors.push(FieldError::invalid(path, name, why));
    }
}

fn review_versions(hook: &Value, path: &Path<'_>, errors: &mut Errors) {
    let versions = hook.list("admissionReviewVersions");
    if versions.is_empty() {
        errors.push(FieldError::required(path, "must specify one of v1, v1beta1"));
        return;
    }
    let mut seen = HashSet::new();
    for (i, version) in versions.iter().enumerate() {
        let version = version.as_str().unwrap_or_default();
        if !seen.insert(version) {
            errors.push(FieldError::invalid(path.index(i), version, "duplicate version"));
            continue;
        }
        objections(errors, &path.index(i), version, names::dns1035_label(version));
    }
    if !seen.contains("v1") && !seen.contains("v1beta1") {
        let why = "must include at least one of v1, v1beta1";
        errors.push(FieldError::invalid(path, hook.at("admissionReviewVersions"), why));
    }
}

/// Checks rules of operations on resources.
fn operations(rule: &Value, path: &Path<'_>, errors: &mut Errors) {
    let (wanted, list) = (rule.list("operations"), path.child("operations"));
    let any = |list: &[Value]| list.iter().any(|item| item == "*");
    if wanted.is_empty() {
        required(errors, &list);
    }
    if wanted.len() > 1 && any(wanted) {
        let why = "if '*' is present, must not specify other operations";
        errors.push(FieldError::invalid(list, rule.at("operations"), why));
    }
    for (i, operation) in wanted.iter().enumerate() {
        let operation = operation.as_str().unwrap_or_default();
        word(errors, &list.index(i), operation, &["*", "CONNECT", "CREATE", "DELETE", "UPDATE"]);
    }
    for (field, what) in [("apiGroups", "API groups"), ("apiVersions", "API versions")] {
        let (values, list) = (rule.list(field), path.child(field));
        if values.is_empty() {
            required(errors, &list);
        }
        if values.len() > 1 && any(values) {
            let why = format!("if '*' is present, must not specify other {what}");
            errors.push(FieldError::invalid(list, rule.at(field), why));
        }
        for (i, _) in values.iter().enumerate().filter(|(_, value)| field == "apiVersions" && *value == "") {
            required(errors, &list.index(i));
        }
    }
    resources(rule, &path.child("resources"), errors);
    optional_word(errors, &path.child("scope"), rule.at("scope"), &["*", "Cluster", "Namespaced"]);
}

fn resources(rule: &Value, path: &Path<'_>, errors: &mut Errors) {
    let resources: Vec<&str> = rule.list("resources").iter().map(|r| r.as_str().unwrap_or_default()).collect();
    if resources.is_empty() {
        required(errors, path);
    }
    let (mut whole, mut everywhere) = (HashSet::new(), HashSet::new());
    let mut plain = false;
    for (i, resource) in resources.iter().enumerate() {
        if resource.is_empty() {
            required(errors, &path.index(i));
            continue;
        }
        let Some((name, sub)) = resource.split_once('/') else {
            plain = *resource != "*";
            continue;
        };
        if whole.contains(name) {
            let why = format!("if '{name}/*' is present, must not specify {resource}");
            errors.push(FieldError::invalid(path.index(i), *resource, why));
        }
        if everywhere.contains(sub) {
            let why = format!("if '*/{sub}' is present, must not specify {resource}");
            errors.push(FieldError::invalid(path.index(i), *resource, why));
        }
        if sub == "*" {
            whole.insert(name);
        }
        if name == "*" {
            everywhere.insert(sub);
        }
    }
    if resources.len() > 1 && resources.contains(&"*/*") {
        let why = "if '*/*' is present, must not specify other resources";
        errors.push(FieldError::invalid(path, rule.at("resources"), why));
    }
    if plain && resources.contains(&"*") {
        let why = "if '*' is present, must not specify other resources without subresources";
        errors.push(FieldError::invalid(path, rule.at("resources"), why));
    }
}

/// Checks that an expression compiles.
fn expression(text: &str, wanted: ExpectedType, declared: &Declarations, path: &Path<'_>, errors: &mut Errors) {
    if let Some(why) = declared.error(text, wanted) {
        errors.push(FieldError::invalid(path, text, why));
    }
}

fn conditions(holder: &Value, path: &Path<'_>, declared: &Declarations, errors: &mut Errors) {
    let conditions = holder.list("matchConditions");
    if conditions.len() > 64 {
        errors.push(FieldError::too_many(path, conditions.len(), 64));
    }
    let mut taken = HashSet::new();
    for (i, condition) in conditions.iter().enumerate() {
        let path = path.index(i);
        if condition.text("expression").trim().is_empty() {
            required(errors, &path.child("expression"));
        } else {
            expression(condition.text("expression"), ExpectedType::Bool, declared, &path.child("expression"), errors);
        }
        let name = condition.text("name");
        if name.is_empty() {
            required(errors, &path.child("name"));
        } else {
            objections(errors, &path.child("name"), name, names::qualified_name(name));
            if !taken.insert(name) {
                errors.push(FieldError::duplicate(path.child("name"), name));
            }
        }
    }
}

fn policy(object: &Value, validating: bool, errors: &mut Errors) {
    let spec = object.at("spec");
    one_of(errors, &SPEC.child("failurePolicy"), spec.text("failurePolicy"), &["Fail", "Ignore"]);
    if spec.has("paramKind") {
        parameter_kind(spec.at("paramKind"), &SPEC.child("paramKind"), errors);
    }
    let (constraints, path) = (spec.at("matchConstraints"), SPEC.child("matchConstraints"));
    if constraints.is_object() {
        match_resources(constraints, &path, errors);
        if constraints.list("resourceRules").is_empty() {
            required(errors, &path.child("resourceRules"));
        }
        if !validating {
            mutating_operations(constraints, &path, errors);
        }
    } else {
        required(errors, &path);
    }
    let mut declared = Declarations::admission(spec.has("paramKind"), true);
    conditions(spec, &SPEC.child("matchConditions"), &declared, errors);
    if !validating {
        declared = declared.with_patches();
    }
    let mut composed = PolicyVariables::default();
    let list = SPEC.child("variables");
    if spec.list("variables").len() > VARIABLES_MAX {
        return errors.push(FieldError::too_many(list, spec.list("variables").len(), VARIABLES_MAX));
    }
    for (i, variable) in spec.list("variables").iter().enumerate() {
        let path = list.index(i);
        let name = variable.text("name");
        if name.trim().is_empty() {
            errors.push(FieldError::required(path.child("name"), "name is not specified"));
        } else if !is_identifier(name) {
            errors.push(FieldError::invalid(path.child("name"), name, "must be a valid CEL identifier"));
        }
        if variable.text("expression").trim().is_empty() {
            errors.push(FieldError::required(path.child("expression"), "expression is not specified"));
        } else if let Some(why) = composed.add(&declared, name, variable.text("expression")) {
            errors.push(FieldError::invalid(path.child("expression"), variable.text("expression"), why));
        }
    }
    if validating {
        validations(object, &composed, errors);
        return;
    }
    if spec.list("mutations").is_empty() {
        errors.push(FieldError::required(SPEC.child("mutations"), "mutations must contain at least one item"));
    }
    let (list, declared) = (SPEC.child("mutations"), declared.and(&composed));
    for (i, change) in spec.list("mutations").iter().enumerate() {
        mutation(change, &declared, &list.index(i), errors);
    }
    let (again, path) = (spec.text("reinvocationPolicy"), SPEC.child("reinvocationPolicy"));
    if again.is_empty() {
        required(errors, &path);
    } else {
        word(errors, &path, again, &["IfNeeded", "Never"]);
    }
}

/// Checks that rules have no operations without an object to change.
fn mutating_operations(resources: &Value, path: &Path<'_>, errors: &mut Errors) {
    let rules = path.child("resourceRules");
    let path = rules.child("operations");
    for operation in resources.list("resourceRules").iter().flat_map(|rule| rule.list("operations")) {
        word(errors, &path, operation.as_str().unwrap_or_default(), &["*", "CONNECT", "CREATE", "UPDATE"]);
    }
}

fn mutation(change: &Value, declared: &Declarations, path: &Path<'_>, errors: &mut Errors) {
    let (apply, patch) = ("applyConfiguration", "jsonPatch");
    let kind = change.text("patchType");
    let (own, other, wanted) = match kind {
        "ApplyConfiguration" => (apply, patch, ExpectedType::ApplyConfiguration),
        "JSONPatch" => (patch, apply, ExpectedType::JsonPatch),
        "" => return required(errors, &path.child("patchType")),
        _ => return word(errors, &path.child("patchType"), kind, &["ApplyConfiguration", "JSONPatch"]),
    };
    let own_path = path.child(own);
    if !change.has(own) {
        errors.push(FieldError::required(own_path, format!("must be specified when patchType is {kind}")));
    } else {
        let text = change.at(own).text("expression").trim();
        let path = own_path.child("expression");
        if text.is_empty() { required(errors, &path) } else { expression(text, wanted, declared, &path, errors) }
    }
    if change.has(other) {
        let why = format!("must not be specified when patchType is {kind}");
        errors.push(FieldError::invalid(path.child(other), format!("{{{other}}}"), why));
    }
}

fn is_identifier(name: &str) -> bool {
    let mut letters = name.chars();
    letters.next().is_some_and(|c| c.is_ascii_alphabetic() || c == '_')
        && letters.all(|c| c.is_ascii_alphanumeric() || c == '_')
}

fn validations(object: &Value, composed: &PolicyVariables, errors: &mut Errors) {
    let spec = object.at("spec");
    let declared = |authorizer: bool| {
        let declared = Declarations::admission(spec.has("paramKind"), authorizer);
        if spec.list("variables").is_empty() { declared } else { declared.and(composed) }
    };
    // Expressions of messages have no access to the authorizer.
    let (with_authorizer, without_authorizer) = (declared(true), declared(false));
    let (rules, annotations) = (spec.list("validations"), spec.list("auditAnnotations"));
    if rules.is_empty() && annotations.is_empty() {
        let why = "validations or auditAnnotations must contain at least one item";
        errors.push(FieldError::required(SPEC.child("validations"), why));
        errors.push(FieldError::required(SPEC.child("auditAnnotations"), why));
    }
    let list = SPEC.child("validations");
    for (i, rule) in rules.iter().enumerate() {
        let path = list.index(i);
        if rule.text("expression").trim().is_empty() {
            errors.push(FieldError::required(path.child("expression"), "expression is not specified"));
        } else {
            expression(
                rule.text("expression"),
                ExpectedType::Bool,
                &with_authorizer,
                &path.child("expression"),
                errors,
            );
        }
        message(rule, &without_authorizer, &path, errors);
        let reasons = ["Forbidden", "Invalid", "RequestEntityTooLarge"];
        // The list in the message lacks one that is accepted, as in the reference.
        if let Some(reason) = rule.at("reason").as_str().filter(|reason| *reason != "Unauthorized") {
            word(errors, &path.child("reason"), reason, &reasons);
        }
    }
    let list = SPEC.child("auditAnnotations");
    let mut taken = HashSet::new();
    for (i, annotation) in annotations.iter().enumerate() {
        let path = list.index(i);
        let key = annotation.text("key");
        if object.text("metadata.name").is_empty() {
            errors.push(FieldError::invalid(path.child("key"), key, "requires metadata.name be non-empty"));
        } else {
            let whole = format!("{}/{key}", object.text("metadata.name"));
            objections(errors, &path.child("key"), &whole, names::qualified_name(&whole));
        }
        if annotation.text("valueExpression").trim().is_empty() {
            errors.push(FieldError::required(path.child("valueExpression"), "valueExpression is not specified"));
        } else if annotation.text("valueExpression").trim().len() > ANNOTATION_MAX {
            let why = format!("must not exceed {ANNOTATION_MAX} bytes in length");
            errors.push(FieldError::required(path.child("valueExpression"), why));
        } else if let Some(why) =
            with_authorizer.error(annotation.text("valueExpression").trim(), ExpectedType::StringOrNull)
        {
            let text = annotation.text("valueExpression");
            errors.push(FieldError::invalid(path.child("valueExpression"), text, why));
        }
        if !taken.insert(key) {
            errors.push(FieldError::duplicate(path.child("key"), key));
        }
    }
}

/// Checks the message of a rule.
fn message(rule: &Value, declared: &Declarations, path: &Path<'_>, errors: &mut Errors) {
    let (made, path_made) = (rule.text("messageExpression"), path.child("messageExpression"));
    if made.trim().is_empty() {
        if !made.is_empty() {
            errors.push(FieldError::invalid(path_made, made, "must be non-empty if specified"));
        }
    } else {
        expression(made, ExpectedType::String, declared, &path_made, errors);
    }
    let said = rule.text("message");
    if !said.is_empty() && said.trim().is_empty() {
        errors.push(FieldError::invalid(path.child("message"), said, "must be non-empty if specified"));
    } else if said.trim().contains(['\n', '\r']) {
        errors.push(FieldError::invalid(path.child("message"), said, "must not contain line breaks"));
    }
}

fn parameter_kind(kind: &Value, path: &Path<'_>, errors: &mut Errors) {
    let version = kind.text("apiVersion");
    let version_path = path.child("apiVersion");
    if version.is_empty() {
        required(errors, &version_path);
    } else {
        match GroupVersion::parse(version) {
            None => {
                let why = format!("unexpected GroupVersion string: {version}");
                errors.push(FieldError::invalid(version_path, version, why));
            }
            Some(parsed) => {
                if !parsed.group.is_empty() {
                    objections(errors, &version_path, &parsed.group, names::dns1123_subdomain(&parsed.group));
                }
                if parsed.version.is_empty() {
                    errors.push(FieldError::invalid(version_path, version, "version must be specified"));
                } else {
                    objections(errors, &version_path, &parsed.version, names::dns1035_label(&parsed.version));
                }
            }
        }
    }
    let name = kind.text("kind");
    if name.is_empty() {
        return required(errors, &path.child("kind"));
    }
    let why = names::dns1035_label(&name.to_lowercase());
    if !why.is_empty() {
        let why = format!("may have mixed case, but should otherwise match: {}", why.join(","));
        errors.push(FieldError::invalid(path.child("kind"), name, why));
    }
}

fn match_resources(resources: &Value, path: &Path<'_>, errors: &mut Errors) {
    one_of(errors, &path.child("matchPolicy"), resources.text("matchPolicy"), &["Equivalent", "Exact"]);
    for field in ["namespaceSelector", "objectSelector"] {
        if resources.has(field) {
            selector(errors, &path.child(field), resources.at(field));
        } else {
            required(errors, &path.child(field));
        }
    }
    for field in ["resourceRules", "excludeResourceRules"] {
        let list = path.child(field);
        for (i, rule) in resources.list(field).iter().enumerate() {
            let path = list.index(i);
            let names_path = path.child("resourceNames");
            let mut taken = HashSet::new();
            for (j, name) in rule.list("resourceNames").iter().enumerate() {
                let name = name.as_str().unwrap_or_default();
                objections(errors, &names_path.index(j), name, names::path_segment(name));
                if !taken.insert(name) {
                    errors.push(FieldError::duplicate(names_path.index(j), name));
                }
            }
            operations(rule, &path, errors);
        }
    }
}

fn binding(spec: &Value, validating: bool, errors: &mut Errors) {
    let (name, path) = (spec.text("policyName"), SPEC.child("policyName"));
    if name.is_empty() {
        required(errors, &path);
    } else {
        objections(errors, &path, name, names::dns1123_subdomain(name));
    }
    if spec.has("paramRef") {
        parameter(spec.at("paramRef"), &SPEC.child("paramRef"), errors);
    }
    if spec.has("matchResources") {
        match_resources(spec.at("matchResources"), &SPEC.child("matchResources"), errors);
        if !validating {
            mutating_operations(spec.at("matchResources"), &SPEC.child("matchResources"), errors);
        }
    }
    if !validating {
        return;
    }
    let (actions, path) = (spec.list("validationActions"), SPEC.child("validationActions"));
    let mut seen = HashSet::new();
    for (i, action) in actions.iter().enumerate() {
        let action = action.as_str().unwrap_or_default();
        word(errors, &path.index(i), action, &["Audit", "Deny", "Warn"]);
        if !seen.insert(action) {
            errors.push(FieldError::duplicate(path.index(i), action));
        }
    }
    if seen.contains("Deny") && seen.contains("Warn") {
        let why = "must not contain both Deny and Warn (repeating the same validation failure information in the API \
            response and headers serves no purpose)";
        errors.push(FieldError::invalid(path, spec.at("validationActions"), why));
    }
    if actions.is_empty() {
        errors.push(FieldError::required(path, "at least one validation action is required"));
    }
}

fn parameter(reference: &Value, path: &Path<'_>, errors: &mut Errors) {
    let (name, wanted) = (reference.text("name"), reference.at("selector"));
    let why = "name and selector are mutually exclusive";
    let both = !name.is_empty() && wanted.is_object();
    if !name.is_empty() {
        objections(errors, &path.child("name"), name, names::path_segment(name));
    }
    if both {
        errors.push(FieldError::forbidden(path.child("name"), why));
    }
    if wanted.is_object() {
        selector(errors, &path.child("selector"), wanted);
    }
    if both {
        errors.push(FieldError::forbidden(path.child("selector"), why));
    }
    if name.is_empty() && !wanted.is_object() {
        errors.push(FieldError::required(path, "one of name or selector must be specified"));
    }
    let action = path.child("parameterNotFoundAction");
    super::rules::one_of(errors, &action, reference.text("parameterNotFoundAction"), &["Deny", "Allow"]);
}
