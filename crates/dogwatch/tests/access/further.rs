//! Rights that handlers ask for beyond the one to the verb.

use machinery::json::json;

use crate::world::World;

const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/default/leases";

#[tokio::test]
async fn az_70_a_put_or_apply_that_creates_needs_create_too() {
    let world = World::start().await;
    let of = |verbs: &[&str]| {
        json!([
            {"verbs": verbs, "apiGroups": ["coordination.k8s.io"], "resources": ["leases"]},
            {"verbs": verbs, "apiGroups": [""], "resources": ["configmaps"]},
        ])
    };
    world.grant("alice", false, of(&["update", "patch"])).await;
    let lease = json!({"metadata": {"name": "l"}});
    let put = world.ask("alice", "PUT", &format!("{LEASES}/l"), Some(lease.clone())).await;
    assert_eq!(put.code, 403);
    assert_eq!(
        put.message(),
        "leases.coordination.k8s.io \"l\" is forbidden: User \"alice\" cannot create resource \"leases\" in API group \
         \"coordination.k8s.io\" in the namespace \"default\""
    );
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "n"}});
    let apply = |name: &str| format!("/api/v1/namespaces/default/configmaps/{name}?fieldManager=me");
    let kind = "application/apply-patch+yaml";
    let applied = world.ask_as("alice", "PATCH", &apply("n"), kind, Some(map.clone())).await;
    assert_eq!(applied.code, 403);
    assert!(applied.message().contains("cannot create resource \"configmaps\""), "{}", applied.message());
    world.make_config_map("n").await;
    let applied = world.ask_as("alice", "PATCH", &apply("n"), kind, Some(map.clone())).await;
    assert_eq!(applied.code, 200, "an apply that changes needs patch alone: {}", applied.text());
    world.grant("alice", false, of(&["update", "patch", "create"])).await;
    assert_eq!(world.ask("alice", "PUT", &format!("{LEASES}/l"), Some(lease)).await.code, 201);
    // Here the name is known, so a rule with names can allow it.
    let named =
        json!([{"verbs": ["patch", "create"], "apiGroups": [""], "resources": ["configmaps"], "resourceNames": ["m"]}]);
    world.grant("alice", false, named).await;
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m"}});
    assert_eq!(world.ask_as("alice", "PATCH", &apply("m"), kind, Some(map)).await.code, 201);
}

#[tokio::test]
async fn az_71_deletecollection_is_asked_for_alone() {
    let world = World::start().await;
    world.make_config_map("a").await;
    let rules = json!([{"verbs": ["deletecollection"], "apiGroups": [""], "resources": ["configmaps"]}]);
    world.grant("alice", false, rules).await;
    let maps = "/api/v1/namespaces/default/configmaps";
    assert_eq!(world.ask("alice", "DELETE", &format!("{maps}/a"), None).await.code, 403);
    assert_eq!(world.ask("alice", "DELETE", maps, None).await.code, 200);
    assert_eq!(world.get("root", &format!("{maps}/a")).await.code, 404);
}

#[tokio::test]
async fn az_72_a_connection_by_get_needs_create_too() {
    let world = World::start().await;
    world.make_pod("p", json!({})).await;
    let of = |verbs: &[&str]| {
        let resources = ["pods/exec", "pods/attach", "pods/portforward", "pods/log"];
        json!([{"verbs": verbs, "apiGroups": [""], "resources": resources}])
    };
    world.grant("alice", false, of(&["get"])).await;
    for subresource in ["exec?command=ls", "attach", "portforward"] {
        let path = format!("/api/v1/namespaces/default/pods/p/{subresource}");
        let answer = world.get("alice", &path).await;
        assert_eq!(answer.code, 403, "{subresource}");
        assert_eq!(answer.message(), "pods \"p\" is forbidden: ");
        assert_eq!(answer.headers["x-content-type-options"], "nosniff");
    }
    let log = world.get("alice", "/api/v1/namespaces/default/pods/p/log").await;
    assert!(log.code < 300, "a log needs get alone: {}", log.text());
    world.grant("alice", false, of(&["get", "create"])).await;
    for subresource in ["exec?command=ls", "attach", "portforward"] {
        let path = format!("/api/v1/namespaces/default/pods/p/{subresource}");
        let answer = world.get("alice", &path).await;
        assert_ne!(answer.code, 403, "{subresource} reaches the handler: {}", answer.text());
    }
}

#[tokio::test]
async fn az_77_the_author_of_a_policy_must_read_its_parameters() {
    let world = World::start().await;
    let policies = json!({"verbs": ["*"], "apiGroups": ["admissionregistration.k8s.io"], "resources": ["*"]});
    world.grant("alice", true, json!([policies])).await;
    let base = "/apis/admissionregistration.k8s.io/v1";
    let policy = json!({
        "metadata": {"name": "p"},
        "spec": {
            "paramKind": {"apiVersion": "v1", "kind": "ConfigMap"},
            "matchConstraints": {"resourceRules": [
                {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]},
            ]},
            "validations": [{"expression": "true"}],
        },
    });
    let path = format!("{base}/validatingadmissionpolicies");
    let refused = world.ask("alice", "POST", &path, Some(policy.clone())).await;
    assert_eq!(refused.code, 422, "{}", refused.text());
    let cause = &refused.json()["details"]["causes"][0];
    assert_eq!(cause["field"], "spec.paramKind");
    assert_eq!(cause["reason"], "FieldValueForbidden");
    let message = cause["message"].as_str().unwrap();
    assert!(
        message.starts_with("Forbidden: user &{alice  [system:authenticated] map[]} must have \"get\""),
        "{message}"
    );
    assert!(message.ends_with("of the referenced paramKind (kind=ConfigMap, apiVersion=v1)"), "{message}");
    assert_eq!(world.ask("root", "POST", &path, Some(policy.clone())).await.code, 201);

    let binding = json!({
        "metadata": {"name": "b"},
        "spec": {
            "policyName": "p",
            "validationActions": ["Deny"],
            "paramRef": {"name": "c", "namespace": "default", "parameterNotFoundAction": "Deny"},
        },
    });
    let bindings = format!("{base}/validatingadmissionpolicybindings");
    let refused = world.ask("alice", "POST", &bindings, Some(binding.clone())).await;
    assert_eq!(refused.code, 422, "{}", refused.text());
    let message = refused.json()["details"]["causes"][0]["message"].as_str().unwrap().to_owned();
    assert!(message.ends_with("does not have \"get\" permission on the object referenced by paramRef"), "{message}");
    let maps = json!({"verbs": ["get"], "apiGroups": [""], "resources": ["configmaps"], "resourceNames": ["c"]});
    world.grant("alice", true, json!([policies, maps])).await;
    let made = world.ask("alice", "POST", &bindings, Some(binding)).await;
    assert_eq!(made.code, 201, "{}", made.text());
    // All config maps are more than one.
    let mut second = policy;
    second["metadata"]["name"] = "q".into();
    assert_eq!(world.ask("alice", "POST", &path, Some(second.clone())).await.code, 422);
    let maps = json!({"verbs": ["get"], "apiGroups": [""], "resources": ["configmaps"]});
    world.grant("alice", true, json!([policies, maps])).await;
    let made = world.ask("alice", "POST", &path, Some(second)).await;
    assert_eq!(made.code, 201, "{}", made.text());
}
