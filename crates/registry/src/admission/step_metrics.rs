//! Times of admission by phase and by plugin, under the names of the reference.
//!
//! Every write is counted here, so a series is looked up once and then found by its place.

use std::sync::OnceLock;
use std::time::Duration;

use prometheus_client::encoding::{EncodeLabel as _, EncodeLabelSet, LabelSetEncoder};
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry as Metrics;

use super::plugin::Operation;
use super::request_value::operation_name;
use super::trace::Phase;

const BUCKETS: [f64; 6] = [0.005, 0.025, 0.1, 0.5, 1.0, 2.5];

/// Two phases, four operations, refused or not.
const SERIES: usize = 16;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Labels {
    /// None for the phase as a whole.
    plugin: Option<&'static str>,
    operation: &'static str,
    rejected: &'static str,
    phase: &'static str,
}

impl EncodeLabelSet for Labels {
    fn encode(&self, encoder: &mut LabelSetEncoder<'_>) -> Result<(), std::fmt::Error> {
        if let Some(plugin) = self.plugin {
            ("name", plugin).encode(encoder.encode_label())?;
        }
        ("operation", self.operation).encode(encoder.encode_label())?;
        ("rejected", self.rejected).encode(encoder.encode_label())?;
        ("type", self.phase).encode(encoder.encode_label())
    }
}

type Times = Family<Labels, Histogram, fn() -> Histogram>;

/// The times of all requests of a registry.
#[derive(Clone, Debug)]
pub(crate) struct StepMetrics {
    phases: Times,
    plugins: Times,
}

impl Default for StepMetrics {
    fn default() -> Self {
        let times = || Family::new_with_constructor((|| Histogram::new(BUCKETS)) as fn() -> Histogram);
        StepMetrics { phases: times(), plugins: times() }
    }
}

impl StepMetrics {
    pub(crate) fn register(&self, metrics: &mut Metrics) {
        let name = |rest: &str| format!("apiserver_admission_{rest}_admission_duration_seconds");
        metrics.register(name("step"), "Time of a phase of admission", self.phases.clone());
        metrics.register(name("controller"), "Time of a plugin in a phase of admission", self.plugins.clone());
    }
}

/// The series of one plugin, or of a phase as a whole.
pub(crate) struct Timer {
    plugin: Option<&'static str>,
    times: Times,
    known: [OnceLock<Histogram>; SERIES],
}

impl Timer {
    pub(crate) fn of_phases(metrics: &StepMetrics) -> Self {
        Timer { plugin: None, times: metrics.phases.clone(), known: Default::default() }
    }

    pub(crate) fn of_plugin(metrics: &StepMetrics, name: &'static str) -> Self {
        Timer { plugin: Some(name), times: metrics.plugins.clone(), known: Default::default() }
    }

    /// Counts a request.
    pub(crate) fn observe(&self, phase: Phase, operation: Operation, is_refused: bool, took: Duration) {
        let (phase_at, phase) = match phase {
            Phase::Mutate => (0, "admit"),
            Phase::Validate => (1, "validate"),
        };
        let at = phase_at * 8 + operation as usize * 2 + usize::from(is_refused);
        let Some(series) = self.known.get(at) else { return };
        let series = series.get_or_init(|| {
            let rejected = if is_refused { "true" } else { "false" };
            let labels = Labels { plugin: self.plugin, operation: operation_name(operation), rejected, phase };
            self.times.get_or_create_owned(&labels)
        });
        series.observe(took.as_secs_f64());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wh_55_phases_and_plugins_have_times_under_the_names_of_the_reference() {
        let metrics = StepMetrics::default();
        let (phases, plugin) = (Timer::of_phases(&metrics), Timer::of_plugin(&metrics, "PodSecurity"));
        for _ in 0..2 {
            plugin.observe(Phase::Validate, Operation::Create, true, Duration::from_millis(1));
            phases.observe(Phase::Mutate, Operation::Delete, false, Duration::from_millis(30));
        }
        let mut registry = Metrics::default();
        metrics.register(&mut registry);
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        for line in [
            "controller_admission_duration_seconds_count{name=\"PodSecurity\",operation=\"CREATE\",rejected=\"true\",type=\"validate\"} 2",
            "step_admission_duration_seconds_count{operation=\"DELETE\",rejected=\"false\",type=\"admit\"} 2",
        ] {
            assert!(text.contains(&format!("apiserver_admission_{line}")), "{line}\n{text}");
        }
        let within = |bucket: &str| {
            let mut lines = text.lines().filter(|line| line.starts_with("apiserver_admission_step_"));
            lines.find(|line| line.contains(bucket)).map(|line| line.ends_with(" 2"))
        };
        assert_eq!((within("le=\"0.025\""), within("le=\"0.1\"")), (Some(false), Some(true)), "{text}");
    }
}
