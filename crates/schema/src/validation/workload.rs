//! Validation of deployments, sets, revisions and disruption budgets.

use std::collections::HashSet;

use machinery::field_error::{BadValue, FieldError, Path};
use machinery::json::{Text, Value, json};
use machinery::labels::Selector;
use machinery::names;

use super::rules::{
    immutable, is_zero_bound, not_more_than_all, not_negative, number_or_percent, objections, required, same, selector,
};
use super::{Errors, pod, storage};
use crate::facts::internal;
use crate::walk::Walk as _;

const SPEC: Path<'static> = Path::new("spec");
const MISMATCH: &str = "`selector` does not match template `labels`";

pub(super) fn validate(kind: &str, object: &Value, old: Option<&Value>, errors: &mut Errors) {
    let spec = object.at("spec");
    match kind {
        "Deployment" => {
            deployment(spec, errors);
            if let Some(old) = old {
                immutable(errors, &SPEC.child("selector"), spec.at("selector"), old.at("spec.selector"));
            }
        }
        "ReplicaSet" => {
            not_negative(errors, &SPEC.child("replicas"), spec.int("replicas"));
            not_negative(errors, &SPEC.child("minReadySeconds"), spec.int("minReadySeconds"));
            selected_template(spec, "deployment", "ReplicaSet", errors);
            if let Some(old) = old {
                immutable(errors, &SPEC.child("selector"), spec.at("selector"), old.at("spec.selector"));
            }
        }
        "StatefulSet" => stateful_set(spec, old, errors),
        "DaemonSet" => daemon_set(spec, old, errors),
        "ControllerRevision" => revision(object, old, errors),
        _ => {}
    }
}

/// Checks a selector, and that it matches the labels of the template.
fn selected_template(spec: &Value, kind: &str, owner: &str, errors: &mut Errors) {
    let wanted = spec.at("selector");
    let path = SPEC.child("selector");
    if wanted.is_object() {
        selector(errors, &path, wanted);
        if is_empty_selector(wanted) {
            errors.push(FieldError::invalid(path, wanted, format!("empty selector is invalid for {kind}")));
        }
    } else {
        required(errors, &path);
    }
    match Selector::from_label_selector(wanted) {
        Err(_) => errors.push(FieldError::invalid(path, wanted, "invalid label selector")),
        Ok(wanted) => {
            let (template, path) = (spec.at("template"), SPEC.child("template"));
            matching_labels(&wanted, template, &path, errors);
            pod::template(template, &path, errors);
            always_running(template, owner, &path, errors);
        }
    }
}

fn is_empty_selector(selector: &Value) -> bool {
    selector.map("matchLabels").is_none_or(|labels| labels.is_empty()) && selector.list("matchExpressions").is_empty()
}

fn matching_labels(selector: &Selector, template: &Value, path: &Path<'_>, errors: &mut Errors) {
    let labels = template.at("metadata.labels");
    if !selector.is_everything() && !selector.matches_value(labels) {
        errors.push(FieldError::invalid(path.child("metadata.labels"), labels, MISMATCH));
    }
}

/// Checks a template whose pods are replaced when they terminate.
fn always_running(template: &Value, owner: &str, path: &Path<'_>, errors: &mut Errors) {
    let policy = template.text("spec.restartPolicy");
    if policy != "Always" {
        errors.push(FieldError::not_supported(path.child("spec.restartPolicy"), policy, ["Always"]));
    }
    if template.has("spec.activeDeadlineSeconds") {
        let why = format!("activeDeadlineSeconds in {owner} is not Supported");
        errors.push(FieldError::forbidden(path.child("spec.activeDeadlineSeconds"), why));
    }
}

fn deployment(spec: &Value, errors: &mut Errors) {
    not_negative(errors, &SPEC.child("replicas"), spec.int("replicas"));
    // A deployment's template is checked by the rules of its replica sets.
    selected_template(spec, "deployment", "ReplicaSet", errors);
    strategy(spec.at("strategy"), errors);
    not_negative(errors, &SPEC.child("minReadySeconds"), spec.int("minReadySeconds"));
    not_negative(errors, &SPEC.child("revisionHistoryLimit"), spec.int("revisionHistoryLimit"));
    if let Some(deadline) = spec.int("progressDeadlineSeconds") {
        let path = SPEC.child("progressDeadlineSeconds");
        not_negative(errors, &path, Some(deadline));
        if deadline <= spec.int("minReadySeconds").unwrap_or(0) {
            errors.push(FieldError::invalid(path, deadline, "must be greater than minReadySeconds"));
        }
    }
}

fn strategy(strategy: &Value, errors: &mut Errors) {
    let path = SPEC.child("strategy");
    let rolling = strategy.at("rollingUpdate");
    match strategy.text("type") {
        "Recreate" => {
            if rolling.is_object() {
                let why = "may not be specified when strategy `type` is 'Recreate'";
                errors.push(FieldError::forbidden(path.child("rollingUpdate"), why));
            }
        }
        "RollingUpdate" => {
            let path = path.child("rollingUpdate");
            if !rolling.is_object() {
                errors.push(FieldError::required(path, "this should be defaulted and never be nil"));
                return;
            }
            let (unavailable, surge) = (rolling.at("maxUnavailable"), rolling.at("maxSurge"));
            number_or_percent(errors, &path.child("maxUnavailable"), unavailable);
            number_or_percent(errors, &path.child("maxSurge"), surge);
            if is_zero_bound(unavailable) && is_zero_bound(surge) {
                let why = "may not be 0 when `maxSurge` is 0";
                errors.push(FieldError::invalid(path.child("maxUnavailable"), unavailable, why));
            }
            not_more_than_all(errors, &path.child("maxUnavailable"), unavailable);
        }
        _ => {
            let shown = go_strategy(strategy);
            errors.push(FieldError::not_supported(path, shown, ["Recreate", "RollingUpdate"]));
        }
    }
}

/// Formats a strategy as the reference prints it.
fn go_strategy(strategy: &Value) -> BadValue {
    internal::shown("apps.DeploymentStrategy", strategy)
}

fn stateful_set(spec: &Value, old: Option<&Value>, errors: &mut Errors) {
    let path = SPEC.child("podManagementPolicy");
    match spec.text("podManagementPolicy") {
        "" => required(errors, &path),
        "OrderedReady" | "Parallel" => {}
        other => errors.push(FieldError::invalid(path, other, "must be 'OrderedReady' or 'Parallel'")),
    }
    let (update, path) = (spec.at("updateStrategy"), SPEC.child("updateStrategy"));
    let rolling = update.at("rollingUpdate");
    match update.text("type") {
        "" => required(errors, &path),
        "OnDelete" => {
            if rolling.is_object() {
                let why = "only allowed for updateStrategy 'RollingUpdate'";
                errors.push(FieldError::invalid(path.child("rollingUpdate"), rolling, why));
            }
        }
        "RollingUpdate" => not_negative(errors, &path.child("rollingUpdate.partition"), rolling.int("partition")),
        _ => {
            errors.push(FieldError::invalid(path, go_strategy(update), "must be 'RollingUpdate' or 'OnDelete'"));
        }
    }
    for field in ["whenDeleted", "whenScaled"] {
        if let Some(policy) = spec.at("persistentVolumeClaimRetentionPolicy").at(field).as_str() {
            let path = SPEC.child("persistentVolumeClaimRetentionPolicy");
            super::rules::word(errors, &path.child(field), policy, &["Retain", "Delete"]);
        }
    }
    if old.is_none() {
        let list = SPEC.child("volumeClaimTemplates");
        for (i, claim) in spec.list("volumeClaimTemplates").iter().enumerate() {
            storage::claim_spec(claim.at("spec"), &list.index(i).child("spec"), errors);
        }
    }
    not_negative(errors, &SPEC.child("replicas"), spec.int("replicas"));
    not_negative(errors, &SPEC.child("minReadySeconds"), spec.int("minReadySeconds"));
    not_negative(errors, &SPEC.child("ordinals.start"), spec.int("ordinals.start"));
    if old.is_none() {
        super::rules::optional(errors, &SPEC.child("serviceName"), spec.text("serviceName"), names::dns1123_label);
    }
    let (wanted, path) = (spec.at("selector"), SPEC.child("selector"));
    if wanted.is_object() {
        selector(errors, &path, wanted);
        if is_empty_selector(wanted) {
            errors.push(FieldError::invalid(path, wanted, "empty selector is invalid for statefulset"));
        }
    } else {
        required(errors, &path);
    }
    match Selector::from_label_selector(wanted) {
        Err(_) => errors.push(FieldError::invalid(path, wanted, "")),
        Ok(wanted) => {
            let template = with_claims(spec);
            let path = SPEC.child("template");
            matching_labels(&wanted, &template, &path, errors);
            pod::template(&template, &path, errors);
        }
    }
    always_running(spec.at("template"), "StatefulSet", &SPEC.child("template"), errors);
    if let Some(old) = old {
        let mut kept = spec.clone();
        for field in [
            "replicas",
            "template",
            "updateStrategy",
            "minReadySeconds",
            "ordinals",
            "revisionHistoryLimit",
            "persistentVolumeClaimRetentionPolicy",
        ] {
            if let Some(kept) = kept.as_object_mut() {
                kept.insert(field.to_owned(), old.at("spec").at(field).clone());
            }
        }
        if !same(&kept, old.at("spec")) {
            let why = "updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', \
                'updateStrategy', 'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' are forbidden";
            errors.push(FieldError::forbidden(SPEC, why));
        }
    }
}

/// Returns the template with a volume for each claim, as its pods will have it.
fn with_claims(spec: &Value) -> Value {
    let mut template = spec.at("template").clone();
    let claims = spec.list("volumeClaimTemplates");
    let Some(pod) = template.get_mut("spec").and_then(Value::as_object_mut) else { return template };
    pod.shift_remove("hostname");
    pod.shift_remove("subdomain");
    if claims.is_empty() {
        return template;
    }
    let names: Vec<&str> = claims.iter().map(|claim| claim.text("metadata.name")).collect();
    let claimed: HashSet<&str> = names.iter().copied().collect();
    let mut volumes: Vec<Value> =
        names.iter().map(|name| json!({"name": name, "persistentVolumeClaim": {"claimName": name}})).collect();
    if let Some(Value::Array(own)) = pod.get("volumes") {
        volumes.extend(own.iter().filter(|volume| !claimed.contains(volume.text("name"))).cloned());
    }
    pod.insert("volumes", volumes.into());
    template
}

fn daemon_set(spec: &Value, old: Option<&Value>, errors: &mut Errors) {
    let (wanted, path) = (spec.at("selector"), SPEC.child("selector"));
    if let Some(old) = old {
        immutable(errors, &path, wanted, old.at("spec.selector"));
    }
    selector(errors, &path, wanted);
    let (template, template_path) = (spec.at("template"), SPEC.child("template"));
    if let Ok(wanted) = Selector::from_label_selector(wanted)
        && !wanted.matches_value(template.at("metadata.labels"))
    {
        let labels = template.at("metadata.labels");
        errors.push(FieldError::invalid(template_path.child("metadata.labels"), labels, MISMATCH));
    }
    if wanted.is_object() && is_empty_selector(wanted) {
        errors.push(FieldError::invalid(path, wanted, "empty selector is invalid for daemonset"));
    }
    pod::template(template, &template_path, errors);
    always_running(template, "DaemonSet", &template_path, errors);
    not_negative(errors, &SPEC.child("minReadySeconds"), spec.int("minReadySeconds"));
    let (update, path) = (spec.at("updateStrategy"), SPEC.child("updateStrategy"));
    match update.text("type") {
        "OnDelete" => {}
        "RollingUpdate" => rolling_daemons(update.at("rollingUpdate"), &path.child("rollingUpdate"), errors),
        _ => errors.push(FieldError::not_supported(path, go_strategy(update), ["RollingUpdate", "OnDelete"])),
    }
    not_negative(errors, &SPEC.child("revisionHistoryLimit"), spec.int("revisionHistoryLimit"));
}

fn rolling_daemons(rolling: &Value, path: &Path<'_>, errors: &mut Errors) {
    if !rolling.is_object() {
        return required(errors, path);
    }
    let bounds = ["maxUnavailable", "maxSurge"];
    for field in bounds {
        number_or_percent(errors, &path.child(field), rolling.at(field));
    }
    for field in bounds {
        not_more_than_all(errors, &path.child(field), rolling.at(field));
    }
    let [unavailable, surge] = bounds.map(|field| !is_zero_bound(rolling.at(field)));
    if unavailable && surge {
        let why = "may not be set when maxUnavailable is non-zero";
        errors.push(FieldError::invalid(path.child("maxSurge"), rolling.at("maxSurge"), why));
    }
    if !unavailable && !surge {
        errors.push(FieldError::required(path.child("maxUnavailable"), "cannot be 0 when maxSurge is 0"));
    }
}

fn revision(object: &Value, old: Option<&Value>, errors: &mut Errors) {
    not_negative(errors, &Path::new("revision"), object.int("revision"));
    let (data, path) = (object.at("data"), Path::new("data"));
    let why = match old {
        Some(old) => {
            if data != old.at("data") {
                errors.push(FieldError::invalid(path, data, super::rules::IMMUTABLE));
            }
            return;
        }
        None if data.is_null() => "data is mandatory",
        None if !data.is_object() => "data must be a valid JSON object",
        None => return,
    };
    errors.push(FieldError::required(path, why));
}

/// Refuses a patch of a revision's number with an error about its data, as in the reference; an update may change it.
pub(super) fn patched_revision(object: &Value, old: &Value, errors: &mut Errors) {
    let data = object.at("data");
    if data == old.at("data") && object.int("revision") != old.int("revision") {
        errors.push(FieldError::invalid(Path::new("data"), data, super::rules::IMMUTABLE));
    }
}

pub(super) fn replication_controller(object: &Value, errors: &mut Errors) {
    let spec = object.at("spec");
    not_negative(errors, &SPEC.child("minReadySeconds"), spec.int("minReadySeconds"));
    let wanted = spec.at("selector");
    if wanted.as_object().is_none_or(|wanted| wanted.is_empty()) {
        required(errors, &SPEC.child("selector"));
    }
    not_negative(errors, &SPEC.child("replicas"), spec.int("replicas"));
    let (template, path) = (spec.at("template"), SPEC.child("template"));
    if !template.is_object() {
        return required(errors, &path);
    }
    let labels = template.at("metadata.labels");
    let matches = |(key, value): (&Text, &Value)| labels.as_object().and_then(|labels| labels.get(key)) == Some(value);
    if !wanted.as_object().into_iter().flatten().all(matches) {
        errors.push(FieldError::invalid(path.child("metadata.labels"), labels, MISMATCH));
    }
    pod::template(template, &path, errors);
    always_running(template, "ReplicationController", &path, errors);
}

/// Checks the counters of a status: none is negative, none larger than the replicas.
pub(super) fn status(kind: &str, new: &Value, old: &Value, errors: &mut Errors) {
    let status = new.at("status");
    let path = Path::new("status");
    let counters: &[&str] = match kind {
        "Deployment" => &[
            "observedGeneration",
            "replicas",
            "updatedReplicas",
            "readyReplicas",
            "availableReplicas",
            "unavailableReplicas",
            "terminatingReplicas",
            "collisionCount",
        ],
        "StatefulSet" => &[
            "replicas",
            "readyReplicas",
            "currentReplicas",
            "updatedReplicas",
            "availableReplicas",
            "observedGeneration",
            "collisionCount",
        ],
        "DaemonSet" => &[
            "currentNumberScheduled",
            "numberMisscheduled",
            "desiredNumberScheduled",
            "numberReady",
            "observedGeneration",
            "updatedNumberScheduled",
            "numberAvailable",
            "numberUnavailable",
            "collisionCount",
        ],
        "ReplicaSet" | "ReplicationController" => &[
            "replicas",
            "fullyLabeledReplicas",
            "readyReplicas",
            "availableReplicas",
            "observedGeneration",
            "terminatingReplicas",
        ],
        _ => return,
    };
    for counter in counters {
        not_negative(errors, &path.child(counter), status.int(counter));
    }
    let parts: &[&str] = match kind {
        "Deployment" => &["updatedReplicas", "readyReplicas", "availableReplicas"],
        "StatefulSet" => &["readyReplicas", "currentReplicas", "updatedReplicas", "availableReplicas"],
        "ReplicaSet" | "ReplicationController" => &["fullyLabeledReplicas", "readyReplicas", "availableReplicas"],
        _ => &[],
    };
    let count = |name: &str| status.int(name).unwrap_or(0);
    for part in parts {
        if count(part) > count("replicas") {
            errors.push(FieldError::invalid(path.child(part), count(part), "cannot be greater than status.replicas"));
        }
    }
    if !parts.is_empty() && count("availableReplicas") > count("readyReplicas") {
        let why = match kind {
            "StatefulSet" => "cannot be greater than status.readyReplicas",
            _ => "cannot be greater than readyReplicas",
        };
        errors.push(FieldError::invalid(path.child("availableReplicas"), count("availableReplicas"), why));
    }
    let collisions = count("collisionCount");
    if counters.contains(&"collisionCount") && collisions < old.int("status.collisionCount").unwrap_or(0) {
        errors.push(FieldError::invalid(path.child("collisionCount"), collisions, "cannot be decremented"));
    }
}

pub(super) fn budget(object: &Value, errors: &mut Errors) {
    let spec = object.at("spec");
    if spec.has("minAvailable") && spec.has("maxUnavailable") {
        let shown = internal::shown("policy.PodDisruptionBudgetSpec", spec);
        let why = "minAvailable and maxUnavailable cannot be both set";
        errors.push(FieldError::invalid(SPEC, shown, why));
    }
    for field in ["minAvailable", "maxUnavailable"] {
        if spec.has(field) {
            number_or_percent(errors, &SPEC.child(field), spec.at(field));
            not_more_than_all(errors, &SPEC.child(field), spec.at(field));
        }
    }
    selector(errors, &SPEC.child("selector"), spec.at("selector"));
    let policy = spec.at("unhealthyPodEvictionPolicy");
    let words = ["AlwaysAllow", "IfHealthyBudget"];
    super::rules::optional_word(errors, &SPEC.child("unhealthyPodEvictionPolicy"), policy, &words);
}

pub(super) fn budget_status(object: &Value, errors: &mut Errors) {
    let path = Path::new("status");
    for field in ["disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods"] {
        not_negative(errors, &path.child(field), object.at("status").int(field));
    }
    let list = path.child("conditions");
    for (i, condition) in object.list("status.conditions").iter().enumerate() {
        let kind = condition.text("type");
        objections(errors, &list.index(i).child("type"), kind, names::qualified_name(kind));
    }
}
