//! Eviction: deletes a pod if its disruption budget allows it.

use machinery::json::{Value, json};
use machinery::options::{CreateOptions, DeleteOptions};
use machinery::{GroupVersionKind, Status, labels};

use crate::admission::plugin::{Attributes, Operation, Options, States};
use crate::body;
use crate::collections::DISRUPTION_BUDGETS;
use crate::meta;
use crate::read::view::{self, Outcome, View};
use crate::registry::Registry;
use crate::request::{Body, Context, Target, WriteRequest};
use crate::write::delete::{Admitted, delete_admitted};
use crate::write::update::rewrite_internally;

pub(crate) async fn evict(
    registry: &Registry,
    request: WriteRequest<'_, CreateOptions>,
    body: &Body,
) -> Result<Outcome, Status> {
    let WriteRequest { target, options, ctx } = request;
    let gvk = GroupVersionKind::new("policy", "v1", "Eviction");
    let mut eviction = body::object_of(&gvk, &in_one_version(body)?, options.field_validation, ctx)?;
    body::check_namespace(target, &mut eviction)?;
    let attributes = Attributes::new(Operation::Create, target, Options::Create(options), ctx);
    registry.admission().mutate(&attributes, &mut eviction, None).await?;
    if meta::name(&eviction) != target.name() {
        return Err(Status::bad_request("name in URL does not match name in Eviction object"));
    }
    let mut deletion = match eviction.get("deleteOptions") {
        Some(options) => DeleteOptions::from_value(options)?,
        None => DeleteOptions::default(),
    };
    deletion.dry_run |= options.dry_run;
    registry.admission().validate(&attributes, States::new(None, Some(&eviction))).await?;
    let pod_target = target.parent();
    let item = registry.storage().current(&registry.key(&pod_target)?).await?;
    let item = item.ok_or_else(|| Status::not_found(&target.gr(), target.name()))?;
    let pod = view::parse(&item)?;
    let is_idle = matches!(pod["status"]["phase"].as_str(), Some("Pending" | "Succeeded" | "Failed"));
    if !is_idle && !meta::is_deleting(&pod) {
        take_disruption(registry, &pod_target, &pod, &deletion, ctx).await?;
    }
    if !deletion.dry_run {
        note_disruption(registry, &pod_target, ctx).await?;
    }
    let deletion = WriteRequest { target: &pod_target, options: &deletion, ctx };
    delete_admitted(registry, deletion, Admitted::Before).await?;
    Ok(Outcome::new(201, View::Status(Status::success_created())))
}

/// Takes one disruption from the budget that covers the pod, or refuses if none is left.
async fn take_disruption(
    registry: &Registry,
    target: &Target,
    pod: &Value,
    deletion: &DeleteOptions,
    ctx: &Context,
) -> Result<(), Status> {
    let namespace = target.namespace.as_deref();
    let mut covering = Vec::new();
    registry.storage().refuse_damaged(DISRUPTION_BUDGETS, namespace)?;
    for budget in registry.storage().values(DISRUPTION_BUDGETS, namespace) {
        let selector = labels::Selector::from_label_selector(&budget["spec"]["selector"]);
        if selector.is_ok_and(|selector| selector.matches_value(&pod["metadata"]["labels"])) {
            covering.push(budget);
        }
    }
    let budget = match covering.as_slice() {
        [] => return Ok(()),
        [budget] => budget,
        _ => {
            return Err(Status::unmapped(
                "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.",
            ));
        }
    };
    let ready = pod["status"]["conditions"]
        .as_array()
        .is_some_and(|conditions| conditions.iter().any(|c| c["type"] == "Ready" && c["status"] == "True"));
    let healthy_enough = budget["status"]["currentHealthy"].as_i64() >= budget["status"]["desiredHealthy"].as_i64()
        && budget["status"]["desiredHealthy"].as_i64().unwrap_or_default() > 0;
    let always = budget["spec"]["unhealthyPodEvictionPolicy"] == "AlwaysAllow";
    if !ready && (always || healthy_enough) {
        return Ok(());
    }
    let kinds = registry.kinds();
    let kind = kinds
        .get("policy", "v1", "poddisruptionbudgets")
        .ok_or_else(|| Status::internal("disruption budgets are not served"))?;
    let budget_target = Target {
        kind: std::sync::Arc::clone(kind),
        namespace: target.namespace.clone(),
        name: Some(meta::name(budget).to_owned()),
        subresource: None,
    };
    let pod_name = target.name().to_owned();
    let now = meta::timestamp(registry.now());
    let attributes = Attributes::new(Operation::Update, &budget_target, Options::Delete(deletion), ctx);
    rewrite_internally(registry, &attributes, |old| {
        let name = meta::name(old);
        let observed = old["status"]["observedGeneration"].as_i64().unwrap_or_default();
        if observed < old["metadata"]["generation"].as_i64().unwrap_or_default() {
            let why = format!("The disruption budget {name} is still being processed by the server.");
            return Err(Status::disruption_budget(&why, Some(10)));
        }
        let allowed = old["status"]["disruptionsAllowed"].as_i64().unwrap_or_default();
        if allowed <= 0 {
            let (needs, has) = (&old["status"]["desiredHealthy"], &old["status"]["currentHealthy"]);
            let why = format!("The disruption budget {name} needs {needs} healthy pods and has {has} currently");
            return Err(Status::disruption_budget(&why, None));
        }
        let mut new = old.clone();
        new["status"]["disruptionsAllowed"] = json!(allowed - 1);
        new["status"]["disruptedPods"][pod_name.as_str()] = json!(now);
        body::normalise(kind, &mut new, Some(old))?;
        Ok(new)
    })
    .await?;
    Ok(())
}

/// Sets the condition that a watcher sees before the pod is deleted.
async fn note_disruption(registry: &Registry, target: &Target, ctx: &Context) -> Result<(), Status> {
    let now = meta::timestamp(registry.now());
    let attributes = Attributes::new(Operation::Update, target, Options::None, ctx);
    rewrite_internally(registry, &attributes, |old| {
        let mut new = old.clone();
        let conditions = old["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let mut conditions: Vec<Value> =
            conditions.into_iter().filter(|condition| condition["type"] != "DisruptionTarget").collect();
        conditions.push(json!({
            "type": "DisruptionTarget",
            "status": "True",
            "reason": "EvictionByEvictionAPI",
            "message": "Eviction API: evicting",
            "lastProbeTime": null,
            "lastTransitionTime": now,
        }));
        new["status"]["conditions"] = json!(conditions);
        body::normalise(&target.kind, &mut new, Some(old))?;
        Ok(new)
    })
    .await?;
    Ok(())
}

/// Reads both versions of an eviction, which have the same fields, as one.
fn in_one_version(body: &Body) -> Result<Body, Status> {
    let Ok(mut sent) = serde_json::from_slice::<Value>(&body.bytes) else { return Ok(body.clone()) };
    let Some(version) = sent["apiVersion"].as_str() else { return Ok(body.clone()) };
    match version {
        "policy/v1" | "" => Ok(body.clone()),
        "policy/v1beta1" => {
            sent["apiVersion"] = json!("policy/v1");
            Ok(Body { bytes: sent.to_string().into(), media: body.media })
        }
        full => {
            let version = full.rsplit('/').next().unwrap_or_default();
            Err(Status::bad_request(format!(
                "Eviction in version \"{version}\" cannot be handled as a Eviction: no kind \"Eviction\" is registered for \
                 version \"{full}\" in scheme \"pkg/api/legacyscheme/scheme.go:30\""
            )))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use machinery::media::MediaType;

    #[test]
    fn evictions_come_in_two_versions() {
        let sent = |version: &str| {
            let text = json!({"apiVersion": version, "kind": "Eviction"}).to_string();
            in_one_version(&Body { bytes: text.into(), media: MediaType::Json })
        };
        assert!(sent("policy/v1beta1").unwrap().bytes.windows(11).any(|part| part == b"\"policy/v1\""));
        assert_eq!(sent("policy/v2").unwrap_err().code, 400);
        let yaml = Body { bytes: "kind: Eviction".into(), media: MediaType::Yaml };
        assert_eq!(in_one_version(&yaml).unwrap().bytes, yaml.bytes);
    }
}
