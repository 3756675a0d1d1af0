//! What the containers of simulated nodes say: their logs, the results of commands, the answers at their ports.
//!
//! - [`logs`]: the lines that each container has written, current and previous instance
//! - [`log`]: what a client reads of a log, `log_file`: of a file of this host; [`exec`], `terminal`, `tar`: commands; `attach`; `forward`: ports
//! - [`rules`]: what pods or files prescribe instead of the default; `annotations`: those of pods
//! - [`state`]: what a kubelet refuses

mod annotations;
mod attach;
pub mod exec;
mod forward;
pub mod log;
mod log_file;
pub mod logs;
pub mod rules;
pub mod state;
mod tar;
mod terminal;

use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use parking_lot::RwLock;

use logs::ContainerLogs;
use rules::{PodRules, RuleSource};

use super::machines;
use super::processes::places::Places;

/// Whether a node with these labels is simulated.
pub fn is_simulated(label: impl Fn(&str) -> Option<String>) -> bool {
    label(machines::SIMULATED).as_deref() == Some("true")
}

/// The containers of all simulated nodes. The nodes write to it, the server reads from it.
#[derive(Default)]
pub struct Containers {
    logs: ContainerLogs,
    places: Places,
    /// Rules that come from files or custom resources; annotations of a pod overrule them.
    rules: RwLock<Option<Arc<dyn RuleSource>>>,
}

impl std::fmt::Debug for Containers {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Containers").finish_non_exhaustive()
    }
}

impl Containers {
    /// The lines that containers have written.
    #[must_use]
    pub fn logs(&self) -> &ContainerLogs {
        &self.logs
    }

    /// The files of containers.
    #[must_use]
    pub fn places(&self) -> &Places {
        &self.places
    }

    /// Sets the rules that apply to pods whose annotations prescribe nothing.
    pub fn set_rules(&self, source: Arc<dyn RuleSource>) {
        *self.rules.write() = Some(source);
    }

    /// The rules of a pod: those of its annotations, then those of files. The first that matches a request applies.
    #[must_use]
    pub fn rules_of(&self, pod: &Pod) -> PodRules {
        let mut found = PodRules::of_annotations(pod);
        let source = self.rules.read().clone();
        if let Some(source) = source {
            found.extend(source.rules_of(pod));
        }
        found
    }
}
