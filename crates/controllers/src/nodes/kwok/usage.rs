//! KWOK's `ResourceUsage`: what pods are said to use.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use serde::Deserialize;
use serde_json::Value;

use super::rules::{Reach, no_other};
use crate::nodes::usage::curve::Curve;
use crate::nodes::usage::expression::{Expression, Scope};
use crate::nodes::usage::{RESOURCES, moment, started};

/// What containers use, by resource.
#[derive(Debug, Clone, PartialEq)]
pub struct ResourceUsage {
    /// The pods it is about.
    pub reach: Reach,
    pub usages: Vec<ContainerUsage>,
}

/// What some containers use.
#[derive(Debug, Clone, PartialEq)]
pub struct ContainerUsage {
    /// Empty for all.
    pub containers: Vec<String>,
    /// `cpu` and `memory`.
    pub usage: BTreeMap<String, UsageValue>,
}

/// A quantity such as `100m`, or an expression in CEL such as `Quantity("1Mi")`.
#[derive(Debug, Clone, PartialEq)]
pub enum UsageValue {
    Fixed(Curve),
    Computed(Expression),
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct GivenUsage {
    #[serde(default)]
    containers: Vec<String>,
    #[serde(default)]
    usage: BTreeMap<String, GivenValue>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct GivenValue {
    value: Option<Value>,
    expression: Option<String>,
}

impl ResourceUsage {
    pub(super) fn of(object: &Value) -> Result<Self, String> {
        let reach = Reach::of(object)?;
        no_other(&object["spec"], &["usages", "selector"])?;
        let given: Vec<GivenUsage> = super::rules::list(object, "usages")?;
        let usages = given.into_iter().map(ContainerUsage::of).collect::<Result<_, _>>()?;
        Ok(ResourceUsage { reach, usages })
    }
}

impl ContainerUsage {
    fn of(given: GivenUsage) -> Result<Self, String> {
        let mut usage = BTreeMap::new();
        for (resource, value) in given.usage {
            if !RESOURCES.contains(&resource.as_str()) {
                return Err(format!("{resource} is not measured, only {}", RESOURCES.join(" and ")));
            }
            let value = UsageValue::of(value).map_err(|why| format!("{resource}: {why}"))?;
            usage.insert(resource, value);
        }
        Ok(ContainerUsage { containers: given.containers, usage })
    }
}

impl UsageValue {
    fn of(given: GivenValue) -> Result<Self, String> {
        match (given.value, given.expression) {
            (Some(value), None) => {
                // A number in YAML is a quantity too.
                let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
                Curve::parse(&text).map(UsageValue::Fixed)
            }
            (None, Some(expression)) => Expression::parse(&expression).map(UsageValue::Computed),
            _ => Err("there should be `value` or `expression`".to_owned()),
        }
    }

    /// The amount for a container of a pod; none if an expression has none.
    pub(in crate::nodes) fn amount(&self, pod: &Pod, container: &str, now: Timestamp) -> Option<f64> {
        let moment = moment(now, started(pod));
        match self {
            UsageValue::Fixed(curve) => Some(curve.at(moment)),
            UsageValue::Computed(expression) => {
                let pod = serde_json::to_value(pod).ok()?;
                expression.amount(&Scope { pod: &pod, container, age: moment.age })
            }
        }
    }
}
