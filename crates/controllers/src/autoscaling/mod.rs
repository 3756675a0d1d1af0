//! Horizontal autoscalers: the size of a workload follows what its pods use.
//!
//! - this file: one run for an autoscaler, its writes, conditions and Events
//! - `metrics`: reading what pods use; `replicas`: the size that a metric asks for; `limits`: the size that is set

mod limits;
mod metrics;
mod replicas;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::sync::Arc;

use client::controller::{Action, Predicate, Run, RunError};
use client::events::EventType;
use client::store::Store;
use client::{Error, Key};
use jiff::Timestamp;
use k8s_openapi::api::autoscaling::v2::{
    ContainerResourceMetricStatus, HPAScalingRules, HorizontalPodAutoscaler, HorizontalPodAutoscalerCondition,
    HorizontalPodAutoscalerSpec, HorizontalPodAutoscalerStatus, MetricSpec, MetricStatus, MetricTarget,
    MetricValueStatus, ResourceMetricStatus,
};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::PostParams;
use kube::core::DynamicObject;
use kube::{Api, Resource as _};
use machinery::labels::Selector;
use machinery::quantity::Notation;
use parking_lot::Mutex;
use serde_json::json;

use crate::context::{Context, Tools};
use crate::discovery::Resources;
use crate::owners::namespace;
use crate::reconciling::{self, server_message};
use crate::settings::Timing;
use limits::{History, Now};
use metrics::Unmeasured;
use replicas::{Measured, Proposal, Readiness, Tolerances, Wanted};

const WORKERS: usize = 5;
/// HPA-6: the tolerance of autoscalers that name none.
const TOLERANCE: f64 = 0.1;
/// How often a size is written again after a conflict.
const CONFLICTS_MAX: usize = 5;

/// Runs until the context's stop.
pub(crate) async fn run(context: Context) {
    let scalers = context.informers.informer::<HorizontalPodAutoscaler>();
    let pods = context.informers.informer::<Pod>();
    let tools = context.tools("horizontal-pod-autoscaler").follow(&scalers);
    let controller = context
        .controller("horizontalpodautoscaling")
        // These have no generation.
        .on(&scalers, Predicate::on_update(|old: &HorizontalPodAutoscaler, new| old.spec != new.spec))
        // Only so that the pods are known before the first run.
        .mapped(&pods, |_| Vec::new(), Predicate::on_update(|_: &Pod, _| false))
        .read_your_writes(tools.writes.clone());
    let scaler = Arc::new(Scaler {
        tools: tools.clone(),
        scalers: scalers.store(),
        pods: pods.store(),
        timing: context.settings.timing,
        known: Mutex::default(),
    });
    let reconcile = move |run: Run| {
        let scaler = scaler.clone();
        async move { scaler.reconcile(&run.key).await }
    };
    reconciling::run(context, controller, WORKERS, reconcile).await;
}

struct Scaler {
    tools: Tools,
    scalers: Store<HorizontalPodAutoscaler>,
    pods: Store<Pod>,
    timing: Timing,
    known: Mutex<HashMap<Key, Known>>,
}

/// What is remembered of an autoscaler.
#[derive(Default)]
struct Known {
    history: History,
    /// The pods of its target, once they are known.
    selector: Option<Selector>,
}

/// The size of a target, with what reads and writes it.
struct Target {
    api: Api<DynamicObject>,
    scale: DynamicObject,
}

impl Target {
    fn replicas(&self) -> i32 {
        i32::try_from(self.scale.data["spec"]["replicas"].as_i64().unwrap_or_default()).unwrap_or(i32::MAX)
    }

    fn selector(&self) -> &str {
        self.scale.data["status"]["selector"].as_str().unwrap_or_default()
    }
}

/// A size with its reason.
type Desired = (i32, String);

/// One run for an autoscaler: its status under way, and what happens to it.
struct Pass<'a> {
    scaler: &'a HorizontalPodAutoscaler,
    key: &'a Key,
    status: HorizontalPodAutoscalerStatus,
    now: Timestamp,
}

impl Pass<'_> {
    fn set(&mut self, kind: &str, holds: bool, reason: &str, message: &str) {
        let flag = if holds { "True" } else { "False" };
        let mut wanted = HorizontalPodAutoscalerCondition {
            type_: kind.to_owned(),
            status: flag.to_owned(),
            reason: Some(reason.to_owned()),
            message: Some(message.to_owned()),
            last_transition_time: Some(Time(self.now)),
        };
        let conditions = self.status.conditions.get_or_insert_default();
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

    fn least(&self) -> i32 {
        self.scaler.spec.min_replicas.unwrap_or(1)
    }
}

impl Scaler {
    async fn reconcile(&self, key: &Key) -> Result<Action, RunError> {
        let Some(scaler) = self.scalers.get(key) else {
            self.tools.writes.forget(key);
            self.known.lock().remove(key);
            return Ok(Action::done());
        };
        let status = scaler.status.clone().unwrap_or_default();
        let mut pass = Pass { scaler: &scaler, key, status, now: self.tools.clock.now() };
        self.pass(&mut pass).await;
        if scaler.status.as_ref() != Some(&pass.status) {
            let written = HorizontalPodAutoscaler { status: Some(pass.status), ..(*scaler).clone() };
            match self.tools.writer(&*scaler).replace_status(written).await {
                Err(error) if error.is_not_found() => return Ok(Action::done()),
                other => {
                    other?;
                }
            }
        }
        Ok(Action::after(self.timing.autoscaling))
    }

    async fn pass(&self, pass: &mut Pass<'_>) {
        let spec = &pass.scaler.spec;
        let mut target = match self.target(namespace(pass.scaler), spec).await {
            Ok(target) => target,
            Err(why) => {
                self.warn(pass, "FailedGetScale", &why);
                let message = format!("the HPA controller was unable to get the target's current scale: {why}");
                return pass.set("AbleToScale", false, "FailedGetScale", &message);
            }
        };
        let found = "the HPA controller was able to get the target's current scale";
        pass.set("AbleToScale", true, "SucceededGetScale", found);
        let current = target.replicas();
        let now = self.now(pass);
        self.known.lock().entry(pass.key.clone()).or_default().history.begin(current, now);
        pass.status.current_replicas = Some(current);
        let desired = if current == 0 {
            let message = "scaling is disabled since the replica count of the target is zero";
            pass.set("ScalingActive", false, "ScalingDisabled", message);
            pass.status.current_metrics = None;
            None
        } else if current > spec.max_replicas {
            pass.status.current_metrics = None;
            Some((spec.max_replicas, "Current number of replicas above Spec.MaxReplicas".to_owned()))
        } else if current < pass.least() {
            pass.status.current_metrics = None;
            Some((pass.least(), "Current number of replicas below Spec.MinReplicas".to_owned()))
        } else {
            match self.measure(pass, &target, current).await {
                Ok(desired) => desired,
                // HPA-14: nothing changes while nothing is known.
                Err(why) => return self.warn(pass, "FailedComputeMetricsReplicas", &why),
            }
        };
        pass.status.desired_replicas = current;
        if let Some((replicas, reason)) = desired {
            self.rescale(pass, &mut target, replicas, &reason).await;
        }
    }

    fn now(&self, pass: &Pass<'_>) -> Now {
        Now { time: pass.now, down_window: self.timing.autoscaling_stabilization }
    }

    fn warn(&self, pass: &Pass<'_>, reason: &str, message: &str) {
        self.tools.recorder.record(&pass.scaler.object_ref(&()), EventType::Warning, reason, message);
    }

    /// HPA-3, HPA-14: the size that metrics ask for, if it is another one. The largest of several counts.
    async fn measure(&self, pass: &mut Pass<'_>, target: &Target, current: i32) -> Result<Option<Desired>, String> {
        let pods = self.pods_of(pass, target.selector())?;
        let specs = pass.scaler.spec.metrics.clone().filter(|metrics| !metrics.is_empty());
        let specs = specs.unwrap_or_else(|| vec![metrics::cpu()]);
        let mut statuses = Vec::with_capacity(specs.len());
        let (mut best, mut failed): (Option<Desired>, Vec<Unmeasured>) = (None, Vec::new());
        for metric in &specs {
            match self.propose(pass, metric, target.selector(), &pods, current).await {
                Ok((replicas, name, status)) => {
                    if best.as_ref().is_none_or(|(known, _)| replicas > *known) {
                        best = Some((replicas, name));
                    }
                    statuses.push(status);
                }
                Err(why) => {
                    self.warn(pass, why.reason, &why.error);
                    failed.push(why);
                    // Clients compare the statuses with the metrics of the spec one by one.
                    statuses.push(MetricStatus::default());
                }
            }
        }
        pass.status.current_metrics = Some(statuses);
        let would_shrink = best.as_ref().is_none_or(|(replicas, _)| *replicas < current);
        if let (Some(first), true) = (failed.first(), would_shrink) {
            let message = format!("the HPA was unable to compute the replica count: {}", first.error);
            pass.set("ScalingActive", false, first.reason, &message);
            let counts = format!("{} invalid out of {}", failed.len(), specs.len());
            return Err(format!("invalid metrics ({counts}), first error is: {}", first.outer));
        }
        let Some((recommended, name)) = best else { return Ok(None) };
        let message = format!("the HPA was able to successfully calculate a replica count from {name}");
        pass.set("ScalingActive", true, "ValidMetricFound", &message);
        let now = self.now(pass);
        let limited = {
            let mut known = self.known.lock();
            known.entry(pass.key.clone()).or_default().history.limit(&pass.scaler.spec, current, recommended, now)
        };
        pass.set("AbleToScale", true, limited.able.0, limited.able.1);
        pass.set("ScalingLimited", limited.is_limited, limited.limit.0, limited.limit.1);
        let reason =
            if recommended > current { format!("{name} above target") } else { "All metrics below target".into() };
        Ok((limited.replicas != current).then_some((limited.replicas, reason)))
    }

    /// HPA-2: the pods of a selector, unless another autoscaler has them too.
    fn pods_of(&self, pass: &mut Pass<'_>, text: &str) -> Result<Vec<Arc<Pod>>, String> {
        if text.is_empty() {
            self.warn(pass, "SelectorRequired", "selector is required");
            pass.set("ScalingActive", false, "InvalidSelector", "the HPA target's scale is missing a selector");
            return Err("selector is required".to_owned());
        }
        let selector = Selector::parse(text).map_err(|why| {
            let why = format!("couldn't convert selector into a corresponding internal selector object: {why}");
            self.warn(pass, "InvalidSelector", &why);
            pass.set("ScalingActive", false, "InvalidSelector", &why);
            why
        })?;
        let place = namespace(pass.scaler);
        let of = |selector: &Selector, pod: &Pod| {
            let labels = pod.metadata.labels.as_ref();
            selector.matches(|key| labels.and_then(|labels| labels.get(key)).map(String::as_str))
        };
        let snapshot = self.pods.snapshot();
        let pods: Vec<Arc<Pod>> = snapshot.in_namespace(place).filter(|pod| of(&selector, pod)).cloned().collect();
        let rivals = {
            let mut known = self.known.lock();
            known.entry(pass.key.clone()).or_default().selector = Some(selector);
            let shares = |other: &Known| {
                other.selector.as_ref().is_some_and(|selector| pods.iter().any(|pod| of(selector, pod)))
            };
            let mut rivals: Vec<Key> = known
                .iter()
                .filter(|(key, other)| key.namespace() == Some(place) && (*key == pass.key || shares(other)))
                .map(|(key, _)| key.clone())
                .collect();
            rivals.sort();
            rivals
        };
        if rivals.len() > 1 {
            let named: Vec<String> = rivals.iter().map(|key| format!("{{{} {place}}}", key.name())).collect();
            let why = format!("pods by selector {text} are controlled by multiple HPAs: [{}]", named.join(" "));
            self.warn(pass, "AmbiguousSelector", &why);
            pass.set("ScalingActive", false, "AmbiguousSelector", &why);
            return Err(why);
        }
        Ok(pods)
    }

    /// The size that one metric asks for, its name in messages, and its status.
    async fn propose(
        &self,
        pass: &Pass<'_>,
        metric: &MetricSpec,
        selector: &str,
        pods: &[Arc<Pod>],
        current: i32,
    ) -> Result<(i32, String, MetricStatus), Unmeasured> {
        let (resource, container, target) = match (&metric.resource, &metric.container_resource) {
            (Some(source), _) => (source.name.as_str(), None, &source.target),
            (None, Some(source)) => (source.name.as_str(), Some(source.container.as_str()), &source.target),
            (None, None) => return Err(metrics::unserved(metric)),
        };
        let unmeasured = |error: String| match container {
            None => Unmeasured {
                reason: "FailedGetResourceMetric",
                outer: format!("failed to get {resource} resource metric value: {error}"),
                error,
            },
            Some(container) => Unmeasured {
                reason: "FailedGetContainerResourceMetric",
                outer: format!("failed to get {container} container metric value: {error}"),
                error,
            },
        };
        let wanted = wanted(target).map_err(unmeasured)?;
        let what = if matches!(wanted, Wanted::Average(_)) { "usage" } else { "utilization" };
        let failed = |why: String| unmeasured(format!("failed to get {resource} {what}: {why}"));
        let samples = metrics::read(&self.tools.client, namespace(pass.scaler), selector, resource, container).await;
        let samples = samples.map_err(|why| failed(format!("unable to get metrics for resource {resource}: {why}")))?;
        let readiness = Readiness {
            now: pass.now,
            initialization: self.timing.autoscaling_initialization,
            initial_delay: self.timing.autoscaling_readiness_delay,
        };
        let measured = Measured { resource, container, pods, samples };
        let proposal = replicas::propose(current, wanted, measured, tolerances(&pass.scaler.spec), readiness);
        let proposal = proposal.map_err(failed)?;
        let name = match (wanted, container) {
            (Wanted::Average(_), _) => format!("{resource} resource"),
            (_, None) => format!("{resource} resource utilization (percentage of request)"),
            (_, Some(_)) => format!("{resource} container resource utilization (percentage of request)"),
        };
        Ok((proposal.replicas, name, metric_status(resource, container, proposal)))
    }

    /// HPA-16: writes the size. After a conflict it is written again on the target as it is now.
    async fn rescale(&self, pass: &mut Pass<'_>, target: &mut Target, replicas: i32, reason: &str) {
        let (from, name) = (target.replicas(), pass.scaler.spec.scale_target_ref.name.as_str());
        let mut written = Ok(());
        for _ in 0..CONFLICTS_MAX {
            target.scale.data["spec"]["replicas"] = json!(replicas);
            let answer = target.api.replace_subresource("scale", name, &PostParams::default(), &target.scale).await;
            written = answer.map(|_| ()).map_err(Error::from);
            if !matches!(&written, Err(error) if error.is_conflict()) {
                break;
            }
            if let Ok(latest) = target.api.get_subresource("scale", name).await {
                target.scale = latest;
            }
        }
        match written {
            Ok(()) => {
                let message = format!("the HPA controller was able to update the target scale to {replicas}");
                pass.set("AbleToScale", true, "SucceededRescale", &message);
                let message = format!("New size: {replicas}; reason: {reason}");
                let about = pass.scaler.object_ref(&());
                self.tools.recorder.record(&about, EventType::Normal, "SuccessfulRescale", &message);
                let now = self.now(pass);
                self.known.lock().entry(pass.key.clone()).or_default().history.changed(from, replicas, now);
                pass.status.desired_replicas = replicas;
                pass.status.last_scale_time = Some(Time(pass.now));
            }
            Err(error) => {
                let why = server_message(&error);
                self.warn(pass, "FailedRescale", &format!("New size: {replicas}; reason: {reason}; error: {why}"));
                let message = format!("the HPA controller was unable to update the target scale: {why}");
                pass.set("AbleToScale", false, "FailedUpdateScale", &message);
            }
        }
    }

    /// The target of an autoscaler, and its scale.
    async fn target(&self, namespace: &str, spec: &HorizontalPodAutoscalerSpec) -> Result<Target, String> {
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
        scale.map(|scale| Target { api, scale }).map_err(|error| server_message(&error))
    }
}

fn wanted(target: &MetricTarget) -> Result<Wanted, String> {
    if let Some(average) = &target.average_value {
        return Ok(Wanted::Average(replicas::thousandths(average)));
    }
    target.average_utilization.map(Wanted::Utilization).ok_or_else(|| {
        "invalid resource metric source: neither an average utilization target nor an average value (usage) target was set"
            .to_owned()
    })
}

/// HPA-6: the tolerances of an autoscaler, for each direction.
fn tolerances(spec: &HorizontalPodAutoscalerSpec) -> Tolerances {
    let given = |rules: Option<&HPAScalingRules>| {
        let tolerance = rules.and_then(|rules| rules.tolerance.as_ref())?;
        Some(tolerance.0.parse::<machinery::quantity::Quantity>().ok()?.approximate())
    };
    let behaviour = spec.behavior.as_ref();
    Tolerances {
        up: given(behaviour.and_then(|behaviour| behaviour.scale_up.as_ref())).unwrap_or(TOLERANCE),
        down: given(behaviour.and_then(|behaviour| behaviour.scale_down.as_ref())).unwrap_or(TOLERANCE),
    }
}

/// HPA-17: what was measured, as the status shows it.
fn metric_status(resource: &str, container: Option<&str>, proposal: Proposal) -> MetricStatus {
    let average = if resource == "memory" {
        machinery::quantity::Quantity::new(proposal.average / 1000, Notation::Binary)
    } else {
        machinery::quantity::Quantity::from_milli(proposal.average)
    };
    let current = MetricValueStatus {
        average_utilization: proposal.utilization,
        average_value: Some(Quantity(average.to_string())),
        value: None,
    };
    let name = resource.to_owned();
    match container {
        None => MetricStatus {
            type_: "Resource".to_owned(),
            resource: Some(ResourceMetricStatus { name, current }),
            ..MetricStatus::default()
        },
        Some(container) => MetricStatus {
            type_: "ContainerResource".to_owned(),
            container_resource: Some(ContainerResourceMetricStatus { name, container: container.to_owned(), current }),
            ..MetricStatus::default()
        },
    }
}
