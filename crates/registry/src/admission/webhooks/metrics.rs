//! Counters of webhook calls and times of admission, under the names of the reference.

use std::time::Duration;

use parking_lot::Mutex;
use prometheus_client::encoding::{EncodeLabelSet, LabelSetEncoder};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry as Metrics;

use super::super::plugin::Operation;
use super::super::request_value::operation_name;
use super::super::step_metrics::StepMetrics;
use super::call::CallError;
use super::configurations::Hook;

/// Most different names of webhooks that are counted apart: they come from objects that users write.
const NAMES_MAX: usize = 200;
/// The name under which the others are counted.
const OTHER: &str = "other";

const BUCKETS: [f64; 8] = [0.005, 0.025, 0.1, 0.5, 1.0, 2.5, 10.0, 25.0];
const CONDITION_BUCKETS: [f64; 7] = [0.001, 0.005, 0.01, 0.025, 0.1, 0.2, 0.25];

/// The labels of a series, as pairs in the order of the reference.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Labels(Vec<(&'static str, String)>);

impl EncodeLabelSet for Labels {
    fn encode(&self, encoder: &mut LabelSetEncoder<'_>) -> Result<(), std::fmt::Error> {
        use prometheus_client::encoding::EncodeLabel as _;
        for (name, value) in &self.0 {
            (*name, value.as_str()).encode(encoder.encode_label())?;
        }
        Ok(())
    }
}

/// The counters of all webhook calls of a registry.
#[derive(Clone, Debug)]
pub struct WebhookMetrics {
    durations: Family<Labels, Histogram, fn() -> Histogram>,
    rejections: Family<Labels, Counter>,
    requests: Family<Labels, Counter>,
    failed_open: Family<Labels, Counter>,
    condition_errors: Family<Labels, Counter>,
    condition_exclusions: Family<Labels, Counter>,
    condition_durations: Family<Labels, Histogram, fn() -> Histogram>,
    steps: StepMetrics,
    names: std::sync::Arc<Mutex<Vec<String>>>,
}

impl Default for WebhookMetrics {
    fn default() -> Self {
        WebhookMetrics {
            durations: Family::new_with_constructor(|| Histogram::new(BUCKETS)),
            rejections: Family::default(),
            requests: Family::default(),
            failed_open: Family::default(),
            condition_errors: Family::default(),
            condition_exclusions: Family::default(),
            condition_durations: Family::new_with_constructor(|| Histogram::new(CONDITION_BUCKETS)),
            steps: StepMetrics::default(),
            names: std::sync::Arc::default(),
        }
    }
}

impl WebhookMetrics {
    /// Registers the counters under their names.
    pub fn register(&self, metrics: &mut Metrics) {
        let name = |rest: &str| format!("apiserver_admission_{rest}");
        metrics.register(name("webhook_admission_duration_seconds"), "Time of webhook calls", self.durations.clone());
        metrics.register(name("webhook_rejection_count"), "Requests that webhooks refused", self.rejections.clone());
        metrics.register(name("webhook_request"), "Calls of webhooks", self.requests.clone());
        metrics.register(name("webhook_fail_open_count"), "Failed calls that were ignored", self.failed_open.clone());
        let errors = name("match_condition_evaluation_errors");
        metrics.register(errors, "Match conditions that failed", self.condition_errors.clone());
        let exclusions = name("match_condition_exclusions");
        metrics.register(exclusions, "Requests that match conditions excluded", self.condition_exclusions.clone());
        let durations = name("match_condition_evaluation_seconds");
        metrics.register(durations, "Time of match conditions", self.condition_durations.clone());
        self.steps.register(metrics);
    }

    /// The times of phases and plugins.
    pub(crate) fn steps(&self) -> &StepMetrics {
        &self.steps
    }

    /// The name of a webhook as a label: the first names that are seen, then all others as one.
    fn name(&self, hook: &Hook) -> String {
        let mut names = self.names.lock();
        if names.contains(&hook.name) {
            return hook.name.clone();
        }
        if names.len() >= NAMES_MAX {
            return OTHER.to_owned();
        }
        names.push(hook.name.clone());
        hook.name.clone()
    }

    pub(super) fn observe(
        &self,
        hook: &Hook,
        kind: &'static str,
        operation: Operation,
        took: Duration,
        error: Option<&CallError>,
    ) {
        let (name, operation) = (self.name(hook), operation_name(operation).to_owned());
        let (code, rejection) = match error {
            None => (200, None),
            Some(CallError::Failed { code, .. }) => (*code, (!hook.ignores_failure).then_some("calling_webhook_error")),
            Some(CallError::Skipped(_)) => (503, None),
            Some(CallError::Refused(status)) => (status.code, Some("no_error")),
            Some(CallError::Fatal(_)) => (0, Some("apiserver_internal_error")),
        };
        let rejected = rejection.is_some().to_string();
        let named = |more: Vec<(&'static str, String)>| {
            let mut labels = vec![("name", name.clone()), ("operation", operation.clone())];
            labels.extend(more);
            labels.push(("type", kind.to_owned()));
            labels.sort_unstable();
            Labels(labels)
        };
        let took = took.as_secs_f64();
        self.durations.get_or_create(&named(vec![("rejected", rejected.clone())])).observe(took);
        let call = named(vec![("code", code.to_string()), ("rejected", rejected)]);
        self.requests.get_or_create(&call).inc();
        if let Some(error_type) = rejection {
            let labels = vec![("error_type", error_type.to_owned()), ("rejection_code", code.to_string())];
            self.rejections.get_or_create(&named(labels)).inc();
        }
    }

    pub(super) fn failed_open(&self, hook: &Hook, kind: &'static str) {
        let labels = Labels(vec![("name", self.name(hook)), ("type", kind.to_owned())]);
        self.failed_open.get_or_create(&labels).inc();
    }

    pub(super) fn condition(&self, hook: &Hook, kind: &'static str, operation: Operation, failed: bool) {
        let family = if failed { &self.condition_errors } else { &self.condition_exclusions };
        family.get_or_create(&self.condition_labels(hook, kind, operation)).inc();
    }

    /// Counts the evaluation of match conditions, whatever they decide.
    pub(super) fn conditions_evaluated(&self, hook: &Hook, kind: &'static str, operation: Operation, took: Duration) {
        let labels = self.condition_labels(hook, kind, operation);
        self.condition_durations.get_or_create(&labels).observe(took.as_secs_f64());
    }

    fn condition_labels(&self, hook: &Hook, kind: &'static str, operation: Operation) -> Labels {
        Labels(vec![
            ("kind", "webhook".to_owned()),
            ("name", self.name(hook)),
            ("operation", operation_name(operation).to_owned()),
            ("type", kind.to_owned()),
        ])
    }
}

#[cfg(test)]
mod tests {
    use machinery::Status;
    use machinery::json::json;

    use super::*;

    fn hook(name: &str, policy: &str) -> Hook {
        Hook::read("c", name, 0, &json!({"failurePolicy": policy})).unwrap()
    }

    fn text(metrics: &WebhookMetrics) -> String {
        let mut registry = Metrics::default();
        metrics.register(&mut registry);
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        text
    }

    #[test]
    fn wh_55_ad_39_calls_are_counted_by_their_outcome() {
        let metrics = WebhookMetrics::default();
        let (fail, ignore) = (hook("a.example.com", "Fail"), hook("b.example.com", "Ignore"));
        let took = Duration::from_millis(7);
        let failed = || CallError::Failed { why: "gone".to_owned(), code: 503 };
        metrics.observe(&fail, "admit", Operation::Create, took, None);
        metrics.observe(&fail, "validating", Operation::Delete, took, Some(&failed()));
        metrics.observe(&ignore, "validating", Operation::Create, took, Some(&failed()));
        metrics.failed_open(&ignore, "validating");
        let refused = CallError::Refused(Status::bad_request("no"));
        metrics.observe(&fail, "validating", Operation::Create, took, Some(&refused));
        metrics.condition(&fail, "admit", Operation::Create, false);
        metrics.condition(&fail, "admit", Operation::Create, true);
        metrics.conditions_evaluated(&fail, "admit", Operation::Create, took);
        let text = text(&metrics);
        for line in [
            r#"apiserver_admission_webhook_request_total{code="200",name="a.example.com",operation="CREATE",rejected="false",type="admit"} 1"#,
            r#"apiserver_admission_webhook_request_total{code="503",name="b.example.com",operation="CREATE",rejected="false",type="validating"} 1"#,
            r#"apiserver_admission_webhook_rejection_count_total{error_type="calling_webhook_error",name="a.example.com",operation="DELETE",rejection_code="503",type="validating"} 1"#,
            r#"apiserver_admission_webhook_rejection_count_total{error_type="no_error",name="a.example.com",operation="CREATE",rejection_code="400",type="validating"} 1"#,
            r#"apiserver_admission_webhook_fail_open_count_total{name="b.example.com",type="validating"} 1"#,
            r#"apiserver_admission_match_condition_exclusions_total{kind="webhook",name="a.example.com",operation="CREATE",type="admit"} 1"#,
            r#"apiserver_admission_match_condition_evaluation_errors_total{kind="webhook",name="a.example.com",operation="CREATE",type="admit"} 1"#,
            r#"apiserver_admission_match_condition_evaluation_seconds_count{kind="webhook",name="a.example.com",operation="CREATE",type="admit"} 1"#,
            r#"apiserver_admission_webhook_admission_duration_seconds_count{name="a.example.com",operation="CREATE",rejected="false",type="admit"} 1"#,
        ] {
            assert!(text.contains(line), "{line}\n{text}");
        }
    }

    #[test]
    fn the_number_of_names_is_bounded() {
        let metrics = WebhookMetrics::default();
        for number in 0..NAMES_MAX + 5 {
            metrics.failed_open(&hook(&format!("h{number}.example.com"), "Ignore"), "admit");
        }
        let text = text(&metrics);
        assert!(text.contains(r#"{name="other",type="admit"} 5"#), "{text}");
    }
}
