//! Priority and fairness of a whole server: flows and their headers, refusals, objects that are restored, a flood of lists.

use std::sync::Arc;

use access::authorizer::{Attributes, Authorizer, Decision, Verdict};
use access::identity::{MASTERS, User};
use bytes::Bytes;
use http::Request;
use http_body_util::Full;
use machinery::json::{Value, json};
use server::limits::Limits;
use tower_service::Service as _;

use crate::world::{Answer, PATIENCE, World};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const FLOWS: &str = "/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas";
const LEVELS: &str = "/apis/flowcontrol.apiserver.k8s.io/v1/prioritylevelconfigurations";
const ALICE: [(&str, &str); 1] = [("authorization", "Bearer sesame")];

/// The names of the flow schema and the priority level whose uids a response has.
async fn flow(world: &World, answer: &Answer) -> Option<String> {
    let mut names = Vec::new();
    for (path, header) in [(FLOWS, "x-kubernetes-pf-flowschema-uid"), (LEVELS, "x-kubernetes-pf-prioritylevel-uid")] {
        let uid = answer.header(header);
        if uid.is_empty() {
            continue;
        }
        let all = world.get(path).await.json();
        let found = all["items"].as_array().unwrap().iter().find(|object| object["metadata"]["uid"] == uid);
        names.push(found.expect("an object with this uid")["metadata"]["name"].as_str().unwrap().to_owned());
    }
    (!names.is_empty()).then(|| names.join("/"))
}

#[tokio::test]
async fn apf_1_6_responses_name_their_flow() {
    let world = World::start().await;
    let impersonated = [("authorization", "Bearer sesame"), ("impersonate-uid", "7")];
    for (admin, method, path, headers, code, expected) in [
        (true, "GET", MAPS, &[][..], 200, Some("exempt/exempt")),
        (false, "GET", MAPS, &ALICE[..], 200, Some("global-default/global-default")),
        (false, "GET", "/healthz", &[][..], 200, Some("probes/exempt")),
        (false, "GET", MAPS, &[][..], 403, Some("global-default/global-default")),
        (false, "GET", "/nope", &ALICE[..], 404, Some("global-default/global-default")),
        (false, "GET", MAPS, &[("authorization", "Bearer nope")][..], 401, None),
        (false, "GET", MAPS, &impersonated[..], 400, None),
        (false, "GET", "/api/v1/namespaces/default/pods/p/log", &ALICE[..], 404, None),
    ] {
        let answer = world.ask(admin, method, path, headers, "").await;
        assert_eq!(answer.code, code, "{path}");
        assert_eq!(flow(&world, &answer).await.as_deref(), expected, "{path} {code}");
    }
    let watch = world.open(false, "GET", &format!("{MAPS}?watch=1"), &ALICE, "").await;
    assert!(watch.headers().contains_key("x-kubernetes-pf-flowschema-uid"));
}

#[tokio::test]
async fn apf_2_3_requests_beyond_the_limit_are_refused_with_their_flow() {
    let world = World::with(Limits { inflight_reads_max: 0, ..Limits::default() }).await;
    let answer = world.ask(false, "GET", MAPS, &ALICE, "").await;
    assert_eq!((answer.code, answer.text()), (429, "Too many requests, please try again later.\n"));
    assert_eq!((answer.header("retry-after"), answer.header("content-type")), ("1", "text/plain; charset=utf-8"));
    assert_eq!(flow(&world, &answer).await.as_deref(), Some("global-default/global-default"));
    assert_eq!(world.get(MAPS).await.code, 200, "masters are exempt");
    assert_eq!(world.ask(false, "GET", "/readyz", &[], "").await.code, 200, "and so are probes");
}

/// Waits until a condition on an object holds.
async fn until(world: &World, path: &str, holds: impl Fn(&Value) -> bool) {
    let began = tokio::time::Instant::now();
    loop {
        let object = world.get(path).await.json();
        if holds(&object) {
            return;
        }
        assert!(began.elapsed() < PATIENCE, "{object}");
        tokio::time::sleep(std::time::Duration::from_millis(2)).await;
    }
}

#[tokio::test]
async fn apf_4_objects_are_there_at_the_start_and_restored() {
    let world = World::start().await;
    let names = async |path: &str| -> Vec<String> {
        let list = world.get(path).await.json();
        let items = list["items"].as_array().unwrap().iter();
        items.map(|object| object["metadata"]["name"].as_str().unwrap().to_owned()).collect()
    };
    let levels = [
        "catch-all",
        "exempt",
        "global-default",
        "leader-election",
        "node-high",
        "system",
        "workload-high",
        "workload-low",
    ];
    assert_eq!(names(LEVELS).await, levels);
    assert_eq!(names(FLOWS).await.len(), 11);
    let probes = format!("{FLOWS}/probes");
    let before = world.get(&probes).await.json();
    assert_eq!(before["metadata"]["annotations"]["apf.kubernetes.io/autoupdate-spec"], "true");
    assert_eq!(world.ask(true, "DELETE", &probes, &[], "").await.code, 200);
    until(&world, &probes, |object| object["spec"] == before["spec"]).await;
    let merge = [("content-type", "application/merge-patch+json")];
    let mandatory = format!("{LEVELS}/catch-all");
    let body = r#"{"spec":{"limited":{"nominalConcurrencyShares":77}}}"#;
    assert_eq!(world.ask(true, "PATCH", &mandatory, &merge, body).await.code, 200);
    until(&world, &mandatory, |level| level["spec"]["limited"]["nominalConcurrencyShares"] == 5).await;
    // One that no longer carries the annotation is the operator's.
    let own =
        r#"{"metadata":{"annotations":{"apf.kubernetes.io/autoupdate-spec":"false"}},"spec":{"matchingPrecedence":3}}"#;
    assert_eq!(world.ask(true, "PATCH", &probes, &merge, own).await.code, 200);
    assert_eq!(world.ask(true, "DELETE", &format!("{FLOWS}/global-default"), &[], "").await.code, 200);
    until(&world, &format!("{FLOWS}/global-default"), |object| object["kind"] == "FlowSchema").await;
    assert_eq!(world.get(&probes).await.json()["spec"]["matchingPrecedence"], 3);
}

#[tokio::test]
async fn apf_5_a_new_schema_acts_on_the_next_request() {
    let world = World::start().await;
    let schema = json!({"metadata": {"name": "alice"}, "spec": {
        "matchingPrecedence": 10, "priorityLevelConfiguration": {"name": "workload-high"}, "rules": [{
            "subjects": [{"kind": "User", "user": {"name": "alice"}}],
            "nonResourceRules": [{"verbs": ["get"], "nonResourceURLs": ["/version"]}]}]}});
    assert_eq!(world.post(FLOWS, &schema).await.code, 201);
    let answer = world.ask(false, "GET", "/version", &ALICE, "").await;
    assert_eq!(flow(&world, &answer).await.as_deref(), Some("alice/workload-high"));
}

/// Never decides on lists of alice, so that they keep their seats.
struct Stuck;

impl Authorizer for Stuck {
    fn authorize<'a>(&'a self, attributes: &'a Attributes<'a>) -> Verdict<'a> {
        match (attributes.user.name.as_str(), attributes.verb) {
            ("alice", "list") => Verdict::Later(Box::pin(std::future::pending())),
            _ => Verdict::Now(Decision::allow("")),
        }
    }
}

#[tokio::test]
async fn apf_7_a_flood_of_lists_does_not_keep_another_client_from_its_gets() {
    let limits = Limits {
        inflight_reads_max: 160,
        inflight_writes_max: 80,
        long_lists_max: 4,
        long_lists_per_user_max: 2,
        long_list_time: PATIENCE,
        ..Limits::default()
    };
    let world = Arc::new(World::with_authorizer(limits, Arc::new(Stuck)).await);
    let root = User { name: "root".to_owned(), groups: vec![MASTERS.to_owned()], ..User::default() };
    let mut service = world.server.in_process(root);
    for n in 0..450 {
        let body = json!({"metadata": {"name": format!("m{n}")}}).to_string();
        let request = Request::post(MAPS).header("content-type", "application/json");
        let answer = service.call(request.body(Full::new(Bytes::from(body))).unwrap()).await.unwrap();
        assert_eq!(answer.status(), 201);
    }
    // The level has 20 seats. A list of 450 objects takes 5, and one user has at most two lists at a time.
    let mut flood = tokio::task::JoinSet::new();
    for _ in 0..30 {
        let world = Arc::clone(&world);
        flood.spawn(async move { world.ask(false, "GET", MAPS, &ALICE, "").await.code });
    }
    let figure = async |name: &str| {
        let metrics = world.get("/metrics").await;
        let line = format!("{name}{{priority_level=\"global-default\"}} ");
        metrics.text().lines().find_map(|one| one.strip_prefix(&line).map(str::to_owned)).unwrap_or_default()
    };
    let began = tokio::time::Instant::now();
    while figure("apiserver_flowcontrol_current_inqueue_requests").await != "28" {
        assert!(began.elapsed() < PATIENCE, "28 of 30 lists wait");
        tokio::time::sleep(std::time::Duration::from_millis(2)).await;
    }
    assert_eq!(figure("apiserver_flowcontrol_nominal_limit_seats").await, "20");
    assert_eq!(figure("apiserver_flowcontrol_current_executing_seats").await, "10");
    let bob = [("impersonate-user", "bob")];
    for path in [format!("{MAPS}/m1"), MAPS.to_owned()] {
        let answer = world.get_with(&path, &bob).await;
        assert_eq!(answer.code, 200);
        assert_eq!(flow(&world, &answer).await.as_deref(), Some("global-default/global-default"));
    }
    assert_eq!(figure("apiserver_flowcontrol_current_inqueue_requests").await, "28", "bob passed all that wait");
    flood.shutdown().await;
}

#[tokio::test]
async fn apf_9_a_schema_reports_whether_its_level_is_missing() {
    let world = World::start().await;
    let send = async |method: &str, path: &str, body: Value| {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let answer = world.ask(true, method, path, &[("content-type", "application/json")], body).await;
        assert!(answer.code < 300, "{}", answer.text());
    };
    let condition = async |schema: &str| {
        let object = world.get(&format!("{FLOWS}/{schema}")).await.json();
        let mut condition = object["status"]["conditions"][0].clone();
        assert!(condition["lastTransitionTime"].as_str().is_some(), "{object}");
        condition["lastTransitionTime"].take();
        let manager = &object["metadata"]["managedFields"][0];
        assert_eq!(manager["manager"], "api-priority-and-fairness-config-consumer-v1");
        assert_eq!((&manager["operation"], &manager["subresource"]), (&json!("Apply"), &json!("status")));
        condition
    };
    let spec = json!({"priorityLevelConfiguration": {"name": "mine"}, "matchingPrecedence": 50});
    send("POST", FLOWS, json!({"metadata": {"name": "f"}, "spec": spec})).await;
    let begin = "This FlowSchema references the PriorityLevelConfiguration object named \"mine\"";
    let reported = |status: &str, reason: &str, so: &str| json!({"type": "Dangling", "status": status, "lastTransitionTime": null, "reason": reason, "message": format!("{begin} {so}")});
    let dangling = reported("True", "NotFound", "but there is no such object");
    assert_eq!(condition("f").await, dangling);
    let limited = json!({"nominalConcurrencyShares": 5, "limitResponse": {"type": "Reject"}});
    let level = json!({"metadata": {"name": "mine"}, "spec": {"type": "Limited", "limited": limited}});
    send("POST", LEVELS, level).await;
    assert_eq!(condition("f").await, reported("False", "Found", "and it exists"));
    send("DELETE", &format!("{LEVELS}/mine"), Value::Null).await;
    assert_eq!(condition("f").await, dangling);
}

#[tokio::test]
async fn apf_10_levels_queues_and_requests_are_shown_to_those_who_may_see_them() {
    let world = World::start().await;
    assert_eq!(world.ask(false, "GET", MAPS, &ALICE, "").await.code, 200);
    let page = |name: &str| format!("/debug/api_priority_and_fairness/{name}");
    let levels = world.get(&page("dump_priority_levels")).await;
    assert_eq!((levels.code, levels.header("content-type")), (200, "text/plain; charset=utf-8"));
    let cells = |line: &str| line.split(',').map(|cell| cell.trim().to_owned()).collect::<Vec<_>>();
    let lines: Vec<Vec<String>> = levels.text().lines().map(cells).collect();
    assert_eq!(lines[0][..3], ["PriorityLevelName", "ActiveQueues", "IsIdle"]);
    let default = lines.iter().find(|line| line[0] == "global-default").expect("the level of alice");
    assert_eq!(default[6], "1", "its request was dispatched: {}", levels.text());
    for (name, first) in
        [("dump_queues", "PriorityLevelName, Index,"), ("dump_requests", "PriorityLevelName, FlowSchemaName,")]
    {
        let answer = world.get(&page(name)).await;
        assert!(answer.text().starts_with(first), "{}", answer.text());
    }
    assert_eq!(world.get(&page("dump_nothing")).await.code, 404);
}
