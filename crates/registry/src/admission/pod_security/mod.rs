//! PodSecurity: the labels of a namespace set a level that its pods must keep to, and one to warn about. (The level to audit
//! needs an audit log, which this server does not keep.)
//!
//! - this file: the level that applies to a write, and its messages
//! - `policy`: levels and versions as labels give them
//! - `checks`: what each level requires of a pod

mod checks;
mod policy;

use std::collections::BTreeMap;

use machinery::json::Value;
use machinery::{FieldError, GroupResource, Status};

use self::checks::{Violation, violations};
use self::policy::{Level, Policy, Standard};
use super::plugin::{Attributes, Decision, Operation, Plugin, States};
use crate::collections::{NAMESPACES, PODS};
use crate::meta;
use crate::read::view;
use crate::request::Context;
use crate::storage::Storage;

/// Most pods that are checked when a namespace becomes stricter.
const PODS_MAX: usize = 3000;

pub(super) struct PodSecurity {
    storage: Storage,
}

impl Plugin for PodSecurity {
    fn name(&self) -> &'static str {
        "PodSecurity"
    }

    fn concerns(&self, attributes: &Attributes<'_>) -> bool {
        if !matches!(attributes.operation, Operation::Create | Operation::Update) {
            return false;
        }
        match attributes.subresource() {
            None => true,
            Some("resize" | "ephemeralcontainers") => attributes.target.kind.collection == PODS,
            Some(_) => false,
        }
    }

    fn validate<'a>(&'a self, attributes: &'a Attributes<'a>, states: States<'a>) -> Decision<'a> {
        let Some(new) = states.new else { return Decision::ADMIT };
        Decision::Now(if attributes.target.kind.collection == NAMESPACES {
            self.check_labels(attributes, states.old, new)
        } else {
            self.check_pods(attributes, states.old, new)
        })
    }
}

impl PodSecurity {
    pub(super) fn new(storage: Storage) -> Self {
        PodSecurity { storage }
    }

    /// Refuses a pod that its namespace does not allow, and warns about it or about a workload that would create such pods.
    fn check_pods(&self, attributes: &Attributes<'_>, old: Option<&Value>, new: &Value) -> Result<(), Status> {
        let Some(namespace) = attributes.target.namespace.as_deref() else { return Ok(()) };
        let is_pod = attributes.target.kind.collection == PODS;
        let Some(template) = attributes.behaviour.pod_template(new) else { return Ok(()) };
        let Some(found) = self.storage.cached(NAMESPACES, None, namespace) else { return Ok(()) };
        if !found.labels().iter().any(|(name, _)| name.starts_with(policy::PREFIX)) {
            return Ok(());
        }
        let (policy, _) = Policy::from_labels(|name| found.label(name));
        if is_pod && old.is_some_and(|old| !images_changed(old, new)) {
            return Ok(());
        }
        if is_pod {
            let found = violations(&policy.enforce, template);
            if !found.is_empty() {
                let why = format!("violates PodSecurity \"{}\": {}", policy.enforce, details(&found));
                return Err(attributes.forbidden(new, why));
            }
        }
        let found = violations(&policy.warn, template);
        if !found.is_empty() {
            let warnings = &attributes.ctx.warnings;
            warnings.push(format!("would violate PodSecurity \"{}\": {}", policy.warn, details(&found)));
        }
        Ok(())
    }

    /// Refuses labels of a namespace that cannot be read, and warns of pods that a stricter level would refuse.
    fn check_labels(&self, attributes: &Attributes<'_>, old: Option<&Value>, new: &Value) -> Result<(), Status> {
        let read = |namespace: &Value| {
            let labels = namespace["metadata"]["labels"].clone();
            Policy::from_labels(|name| labels.get(name).and_then(Value::as_str))
        };
        let (policy, errors) = read(new);
        let before = old.map(read);
        let known = before.as_ref().is_some_and(|(_, before)| *before == errors);
        if !errors.is_empty() && !known {
            let errors: Vec<FieldError> = errors
                .into_iter()
                .map(|(label, value, why)| FieldError::invalid(format!("metadata.labels[{label}]"), value, why))
                .collect();
            return Err(Status::invalid(&GroupResource::new("", "Namespace"), meta::name(new), &errors));
        }
        let Some((before, _)) = before else { return Ok(()) };
        let (now, then) = (policy.enforce, before.enforce);
        let stricter =
            now.level != Level::Privileged && now != then && (now.version != then.version || now.level > then.level);
        if stricter {
            self.warn_of_pods(attributes.target.name(), now, attributes.ctx);
        }
        Ok(())
    }

    fn warn_of_pods(&self, namespace: &str, standard: Standard, ctx: &Context) {
        let cache = self.storage.cache();
        let snapshot = cache.snapshot(&cache.collection(PODS));
        let mut pods = snapshot.scan(PODS, Some(namespace), None);
        let mut by_reasons: BTreeMap<String, (String, usize)> = BTreeMap::new();
        for pod in pods.by_ref().take(PODS_MAX).filter_map(|item| view::parse(item).ok()) {
            let found = violations(&standard, &pod);
            if !found.is_empty() {
                let reasons: Vec<&str> = found.iter().map(|violation| violation.reason).collect();
                let first = by_reasons.entry(reasons.join(", ")).or_insert_with(|| (meta::name(&pod).to_owned(), 0));
                first.1 += 1;
            }
        }
        let left = pods.count();
        if left > 0 {
            ctx.warnings.push(format!(
                "new PodSecurity enforce level only checked against the first {PODS_MAX} of {} existing pods",
                PODS_MAX + left
            ));
        }
        if by_reasons.is_empty() {
            return;
        }
        ctx.warnings.push(format!(
            "existing pods in namespace \"{namespace}\" violate the new PodSecurity enforce level \"{standard}\""
        ));
        let mut texts: Vec<String> = by_reasons
            .into_iter()
            .map(|(reasons, (name, count))| match count {
                1 => format!("{name}: {reasons}"),
                2 => format!("{name} (and 1 other pod): {reasons}"),
                _ => format!("{name} (and {} other pods): {reasons}", count - 1),
            })
            .collect();
        texts.sort();
        texts.into_iter().for_each(|text| ctx.warnings.push(text));
    }
}

/// Only other containers and other images can violate a level that the pod kept to before.
fn images_changed(old: &Value, new: &Value) -> bool {
    ["containers", "initContainers", "ephemeralContainers"].into_iter().any(|list| {
        let images = |pod: &Value| -> Vec<Value> {
            pod["spec"][list].as_array().into_iter().flatten().map(|container| container["image"].clone()).collect()
        };
        images(old) != images(new)
    })
}

fn details(found: &[Violation]) -> String {
    let texts: Vec<String> = found
        .iter()
        .map(|violation| {
            if violation.detail.is_empty() {
                violation.reason.to_owned()
            } else {
                format!("{} ({})", violation.reason, violation.detail)
            }
        })
        .collect();
    texts.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use machinery::json::json;

    #[test]
    fn a_label_is_no_new_image() {
        let pod = json!({"metadata": {}, "spec": {"containers": [{"image": "a"}]}});
        let labelled = json!({"metadata": {"labels": {}}, "spec": {"containers": [{"image": "a"}]}});
        let other = json!({"metadata": {}, "spec": {"containers": [{"image": "b"}]}});
        assert!(!images_changed(&pod, &labelled));
        assert!(images_changed(&pod, &other));
    }
}
