//! Counters of policies, under the names of the reference.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry as Metrics;

/// Most pairs of a policy and a binding that are counted apart: they come from objects that users write.
const PAIRS_MAX: usize = 200;
/// The name under which the others are counted.
const OTHER: &str = "other";

const BUCKETS: [f64; 5] = [0.000_000_5, 0.001, 0.01, 0.1, 1.0];

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Validated {
    policy: String,
    policy_binding: String,
    error_type: &'static str,
    enforcement_action: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Mutated {
    policy: String,
    policy_binding: String,
    error_type: &'static str,
}

/// The counters of all policies of a registry. Rules that are met are not counted, as in the reference.
#[derive(Clone, Debug)]
pub struct PolicyMetrics {
    validated: Family<Validated, Counter>,
    validation_durations: Family<Validated, Histogram, fn() -> Histogram>,
    mutated: Family<Mutated, Counter>,
    mutation_durations: Family<Mutated, Histogram, fn() -> Histogram>,
    pairs: Arc<Mutex<Vec<(String, String)>>>,
}

impl Default for PolicyMetrics {
    fn default() -> Self {
        PolicyMetrics {
            validated: Family::default(),
            validation_durations: Family::new_with_constructor(|| Histogram::new(BUCKETS)),
            mutated: Family::default(),
            mutation_durations: Family::new_with_constructor(|| Histogram::new(BUCKETS)),
            pairs: Arc::default(),
        }
    }
}

impl PolicyMetrics {
    /// Registers the counters under their names.
    pub fn register(&self, metrics: &mut Metrics) {
        let name = |kind: &str, rest: &str| format!("apiserver_{kind}_admission_policy_check{rest}");
        metrics.register(name("validating", ""), "Validations that were not met", self.validated.clone());
        let durations = self.validation_durations.clone();
        metrics.register(name("validating", "_duration_seconds"), "Time of such validations", durations);
        metrics.register(name("mutating", ""), "Mutations", self.mutated.clone());
        let durations = self.mutation_durations.clone();
        metrics.register(name("mutating", "_duration_seconds"), "Time of mutations", durations);
    }

    /// Policy and binding as labels: the first pairs that are seen, then all others as one.
    fn names(&self, policy: &str, binding: &str) -> (String, String) {
        let mut pairs = self.pairs.lock();
        let is_known = pairs.iter().any(|(known, of)| known == policy && of == binding);
        if !is_known && pairs.len() >= PAIRS_MAX {
            return (OTHER.to_owned(), OTHER.to_owned());
        }
        let pair = (policy.to_owned(), binding.to_owned());
        if !is_known {
            pairs.push(pair.clone());
        }
        pair
    }

    /// Counts a validation that was not met, and what its binding does about it.
    pub(super) fn validation(
        &self,
        (policy, binding): (&str, &str),
        error_type: &'static str,
        action: &'static str,
        took: Duration,
    ) {
        let (policy, policy_binding) = self.names(policy, binding);
        let labels = Validated { policy, policy_binding, error_type, enforcement_action: action };
        self.validated.get_or_create(&labels).inc();
        self.validation_durations.get_or_create(&labels).observe(took.as_secs_f64());
    }

    /// Counts a mutation.
    pub(super) fn mutation(&self, (policy, binding): (&str, &str), error_type: &'static str, took: Duration) {
        let (policy, policy_binding) = self.names(policy, binding);
        let labels = Mutated { policy, policy_binding, error_type };
        self.mutated.get_or_create(&labels).inc();
        self.mutation_durations.get_or_create(&labels).observe(took.as_secs_f64());
    }
}

/// The type of an error in metrics, by its text.
pub(super) fn error_type(why: Option<&str>) -> &'static str {
    match why {
        None => "no_error",
        Some(why) if why.starts_with("compilation error: ") => "compile_error",
        Some(cel::policy::OUT_OF_BUDGET) => "out_of_budget",
        Some(_) => "invalid_error",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(metrics: &PolicyMetrics) -> String {
        let mut registry = Metrics::default();
        metrics.register(&mut registry);
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        text
    }

    #[test]
    fn vap_31_map_14_policies_are_counted_under_the_names_of_the_reference() {
        let metrics = PolicyMetrics::default();
        metrics.validation(("p", "b"), error_type(None), "deny", Duration::ZERO);
        metrics.validation(("p", "b"), error_type(Some("expression 'x' resulted in error: y")), "warn", Duration::ZERO);
        metrics.mutation(("m", "b"), error_type(Some(cel::policy::OUT_OF_BUDGET)), Duration::ZERO);
        let text = text(&metrics);
        for line in [
            "apiserver_validating_admission_policy_check_total{policy=\"p\",policy_binding=\"b\",error_type=\"no_error\",enforcement_action=\"deny\"} 1",
            "apiserver_validating_admission_policy_check_total{policy=\"p\",policy_binding=\"b\",error_type=\"invalid_error\",enforcement_action=\"warn\"} 1",
            "apiserver_mutating_admission_policy_check_total{policy=\"m\",policy_binding=\"b\",error_type=\"out_of_budget\"} 1",
        ] {
            assert!(text.contains(line), "{line}\n{text}");
        }
        assert!(text.contains("apiserver_validating_admission_policy_check_duration_seconds_count{"));
    }

    #[test]
    fn vap_31_the_number_of_series_is_bounded() {
        let metrics = PolicyMetrics::default();
        for number in 0..1_000 {
            metrics.mutation((&number.to_string(), "b"), "no_error", Duration::ZERO);
        }
        assert_eq!(text(&metrics).matches("apiserver_mutating_admission_policy_check_total{").count(), PAIRS_MAX + 1);
    }
}
