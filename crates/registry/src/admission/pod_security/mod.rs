//! What a namespace allows its pods, by its labels: a level to enforce and one to warn about. (The one to audit needs an
//! audit log, which this server does not keep.)
//!
//! - this file: which level counts for a write, and what is said
//! - `policy`: levels and versions as labels give them
//! - `checks`: what each level asks of a pod

mod checks;
mod policy;

use std::collections::BTreeMap;

use machinery::json::Value;
use machinery::{FieldError, GroupResource, Status};

use self::checks::{Violation, violations};
use self::policy::{Level, Policy, Standard};
use crate::meta;
use crate::registry::Registry;
use crate::request::{Context, Target};
use crate::view;

/// A namespace that turns stricter has at most this many of its pods looked at.
const PODS_MAX: usize = 3000;

impl Registry {
    /// Refuses a pod that its namespace does not allow, and warns about it or about a workload that would make such pods.
    pub(super) fn check_pod_security(
        &self,
        target: &Target,
        old: Option<&Value>,
        new: &Value,
        ctx: &Context,
    ) -> Result<(), Status> {
        let Some(namespace) = target.namespace.as_deref() else { return Ok(()) };
        let is_pod = target.kind.collection == "core/pods";
        let Some(template) = (if is_pod { Some(new) } else { template_of(&target.kind.collection, new) }) else {
            return Ok(());
        };
        let Some(found) = self.storage().cached("core/namespaces", None, namespace) else { return Ok(()) };
        if !found.labels().iter().any(|(name, _)| name.starts_with(policy::PREFIX)) {
            return Ok(());
        }
        let (policy, _) = Policy::of(|name| found.label(name));
        if is_pod && old.is_some_and(|old| !images_changed(old, new)) {
            return Ok(());
        }
        if is_pod {
            let found = violations(&policy.enforce, template);
            if !found.is_empty() {
                let why = format!("violates PodSecurity \"{}\": {}", policy.enforce, details(&found));
                return Err(Status::forbidden(&target.gr(), meta::name(new), why));
            }
        }
        let found = violations(&policy.warn, template);
        if !found.is_empty() {
            ctx.warnings.push(format!("would violate PodSecurity \"{}\": {}", policy.warn, details(&found)));
        }
        Ok(())
    }

    /// The labels of a namespace must mean something; pods that a stricter level would refuse are warned about.
    pub(super) fn check_security_labels(
        &self,
        target: &Target,
        old: Option<&Value>,
        new: &Value,
        ctx: &Context,
    ) -> Result<(), Status> {
        let read = |namespace: &Value| {
            let labels = namespace["metadata"]["labels"].clone();
            Policy::of(|name| labels.get(name).and_then(Value::as_str))
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
            self.warn_of_pods(target.name(), now, ctx);
        }
        Ok(())
    }

    fn warn_of_pods(&self, namespace: &str, standard: Standard, ctx: &Context) {
        let collection = self.cache().collection("core/pods");
        let snapshot = self.cache().snapshot(&collection);
        let mut pods = snapshot.scan(collection.name(), Some(namespace), None);
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

/// The pods that a workload makes.
fn template_of<'a>(collection: &str, object: &'a Value) -> Option<&'a Value> {
    let template = match collection {
        "core/podtemplates" => &object["template"],
        "core/replicationcontrollers"
        | "apps/deployments"
        | "apps/replicasets"
        | "apps/statefulsets"
        | "apps/daemonsets"
        | "batch/jobs" => &object["spec"]["template"],
        "batch/cronjobs" => &object["spec"]["jobTemplate"]["spec"]["template"],
        _ => return None,
    };
    template.is_object().then_some(template)
}

/// Only other containers and other images make a pod another one.
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
    fn workloads_have_their_pods_in_different_places() {
        let job = json!({"spec": {"jobTemplate": {"spec": {"template": {"a": 1}}}}});
        assert_eq!(template_of("batch/cronjobs", &job), Some(&json!({"a": 1})));
        assert_eq!(template_of("core/configmaps", &job), None);
        assert_eq!(template_of("apps/deployments", &json!({})), None);
    }

    #[test]
    fn a_label_is_no_new_image() {
        let pod = json!({"metadata": {}, "spec": {"containers": [{"image": "a"}]}});
        let labelled = json!({"metadata": {"labels": {}}, "spec": {"containers": [{"image": "a"}]}});
        let other = json!({"metadata": {}, "spec": {"containers": [{"image": "b"}]}});
        assert!(!images_changed(&pod, &labelled));
        assert!(images_changed(&pod, &other));
    }
}
