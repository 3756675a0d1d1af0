//! Policies in the whole chain.

use http::{Method, header};
use machinery::json::{Value, json};

use crate::world::{MAPS, World, admin, map, pod};

const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";

fn rules(group: &str, resource: &str) -> Value {
    json!({"resourceRules": [
        {"operations": ["CREATE", "UPDATE"], "apiGroups": [group], "apiVersions": ["*"], "resources": [resource]},
    ]})
}

async fn bind(world: &World, kind: &str, name: &str, more: Value) {
    let mut binding = json!({"metadata": {"name": name}, "spec": {"policyName": name}});
    for (member, value) in more.as_object().into_iter().flatten() {
        binding["spec"][member.as_str()] = value.clone();
    }
    world.register(&format!("{kind}admissionpolicybindings"), &binding).await;
}

/// A policy for ConfigMaps and its binding, both of this name.
pub(crate) async fn validating(world: &World, name: &str, validations: Value, actions: Value) {
    let spec = json!({"matchConstraints": rules("", "configmaps"), "validations": validations});
    world.register("validatingadmissionpolicies", &json!({"metadata": {"name": name}, "spec": spec})).await;
    bind(world, "validating", name, json!({"validationActions": actions})).await;
}

async fn mutating(world: &World, name: &str, resource: &str, mutation: Value) {
    let spec =
        json!({"matchConstraints": rules("", resource), "mutations": [mutation], "reinvocationPolicy": "IfNeeded"});
    world.register("mutatingadmissionpolicies", &json!({"metadata": {"name": name}, "spec": spec})).await;
    bind(world, "mutating", name, json!({})).await;
}

fn json_patch(expression: &str) -> Value {
    json!({"patchType": "JSONPatch", "jsonPatch": {"expression": expression}})
}

#[tokio::test]
async fn chain_11_18_vap_27_a_rule_for_deployments_does_not_see_their_scale() {
    let world = World::new().await;
    let spec = json!({
        "matchConstraints": rules("apps", "deployments"),
        "validations": [{"expression": "object.spec.replicas <= 5"}],
    });
    world.register("validatingadmissionpolicies", &json!({"metadata": {"name": "p"}, "spec": spec})).await;
    bind(&world, "validating", "p", json!({"validationActions": ["Deny"]})).await;
    let template = json!({"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let mut deployment = json!({"metadata": {"name": "d"}, "spec": {
        "replicas": 1, "selector": {"matchLabels": {"a": "b"}}, "template": template}});
    world.post(DEPLOYMENTS, &deployment).await.object();
    deployment["spec"]["replicas"] = json!(6);
    let refused = world.put(&format!("{DEPLOYMENTS}/d"), &deployment).await;
    let text = "deployments.apps \"d\" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'p' denied request: failed \
                expression: object.spec.replicas <= 5";
    assert_eq!((refused.code, refused.message()), (422, text));
    let scale = json!({"spec": {"replicas": 6}});
    world.merge(&format!("{DEPLOYMENTS}/d/scale"), &scale).await.object();
    let more = json!({"spec": {"matchConstraints": rules("apps", "deployments/scale")}});
    world.merge("/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies/p", &more).await.object();
    let refused = world.merge(&format!("{DEPLOYMENTS}/d/scale"), &json!({"spec": {"replicas": 7}})).await;
    assert_eq!(refused.code, 422);
}

#[tokio::test]
async fn chain_11_19_vap_24_a_policy_may_only_warn() {
    let world = World::new().await;
    validating(&world, "p", json!([{"expression": "false", "message": "no"}]), json!(["Warn", "Audit"])).await;
    let created = world.post(MAPS, &map("m")).await;
    assert_eq!(created.code, 201);
    let warning = "299 - \"Validation failed for ValidatingAdmissionPolicy 'p' with binding 'p': no\"";
    assert_eq!(created.warnings(), [warning]);
}

#[tokio::test]
async fn chain_11_20_vap_17_missing_params_are_allowed_or_denied() {
    let world = World::new().await;
    let spec = json!({
        "paramKind": {"apiVersion": "v1", "kind": "ConfigMap"},
        "matchConstraints": rules("", "secrets"),
        "validations": [{"expression": "true"}],
    });
    world.register("validatingadmissionpolicies", &json!({"metadata": {"name": "p"}, "spec": spec})).await;
    let param = |action: &str| json!({"name": "missing", "namespace": "default", "parameterNotFoundAction": action});
    bind(&world, "validating", "p", json!({"validationActions": ["Deny"], "paramRef": param("Allow")})).await;
    let secrets = "/api/v1/namespaces/default/secrets";
    world.post(&format!("{secrets}?dryRun=All"), &json!({"metadata": {"name": "s"}})).await.object();
    let path = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings/p";
    world.merge(path, &json!({"spec": {"paramRef": param("Deny")}})).await.object();
    let refused = world.post(secrets, &json!({"metadata": {"name": "s"}})).await;
    assert_eq!(refused.code, 422);
    let text = "no params found for policy binding with `Deny` parameterNotFoundAction";
    assert!(refused.message().ends_with(text), "{}", refused.message());
}

#[tokio::test]
async fn chain_11_21_a_policy_sees_the_impersonated_user() {
    let world = World::new().await;
    validating(&world, "p", json!([{"expression": "request.userInfo.username != 'alice'"}]), json!(["Deny"])).await;
    let as_alice = http::Request::builder()
        .method(Method::POST)
        .uri(MAPS)
        .header(header::CONTENT_TYPE, "application/json")
        .header("impersonate-user", "alice")
        .header("impersonate-group", "system:masters");
    let refused = world.send(admin(), as_alice.body(map("m").to_string().into()).unwrap()).await;
    assert_eq!(refused.code, 422);
    world.post(MAPS, &map("m")).await.object();
}

#[tokio::test]
async fn chain_11_22_vap_8_an_audit_annotation_that_fails_denies() {
    let world = World::new().await;
    let spec = json!({
        "matchConstraints": rules("", "configmaps"),
        "auditAnnotations": [{"key": "k", "valueExpression": "string(object.spec.none)"}],
    });
    world.register("validatingadmissionpolicies", &json!({"metadata": {"name": "p"}, "spec": spec})).await;
    bind(&world, "validating", "p", json!({"validationActions": ["Warn"]})).await;
    assert_eq!(world.post(MAPS, &map("m")).await.code, 422);
}

#[tokio::test]
async fn chain_11_23_a_sidecar_of_a_policy_gets_the_token_in_the_second_round() {
    let settings = registry::Settings { service_accounts: true, ..registry::Settings::default() };
    let world = World::with(Default::default(), settings, Default::default()).await;
    world.post("/api/v1/namespaces/default/serviceaccounts", &json!({"metadata": {"name": "default"}})).await.object();
    let expression = "Object{spec: Object.spec{containers: [Object.spec.containers{name: 'sidecar', image: 's'}]}}";
    let mutation = json!({"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": expression}});
    mutating(&world, "p", "pods", mutation).await;
    let created = world.post("/api/v1/namespaces/default/pods", &pod("p")).await.object();
    let containers = created["spec"]["containers"].as_array().unwrap();
    assert_eq!(containers.len(), 2);
    for container in containers {
        assert_eq!(
            container["volumeMounts"][0]["mountPath"], "/var/run/secrets/kubernetes.io/serviceaccount",
            "{container}"
        );
    }
}

#[tokio::test]
async fn chain_11_24_a_patch_whose_test_fails_changes_nothing() {
    let world = World::new().await;
    let patch =
        "[JSONPatch{op: 'test', path: '/data/k', value: 'other'}, JSONPatch{op: 'add', path: '/data/x', value: 'y'}]";
    mutating(&world, "p", "configmaps", json_patch(patch)).await;
    assert_eq!(world.post(MAPS, &map("m")).await.object()["data"], json!({"k": "v"}));
}

#[tokio::test]
async fn chain_11_25_map_10_a_mutation_that_fails_refuses_the_request() {
    let world = World::new().await;
    let patch = "[JSONPatch{op: 'add', path: '/data/x', value: string(1 / (size(object.data) - 1))}]";
    mutating(&world, "p", "configmaps", json_patch(patch)).await;
    let refused = world.post(MAPS, &map("m")).await;
    assert_eq!((refused.code, &refused.body["reason"]), (403, &json!("Invalid")));
    assert!(refused.message().starts_with("policy 'p' with binding 'p' denied request: "), "{}", refused.message());
}
