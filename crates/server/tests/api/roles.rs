//! Requests of users with roles: what they may do, how they are refused, and reviews of it.

use access::identity::User;
use http::Request;
use http_body_util::{BodyExt as _, Full};
use machinery::json::{Value, json};
use tower_service::Service as _;

use crate::world::World;

const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";
const REVIEWS: &str = "/apis/authorization.k8s.io/v1";

fn alice() -> User {
    User { name: "alice".to_owned(), groups: vec!["system:authenticated".to_owned()], ..User::default() }
}

fn root() -> User {
    User { name: "root".to_owned(), groups: vec!["system:masters".to_owned()], ..User::default() }
}

async fn ask(world: &World, user: &User, method: &str, path: &str, body: Value) -> (u16, Value) {
    let body = if body.is_null() { String::new() } else { body.to_string() };
    let request = Request::builder().method(method).uri(path).header("content-type", "application/json");
    let answer = world.server.in_process(user.clone()).call(request.body(Full::from(body)).unwrap()).await.unwrap();
    let code = answer.status().as_u16();
    let body = answer.into_body().collect().await.unwrap().to_bytes();
    (code, serde_json::from_slice(&body).unwrap_or_default())
}

async fn create(world: &World, path: &str, body: Value) {
    let (code, answer) = ask(world, &root(), "POST", &format!("{RBAC}/{path}"), body).await;
    assert_eq!(code, 201, "{answer}");
}

async fn get(world: &World, user: &User, path: &str) -> (u16, String) {
    let (code, answer) = ask(world, user, "GET", path, Value::Null).await;
    (code, answer["message"].as_str().unwrap_or_default().to_owned())
}

fn role(name: &str, verbs: Value, resources: Value) -> Value {
    json!({"metadata": {"name": name}, "rules": [{"verbs": verbs, "apiGroups": [""], "resources": resources}]})
}

fn binding(name: &str, kind: &str, role: &str) -> Value {
    let group = "rbac.authorization.k8s.io";
    json!({
        "metadata": {"name": name},
        "roleRef": {"apiGroup": group, "kind": kind, "name": role},
        "subjects": [{"kind": "User", "apiGroup": group, "name": "alice"}],
    })
}

/// Posts a review as the administrator; returns its status, or the message of a refusal.
async fn review(world: &World, path: &str, object: Value) -> (u16, Value) {
    let (code, answer) = ask(world, &root(), "POST", &format!("{REVIEWS}/{path}"), object).await;
    (code, if code == 201 { answer["status"].clone() } else { answer["message"].clone() })
}

#[tokio::test]
async fn ba_3_ba_4_a_thousand_bindings_act_on_the_next_request() {
    let world = World::with_roles().await;
    create(&world, "namespaces/default/roles", role("reader", json!(["list"]), json!(["pods"]))).await;
    let pods = "/api/v1/namespaces/default/pods";
    for n in 0..1000 {
        create(&world, "namespaces/default/rolebindings", binding("b", "Role", "reader")).await;
        assert_eq!(get(&world, &alice(), pods).await.0, 200, "binding {n}");
        let path = format!("{RBAC}/namespaces/default/rolebindings/b");
        assert_eq!(ask(&world, &root(), "DELETE", &path, Value::Null).await.0, 200);
        assert_eq!(get(&world, &alice(), pods).await.0, 403, "revocation {n}");
    }
}

#[tokio::test]
async fn az_23_37_50_51_52_53_54_55_refusals() {
    let world = World::with_roles().await;
    let scale = get(&world, &alice(), "/apis/apps/v1/namespaces/N/deployments/d/scale").await;
    let message = "deployments.apps \"d\" is forbidden: User \"alice\" cannot get resource \"deployments/scale\" in API \
                   group \"apps\" in the namespace \"N\"";
    assert_eq!(scale, (403, message.to_owned()));
    let all = "pods is forbidden: User \"alice\" cannot list resource \"pods\" in API group \"\" at the cluster scope";
    assert_eq!(get(&world, &alice(), "/api/v1/pods").await, (403, all.to_owned()));
    let path = "forbidden: User \"alice\" cannot get path \"/metrics\"";
    assert_eq!(get(&world, &alice(), "/metrics").await, (403, path.to_owned()));
    assert_eq!(get(&world, &alice(), "/apis/nope/v1/x").await.0, 403, "before anything is looked up");
    assert_eq!(get(&world, &root(), "/apis/nope/v1/x").await.0, 404);
    create(&world, "clusterrolebindings", binding("lost", "ClusterRole", "gone")).await;
    let hint = ": RBAC: clusterrole.rbac.authorization.k8s.io \"gone\" not found";
    assert_eq!(get(&world, &alice(), "/api/v1/pods").await, (403, format!("{all}{hint}")));
}

#[tokio::test]
async fn verbs_14_26_az_33_names_of_a_rule_and_a_list_of_one_name() {
    let world = World::with_roles().await;
    let mut named = role("named", json!(["get", "list", "watch", "create", "deletecollection"]), json!(["configmaps"]));
    named["rules"][0]["resourceNames"] = json!(["a"]);
    create(&world, "namespaces/default/roles", named).await;
    create(&world, "namespaces/default/rolebindings", binding("b", "Role", "named")).await;
    let maps = "/api/v1/namespaces/default/configmaps";
    assert_eq!(get(&world, &alice(), &format!("{maps}?fieldSelector=metadata.name%3Da")).await.0, 200);
    assert_eq!(get(&world, &alice(), &format!("{maps}?fieldSelector=metadata.name%3Db")).await.0, 403);
    assert_eq!(get(&world, &alice(), maps).await.0, 403);
    assert_eq!(get(&world, &alice(), &format!("{maps}/a")).await.0, 404);
    assert_eq!(get(&world, &alice(), &format!("{maps}/b")).await.0, 403);
    let new = json!({"metadata": {"name": "a"}});
    assert_eq!(ask(&world, &alice(), "POST", maps, new).await.0, 403, "the name of a create is not looked at");
    let one = format!("{maps}?fieldSelector=metadata.name%3Da");
    assert_eq!(ask(&world, &alice(), "DELETE", &one, Value::Null).await.0, 403, "nor that of a deletecollection");
}

#[tokio::test]
async fn az_16_20_24_verbs_of_collections_subresources_and_creates() {
    let world = World::with_roles().await;
    let maps = "/api/v1/namespaces/default/configmaps";
    let all = [
        ("GET", maps.to_owned(), "list", "configmaps"),
        ("GET", format!("{maps}?watch=1&timeoutSeconds=1"), "watch", "configmaps"),
        ("DELETE", maps.to_owned(), "deletecollection", "configmaps"),
        ("POST", maps.to_owned(), "create", "configmaps"),
        ("DELETE", format!("{maps}/a"), "delete", "configmaps"),
        ("GET", "/api/v1/namespaces/default/pods/p/proxy/a/b".to_owned(), "get", "pods/proxy"),
        ("POST", "/api/v1/namespaces/default/pods/p/eviction".to_owned(), "create", "pods/eviction"),
    ];
    for (_, _, verb, resource) in &all {
        let name = format!("{verb}-{}", resource.replace('/', "-"));
        let only = role(&name, json!([verb]), json!([resource]));
        create(&world, "namespaces/default/roles", only).await;
        create(&world, "namespaces/default/rolebindings", binding("b", "Role", &name)).await;
        for (method, path, own_verb, own_resource) in &all {
            let body = if *method == "POST" { json!({"metadata": {"name": "a"}}) } else { Value::Null };
            let (code, answer) = ask(&world, &alice(), method, path, body).await;
            let granted = (verb, resource) == (own_verb, own_resource);
            assert_eq!(code != 403, granted, "{name}: {method} {path}: {answer}");
        }
        let path = format!("{RBAC}/namespaces/default/rolebindings/b");
        assert_eq!(ask(&world, &root(), "DELETE", &path, Value::Null).await.0, 200);
    }
}

#[tokio::test]
async fn az_85_86_93_access_reviews_name_what_allows() {
    let world = World::with_roles().await;
    create(&world, "namespaces/default/roles", role("reader", json!(["get"]), json!(["pods"]))).await;
    create(&world, "namespaces/default/rolebindings", binding("b", "Role", "reader")).await;
    let pods = json!({"verb": "get", "resource": "pods", "namespace": "default"});
    let allowed = json!({
        "allowed": true,
        "reason": "RBAC: allowed by RoleBinding \"b/default\" of Role \"reader\" to User \"alice\"",
    });
    let spec = json!({"user": "alice", "resourceAttributes": pods});
    assert_eq!(review(&world, "subjectaccessreviews", json!({"spec": spec})).await, (201, allowed.clone()));
    let local = "namespaces/default/localsubjectaccessreviews";
    assert_eq!(review(&world, local, json!({"spec": spec})).await, (201, allowed.clone()));
    let (code, own) = ask(
        &world,
        &alice(),
        "POST",
        &format!("{REVIEWS}/selfsubjectaccessreviews"),
        json!({"spec": {"resourceAttributes": pods}}),
    )
    .await;
    assert_eq!((code, &own["status"]), (201, &allowed), "az_93: everyone may ask about themselves");
    let spec = json!({"user": "alice", "resourceAttributes": {"verb": "list", "resource": "pods"}});
    let refused = (201, json!({"allowed": false}));
    assert_eq!(review(&world, "subjectaccessreviews", json!({"spec": spec})).await, refused);
    // The groups are those that the review names, and no others.
    let health = |groups: Value| json!({"spec": {"user": "eve", "groups": groups, "nonResourceAttributes": {"verb": "get", "path": "/api"}}});
    assert_eq!(review(&world, "subjectaccessreviews", health(json!([]))).await, refused);
    let (_, status) = review(&world, "subjectaccessreviews", health(json!(["system:authenticated"]))).await;
    assert_eq!(status["allowed"], true);
    let (code, _) =
        ask(&world, &alice(), "POST", &format!("{REVIEWS}/subjectaccessreviews"), json!({"spec": spec})).await;
    assert_eq!(code, 403, "az_93: asking about others is a right of its own");
}

#[tokio::test]
async fn az_87_88_89_reviews_that_are_refused() {
    let world = World::with_roles().await;
    let head = ".authorization.k8s.io \"\" is invalid: ";
    let pods = json!({"verb": "get", "resource": "pods", "namespace": "default"});
    let path = json!({"verb": "get", "path": "/x"});
    let refused = async |kind: &str, object: Value| {
        let (code, message) = review(&world, kind, object).await;
        (code, message.as_str().unwrap_or_default().replace(head, ""))
    };
    let none = "spec.resourceAttributes: Invalid value: null: exactly one of nonResourceAttributes or \
                resourceAttributes must be specified";
    let user = "spec.user: Invalid value: \"\": at least one of user or group must be specified";
    assert_eq!(refused("selfsubjectaccessreviews", json!({"spec": {}})).await, (422, none.to_owned()));
    assert_eq!(refused("subjectaccessreviews", json!({"spec": {}})).await, (422, format!("[{none}, {user}]")));
    let both = json!({"spec": {"resourceAttributes": pods, "nonResourceAttributes": path}});
    let why = "spec.nonResourceAttributes: Invalid value: {\"Path\":\"/x\",\"Verb\":\"get\"}: cannot be specified in \
               combination with resourceAttributes";
    assert_eq!(refused("selfsubjectaccessreviews", both).await, (422, why.to_owned()));
    let named = json!({"metadata": {"name": "x"}, "spec": {"resourceAttributes": pods}});
    let (code, message) = refused("selfsubjectaccessreviews", named).await;
    assert!(code == 422 && message.starts_with("metadata: Invalid value: {\"name\":\"x\""), "{message}");
    assert!(message.ends_with("}: must be empty"), "{message}");

    let local = "namespaces/other/localsubjectaccessreviews";
    let spec = json!({"user": "alice", "resourceAttributes": pods});
    let why = "spec.resourceAttributes.namespace: Invalid value: \"default\": must match metadata.namespace";
    assert_eq!(refused(local, json!({"spec": spec})).await, (422, why.to_owned()));
    let spec = json!({"user": "alice", "nonResourceAttributes": path});
    let why = "spec.nonResourceAttributes: Invalid value: {\"Path\":\"/x\",\"Verb\":\"get\"}: disallowed on this kind \
               of request";
    assert_eq!(refused(local, json!({"spec": spec})).await, (422, why.to_owned()));
    let elsewhere = json!({"metadata": {"namespace": "default"}, "spec": spec});
    assert_eq!(refused(local, elsewhere).await.0, 400);
    let labelled = json!({"metadata": {"labels": {"a": "b"}}, "spec": {"user": "alice", "resourceAttributes": {"namespace": "other"}}});
    let (_, message) = refused(local, labelled).await;
    assert!(message.ends_with("}: must be empty except for namespace"), "{message}");
    let missing =
        json!({"user": "alice", "resourceAttributes": {"namespace": "other", "verb": "get", "resource": "pods"}});
    assert_eq!(review(&world, local, json!({"spec": missing})).await, (201, json!({"allowed": false})));
}

#[tokio::test]
async fn az_90_selectors_of_reviews() {
    let world = World::with_roles().await;
    let ask = async |member: &str, selector: Value| {
        let pods = json!({"verb": "list", "resource": "pods", member: selector});
        let object = json!({"spec": {"user": "eve", "resourceAttributes": pods}});
        let (code, answer) = review(&world, "subjectaccessreviews", object).await;
        let text = answer["evaluationError"].as_str().or(answer.as_str()).unwrap_or_default().to_owned();
        (code, text.replace(".authorization.k8s.io \"\" is invalid: ", "").replace("spec.resourceAttributes.", ""))
    };
    let terms = |terms: Value| json!({"requirements": terms});
    let good = json!([{"key": "a", "operator": "In", "values": ["b"]}]);
    let nothing = (201, String::new());
    assert_eq!(ask("fieldSelector", terms(good.clone())).await, nothing);
    assert_eq!(ask("labelSelector", json!({"rawSelector": "a in (b),!c"})).await, nothing);
    let ignored = |member: &str, how: &str| (201, format!("{member} {how} due to parse error"));
    for member in ["fieldSelector", "labelSelector"] {
        assert_eq!(ask(member, json!({"rawSelector": "a=b=c"})).await, ignored(member, "ignored"));
        let unknown = json!({"key": "a", "operator": "Nope", "values": ["b"]});
        assert_eq!(ask(member, terms(json!([unknown]))).await, ignored(member, "ignored"));
        assert_eq!(ask(member, terms(json!([unknown, good[0]]))).await, ignored(member, "partially ignored"));
        let (code, why) = ask(member, json!({"rawSelector": "a=b", "requirements": good})).await;
        let both = "rawSelector: Invalid value: \"a=b\": may not specified at the same time as requirements";
        assert_eq!((code, why), (422, format!("{member}.{both}")));
        let (code, why) = ask(member, terms(json!([{"key": "a", "operator": "In"}]))).await;
        let required = "requirements[0].values: Required value: must be specified when `operator` is 'In' or 'NotIn'";
        assert_eq!((code, why), (422, format!("{member}.{required}")));
    }
    let several = json!([{"key": "a", "operator": "NotIn", "values": ["b", "c"]}]);
    assert_eq!(ask("fieldSelector", terms(several.clone())).await, ignored("fieldSelector", "ignored"));
    assert_eq!(ask("labelSelector", terms(several)).await, nothing);
    let (code, why) = ask("fieldSelector", terms(json!([{"operator": "Exists"}]))).await;
    assert_eq!((code, &*why), (422, "fieldSelector.requirements[0].key: Required value: must be specified"));
}

#[tokio::test]
async fn az_91_rules_as_the_roles_state_them() {
    let world = World::with_roles().await;
    create(&world, "namespaces/default/roles", role("reader", json!(["get"]), json!(["pods"]))).await;
    create(&world, "namespaces/default/rolebindings", binding("b", "Role", "reader")).await;
    create(&world, "namespaces/default/rolebindings", binding("lost", "Role", "gone")).await;
    let path = format!("{REVIEWS}/selfsubjectrulesreviews");
    let object = json!({"metadata": {"labels": {"a": "b"}}, "spec": {"namespace": "default"}});
    let (code, answer) = ask(&world, &alice(), "POST", &path, object).await;
    assert_eq!((code, &answer["spec"], &answer["metadata"]), (201, &json!({}), &json!({})));
    let status = &answer["status"];
    let rules = status["resourceRules"].as_array().unwrap();
    assert_eq!(rules.len(), 3, "{status}");
    assert_eq!(rules[2], json!({"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}));
    assert_eq!(status["nonResourceRules"].as_array().unwrap().len(), 2);
    assert_eq!(status["incomplete"], false);
    assert_eq!(status["evaluationError"], "role.rbac.authorization.k8s.io \"gone\" not found");
    let (code, answer) = ask(&world, &alice(), "POST", &path, json!({"spec": {}})).await;
    assert_eq!((code, &answer["message"]), (400, &json!("no namespace on request")));
}

#[tokio::test]
async fn az_76_parts_of_the_status_of_a_claim_need_rights_of_their_own() {
    let world = World::with_roles().await;
    let claims = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims";
    let request = json!([{"name": "r", "exactly": {"deviceClassName": "k"}}]);
    let claim = json!({"metadata": {"name": "c"}, "spec": {"devices": {"requests": request}}});
    assert_eq!(ask(&world, &root(), "POST", claims, claim).await.0, 201);
    let grant = async |name: &str, cluster: bool, verbs: Value, resources: Value| {
        let rules = json!([{"verbs": verbs, "apiGroups": ["resource.k8s.io"], "resources": resources}]);
        let role = json!({"metadata": {"name": name}, "rules": rules});
        let (place, kind) = if cluster { ("cluster", "ClusterRole") } else { ("namespaces/default/", "Role") };
        create(&world, &format!("{place}roles"), role).await;
        create(&world, &format!("{place}rolebindings"), binding(name, kind, name)).await;
    };
    grant("status", false, json!(["get", "update"]), json!(["resourceclaims", "resourceclaims/status"])).await;
    let path = format!("{claims}/c/status");
    let write = async |user: &User, status: Value| {
        let mut object = ask(&world, user, "GET", &format!("{claims}/c"), Value::Null).await.1;
        for (name, value) in status.as_object().unwrap() {
            object["status"][name.as_str()] = value.clone();
        }
        let (code, answer) = ask(&world, user, "PUT", &path, object).await;
        (code, answer["message"].as_str().unwrap_or_default().to_owned())
    };
    let result = json!({"request": "r", "driver": "d.example.com", "pool": "p", "device": "x"});
    let allocation = json!({"allocation": {"devices": {"results": [result]}}});
    let begin = "ResourceClaim.resource.k8s.io \"c\" is invalid: status";
    let binding_refused = format!(
        "{begin}.allocation: Forbidden: changing status.allocation or status.reservedFor requires \
         resource=\"resourceclaims/binding\", verb=\"update\" permission: resourceclaims.resource.k8s.io is forbidden: User \
         \"alice\" cannot update resource \"resourceclaims/binding\" in API group \"resource.k8s.io\" at the cluster scope"
    );
    assert_eq!(write(&alice(), allocation.clone()).await, (422, binding_refused));
    grant("binding", true, json!(["update"]), json!(["resourceclaims/binding"])).await;
    assert_eq!(write(&alice(), allocation).await.0, 200);
    let devices = json!({"devices": [{"driver": "d.example.com", "pool": "p", "device": "x"}]});
    let driver_refused = format!(
        "{begin}.devices: Forbidden: changing status.devices requires resource=\"resourceclaims/driver\", \
         verb=\"[arbitrary-node:update]\" permission: resourceclaims.resource.k8s.io \"d.example.com\" is forbidden: User \
         \"alice\" cannot arbitrary-node:update resource \"resourceclaims/driver\" in API group \"resource.k8s.io\" in the \
         namespace \"default\""
    );
    assert_eq!(write(&alice(), devices.clone()).await, (422, driver_refused));
    grant("driver", false, json!(["arbitrary-node:update"]), json!(["resourceclaims/driver"])).await;
    assert_eq!(write(&alice(), devices).await, (200, String::new()));
}
