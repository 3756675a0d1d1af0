//! PodSecurity: the labels of a namespace set a level that its pods must keep to, one to warn about, and one for the audit log.
//!
//! - this file: the level that applies to a write, its messages and annotations
//! - `existing`: pods that a stricter level would refuse
//! - `policy`: levels and versions as labels give them
//! - `checks`: what each level requires of a pod
//! - [`configuration`]: levels of namespaces without labels, and exemptions
//! - [`metrics`]: counts of all that

mod checks;
pub mod configuration;
mod existing;
pub mod metrics;
mod policy;

use machinery::go_text::quote;
use machinery::json::Value;
use machinery::{FieldError, GroupResource, Status};

use self::checks::{Violation, violations};
use self::configuration::PodSecurityConfiguration;
use self::metrics::{Mode, PodSecurityMetrics};
use self::policy::{LabelError, Level, Policy};
use super::plugin::{Attributes, Decision, Operation, Plugin, States};
use crate::audit::Annotations;
use crate::collections::{NAMESPACES, PODS};
use crate::meta;
use crate::storage::Storage;

pub(super) struct PodSecurity {
    storage: Storage,
    configuration: PodSecurityConfiguration,
    metrics: PodSecurityMetrics,
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
    pub(super) fn new(storage: Storage, configuration: PodSecurityConfiguration, metrics: PodSecurityMetrics) -> Self {
        PodSecurity { storage, configuration, metrics }
    }

    /// Refuses a pod that its namespace does not allow, and warns about it or about a workload that would create such pods.
    fn check_pods(&self, attributes: &Attributes<'_>, old: Option<&Value>, new: &Value) -> Result<(), Status> {
        let Some(namespace) = attributes.target.namespace.as_deref() else { return Ok(()) };
        let is_pod = attributes.target.kind.collection == PODS;
        let Some(template) = attributes.behaviour.pod_template(new) else { return Ok(()) };
        let annotations = &attributes.ctx.annotations;
        if let Some(exemption) = self.configuration.exemption(namespace, &attributes.ctx.user.name) {
            annotations.set(EXEMPT, exemption);
            self.metrics.exempt(attributes);
            return Ok(());
        }
        let Some(found) = self.storage.cached_readable(NAMESPACES, None, namespace)? else { return Ok(()) };
        let is_labelled = found.labels().iter().any(|(name, _)| name.starts_with(policy::PREFIX));
        let defaults = &self.configuration.defaults;
        let (policy, errors) =
            if is_labelled { Policy::from_labels(|name| found.label(name), defaults) } else { (*defaults, Vec::new()) };
        let is_open = errors.is_empty() && policy.is_open();
        if is_open {
            if is_pod && annotations.are_kept() {
                annotations.set(ENFORCED, policy.enforce.to_string());
            }
            if is_pod {
                self.metrics.evaluated(attributes, Mode::Enforce, &policy.enforce, true);
            }
            return Ok(());
        }
        if is_pod && old.is_some_and(|old| !images_changed(old, new)) {
            return Ok(());
        }
        let class = template["spec"]["runtimeClassName"].as_str().unwrap_or_default();
        if self.configuration.is_exempt_class(class) {
            annotations.set(EXEMPT, "runtimeClass");
            self.metrics.exempt(attributes);
            return Ok(());
        }
        if !errors.is_empty() {
            self.metrics.failed(attributes);
        }
        if note_audit(annotations, &policy, &errors, template) {
            self.metrics.evaluated(attributes, Mode::Audit, &policy.audit, false);
        }
        self.evaluate(attributes, &policy, new, template)
    }

    /// Refuses a pod that violates the level to enforce, else warns of what violates the level to warn about.
    fn evaluate(
        &self,
        attributes: &Attributes<'_>,
        policy: &Policy,
        object: &Value,
        template: &Value,
    ) -> Result<(), Status> {
        if attributes.target.kind.collection == PODS {
            if attributes.ctx.annotations.are_kept() {
                attributes.ctx.annotations.set(ENFORCED, policy.enforce.to_string());
            }
            let found = violations(&policy.enforce, template);
            self.metrics.evaluated(attributes, Mode::Enforce, &policy.enforce, found.is_empty());
            if !found.is_empty() {
                let why = format!("violates PodSecurity \"{}\": {}", policy.enforce, details(&found));
                return Err(attributes.forbidden(object, why));
            }
        }
        let found = violations(&policy.warn, template);
        if !found.is_empty() {
            self.metrics.evaluated(attributes, Mode::Warn, &policy.warn, false);
            let warnings = &attributes.ctx.warnings;
            warnings.push(format!("would violate PodSecurity \"{}\": {}", policy.warn, details(&found)));
        }
        Ok(())
    }

    /// Refuses labels of a namespace that cannot be read, and warns of pods that a stricter level would refuse.
    fn check_labels(&self, attributes: &Attributes<'_>, old: Option<&Value>, new: &Value) -> Result<(), Status> {
        let read = |namespace: &Value| {
            let labels = namespace["metadata"]["labels"].clone();
            Policy::from_labels(|name| labels.get(name).and_then(Value::as_str), &self.configuration.defaults)
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
        let (now, name) = (policy.enforce, attributes.name_shown(new));
        if let Some((before, _)) = before {
            let then = before.enforce;
            let stricter = now.level != Level::Privileged
                && now != then
                && (now.version != then.version || now.level > then.level);
            if !stricter {
                return Ok(());
            }
            if !self.configuration.is_exempt_namespace(name) {
                let class_is_exempt = |class: &str| self.configuration.is_exempt_class(class);
                existing::warn(&self.storage, name, now, &attributes.ctx.warnings, class_is_exempt);
                return Ok(());
            }
        }
        if self.configuration.is_exempt_namespace(name) {
            self.warn_of_exemption(attributes, new, &policy);
        }
        Ok(())
    }

    /// Warns that the labels of an exempt namespace have no effect.
    fn warn_of_exemption(&self, attributes: &Attributes<'_>, namespace: &Value, policy: &Policy) {
        if policy.is_open() || policy.is_equivalent(&self.configuration.defaults) {
            return;
        }
        let labels = &namespace["metadata"]["labels"];
        let modes = [("enforce", policy.enforce), ("audit", policy.audit), ("warn", policy.warn)];
        let stated = modes.into_iter().filter(|(mode, standard)| {
            let has = |label: String| labels.get(label.as_str()).is_some();
            let is_set = has(format!("{}{mode}", policy::PREFIX)) || has(format!("{}{mode}-version", policy::PREFIX));
            standard.level != Level::Privileged && is_set
        });
        let stated: Vec<String> = stated.map(|(mode, standard)| format!("{mode}={standard}")).collect();
        attributes.ctx.warnings.push(format!(
            "namespace {} is exempt from Pod Security, and the policy ({}) will be ignored",
            quote(meta::name(namespace)),
            stated.join(", ")
        ));
    }
}

/// Notes what violates the level to audit, and labels that cannot be read. Returns whether anything violates it.
fn note_audit(annotations: &Annotations, policy: &Policy, errors: &[LabelError], template: &Value) -> bool {
    if !errors.is_empty() && annotations.are_kept() {
        annotations.set(ERROR, format!("Failed to parse policy: {}", aggregate(errors)));
    }
    let found = violations(&policy.audit, template);
    if !found.is_empty() && annotations.are_kept() {
        let text = format!("would violate PodSecurity \"{}\": {}", policy.audit, details(&found));
        annotations.set(AUDITED, text);
    }
    !found.is_empty()
}

const ENFORCED: &str = "pod-security.kubernetes.io/enforce-policy";
const AUDITED: &str = "pod-security.kubernetes.io/audit-violations";
const EXEMPT: &str = "pod-security.kubernetes.io/exempt";
const ERROR: &str = "pod-security.kubernetes.io/error";

/// Errors of labels as one text.
fn aggregate(errors: &[LabelError]) -> String {
    let texts: Vec<String> = errors
        .iter()
        .map(|(label, value, why)| {
            FieldError::invalid(format!("metadata.labels[{label}]"), value.clone(), why.clone()).to_string()
        })
        .collect();
    if let [one] = texts.as_slice() { one.clone() } else { format!("[{}]", texts.join(", ")) }
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
    fn aud_21_ps_1_3_the_level_to_audit_is_noted() {
        let pod = json!({"metadata": {}, "spec": {"hostPID": true, "containers": [{"name": "c", "image": "a"}]}});
        let (policy, errors) = Policy::from_labels(
            |label| match label.strip_prefix(policy::PREFIX) {
                Some("audit") => Some("baseline"),
                Some("warn") => Some("strange"),
                _ => None,
            },
            &Policy::default(),
        );
        let annotations = Annotations::recording();
        note_audit(&annotations, &policy, &errors, &pod);
        let noted = annotations.get();
        assert_eq!(
            noted["pod-security.kubernetes.io/audit-violations"],
            "would violate PodSecurity \"baseline:latest\": host namespaces (hostPID=true)"
        );
        assert_eq!(
            noted["pod-security.kubernetes.io/error"],
            "Failed to parse policy: metadata.labels[pod-security.kubernetes.io/warn]: Invalid value: \"strange\": must be \
             one of privileged, baseline, restricted"
        );
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
