//! MutatingAdmissionPolicy: changes of an object, and their order.

use bytes::Bytes;
use machinery::json::json;
use machinery::media::MediaType;
use machinery::options::UpdateOptions;
use registry::{Body, Context, WriteRequest};

use super::world::{GROUP, World, definition, denied, rule};

#[tokio::test]
async fn map_3_4_7_14_mutations_run_in_order_and_own_nothing() {
    let world = World::new().await;
    let apply = |text: &str| json!({"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": text}});
    let patch = |text: &str| json!({"patchType": "JSONPatch", "jsonPatch": {"expression": text}});
    world
        .mutate("p", json!({"variables": [{"name": "who", "expression": "request.name"}], "mutations": [
            apply("Object{data: {'n': '1'}}"),
            patch("[JSONPatch{op: 'test', path: '/data/n', value: '1'}, JSONPatch{op: 'add', path: '/data/n', value: '2'}]"),
            apply("Object{data: {'seen': object.data.n}, metadata: Object.metadata{labels: {'by': variables.who}}}"),
            patch("[JSONPatch{op: 'test', path: '/data/n', value: 'other'}, JSONPatch{op: 'remove', path: '/data'}]"),
        ]}))
        .await;
    let created = world.map("a", json!({"k": "v"})).await.result.unwrap();
    assert_eq!(created["data"], json!({"k": "v", "n": "2", "seen": "2"}));
    assert_eq!(created["metadata"]["labels"], json!({"by": "a"}));
    let owned = &created["metadata"]["managedFields"];
    assert_eq!(owned.as_array().unwrap().len(), 1);
    assert_eq!(owned[0]["fieldsV1"]["f:data"], json!({".": {}, "f:k": {}}));
    assert_eq!(world.get("configmaps/default/a").await["data"], created["data"]);
}

#[tokio::test]
async fn map_7_sidecars_get_their_defaults_and_pass_the_plugins_again() {
    let world = World::new().await;
    let text = "Object{spec: Object.spec{initContainers: [Object.spec.initContainers{name: 'mesh', image: 'mesh:1', restartPolicy: 'Always'}]}}";
    let spec = json!({"mutations": [{"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": text}}]});
    world.policy_for("p", json!([rule("", "pods", &["CREATE"])]), spec).await;
    world.bind("p", json!({})).await;
    let range =
        json!({"metadata": {"name": "l"}, "spec": {"limits": [{"type": "Container", "default": {"cpu": "1"}}]}});
    world.create("limitranges/default", range).await.result.unwrap();
    let pod = json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let created = world.create("pods/default", pod).await.result.unwrap();
    let mesh = &created["spec"]["initContainers"][0];
    assert_eq!(
        (&mesh["imagePullPolicy"], &mesh["terminationMessagePath"]),
        (&json!("IfNotPresent"), &json!("/dev/termination-log"))
    );
    assert_eq!(mesh["resources"]["limits"]["cpu"], "1", "plugins see it in the second round");
}

#[tokio::test]
async fn map_7_a_scale_is_changed_before_it_is_written() {
    let world = World::new().await;
    let deployment = json!({"metadata": {"name": "d"}, "spec": {"replicas": 1, "selector": {"matchLabels": {"a": "b"}},
        "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}}});
    world.create("apps:deployments/default", deployment).await.result.unwrap();
    let text = "[JSONPatch{op: 'replace', path: '/spec/replicas', value: 2}]";
    let spec = json!({"mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": text}}],
        "matchConditions": [{"name": "too-many", "expression": "object.spec.replicas > 2"}]});
    world.policy_for("p", json!([rule("apps", "deployments/scale", &["UPDATE"])]), spec).await;
    world.bind("p", json!({})).await;
    let scale = json!({"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": "d", "namespace": "default"},
        "spec": {"replicas": 9}});
    let (target, options, ctx) =
        (world.target("apps:deployments/default/d/scale"), UpdateOptions::default(), Context::default());
    let body = Body { bytes: Bytes::from(scale.to_string()), media: MediaType::Json };
    let request = WriteRequest { target: &target, options: &options, ctx: &ctx };
    world.registry.update_scale(request, &body).await.map(|_| ()).unwrap();
    assert_eq!(world.get("apps:deployments/default/d").await["spec"]["replicas"], 2);
}

#[tokio::test]
async fn map_8_9_policies_run_by_name_and_again_if_needed() {
    let world = World::new().await;
    let append = |text: &str| {
        let expression = format!("[JSONPatch{{op: 'add', path: '/data/k', value: object.data.k + '{text}'}}]");
        json!([{"patchType": "JSONPatch", "jsonPatch": {"expression": expression}}])
    };
    world.mutate("b", json!({"mutations": append("b")})).await;
    world.mutate("a", json!({"reinvocationPolicy": "IfNeeded", "mutations": append("a")})).await;
    let created = world.map("m", json!({"k": ""})).await.result.unwrap();
    assert_eq!(created["data"]["k"], "aba", "a runs again because b changed the object after it");
}

#[tokio::test]
async fn map_10_errors_are_collected() {
    let world = World::new().await;
    let apply = |text: &str| json!({"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": text}});
    let patch = |text: &str| json!({"patchType": "JSONPatch", "jsonPatch": {"expression": text}});
    let broken = [
        apply("Object{data: {'x': object.data.none}}"),
        patch("[JSONPatch{op: 'remove', path: '/data/none'}]"),
        apply("Object{nope: 1}"),
        apply("Object{metadata: Object.wrong{}}"),
    ];
    world.mutate("p", json!({"mutations": broken})).await;
    let answer = world.map("a", json!({"k": "v"})).await;
    let cause = |why: &str| format!("policy 'p' with binding 'p' denied request: {why}");
    let causes = [
        cause("expression 'Object{data: {'x': object.data.none}}' resulted in error: no such key: none"),
        cause(
            "JSON Patch: error in remove for path: '/data/none': Unable to remove nonexistent key: none: missing value",
        ),
        cause(
            "error applying patch: failed to convert patch object to typed object: .nope: field not declared in schema",
        ),
        cause(
            "type mismatch: unexpected type name \"Object.wrong\", expected \"Object.metadata\", which matches field name path \
             from root Object type",
        ),
    ];
    assert_eq!(answer.causes(), causes);
    assert_eq!(answer.message(), causes[0]);
    let status = answer.result.unwrap_err();
    assert_eq!((status.code, status.reason()), (403, "Invalid"));
    world
        .merge(&format!("{GROUP}:mutatingadmissionpolicies/p"), json!({"spec": {"failurePolicy": "Ignore"}}))
        .await
        .unwrap();
    let created = world.map("a", json!({"k": "v"})).await.result.unwrap();
    assert_eq!(created["data"], json!({"k": "v"}));
}

#[tokio::test]
async fn map_10_12_params_and_configuration() {
    let world = World::new().await;
    let spec = json!({"paramKind": {"apiVersion": "v1", "kind": "ConfigMap"}, "mutations": [
        {"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": "Object{data: {'max': params.data.max}}"}}],
        "matchConditions": [{"name": "only", "expression": "object.metadata.name == 'a'"}]});
    world.policy("p", spec).await;
    world.bind("p", json!({"paramRef": {"name": "limits", "parameterNotFoundAction": "Deny"}})).await;
    let answer = world.map("a", json!({})).await;
    let why = "policy 'p' with binding 'p' denied request: failed to configure binding: no params found for policy binding with \
               `Deny` parameterNotFoundAction";
    assert_eq!(answer.message(), why);
    let status = answer.result.unwrap_err();
    assert_eq!((status.code, status.reason()), (403, "Forbidden"));
    world
        .merge(&format!("{GROUP}:mutatingadmissionpolicies/p"), json!({"spec": {"failurePolicy": "Ignore"}}))
        .await
        .unwrap();
    world.map("limits", json!({"max": "3"})).await.result.unwrap();
    world
        .merge(&format!("{GROUP}:mutatingadmissionpolicies/p"), json!({"spec": {"failurePolicy": "Fail"}}))
        .await
        .unwrap();
    let created = world.map("a", json!({})).await.result.unwrap();
    assert_eq!(created["data"], json!({"max": "3"}));
    assert_eq!(world.get("configmaps/default/limits").await["data"], json!({"max": "3"}));
}

#[tokio::test]
async fn map_6_patches_are_decoded_strictly() {
    let world = World::new().await;
    let patch = |text: &str| json!({"mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": text}}], "failurePolicy": "Ignore"});
    for (text, why) in [
        ("[JSONPatch{op: 'add', path: '/nope', value: '5'}]", "strict decoding error: unknown field \"nope\""),
        (
            "[JSONPatch{op: 'add', path: '/data/x', value: 5}]",
            "json: cannot unmarshal number into Go struct field ConfigMap.data of type string",
        ),
    ] {
        world.mutate("p", patch(text)).await;
        let answer = world.map("a", json!({"k": "v"})).await;
        assert_eq!(answer.message(), format!("Internal error occurred: {why}"));
        assert_eq!(answer.result.unwrap_err().code, 500);
        world.delete(&format!("{GROUP}:mutatingadmissionpolicies/p")).await.unwrap();
        world.delete(&format!("{GROUP}:mutatingadmissionpolicybindings/p")).await.unwrap();
    }
}

#[tokio::test]
async fn map_11_ad_33_custom_resources_in_two_versions() {
    let world = World::new().await;
    world.create("apiextensions.k8s.io:customresourcedefinitions", definition()).await.result.unwrap();
    while world.registry.kinds().get("example.com", "v2", "things").is_none() {
        tokio::task::yield_now().await;
    }
    let spec = json!({"mutations": [
        {"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": "Object{spec: Object.spec{a: object.apiVersion}}"}},
        {"patchType": "JSONPatch", "jsonPatch": {"expression": "[JSONPatch{op: 'add', path: '/spec/n', value: 3}]"}}]});
    world.policy_for("p", json!([rule("example.com", "things", &["CREATE"])]), spec).await;
    world.bind("p", json!({})).await;
    for version in ["example.com", "example.com@v2"] {
        let created = world
            .create(&format!("{version}:things/default"), json!({"metadata": {"generateName": "t-"}, "spec": {}}))
            .await;
        let created = created.result.unwrap();
        assert_eq!(created["spec"], json!({"a": "example.com/v1", "n": 3}), "{version}");
    }
}

#[tokio::test]
async fn map_1_deletes_are_not_seen() {
    let world = World::new().await;
    let mutations =
        json!([{"patchType": "JSONPatch", "jsonPatch": {"expression": "[JSONPatch{op: 'remove', path: '/nope'}]"}}]);
    world.policy_for("p", json!([rule("", "configmaps", &["*"])]), json!({"mutations": mutations, "matchConditions": [{"name": "no-create", "expression": "request.operation != 'CREATE'"}]})).await;
    world.bind("p", json!({})).await;
    world.map("a", json!({"k": "v"})).await.result.unwrap();
    let current = world.get("configmaps/default/a").await;
    assert!(
        world
            .update("configmaps/default/a", current)
            .await
            .unwrap_err()
            .message
            .starts_with("policy 'p' with binding 'p'")
    );
    world.delete("configmaps/default/a").await.unwrap();
}

#[tokio::test]
async fn vap_26_a_validating_policy_sees_what_mutating_ones_did() {
    let world = World::new().await;
    let mutations =
        json!([{"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": "Object{data: {'x': '1'}}"}}]);
    world.mutate("m", json!({"mutations": mutations})).await;
    world.deny("v", json!({"validations": [{"expression": "!has(object.data.x)", "message": "x is there"}]})).await;
    assert_eq!(world.map("a", json!({})).await.message(), denied("v", "x is there"));
}

#[tokio::test]
async fn map_13_15_a_later_policy_may_undo_a_change() {
    let world = World::new().await;
    let patch = |text: &str| json!({"mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": text}}]});
    world.mutate("a", patch("[JSONPatch{op: 'add', path: '/data/x', value: '1'}]")).await;
    assert_eq!(world.map("a", json!({"k": "v"})).await.result.unwrap()["data"], json!({"k": "v", "x": "1"}));
    world.mutate("b", patch("[JSONPatch{op: 'remove', path: '/data/x'}]")).await;
    assert_eq!(world.map("b", json!({"k": "v"})).await.result.unwrap()["data"], json!({"k": "v"}));
    let kinds = world.registry.kinds();
    assert!(kinds.get(GROUP, "v1", "mutatingadmissionpolicies").unwrap().subresource("status").is_none());
}

#[tokio::test]
async fn map_1_ad_6_connections_are_changed_by_json_patches_only() {
    let world = World::new().await;
    world.create("nodes", json!({"metadata": {"name": "n"}})).await.result.unwrap();
    let spec = json!({"nodeName": "n", "containers": [{"name": "a", "image": "i"}, {"name": "b", "image": "i"}]});
    world.create("pods/default", json!({"metadata": {"name": "p"}, "spec": spec})).await.result.unwrap();
    let target = world.target("pods/default/p/exec");
    let query = machinery::query::Query::parse("command=ls&container=a&stdin=1");
    let connect = async || world.registry.connect(&target, &query, "", &Context::default()).await;
    let rules = || json!([rule("", "pods/exec", &["CONNECT"])]);
    let patch = "[JSONPatch{op: 'add', path: '/command/-', value: '/' + object.container}, JSONPatch{op: 'replace', path: '/container', value: 'b'}]";
    let spec = json!({"mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": patch}}]});
    world.policy_for("p", rules(), spec).await;
    world.bind("p", json!({})).await;
    let changed = connect().await.unwrap().unwrap();
    let query = changed.query.expect("the options were changed");
    assert_eq!((changed.container.as_str(), query.get("container")), ("b", Some("b")));
    assert_eq!(query.all("command").collect::<Vec<_>>(), ["ls", "/a"]);
    // The options have no schema to merge by.
    let text = "Object{container: 'b'}";
    for failure_policy in ["Ignore", "Fail"] {
        let name = failure_policy.to_lowercase();
        let mutation = json!({"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": text}});
        world.policy_for(&name, rules(), json!({"failurePolicy": failure_policy, "mutations": [mutation]})).await;
        world.bind(&name, json!({})).await;
        match connect().await {
            Ok(connection) => assert_eq!((failure_policy, connection.is_some()), ("Ignore", true)),
            Err(refused) => {
                let why = "policy 'fail' with binding 'fail' denied request: error applying patch: failed to convert patch \
                           object to typed object: no corresponding type for /v1, Kind=PodExecOptions";
                assert_eq!((failure_policy, refused.code, refused.message.as_str()), ("Fail", 403, why));
            }
        }
    }
}
