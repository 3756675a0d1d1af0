//! Horizontal autoscalers without a source of metrics: the size stays within its bounds, and the conditions report that
//! nothing can be measured.

use std::sync::Arc;
use std::time::Duration;

use client::controller::{Action, Predicate, Run, RunError};
use client::events::EventType;
use client::store::Store;
use client::{Error, Key};
use jiff::Timestamp;
use k8s_openapi::api::autoscaling::v2::{
    HorizontalPodAutoscaler, HorizontalPodAutoscalerCondition, HorizontalPodAutoscalerSpec,
    HorizontalPodAutoscalerStatus, MetricSpec,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::PostParams;
use kube::core::DynamicObject;
use kube::{Api, Resource as _};
use serde_json::json;

use crate::context::{Context, Tools};
use crate::discovery::Resources;
use crate::json::from_value;
use crate::owners::namespace;
use crate::reconciling::{self, server_message};

/// Interval between two runs of an autoscaler.
const INTERVAL: Duration = Duration::from_secs(15);
const WORKERS: usize = 5;

/// Runs until the context's stop.
pub(crate) async fn run(context: Context) {
    let scalers = context.informers.informer::<HorizontalPodAutoscaler>();
    let tools = context.tools("horizontal-pod-autoscaler").follow(&scalers);
    let controller = context
        .controller("horizontalpodautoscaling")
        // These have no generation.
        .on(&scalers, Predicate::on_update(|old: &HorizontalPodAutoscaler, new| old.spec != new.spec))
        .read_your_writes(tools.writes.clone());
    let scaler = Arc::new(Scaler { tools: tools.clone(), scalers: scalers.store() });
    let reconcile = move |run: Run| {
        let scaler = scaler.clone();
        async move { scaler.reconcile(&run.key).await }
    };
    reconciling::run(context, controller, WORKERS, reconcile).await;
}

struct Scaler {
    tools: Tools,
    scalers: Store<HorizontalPodAutoscaler>,
}

impl Scaler {
    async fn reconcile(&self, key: &Key) -> Result<Action, RunError> {
        let Some(scaler) = self.scalers.get(key) else {
            self.tools.writes.forget(key);
            return Ok(Action::done());
        };
        let mut status = scaler.status.clone().unwrap_or_default();
        self.update_status(&scaler, &mut status).await;
        if scaler.status.as_ref() != Some(&status) {
            let written = HorizontalPodAutoscaler { status: Some(status), ..(*scaler).clone() };
            match self.tools.writer(&*scaler).replace_status(written).await {
                Err(error) if error.is_not_found() => return Ok(Action::done()),
                other => {
                    other?;
                }
            }
        }
        Ok(Action::after(INTERVAL))
    }

    async fn update_status(&self, scaler: &HorizontalPodAutoscaler, status: &mut HorizontalPodAutoscalerStatus) {
        let now = self.tools.clock.now();
        let event =
            |kind, reason, message: &str| self.tools.recorder.record(&scaler.object_ref(&()), kind, reason, message);
        let spec = scaler.spec.clone();
        let (target, mut scale) = match self.scale(namespace(scaler), &spec).await {
            Ok(found) => found,
            Err(why) => {
                event(EventType::Warning, "FailedGetScale", &why);
                let message = format!("the HPA controller was unable to get the target's current scale: {why}");
                return set(status, now, "AbleToScale", false, "FailedGetScale", &message);
            }
        };
        let found = "the HPA controller was able to get the target's current scale";
        set(status, now, "AbleToScale", true, "SucceededGetScale", found);
        let replicas =
            |value: &serde_json::Value| i32::try_from(value.as_i64().unwrap_or_default()).unwrap_or(i32::MAX);
        let (wanted, running) =
            (replicas(&scale.data["spec"]["replicas"]), replicas(&scale.data["status"]["replicas"]));
        status.current_replicas = Some(running);
        match decide(&spec, wanted) {
            Decision::Disabled => {
                let message = "scaling is disabled since the replica count of the target is zero";
                set(status, now, "ScalingActive", false, "ScalingDisabled", message);
                status.desired_replicas = 0;
            }
            Decision::Rescale { to, reason } => {
                scale.data["spec"]["replicas"] = json!(to);
                let target_name = spec.scale_target_ref.name.as_str();
                let written = target.replace_subresource("scale", target_name, &PostParams::default(), &scale).await;
                match written.map_err(Error::from) {
                    Ok(_) => {
                        let message = format!("the HPA controller was able to update the target scale to {to}");
                        set(status, now, "AbleToScale", true, "SucceededRescale", &message);
                        event(EventType::Normal, "SuccessfulRescale", &format!("New size: {to}; reason: {reason}"));
                        status.desired_replicas = to;
                        status.last_scale_time = Some(Time(now));
                    }
                    Err(error) => {
                        let why = server_message(&error);
                        let message = format!("New size: {to}; reason: {reason}; error: {why}");
                        event(EventType::Warning, "FailedRescale", &message);
                        let message = format!("the HPA controller was unable to update the target scale: {why}");
                        set(status, now, "AbleToScale", false, "FailedUpdateScale", &message);
                    }
                }
            }
            Decision::Measure => {
                let metrics = spec.metrics.unwrap_or_default();
                let first = metrics.first().map_or_else(|| unmeasured(&cpu()), unmeasured);
                event(EventType::Warning, first.reason, &first.error);
                let message = format!("the HPA was unable to compute the replica count: {}", first.error);
                set(status, now, "ScalingActive", false, first.reason, &message);
                let count = metrics.len().max(1);
                let message =
                    format!("invalid metrics ({count} invalid out of {count}), first error is: {}", first.outer);
                event(EventType::Warning, "FailedComputeMetricsReplicas", &message);
            }
        }
    }

    /// The target of an autoscaler, and its scale.
    async fn scale(
        &self,
        namespace: &str,
        spec: &HorizontalPodAutoscalerSpec,
    ) -> Result<(Api<DynamicObject>, DynamicObject), String> {
        let target = &spec.scale_target_ref;
        let version = target.api_version.as_deref().unwrap_or("v1");
        let resources = Resources::read(&self.tools.client).await.map_err(|error| server_message(&error))?;
        let Some(served) = resources.of_kind(version, &target.kind) else {
            let group = version.split_once('/').map_or("", |(group, _)| group);
            let full = if group.is_empty() { target.kind.clone() } else { format!("{}.{group}", target.kind) };
            return Err(format!("no matches for kind {:?} in group {group:?} ({full})", target.kind));
        };
        let api = served.api(&self.tools.client, namespace);
        let scale: Result<DynamicObject, Error> = api.get_subresource("scale", &target.name).await.map_err(Error::from);
        match scale {
            Ok(scale) => Ok((api, scale)),
            Err(error) => Err(server_message(&error)),
        }
    }
}

/// The decision that depends on the size alone.
#[derive(Debug, PartialEq, Eq)]
enum Decision {
    /// The target was set to zero by hand.
    Disabled,
    Rescale {
        to: i32,
        reason: &'static str,
    },
    /// The decision needs metrics.
    Measure,
}

fn decide(spec: &HorizontalPodAutoscalerSpec, replicas: i32) -> Decision {
    let least = spec.min_replicas.unwrap_or(1);
    if replicas == 0 && least != 0 {
        Decision::Disabled
    } else if replicas > spec.max_replicas {
        Decision::Rescale { to: spec.max_replicas, reason: "Current number of replicas above Spec.MaxReplicas" }
    } else if replicas < least {
        Decision::Rescale { to: least, reason: "Current number of replicas below Spec.MinReplicas" }
    } else {
        Decision::Measure
    }
}

/// The metric of an autoscaler that has none.
fn cpu() -> MetricSpec {
    let spec = json!({"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization"}}});
    from_value(&spec).unwrap_or_default()
}

/// The reason that a metric is not available.
#[derive(Debug, PartialEq, Eq)]
struct Unmeasured {
    reason: &'static str,
    error: String,
    /// The same, for the summary.
    outer: String,
}

/// There is no metrics server: each type of metric has its own message for that.
fn unmeasured(metric: &MetricSpec) -> Unmeasured {
    const MISSING: &str = "the server could not find the requested resource";
    let resource = |name: &str, utilization: bool| {
        let what = if utilization { "utilization" } else { "usage" };
        format!(
            "failed to get {name} {what}: unable to get metrics for resource {name}: unable to fetch metrics from resource \
             metrics API: {MISSING} (get pods.metrics.k8s.io)"
        )
    };
    const CUSTOM: &str =
        "unable to fetch metrics from custom metrics API: no custom metrics API (custom.metrics.k8s.io) registered";
    const EXTERNAL: &str =
        "unable to fetch metrics from external metrics API: the server could not find the requested resource";
    let (reason, error, what) = if let Some(source) = &metric.resource {
        let error = resource(&source.name, source.target.average_value.is_none());
        ("FailedGetResourceMetric", error, format!("{} resource metric value", source.name))
    } else if let Some(source) = &metric.container_resource {
        let error = resource(&source.name, source.target.average_value.is_none());
        ("FailedGetContainerResourceMetric", error, format!("{} container metric value", source.container))
    } else if let Some(source) = &metric.pods {
        let error = format!("unable to get metric {}: {CUSTOM}", source.metric.name);
        ("FailedGetPodsMetric", error, "pods metric value".to_owned())
    } else if let Some(source) = &metric.object {
        let error = format!("unable to get metric {}: {CUSTOM}", source.metric.name);
        ("FailedGetObjectMetric", error, "object metric value".to_owned())
    } else if let Some(source) = &metric.external {
        let error = format!("unable to get external metric {}: {EXTERNAL}", source.metric.name);
        ("FailedGetExternalMetric", error, format!("{} external metric value", source.metric.name))
    } else {
        let error = format!("unknown metric source type {:?}", metric.type_);
        return Unmeasured { reason: "InvalidMetricSourceType", outer: error.clone(), error };
    };
    Unmeasured { reason, outer: format!("failed to get {what}: {error}"), error }
}

fn set(
    status: &mut HorizontalPodAutoscalerStatus,
    now: Timestamp,
    kind: &str,
    holds: bool,
    reason: &str,
    message: &str,
) {
    let flag = if holds { "True" } else { "False" };
    let mut wanted = HorizontalPodAutoscalerCondition {
        type_: kind.to_owned(),
        status: flag.to_owned(),
        reason: Some(reason.to_owned()),
        message: Some(message.to_owned()),
        last_transition_time: Some(Time(now)),
    };
    let conditions = status.conditions.get_or_insert_default();
    match conditions.iter_mut().find(|condition| condition.type_ == kind) {
        Some(known) => {
            if known.status == wanted.status {
                wanted.last_transition_time = known.last_transition_time.clone();
            }
            *known = wanted;
        }
        None => conditions.push(wanted),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_size_stays_within_its_bounds() {
        let spec = |least: Option<i32>| HorizontalPodAutoscalerSpec {
            min_replicas: least,
            max_replicas: 5,
            ..HorizontalPodAutoscalerSpec::default()
        };
        let above = "Current number of replicas above Spec.MaxReplicas";
        let below = "Current number of replicas below Spec.MinReplicas";
        assert_eq!(decide(&spec(Some(2)), 9), Decision::Rescale { to: 5, reason: above });
        assert_eq!(decide(&spec(Some(2)), 1), Decision::Rescale { to: 2, reason: below });
        assert_eq!(decide(&spec(Some(2)), 0), Decision::Disabled);
        assert_eq!(decide(&spec(None), 5), Decision::Measure);
    }

    #[test]
    fn a_metric_that_cannot_be_had_says_why() {
        let said = unmeasured(&cpu());
        assert_eq!(said.reason, "FailedGetResourceMetric");
        let why = "failed to get cpu utilization: unable to get metrics for resource cpu: unable to fetch metrics from \
                   resource metrics API: the server could not find the requested resource (get pods.metrics.k8s.io)";
        assert_eq!(said.error, why);
        assert_eq!(said.outer, format!("failed to get cpu resource metric value: {why}"));
    }
}
