//! Reviews of permissions: what a user may do, and the rules it has.

use access::authorizer::{Attributes, ResourceAttributes, What};
use access::identity::User;
use access::rbac::decision::joined;
use access::selectors::{FieldTerms, LabelTerms, Selectors};
use machinery::field_error::Path;
use machinery::go_text;
use machinery::json::{Map, Value, json};
use machinery::labels::{self, Operator};
use machinery::{FieldError, GroupResource, Status, fields, names};

use super::{text, texts};
use crate::request::handlers::Call;

const AUTHORIZATION: &str = "authorization.k8s.io";
const ATTRIBUTES: &str = "spec.resourceAttributes";

/// The subject of an access review.
#[derive(Clone, Copy)]
pub(super) enum Subject {
    Myself,
    Named,
    /// In one namespace only.
    Local,
}

/// The user that a review names.
pub(super) fn subject(spec: &Value) -> User {
    let extra = spec["extra"].as_object().into_iter().flatten().map(|(key, values)| (key.to_string(), texts(values)));
    User {
        name: text(spec, "user").to_owned(),
        uid: text(spec, "uid").to_owned(),
        groups: texts(&spec["groups"]),
        extra: extra.collect(),
    }
}

/// Validates an access review. The reference names no kind in these refusals.
pub(super) fn check(object: &Value, whose: Subject) -> Result<(), Status> {
    let spec = &object["spec"];
    let (resource, path) = (&spec["resourceAttributes"], &spec["nonResourceAttributes"]);
    let mut errors = Vec::new();
    let refused_path = |why: &str| FieldError::invalid("spec.nonResourceAttributes", shown_path(path), why);
    if resource.is_object() && path.is_object() {
        errors.push(refused_path("cannot be specified in combination with resourceAttributes"));
    }
    if !resource.is_object() && !path.is_object() {
        let why = "exactly one of nonResourceAttributes or resourceAttributes must be specified";
        errors.push(FieldError::invalid(ATTRIBUTES, Value::Null, why));
    }
    if !matches!(whose, Subject::Myself) && text(spec, "user").is_empty() && texts(&spec["groups"]).is_empty() {
        errors.push(FieldError::invalid("spec.user", "", "at least one of user or group must be specified"));
    }
    errors.extend(check_selector(&resource["fieldSelector"], "fieldSelector", check_field_term));
    errors.extend(check_selector(&resource["labelSelector"], "labelSelector", check_label_term));
    errors.extend(check_metadata(&object["metadata"], whose));
    if matches!(whose, Subject::Local) {
        let namespace = text(resource, "namespace");
        if resource.is_object() && namespace != text(&object["metadata"], "namespace") {
            let at = "spec.resourceAttributes.namespace";
            errors.push(FieldError::invalid(at, namespace, "must match metadata.namespace"));
        }
        if path.is_object() {
            errors.push(refused_path("disallowed on this kind of request"));
        }
    }
    if errors.is_empty() {
        return Ok(());
    }
    Err(Status::invalid(&GroupResource::new(AUTHORIZATION, ""), "", &errors))
}

/// The attributes of a path under the names that the reference has in its own memory.
fn shown_path(path: &Value) -> Value {
    json!({"Path": text(path, "path"), "Verb": text(path, "verb")})
}

fn check_metadata(metadata: &Value, whose: Subject) -> Option<FieldError> {
    let (except, why) = match whose {
        Subject::Local => ("namespace", "must be empty except for namespace"),
        Subject::Myself | Subject::Named => ("", "must be empty"),
    };
    let mut members = metadata.as_object().into_iter().flatten();
    let is_set = members.any(|(name, value)| name != "managedFields" && name != except && !is_empty(value));
    is_set.then(|| {
        let shown = machinery::json::from_str(&go_text::json(metadata)).unwrap_or_default();
        FieldError::invalid("metadata", shown, why)
    })
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

fn terms(selector: &Value) -> impl Iterator<Item = &Value> {
    selector["requirements"].as_array().into_iter().flat_map(|terms| terms.iter())
}

/// Checks a selector: as a text or as terms, and each term.
fn check_selector(
    selector: &Value,
    member: &str,
    check_term: fn(&Value, &Path<'_>) -> Vec<FieldError>,
) -> Vec<FieldError> {
    if !selector.is_object() {
        return Vec::new();
    }
    let (attributes, raw) = (Path::new(ATTRIBUTES), text(selector, "rawSelector"));
    let path = attributes.child(member);
    let list = path.child("requirements");
    let mut errors = Vec::new();
    if !raw.is_empty() && terms(selector).next().is_some() {
        let why = "may not specified at the same time as requirements";
        errors.push(FieldError::invalid(path.child("rawSelector"), raw, why));
    }
    if raw.is_empty() && terms(selector).next().is_none() {
        let why = format!("when {ATTRIBUTES}.{member} is specified, requirements or rawSelector is required");
        errors.push(FieldError::required(list, why));
    }
    errors.extend(terms(selector).enumerate().flat_map(|(i, term)| check_term(term, &list.index(i))));
    errors
}

fn check_values(term: &Value, path: &Path<'_>) -> Option<FieldError> {
    let count = texts(&term["values"]).len();
    match text(term, "operator") {
        "In" | "NotIn" if count == 0 => {
            let why = "must be specified when `operator` is 'In' or 'NotIn'";
            Some(FieldError::required(path.child("values"), why))
        }
        "Exists" | "DoesNotExist" if count > 0 => {
            let why = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'";
            Some(FieldError::forbidden(path.child("values"), why))
        }
        _ => None,
    }
}

fn check_field_term(term: &Value, path: &Path<'_>) -> Vec<FieldError> {
    let no_key = text(term, "key").is_empty().then(|| FieldError::required(path.child("key"), "must be specified"));
    no_key.into_iter().chain(check_values(term, path)).collect()
}

fn check_label_term(term: &Value, path: &Path<'_>) -> Vec<FieldError> {
    let key = text(term, "key");
    let mut errors: Vec<FieldError> = check_values(term, path).into_iter().collect();
    let objections = names::qualified_name(key);
    errors.extend(objections.into_iter().map(|why| FieldError::invalid(path.child("key"), key, why)));
    let values = path.child("values");
    for (i, value) in texts(&term["values"]).iter().enumerate() {
        let objections = names::label_value(value);
        errors.extend(objections.into_iter().map(|why| FieldError::invalid(values.index(i), value.as_str(), why)));
    }
    errors
}

/// The terms of a selector that can be read, and whether there are others.
struct Readable<T> {
    terms: Vec<T>,
    others: bool,
}

impl<T> Readable<T> {
    fn from_text<E>(parsed: Result<Vec<T>, E>) -> Self {
        let others = parsed.is_err();
        Readable { terms: parsed.unwrap_or_default(), others }
    }

    fn from_terms(terms: impl Iterator<Item = Option<T>>) -> Self {
        let (mut readable, mut others) = (Vec::new(), false);
        for term in terms {
            match term {
                Some(term) => readable.push(term),
                None => others = true,
            }
        }
        Readable { terms: readable, others }
    }

    fn error(&self, member: &str) -> Option<String> {
        let how = if self.terms.is_empty() { "ignored" } else { "partially ignored" };
        self.others.then(|| format!("{ATTRIBUTES}.{member} {how} due to parse error"))
    }
}

fn field_terms(selector: &Value) -> Readable<fields::Requirement> {
    let raw = text(selector, "rawSelector");
    if !raw.is_empty() {
        return Readable::from_text(fields::Selector::parse(raw).map(|parsed| parsed.requirements().to_vec()));
    }
    Readable::from_terms(terms(selector).map(|term| {
        let operator = match text(term, "operator") {
            "In" => fields::Operator::Equals,
            "NotIn" => fields::Operator::NotEquals,
            _ => return None,
        };
        match texts(&term["values"]).as_slice() {
            [value] => {
                Some(fields::Requirement { field: text(term, "key").to_owned(), operator, value: value.clone() })
            }
            _ => None,
        }
    }))
}

fn label_terms(selector: &Value) -> Readable<labels::Requirement> {
    let raw = text(selector, "rawSelector");
    if !raw.is_empty() {
        return Readable::from_text(labels::Selector::parse(raw).map(|parsed| parsed.requirements().to_vec()));
    }
    Readable::from_terms(terms(selector).map(|term| {
        let operator = match text(term, "operator") {
            "In" => Operator::In,
            "NotIn" => Operator::NotIn,
            "Exists" => Operator::Exists,
            "DoesNotExist" => Operator::DoesNotExist,
            _ => return None,
        };
        labels::Requirement::new(text(term, "key"), operator, texts(&term["values"])).ok()
    }))
}

/// The authorizer's decision as the status of an access review.
pub(super) async fn decide(call: &Call<'_>, user: &User, spec: &Value) -> Value {
    let (resource, path) = (&spec["resourceAttributes"], &spec["nonResourceAttributes"]);
    let fields = field_terms(&resource["fieldSelector"]);
    let labels = label_terms(&resource["labelSelector"]);
    let (verb, what) = if resource.is_object() {
        let version = Some(text(resource, "version")).filter(|version| !version.is_empty());
        let what = ResourceAttributes {
            group: text(resource, "group"),
            version: version.unwrap_or("*"),
            resource: text(resource, "resource"),
            subresource: text(resource, "subresource"),
            namespace: text(resource, "namespace"),
            name: text(resource, "name"),
            selectors: Selectors { labels: LabelTerms::Terms(&labels.terms), fields: FieldTerms::Terms(&fields.terms) },
        };
        (text(resource, "verb"), What::Resource(what))
    } else {
        (text(path, "verb"), What::Path(text(path, "path")))
    };
    let decision = call.server.authorizer.authorize(&Attributes { user, verb, what }).get().await;
    let mut status = Map::new();
    status.insert("allowed", decision.allowed.into());
    if decision.denied {
        status.insert("denied", true.into());
    }
    if !decision.reason.is_empty() {
        status.insert("reason", decision.reason.into());
    }
    let failed = Some(decision.error.to_string()).filter(|error| !error.is_empty());
    let errors = [failed, fields.error("fieldSelector"), labels.error("labelSelector")];
    let errors: Vec<String> = errors.into_iter().flatten().collect();
    if !errors.is_empty() {
        status.insert("evaluationError", errors.join("; ").into());
    }
    status.into()
}

/// The rules of the user in a namespace, as its roles state them.
pub(super) fn rules(call: &Call<'_>, spec: &Value) -> Value {
    let list = call.server.authorizer.rules_for(call.user, text(spec, "namespace"));
    let on_resources = list.rules.iter().filter(|rule| !rule.resources.is_empty()).map(|rule| {
        let mut shown = rule.to_value();
        shown.as_object_mut().map(|members| members.shift_remove("nonResourceURLs"));
        shown
    });
    let on_paths = list.rules.iter().filter(|rule| !rule.paths.is_empty());
    let on_paths = on_paths
        .map(|rule| json!({"verbs": rule.to_value()["verbs"], "nonResourceURLs": rule.to_value()["nonResourceURLs"]}));
    let mut status = json!({
        "resourceRules": on_resources.collect::<Vec<Value>>(),
        "nonResourceRules": on_paths.collect::<Vec<Value>>(),
        "incomplete": list.incomplete,
    });
    if !list.errors.is_empty() {
        status["evaluationError"] = joined(&list.errors).into();
    }
    status
}
