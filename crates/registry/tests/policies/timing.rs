//! Policies, bindings, params and labels act as soon as their write is answered.

use bytes::Bytes;
use machinery::json::json;
use machinery::media::MediaType;
use machinery::options::CreateOptions;
use registry::{Body, Context, WriteRequest};

use super::world::{GROUP, World, rule, validations};

#[tokio::test]
async fn bd_1_vap_38_a_policy_acts_as_soon_as_its_write_is_answered() {
    let world = World::new().await;
    world.bind("p", json!({"validationActions": ["Deny"]})).await;
    let dry_run = CreateOptions { dry_run: true, ..CreateOptions::default() };
    let target = world.target("configmaps/default");
    let body = |name: &str| {
        let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}});
        Body { bytes: Bytes::from(object.to_string()), media: MediaType::Json }
    };
    for round in 0..1_000 {
        let name = format!("m{round}");
        world.policy("p", json!({"validations": validations(&[&format!("object.metadata.name != '{name}'")])})).await;
        let ctx = Context::default();
        let request = WriteRequest { target: &target, options: &dry_run, ctx: &ctx };
        assert_eq!(world.registry.create(request, &body(&name)).await.map(|_| ()).unwrap_err().code, 422, "{round}");
        world.delete(&format!("{GROUP}:validatingadmissionpolicies/p")).await.unwrap();
        assert!(world.registry.create(request, &body(&name)).await.is_ok(), "{round}");
    }
}

#[tokio::test]
async fn ad_51_52_53_bindings_params_and_labels_act_at_once() {
    let world = World::new().await;
    let spec = json!({"paramKind": {"apiVersion": "v1", "kind": "ConfigMap"}, "validations": validations(&["object.data.k == params.data.k"]),
        "matchConstraints": {"resourceRules": [rule("", "configmaps", &["CREATE"])], "namespaceSelector": {"matchLabels": {"env": "prod"}}}});
    world.policy("p", spec).await;
    world.map("limits", json!({"k": "1"})).await.result.unwrap();
    for round in 0..20 {
        let params = json!({"name": "limits", "parameterNotFoundAction": "Deny"});
        world.bind("p", json!({"validationActions": ["Deny"], "paramRef": params})).await;
        world.map(&format!("a{round}"), json!({"k": "2"})).await.result.expect("the namespace is not selected");
        world.merge("namespaces/default", json!({"metadata": {"labels": {"env": "prod"}}})).await.unwrap();
        assert!(world.map("b", json!({"k": "2"})).await.result.is_err());
        world.merge("configmaps/default/limits", json!({"data": {"k": "2"}})).await.unwrap();
        world.map(&format!("b{round}"), json!({"k": "2"})).await.result.expect("the params changed");
        world.merge("configmaps/default/limits", json!({"data": {"k": "1"}})).await.unwrap();
        world.delete(&format!("{GROUP}:validatingadmissionpolicybindings/p")).await.unwrap();
        world.map(&format!("c{round}"), json!({"k": "2"})).await.result.expect("the binding is gone");
        world.merge("namespaces/default", json!({"metadata": {"labels": {"env": null}}})).await.unwrap();
    }
}
