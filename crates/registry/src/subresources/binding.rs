//! Binding: assigns a pod to a node, once.

use machinery::json::{Map, Value, json};
use machinery::options::CreateOptions;
use machinery::{GroupResource, GroupVersionKind, Status};

use crate::admission::plugin::{Attributes, Operation, Options, States};
use crate::body;
use crate::meta;
use crate::read::view::{Outcome, View};
use crate::registry::Registry;
use crate::request::{Body, Target, WriteRequest};
use crate::write::update::{rewrite_internally, wrong_uid};

/// POST of a Binding, to a pod or to the collection of bindings.
pub(crate) async fn bind(
    registry: &Registry,
    request: WriteRequest<'_, CreateOptions>,
    body: &Body,
) -> Result<Outcome, Status> {
    let WriteRequest { target, options, ctx } = request;
    let mut binding =
        body::object_of(&GroupVersionKind::new("", "v1", "Binding"), body, options.field_validation, ctx)?;
    body::check_namespace(target, &mut binding)?;
    let request = Attributes::new(Operation::Create, target, Options::Create(options), ctx);
    let name = meta::name(&binding).to_owned();
    let request = Attributes { name: if request.name.is_empty() { &name } else { request.name }, ..request };
    registry.admission().mutate(&request, &mut binding, None).await?;
    let pod = pod_of(registry, target, &binding)?;
    check(&binding)?;
    registry.admission().validate(&request, States::new(None, Some(&binding))).await?;
    let node = binding["target"]["name"].as_str().unwrap_or_default().to_owned();
    let conflict = |why: String| Status::conflict(&GroupResource::new("", "pods/binding"), pod.name(), why);
    let attributes = Attributes::new(Operation::Update, &pod, Options::Create(options), ctx);
    rewrite_internally(registry, &attributes, |old| {
        let (uid, revision) = (meta::uid(&binding), meta::resource_version(&binding));
        if !uid.is_empty() && uid != meta::uid(old) {
            return Err(wrong_uid(&pod, uid, meta::uid(old)));
        }
        if !revision.is_empty() && revision != meta::resource_version(old) {
            let stored = meta::resource_version(old);
            let why = format!(
                "Precondition failed: ResourceVersion in precondition: {revision}, ResourceVersion in object meta: {stored}"
            );
            return Err(conflict(why));
        }
        if meta::is_deleting(old) {
            return Err(conflict(format!("pod {} is being deleted, cannot be assigned to a host", pod.name())));
        }
        if let Some(assigned) = old["spec"]["nodeName"].as_str().filter(|name| !name.is_empty()) {
            return Err(conflict(format!("pod {} is already assigned to node {assigned:?}", pod.name())));
        }
        if old["spec"]["schedulingGates"].as_array().is_some_and(|gates| !gates.is_empty()) {
            return Err(conflict(format!("pod {} has non-empty .spec.schedulingGates", pod.name())));
        }
        let mut new = old.clone();
        new["spec"]["nodeName"] = json!(node);
        // A nomination says nothing about a pod that has its node.
        if let Some(status) = new["status"].as_object_mut() {
            status.remove("nominatedNodeName");
        }
        merge(&mut new, &binding, "annotations");
        merge(&mut new, &binding, "labels");
        set_scheduled(&mut new, &meta::timestamp(registry.now()));
        body::normalise(&pod.kind, &mut new, Some(old))?;
        Ok(new)
    })
    .await?;
    Ok(Outcome::new(201, View::Status(Status::success_created())))
}

/// The pod of a binding: the one in the path, or the one it names.
fn pod_of(registry: &Registry, target: &Target, binding: &Value) -> Result<Target, Status> {
    let kinds = registry.kinds();
    let kind = kinds.get("", "v1", "pods").ok_or_else(|| Status::internal("pods are not served"))?;
    let named = meta::name(binding);
    let name = match target.name.as_deref() {
        Some(name) if named != name => {
            return Err(Status::bad_request("name in URL does not match name in Binding object"));
        }
        Some(name) => name,
        None => named,
    };
    Ok(Target {
        kind: std::sync::Arc::clone(kind),
        namespace: target.namespace.clone(),
        name: Some(name.to_owned()),
        subresource: None,
    })
}

/// Validates a binding.
fn check(binding: &Value) -> Result<(), Status> {
    let errors = schema::validation::validate_binding(binding);
    if errors.is_empty() {
        return Ok(());
    }
    // The reference does not turn these into a refusal of its own.
    Err(Status::unmapped(machinery::field_error::join(&errors)))
}

fn merge(pod: &mut Value, binding: &Value, member: &str) {
    let Some(more) = binding["metadata"][member].as_object() else { return };
    let into = meta::of_mut(pod).entry(member).or_insert_with(|| Value::Object(Map::new()));
    if let Some(into) = into.as_object_mut() {
        into.extend(more.clone());
    }
}

/// Sets the condition PodScheduled.
fn set_scheduled(pod: &mut Value, now: &str) {
    let condition = json!({"type": "PodScheduled", "status": "True", "lastProbeTime": null, "lastTransitionTime": now});
    let conditions = pod["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let mut conditions: Vec<Value> =
        conditions.into_iter().filter(|condition| condition["type"] != "PodScheduled").collect();
    conditions.push(condition);
    pod["status"]["conditions"] = json!(conditions);
}
