//! Defaults of the kinds of the core group.

use machinery::json::{Value, json};

use super::{pod, round_up, spec, volume, workload};
use crate::walk::{Fields, Fill as _};

pub(super) fn apply(kind: &str, object: &mut Fields) {
    match kind {
        "Pod" => pod::pod(object),
        "PodTemplate" => {
            if let Some(template) = object.child("template") {
                pod::template(template);
            }
        }
        "ReplicationController" => workload::replication_controller(object),
        "Service" => service(object),
        "Secret" => secret(object),
        "Namespace" => namespace(object),
        "Node" => node(object),
        "PersistentVolume" => {
            if let Some(status) = object.child_or_new("status") {
                status.fill_empty("phase", "Pending");
            }
            if let Some(spec) = spec(object) {
                volume::source(spec);
                round_up(spec, &["capacity"]);
                spec.fill_empty("persistentVolumeReclaimPolicy", "Retain");
                spec.fill("volumeMode", "Filesystem");
            }
        }
        "PersistentVolumeClaim" => claim(object),
        "Endpoints" => {
            for subset in object.items("subsets") {
                for port in subset.items("ports") {
                    port.fill_empty("protocol", "TCP");
                }
            }
        }
        "LimitRange" => limit_range(object),
        "ResourceQuota" => {
            if let Some(spec) = spec(object) {
                round_up(spec, &["hard"]);
            }
        }
        _ => {}
    }
}

pub(super) fn claim(object: &mut Fields) {
    if let Some(status) = object.child_or_new("status") {
        status.fill_empty("phase", "Pending");
    }
    if let Some(spec) = spec(object) {
        spec.fill("volumeMode", "Filesystem");
        if let Some(resources) = spec.child("resources") {
            round_up(resources, &["limits", "requests"]);
        }
    }
}

/// Moves `stringData`, which is write-only, into `data`.
fn secret(object: &mut Fields) {
    use base64::Engine as _;
    object.fill_empty("type", "Opaque");
    let Some(Value::Object(texts)) = object.shift_remove("stringData") else { return };
    if texts.is_empty() {
        return;
    }
    if let Some(data) = object.child_or_new("data") {
        for (key, text) in texts {
            let encoded = base64::engine::general_purpose::STANDARD.encode(text.as_str().unwrap_or_default());
            data.insert(key, encoded.into());
        }
    }
}

fn namespace(object: &mut Fields) {
    if let Some(metadata) = object.child("metadata") {
        let name = metadata.word("name").to_owned();
        if !name.is_empty()
            && let Some(labels) = metadata.child_or_new("labels")
        {
            labels.insert("kubernetes.io/metadata.name", name.into());
        }
    }
    if let Some(status) = object.child_or_new("status") {
        status.fill_empty("phase", "Active");
    }
}

fn node(object: &mut Fields) {
    if let Some(status) = object.child("status") {
        round_up(status, &["capacity", "allocatable"]);
    }
    if let Some(status) = object.child("status")
        && let Some(capacity) = status.get("capacity").filter(|capacity| capacity.is_object()).cloned()
    {
        status.fill("allocatable", capacity);
    }
    let Some(spec) = spec(object) else { return };
    // Two fields hold one address range.
    let first = spec.get("podCIDRs").and_then(|ranges| ranges.get(0)).cloned();
    match (spec.word("podCIDR"), first) {
        ("", Some(range)) => {
            spec.insert("podCIDR", range);
        }
        (range, None) if !range.is_empty() => {
            let range = range.to_owned();
            spec.insert("podCIDRs", json!([range]));
        }
        _ => {}
    }
}

fn service(object: &mut Fields) {
    let Some(spec) = spec(object) else { return };
    spec.fill_empty("sessionAffinity", "None");
    match spec.word("sessionAffinity") {
        "None" => {
            spec.shift_remove("sessionAffinityConfig");
        }
        "ClientIP" => {
            let timeout =
                spec.get("sessionAffinityConfig").and_then(|config| config.pointer("/clientIP/timeoutSeconds"));
            if timeout.is_none_or(Value::is_null) {
                spec.insert("sessionAffinityConfig", json!({"clientIP": {"timeoutSeconds": 10800}}));
            }
        }
        _ => {}
    }
    spec.fill_empty("type", "ClusterIP");
    for port in spec.items("ports") {
        port.fill_empty("protocol", "TCP");
        let number = port.get("port").cloned().unwrap_or(Value::Null);
        port.fill_empty("targetPort", number);
    }
    let kind = spec.word("type").to_owned();
    let external_addresses = spec.get("externalIPs").and_then(Value::as_array).is_some_and(|list| !list.is_empty());
    if matches!(kind.as_str(), "NodePort" | "LoadBalancer") || (kind == "ClusterIP" && external_addresses) {
        spec.fill_empty("externalTrafficPolicy", "Cluster");
    }
    if matches!(kind.as_str(), "NodePort" | "LoadBalancer" | "ClusterIP") {
        spec.fill("internalTrafficPolicy", "Cluster");
    }
    if kind == "LoadBalancer" {
        spec.fill("allocateLoadBalancerNodePorts", true);
        let ingress = object.child("status").and_then(|status| status.child("loadBalancer"));
        for address in ingress.into_iter().flat_map(|balancer| balancer.items("ingress")) {
            if !address.word("ip").is_empty() {
                address.fill("ipMode", "VIP");
            }
        }
    }
}

fn limit_range(object: &mut Fields) {
    let Some(spec) = spec(object) else { return };
    for limit in spec.items("limits") {
        round_up(limit, &["max", "min", "default", "defaultRequest", "maxLimitRequestRatio"]);
        if limit.word("type") != "Container" {
            continue;
        }
        // A default limit is the maximum; a default request is the default limit, else the minimum.
        for (from, to) in [("max", "default"), ("default", "defaultRequest"), ("min", "defaultRequest")] {
            let Some(amounts) = limit.get(from).and_then(Value::as_object).cloned() else { continue };
            if amounts.is_empty() {
                continue;
            }
            if let Some(target) = limit.child_or_new(to) {
                for (name, amount) in amounts {
                    target.fill(&name, amount);
                }
            }
        }
    }
}
