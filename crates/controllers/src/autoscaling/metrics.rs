//! Reading what the pods of a target use, and the reasons why a metric cannot be had.

use std::time::Duration;

use client::Error;
use jiff::Timestamp;
use k8s_openapi::api::autoscaling::v2::MetricSpec;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kube::Client;
use serde_json::{Value, json};

use super::replicas::{Sample, Samples, thousandths};
use crate::json::from_value;
use crate::reconciling::server_message;
use crate::requests::{Form, request};

/// HPA-4: what each pod of a selector uses of a resource, in all its containers or in one.
pub(super) async fn read(
    client: &Client,
    namespace: &str,
    selector: &str,
    resource: &str,
    container: Option<&str>,
) -> Result<Samples, String> {
    let query = form_urlencoded::Serializer::new(String::new()).append_pair("labelSelector", selector).finish();
    let path = format!("/apis/metrics.k8s.io/v1beta1/namespaces/{namespace}/pods?{query}");
    let list: Result<Value, Error> = request(client, "GET", &path, Form::Json, &Value::Null).await;
    let list = list.map_err(|error| {
        // A group that is not served is answered in plain text.
        let why = if error.status().is_some_and(|status| status.code == 404) {
            "the server could not find the requested resource (get pods.metrics.k8s.io)".to_owned()
        } else {
            server_message(&error)
        };
        format!("unable to fetch metrics from resource metrics API: {why}")
    })?;
    let items = list["items"].as_array().map(Vec::as_slice).unwrap_or_default();
    if items.is_empty() {
        return Err("no metrics returned from resource metrics API".to_owned());
    }
    Ok(items.iter().filter_map(|item| sample(item, resource, container)).collect())
}

/// The usage of one pod; none if a container that counts has none.
fn sample(item: &Value, resource: &str, container: Option<&str>) -> Option<(String, Sample)> {
    let containers = item["containers"].as_array()?;
    let mut counted = containers.iter().filter(|found| container.is_none_or(|name| found["name"] == name)).peekable();
    counted.peek()?;
    let value = counted.try_fold(0i64, |sum, container| {
        let used = container["usage"][resource].as_str()?;
        Some(sum.saturating_add(thousandths(&Quantity(used.to_owned()))))
    })?;
    let at: Timestamp = item["timestamp"].as_str()?.parse().ok()?;
    let window = crate::nodes::stages::parse_duration(item["window"].as_str().unwrap_or("0")).unwrap_or(Duration::ZERO);
    Some((item["metadata"]["name"].as_str()?.to_owned(), Sample { value, at, window }))
}

/// The metric of an autoscaler that has none.
pub(super) fn cpu() -> MetricSpec {
    let target = json!({"type": "Utilization", "averageUtilization": 80});
    from_value(&json!({"type": "Resource", "resource": {"name": "cpu", "target": target}})).unwrap_or_default()
}

/// The reason that a metric is not available.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Unmeasured {
    pub(super) reason: &'static str,
    pub(super) error: String,
    /// The same, for the summary.
    pub(super) outer: String,
}

/// HPA-15: metrics of other APIs are not served here; each type of metric has its own message for that.
pub(super) fn unserved(metric: &MetricSpec) -> Unmeasured {
    const CUSTOM: &str =
        "unable to fetch metrics from custom metrics API: no custom metrics API (custom.metrics.k8s.io) registered";
    const EXTERNAL: &str =
        "unable to fetch metrics from external metrics API: the server could not find the requested resource";
    let (reason, error, what) = if let Some(source) = &metric.pods {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hpa_4_a_pod_is_measured_by_the_sum_of_its_containers() {
        let item = json!({
            "metadata": {"name": "p"}, "timestamp": "2027-01-15T08:00:00Z", "window": "15s",
            "containers": [{"name": "a", "usage": {"cpu": "100m", "memory": "1Ki"}}, {"name": "b", "usage": {"cpu": "1500u"}}],
        });
        let of = |resource, container| sample(&item, resource, container).map(|(_, sample)| sample.value);
        assert_eq!(of("cpu", None), Some(102));
        assert_eq!(of("cpu", Some("a")), Some(100));
        assert_eq!(of("memory", None), None, "one container has none");
        assert_eq!(of("memory", Some("a")), Some(1_024_000));
        assert_eq!(of("cpu", Some("c")), None);
        assert_eq!(sample(&item, "cpu", None).unwrap().1.window, Duration::from_secs(15));
    }

    #[test]
    fn hpa_15_a_metric_that_cannot_be_had_says_why() {
        let metric: MetricSpec = from_value(&json!({
            "type": "External", "external": {"metric": {"name": "queue"}, "target": {"type": "Value", "value": "3"}},
        }))
        .unwrap();
        let said = unserved(&metric);
        assert_eq!(said.reason, "FailedGetExternalMetric");
        assert_eq!(said.outer, format!("failed to get queue external metric value: {}", said.error));
        assert!(said.error.starts_with("unable to get external metric queue: unable to fetch metrics from external"));
    }
}
