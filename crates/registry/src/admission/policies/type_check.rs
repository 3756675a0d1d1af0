//! Type checks of a stored ValidatingAdmissionPolicy: its expressions against the schemas of the kinds that its rules name.
//!
//! The result is in the status of the policy before the write of the policy is answered. It has no effect on what the policy
//! does: an expression may be right for objects that its types do not allow.

use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::Bytes;
use cel::policy::{Declarations, PolicyVariables};
use machinery::json::{Value, json};
use machinery::media::PatchType;
use machinery::options::PatchOptions;
use schema::kind::Kind;
use schema::kinds::Kinds;

use super::table::VALIDATING;
use crate::body;
use crate::meta;
use crate::read::view::{self, Outcome, View};
use crate::registry::Registry;
use crate::request::{Context, PatchBody, Target};

/// The manager of the status.
const MANAGER: &str = "validatingadmissionpolicy-status";
/// Most kinds that the expressions of one policy are checked against.
const KINDS_MAX: usize = 10;
/// Most expressions of one policy that are checked, counted for each kind.
const EXPRESSIONS_MAX: usize = 1_000;
/// Most warnings that come with the answer to a write.
const WARNINGS_MAX: usize = 16;

/// Whether a write of this target is followed by a type check.
pub(crate) fn concerns(target: &Target) -> bool {
    target.kind.collection == VALIDATING && target.subresource.is_none()
}

/// Checks the policy that was just written and stores the result in its status. The answer shows the policy as it was written.
pub(crate) async fn publish(registry: &Registry, target: &Target, outcome: &Outcome, ctx: &Context) {
    let View::Stored { item, .. } = &outcome.view else { return };
    let Ok(policy) = view::parse(item) else { return };
    let generation = &policy["metadata"]["generation"];
    if policy["status"]["observedGeneration"] == *generation || meta::is_deleting(&policy) {
        return;
    }
    let found = check(&registry.kinds(), &policy);
    // The reference checks types later, so that its answers have no warnings; they are for those who ask for more.
    for warning in found.iter().filter(|_| ctx.explains || ctx.trace.is_some()).take(WARNINGS_MAX) {
        ctx.warnings.push(format!("{}: {}", warning.field, warning.short));
    }
    let list = found.iter().map(|warning| json!({"fieldRef": warning.field, "warning": warning.text}));
    let list: Vec<Value> = list.collect();
    let checked = if list.is_empty() { json!({}) } else { json!({"expressionWarnings": list}) };
    let name = meta::name(&policy);
    let status = json!({
        "apiVersion": target.kind.group_version().to_string(),
        "kind": target.kind.gvk.kind,
        "metadata": {"name": name},
        "status": {"observedGeneration": generation, "typeChecking": checked},
    });
    let body = PatchBody { bytes: Bytes::from(status.to_string()), kind: PatchType::Apply };
    let target = Target { name: Some(name.to_owned()), subresource: Some("status".to_owned()), ..target.clone() };
    let options = PatchOptions { field_manager: MANAGER.to_owned(), force: true, ..PatchOptions::default() };
    let ctx = Context::default();
    let request = crate::request::WriteRequest { target: &target, options: &options, ctx: &ctx };
    // The policy was written, whether or not this succeeds; the next write of it tries again.
    if let Err(status) = Box::pin(registry.patch(request, &body)).await {
        tracing::debug!(name, %status, "the type check of a policy is not stored");
    }
}

/// Something in an expression that does not fit the types.
struct Warning {
    /// `spec.validations[0].expression`
    field: String,
    /// As the status shows it, with the expression.
    text: String,
    /// In one line.
    short: String,
}

fn check(kinds: &Kinds, policy: &Value) -> Vec<Warning> {
    let spec = &policy["spec"];
    let declared: Vec<(String, Declarations)> = kinds_to_check(kinds, spec)
        .iter()
        .filter_map(|kind| Some((shown_kind(kind), declare(kinds, spec, kind)?)))
        .collect();
    let mut warnings = Vec::new();
    if declared.is_empty() {
        return warnings;
    }
    let validations = spec["validations"].as_array().into_iter().flatten();
    for (at, validation) in validations.take(EXPRESSIONS_MAX / declared.len()).enumerate() {
        for member in ["expression", "messageExpression"] {
            let expression = validation[member].as_str().unwrap_or_default();
            if expression.is_empty() {
                continue;
            }
            let (mut texts, mut shorts) = (Vec::new(), Vec::new());
            for (kind, declared) in &declared {
                let Some(issues) = declared.issues(expression) else { continue };
                texts.push(format!("{kind}: {}\n", issues.render(expression)));
                let messages: Vec<&str> = issues.list().iter().map(|issue| issue.message.as_str()).collect();
                shorts.push(format!("{kind}: {}", messages.join("; ")));
            }
            if !texts.is_empty() {
                let field = format!("spec.validations[{at}].{member}");
                warnings.push(Warning { field, text: texts.join("\n"), short: shorts.join("; ") });
            }
        }
    }
    warnings
}

fn shown_kind(kind: &Kind) -> String {
    format!("{}/{}, Kind={}", kind.gvk.group, kind.gvk.version, kind.gvk.kind)
}

/// The variables of the policy's expressions for objects of a kind.
fn declare(kinds: &Kinds, spec: &Value, kind: &Arc<Kind>) -> Option<Declarations> {
    let schema = |kind: &Kind| Some(schema::facts::json_schema::of_type(&body::type_of_kind(kind).ok()?));
    let text = |value: &Value, name: &str| value[name].as_str().unwrap_or_default().to_owned();
    let params = spec["paramKind"].is_object().then(|| {
        let (version, name) = (text(&spec["paramKind"], "apiVersion"), text(&spec["paramKind"], "kind"));
        let version = machinery::GroupVersion::parse(&version).unwrap_or_default();
        kinds.by_kind(&version.group, &version.version, &name).and_then(|kind| schema(kind))
    });
    let base = Declarations::typed_admission(&schema(kind)?, params.as_ref().map(Option::as_ref));
    let mut types = PolicyVariables::default();
    let variables = spec["variables"].as_array().map(Vec::as_slice).unwrap_or_default();
    for variable in variables {
        // A variable that does not fit has an unknown type; it is not warned about.
        let _ = types.add(&base, &text(variable, "name"), &text(variable, "expression"));
    }
    Some(base.and(&types))
}

/// The kinds that the rules of a policy name without wildcards.
fn kinds_to_check(kinds: &Kinds, spec: &Value) -> Vec<Arc<Kind>> {
    let mut found: BTreeSet<(String, String, String)> = BTreeSet::new();
    'rules: for rule in spec["matchConstraints"]["resourceRules"].as_array().into_iter().flatten() {
        let names = |member: &str| -> Vec<&str> {
            let mut names: Vec<&str> =
                rule[member].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
            names.sort_unstable();
            names
        };
        let (groups, versions) = (names("apiGroups"), names("apiVersions"));
        if groups.iter().chain(&versions).any(|name| name.contains('*')) {
            continue;
        }
        let resources: Vec<&str> = names("resources").into_iter().filter(|name| !name.contains(['*', '/'])).collect();
        let mut count = 0;
        for group in &groups {
            for version in &versions {
                for resource in &resources {
                    let Some(kind) = kinds.get(group, version, resource) else { continue };
                    let gvk = &kind.gvk;
                    found.insert((gvk.group.to_string(), gvk.version.to_string(), gvk.kind.to_string()));
                    count += 1;
                    if count == KINDS_MAX {
                        break 'rules;
                    }
                }
            }
        }
    }
    found.iter().filter_map(|(group, version, kind)| kinds.by_kind(group, version, kind).cloned()).collect()
}
