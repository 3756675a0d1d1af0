//! Defaults of networking, storage, access control, admission, flow control, devices and the rest.

use machinery::json::{Value, json};

use super::spec;
use crate::walk::{Fields, Fill as _};

pub(super) fn apply(group: &str, kind: &str, object: &mut Fields) {
    match (group, kind) {
        ("networking.k8s.io", "NetworkPolicy") => network_policy(object),
        ("networking.k8s.io", "IngressClass") => {
            if let Some(parameters) = spec(object).and_then(|spec| spec.child("parameters")) {
                parameters.fill("scope", "Cluster");
            }
        }
        ("discovery.k8s.io", "EndpointSlice") => {
            for port in object.items("ports") {
                port.fill("name", "");
                port.fill("protocol", "TCP");
            }
        }
        ("storage.k8s.io", "StorageClass") => {
            object.fill("reclaimPolicy", "Delete");
            object.fill("volumeBindingMode", "Immediate");
        }
        ("storage.k8s.io", "CSIDriver") => csi_driver(object),
        ("storage.k8s.io", "VolumeAttachment") => {
            let inline = spec(object).and_then(|spec| spec.child("source")).and_then(|s| s.child("inlineVolumeSpec"));
            if let Some(volume) = inline {
                super::volume::source(volume);
            }
        }
        ("rbac.authorization.k8s.io", "RoleBinding" | "ClusterRoleBinding") => role_binding(object),
        ("scheduling.k8s.io", "PriorityClass") => object.fill("preemptionPolicy", "PreemptLowerPriority"),
        ("admissionregistration.k8s.io", _) => admission(kind, object),
        ("flowcontrol.apiserver.k8s.io", "FlowSchema") => {
            if let Some(spec) = spec(object) {
                spec.fill_empty("matchingPrecedence", 1000);
            }
        }
        ("flowcontrol.apiserver.k8s.io", "PriorityLevelConfiguration") => priority_level(object),
        ("resource.k8s.io", "ResourceClaim") => {
            if let Some(spec) = spec(object) {
                device_requests(spec);
            }
        }
        ("resource.k8s.io", "ResourceClaimTemplate") => {
            if let Some(spec) = spec(object).and_then(|template| template.child("spec")) {
                device_requests(spec);
            }
        }
        ("apiregistration.k8s.io", "APIService") => {
            if let Some(service) = spec(object).and_then(|spec| spec.child("service")) {
                service.fill("port", 443);
            }
        }
        ("apiextensions.k8s.io", "CustomResourceDefinition") => definition(object),
        _ => {}
    }
}

fn network_policy(object: &mut Fields) {
    let Some(spec) = spec(object) else { return };
    for direction in ["ingress", "egress"] {
        for rule in spec.items(direction) {
            for port in rule.items("ports") {
                port.fill("protocol", "TCP");
            }
        }
    }
    let egress = spec.get("egress").and_then(Value::as_array).is_some_and(|rules| !rules.is_empty());
    spec.fill_empty("policyTypes", if egress { json!(["Ingress", "Egress"]) } else { json!(["Ingress"]) });
}

fn csi_driver(object: &mut Fields) {
    let Some(spec) = spec(object) else { return };
    spec.fill("attachRequired", true);
    spec.fill("podInfoOnMount", false);
    spec.fill("storageCapacity", false);
    spec.fill("fsGroupPolicy", "ReadWriteOnceWithFSType");
    spec.fill_empty("volumeLifecycleModes", json!(["Persistent"]));
    spec.fill("requiresRepublish", false);
    spec.fill("seLinuxMount", false);
}

fn role_binding(object: &mut Fields) {
    const GROUP: &str = "rbac.authorization.k8s.io";
    if let Some(role) = object.child("roleRef") {
        role.fill_empty("apiGroup", GROUP);
    }
    for subject in object.items("subjects") {
        if matches!(subject.word("kind"), "User" | "Group") {
            subject.fill_empty("apiGroup", GROUP);
        }
    }
}

fn admission(kind: &str, object: &mut Fields) {
    match kind {
        "ValidatingWebhookConfiguration" | "MutatingWebhookConfiguration" => {
            for hook in object.items("webhooks") {
                hook.fill("failurePolicy", "Fail");
                match_resources(hook);
                hook.fill("timeoutSeconds", 10);
                if kind.starts_with('M') {
                    hook.fill("reinvocationPolicy", "Never");
                }
                rules(hook, "rules");
                if let Some(service) = hook.child("clientConfig").and_then(|config| config.child("service")) {
                    service.fill("port", 443);
                }
            }
        }
        "ValidatingAdmissionPolicy" | "MutatingAdmissionPolicy" => {
            let Some(spec) = spec(object) else { return };
            spec.fill("failurePolicy", "Fail");
            if let Some(constraints) = spec.child("matchConstraints") {
                matched(constraints);
            }
        }
        "ValidatingAdmissionPolicyBinding" | "MutatingAdmissionPolicyBinding" => {
            if let Some(resources) = spec(object).and_then(|spec| spec.child("matchResources")) {
                matched(resources);
            }
        }
        _ => {}
    }
}

fn match_resources(hook: &mut Fields) {
    hook.fill("matchPolicy", "Equivalent");
    hook.fill("namespaceSelector", json!({}));
    hook.fill("objectSelector", json!({}));
}

fn matched(resources: &mut Fields) {
    match_resources(resources);
    rules(resources, "resourceRules");
    rules(resources, "excludeResourceRules");
}

fn rules(holder: &mut Fields, name: &str) {
    for rule in holder.items(name) {
        rule.fill("scope", "*");
    }
}

fn priority_level(object: &mut Fields) {
    let Some(spec) = spec(object) else { return };
    if let Some(exempt) = spec.child("exempt") {
        exempt.fill("nominalConcurrencyShares", 0);
        exempt.fill("lendablePercent", 0);
    }
    if let Some(limited) = spec.child("limited") {
        limited.fill("nominalConcurrencyShares", 30);
        limited.fill("lendablePercent", 0);
        if let Some(queuing) = limited.child("limitResponse").and_then(|response| response.child("queuing")) {
            queuing.fill_empty("handSize", 8);
            queuing.fill_empty("queues", 64);
            queuing.fill_empty("queueLengthLimit", 50);
        }
    }
}

fn device_requests(spec: &mut Fields) {
    let Some(devices) = spec.child("devices") else { return };
    for request in devices.items("requests") {
        if let Some(exactly) = request.child("exactly") {
            device_request(exactly);
        }
        for alternative in request.items("firstAvailable") {
            device_request(alternative);
        }
    }
}

fn device_request(request: &mut Fields) {
    request.fill_empty("allocationMode", "ExactCount");
    if request.word("allocationMode") == "ExactCount" {
        request.fill_empty("count", 1);
    }
}

fn definition(object: &mut Fields) {
    let stored = object.get("status").and_then(|status| status.get("storedVersions")).and_then(Value::as_array);
    if stored.is_some_and(|stored| stored.is_empty()) {
        let versions = object.get("spec").and_then(|spec| spec.get("versions")).and_then(Value::as_array);
        let storage = versions.into_iter().flatten().find(|version| version["storage"] == true);
        if let Some(name) = storage.map(|version| version["name"].clone())
            && let Some(status) = object.child("status")
        {
            status.insert("storedVersions", json!([name]));
        }
    }
    let Some(spec) = spec(object) else { return };
    if let Some(names) = spec.child("names") {
        let kind = names.word("kind").to_owned();
        if !kind.is_empty() {
            names.fill_empty("singular", kind.to_lowercase());
            names.fill_empty("listKind", format!("{kind}List"));
        }
    }
    spec.fill("conversion", json!({"strategy": "None"}));
    let client = spec.child("conversion").and_then(|c| c.child("webhook")).and_then(|w| w.child("clientConfig"));
    if let Some(service) = client.and_then(|client| client.child("service")) {
        service.fill("port", 443);
    }
}
