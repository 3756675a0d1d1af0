//! Watchers, requests and changes: what the lab shows of the clients of a server.

use futures::AsyncBufReadExt as _;
use http::Request;
use kube::Client;
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::{Value, json};

use crate::world::{PATIENCE, World, map};

const LAB: &str = "/apis/lab.dogwatch.dev/v1";
const MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// Sends a request with a user agent; an answer that is an error is returned as its code.
async fn send(client: &Client, method: &str, path: &str, agent: &str, body: Value) -> Result<Value, u16> {
    let body = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
    let kind = if method == "PATCH" { "application/merge-patch+json" } else { "application/json" };
    let request = Request::builder().method(method).uri(path).header("user-agent", agent).header("content-type", kind);
    match client.request::<Value>(request.body(body).unwrap()).await {
        Ok(answer) => Ok(answer),
        Err(kube::Error::Api(status)) => Err(status.code),
        Err(other) => panic!("{other}"),
    }
}

async fn get(client: &Client, path: &str) -> Value {
    send(client, "GET", &format!("{LAB}/{path}"), "viewer", Value::Null).await.unwrap()
}

fn items(list: &Value) -> &[Value] {
    list["items"].as_array().map_or(&[], |items| items)
}

/// Opens a watch with a user agent.
async fn watch(client: &Client, path: &str, agent: &str) -> impl futures::AsyncBufRead + Unpin + use<> {
    let request = Request::builder().uri(path).header("user-agent", agent).body(Vec::new()).unwrap();
    Box::pin(client.request_stream(request).await.unwrap())
}

/// The next line of a watch; none if it has ended.
async fn next_line(events: &mut (impl futures::AsyncBufRead + Unpin)) -> Option<Value> {
    let mut line = String::new();
    let read = tokio::time::timeout(PATIENCE, events.read_line(&mut line)).await.expect("an event comes").unwrap();
    (read > 0).then(|| serde_json::from_str(&line).unwrap())
}

/// Waits until the watcher with a user agent satisfies a condition.
async fn watcher(client: &Client, agent: &str, holds: impl Fn(&Value) -> bool) -> Value {
    let deadline = tokio::time::Instant::now() + PATIENCE;
    loop {
        let list = get(client, &format!("watchers?fieldSelector=userAgent%3D{agent}")).await;
        if let Some(found) = items(&list).iter().find(|item| holds(&item["status"])) {
            return found.clone();
        }
        assert!(tokio::time::Instant::now() < deadline, "{list}");
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn see_1_a_watcher_shows_what_it_was_sent_and_how_far_it_is_behind() {
    let world = World::start().await;
    let client = &world.client;
    let path = format!("{MAPS}?watch=true&labelSelector=app%3Dweb");
    let mut events = watch(client, &path, "operator").await;
    let idle = watcher(client, "operator", |_| true).await;
    let status = &idle["status"];
    assert_eq!((&status["resource"], &status["namespace"]), (&json!("configmaps"), &json!("default")));
    assert_eq!((&status["selector"], &status["user"]), (&json!("app=web"), &json!("dogwatch-admin")));
    assert_eq!((&status["protocol"], &status["revisionsBehind"]), (&json!("in-process"), &json!(0)));

    world.fault("hush", json!({"match": {"verbs": ["watch"]}, "effect": {"silence": {}}})).await;
    world.make_map("other").await.unwrap();
    let mut web = map("web");
    web.metadata.labels = Some([("app".to_owned(), "web".to_owned())].into());
    let made = world.maps().create(&Default::default(), &web).await.unwrap();
    let behind = watcher(client, "operator", |status| status["revisionsBehind"] == 1).await;
    assert!(behind["status"]["bytesBehind"].as_u64().unwrap() > 0, "{behind}");
    assert_eq!(behind["status"]["eventsSent"], 0);

    world.remove_fault("hush").await;
    assert_eq!(next_line(&mut events).await.unwrap()["object"]["metadata"]["name"], "web");
    let sent = watcher(client, "operator", |status| status["eventsSent"] == 1).await;
    assert_eq!(sent["status"]["lastRevision"].to_string(), made.metadata.resource_version.unwrap());
    assert_eq!((&sent["status"]["revisionsBehind"], &sent["status"]["lagMs"]), (&json!(0), &json!(0)));
}

#[tokio::test]
async fn see_1_deleting_a_watcher_ends_the_watch_and_followers_see_it() {
    let world = World::start().await;
    let client = &world.client;
    let revision = get(client, "watchers").await["metadata"]["resourceVersion"].as_str().unwrap().to_owned();
    let path = format!("{LAB}/watchers?watch=true&fieldSelector=userAgent%3Doperator&resourceVersion={revision}");
    let mut followed = watch(client, &path, "viewer").await;
    let mut events = watch(client, &format!("{MAPS}?watch=true"), "operator").await;
    let opened = next_line(&mut followed).await.unwrap();
    assert_eq!((&opened["type"], &opened["object"]["status"]["resource"]), (&json!("ADDED"), &json!("configmaps")));
    let name = opened["object"]["metadata"]["name"].as_str().unwrap();
    send(client, "DELETE", &format!("{LAB}/watchers/{name}"), "viewer", Value::Null).await.unwrap();
    assert_eq!(next_line(&mut events).await, None, "the watch ends cleanly");
    drop(events);
    loop {
        let event = next_line(&mut followed).await.unwrap();
        if event["type"] == "DELETED" {
            assert_eq!(event["object"]["metadata"]["name"], *name);
            break;
        }
    }
    assert_eq!(items(&get(client, "watchers?fieldSelector=userAgent%3Doperator").await).len(), 0);
    assert_eq!(send(client, "DELETE", &format!("{LAB}/watchers/{name}"), "viewer", Value::Null).await, Err(404));
    assert_eq!(send(client, "POST", &format!("{LAB}/watchers"), "viewer", json!({"kind": "Watcher"})).await, Err(405));
}

#[tokio::test]
async fn see_2_requests_are_selected_by_what_they_are() {
    let world = World::start().await;
    let client = &world.client;
    let agent = "operator/1.0";
    let made = send(client, "POST", MAPS, agent, json!(map("a"))).await.unwrap();
    assert_eq!(send(client, "GET", &format!("{MAPS}/none"), agent, Value::Null).await, Err(404));
    world.fault("no", json!({"match": {"verbs": ["delete"]}, "effect": {"error": {"code": 503}}})).await;
    assert_eq!(send(client, "DELETE", &format!("{MAPS}/a"), agent, Value::Null).await, Err(503));
    assert_eq!(send(client, "GET", MAPS, "another", Value::Null).await.map(|_| ()), Ok(()));

    let list = get(client, "requests?fieldSelector=userAgent%3Doperator%2F1.0").await;
    let seen: Vec<String> = items(&list)
        .iter()
        .map(|item| {
            let status = &item["status"];
            format!("{} {} {} {}", status["verb"], status["resource"], status["name"], status["code"])
        })
        .collect();
    let expected =
        [r#""create" "configmaps" null 201"#, r#""get" "configmaps" "none" 404"#, r#""delete" "configmaps" "a" 503"#];
    assert_eq!(seen, expected);
    let (create, delete) = (&items(&list)[0]["status"], &items(&list)[2]["status"]);
    assert_eq!(create["revision"].to_string(), made["metadata"]["resourceVersion"].as_str().unwrap());
    assert!(create["body"].as_str().unwrap().contains(r#""name":"a""#), "{create}");
    assert!(create["latencyMicroseconds"].is_u64() && create["bytes"].as_u64().unwrap() > 0, "{create}");
    assert_eq!((&create["namespace"], &create["user"]), (&json!("default"), &json!("dogwatch-admin")));
    assert_eq!(delete["faults"], json!(["no"]), "FLT-16");
    for (selector, count) in [("code%3D404", 1), ("verb%3Dcreate,resource%3Dconfigmaps", 1), ("name%3Da", 1)] {
        let list = get(client, &format!("requests?fieldSelector=userAgent%3Doperator%2F1.0,{selector}")).await;
        assert_eq!(items(&list).len(), count, "{selector}");
    }
    let name = items(&list)[1]["metadata"]["name"].as_str().unwrap();
    assert_eq!(get(client, &format!("requests/{name}")).await["status"]["code"], 404);
    let own = get(client, "requests?fieldSelector=userAgent%3Dviewer").await;
    assert_eq!(items(&own).len(), 0, "those who look are not seen");
}

#[tokio::test]
async fn see_2_requests_are_listed_page_by_page_and_watched_and_shown_as_a_table() {
    let world = World::start().await;
    let client = &world.client;
    for _ in 0..5 {
        send(client, "GET", MAPS, "operator", Value::Null).await.unwrap();
    }
    let (mut names, mut token) = (Vec::new(), String::new());
    loop {
        let path = format!("requests?limit=2&fieldSelector=userAgent%3Doperator&continue={token}");
        let page = get(client, &path).await;
        names.extend(items(&page).iter().map(|item| item["metadata"]["name"].to_string()));
        token = page["metadata"]["continue"].as_str().unwrap_or_default().to_owned();
        if token.is_empty() {
            break;
        }
    }
    assert_eq!((names.len(), names.is_sorted()), (5, true), "{names:?}");

    let initial = "watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";
    let path = format!("{LAB}/requests?{initial}&fieldSelector=userAgent%3Doperator");
    let mut events = watch(client, &path, "viewer").await;
    for _ in 0..5 {
        assert_eq!(next_line(&mut events).await.unwrap()["type"], "ADDED");
    }
    let mark = next_line(&mut events).await.unwrap();
    assert_eq!(mark["object"]["metadata"]["annotations"]["k8s.io/initial-events-end"], "true", "{mark}");
    send(client, "GET", &format!("{MAPS}/none"), "operator", Value::Null).await.unwrap_err();
    assert_eq!(next_line(&mut events).await.unwrap()["object"]["status"]["code"], 404);

    let request = Request::builder()
        .uri(format!("{LAB}/requests?fieldSelector=userAgent%3Doperator"))
        .header("accept", "application/json;as=Table;v=v1;g=meta.k8s.io")
        .body(Vec::new())
        .unwrap();
    let table: Value = client.request(request).await.unwrap();
    assert_eq!(table["rows"].as_array().unwrap().len(), 6);
    let columns: Vec<&str> =
        table["columnDefinitions"].as_array().unwrap().iter().map(|column| column["name"].as_str().unwrap()).collect();
    assert_eq!(columns[..5], ["Name", "Time", "Verb", "Resource", "Namespace"]);
}

#[tokio::test]
async fn see_3_a_change_has_its_writer_and_its_fields() {
    let world = World::start().await;
    let client = &world.client;
    let revision = get(client, "changes").await["metadata"]["resourceVersion"].as_str().unwrap().to_owned();
    let selector = "fieldSelector=kind%3DConfigMap,name%3Da";
    let mut followed =
        watch(client, &format!("{LAB}/changes?watch=true&{selector}&resourceVersion={revision}"), "x").await;
    // The writer is sent an event before it writes.
    let mut events = watch(client, &format!("{MAPS}?watch=true"), "operator/2.0").await;
    let first = world.make_map("cause").await.unwrap();
    while next_line(&mut events).await.unwrap()["object"]["metadata"]["name"] != "cause" {}
    let cause: u64 = first.metadata.resource_version.unwrap().parse().unwrap();
    let agent = "operator/2.0";
    send(client, "POST", MAPS, agent, json!({"metadata": {"name": "a"}, "data": {"x": "1", "y": "1"}})).await.unwrap();
    let patch = json!({"data": {"x": "2", "y": null, "z": "3"}});
    let path = format!("{MAPS}/a?fieldManager=painter");
    let patched = send(client, "PATCH", &path, agent, patch).await.unwrap();
    send(client, "DELETE", &format!("{MAPS}/a"), "kubectl", Value::Null).await.unwrap();
    let mut seen = Vec::new();
    for _ in 0..3 {
        seen.push(next_line(&mut followed).await.unwrap()["object"]["status"].take());
    }
    let kinds: Vec<&str> = seen.iter().map(|change| change["type"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["ADDED", "MODIFIED", "DELETED"]);
    let modified = &seen[1];
    assert_eq!(modified["fields"]["added"], json!(["data.z"]));
    assert_eq!(modified["fields"]["changed"], json!(["data.x"]));
    assert_eq!(modified["fields"]["removed"], json!(["data.y"]));
    assert_eq!((&modified["userAgent"], &modified["manager"]), (&json!(agent), &json!("painter")));
    assert_eq!(modified["revision"].to_string(), patched["metadata"]["resourceVersion"].as_str().unwrap());
    assert_eq!(seen[0]["manager"], "operator", "the program in the user agent");
    assert!(seen[0]["after"].as_u64().unwrap() >= cause, "{}", seen[0]);
    assert_eq!(seen[2]["userAgent"], "kubectl");
    let request = modified["request"].as_str().unwrap();
    assert_eq!(get(client, &format!("requests/{request}")).await["status"]["verb"], "patch");
    let list = get(client, "changes?fieldSelector=userAgent%3Doperator%2F2.0,namespace%3Ddefault").await;
    assert_eq!(items(&list).len(), 2);
}

#[tokio::test]
async fn see_3_old_states_are_released_and_what_changed_is_still_known() {
    let world = World::start().await;
    let big = "x".repeat(900 << 10);
    let mut object = map("big");
    object.data = Some([("big".to_owned(), big)].into());
    world.maps().create(&Default::default(), &object).await.unwrap();
    for number in 0..40 {
        let patch = json!({"data": {"number": number.to_string()}});
        world.maps().patch("big", &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    }
    let list = get(&world.client, "changes?fieldSelector=kind%3DConfigMap,name%3Dbig,type%3DMODIFIED").await;
    assert_eq!(items(&list).len(), 40);
    let fields: Vec<&Value> = items(&list).iter().map(|item| &item["status"]["fields"]["changed"]).collect();
    assert!(fields.iter().skip(1).all(|fields| **fields == json!(["data.number"])), "{fields:?}");
    world.maps().delete("big", &DeleteParams::default()).await.unwrap();
}
