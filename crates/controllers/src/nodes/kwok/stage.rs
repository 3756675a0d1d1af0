//! KWOK's `Stage`: which objects it is about, after which time, and what then happens to them.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Value, json};

use super::functions::Facts;
use super::query::Query;
use super::template::Template;
use crate::nodes::stages::parse_duration;

/// A stage, ready to be used.
#[derive(Debug, Clone)]
pub(in crate::nodes) struct Stage {
    pub(in crate::nodes) name: String,
    /// `Pod` or `Node`.
    pub(in crate::nodes) kind: Kind,
    labels: BTreeMap<String, String>,
    annotations: BTreeMap<String, String>,
    requirements: Vec<Requirement>,
    weight: i64,
    weight_from: Option<Query>,
    delay: Option<Measure>,
    jitter: Option<Measure>,
    steps: Vec<Step>,
}

/// The kinds whose stages are simulated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::nodes) enum Kind {
    Pod,
    Node,
}

#[derive(Debug, Clone)]
struct Requirement {
    query: Query,
    operator: Operator,
    values: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
enum Operator {
    In,
    NotIn,
    Exists,
    DoesNotExist,
}

/// A duration that is given, or that is read from the object.
#[derive(Debug, Clone)]
struct Measure {
    fixed: Option<Duration>,
    from: Option<Query>,
}

#[derive(Debug, Clone)]
enum Step {
    Event { kind: String, reason: String, message: String },
    Finalizers { add: Vec<String>, remove: Vec<String>, empty: bool },
    Delete,
    Patch { subresource: String, root: String, template: Template, form: PatchForm },
}

/// How a patch is meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(in crate::nodes) enum PatchForm {
    Json,
    Merge,
    Strategic,
}

/// One write or event of a stage.
#[derive(Debug, Clone, PartialEq)]
pub(in crate::nodes) enum Action {
    Event { kind: String, reason: String, message: String },
    Patch { subresource: String, form: PatchForm, body: Value },
    Delete,
}

/// Draws of a stage are below this.
const JITTER_MAX: Duration = Duration::from_secs(366 * 86_400);

impl Stage {
    /// Reads the object. The error names the stage and what is not simulated.
    pub(in crate::nodes) fn of(object: &Value) -> Result<Self, String> {
        let name = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        Self::read(&name, object).map_err(|why| format!("Stage {name:?}: {why}"))
    }

    fn read(name: &str, object: &Value) -> Result<Self, String> {
        let spec: Spec = serde_json::from_value(object["spec"].clone()).map_err(|error| error.to_string())?;
        let group = spec.resource_ref.api_group.as_deref().unwrap_or("v1");
        let kind = match (group, spec.resource_ref.kind.as_str()) {
            ("v1" | "", "Pod") => Kind::Pod,
            ("v1" | "", "Node") => Kind::Node,
            (group, kind) => {
                return Err(format!("it is about {kind} of {group}; stages of Pod and Node are simulated"));
            }
        };
        let selector = spec.selector.unwrap_or_default();
        let requirements = selector.match_expressions.into_iter().map(Requirement::read).collect::<Result<_, _>>()?;
        let mut steps = Vec::new();
        if let Some(next) = spec.next {
            steps.extend(next.steps()?);
        }
        for step in spec.steps {
            steps.extend(step.steps()?);
        }
        let delay = spec.delay.unwrap_or_default();
        let jittered = delay.jitter_duration_milliseconds.is_some() || delay.jitter_duration_from.is_some();
        let milliseconds = |value: Option<u64>| value.map(Duration::from_millis);
        let has_delay = delay.duration_milliseconds.is_some() || delay.duration_from.is_some() || jittered;
        Ok(Stage {
            name: name.to_owned(),
            kind,
            labels: selector.match_labels,
            annotations: selector.match_annotations,
            requirements,
            weight: spec.weight,
            weight_from: spec.weight_from.map(From_::query).transpose()?,
            delay: has_delay
                .then(|| -> Result<_, String> {
                    let fixed = Some(milliseconds(delay.duration_milliseconds).unwrap_or_default());
                    Ok(Measure { fixed, from: delay.duration_from.map(From_::query).transpose()? })
                })
                .transpose()?,
            jitter: jittered
                .then(|| -> Result<_, String> {
                    let fixed = milliseconds(delay.jitter_duration_milliseconds);
                    Ok(Measure { fixed, from: delay.jitter_duration_from.map(From_::query).transpose()? })
                })
                .transpose()?,
            steps,
        })
    }

    /// True if the stage is about this object.
    pub(in crate::nodes) fn matches(&self, object: &Value) -> bool {
        let has = |map: &str, wanted: &BTreeMap<String, String>| {
            wanted.iter().all(|(name, value)| object["metadata"][map][name].as_str() == Some(value))
        };
        has("labels", &self.labels)
            && has("annotations", &self.annotations)
            && self.requirements.iter().all(|requirement| requirement.is_met(object))
    }

    /// None if the object has a weight that cannot be read.
    fn weight(&self, object: &Value) -> Option<i64> {
        let Some(found) = self.weight_from.as_ref().and_then(|query| query.values(object)?.into_iter().next()) else {
            return Some(self.weight);
        };
        match found {
            Value::String(text) => text.trim().parse().ok(),
            Value::Number(number) => number.as_i64().or_else(|| number.as_f64().map(|number| number as i64)),
            _ => Some(self.weight),
        }
    }

    /// The wait before the stage; `drawn` is a random number in 0..1.
    pub(in crate::nodes) fn delay(&self, object: &Value, now: Timestamp, drawn: f64) -> Duration {
        let Some(delay) = self.delay.as_ref().and_then(|delay| delay.of(object, now)) else { return Duration::ZERO };
        match self.jitter.as_ref().and_then(|jitter| jitter.of(object, now)) {
            Some(jitter) if jitter <= delay => jitter,
            Some(jitter) => delay + (jitter - delay).min(JITTER_MAX).mul_f64(drawn),
            None => delay,
        }
    }

    /// What happens to an object.
    pub(in crate::nodes) fn actions(&self, object: &Value, facts: &dyn Facts) -> Result<Vec<Action>, String> {
        let mut actions = Vec::new();
        for step in &self.steps {
            match step {
                Step::Event { kind, reason, message } => {
                    let (kind, reason, message) = (kind.clone(), reason.clone(), message.clone());
                    actions.push(Action::Event { kind, reason, message });
                }
                Step::Finalizers { add, remove, empty } => {
                    actions.extend(finalizers(object, add, remove, *empty));
                }
                Step::Delete => {
                    actions.push(Action::Delete);
                    break;
                }
                Step::Patch { subresource, root, template, form } => {
                    let text = template.render(object, facts)?;
                    let document = machinery::yaml::read(text.as_bytes())?;
                    let mut body = serde_json::to_value(&document.value).map_err(|error| error.to_string())?;
                    if !root.is_empty() {
                        body = rooted(root, body, *form);
                    }
                    actions.push(Action::Patch { subresource: subresource.clone(), form: *form, body });
                }
            }
        }
        Ok(actions)
    }
}

/// The stage that comes next for an object: of those that match, one by weight. `drawn` is a random number in 0..1.
pub(in crate::nodes) fn choose<'a>(
    stages: impl Iterator<Item = &'a Stage>,
    object: &Value,
    drawn: f64,
) -> Option<&'a Stage> {
    let mut matching: Vec<(&Stage, Option<i64>)> =
        stages.filter(|stage| stage.matches(object)).map(|stage| (stage, stage.weight(object))).collect();
    let total: i64 = matching.iter().filter_map(|(_, weight)| *weight).map(|weight| weight.max(0)).sum();
    if total == 0 {
        // Those whose weight cannot be read come last.
        if matching.iter().any(|(_, weight)| weight.is_some()) {
            matching.retain(|(_, weight)| weight.is_some());
        }
        let at = (drawn * matching.len() as f64) as usize;
        return matching.get(at.min(matching.len().saturating_sub(1))).map(|(stage, _)| *stage);
    }
    let mut left = (drawn * total as f64) as i64;
    for (stage, weight) in &matching {
        let weight = weight.unwrap_or_default().max(0);
        if weight > 0 && left < weight {
            return Some(stage);
        }
        left -= weight;
    }
    matching.last().map(|(stage, _)| *stage)
}

fn rooted(root: &str, body: Value, form: PatchForm) -> Value {
    if form != PatchForm::Json {
        return json!({ root: body });
    }
    let mut operations = body;
    for operation in operations.as_array_mut().into_iter().flatten() {
        let path = format!("/{root}{}", operation["path"].as_str().unwrap_or_default());
        operation["path"] = path.into();
    }
    operations
}

/// The finalizers as they should be, guarded by the ones they are.
fn finalizers(object: &Value, add: &[String], remove: &[String], empty: bool) -> Option<Action> {
    let known: Vec<&str> =
        object["metadata"]["finalizers"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let mut wanted: Vec<&str> =
        known.iter().copied().filter(|name| !empty && !remove.iter().any(|removed| removed == name)).collect();
    wanted.extend(add.iter().map(String::as_str).filter(|name| !known.contains(name) || empty));
    wanted.dedup();
    if wanted == known {
        return None;
    }
    let value = if wanted.is_empty() { Value::Null } else { json!(wanted) };
    let body = json!({"metadata": {"finalizers": value}});
    Some(Action::Patch { subresource: String::new(), form: PatchForm::Merge, body })
}

impl Requirement {
    fn read(spec: MatchExpression) -> Result<Self, String> {
        if spec.cel.is_some() {
            return Err("expressions in CEL are not simulated; write `key`, `operator` and `values` with jq".to_owned());
        }
        let (key, operator, values) = match spec.jq {
            Some(jq) => (jq.key, jq.operator, jq.values),
            None => {
                (spec.key.unwrap_or_default(), spec.operator.ok_or("an expression without an operator")?, spec.values)
            }
        };
        match operator {
            Operator::In | Operator::NotIn if values.is_empty() => {
                return Err(format!("the operator of {key:?} needs values"));
            }
            Operator::Exists | Operator::DoesNotExist if !values.is_empty() => {
                return Err(format!("the operator of {key:?} has no values"));
            }
            _ => {}
        }
        Ok(Requirement { query: Query::parse(&key)?, operator, values })
    }

    fn is_met(&self, object: &Value) -> bool {
        let found = self.query.values(object);
        let listed = |value: &Value| match value {
            Value::String(text) => self.values.contains(text),
            Value::Bool(_) | Value::Number(_) => self.values.contains(&value.to_string()),
            _ => false,
        };
        let values = found.unwrap_or_default();
        match self.operator {
            Operator::In => values.iter().any(listed),
            Operator::NotIn => !values.iter().any(listed),
            Operator::Exists => !values.is_empty(),
            Operator::DoesNotExist => values.is_empty(),
        }
    }
}

impl Measure {
    fn of(&self, object: &Value, now: Timestamp) -> Option<Duration> {
        let Some(found) = self.from.as_ref().and_then(|query| query.values(object)?.into_iter().next()) else {
            return self.fixed;
        };
        let Value::String(text) = found else { return self.fixed };
        if text.is_empty() {
            return None;
        }
        if let Ok(time) = text.parse::<Timestamp>() {
            return Some(Duration::try_from(time.duration_since(now)).unwrap_or_default());
        }
        parse_duration(&text).ok().or(self.fixed)
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Spec {
    resource_ref: ResourceRef,
    selector: Option<Selector>,
    #[serde(default)]
    weight: i64,
    weight_from: Option<From_>,
    delay: Option<Delay>,
    next: Option<Next>,
    #[serde(default)]
    steps: Vec<Next>,
    /// The watch shows each change soon enough.
    #[serde(default, rename = "immediateNextStage")]
    _immediate_next_stage: Option<bool>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct ResourceRef {
    api_group: Option<String>,
    kind: String,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct Selector {
    match_labels: BTreeMap<String, String>,
    match_annotations: BTreeMap<String, String>,
    match_expressions: Vec<MatchExpression>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct MatchExpression {
    cel: Option<Value>,
    jq: Option<Jq>,
    key: Option<String>,
    operator: Option<Operator>,
    #[serde(default)]
    values: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Jq {
    key: String,
    operator: Operator,
    #[serde(default)]
    values: Vec<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct From_ {
    cel: Option<Value>,
    jq: Option<JqExpression>,
    expression_from: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct JqExpression {
    expression: String,
}

impl From_ {
    fn query(self) -> Result<Query, String> {
        if self.cel.is_some() {
            return Err("expressions in CEL are not simulated; write `expressionFrom` with jq".to_owned());
        }
        let text = self.jq.map(|jq| jq.expression).or(self.expression_from).unwrap_or_default();
        Query::parse(&text)
    }
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct Delay {
    duration_milliseconds: Option<u64>,
    duration_from: Option<From_>,
    jitter_duration_milliseconds: Option<u64>,
    jitter_duration_from: Option<From_>,
}

/// `next`, or one of `steps`.
#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct Next {
    event: Option<EventSpec>,
    finalizers: Option<FinalizersSpec>,
    delete: bool,
    patch: Option<PatchSpec>,
    patches: Vec<PatchSpec>,
    status_template: Option<String>,
    status_subresource: Option<String>,
    status_patch_as: Option<Value>,
    apply: Option<Value>,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
struct EventSpec {
    #[serde(rename = "type")]
    kind: String,
    reason: String,
    message: String,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
struct FinalizersSpec {
    add: Vec<FinalizerItem>,
    remove: Vec<FinalizerItem>,
    empty: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FinalizerItem {
    value: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct PatchSpec {
    #[serde(default)]
    subresource: String,
    #[serde(default)]
    root: String,
    template: String,
    #[serde(rename = "type")]
    form: Option<PatchForm>,
    impersonation: Option<Value>,
}

impl Next {
    fn steps(self) -> Result<Vec<Step>, String> {
        if self.apply.is_some() {
            return Err("`apply` is not simulated".to_owned());
        }
        if self.status_patch_as.is_some() {
            return Err("`statusPatchAs` is not simulated: nodes write as themselves".to_owned());
        }
        let mut steps = Vec::new();
        if let Some(event) = self.event {
            steps.push(Step::Event { kind: event.kind, reason: event.reason, message: event.message });
        }
        if let Some(finalizers) = self.finalizers {
            let names = |items: Vec<FinalizerItem>| items.into_iter().map(|item| item.value).collect();
            let (add, remove) = (names(finalizers.add), names(finalizers.remove));
            steps.push(Step::Finalizers { add, remove, empty: finalizers.empty });
        }
        if self.delete {
            steps.push(Step::Delete);
        }
        let of_status = self.status_template.map(|template| PatchSpec {
            subresource: self.status_subresource.unwrap_or_else(|| "status".to_owned()),
            root: "status".to_owned(),
            template,
            form: None,
            impersonation: None,
        });
        for patch in of_status.into_iter().chain(self.patch).chain(self.patches) {
            if patch.impersonation.is_some() {
                return Err("`impersonation` is not simulated: nodes write as themselves".to_owned());
            }
            let template = Template::parse(&patch.template)
                .map_err(|why| format!("its template has {why}, which is not understood"))?;
            let form = patch.form.unwrap_or(PatchForm::Strategic);
            steps.push(Step::Patch { subresource: patch.subresource, root: patch.root, template, form });
        }
        Ok(steps)
    }
}
