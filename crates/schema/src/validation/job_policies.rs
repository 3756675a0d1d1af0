//! Validation of the policies of a job: when its pods count as failed, and when it has succeeded.

use std::collections::HashSet;

use machinery::field_error::{BadValue, FieldError, Path};
use machinery::go_text::quote;
use machinery::json::{Value, json};
use machinery::names;

use super::Errors;
use super::rules::{not_negative, objections, word};
use crate::walk::Walk as _;

/// Longest `succeededIndexes`, in bytes.
const INDEXES_MAX: usize = 64 * 1024;

pub(super) fn failure_policy(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    let rules = spec.list("podFailurePolicy.rules");
    if rules.len() > 20 {
        errors.push(FieldError::too_many(path, rules.len(), 20));
    }
    let containers: HashSet<&str> = ["containers", "initContainers"]
        .into_iter()
        .flat_map(|list| spec.at("template.spec").list(list))
        .map(|container| container.text("name"))
        .collect();
    const ACTIONS: [&str; 4] = ["Count", "FailIndex", "FailJob", "Ignore"];
    for (i, rule) in rules.iter().enumerate() {
        let path = path.index(i);
        let action = rule.text("action");
        match action {
            "" => {
                let why = r#"valid values: ["Count" "FailIndex" "FailJob" "Ignore"]"#;
                errors.push(FieldError::required(path.child("action"), why));
            }
            "FailIndex" if !spec.has("backoffLimitPerIndex") => {
                let why = "requires the backoffLimitPerIndex to be set";
                errors.push(FieldError::invalid(path.child("action"), action, why));
            }
            other => word(errors, &path.child("action"), other, &ACTIONS),
        }
        let conditions = rule.list("onPodConditions");
        if rule.has("onExitCodes") {
            exit_codes(rule.at("onExitCodes"), &containers, &path.child("onExitCodes"), errors);
        }
        let list = path.child("onPodConditions");
        if conditions.len() > 20 {
            errors.push(FieldError::too_many(list, conditions.len(), 20));
        }
        for (j, pattern) in conditions.iter().enumerate() {
            let path = list.index(j);
            let kind = pattern.text("type");
            objections(errors, &path.child("type"), kind, names::qualified_name(kind));
            match pattern.text("status") {
                "" => {
                    let why = r#"valid values: ["False" "True" "Unknown"]"#;
                    errors.push(FieldError::required(path.child("status"), why));
                }
                status => word(errors, &path.child("status"), status, &["False", "True", "Unknown"]),
            }
        }
        let why = match (rule.has("onExitCodes"), conditions.is_empty()) {
            (true, false) => "specifying both OnExitCodes and OnPodConditions is not supported",
            (false, true) => "specifying one of OnExitCodes and OnPodConditions is required",
            _ => continue,
        };
        errors.push(FieldError::invalid(path, BadValue::Omitted, why));
    }
}

fn exit_codes(codes: &Value, containers: &HashSet<&str>, path: &Path<'_>, errors: &mut Errors) {
    let operator = codes.text("operator");
    match operator {
        "" => {
            errors.push(FieldError::required(path.child("operator"), r#"valid values: ["In" "NotIn"]"#));
        }
        other => word(errors, &path.child("operator"), other, &["In", "NotIn"]),
    }
    if let Some(name) = codes.at("containerName").as_str()
        && !containers.contains(name)
    {
        let why = "must be one of the container or initContainer names in the pod template";
        errors.push(FieldError::invalid(path.child("containerName"), name, why));
    }
    let (values, list) = (codes.list("values"), path.child("values"));
    if values.is_empty() {
        errors.push(FieldError::invalid(list, json!([]), "at least one value is required"));
    } else if values.len() > 255 {
        errors.push(FieldError::too_many(list, values.len(), 255));
    }
    let numbers: Vec<i64> = values.iter().map(|value| value.as_i64().unwrap_or(0)).collect();
    let mut seen = HashSet::new();
    for (i, code) in numbers.iter().enumerate() {
        if operator == "In" && *code == 0 {
            errors.push(FieldError::invalid(list.index(i), 0, "must not be 0 for the In operator"));
        }
        if !seen.insert(code) {
            errors.push(FieldError::duplicate(list.index(i), *code));
        }
    }
    if !numbers.is_sorted() {
        errors.push(FieldError::invalid(list, codes.at("values"), "must be ordered"));
    }
}

/// Checks the rules of a success policy; the job is indexed.
pub(super) fn success_policy(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    let rules = spec.list("successPolicy.rules");
    let completions = spec.int("completions").unwrap_or(0);
    if rules.is_empty() {
        let why = "at least one rules must be specified when the successPolicy is specified";
        errors.push(FieldError::required(path, why));
    }
    if rules.len() > 20 {
        errors.push(FieldError::too_many(path, rules.len(), 20));
    }
    for (i, rule) in rules.iter().enumerate() {
        let path = path.index(i);
        let (count, indexes) = (rule.int("succeededCount"), rule.at("succeededIndexes").as_str());
        if count.is_none() && indexes.is_none() {
            let why = "at least one of succeededCount or succeededIndexes must be specified";
            errors.push(FieldError::required(path, why));
        }
        let mut total = 0;
        if let Some(indexes) = indexes {
            let path = path.child("succeededIndexes");
            if indexes.len() > INDEXES_MAX {
                errors.push(FieldError::too_long(path, INDEXES_MAX));
            }
            match count_indexes(indexes, completions) {
                Ok(count) => total = count,
                Err(why) => {
                    let why = format!("error parsing succeededIndexes: {why}");
                    errors.push(FieldError::invalid(path, indexes, why));
                }
            }
        }
        let path = path.child("succeededCount");
        let Some(count) = count else { continue };
        not_negative(errors, &path, Some(count));
        if count > completions {
            let why = format!("must be less than or equal to {completions} (the number of specified completions)");
            errors.push(FieldError::invalid(path, count, why));
        }
        if indexes.is_some() && count > total {
            let why = format!(
                "must be less than or equal to {total} (the number of indexes in the specified succeededIndexes field)"
            );
            errors.push(FieldError::invalid(path, count, why));
        }
    }
}

/// Returns how many indexes `1,3-5` has.
fn count_indexes(text: &str, completions: i64) -> Result<i64, String> {
    if text.is_empty() {
        return Ok(0);
    }
    let (mut last, mut total) = (None, 0);
    for interval in text.split(',') {
        let parts: Vec<&str> = interval.split('-').collect();
        if parts.len() > 2 {
            return Err(format!(
                "the fragment {} violates the requirement that an index interval can have at most two parts separated by '-'",
                quote(interval)
            ));
        }
        let index = |part: &str| -> Result<i64, String> {
            let number: i64 =
                part.parse().map_err(|_| format!("cannot convert string to integer for index: {}", quote(part)))?;
            if number >= completions { Err(format!("too large index: {}", quote(part))) } else { Ok(number) }
        };
        let first = index(parts[0])?;
        let end = match parts.get(1) {
            Some(part) => index(part)?,
            None => first,
        };
        if parts.len() > 1 && first >= end {
            return Err(format!("non-increasing order, previous: {first}, current: {end}"));
        }
        if let Some(last) = last.filter(|last| *last >= first) {
            return Err(format!("non-increasing order, previous: {last}, current: {first}"));
        }
        total += end - first + 1;
        last = Some(end);
    }
    Ok(total)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn indexes_are_counted_in_increasing_order() {
        assert_eq!(count_indexes("0,2-4", 6), Ok(4));
        assert_eq!(count_indexes("", 6), Ok(0));
        for (text, why) in [
            ("2-1", "non-increasing order, previous: 2, current: 1"),
            ("3,1", "non-increasing order, previous: 3, current: 1"),
            ("9", "too large index: \"9\""),
            ("a", "cannot convert string to integer for index: \"a\""),
        ] {
            assert_eq!(count_indexes(text, 6), Err(why.to_owned()));
        }
    }
}
