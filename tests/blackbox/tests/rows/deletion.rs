//! What the agent of a node relies on when pods are deleted, and what others see of any deletion (DE-*).

use std::time::Duration;

use blackbox::wire::Stream;
use serde_json::{Value, json};

use crate::world::{Place, message, revision};

const HELD: &str = "example.com/held";

/// Pods of a place from now on.
async fn watching(place: &Place, resource: &str) -> Stream {
    let now = place.now().await;
    place.watch(place.path(&format!("{resource}?watch=1&resourceVersion={now}"))).await
}

async fn make_pod(place: &Place, name: &str, spec: Value) -> Value {
    let mut whole = json!({"containers": [{"name": "app", "image": "app"}]});
    for (field, value) in spec.as_object().expect("fields") {
        whole[field] = value.clone();
    }
    place.make("pods", &json!({"metadata": {"name": name}, "spec": whole})).await
}

async fn delete(place: &Place, path: &str) -> Value {
    place.delete(place.path(path)).answer().await.expect(200)
}

fn grace(object: &Value) -> &Value {
    &object["metadata"]["deletionGracePeriodSeconds"]
}

/// When it is to be gone, in seconds.
fn until(object: &Value) -> i64 {
    second(&object["metadata"]["deletionTimestamp"])
}

fn second(value: &Value) -> i64 {
    let time: k8s_openapi::apimachinery::pkg::apis::meta::v1::Time =
        serde_json::from_value(value.clone()).unwrap_or_else(|e| panic!("{value}: {e}"));
    time.0.as_second()
}

fn now() -> i64 {
    jiff::Timestamp::now().as_second()
}

/// An event in short: type, grace, generation.
fn story(event: &Value) -> String {
    let object = &event["object"];
    format!("{} {} {}", event["type"].as_str().unwrap_or_default(), grace(object), object["metadata"]["generation"])
}

/// The next events of a watch, in short; and the objects.
async fn next(watch: &mut Stream, count: usize) -> (Vec<String>, Vec<Value>) {
    let mut events = Vec::new();
    for _ in 0..count {
        events.push(watch.event().await.expect("the watch goes on"));
    }
    (events.iter().map(story).collect(), events.into_iter().map(|mut event| event["object"].take()).collect())
}

#[tokio::test]
async fn de_1_how_long_a_pod_is_given() {
    let place = Place::new("de-1").await;
    let on_node = |extra: Value| {
        let mut spec = json!({"nodeName": "n1"});
        for (field, value) in extra.as_object().expect("fields") {
            spec[field] = value.clone();
        }
        spec
    };
    // What is asked, else what the pod says, else 30; a negative number is one.
    for (name, spec, asked, expected) in [
        ("usual", on_node(json!({})), "", 30),
        ("said", on_node(json!({"terminationGracePeriodSeconds": 7})), "", 7),
        ("asked", on_node(json!({"terminationGracePeriodSeconds": 7})), "?gracePeriodSeconds=99", 99),
        ("negative", on_node(json!({})), "?gracePeriodSeconds=-5", 1),
    ] {
        make_pod(&place, name, spec).await;
        let deleted = delete(&place, &format!("pods/{name}{asked}")).await;
        assert_eq!(grace(&deleted), expected, "{name}");
        assert_eq!(deleted["kind"], "Pod");
        assert_eq!(grace(&place.read(&format!("pods/{name}")).await), expected, "{name} is still there");
    }
    // Nobody has to stop a pod that is on no node or has ended.
    make_pod(&place, "unscheduled", json!({})).await;
    let deleted = delete(&place, "pods/unscheduled?gracePeriodSeconds=99").await;
    assert_eq!(grace(&deleted), 0);
    place.answer("pods/unscheduled").await.refused(404, "NotFound");
    for phase in ["Succeeded", "Failed"] {
        let name = phase.to_lowercase();
        make_pod(&place, &name, json!({"nodeName": "n1"})).await;
        place.merge(&format!("pods/{name}/status"), &json!({"status": {"phase": phase}})).await;
        let deleted = delete(&place, &format!("pods/{name}")).await;
        assert_eq!(grace(&deleted), 0, "{phase}");
        place.answer(&format!("pods/{name}")).await.refused(404, "NotFound");
    }
}

#[tokio::test]
async fn de_2_a_graceful_deletion_is_one_write() {
    let place = Place::new("de-2").await;
    make_pod(&place, "a", json!({"nodeName": "n1"})).await;
    let mut watch = watching(&place, "pods").await;
    let before = now();
    let deleted = delete(&place, "pods/a?gracePeriodSeconds=20").await;
    assert_eq!(deleted["kind"], "Pod", "the object, not a Status");
    assert_eq!((grace(&deleted), &deleted["metadata"]["generation"]), (&json!(20), &json!(2)));
    assert!((before + 20..=now() + 20).contains(&until(&deleted)), "{deleted}");
    let (told, objects) = next(&mut watch, 1).await;
    assert_eq!(told, ["MODIFIED 20 2"]);
    assert_eq!(objects[0]["metadata"], deleted["metadata"], "the answer is what was written");
    // And nothing else: the next event is of something else.
    make_pod(&place, "b", json!({})).await;
    assert_eq!(watch.told().await.unwrap(), "ADDED b");
}

#[tokio::test]
async fn de_3_without_grace_it_is_two_operations() {
    let place = Place::new("de-3").await;
    // Never scheduled.
    make_pod(&place, "waiting", json!({})).await;
    let mut watch = watching(&place, "pods").await;
    delete(&place, "pods/waiting").await;
    let (told, objects) = next(&mut watch, 2).await;
    assert_eq!(told, ["MODIFIED 0 2", "DELETED 0 2"]);
    assert!(revision(&objects[0]) < revision(&objects[1]));
    // By force.
    make_pod(&place, "forced", json!({"nodeName": "n1"})).await;
    let mut watch = watching(&place, "pods").await;
    delete(&place, "pods/forced?gracePeriodSeconds=0").await;
    assert_eq!(next(&mut watch, 2).await.0, ["MODIFIED 0 2", "DELETED 0 2"]);
    // Shortened to nothing: the time moves back, but not before now.
    make_pod(&place, "shortened", json!({"nodeName": "n1"})).await;
    let first = delete(&place, "pods/shortened?gracePeriodSeconds=600").await;
    let mut watch = watching(&place, "pods").await;
    // So that now is another second than that of the first request.
    tokio::time::sleep(Duration::from_millis(1100)).await;
    let before = now();
    delete(&place, "pods/shortened?gracePeriodSeconds=0").await;
    let (told, objects) = next(&mut watch, 2).await;
    assert_eq!(told, ["MODIFIED 0 2", "DELETED 0 2"], "one generation for the whole deletion");
    assert!((before..=now()).contains(&until(&objects[0])), "moved back from {}: {}", until(&first), objects[0]);
}

#[tokio::test]
async fn de_4_a_later_deletion_can_only_shorten() {
    let place = Place::new("de-4").await;
    make_pod(&place, "a", json!({"nodeName": "n1"})).await;
    let first = delete(&place, "pods/a?gracePeriodSeconds=300").await;
    for longer in ["pods/a?gracePeriodSeconds=300", "pods/a?gracePeriodSeconds=900"] {
        let again = delete(&place, longer).await;
        assert_eq!(again["metadata"], first["metadata"], "{longer}");
        assert_eq!(place.read("pods/a").await["metadata"], first["metadata"], "{longer}");
    }
    let shorter = delete(&place, "pods/a?gracePeriodSeconds=100").await;
    assert_eq!(grace(&shorter), 100);
    assert_eq!(until(&first) - until(&shorter), 200, "{shorter}");
    assert!(revision(&shorter) > revision(&first));
    assert_eq!(shorter["metadata"]["generation"], first["metadata"]["generation"]);
}

#[tokio::test]
async fn de_5_finalizers_hold_and_what_has_no_grace_says_so() {
    let place = Place::new("de-5").await;
    let held = json!({"name": "a", "finalizers": [HELD]});
    place.make("configmaps", &json!({"metadata": held})).await;
    let spec = json!({"replicas": 0, "selector": {"matchLabels": {"app": "web"}}, "template":
        {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "app", "image": "app"}]}}});
    let deployments = place.path_in("apps/v1", "deployments");
    place.post(&deployments, &json!({"metadata": held, "spec": spec})).answer().await.expect(201);
    for (path, generation) in [(place.path("configmaps/a"), json!(null)), (format!("{deployments}/a"), json!(2))] {
        let before = now();
        let deleted = place.delete(&path).answer().await.expect(200);
        assert_eq!(grace(&deleted), 0, "{deleted}");
        assert!((before..=now()).contains(&until(&deleted)), "{deleted}");
        let stays = place.get(&path).answer().await.expect(200);
        assert_eq!(stays["metadata"]["finalizers"], json!([HELD]));
        assert_eq!(stays["metadata"]["generation"], generation, "one more, where there is one at all");
    }
}

#[tokio::test]
async fn de_6_the_write_that_empties_the_finalizers_removes_it() {
    let place = Place::new("de-6").await;
    let held = json!({"name": "a", "finalizers": [HELD, "example.com/other"]});
    place.make("configmaps", &json!({"metadata": held})).await;
    delete(&place, "configmaps/a").await;
    let mut watch = watching(&place, "configmaps").await;
    place.merge("configmaps/a", &json!({"metadata": {"finalizers": [HELD]}})).await;
    let answer = place.merge("configmaps/a", &json!({"metadata": {"finalizers": null}})).await;
    assert_eq!(answer["metadata"].get("finalizers"), None, "{answer}");
    place.answer("configmaps/a").await.refused(404, "NotFound");
    let first = watch.event().await.unwrap();
    assert_eq!((&first["type"], &first["object"]["metadata"]["finalizers"]), (&json!("MODIFIED"), &json!([HELD])));
    let gone = watch.event().await.unwrap();
    assert_eq!(gone["type"], "DELETED", "the emptied state was never stored");
    assert_eq!(gone["object"]["metadata"]["finalizers"], json!([HELD]));
    assert!(revision(&gone["object"]) > revision(&first["object"]));
    // A pod whose time is not over is not removed by it (DE-7), one without time is.
    let mut pod = json!({"metadata": {"name": "p", "finalizers": [HELD]}, "spec":
        {"nodeName": "n1", "containers": [{"name": "app", "image": "app"}]}});
    place.make("pods", &pod).await;
    delete(&place, "pods/p?gracePeriodSeconds=0").await;
    assert_eq!(grace(&place.read("pods/p").await), 0);
    place.merge("pods/p", &json!({"metadata": {"finalizers": null}})).await;
    place.answer("pods/p").await.refused(404, "NotFound");
    // Also by an update of the whole.
    pod["metadata"]["name"] = json!("q");
    place.make("pods", &pod).await;
    let mut marked = delete(&place, "pods/q?gracePeriodSeconds=0").await;
    marked["metadata"]["finalizers"] = json!([]);
    place.put(place.path("pods/q"), &marked).answer().await.expect(200);
    place.answer("pods/q").await.refused(404, "NotFound");
}

#[tokio::test]
async fn de_7_with_grace_left_it_stays_until_the_agent_removes_it() {
    let place = Place::new("de-7").await;
    let pod = json!({"metadata": {"name": "a", "finalizers": [HELD]}, "spec":
        {"nodeName": "n1", "containers": [{"name": "app", "image": "app"}]}});
    let made = place.make("pods", &pod).await;
    delete(&place, "pods/a?gracePeriodSeconds=600").await;
    let mut watch = watching(&place, "pods").await;
    place.merge("pods/a", &json!({"metadata": {"finalizers": null}})).await;
    assert_eq!(next(&mut watch, 1).await.0, ["MODIFIED 600 2"]);
    assert_eq!(grace(&place.read("pods/a").await), 600, "nobody has stopped it yet");
    let options = json!({"gracePeriodSeconds": 0, "preconditions": {"uid": made["metadata"]["uid"]}});
    place.delete(place.path("pods/a")).json(&options).answer().await.expect(200);
    assert_eq!(next(&mut watch, 2).await.0, ["MODIFIED 0 2", "DELETED 0 2"]);
    place.answer("pods/a").await.refused(404, "NotFound");
}

#[tokio::test]
async fn de_8_de_9_other_kinds_go_in_one_event_that_shows_the_last_state() {
    let place = Place::new("de-8").await;
    let template =
        json!({"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "app", "image": "app"}]}});
    let spec = json!({"replicas": 0, "selector": {"matchLabels": {"app": "web"}}, "template": template});
    for (group, resource, spec) in [
        ("apps/v1", "deployments", spec.clone()),
        ("apps/v1", "replicasets", spec),
        ("v1", "services", json!({"ports": [{"port": 80}]})),
    ] {
        let collection = if group == "v1" { place.path(resource) } else { place.path_in(group, resource) };
        let body = json!({"metadata": {"name": "a"}, "spec": spec});
        place.post(&collection, &body).answer().await.expect(201);
        let labels = json!({"metadata": {"labels": {"last": "state"}}});
        let last = place.patch("merge", format!("{collection}/a"), &labels).answer().await.expect(200);
        let mut watch = place.watch(format!("{collection}?watch=1&resourceVersion={}", revision(&last))).await;
        let options = json!({"propagationPolicy": "Background"});
        place.delete(format!("{collection}/a")).json(&options).answer().await.expect(200);
        let gone = watch.event().await.unwrap();
        assert_eq!(gone["type"], "DELETED", "{resource}: straight away");
        let mut shown = gone["object"].clone();
        assert!(revision(&shown) > revision(&last), "the revision of the removal");
        // It is the next thing that happened to the collection: a fresh list is at least as new.
        let list = place.get(&collection).answer().await.expect(200);
        assert!(revision(&list) >= revision(&shown));
        shown["metadata"]["resourceVersion"] = last["metadata"]["resourceVersion"].clone();
        assert_eq!(shown, last, "{resource}: the last state that was stored");
        let mut body = json!({"metadata": {"name": "b"}, "spec": last["spec"]});
        for address in ["clusterIP", "clusterIPs"] {
            body["spec"].as_object_mut().unwrap().remove(address);
        }
        place.post(&collection, &body).answer().await.expect(201);
        assert_eq!(watch.told().await.unwrap(), "ADDED b", "one event");
    }
}

#[tokio::test]
async fn de_9_the_revision_of_a_removal_can_be_watched_from() {
    let place = Place::new("de-9").await;
    place.config_map("a").await;
    let mut watch = watching(&place, "configmaps").await;
    place.remove("configmaps/a").await;
    let gone = watch.event().await.unwrap();
    place.config_map("b").await;
    let mut later = place.watching(&format!("resourceVersion={}", revision(&gone["object"]))).await;
    assert_eq!(later.told().await.unwrap(), "ADDED b", "the removal itself is before it");
    let mut earlier = place.watching(&format!("resourceVersion={}", revision(&gone["object"]) - 1)).await;
    assert_eq!(earlier.told().await.unwrap(), "DELETED a", "and nothing lies between");
}

#[tokio::test]
async fn de_10_the_first_deletion_says_what_becomes_of_dependents() {
    let place = Place::new("de-10").await;
    let finalizers = |object: &Value| object["metadata"]["finalizers"].clone();
    let with = async |name: &str, before: Value, policy: &str| {
        place.make("configmaps", &json!({"metadata": {"name": name, "finalizers": before}})).await;
        let options = json!({"propagationPolicy": policy});
        place.delete(place.path(&format!("configmaps/{name}"))).json(&options).answer().await.expect(200)
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
        place.make("configmaps", &json!({"metadata": {"name": name, "finalizers": [HELD, finalizer]}})).await;
        let marked = place.delete(place.path(&format!("configmaps/{name}"))).answer().await.expect(200);
        assert_eq!(finalizers(&marked), json!([HELD, finalizer]));
    }
    // With nothing to wait for there is nothing left.
    assert_eq!(with("plain", json!([]), "Background").await["kind"], "Status");
    place.answer("configmaps/plain").await.refused(404, "NotFound");
    // A pod that is given time is not asked again.
    let pod = json!({"metadata": {"name": "p"}, "spec":
        {"nodeName": "n1", "containers": [{"name": "app", "image": "app"}]}});
    place.make("pods", &pod).await;
    let asking = async |path: &str, policy: &str| {
        let options = json!({"propagationPolicy": policy});
        place.delete(place.path(path)).json(&options).answer().await.expect(200)
    };
    let first = asking("pods/p", "Orphan").await;
    assert_eq!(finalizers(&first), json!(["orphan"]));
    for policy in ["Foreground", "Background"] {
        assert_eq!(asking("pods/p", policy).await["metadata"], first["metadata"], "{policy}");
    }
    // Where there is no such time each request counts, also on a real v1.36.4.
    let held = json!({"name": "held", "finalizers": [HELD]});
    place.make("configmaps", &json!({"metadata": held})).await;
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
    let place = Place::new("de-11").await;
    let made = place.config_map("a").await;
    let uid = &made["metadata"]["uid"];
    let newer = place.label("a", "newer", "yes").await;
    let asking = async |preconditions: Value| {
        let options = json!({"preconditions": preconditions});
        place.delete(place.path("configmaps/a")).json(&options).answer().await
    };
    let stale = &made["metadata"]["resourceVersion"];
    for wrong in
        [json!({"uid": "other"}), json!({"resourceVersion": stale}), json!({"uid": uid, "resourceVersion": "1"})]
    {
        let status = asking(wrong.clone()).await.refused(409, "Conflict");
        assert!(message(&status).starts_with("Operation cannot be fulfilled on "), "{wrong}: {status}");
        assert_eq!(place.read("configmaps/a").await, newer, "{wrong}: nothing happened");
    }
    asking(json!({"uid": uid, "resourceVersion": newer["metadata"]["resourceVersion"]})).await.expect(200);
    place.answer("configmaps/a").await.refused(404, "NotFound");
    // The wait of a pod is no way around them.
    let pod = make_pod(&place, "p", json!({"nodeName": "n1"})).await;
    delete(&place, "pods/p").await;
    let options = json!({"gracePeriodSeconds": 0, "preconditions": {"uid": "other"}});
    place.delete(place.path("pods/p")).json(&options).answer().await.refused(409, "Conflict");
    assert_eq!(place.read("pods/p").await["metadata"]["uid"], pod["metadata"]["uid"]);
}
