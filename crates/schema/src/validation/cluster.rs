//! Validation of flow control, leases, priorities, runtime classes, events of their own group, API services.

use machinery::field_error::{FieldError, Path};
use machinery::json::Value;
use machinery::names;

use super::core::{EventFields, any_event};
use super::rules::{immutable, named, not_negative, objections, one_of, required, same, word};
use super::{Errors, api_service, pod};
use crate::facts::internal;
use crate::walk::Walk as _;

const SPEC: Path<'static> = Path::new("spec");

pub(super) fn validate(group: &str, kind: &str, object: &Value, old: Option<&Value>, errors: &mut Errors) {
    match (group, kind) {
        ("flowcontrol.apiserver.k8s.io", "FlowSchema") => flow_schema(object, errors),
        ("flowcontrol.apiserver.k8s.io", "PriorityLevelConfiguration") => priority_level(object, errors),
        ("coordination.k8s.io", "Lease") => {
            let spec = object.at("spec");
            if let Some(seconds) = spec.int("leaseDurationSeconds").filter(|seconds| *seconds <= 0) {
                errors.push(FieldError::invalid(SPEC.child("leaseDurationSeconds"), seconds, "must be greater than 0"));
            }
            not_negative(errors, &SPEC.child("leaseTransitions"), spec.int("leaseTransitions"));
        }
        ("scheduling.k8s.io", "PriorityClass") => priority_class(object, old, errors),
        ("node.k8s.io", "RuntimeClass") => runtime_class(object, old, errors),
        ("events.k8s.io", "Event") => event(object, old, errors),
        ("apiregistration.k8s.io", "APIService") => api_service::validate(object, errors),
        _ => {}
    }
}

fn flow_schema(object: &Value, errors: &mut Errors) {
    let spec = object.at("spec");
    let (precedence, path) = (spec.int("matchingPrecedence").unwrap_or(0), SPEC.child("matchingPrecedence"));
    if precedence <= 0 {
        errors.push(FieldError::invalid(path, precedence, "must be a positive value"));
    }
    if precedence > 10_000 {
        errors.push(FieldError::invalid(path, precedence, "must not be greater than 10000"));
    }
    if precedence == 1 && object.text("metadata.name") != "exempt" {
        let why = "only the schema named 'exempt' may have matchingPrecedence 1";
        errors.push(FieldError::invalid(path, precedence, why));
    }
    if spec.has("distinguisherMethod") {
        let kind = spec.text("distinguisherMethod.type");
        if !matches!(kind, "ByNamespace" | "ByUser") {
            let shown = internal::shown("flowcontrol.FlowDistinguisherMethod", spec.at("distinguisherMethod"));
            let path = SPEC.child("distinguisherMethod.type");
            errors.push(FieldError::not_supported(path, shown, ["ByNamespace", "ByUser"]));
        }
    }
    let (level, path) = (spec.text("priorityLevelConfiguration.name"), SPEC.child("priorityLevelConfiguration.name"));
    if level.is_empty() {
        errors.push(FieldError::required(path, "must reference a priority level"));
    } else {
        objections(errors, &path, level, names::dns1123_subdomain(level));
    }
    let list = SPEC.child("rules");
    for (i, rule) in spec.list("rules").iter().enumerate() {
        flow_rule(rule, &list.index(i), errors);
    }
}

fn flow_rule(rule: &Value, path: &Path<'_>, errors: &mut Errors) {
    let list = path.child("subjects");
    for (i, subject) in rule.list("subjects").iter().enumerate() {
        flow_subject(subject, &list.index(i), errors);
    }
    if rule.list("subjects").is_empty() {
        errors.push(FieldError::required(list, "subjects must contain at least one value"));
    }
    let (resources, urls) = (rule.list("resourceRules"), rule.list("nonResourceRules"));
    if resources.is_empty() && urls.is_empty() {
        let why = "at least one of resourceRules and nonResourceRules has to be non-empty";
        errors.push(FieldError::required(path, why));
    }
    let list = path.child("resourceRules");
    for (i, rule) in resources.iter().enumerate() {
        let path = list.index(i);
        verbs(rule, &path, errors);
        for (field, what, plural) in [("apiGroups", "api group", "api groups"), ("resources", "resource", "resources")]
        {
            let values = rule.list(field);
            if values.is_empty() {
                let why = format!("resource rules must supply at least one {what}");
                errors.push(FieldError::required(path.child(field), why));
            } else if values.len() > 1 && values.iter().any(|value| value == "*") {
                let why = format!("if '*' is present, must not specify other {plural}");
                errors.push(FieldError::invalid(path.child(field), rule.at(field), why));
            }
        }
        if rule.list("namespaces").is_empty() && rule.flag("clusterScope") != Some(true) {
            let why = "resource rules that are not cluster scoped must supply at least one namespace";
            errors.push(FieldError::required(path.child("namespaces"), why));
        }
        let (namespaces, list) = (rule.list("namespaces"), path.child("namespaces"));
        if namespaces.iter().any(|namespace| namespace == "*") {
            if namespaces.len() > 1 {
                let why = "if '*' is present, must not specify other namespaces";
                errors.push(FieldError::invalid(list, rule.at("namespaces"), why));
            }
        } else {
            for (j, namespace) in namespaces.iter().enumerate() {
                let namespace = namespace.as_str().unwrap_or_default();
                for why in names::dns1123_label(namespace) {
                    let why = format!("each member of this list must be '*' or a DNS-1123 label; {why}");
                    errors.push(FieldError::invalid(list.index(j), namespace, why));
                }
            }
        }
    }
    let list = path.child("nonResourceRules");
    for (i, rule) in urls.iter().enumerate() {
        let path = list.index(i);
        verbs(rule, &path, errors);
        let (urls, list) = (rule.list("nonResourceURLs"), path.child("nonResourceURLs"));
        if urls.is_empty() {
            errors.push(FieldError::required(list, "nonResourceURLs must contain at least one value"));
        }
        for (j, url) in urls.iter().enumerate() {
            let url = url.as_str().unwrap_or_default();
            if url != "*" && !url.starts_with('/') {
                errors.push(FieldError::invalid(list.index(j), url, "must start with slash"));
            }
        }
    }
}

const VERBS: [&str; 9] = ["create", "delete", "deletecollection", "get", "list", "patch", "proxy", "update", "watch"];

fn verbs(rule: &Value, path: &Path<'_>, errors: &mut Errors) {
    let (verbs, path) = (rule.list("verbs"), path.child("verbs"));
    if verbs.is_empty() {
        errors.push(FieldError::required(path, "verbs must contain at least one value"));
    } else if verbs.len() > 1 && verbs.iter().any(|verb| verb == "*") {
        let why = "if '*' is present, must not specify other verbs";
        errors.push(FieldError::invalid(path, rule.at("verbs"), why));
    } else if !verbs.iter().all(|verb| verb == "*" || VERBS.iter().any(|known| verb == known)) {
        errors.push(FieldError::not_supported(path, rule.at("verbs"), VERBS));
    }
}

fn flow_subject(subject: &Value, path: &Path<'_>, errors: &mut Errors) {
    let kind = subject.text("kind");
    let own = match kind {
        "User" => "user",
        "Group" => "group",
        "ServiceAccount" => "serviceAccount",
        _ => return word(errors, &path.child("kind"), kind, &["Group", "ServiceAccount", "User"]),
    };
    if subject.has(own) {
        let path = path.child(own);
        if subject.at(own).text("name").is_empty() {
            required(errors, &path.child("name"));
        }
        if own == "serviceAccount" && subject.at(own).text("namespace").is_empty() {
            let why = "must specify namespace for service account";
            errors.push(FieldError::required(path.child("namespace"), why));
        }
    } else {
        let why = format!("{own} is required when subject kind is '{kind}'");
        errors.push(FieldError::required(path.child(own), why));
    }
    for (field, kind) in [("user", "User"), ("group", "Group"), ("serviceAccount", "ServiceAccount")] {
        if field != own && subject.has(field) {
            let why = format!("{field} is forbidden when subject kind is not '{kind}'");
            errors.push(FieldError::forbidden(path.child(field), why));
        }
    }
}

fn shares(level: &Value, path: &Path<'_>, errors: &mut Errors) {
    if let Some(shares) = level.int("nominalConcurrencyShares").filter(|shares| *shares < 0) {
        let why = "must be a non-negative integer";
        errors.push(FieldError::invalid(path.child("nominalConcurrencyShares"), shares, why));
    }
}

fn lendable(level: &Value, path: &Path<'_>, errors: &mut Errors) {
    if let Some(percent) = level.int("lendablePercent").filter(|percent| !(0..=100).contains(percent)) {
        let why = "must be between 0 and 100, inclusive";
        errors.push(FieldError::invalid(path.child("lendablePercent"), percent, why));
    }
}

/// Checks the queues of a level: a hand of them must be chosen by a hash of 60 bits.
fn queuing(queuing: &Value, path: &Path<'_>, errors: &mut Errors) {
    let number = |field: &str| queuing.int(field).unwrap_or(0);
    let (queues, hand) = (number("queues"), number("handSize"));
    if number("queueLengthLimit") <= 0 {
        let path = path.child("queueLengthLimit");
        errors.push(FieldError::invalid(path, number("queueLengthLimit"), "must be positive"));
    }
    if queues <= 0 {
        errors.push(FieldError::invalid(path.child("queues"), queues, "must be positive"));
    } else if queues > 10_000_000 {
        errors.push(FieldError::invalid(path.child("queues"), queues, "must not be greater than 10000000"));
    }
    let path = path.child("handSize");
    // The bits that a choice of one queue of those that are left needs.
    let bits = |left: i64| (64 - (left.max(1) as u64 - 1).leading_zeros()) as usize;
    if hand <= 0 {
        errors.push(FieldError::invalid(path, hand, "must be positive"));
    } else if hand > queues {
        errors.push(FieldError::invalid(path, hand, format!("should not be greater than queues ({queues})")));
    } else if (0..hand.min(64)).map(|taken| bits(queues - taken)).sum::<usize>() > 60 {
        let why =
            format!("required entropy bits of deckSize {queues} and handSize {hand} should not be greater than 60");
        errors.push(FieldError::invalid(path, hand, why));
    }
}

fn priority_level(object: &Value, errors: &mut Errors) {
    let spec = object.at("spec");
    let kind = spec.text("type");
    if (object.text("metadata.name") == "exempt") != (kind == "Exempt") {
        let why = "must be 'Exempt' if and only if `name` is 'exempt'";
        errors.push(FieldError::invalid(SPEC.child("type"), kind, why));
    }
    match kind {
        "Exempt" => {
            if spec.has("limited") {
                errors.push(FieldError::forbidden(SPEC.child("limited"), "must be nil if the type is not Limited"));
            }
            shares(spec.at("exempt"), &SPEC.child("exempt"), errors);
            lendable(spec.at("exempt"), &SPEC.child("exempt"), errors);
        }
        "Limited" => {
            if spec.has("exempt") {
                errors.push(FieldError::forbidden(SPEC.child("exempt"), "must be nil if the type is Limited"));
            }
            let (limited, path) = (spec.at("limited"), SPEC.child("limited"));
            if !limited.is_object() {
                errors.push(FieldError::required(path, "must not be empty when type is Limited"));
                return;
            }
            shares(limited, &path, errors);
            let (response, level) = (limited.at("limitResponse"), path);
            let path = level.child("limitResponse");
            match (response.text("type"), response.has("queuing")) {
                ("Reject", true) => {
                    let why = "must be nil if limited.limitResponse.type is not Limited";
                    errors.push(FieldError::forbidden(path.child("queuing"), why));
                }
                ("Queue", false) => {
                    let why = "must not be empty if limited.limitResponse.type is Limited";
                    errors.push(FieldError::required(path.child("queuing"), why));
                }
                ("Queue", true) => queuing(response.at("queuing"), &path.child("queuing"), errors),
                ("Reject", false) => {}
                ("", _) => required(errors, &path.child("type")),
                (other, _) => word(errors, &path.child("type"), other, &["Queue", "Reject"]),
            }
            lendable(limited, &level, errors);
            if let Some(percent) = limited.int("borrowingLimitPercent").filter(|percent| *percent < 0) {
                let why = "if specified, must be a non-negative integer";
                errors.push(FieldError::invalid(level.child("borrowingLimitPercent"), percent, why));
            }
        }
        "" => required(errors, &SPEC.child("type")),
        other => word(errors, &SPEC.child("type"), other, &["Exempt", "Limited"]),
    }
}

fn priority_class(object: &Value, old: Option<&Value>, errors: &mut Errors) {
    let value = object.int("value").unwrap_or(0);
    let policy = Path::new("preemptionPolicy");
    if let Some(old) = old {
        if value != old.int("value").unwrap_or(0) {
            errors.push(FieldError::forbidden("value", "may not be changed in an update."));
        }
        return immutable(errors, &policy, object.at("preemptionPolicy"), old.at("preemptionPolicy"));
    }
    let name = object.text("metadata.name");
    if name.starts_with("system-") {
        let known = match name {
            "system-cluster-critical" => Some(2_000_000_000),
            "system-node-critical" => Some(2_000_001_000),
            _ => None,
        };
        let why = match known {
            None => format!("{name} is not a known system priority class"),
            Some(wanted) if wanted != value => {
                format!("value of {name} PriorityClass must be {wanted}")
            }
            Some(_) if object.flag("globalDefault") == Some(true) => {
                format!("globalDefault of {name} PriorityClass must be false")
            }
            Some(_) => String::new(),
        };
        if !why.is_empty() {
            let why =
                format!("priority class names with 'system-' prefix are reserved for system use only. error: {why}");
            errors.push(FieldError::forbidden("metadata.name", why));
        }
    } else if value > 1_000_000_000 {
        let why = "maximum allowed value of a user defined priority is 1000000000";
        errors.push(FieldError::forbidden("value", why));
    }
    if let Some(word) = object.at("preemptionPolicy").as_str() {
        one_of(errors, &policy, word, &["PreemptLowerPriority", "Never"]);
    }
}

fn runtime_class(object: &Value, old: Option<&Value>, errors: &mut Errors) {
    let path = Path::new("handler");
    if let Some(old) = old {
        return immutable(errors, &path, object.at("handler"), old.at("handler"));
    }
    named(errors, &path, object.text("handler"), names::dns1123_label);
    pod::overhead(object.at("overhead.podFixed"), &Path::new("overhead"), errors);
    let path = Path::new("scheduling");
    super::rules::labels(errors, &path.child("nodeSelector"), object.at("scheduling.nodeSelector"));
    let list = path.child("tolerations");
    let tolerations = object.list("scheduling.tolerations");
    pod::scheduling::tolerations(tolerations, &list, errors);
    let mut seen = std::collections::HashSet::new();
    for (i, toleration) in tolerations.iter().enumerate() {
        if !seen.insert(["key", "operator", "value", "effect"].map(|field| toleration.text(field))) {
            let shown = internal::shown("core.Toleration", toleration);
            errors.push(FieldError::duplicate(list.index(i), shown));
        }
    }
}

fn event(object: &Value, old: Option<&Value>, errors: &mut Errors) {
    let fields = EventFields { regarding: "regarding", message: "note", controller: "reportingController" };
    any_event(object, fields, errors);
    let mut series = |object: &Value| {
        let series = object.at("series");
        if series.is_object() {
            if series.int("count").unwrap_or(0) < 2 {
                errors.push(FieldError::invalid("series.count", "", "should be at least 2"));
            }
            if !series.has("lastObservedTime") {
                required(errors, &Path::new("series.lastObservedTime"));
            }
        }
    };
    let Some(old) = old else {
        series(object);
        if !object.has("eventTime") {
            required(errors, &Path::new("eventTime"));
        }
        let kind = object.text("type");
        if !matches!(kind, "Normal" | "Warning") {
            errors.push(FieldError::invalid("type", "", format!("has invalid value: {kind}")));
        }
        for (field, shown) in
            [("deprecatedFirstTimestamp", "firstTimestamp"), ("deprecatedLastTimestamp", "lastTimestamp")]
        {
            if object.has(field) {
                errors.push(FieldError::invalid(shown, "", "needs to be unset"));
            }
        }
        if object.int("deprecatedCount").unwrap_or(0) != 0 {
            errors.push(FieldError::invalid("count", "", "needs to be unset"));
        }
        return;
    };
    if !same(object.at("series"), old.at("series")) {
        series(object);
    }
    for (field, shown) in [
        ("regarding", "involvedObject"),
        ("reason", "reason"),
        ("note", "message"),
        ("deprecatedSource", "source"),
        ("type", "type"),
        ("eventTime", "eventTime"),
        ("action", "action"),
        ("related", "related"),
        ("reportingController", "reportingController"),
        ("reportingInstance", "reportingInstance"),
    ] {
        immutable(errors, &Path::new(shown), object.at(field), old.at(field));
    }
}
