//! Type checks of policies in their status.

use machinery::json::{Value, json};

use super::world::{GROUP, World, rule, validations};

fn type_checked(policy: &Value) -> &Value {
    assert_eq!(policy["status"]["observedGeneration"], policy["metadata"]["generation"]);
    &policy["status"]["typeChecking"]
}

#[tokio::test]
async fn vap_37_bd_11_types_are_checked_with_the_write() {
    let world = World::new().await;
    let path = format!("{GROUP}:validatingadmissionpolicies");
    let policy = |rules: Value, spec: Value| {
        let mut spec = spec;
        spec["matchConstraints"] = json!({"resourceRules": rules});
        json!({"metadata": {"name": "p"}, "spec": spec})
    };
    let deployments = || json!([rule("apps", "deployments", &["CREATE"])]);
    let both = || json!([rule("apps", "deployments", &["CREATE"]), rule("", "pods", &["CREATE"])]);
    let one = |text: &str| json!({"validations": validations(&[text])});
    let issue = |kind: &str, text: &str, at: usize, field: &str| {
        format!("{kind}: ERROR: <input>:1:{at}: undefined field '{field}'\n | {text}\n | {}^\n", ".".repeat(at - 1))
            .replace("\\n", "\n")
    };
    let warned = |field: &str, text: String| json!({"expressionWarnings": [{"fieldRef": field, "warning": text}]});
    let deployment = "apps/v1, Kind=Deployment";
    for (rules, spec, want, header) in [
        (
            deployments(),
            one("object.spec.nope == 1"),
            warned("spec.validations[0].expression", issue(deployment, "object.spec.nope == 1", 12, "nope")),
            Some("spec.validations[0].expression: apps/v1, Kind=Deployment: undefined field 'nope'"),
        ),
        (
            both(),
            one("object.spec.replicas > 1"),
            warned(
                "spec.validations[0].expression",
                issue("/v1, Kind=Pod", "object.spec.replicas > 1", 12, "replicas"),
            ),
            Some("spec.validations[0].expression: /v1, Kind=Pod: undefined field 'replicas'"),
        ),
        (
            deployments(),
            json!({"validations": [{"expression": "oldObject.spec.replicas > 1", "messageExpression": "object.nope"}]}),
            Value::Null,
            None,
        ),
        (
            deployments(),
            one("object.spec.template.spec.containers.all(c, c.image != '' && c.name.size() > 1)"),
            json!({}),
            None,
        ),
        (json!([rule("apps", "*", &["CREATE"])]), one("object.nope == 1"), json!({}), None),
        (json!([rule("*", "deployments", &["CREATE"])]), one("object.nope == 1"), json!({}), None),
        (json!([rule("apps", "deployments/scale", &["CREATE"])]), one("object.nope == 1"), json!({}), None),
        (json!([rule("nope.example.com", "widgets", &["CREATE"])]), one("object.nope == 1"), json!({}), None),
        (
            deployments(),
            json!({"variables": [{"name": "n", "expression": "object.spec.nope"}], "validations": validations(&["variables.n > 1"])}),
            json!({}),
            None,
        ),
    ] {
        let answer = world.create_explained(&path, policy(rules, spec.clone())).await;
        if want.is_null() {
            // The message does not have the type of a text, which is refused at once.
            assert!(answer.result.is_err());
            continue;
        }
        assert_eq!(answer.result.unwrap()["status"], json!({}), "the answer is the policy as it was written");
        let stored = world.get(&format!("{path}/p")).await;
        assert_eq!(*type_checked(&stored), want, "{spec}");
        assert_eq!(answer.warnings, header.into_iter().collect::<Vec<_>>());
        let managers = stored["metadata"]["managedFields"].as_array().unwrap();
        let status = managers.iter().find(|entry| entry["manager"] == "validatingadmissionpolicy-status").unwrap();
        assert_eq!((&status["operation"], &status["subresource"]), (&json!("Apply"), &json!("status")));
        world.delete(&format!("{path}/p")).await.unwrap();
    }
    world.create(&path, policy(deployments(), one("object.spec.nope == 1"))).await.result.unwrap();
    world
        .merge(&format!("{path}/p"), json!({"spec": {"validations": validations(&["has(object.spec.paused)"])}}))
        .await
        .unwrap();
    let stored = world.get(&format!("{path}/p")).await;
    assert!(type_checked(&stored).get("expressionWarnings").is_none(), "{}", stored["status"]);
    assert_eq!(stored["metadata"]["generation"], 2);
}
