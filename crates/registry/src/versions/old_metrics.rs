//! Metrics of autoscalers in the form of `autoscaling/v1`, which keeps them as JSON in annotations.
//!
//! ```json
//! {"type": "Pods", "pods": {"metric": {"name": "m"}, "target": {"type": "AverageValue", "averageValue": "1"}}}
//! {"type": "Pods", "pods": {"metricName": "m", "targetAverageValue": "1"}}
//! ```

use machinery::json::{Map, Value, json};

/// Returns a metric of v2, or its current value, in the old form.
pub(super) fn to_old(metric: &Value) -> Value {
    let mut old = Map::new();
    old.insert("type", metric["type"].clone());
    for (source, value) in metric.as_object().into_iter().flatten() {
        if value.is_object() {
            old.insert(source.as_str(), source_to_old(source, value));
        }
    }
    Value::Object(old)
}

/// A field of the old form, and the path of the field that it is in v2; `*` is `target` or `current`.
type Pair = (&'static str, [&'static str; 2]);

fn pairs(source: &str, spec: bool) -> Vec<Pair> {
    let (value, average, utilization) = if spec {
        ("targetValue", "targetAverageValue", "targetAverageUtilization")
    } else {
        ("currentValue", "currentAverageValue", "currentAverageUtilization")
    };
    match source {
        "object" => vec![
            ("target", ["describedObject", ""]),
            ("metricName", ["metric", "name"]),
            (value, ["*", "value"]),
            ("selector", ["metric", "selector"]),
            ("averageValue", ["*", "averageValue"]),
        ],
        "pods" => vec![
            ("metricName", ["metric", "name"]),
            (average, ["*", "averageValue"]),
            ("selector", ["metric", "selector"]),
        ],
        "external" => vec![
            ("metricName", ["metric", "name"]),
            ("metricSelector", ["metric", "selector"]),
            (value, ["*", "value"]),
            (average, ["*", "averageValue"]),
        ],
        _ => vec![
            ("name", ["name", ""]),
            (utilization, ["*", "averageUtilization"]),
            (average, ["*", "averageValue"]),
            ("container", ["container", ""]),
        ],
    }
}

fn source_to_old(source: &str, value: &Value) -> Value {
    let spec = value.get("target").is_some();
    let whole = if spec { "target" } else { "current" };
    let mut old = Map::new();
    for (field, [first, second]) in pairs(source, spec) {
        let first = if first == "*" { whole } else { first };
        let found = if second.is_empty() { &value[first] } else { &value[first][second] };
        if !found.is_null() {
            old.insert(field, found.clone());
        } else if source == "object" && field == "targetValue" {
            // It is always present in the old form.
            old.insert(field, json!("0"));
        }
    }
    Value::Object(old)
}

/// Returns a metric of the old form in that of v2. `spec` is false for current values. A metric of v2 is returned as it is.
pub(super) fn from_old(metric: &Value, spec: bool) -> Value {
    let whole = if spec { "target" } else { "current" };
    let mut new = Map::new();
    new.insert("type", metric["type"].clone());
    for (source, value) in metric.as_object().into_iter().flatten().filter(|(_, value)| value.is_object()) {
        let is_new = value["metric"].is_object() || (source != "object" && value[whole].is_object());
        if is_new {
            return metric.clone();
        }
        let mut shown = json!({});
        for (field, [first, second]) in pairs(source, spec) {
            let found = &value[field];
            let absent = found.is_null() || source == "object" && field == "targetValue" && *found == "0";
            if absent {
                continue;
            }
            let first = if first == "*" { whole } else { first };
            if second.is_empty() {
                shown[first] = found.clone();
            } else {
                shown[first][second] = found.clone();
            }
        }
        if spec {
            let target = &shown["target"];
            let kind = match (target["averageUtilization"].is_null(), target["value"].is_null()) {
                (false, _) => "Utilization",
                (true, false) => "Value",
                (true, true) => "AverageValue",
            };
            shown["target"]["type"] = kind.into();
        }
        new.insert(source.as_str(), shown);
    }
    Value::Object(new)
}

/// Returns JSON of a Go struct without tags as JSON of the API: `{"ScaleUp":{"Tolerance":null}}` is `{"scaleUp":{}}`.
pub(super) fn with_small_initials(value: &Value) -> Value {
    match value {
        Value::Object(members) => {
            let mut small = Map::new();
            for (name, value) in members.iter().filter(|(_, value)| !value.is_null()) {
                let mut name = name.to_string();
                if let Some(initial) = name.get_mut(..1) {
                    initial.make_ascii_lowercase();
                }
                small.insert(name, with_small_initials(value));
            }
            Value::Object(small)
        }
        Value::Array(items) => Value::from(items.iter().map(with_small_initials).collect::<Vec<_>>()),
        other => other.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_return_from_the_old_form() {
        for metric in [
            json!({"type": "Pods", "pods": {"metric": {"name": "m"}, "target": {"averageValue": "1", "type": "AverageValue"}}}),
            json!({"type": "External", "external": {
                "metric": {"name": "e", "selector": {"matchLabels": {"a": "b"}}}, "target": {"value": "5", "type": "Value"},
            }}),
            json!({"type": "Object", "object": {
                "describedObject": {"kind": "Service", "name": "s"}, "metric": {"name": "m"}, "target": {"value": "2", "type": "Value"},
            }}),
            json!({"type": "Resource", "resource": {"name": "memory", "target": {"averageUtilization": 3, "type": "Utilization"}}}),
        ] {
            assert_eq!(from_old(&to_old(&metric), true), metric);
            assert_eq!(from_old(&metric, true), metric, "the form of older versions of this server");
        }
        let current = json!({"type": "Pods", "pods": {"metric": {"name": "m"}, "current": {"averageValue": "1"}}});
        assert_eq!(from_old(&to_old(&current), false), current);
    }

    #[test]
    fn old_names_are_written() {
        let metric = json!({"type": "Pods", "pods": {"metric": {"name": "m"}, "target": {"type": "AverageValue", "averageValue": "1"}}});
        assert_eq!(
            to_old(&metric).to_string(),
            r#"{"type":"Pods","pods":{"metricName":"m","targetAverageValue":"1"}}"#
        );
    }
}
