//! Validation of jobs and cron jobs.

use machinery::field_error::{BadValue, FieldError, Path};
use machinery::json::Value;
use machinery::labels::Selector;
use machinery::names;

use super::job_policies::{failure_policy, success_policy};
use super::rules::{IMMUTABLE, immutable, not_negative, required, same, selector, word};
use super::{Errors, network, pod};
use crate::facts::internal;
use crate::walk::Walk as _;

const SPEC: Path<'static> = Path::new("spec");
const STATUS: Path<'static> = Path::new("status");
const UID_LABEL: &str = "batch.kubernetes.io/controller-uid";
const NAME_LABEL: &str = "batch.kubernetes.io/job-name";

pub(super) fn validate(kind: &str, object: &Value, old: Option<&Value>, errors: &mut Errors) {
    match (kind, old) {
        ("Job", None) => job(object, true, errors),
        ("Job", Some(old)) => {
            // The spec is checked once by itself and once as an update of the old one.
            let labels = old.map("spec.template.metadata.labels");
            let had = |label: &str| labels.is_some_and(|labels| labels.contains_key(label));
            job(object, had(UID_LABEL) && had(NAME_LABEL), errors);
            selected_spec(object.at("spec"), errors);
            job_update(object, old, errors);
        }
        ("CronJob", old) => cron_job(object, old, errors),
        _ => {}
    }
}

/// Checks a job by itself. `prefixed` if the labels with a prefix must be there: jobs of old versions have none.
fn job(object: &Value, prefixed: bool, errors: &mut Errors) {
    let spec = object.at("spec");
    if spec.flag("manualSelector") != Some(true) && spec.has("selector") {
        generated_selector(object, prefixed, errors);
    }
    selected_spec(spec, errors);
    let completions = spec.int("completions").unwrap_or(0);
    if spec.text("completionMode") == "Indexed" && completions > 0 {
        let name = object.text("metadata.name");
        let longest = format!("{name}-{}", completions - 1);
        if !names::dns1123_label(&longest).is_empty() {
            let why = format!("will not able to create pod with invalid DNS label: {longest}");
            errors.push(FieldError::invalid("metadata.name", name, why));
        }
    }
}

/// Checks that the generated labels have the uid and name of the job, and that the selector selects them.
fn generated_selector(object: &Value, prefixed: bool, errors: &mut Errors) {
    let path = Path::new("spec.template.metadata.labels");
    let labels = object.map("spec.template.metadata.labels");
    let all = [
        ("controller-uid", "metadata.uid"),
        ("job-name", "metadata.name"),
        (UID_LABEL, "metadata.uid"),
        (NAME_LABEL, "metadata.name"),
    ];
    let wanted = if prefixed { &all[..] } else { &all[..2] };
    for &(label, field) in wanted {
        let wanted = object.text(field);
        match labels.and_then(|labels| labels.get(label)).and_then(Value::as_str) {
            Some(value) if value == wanted => {}
            Some(_) => {
                let shown = object.at("spec.template.metadata.labels");
                errors.push(FieldError::invalid(path.key(label), shown, format!("must be '{wanted}'")));
            }
            None => errors.push(FieldError::required(path.key(label), format!("must be '{wanted}'"))),
        }
    }
    let generated: Value =
        wanted.iter().map(|(label, field)| ((*label).to_owned(), object.at(field).clone())).collect();
    let selector = object.at("spec.selector");
    if Selector::from_label_selector(selector).is_ok_and(|selector| !selector.matches_value(&generated)) {
        errors.push(FieldError::invalid("spec.selector", selector, "`selector` not auto-generated"));
    }
}

fn selected_spec(spec: &Value, errors: &mut Errors) {
    job_spec(spec, &SPEC, errors);
    let wanted = spec.at("selector");
    if wanted.is_object() {
        selector(errors, &SPEC.child("selector"), wanted);
    } else {
        required(errors, &SPEC.child("selector"));
    }
    let labels = spec.at("template.metadata.labels");
    if let Ok(wanted) = Selector::from_label_selector(wanted)
        && !wanted.matches_value(labels)
    {
        let why = "`selector` does not match template `labels`";
        errors.push(FieldError::invalid(SPEC.child("template.metadata.labels"), labels, why));
    }
}

/// Checks the spec of a job, also in the template of a cron job.
fn job_spec(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    for field in [
        "parallelism",
        "completions",
        "activeDeadlineSeconds",
        "backoffLimit",
        "ttlSecondsAfterFinished",
        "backoffLimitPerIndex",
        "maxFailedIndexes",
    ] {
        not_negative(errors, &path.child(field), spec.int(field));
    }
    if spec.has("maxFailedIndexes") && !spec.has("backoffLimitPerIndex") {
        errors.push(FieldError::required(path.child("backoffLimitPerIndex"), "when maxFailedIndexes is specified"));
    }
    if let Some(manager) = spec.at("managedBy").as_str() {
        let path = path.child("managedBy");
        network::domain_prefixed_path(manager, &path, errors);
        if manager.len() > 63 {
            errors.push(FieldError::too_long(path, 63));
        }
    }
    completion(spec, path, errors);
    if spec.has("podFailurePolicy") {
        failure_policy(spec, &path.child("podFailurePolicy.rules"), errors);
    }
    if let policy @ Value::Object(_) = spec.at("successPolicy") {
        if spec.text("completionMode") == "Indexed" {
            success_policy(spec, &path.child("successPolicy.rules"), errors);
        } else {
            let shown = internal::shown("batch.SuccessPolicy", policy);
            errors.push(FieldError::invalid(path.child("successPolicy"), shown, "requires indexed completion mode"));
        }
    }
    if let Some(policy) = spec.at("podReplacementPolicy").as_str() {
        let words: &[&str] =
            if spec.has("podFailurePolicy") { &["Failed"] } else { &["Failed", "TerminatingOrFailed"] };
        word(errors, &path.child("podReplacementPolicy"), policy, words);
    }
    pod::template(spec.at("template"), &path.child("template"), errors);
    let restart = spec.text("template.spec.restartPolicy");
    let path = path.child("template.spec.restartPolicy");
    match restart {
        "Always" | "" => errors.push(FieldError::required(path, r#"valid values: "OnFailure", "Never""#)),
        "OnFailure" if spec.has("podFailurePolicy") => {
            let why = r#"only "Never" is supported when podFailurePolicy is specified"#;
            errors.push(FieldError::invalid(path, restart, why));
        }
        "OnFailure" | "Never" => {}
        other => errors.push(FieldError::not_supported(path, other, ["OnFailure", "Never"])),
    }
}

fn completion(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    let mode = spec.text("completionMode");
    if spec.has("completionMode") {
        word(errors, &path.child("completionMode"), mode, &["NonIndexed", "Indexed"]);
    }
    let number = |field: &str| spec.int(field);
    let refuse = |errors: &mut Errors, field: &str, value: i64, why: &str| {
        errors.push(FieldError::invalid(path.child(field), value, why));
    };
    if mode != "Indexed" {
        if mode.is_empty() || mode == "NonIndexed" {
            for field in ["backoffLimitPerIndex", "maxFailedIndexes"] {
                if let Some(value) = number(field) {
                    refuse(errors, field, value, "requires indexed completion mode");
                }
            }
        }
        return;
    }
    let (completions, parallelism, failed) = (number("completions"), number("parallelism"), number("maxFailedIndexes"));
    if completions.is_none() {
        errors.push(FieldError::required(path.child("completions"), "when completion mode is Indexed"));
    }
    if let Some(parallelism) = parallelism.filter(|parallelism| *parallelism > 100_000) {
        let why = "must be less than or equal to 100000 when completion mode is Indexed";
        refuse(errors, "parallelism", parallelism, why);
    }
    if let (Some(failed), Some(completions)) = (failed, completions)
        && failed > completions
    {
        refuse(errors, "maxFailedIndexes", failed, "must be less than or equal to completions");
    }
    if let Some(failed) = failed.filter(|failed| *failed > 100_000) {
        refuse(errors, "maxFailedIndexes", failed, "must be less than or equal to 100000");
    }
    if completions.is_none_or(|completions| completions <= 100_000) || !spec.has("backoffLimitPerIndex") {
        return;
    }
    if failed.is_none() {
        let why = "must be specified when completions is above 100000";
        errors.push(FieldError::required(path.child("maxFailedIndexes"), why));
    }
    let why =
        "must be less than or equal to 10000 when completions are above 100000 and used with backoff limit per index";
    for (field, value) in [("parallelism", parallelism), ("maxFailedIndexes", failed)] {
        if let Some(value) = value.filter(|value| *value > 10_000) {
            refuse(errors, field, value, why);
        }
    }
}

fn job_update(object: &Value, before: &Value, errors: &mut Errors) {
    let (new, old) = (object.at("spec"), before.at("spec"));
    let path = SPEC.child("completions");
    if new.text("completionMode") != "Indexed" {
        immutable(errors, &path, new.at("completions"), old.at("completions"));
    } else if new.has("completions")
        && new.at("completions") != old.at("completions")
        && new.int("completions") != new.int("parallelism")
    {
        let why = "can only be modified in tandem with spec.parallelism";
        errors.push(FieldError::invalid(path, new.at("completions"), why));
    }
    immutable(errors, &SPEC.child("selector"), new.at("selector"), old.at("selector"));
    template_update(new, before, errors);
    for (field, inner) in [
        ("completionMode", ""),
        ("podFailurePolicy", "batch.PodFailurePolicy"),
        ("backoffLimitPerIndex", ""),
        ("managedBy", ""),
        ("successPolicy", "batch.SuccessPolicy"),
    ] {
        let (value, stored) = (new.at(field), old.at(field));
        // An empty policy is not the same as none.
        if same(value, stored) && value.is_null() == stored.is_null() {
            continue;
        }
        let shown = match value {
            policy @ Value::Object(_) => internal::shown(inner, &with_rules(policy)),
            value => value.into(),
        };
        errors.push(FieldError::invalid(SPEC.child(field), shown, IMMUTABLE));
    }
}

/// Returns a policy with its rules: an absent list is shown empty.
fn with_rules(policy: &Value) -> Value {
    let mut policy = policy.clone();
    if !policy.has("rules") {
        policy["rules"] = Value::Array(Vec::new().into());
    }
    policy
}

/// Checks that the template is unchanged, except for scheduling and resources of a job that has not started yet.
fn template_update(new: &Value, before: &Value, errors: &mut Errors) {
    let old = before.at("spec");
    let (template, mut stored) = (new.at("template"), old.at("template").clone());
    let put = |stored: &mut Value, part: &str, field: &str| {
        let sent = template.at(part).at(field);
        let Some(fields) = stored.get_mut(part).and_then(Value::as_object_mut) else { return };
        if sent.is_null() {
            fields.shift_remove(field);
        } else {
            fields.insert(field.to_owned(), sent.clone());
        }
    };
    let paused = before
        .list("status.conditions")
        .iter()
        .any(|condition| condition.text("type") == "Suspended" && condition.text("status") == "True");
    let suspended = old.flag("suspend") == Some(true);
    let idle = (!before.has("status.startTime") || paused) && before.int("status.active").unwrap_or(0) == 0;
    if !(suspended && idle) {
        if !same(template, &stored) {
            let shown = internal::shown("core.PodTemplateSpec", template);
            errors.push(FieldError::invalid(SPEC.child("template"), shown, IMMUTABLE));
        }
        return;
    }
    for field in ["nodeSelector", "tolerations", "schedulingGates"] {
        put(&mut stored, "spec", field);
    }
    for field in ["annotations", "labels"] {
        put(&mut stored, "metadata", field);
    }
    let others_differ = ["podAffinity", "podAntiAffinity"]
        .into_iter()
        .any(|field| !same(template.at("spec.affinity").at(field), old.at("template.spec.affinity").at(field)));
    if !others_differ {
        put(&mut stored, "spec", "affinity");
    }
    for list in ["containers", "initContainers"] {
        let sent = template.at("spec").list(list);
        let Some(containers) = stored.pointer_mut(&format!("/spec/{list}")).and_then(Value::as_array_mut) else {
            continue;
        };
        if sent.len() != containers.len() {
            continue;
        }
        for (container, sent) in containers.iter_mut().zip(sent) {
            if container.text("name") == sent.text("name")
                && let Some(fields) = container.as_object_mut()
            {
                fields.insert("resources", sent.at("resources").clone());
            }
        }
    }
    if !same(template.at("spec"), stored.at("spec")) {
        let shown = internal::shown("core.PodSpec", template.at("spec"));
        errors.push(FieldError::invalid(SPEC.child("template.spec"), shown, IMMUTABLE));
    }
}

pub(super) fn job_status(new: &Value, old: &Value, errors: &mut Errors) {
    let status = new.at("status");
    for field in ["active", "succeeded", "failed", "ready", "terminating"] {
        not_negative(errors, &STATUS.child(field), status.int(field));
    }
    let holds = |of: &Value, kind: &str| {
        of.list("status.conditions").iter().any(|c| c.text("type") == kind && c.text("status") == "True")
    };
    let is = |kind| holds(new, kind);
    let mut conditions = |why: &str| {
        errors.push(FieldError::invalid(STATUS.child("conditions"), BadValue::Omitted, why));
    };
    if is("Complete") && is("Failed") {
        conditions("cannot set Complete=True and Failed=true conditions");
    }
    if is("Complete") && is("FailureTarget") {
        conditions("cannot set Complete=True and FailureTarget=true conditions");
    }
    let (start, completion) = (status.at("startTime"), status.at("completionTime"));
    let path = STATUS.child("completionTime");
    if !completion.is_null() && !is("Complete") {
        let why = "cannot set completionTime when there is no Complete=True condition";
        errors.push(FieldError::invalid(path, completion, why));
    }
    if completion.is_null() && is("Complete") {
        errors.push(FieldError::required(path, "completionTime is required for Complete jobs"));
    }
    let mut conditions = |why: &str| {
        errors.push(FieldError::invalid(STATUS.child("conditions"), BadValue::Omitted, why));
    };
    if is("Failed") && !is("FailureTarget") {
        conditions("cannot set Failed=True condition without the FailureTarget=true condition");
    }
    if is("Complete") && !is("SuccessCriteriaMet") {
        conditions("cannot set Complete=True condition without the SuccessCriteriaMet=true condition");
    }
    let finished = is("Complete") || is("Failed");
    let active = status.int("active").unwrap_or(0);
    if finished && active > 0 {
        errors.push(FieldError::invalid(STATUS.child("active"), active, "active>0 is invalid for finished job"));
    }
    if finished && start.is_null() {
        errors.push(FieldError::required(STATUS.child("startTime"), "startTime is required for finished job"));
    }
    if let Some(ready) = status.int("ready").filter(|ready| *ready > active) {
        errors.push(FieldError::invalid(STATUS.child("ready"), ready, "cannot set more ready pods than active"));
    }
    for kind in ["Failed", "Complete", "FailureTarget"] {
        if holds(old, kind) && !is(kind) {
            let why = format!("cannot disable the terminal {kind}=True condition");
            errors.push(FieldError::invalid(STATUS.child("conditions"), BadValue::Omitted, why));
        }
    }
    for field in ["failed", "succeeded"] {
        let (now, before) = (status.int(field).unwrap_or(0), old.at("status").int(field).unwrap_or(0));
        if now < before {
            let why = format!("cannot decrease the {field} counter");
            errors.push(FieldError::invalid(STATUS.child(field), now, why));
        }
    }
}

fn cron_job(object: &Value, old: Option<&Value>, errors: &mut Errors) {
    let spec = object.at("spec");
    let path = SPEC.child("schedule");
    match spec.text("schedule") {
        "" => required(errors, &path),
        schedule => {
            if let Err(why) = parse_schedule(schedule) {
                errors.push(FieldError::invalid(path, schedule, why));
            }
            if schedule.contains("TZ") {
                let why = "cannot use TZ or CRON_TZ in schedule, use timeZone field instead";
                errors.push(FieldError::invalid(path, schedule, why));
            }
        }
    }
    not_negative(errors, &SPEC.child("startingDeadlineSeconds"), spec.int("startingDeadlineSeconds"));
    if old.is_none_or(|old| old.at("spec.timeZone") != spec.at("timeZone"))
        && let Some(zone) = spec.at("timeZone").as_str()
    {
        time_zone(zone, errors);
    }
    let policies = ["Allow", "Forbid", "Replace"];
    super::rules::one_of(errors, &SPEC.child("concurrencyPolicy"), spec.text("concurrencyPolicy"), &policies);
    let (template, path) = (spec.at("jobTemplate.spec"), SPEC.child("jobTemplate.spec"));
    job_spec(template, &path, errors);
    if template.has("selector") {
        let why = "`selector` will be auto-generated";
        errors.push(FieldError::invalid(path.child("selector"), template.at("selector"), why));
    }
    if template.flag("manualSelector") == Some(true) {
        errors.push(FieldError::not_supported(path.child("manualSelector"), true, ["nil", "false"]));
    }
    for field in ["successfulJobsHistoryLimit", "failedJobsHistoryLimit"] {
        not_negative(errors, &SPEC.child(field), spec.int(field));
    }
    let name = object.text("metadata.name");
    if old.is_none() && name.len() > 52 {
        errors.push(FieldError::invalid("metadata.name", name, "must be no more than 52 characters"));
    }
}

fn time_zone(zone: &str, errors: &mut Errors) {
    let path = SPEC.child("timeZone");
    if zone.is_empty() {
        errors.push(FieldError::invalid(path, zone, "timeZone must be nil or non-empty string"));
        return;
    }
    if zone.eq_ignore_ascii_case("local") {
        let why = "timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones";
        errors.push(FieldError::invalid(path, zone, why));
        return;
    }
    // Names are case-sensitive, as file names are.
    let known = jiff::tz::TimeZone::get(zone).is_ok_and(|found| found.iana_name() == Some(zone));
    if !known {
        errors.push(FieldError::invalid(path, zone, format!("unknown time zone {zone}")));
    }
}

/// Checks a schedule: five fields of a crontab, or the name of a common one.
fn parse_schedule(schedule: &str) -> Result<(), String> {
    let schedule = match schedule.strip_prefix("TZ=").or_else(|| schedule.strip_prefix("CRON_TZ=")) {
        Some(rest) => rest.split_once(' ').map_or("", |(_, rest)| rest).trim(),
        None => schedule,
    };
    if let Some(name) = schedule.strip_prefix('@') {
        return match name {
            "yearly" | "annually" | "monthly" | "weekly" | "daily" | "midnight" | "hourly" => Ok(()),
            _ if name.starts_with("every ") => Ok(()),
            _ => Err(format!("unrecognized descriptor: @{name}")),
        };
    }
    let fields: Vec<&str> = schedule.split_whitespace().collect();
    if fields.len() != 5 {
        return Err(format!("expected exactly 5 fields, found {}: [{}]", fields.len(), fields.join(" ")));
    }
    const MONTHS: [&str; 12] = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];
    const DAYS: [&str; 7] = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"];
    let bounds: [(i64, i64, &[&str]); 5] = [(0, 59, &[]), (0, 23, &[]), (1, 31, &[]), (1, 12, &MONTHS), (0, 6, &DAYS)];
    for (field, (low, high, words)) in fields.iter().zip(bounds) {
        for range in field.split(',') {
            schedule_range(range, low, high, words)?;
        }
    }
    Ok(())
}

fn schedule_range(range: &str, low: i64, high: i64, words: &[&str]) -> Result<(), String> {
    let number = |text: &str| -> Result<i64, String> {
        if let Some(at) = words.iter().position(|word| word.eq_ignore_ascii_case(text)) {
            return Ok(low + i64::try_from(at).unwrap_or(0));
        }
        match text.parse::<i64>() {
            Ok(value) if value < 0 => Err(format!("negative number ({value}) not allowed: {text}")),
            Ok(value) => Ok(value),
            Err(_) => {
                let quoted = format!("{text:?}");
                Err(format!("failed to parse int from {text}: strconv.Atoi: parsing {quoted}: invalid syntax"))
            }
        }
    };
    let (span, step) = match range.split('/').collect::<Vec<_>>()[..] {
        [span] => (span, None),
        [span, step] => (span, Some(step)),
        _ => return Err(format!("too many slashes: {range}")),
    };
    let (start, end) = match span.split('-').collect::<Vec<_>>()[..] {
        ["*"] | ["?"] => (low, high),
        [one] => {
            let start = number(one)?;
            (start, if step.is_some() { high } else { start })
        }
        [start, end] => (number(start)?, number(end)?),
        _ => return Err(format!("too many hyphens: {range}")),
    };
    if let Some(step) = step
        && number(step)? == 0
    {
        return Err(format!("step of range should be a positive number: {range}"));
    }
    if start < low {
        return Err(format!("beginning of range ({start}) below minimum ({low}): {range}"));
    }
    if end > high {
        return Err(format!("end of range ({end}) above maximum ({high}): {range}"));
    }
    if start > end {
        return Err(format!("beginning of range ({start}) beyond end of range ({end}): {range}"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schedules() {
        for good in ["* * * * *", "*/5 0-6 1,15 jan-mar MON", "@hourly", "0 0 ? * 5/2"] {
            assert_eq!(parse_schedule(good), Ok(()), "{good}");
        }
        for bad in ["* * * *", "60 * * * *", "@sometimes", "a * * * *", "1-2-3 * * * *", "5-1 * * * *", "*/0 * * * *"] {
            assert!(parse_schedule(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn time_zones_are_known_by_their_exact_name() {
        let refused = |zone| {
            let mut errors = Errors::new();
            time_zone(zone, &mut errors);
            !errors.is_empty()
        };
        assert!(!refused("Europe/Paris") && !refused("UTC"));
        assert!(refused("europe/paris") && refused("Local") && refused("../etc") && refused(""));
    }
}
