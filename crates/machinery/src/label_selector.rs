//! The `LabelSelector` of objects (`matchLabels`, `matchExpressions`): conversion and validation.

use crate::json::Value;

use crate::field_error::{FieldError, Path};
use crate::go_text::quote;
use crate::labels::{Operator, Requirement, Selector};
use crate::names;

impl Selector {
    /// Converts the selector of an object. Absent or null selects nothing; `{}` selects everything.
    pub fn from_label_selector(selector: &Value) -> Result<Selector, String> {
        if selector.is_null() {
            return Ok(Selector::nothing());
        }
        let mut requirements = Vec::new();
        for (key, value) in selector.get("matchLabels").and_then(Value::as_object).into_iter().flatten() {
            let value = value.as_str().unwrap_or_default().to_owned();
            requirements.push(Requirement::new(key.as_str(), Operator::Equals, vec![value])?);
        }
        for expression in expressions(selector) {
            let operator = match text(expression, "operator") {
                "In" => Operator::In,
                "NotIn" => Operator::NotIn,
                "Exists" => Operator::Exists,
                "DoesNotExist" => Operator::DoesNotExist,
                other => return Err(format!("{} is not a valid label selector operator", quote(other))),
            };
            let values = values(expression).map(str::to_owned).collect();
            requirements.push(Requirement::new(text(expression, "key"), operator, values)?);
        }
        Ok(Selector::new(requirements))
    }
}

/// Validates a `LabelSelector` of an object.
#[must_use]
pub fn validate(selector: &Value, path: &Path<'_>) -> Vec<FieldError> {
    let mut errors = validate_labels(selector.get("matchLabels"), &path.child("matchLabels"));
    let list = path.child("matchExpressions");
    for (i, expression) in expressions(selector).enumerate() {
        let path = list.index(i);
        let count = values(expression).count();
        let value_path = path.child("values");
        match text(expression, "operator") {
            "In" | "NotIn" if count == 0 => {
                errors.push(FieldError::required(value_path, "must be specified when `operator` is 'In' or 'NotIn'"))
            }
            "Exists" | "DoesNotExist" if count > 0 => errors.push(FieldError::forbidden(
                value_path,
                "may not be specified when `operator` is 'Exists' or 'DoesNotExist'",
            )),
            "In" | "NotIn" | "Exists" | "DoesNotExist" => {}
            other => {
                errors.push(FieldError::invalid(path.child("operator"), other, "not a valid selector operator"));
            }
        }
        let key = text(expression, "key");
        let objections = names::qualified_name(key);
        errors.extend(objections.into_iter().map(|why| FieldError::invalid(path.child("key"), key, why)));
        for (i, value) in values(expression).enumerate() {
            let objections = names::label_value(value);
            errors.extend(objections.into_iter().map(|why| FieldError::invalid(value_path.index(i), value, why)));
        }
    }
    errors
}

/// Validates a map of labels.
#[must_use]
pub fn validate_labels(labels: Option<&Value>, path: &Path<'_>) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for (key, value) in labels.and_then(Value::as_object).into_iter().flatten() {
        let objections = names::qualified_name(key);
        errors.extend(objections.into_iter().map(|why| FieldError::invalid(path, key.as_str(), why)));
        let value = value.as_str().unwrap_or_default();
        let objections = names::label_value(value);
        errors.extend(objections.into_iter().map(|why| FieldError::invalid(path, value, why)));
    }
    errors
}

fn expressions(selector: &Value) -> impl Iterator<Item = &Value> {
    selector.get("matchExpressions").and_then(Value::as_array).into_iter().flatten()
}

fn text<'a>(expression: &'a Value, name: &str) -> &'a str {
    expression.get(name).and_then(Value::as_str).unwrap_or_default()
}

fn values(expression: &Value) -> impl Iterator<Item = &str> {
    expression.get("values").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json::json;

    #[test]
    fn reads_labels_and_expressions() {
        let selector = Selector::from_label_selector(&json!({
            "matchLabels": {"b": "2", "a": "1"},
            "matchExpressions": [
                {"key": "c", "operator": "In", "values": ["y", "x"]},
                {"key": "d", "operator": "DoesNotExist"},
            ],
        }));
        assert_eq!(selector.map(|selector| selector.to_string()), Ok("a=1,b=2,c in (x,y),!d".to_owned()));
        assert_eq!(Selector::from_label_selector(&Value::Null), Ok(Selector::nothing()));
        assert_eq!(Selector::from_label_selector(&json!({})), Ok(Selector::everything()));
        assert_eq!(
            Selector::from_label_selector(&json!({"matchExpressions": [{"key": "a", "operator": "in"}]})),
            Err("\"in\" is not a valid label selector operator".to_owned())
        );
    }

    #[test]
    fn says_what_is_wrong() {
        let path = Path::new("spec.selector");
        let errors = validate(
            &json!({"matchExpressions": [
                {"key": "a", "operator": "In"},
                {"key": "a", "operator": "Exists", "values": ["x"]},
                {"key": "a", "operator": "Nope"},
            ]}),
            &path,
        );
        let errors: Vec<String> = errors.iter().map(ToString::to_string).collect();
        assert_eq!(
            errors,
            [
                "spec.selector.matchExpressions[0].values: Required value: must be specified when `operator` is 'In' or 'NotIn'",
                "spec.selector.matchExpressions[1].values: Forbidden: may not be specified when `operator` is 'Exists' or 'DoesNotExist'",
                "spec.selector.matchExpressions[2].operator: Invalid value: \"Nope\": not a valid selector operator",
            ]
        );
    }
}
