//! Counts of PodSecurity, under the names of the reference.

use std::borrow::Cow;

use prometheus_client::encoding::{EncodeLabel as _, EncodeLabelSet, LabelSetEncoder};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry as Metrics;

use super::policy::{Level, Standard, Version};
use crate::admission::plugin::{Attributes, Operation};
use crate::collections::{NAMESPACES, PODS};

/// The minor version of Kubernetes whose checks are the latest.
const LATEST_MINOR: u32 = 36;

/// What a standard is evaluated for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Mode {
    Enforce,
    Audit,
    Warn,
}

/// Labels that all counts have.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Subject {
    operation: &'static str,
    resource: &'static str,
    /// One of the two that are evaluated, or empty.
    subresource: &'static str,
}

impl Subject {
    fn of(attributes: &Attributes<'_>) -> Self {
        let operation = if attributes.operation == Operation::Create { "create" } else { "update" };
        let resource = match attributes.target.kind.collection.as_str() {
            PODS => "pod",
            NAMESPACES => "namespace",
            _ => "controller",
        };
        let subresource = match attributes.subresource() {
            Some("resize") => "resize",
            Some("ephemeralcontainers") => "ephemeralcontainers",
            _ => "",
        };
        Subject { operation, resource, subresource }
    }
}

impl EncodeLabelSet for Subject {
    fn encode(&self, encoder: &mut LabelSetEncoder<'_>) -> Result<(), std::fmt::Error> {
        ("request_operation", self.operation).encode(encoder.encode_label())?;
        ("resource", self.resource).encode(encoder.encode_label())?;
        ("subresource", self.subresource).encode(encoder.encode_label())
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Evaluation {
    decision: &'static str,
    level: &'static str,
    version: Cow<'static, str>,
    mode: &'static str,
    subject: Subject,
}

impl EncodeLabelSet for Evaluation {
    fn encode(&self, encoder: &mut LabelSetEncoder<'_>) -> Result<(), std::fmt::Error> {
        ("decision", self.decision).encode(encoder.encode_label())?;
        ("policy_level", self.level).encode(encoder.encode_label())?;
        ("policy_version", &*self.version).encode(encoder.encode_label())?;
        ("mode", self.mode).encode(encoder.encode_label())?;
        self.subject.encode(encoder)
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Failure {
    subject: Subject,
}

impl EncodeLabelSet for Failure {
    fn encode(&self, encoder: &mut LabelSetEncoder<'_>) -> Result<(), std::fmt::Error> {
        // Labels that cannot be read are the only failure: the strictest level is used then.
        ("fatal", "false").encode(encoder.encode_label())?;
        self.subject.encode(encoder)
    }
}

/// Counts of evaluations, exemptions and errors.
#[derive(Clone, Debug, Default)]
pub struct PodSecurityMetrics {
    evaluations: Family<Evaluation, Counter>,
    exemptions: Family<Subject, Counter>,
    errors: Family<Failure, Counter>,
}

impl PodSecurityMetrics {
    pub fn register(&self, metrics: &mut Metrics) {
        metrics.register("pod_security_evaluations", "Evaluations of pods and templates", self.evaluations.clone());
        metrics.register("pod_security_exemptions", "Requests that are exempt", self.exemptions.clone());
        metrics.register("pod_security_errors", "Policies that could not be read", self.errors.clone());
    }

    pub(super) fn evaluated(&self, attributes: &Attributes<'_>, mode: Mode, standard: &Standard, is_allowed: bool) {
        let version = match standard.version {
            _ if standard.level == Level::Privileged => Cow::Borrowed("latest"),
            Version::Latest => Cow::Borrowed("latest"),
            Version::Minor(minor) if minor > LATEST_MINOR => Cow::Borrowed("future"),
            Version::Minor(minor) => Cow::Owned(format!("v1.{minor}")),
        };
        let labels = Evaluation {
            decision: if is_allowed { "allow" } else { "deny" },
            level: match standard.level {
                Level::Privileged => "privileged",
                Level::Baseline => "baseline",
                Level::Restricted => "restricted",
            },
            version,
            mode: match mode {
                Mode::Enforce => "enforce",
                Mode::Audit => "audit",
                Mode::Warn => "warn",
            },
            subject: Subject::of(attributes),
        };
        self.evaluations.get_or_create(&labels).inc();
    }

    pub(super) fn exempt(&self, attributes: &Attributes<'_>) {
        self.exemptions.get_or_create(&Subject::of(attributes)).inc();
    }

    pub(super) fn failed(&self, attributes: &Attributes<'_>) {
        self.errors.get_or_create(&Failure { subject: Subject::of(attributes) }).inc();
    }
}
