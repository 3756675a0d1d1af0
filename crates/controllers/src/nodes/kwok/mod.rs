//! KWOK's files (`kwok.x-k8s.io/v1alpha1`), from `--stages` or as custom resources.
//!
//! - [`Kwok`]: everything that was read; `stage`: when a stage applies and what it does
//! - `query`: jq in selectors; `template`, `render`, `functions`: Go templates in patches
//! - [`rules`]: logs, attach and port-forward; [`usage`]: resource usage
//! - `resources`: the same kinds as custom resources

mod functions;
mod query;
mod render;
pub(in crate::nodes) mod resources;
pub mod rules;
pub(in crate::nodes) mod stage;
mod template;
pub mod usage;

use k8s_openapi::api::core::v1::Pod;
use serde_json::Value;

pub(in crate::nodes) use functions::Facts;
use rules::Prescribed;
use stage::{Kind, Stage};
use usage::ResourceUsage;

use super::containers::rules::{PodRules, RuleSource};

/// The group and version of these kinds.
pub(in crate::nodes) const API_VERSION: &str = "kwok.x-k8s.io/v1alpha1";

/// Objects of these kinds that are used.
const OBJECTS_MAX: usize = 1_000;

/// The kinds, with their names in paths.
pub(in crate::nodes) const KINDS: [(&str, &str); 12] = [
    ("Stage", "stages"),
    ("Logs", "logs"),
    ("ClusterLogs", "clusterlogs"),
    ("Exec", "execs"),
    ("ClusterExec", "clusterexecs"),
    ("PortForward", "portforwards"),
    ("ClusterPortForward", "clusterportforwards"),
    ("Attach", "attaches"),
    ("ClusterAttach", "clusterattaches"),
    ("ResourceUsage", "resourceusages"),
    ("ClusterResourceUsage", "clusterresourceusages"),
    ("Metric", "metrics"),
];

/// Everything that KWOK's files prescribe.
#[derive(Debug, Clone, Default)]
pub struct Kwok {
    stages: Vec<Stage>,
    prescribed: Vec<Prescribed>,
    usages: Vec<ResourceUsage>,
}

impl Kwok {
    /// Adds a custom resource. Files of this host are named by its operator only, in a file of stages: a client that may
    /// write a custom resource could otherwise read the keys of the server.
    pub(super) fn add_from_server(&mut self, object: &Value) -> Result<(), String> {
        let (kind, name) = (object["kind"].as_str().unwrap_or_default(), object["metadata"]["name"].as_str());
        match kind.trim_start_matches("Cluster") {
            "Logs" | "Attach" => Err(format!(
                "{kind} {:?}: files of this host are read only if the object is in the file of --stages",
                name.unwrap_or_default()
            )),
            _ => self.add(object),
        }
    }

    /// Adds an object. The error names it and says what is not simulated.
    pub fn add(&mut self, object: &Value) -> Result<(), String> {
        let (kind, name) = (object["kind"].as_str().unwrap_or_default(), object["metadata"]["name"].as_str());
        let name = name.unwrap_or_default();
        let named = |why: String| format!("{kind} {name:?}: {why}");
        if self.stages.len() + self.prescribed.len() + self.usages.len() >= OBJECTS_MAX {
            return Err(format!("there are more than {OBJECTS_MAX} objects of {API_VERSION}"));
        }
        match kind {
            "Stage" => self.stages.push(Stage::of(object)?),
            "ResourceUsage" | "ClusterResourceUsage" => self.usages.push(ResourceUsage::of(object).map_err(named)?),
            "Metric" => {
                let why = "metrics of kubelets are not served; what nodes and pods use is in metrics.k8s.io";
                return Err(named(why.to_owned()));
            }
            _ if KINDS.iter().any(|(known, _)| *known == kind) => {
                self.prescribed.push(Prescribed::of(object).map_err(named)?);
            }
            _ => {
                let known: Vec<&str> = KINDS.iter().map(|(kind, _)| *kind).collect();
                return Err(format!("there is no kind {kind:?} in {API_VERSION}; there are: {}", known.join(", ")));
            }
        }
        Ok(())
    }

    /// The stages of pods.
    pub(in crate::nodes) fn of_pods(&self) -> impl Iterator<Item = &Stage> {
        self.stages.iter().filter(|stage| stage.kind == Kind::Pod)
    }

    /// The stages of nodes.
    pub(in crate::nodes) fn of_nodes(&self) -> impl Iterator<Item = &Stage> {
        self.stages.iter().filter(|stage| stage.kind == Kind::Node)
    }

    /// What pods are said to use; the first that [`rules::Reach::includes`] a pod and names the container applies.
    #[must_use]
    pub fn usages(&self) -> &[ResourceUsage] {
        &self.usages
    }

    /// With the objects of another source after these.
    pub(in crate::nodes) fn with(&self, other: &Kwok) -> Kwok {
        let mut all = self.clone();
        all.stages.extend(other.stages.iter().cloned());
        all.prescribed.extend(other.prescribed.iter().cloned());
        all.usages.extend(other.usages.iter().cloned());
        all
    }
}

impl RuleSource for Kwok {
    fn rules_of(&self, pod: &Pod) -> PodRules {
        let mut found = PodRules::default();
        for prescribed in self.prescribed.iter().filter(|prescribed| prescribed.reach.includes(pod)) {
            found.extend(prescribed.rules.clone());
        }
        found
    }
}

#[cfg(test)]
mod tests;
