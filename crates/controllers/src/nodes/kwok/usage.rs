//! KWOK's `ResourceUsage` and `Metric`: what pods are said to use, as data.
//!
//! Expressions are kept as they are written; who serves metrics evaluates them.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

use super::rules::{Reach, no_other};

/// What containers use, by resource.
#[derive(Debug, Clone, PartialEq)]
pub struct ResourceUsage {
    /// The pods it is about.
    pub reach: Reach,
    pub usages: Vec<ContainerUsage>,
}

/// What some containers use.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ContainerUsage {
    /// Empty for all.
    #[serde(default)]
    pub containers: Vec<String>,
    /// `cpu` and `memory`.
    #[serde(default)]
    pub usage: BTreeMap<String, UsageValue>,
}

/// A quantity such as `100m`, or an expression in CEL such as `Quantity("1Mi")`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UsageValue {
    pub value: Option<String>,
    pub expression: Option<String>,
}

/// Metrics that are served under a path of the node's agent.
#[derive(Debug, Clone, PartialEq)]
pub struct Metric {
    pub name: String,
    pub path: String,
    pub metrics: Vec<MetricConfig>,
}

/// One metric.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct MetricConfig {
    pub name: String,
    #[serde(default)]
    pub help: String,
    pub kind: MetricKind,
    #[serde(default)]
    pub labels: Vec<MetricLabel>,
    /// An expression in CEL.
    #[serde(default)]
    pub value: String,
    #[serde(default)]
    pub buckets: Vec<MetricBucket>,
    #[serde(default)]
    pub dimension: Dimension,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MetricKind {
    Counter,
    Gauge,
    Histogram,
}

/// What a metric has one value for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Dimension {
    #[default]
    Node,
    Pod,
    Container,
}

/// A label whose value is an expression in CEL.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MetricLabel {
    pub name: String,
    pub value: String,
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MetricBucket {
    pub le: f64,
    /// An expression in CEL.
    pub value: String,
    #[serde(default)]
    pub hidden: bool,
}

impl ResourceUsage {
    pub(super) fn of(object: &Value) -> Result<Self, String> {
        let reach = Reach::of(object)?;
        no_other(&object["spec"], &["usages", "selector"])?;
        let usages: Vec<ContainerUsage> = super::rules::list(object, "usages")?;
        for (resource, value) in usages.iter().flat_map(|usage| &usage.usage) {
            if value.value.is_none() == value.expression.is_none() {
                return Err(format!("{resource} should have `value` or `expression`"));
            }
        }
        Ok(ResourceUsage { reach, usages })
    }
}

impl Metric {
    pub(super) fn of(object: &Value) -> Result<Self, String> {
        no_other(&object["spec"], &["path", "metrics"])?;
        let path = object["spec"]["path"].as_str().unwrap_or_default().to_owned();
        if !path.starts_with('/') {
            return Err(format!("the path {path:?} should begin with `/`"));
        }
        let name = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        Ok(Metric { name, path, metrics: super::rules::list(object, "metrics")? })
    }
}
