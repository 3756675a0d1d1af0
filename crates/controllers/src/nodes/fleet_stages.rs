//! Stages of KWOK on simulated nodes: where there are any for a kind, they decide instead of the steps of this program.

use std::net::Ipv4Addr;
use std::sync::Arc;

use client::events::EventType;
use clock::WorldClock;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::Client;
use serde::Serialize;
use serde_json::{Value, json};

use super::kwok::stage::{Action, PatchForm, Stage, choose};
use super::kwok::{Facts, Kwok};
use super::stages::Stages;
use super::status::StepEvent;
use super::steps::{Plan, Step};
use crate::requests::{Form, microseconds, send, send_as};

/// The object as templates and selectors see it.
pub(super) fn value_of(object: &impl Serialize, kind: &str) -> Value {
    let mut value = serde_json::to_value(object).unwrap_or_default();
    value["apiVersion"] = "v1".into();
    value["kind"] = kind.into();
    value
}

/// The next stage of a pod, as a step.
pub(super) fn next(pod: &Pod, kwok: &Kwok, stages: &Stages, now: Timestamp) -> Option<Plan> {
    let object = value_of(pod, "Pod");
    let (stage, after) = due(kwok.of_pods(), &object, stages, now)?;
    Some(Plan { step: Step::Stage(stage.name.clone()), after })
}

/// The next stage of a node, and the wait before it.
pub(super) fn next_of_node(
    node: &Node,
    kwok: &Kwok,
    stages: &Stages,
    now: Timestamp,
) -> Option<(String, std::time::Duration)> {
    let object = value_of(node, "Node");
    let (stage, after) = due(kwok.of_nodes(), &object, stages, now)?;
    Some((stage.name.clone(), after))
}

fn due<'a>(
    of_kind: impl Iterator<Item = &'a Stage>,
    object: &Value,
    stages: &Stages,
    now: Timestamp,
) -> Option<(&'a Stage, std::time::Duration)> {
    let meta = &object["metadata"];
    let text = |name: &str| meta[name].as_str().unwrap_or_default();
    // The same state draws the same.
    let key = format!("{}/{}@{}", text("namespace"), text("name"), text("resourceVersion"));
    let stage = choose(of_kind, object, stages.fraction(&key, "stage"))?;
    Some((stage, stage.delay(object, now, stages.fraction(&key, "delay"))))
}

/// Whether a stage wrote nothing new and the object is still the one that it began with.
pub(super) fn changed_nothing(begun: Option<&str>, written: Option<&str>, known: Option<&str>) -> bool {
    begun.is_some() && begun == known && (written.is_none() || written == begun)
}

/// What a stage is applied with.
pub(super) struct StageInputs {
    pub(super) object: Value,
    pub(super) kwok: Arc<Kwok>,
    pub(super) node: Arc<str>,
    pub(super) node_address: Ipv4Addr,
    pub(super) address: Option<Ipv4Addr>,
    pub(super) clock: WorldClock,
    /// Writes as the node.
    pub(super) client: Client,
    /// Writes what a node may not, such as finalizers.
    pub(super) server: Client,
}

impl Facts for StageInputs {
    fn now(&self) -> String {
        microseconds(self.clock.now())
    }

    fn node_name(&self) -> String {
        self.node.to_string()
    }

    fn node_ip(&self, _node: &str) -> String {
        self.node_address.to_string()
    }

    fn pod_ip(&self) -> String {
        self.address.map(|address| address.to_string()).unwrap_or_default()
    }
}

/// Applies a stage: its writes in their order. Returns the version of the last one, and the events.
pub(super) async fn apply(
    name: &str,
    with: &StageInputs,
    path: &str,
) -> (Result<Option<String>, client::Error>, Vec<StepEvent>) {
    let mut events = Vec::new();
    let mut stages = with.kwok.of_pods().chain(with.kwok.of_nodes());
    let Some(stage) = stages.find(|stage| stage.name == name) else { return (Ok(None), events) };
    let actions = match stage.actions(&with.object, with) {
        Ok(actions) => actions,
        Err(why) => {
            tracing::warn!(stage = name, path, why, "a stage could not be rendered");
            return (Ok(None), events);
        }
    };
    let uid = with.object["metadata"]["uid"].clone();
    let mut version = None;
    for action in actions {
        let written = match action {
            Action::Event { kind, reason, message } => {
                let kind = if kind == "Warning" { EventType::Warning } else { EventType::Normal };
                events.push(StepEvent { kind, reason: reason.into(), message, field: None });
                continue;
            }
            Action::Delete => {
                let options = json!({"gracePeriodSeconds": 0, "preconditions": {"uid": uid}});
                let deleted = send_as(&with.node, &with.client, "DELETE", path, Form::Json, &options).await;
                return (deleted.map(|_| None), events);
            }
            Action::Patch { subresource, form, mut body } => {
                let form = match form {
                    PatchForm::Json => Form::JsonPatch,
                    PatchForm::Merge => Form::Merge,
                    PatchForm::Strategic => Form::Strategic,
                };
                if body.is_object() {
                    body["metadata"]["uid"] = uid.clone();
                }
                match subresource.as_str() {
                    "" => send(&with.server, "PATCH", path, form, &body).await,
                    subresource => {
                        let path = format!("{path}/{subresource}");
                        send_as(&with.node, &with.client, "PATCH", &path, form, &body).await
                    }
                }
            }
        };
        match written {
            Ok(written) => version = written,
            Err(error) => return (Err(error), events),
        }
    }
    (Ok(version), events)
}

#[cfg(test)]
mod tests {
    use super::changed_nothing;

    #[test]
    fn kw_9_a_stage_that_changes_nothing_waits_for_a_change() {
        assert!(changed_nothing(Some("5"), None, Some("5")), "only events, or not rendered");
        assert!(changed_nothing(Some("5"), Some("5"), Some("5")), "a patch without a change");
        assert!(!changed_nothing(Some("5"), Some("6"), Some("5")), "a change that is not seen yet");
        assert!(!changed_nothing(Some("5"), Some("6"), Some("6")), "a change that is seen");
        assert!(!changed_nothing(Some("5"), None, Some("6")), "another change meanwhile");
        assert!(!changed_nothing(None, None, None), "the stages have changed meanwhile");
    }
}
