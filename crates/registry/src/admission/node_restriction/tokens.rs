//! Tokens that a node asks for: bound to a pod on it, for an audience that the pod names.

use access::{Authorizer, ResourceAttributes, What};
use machinery::Status;
use machinery::go_text::quote;
use machinery::json::Value;

use super::Request;
use crate::collections::{CSI_DRIVERS, PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES, PODS};
use crate::meta;
use crate::read::view;

pub(super) async fn admit(request: &Request<'_>, authorizer: &dyn Authorizer) -> Result<(), Status> {
    let spec = &request.object["spec"];
    let bound = &spec["boundObjectRef"];
    let text = |member: &str| bound[member].as_str().unwrap_or_default();
    if text("apiVersion") != "v1" || text("kind") != "Pod" || text("name").is_empty() {
        return request.refuse("node requested token not bound to a pod");
    }
    if text("uid").is_empty() {
        return request.refuse("node requested token with a pod binding without a uid");
    }
    let namespace = request.attributes.target.namespace.as_deref();
    let Some(pod) = request.storage.cached(PODS, namespace, text("name")) else {
        return Err(Status::not_found(&machinery::GroupResource::new("", "pods"), text("name")));
    };
    let pod = view::parse(&pod)?;
    if text("uid") != meta::uid(&pod) {
        return request.refuse(format!(
            "the UID in the bound object reference ({}) does not match the UID in record. The object might have been \
             deleted and then recreated",
            text("uid")
        ));
    }
    if pod["spec"]["nodeName"] != request.node {
        return request.refuse("node requested token bound to a pod scheduled on a different node");
    }
    check_audience(request, authorizer, &pod).await
}

async fn check_audience(request: &Request<'_>, authorizer: &dyn Authorizer, pod: &Value) -> Result<(), Status> {
    let audiences = request.object["spec"]["audiences"].as_array().map(|list| &**list).unwrap_or_default();
    let audience = match audiences {
        [] => "",
        [one] => one.as_str().unwrap_or_default(),
        _ => return request.refuse("node may only request 0 or 1 audiences"),
    };
    if names_audience(request, pod, audience) {
        return Ok(());
    }
    let target = request.attributes.target;
    let user = &request.attributes.ctx.user;
    let about = ResourceAttributes {
        group: &target.kind.gvk.group,
        version: &target.kind.gvk.version,
        resource: audience,
        namespace: target.namespace.as_deref().unwrap_or_default(),
        name: request.attributes.name,
        ..ResourceAttributes::default()
    };
    let verb = "request-serviceaccounts-token-audience";
    let asked = access::Attributes { user, verb, what: What::Resource(about) };
    if authorizer.authorize(&asked).get().await.allowed {
        return Ok(());
    }
    request.refuse(format!(
        "audience {} not found in pod spec volume, {} is not authorized to request tokens for this audience",
        quote(audience),
        user.name
    ))
}

/// Whether a volume of the pod needs a token for this audience: a projected one, or one of a CSI driver that asks for it.
fn names_audience(request: &Request<'_>, pod: &Value, audience: &str) -> bool {
    let volumes = pod["spec"]["volumes"].as_array().map(|list| &**list).unwrap_or_default();
    volumes.iter().any(|volume| {
        let sources = volume["projected"]["sources"].as_array().map(|list| &**list).unwrap_or_default();
        let of = |token: &Value| token.is_object() && token["audience"].as_str().unwrap_or_default() == audience;
        sources.iter().any(|source| of(&source["serviceAccountToken"]))
            || driver(request, pod, volume).is_some_and(|driver| asks_for(request, &driver, audience))
    })
}

/// The CSI driver of a volume.
fn driver(request: &Request<'_>, pod: &Value, volume: &Value) -> Option<String> {
    if let Some(driver) = volume["csi"]["driver"].as_str() {
        return Some(driver.to_owned());
    }
    let claim = match volume["persistentVolumeClaim"]["claimName"].as_str() {
        Some(claim) => claim.to_owned(),
        None if volume["ephemeral"]["volumeClaimTemplate"].is_object() => {
            format!("{}-{}", meta::name(pod), volume["name"].as_str().unwrap_or_default())
        }
        None => return None,
    };
    let namespace = request.attributes.target.namespace.as_deref();
    let claim = request.storage.cached(PERSISTENT_VOLUME_CLAIMS, namespace, &claim)?;
    let claim = view::parse(&claim).ok()?;
    let volume = request.storage.cached(PERSISTENT_VOLUMES, None, claim["spec"]["volumeName"].as_str()?)?;
    view::parse(&volume).ok()?["spec"]["csi"]["driver"].as_str().map(str::to_owned)
}

fn asks_for(request: &Request<'_>, driver: &str, audience: &str) -> bool {
    let found = request.storage.cached(CSI_DRIVERS, None, driver).and_then(|item| view::parse(&item).ok());
    let tokens = found.as_ref().and_then(|driver| driver["spec"]["tokenRequests"].as_array());
    tokens.is_some_and(|tokens| tokens.iter().any(|token| token["audience"].as_str().unwrap_or_default() == audience))
}
