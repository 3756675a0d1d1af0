//! The request as webhooks and policies see it: the members of `AdmissionRequest` without its objects and its uid.

use machinery::GroupVersionKind;
use machinery::json::{Map, Value, json};
use machinery::options::{DeleteOptions, FieldValidation, Propagation};
use schema::kind::Kind;

use super::matching::Matched;
use super::plugin::{Attributes, Operation, Options};

/// The name of an operation in rules, reviews and expressions.
pub(crate) fn operation_name(operation: Operation) -> &'static str {
    match operation {
        Operation::Create => "CREATE",
        Operation::Update => "UPDATE",
        Operation::Delete => "DELETE",
        Operation::Connect => "CONNECT",
    }
}

/// The members of the request in the order of the wire. `matched` is the version of the resource that a rule names.
pub(crate) fn request_value(attributes: &Attributes<'_>, matched: &Matched) -> Map {
    let mut request = Map::with_capacity(12);
    let (kind, resource) = (matched.kind(attributes), matched.resource(attributes));
    let asked = &attributes.target.kind;
    let subresource = attributes.subresource().unwrap_or_default();
    let mut add = |name: &'static str, value: Value| request.insert(name, value);
    add("kind", kind_value(kind));
    add("resource", resource_value(resource));
    if !subresource.is_empty() {
        add("subResource", subresource.into());
    }
    add("requestKind", kind_value(attributes.kind()));
    add("requestResource", resource_value(asked));
    if !subresource.is_empty() {
        add("requestSubResource", subresource.into());
    }
    for (name, text) in [("name", attributes.name), ("namespace", attributes.namespace())] {
        if !text.is_empty() {
            add(name, text.into());
        }
    }
    add("operation", operation_name(attributes.operation).into());
    add("userInfo", attributes.ctx.user.to_value());
    add("dryRun", attributes.dry_run.into());
    add("options", options_value(attributes));
    request
}

fn kind_value(kind: &GroupVersionKind) -> Value {
    members([("group", &kind.group), ("version", &kind.version), ("kind", &kind.kind)])
}

fn resource_value(kind: &Kind) -> Value {
    members([("group", &kind.gvk.group), ("version", &kind.gvk.version), ("resource", &kind.plural)])
}

fn members(all: [(&'static str, &str); 3]) -> Value {
    all.into_iter().map(|(name, text)| (name, Value::from(text))).collect::<Map>().into()
}

/// The options of the request. Those of a patch are the options of the create or update that it becomes.
fn options_value(attributes: &Attributes<'_>) -> Value {
    let (manager, validation) = match attributes.options {
        Options::Create(options) => (&options.field_manager, options.field_validation),
        Options::Update(options) => (&options.field_manager, options.field_validation),
        Options::Patch(options) => (&options.field_manager, options.field_validation),
        Options::Delete(options) => return delete_options(options),
        Options::None => return Value::Null,
    };
    let kind = if attributes.operation == Operation::Create { "CreateOptions" } else { "UpdateOptions" };
    let mut value = with_kind(kind);
    if attributes.dry_run {
        value.insert("dryRun", json!(["All"]));
    }
    if !manager.is_empty() {
        value.insert("fieldManager", manager.as_str().into());
    }
    match validation {
        FieldValidation::Ignore => value.insert("fieldValidation", "Ignore".into()),
        FieldValidation::Strict => value.insert("fieldValidation", "Strict".into()),
        FieldValidation::Warn => value.insert("fieldValidation", "Warn".into()),
        FieldValidation::Unstated => None,
    };
    value.into()
}

fn with_kind(kind: &str) -> Map {
    let mut value = Map::new();
    value.insert("kind", kind.into());
    value.insert("apiVersion", "meta.k8s.io/v1".into());
    value
}

fn delete_options(options: &DeleteOptions) -> Value {
    let mut value = with_kind("DeleteOptions");
    if let Some(seconds) = options.grace_period_seconds {
        value.insert("gracePeriodSeconds", seconds.into());
    }
    let mut preconditions = Map::new();
    for (name, text) in [("uid", &options.uid), ("resourceVersion", &options.resource_version)] {
        if let Some(text) = text {
            preconditions.insert(name, text.as_str().into());
        }
    }
    if !preconditions.is_empty() || options.has_preconditions {
        value.insert("preconditions", preconditions.into());
    }
    if let Some(orphan) = options.orphan_dependents {
        value.insert("orphanDependents", orphan.into());
    }
    if let Some(propagation) = options.propagation {
        let name = match propagation {
            Propagation::Orphan => "Orphan",
            Propagation::Background => "Background",
            Propagation::Foreground => "Foreground",
        };
        value.insert("propagationPolicy", name.into());
    }
    if options.dry_run {
        value.insert("dryRun", json!(["All"]));
    }
    value.into()
}
