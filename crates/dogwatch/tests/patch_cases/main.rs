//! Strategic merge and apply over the kinds: an object, a patch, the object that results and its `managedFields`, or the
//! refusal.
//!
//! What is expected in `cases.json` was recorded on a genuine Kubernetes v1.36.4 server: the object was created by
//! `creator` (before a strategic patch) or applied by `first` (before an apply), then `second` patched, or `first` applied
//! again. Times, uids and versions are left out, since they differ from run to run.

use http::{Method, Request};
use http_body_util::BodyExt;
use kube::Client;
use kube::client::Body;
use serde_json::{Map, Value, json};

/// The media type and the query of a change.
struct Change<'a> {
    media: &'a str,
    query: &'a str,
}

#[tokio::test]
async fn every_case_ends_as_on_a_genuine_server() {
    let kinds: Vec<Value> = serde_json::from_str(include_str!("cases.json")).expect("the table is JSON");
    let mut wrong = Vec::new();
    let mut whole = 0;
    for kind in &kinds {
        // A new server for each kind, so that no kind sees objects of another.
        let server = dogwatch::testing::Server::start().await;
        let client = server.client();
        for case in list(&kind["cases"]) {
            let found = run(&client, kind, case).await;
            let name = format!("{} {}: {}", kind["kind"], case["how"], case["name"]);
            if found != (case["code"].clone(), case["result"].clone()) {
                wrong.push(format!("{name}\n{}", differences("", &case["result"], &found.1).join("\n")));
            }
            whole += usize::from(case["result"]["metadata"]["managedFields"].is_array());
            clear(&client, kind).await;
        }
    }
    assert!(wrong.is_empty(), "{} cases differ:\n{}", wrong.len(), wrong.join("\n"));
    assert!(whole >= 150, "only {whole} cases state object, patch, result and managedFields");
}

/// The expected values are responses of a genuine server.
#[tokio::test]
async fn replicas_are_applied_through_the_scale() {
    let server = dogwatch::testing::Server::start().await;
    let client = server.client();
    let item = "/apis/apps/v1/namespaces/default/deployments/x";
    let path = format!("{item}/scale");
    let deployment = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "x"}, "spec": {"replicas": 2,
        "selector": {"matchLabels": {"a": "b"}}, "template": {"metadata": {"labels": {"a": "b"}},
        "spec": {"containers": [{"name": "c", "image": "i"}]}}}});
    let scale =
        |spec: Value| json!({"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": "x"}, "spec": spec});
    let by = |query| Change { media: "application/apply-patch+yaml", query };
    let (first, second, forced) =
        (by("fieldManager=first"), by("fieldManager=second"), by("fieldManager=second&force=true"));
    let owners = async || {
        let (_, object) = send(&client, Method::GET, item, &first, &Value::Null).await;
        let entries = list(&object["metadata"]["managedFields"]).iter();
        let owning = entries.filter(|entry| entry["fieldsV1"]["f:spec"]["f:replicas"].is_object());
        owning.map(|entry| format!("{} {}", text(&entry["manager"]), entry["subresource"])).collect::<Vec<_>>()
    };
    assert_eq!(send(&client, Method::PATCH, item, &first, &deployment).await.0, 201);

    let (code, refused) = send(&client, Method::PATCH, &path, &second, &scale(json!({"replicas": 5}))).await;
    let message = "Apply failed with 1 conflict: conflict with \"first\": .spec.replicas";
    assert_eq!((code, text(&refused["message"])), (409, message));
    let (code, shared) = send(&client, Method::PATCH, &path, &second, &scale(json!({"replicas": 2}))).await;
    assert_eq!((code, &shared["spec"]["replicas"]), (200, &json!(2)));
    assert_eq!(owners().await, ["second \"scale\"", "first null"]);
    let (code, taken) = send(&client, Method::PATCH, &path, &forced, &scale(json!({"replicas": 5}))).await;
    assert_eq!((code, &taken["spec"]["replicas"]), (200, &json!(5)));
    assert_eq!(owners().await, ["second \"scale\""]);
    let (code, left) = send(&client, Method::PATCH, &path, &second, &scale(json!({}))).await;
    assert_eq!((code, &left["spec"]), (200, &json!({})));
    assert_eq!(owners().await, [""; 0]);

    let (code, refused) = send(&client, Method::PATCH, &path, &second, &deployment).await;
    assert_eq!((code, text(&refused["message"])), (400, "invalid object type: apps/v1, Kind=Deployment"));
    let (code, refused) = send(&client, Method::PATCH, &path, &second, &scale(json!({"replicas": -5}))).await;
    assert_eq!((code, &refused["reason"]), (422, &json!("Invalid")));
}

async fn run(client: &Client, kind: &Value, case: &Value) -> (Value, Value) {
    let (collection, object) = (text(&kind["collection"]), &kind["object"]);
    let item = format!("{collection}/{}", text(&object["metadata"]["name"]));
    let how = text(&case["how"]);
    let (code, made) = if how == "strategic" {
        let create = Change { media: "application/json", query: "fieldManager=creator" };
        send(client, Method::POST, collection, &create, object).await
    } else {
        let apply = Change { media: "application/apply-patch+yaml", query: "fieldManager=first" };
        send(client, Method::PATCH, &item, &apply, object).await
    };
    assert_eq!(code, 201, "{}: {made}", case["name"]);
    let change = match how {
        "strategic" => Change { media: "application/strategic-merge-patch+json", query: "fieldManager=second" },
        "apply" => Change { media: "application/apply-patch+yaml", query: "fieldManager=second" },
        "force" => Change { media: "application/apply-patch+yaml", query: "fieldManager=second&force=true" },
        "again" => Change { media: "application/apply-patch+yaml", query: "fieldManager=first" },
        other => panic!("no such change: {other}"),
    };
    let mut patch = case["patch"].clone();
    if how != "strategic" {
        patch["apiVersion"] = object["apiVersion"].clone();
        patch["kind"] = object["kind"].clone();
        patch["metadata"]["name"] = object["metadata"]["name"].clone();
    }
    let path = match case["subresource"].as_str() {
        Some(subresource) => format!("{item}/{subresource}"),
        None => item,
    };
    let (code, mut result) = send(client, Method::PATCH, &path, &change, &patch).await;
    comparable(&mut result);
    (json!(code), result)
}

/// Removes the object, including its finalizers.
async fn clear(client: &Client, kind: &Value) {
    let item = format!("{}/{}", text(&kind["collection"]), text(&kind["object"]["metadata"]["name"]));
    let merge = Change { media: "application/merge-patch+json", query: "" };
    let delete = Change { media: "application/json", query: "gracePeriodSeconds=0" };
    let release = json!({"metadata": {"finalizers": null}});
    send(client, Method::PATCH, &item, &merge, &release).await;
    send(client, Method::DELETE, &item, &delete, &json!({"propagationPolicy": "Background"})).await;
    send(client, Method::PATCH, &item, &merge, &release).await;
    if kind["kind"] == "Namespace" {
        let bare =
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": kind["object"]["metadata"]["name"]}});
        let put = Change { media: "application/json", query: "" };
        send(client, Method::PUT, &format!("{item}/finalize"), &put, &bare).await;
    }
    for _ in 0..500 {
        if send(client, Method::GET, &item, &delete, &Value::Null).await.0 == 404 {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    panic!("{item} does not go away");
}

async fn send(client: &Client, method: Method, path: &str, change: &Change<'_>, body: &Value) -> (u16, Value) {
    let body = if method == Method::GET { Vec::new() } else { body.to_string().into_bytes() };
    let request = Request::builder()
        .method(method)
        .uri(format!("{path}?{}", change.query))
        .header("content-type", change.media)
        .header("accept", "application/json")
        .header("user-agent", "cases")
        .body(Body::from(body))
        .expect("a request");
    let response = client.send(request).await.expect("an answer");
    let code = response.status().as_u16();
    let bytes = response.into_body().collect().await.expect("a body").to_bytes();
    (code, serde_json::from_slice(&bytes).expect("JSON"))
}

/// The managers of the recorded changes. Entries of controllers appear at any time and are ignored.
const MANAGERS: [&str; 3] = ["creator", "first", "second"];

/// Removes the fields that differ from run to run, and those that a controller writes.
fn comparable(object: &mut Value) {
    if object["kind"] == "Status" {
        let fields = ["reason", "message", "code"];
        let kept: Map<String, Value> =
            fields.iter().filter_map(|field| Some(((*field).to_owned(), object.get(*field)?.clone()))).collect();
        *object = Value::Object(kept);
        return;
    }
    if let Some(metadata) = object["metadata"].as_object_mut() {
        for field in ["uid", "resourceVersion", "creationTimestamp", "selfLink"] {
            metadata.remove(field);
        }
        if let Some(entries) = metadata.get_mut("managedFields").and_then(Value::as_array_mut) {
            entries.retain(|entry| MANAGERS.contains(&text(&entry["manager"])));
            for entry in entries {
                entry.as_object_mut().and_then(|entry| entry.remove("time"));
            }
        }
    }
    if matches!(object["kind"].as_str(), Some("ResourceQuota" | "CustomResourceDefinition")) {
        object.as_object_mut().and_then(|object| object.remove("status"));
    }
    without_identities(object);
}

fn without_identities(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|name, _| !["uid", "lastUpdateTime", "lastPhaseTransitionTime"].contains(&name.as_str()));
            for (name, value) in fields {
                if name.ends_with("controller-uid") {
                    *value = json!("UID");
                } else {
                    without_identities(value);
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(without_identities),
        _ => {}
    }
}

/// The differences of two values, one line each.
fn differences(path: &str, wanted: &Value, found: &Value) -> Vec<String> {
    match (wanted, found) {
        (Value::Object(one), Value::Object(two)) => {
            let names: std::collections::BTreeSet<&String> = one.keys().chain(two.keys()).collect();
            let null = Value::Null;
            let parts = names.into_iter().map(|name| {
                let (wanted, found) = (one.get(name).unwrap_or(&null), two.get(name).unwrap_or(&null));
                differences(&format!("{path}/{name}"), wanted, found)
            });
            parts.flatten().collect()
        }
        _ if wanted == found => Vec::new(),
        _ => vec![format!("  {path}: wanted {wanted}, found {found}")],
    }
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}

fn text(value: &Value) -> &str {
    value.as_str().expect("text")
}
