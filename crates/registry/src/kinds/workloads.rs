//! Deployments, ReplicaSets, StatefulSets, DaemonSets, ReplicationControllers and PodTemplates: where their pods are.

use machinery::json::{Value, json};

use super::{KindBehaviour, object_at};

pub(super) struct Workloads;

impl KindBehaviour for Workloads {
    fn pod_template<'v>(&self, workload: &'v Value) -> Option<&'v Value> {
        object_at(workload, &["spec", "template"])
    }
}

pub(super) struct ReplicationControllers;

impl KindBehaviour for ReplicationControllers {
    fn pod_template<'v>(&self, workload: &'v Value) -> Option<&'v Value> {
        object_at(workload, &["spec", "template"])
    }

    /// Their selector is a map of labels.
    fn label_selector(&self, workload: &Value) -> Value {
        json!({"matchLabels": workload["spec"]["selector"]})
    }
}

pub(super) struct PodTemplates;

impl KindBehaviour for PodTemplates {
    fn pod_template<'v>(&self, template: &'v Value) -> Option<&'v Value> {
        object_at(template, &["template"])
    }
}
