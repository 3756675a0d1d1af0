//! Deletion: the protocol between the server and the agent of a node for pods, and the events of any deletion (DE-*).

use std::time::Duration;

use blackbox::wire::Stream;
use serde_json::{Value, json};

use crate::world::{Namespace, message, revision};

const HELD: &str = "example.com/held";

/// Watches a resource from now on.
async fn watching(ns: &Namespace, resource: &str) -> Stream {
    let now = ns.now().await;
    ns.watch(ns.path(&format!("{resource}?watch=1&resourceVersion={now}"))).await
}

async fn make_pod(ns: &Namespace, name: &str, spec: Value) -> Value {
    let mut whole = json!({"containers": [{"name": "app", "image": "app"}]});
    for (field, value) in spec.as_object().expect("fields") {
        whole[field] = value.clone();
    }
    ns.create("pods", &json!({"metadata": {"name": name}, "spec": whole})).await
}

async fn delete(ns: &Namespace, path: &str) -> Value {
    ns.delete(ns.path(path)).send().await.expect(200)
}

fn grace(object: &Value) -> &Value {
    &object["metadata"]["deletionGracePeriodSeconds"]
}

/// The deletion timestamp, in seconds.
fn deletion_second(object: &Value) -> i64 {
    second(&object["metadata"]["deletionTimestamp"])
}

fn second(value: &Value) -> i64 {
    let time: k8s_openapi::apimachinery::pkg::apis::meta::v1::Time =
        serde_json::from_value(value.clone()).unwrap_or_else(|e| panic!("{value}: {e}"));
    time.0.as_second()
}

fn now() -> i64 {
    blackbox::clock::now().as_second()
}

/// Type, grace period and generation of an event.
fn summary(event: &Value) -> String {
    let object = &event["object"];
    format!("{} {} {}", event["type"].as_str().unwrap_or_default(), grace(object), object["metadata"]["generation"])
}

/// The next events of a watch, as summaries and as objects.
async fn next(watch: &mut Stream, count: usize) -> (Vec<String>, Vec<Value>) {
    let mut events = Vec::new();
    for _ in 0..count {
        events.push(watch.event().await.expect("the watch is open"));
    }
    (events.iter().map(summary).collect(), events.into_iter().map(|mut event| event["object"].take()).collect())
}

#[tokio::test]
async fn de_1_the_grace_period_of_a_pod() {
    let ns = Namespace::new("de-1").await;
    let on_node = |extra: Value| {
        let mut spec = json!({"nodeName": "n1"});
        for (field, value) in extra.as_object().expect("fields") {
            spec[field] = value.clone();
        }
        spec
    };
    // The period of the request, else of the pod, else 30; a negative one counts as 1.
    for (name, spec, asked, expected) in [
        ("usual", on_node(json!({})), "", 30),
        ("said", on_node(json!({"terminationGracePeriodSeconds": 7})), "", 7),
        ("asked", on_node(json!({"terminationGracePeriodSeconds": 7})), "?gracePeriodSeconds=99", 99),
        ("negative", on_node(json!({})), "?gracePeriodSeconds=-5", 1),
    ] {
        make_pod(&ns, name, spec).await;
        let deleted = delete(&ns, &format!("pods/{name}{asked}")).await;
        assert_eq!(grace(&deleted), expected, "{name}");
        assert_eq!(deleted["kind"], "Pod");
        assert_eq!(grace(&ns.read(&format!("pods/{name}")).await), expected, "{name} is still there");
    }
    // A pod without a node, or one that has ended, needs no grace period.
    make_pod(&ns, "unscheduled", json!({})).await;
    let deleted = delete(&ns, "pods/unscheduled?gracePeriodSeconds=99").await;
    assert_eq!(grace(&deleted), 0);
    ns.get_response("pods/unscheduled").await.refused(404, "NotFound");
    for phase in ["Succeeded", "Failed"] {
        let name = phase.to_lowercase();
        make_pod(&ns, &name, json!({"nodeName": "n1"})).await;
        ns.merge(&format!("pods/{name}/status"), &json!({"status": {"phase": phase}})).await;
        let deleted = delete(&ns, &format!("pods/{name}")).await;
        assert_eq!(grace(&deleted), 0, "{phase}");
        ns.get_response(&format!("pods/{name}")).await.refused(404, "NotFound");
    }
}

#[tokio::test]
async fn de_2_a_graceful_deletion_is_one_write() {
    let ns = Namespace::new("de-2").await;
    make_pod(&ns, "a", json!({"nodeName": "n1"})).await;
    let mut watch = watching(&ns, "pods").await;
    let before = now();
    let deleted = delete(&ns, "pods/a?gracePeriodSeconds=20").await;
    assert_eq!(deleted["kind"], "Pod", "the object, not a Status");
    assert_eq!((grace(&deleted), &deleted["metadata"]["generation"]), (&json!(20), &json!(2)));
    assert!((before + 20..=now() + 20).contains(&deletion_second(&deleted)), "{deleted}");
    let (events, objects) = next(&mut watch, 1).await;
    assert_eq!(events, ["MODIFIED 20 2"]);
    assert_eq!(objects[0]["metadata"], deleted["metadata"], "the answer is what was written");
    // There is no other event of the deletion: the next one is of another pod.
    make_pod(&ns, "b", json!({})).await;
    assert_eq!(watch.summary().await.unwrap(), "ADDED b");
}

#[tokio::test]
async fn de_3_without_grace_it_is_two_operations() {
    let ns = Namespace::new("de-3").await;
    // Never scheduled.
    make_pod(&ns, "waiting", json!({})).await;
    let mut watch = watching(&ns, "pods").await;
    delete(&ns, "pods/waiting").await;
    let (events, objects) = next(&mut watch, 2).await;
    assert_eq!(events, ["MODIFIED 0 2", "DELETED 0 2"]);
    assert!(revision(&objects[0]) < revision(&objects[1]));
    // By force.
    make_pod(&ns, "forced", json!({"nodeName": "n1"})).await;
    let mut watch = watching(&ns, "pods").await;
    delete(&ns, "pods/forced?gracePeriodSeconds=0").await;
    assert_eq!(next(&mut watch, 2).await.0, ["MODIFIED 0 2", "DELETED 0 2"]);
    // Shortened to zero: the time moves back, but not before now.
    make_pod(&ns, "shortened", json!({"nodeName": "n1"})).await;
    let first = delete(&ns, "pods/shortened?gracePeriodSeconds=600").await;
    let mut watch = watching(&ns, "pods").await;
    // So that the time differs in seconds from that of the first request.
    tokio::time::sleep(Duration::from_millis(1100)).await;
    let before = now();
    delete(&ns, "pods/shortened?gracePeriodSeconds=0").await;
    let (events, objects) = next(&mut watch, 2).await;
    assert_eq!(events, ["MODIFIED 0 2", "DELETED 0 2"], "one generation for the whole deletion");
    assert!(
        (before..=now()).contains(&deletion_second(&objects[0])),
        "moved back from {}: {}",
        deletion_second(&first),
        objects[0]
    );
}

#[tokio::test]
async fn de_4_a_later_deletion_can_only_shorten() {
    let ns = Namespace::new("de-4").await;
    make_pod(&ns, "a", json!({"nodeName": "n1"})).await;
    let first = delete(&ns, "pods/a?gracePeriodSeconds=300").await;
    for longer in ["pods/a?gracePeriodSeconds=300", "pods/a?gracePeriodSeconds=900"] {
        let again = delete(&ns, longer).await;
        assert_eq!(again["metadata"], first["metadata"], "{longer}");
        assert_eq!(ns.read("pods/a").await["metadata"], first["metadata"], "{longer}");
    }
    let shorter = delete(&ns, "pods/a?gracePeriodSeconds=100").await;
    assert_eq!(grace(&shorter), 100);
    assert_eq!(deletion_second(&first) - deletion_second(&shorter), 200, "{shorter}");
    assert!(revision(&shorter) > revision(&first));
    assert_eq!(shorter["metadata"]["generation"], first["metadata"]["generation"]);
}

#[tokio::test]
async fn de_5_finalizers_hold_and_what_has_no_grace_says_so() {
    let ns = Namespace::new("de-5").await;
    let held = json!({"name": "a", "finalizers": [HELD]});
    ns.create("configmaps", &json!({"metadata": held})).await;
    let spec = json!({"replicas": 0, "selector": {"matchLabels": {"app": "web"}}, "template":
        {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "app", "image": "app"}]}}});
    let deployments = ns.path_in("apps/v1", "deployments");
    ns.post(&deployments, &json!({"metadata": held, "spec": spec})).send().await.expect(201);
    for (path, generation) in [(ns.path("configmaps/a"), json!(null)), (format!("{deployments}/a"), json!(2))] {
        let before = now();
        let deleted = ns.delete(&path).send().await.expect(200);
        assert_eq!(grace(&deleted), 0, "{deleted}");
        assert!((before..=now()).contains(&deletion_second(&deleted)), "{deleted}");
        let stays = ns.get(&path).send().await.expect(200);
        assert_eq!(stays["metadata"]["finalizers"], json!([HELD]));
        assert_eq!(stays["metadata"]["generation"], generation, "incremented, where the kind has one");
    }
}

#[tokio::test]
async fn de_6_the_write_that_empties_the_finalizers_removes_it() {
    let ns = Namespace::new("de-6").await;
    let held = json!({"name": "a", "finalizers": [HELD, "example.com/other"]});
    ns.create("configmaps", &json!({"metadata": held})).await;
    delete(&ns, "configmaps/a").await;
    let mut watch = watching(&ns, "configmaps").await;
    ns.merge("configmaps/a", &json!({"metadata": {"finalizers": [HELD]}})).await;
    let answer = ns.merge("configmaps/a", &json!({"metadata": {"finalizers": null}})).await;
    assert_eq!(answer["metadata"].get("finalizers"), None, "{answer}");
    ns.get_response("configmaps/a").await.refused(404, "NotFound");
    let first = watch.event().await.unwrap();
    assert_eq!((&first["type"], &first["object"]["metadata"]["finalizers"]), (&json!("MODIFIED"), &json!([HELD])));
    let gone = watch.event().await.unwrap();
    assert_eq!(gone["type"], "DELETED", "the emptied state was never stored");
    assert_eq!(gone["object"]["metadata"]["finalizers"], json!([HELD]));
    assert!(revision(&gone["object"]) > revision(&first["object"]));
    // It does not remove a pod with a grace period left (DE-7), but one without.
    let mut pod = json!({"metadata": {"name": "p", "finalizers": [HELD]}, "spec":
        {"nodeName": "n1", "containers": [{"name": "app", "image": "app"}]}});
    ns.create("pods", &pod).await;
    delete(&ns, "pods/p?gracePeriodSeconds=0").await;
    assert_eq!(grace(&ns.read("pods/p").await), 0);
    ns.merge("pods/p", &json!({"metadata": {"finalizers": null}})).await;
    ns.get_response("pods/p").await.refused(404, "NotFound");
    // Also by an update of the whole object.
    pod["metadata"]["name"] = json!("q");
    ns.create("pods", &pod).await;
    let mut marked = delete(&ns, "pods/q?gracePeriodSeconds=0").await;
    marked["metadata"]["finalizers"] = json!([]);
    ns.put(ns.path("pods/q"), &marked).send().await.expect(200);
    ns.get_response("pods/q").await.refused(404, "NotFound");
}

#[tokio::test]
async fn de_7_with_grace_left_it_stays_until_the_agent_removes_it() {
    let ns = Namespace::new("de-7").await;
    let pod = json!({"metadata": {"name": "a", "finalizers": [HELD]}, "spec":
        {"nodeName": "n1", "containers": [{"name": "app", "image": "app"}]}});
    let made = ns.create("pods", &pod).await;
    delete(&ns, "pods/a?gracePeriodSeconds=600").await;
    let mut watch = watching(&ns, "pods").await;
    ns.merge("pods/a", &json!({"metadata": {"finalizers": null}})).await;
    assert_eq!(next(&mut watch, 1).await.0, ["MODIFIED 600 2"]);
    assert_eq!(grace(&ns.read("pods/a").await), 600, "no agent has stopped it yet");
    let options = json!({"gracePeriodSeconds": 0, "preconditions": {"uid": made["metadata"]["uid"]}});
    ns.delete(ns.path("pods/a")).json(&options).send().await.expect(200);
    assert_eq!(next(&mut watch, 2).await.0, ["MODIFIED 0 2", "DELETED 0 2"]);
    ns.get_response("pods/a").await.refused(404, "NotFound");
}

#[tokio::test]
async fn de_8_de_9_other_kinds_go_in_one_event_that_shows_the_last_state() {
    let ns = Namespace::new("de-8").await;
    let template =
        json!({"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "app", "image": "app"}]}});
    let spec = json!({"replicas": 0, "selector": {"matchLabels": {"app": "web"}}, "template": template});
    for (group, resource, spec) in [
        ("apps/v1", "deployments", spec.clone()),
        ("apps/v1", "replicasets", spec),
        ("v1", "services", json!({"ports": [{"port": 80}]})),
    ] {
        let collection = if group == "v1" { ns.path(resource) } else { ns.path_in(group, resource) };
        let body = json!({"metadata": {"name": "a"}, "spec": spec});
        ns.post(&collection, &body).send().await.expect(201);
        let labels = json!({"metadata": {"labels": {"last": "state"}}});
        let last = ns.patch("merge", format!("{collection}/a"), &labels).send().await.expect(200);
        let mut watch = ns.watch(format!("{collection}?watch=1&resourceVersion={}", revision(&last))).await;
        let options = json!({"propagationPolicy": "Background"});
        ns.delete(format!("{collection}/a")).json(&options).send().await.expect(200);
        let gone = watch.event().await.unwrap();
        assert_eq!(gone["type"], "DELETED", "{resource}: straight away");
        let mut shown = gone["object"].clone();
        assert!(revision(&shown) > revision(&last), "the revision of the removal");
        // A fresh list is at least as new.
        let list = ns.get(&collection).send().await.expect(200);
        assert!(revision(&list) >= revision(&shown));
        shown["metadata"]["resourceVersion"] = last["metadata"]["resourceVersion"].clone();
        assert_eq!(shown, last, "{resource}: the last state that was stored");
        let mut body = json!({"metadata": {"name": "b"}, "spec": last["spec"]});
        for address in ["clusterIP", "clusterIPs"] {
            body["spec"].as_object_mut().unwrap().remove(address);
        }
        ns.post(&collection, &body).send().await.expect(201);
        assert_eq!(watch.summary().await.unwrap(), "ADDED b", "one event");
    }
}

#[tokio::test]
async fn de_9_the_revision_of_a_removal_can_be_watched_from() {
    let ns = Namespace::new("de-9").await;
    ns.config_map("a").await;
    let mut watch = watching(&ns, "configmaps").await;
    ns.remove("configmaps/a").await;
    let gone = watch.event().await.unwrap();
    ns.config_map("b").await;
    let mut later = ns.watching(&format!("resourceVersion={}", revision(&gone["object"]))).await;
    assert_eq!(later.summary().await.unwrap(), "ADDED b", "the removal itself is before it");
    let mut earlier = ns.watching(&format!("resourceVersion={}", revision(&gone["object"]) - 1)).await;
    assert_eq!(earlier.summary().await.unwrap(), "DELETED a", "and nothing lies between");
}

#[tokio::test]
async fn de_10_the_first_deletion_decides_about_dependents() {
    let ns = Namespace::new("de-10").await;
    let finalizers = |object: &Value| object["metadata"]["finalizers"].clone();
    let with = async |name: &str, before: Value, policy: &str| {
        ns.create("configmaps", &json!({"metadata": {"name": name, "finalizers": before}})).await;
        let options = json!({"propagationPolicy": policy});
        ns.delete(ns.path(&format!("configmaps/{name}"))).json(&options).send().await.expect(200)
    };
    assert_eq!(finalizers(&with("orphan", json!([]), "Orphan").await), json!(["orphan"]));
    assert_eq!(finalizers(&with("foreground", json!([]), "Foreground").await), json!(["foregroundDeletion"]));
    for (name, finalizer) in [("not-orphan", "orphan"), ("not-foreground", "foregroundDeletion")] {
        let freed = with(name, json!([HELD, finalizer]), "Background").await;
        assert_eq!(finalizers(&freed), json!([HELD]), "{finalizer} is removed, others stay");
    }
    let swapped = with("swapped", json!(["foregroundDeletion"]), "Orphan").await;
    assert_eq!(finalizers(&swapped), json!(["orphan"]), "one or the other");
    // A request that names no policy keeps the one that the object has already.
    for finalizer in ["orphan", "foregroundDeletion"] {
        let name = format!("unnamed-{}", finalizer.to_lowercase());
        ns.create("configmaps", &json!({"metadata": {"name": name, "finalizers": [HELD, finalizer]}})).await;
        let marked = ns.delete(ns.path(&format!("configmaps/{name}"))).send().await.expect(200);
        assert_eq!(finalizers(&marked), json!([HELD, finalizer]));
    }
    // Without a finalizer it is removed at once.
    assert_eq!(with("plain", json!([]), "Background").await["kind"], "Status");
    ns.get_response("configmaps/plain").await.refused(404, "NotFound");
    // For a pod with a grace period, a later request does not change the policy.
    let pod = json!({"metadata": {"name": "p"}, "spec":
        {"nodeName": "n1", "containers": [{"name": "app", "image": "app"}]}});
    ns.create("pods", &pod).await;
    let asking = async |path: &str, policy: &str| {
        let options = json!({"propagationPolicy": policy});
        ns.delete(ns.path(path)).json(&options).send().await.expect(200)
    };
    let first = asking("pods/p", "Orphan").await;
    assert_eq!(finalizers(&first), json!(["orphan"]));
    for policy in ["Foreground", "Background"] {
        assert_eq!(asking("pods/p", policy).await["metadata"], first["metadata"], "{policy}");
    }
    // Without a grace period each request counts, as on a real v1.36.4.
    let held = json!({"name": "held", "finalizers": [HELD]});
    ns.create("configmaps", &json!({"metadata": held})).await;
    for (policy, expected) in [
        ("Foreground", json!([HELD, "foregroundDeletion"])),
        ("Orphan", json!([HELD, "orphan"])),
        ("Background", json!([HELD])),
    ] {
        assert_eq!(finalizers(&asking("configmaps/held", policy).await), expected, "{policy}");
    }
}

#[tokio::test]
async fn de_11_preconditions_that_do_not_hold_are_conflicts() {
    let ns = Namespace::new("de-11").await;
    let made = ns.config_map("a").await;
    let uid = &made["metadata"]["uid"];
    let newer = ns.label("a", "newer", "yes").await;
    let asking = async |preconditions: Value| {
        let options = json!({"preconditions": preconditions});
        ns.delete(ns.path("configmaps/a")).json(&options).send().await
    };
    let stale = &made["metadata"]["resourceVersion"];
    for wrong in
        [json!({"uid": "other"}), json!({"resourceVersion": stale}), json!({"uid": uid, "resourceVersion": "1"})]
    {
        let status = asking(wrong.clone()).await.refused(409, "Conflict");
        assert!(message(&status).starts_with("Operation cannot be fulfilled on "), "{wrong}: {status}");
        assert_eq!(ns.read("configmaps/a").await, newer, "{wrong}: nothing happened");
    }
    asking(json!({"uid": uid, "resourceVersion": newer["metadata"]["resourceVersion"]})).await.expect(200);
    ns.get_response("configmaps/a").await.refused(404, "NotFound");
    // They are checked during the grace period of a pod too.
    let pod = make_pod(&ns, "p", json!({"nodeName": "n1"})).await;
    delete(&ns, "pods/p").await;
    let options = json!({"gracePeriodSeconds": 0, "preconditions": {"uid": "other"}});
    ns.delete(ns.path("pods/p")).json(&options).send().await.refused(409, "Conflict");
    assert_eq!(ns.read("pods/p").await["metadata"]["uid"], pod["metadata"]["uid"]);
}
