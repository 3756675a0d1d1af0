//! The audit log of a whole server: stages, levels, objects, results.

use std::sync::Arc;

use access::authorizer::{Attributes, Authorizer, Decision, Verdict, What};
use machinery::clock::Clock;
use machinery::json::{Value, json};
use server::audit::event::Line;
use server::audit::sinks::stream::{Entry, Events};
use server::audit::sinks::{Delivery, Sink};
use server::audit::{Auditor, Output, policy_file};
use server::limits::Limits;

use crate::world::{PATIENCE, World};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const ALL: &str = "- level: RequestResponse";

/// A server that records by these rules.
async fn audited(rules: &str) -> (World, Events) {
    let world = World::start().await;
    let events = audit(&world, rules, Vec::new());
    (world, events)
}

pub(crate) fn audit(world: &World, rules: &str, outputs: Vec<Output>) -> Events {
    let text = format!("apiVersion: audit.k8s.io/v1\nkind: Policy\nrules:\n{rules}\n");
    let policy = policy_file::parse(text.as_bytes()).unwrap().0;
    let auditor = Auditor::new(policy, outputs, Arc::default(), Clock::system());
    let events = auditor.streams().subscribe();
    world.server.set_auditor(auditor);
    events
}

/// The events that are there.
fn taken(events: &mut Events) -> Vec<Value> {
    events.take().iter().map(event).collect()
}

fn event(entry: &Entry) -> Value {
    match entry {
        Entry::Event(text) => machinery::json::from_slice(text).unwrap(),
        other => panic!("{other:?} is not an event"),
    }
}

fn stages(events: &[Value]) -> Vec<&str> {
    events.iter().map(|event| event["stage"].as_str().unwrap()).collect()
}

pub(crate) async fn next(events: &mut Events) -> Value {
    let entry = tokio::time::timeout(PATIENCE, events.next_entry()).await.expect("an event").expect("no end");
    event(&entry)
}

#[tokio::test]
async fn aud_10_12_13_14_15_20_a_create_has_two_events_with_its_objects() {
    let (world, mut events) = audited(ALL).await;
    let headers = [("content-type", "application/json"), ("user-agent", "test"), ("audit-id", "mine")];
    let body = json!({"metadata": {"name": "a"}, "data": {"k": "v"}});
    let answer = world.ask(true, "POST", &format!("{MAPS}?fieldManager=m"), &headers, body.to_string()).await;
    assert_eq!((answer.code, answer.header("audit-id")), (201, "mine"));
    let events = taken(&mut events);
    assert_eq!(stages(&events), ["RequestReceived", "ResponseComplete"], "written before the answer");
    let (first, last) = (&events[0], &events[1]);
    assert_eq!(first["requestReceivedTimestamp"], first["stageTimestamp"]);
    assert!(first.get("responseStatus").is_none() && first.get("requestObject").is_none());
    assert_eq!(first["objectRef"], json!({"resource": "configmaps", "namespace": "default", "apiVersion": "v1"}));
    for event in &events {
        assert_eq!(
            (&event["auditID"], &event["verb"], &event["level"]),
            (&json!("mine"), &json!("create"), &json!("RequestResponse"))
        );
        assert_eq!(event["requestURI"], format!("{MAPS}?fieldManager=m"));
        assert_eq!((&event["userAgent"], &event["sourceIPs"]), (&json!("test"), &json!(["127.0.0.1"])));
        assert_eq!(event["user"]["username"], "kubernetes-admin");
    }
    assert_eq!(last["objectRef"]["name"], "a");
    assert_eq!(last["responseStatus"], json!({"metadata": {}, "code": 201}));
    let sent = json!({"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "a"}, "data": {"k": "v"}});
    assert_eq!(last["requestObject"], sent);
    assert_eq!(last["responseObject"], answer.json());
    assert_eq!(last["annotations"]["authorization.k8s.io/decision"], "allow");
}

#[tokio::test]
async fn aud_12_answers_are_json_in_every_encoding_and_pods_have_their_defaults() {
    let (world, mut events) = audited(ALL).await;
    let pod = "metadata: {name: p}\nspec: {containers: [{name: c, image: i}]}";
    let yaml = [("content-type", "application/yaml"), ("accept", "application/yaml")];
    let pods = "/api/v1/namespaces/default/pods";
    assert_eq!(world.ask(true, "POST", pods, &yaml, pod).await.code, 201);
    let last = taken(&mut events).pop().unwrap();
    assert_eq!(last["requestObject"]["spec"]["restartPolicy"], "Always");
    assert!(last["requestObject"]["spec"].get("tolerations").is_none(), "these are of admission");
    assert_eq!(last["responseObject"]["metadata"]["name"], "p");
    let table = [("accept", "application/json;as=Table;v=v1;g=meta.k8s.io")];
    let protobuf = [("accept", "application/vnd.kubernetes.protobuf")];
    for (path, headers, kind) in [
        (format!("{pods}/p?pretty=1"), &[][..], "Pod"),
        (pods.to_owned(), &table[..], "Table"),
        (pods.to_owned(), &protobuf[..], "PodList"),
        (format!("{pods}/p"), &protobuf[..], "Pod"),
    ] {
        assert_eq!(world.get_with(&path, headers).await.code, 200);
        let last = taken(&mut events).pop().unwrap();
        assert_eq!(last["responseObject"]["kind"], kind, "{path}");
        assert!(last.get("requestObject").is_none());
    }
    let patch = [("content-type", "application/apply-patch+yaml")];
    let applied = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: b}\ndata: {k: v}";
    assert_eq!(world.ask(true, "PATCH", &format!("{MAPS}/b?fieldManager=m"), &patch, applied).await.code, 201);
    let last = taken(&mut events).pop().unwrap();
    let patch = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "b"}, "data": {"k": "v"}});
    assert_eq!(last["requestObject"], patch);
    let options = [("content-type", "application/json")];
    let deleted =
        world.ask(true, "DELETE", &format!("{MAPS}/b"), &options, r#"{"propagationPolicy":"Background"}"#).await;
    let last = taken(&mut events).pop().unwrap();
    assert_eq!(last["requestObject"]["apiVersion"], "meta.k8s.io/__internal");
    assert_eq!((&last["responseStatus"]["status"], &last["responseObject"]), (&json!("Success"), &deleted.json()));
}

#[tokio::test]
async fn aud_14_refusals_are_copied_and_other_paths_have_no_objects() {
    let (world, mut events) = audited(ALL).await;
    let missing = world.get(&format!("{MAPS}/none")).await;
    let last = taken(&mut events).pop().unwrap();
    assert_eq!(last["responseObject"], missing.json());
    let status = &last["responseStatus"];
    assert_eq!((&status["reason"], &status["code"]), (&json!("NotFound"), &json!(404)));
    assert_eq!(status["details"], missing.json()["details"]);
    let broken = world.ask(true, "POST", MAPS, &[("content-type", "application/json")], "{").await;
    let last = taken(&mut events).pop().unwrap();
    assert_eq!((broken.code, last.get("requestObject")), (400, None), "what cannot be read is not shown");
    world.get("/version").await;
    let last = taken(&mut events).pop().unwrap();
    assert_eq!(last["responseStatus"], json!({"metadata": {}, "code": 200}));
    assert!(["objectRef", "requestObject", "responseObject"].iter().all(|name| last.get(*name).is_none()));
}

#[tokio::test]
async fn aud_10_a_failed_authentication_has_one_event_without_a_user() {
    let (world, mut events) = audited(ALL).await;
    let answer = world.ask(false, "GET", MAPS, &[("authorization", "Bearer nope")], "").await;
    let all = taken(&mut events);
    assert_eq!(stages(&all), ["ResponseStarted"]);
    assert_eq!((&all[0]["user"], &all[0]["responseObject"]), (&json!({}), &answer.json()));
    assert_eq!(all[0]["responseStatus"]["code"], 401);
    assert!(all[0].get("annotations").is_none());
    assert_eq!(world.get(&format!("{MAPS}?timeout=x")).await.code, 400);
    assert_eq!(stages(&taken(&mut events)), ["ResponseStarted"], "refused before its user is known");
}

#[tokio::test]
async fn aud_5_impersonation_is_shown_beside_the_user_that_the_policy_is_about() {
    let rules = "- level: None\n  users: [alice]\n- level: Metadata\n  users: [kubernetes-admin]";
    let (world, mut events) = audited(rules).await;
    let headers = [("impersonate-user", "alice"), ("impersonate-group", "dev")];
    world.get_with(MAPS, &headers).await;
    let last = taken(&mut events).pop().unwrap();
    assert_eq!(last["user"]["username"], "kubernetes-admin");
    assert_eq!(last["impersonatedUser"], json!({"username": "alice", "groups": ["dev", "system:authenticated"]}));
    world.ask(false, "GET", MAPS, &[("authorization", "Bearer sesame")], "").await;
    assert!(taken(&mut events).is_empty(), "alice herself is not recorded");
}

#[tokio::test]
async fn aud_10_a_watch_has_an_event_when_it_starts_and_one_when_it_ends() {
    let (world, mut events) = audited(ALL).await;
    let response = world.open(true, "GET", &format!("{MAPS}?watch=1"), &[], "").await;
    let started = taken(&mut events);
    assert_eq!(stages(&started), ["RequestReceived", "ResponseStarted"]);
    assert_eq!(started[1]["responseStatus"], json!({"metadata": {}, "code": 200}));
    drop(response);
    let ended = next(&mut events).await;
    assert_eq!(ended["stage"], "ResponseComplete");
    assert!(ended.get("responseObject").is_none());
    assert_eq!(world.get("/api/v1/namespaces/default/pods/none/log").await.code, 404);
    assert_eq!(stages(&taken(&mut events)), ["RequestReceived", "ResponseStarted", "ResponseComplete"]);
}

/// Panics, or never decides, for some paths.
struct Unreliable;

impl Authorizer for Unreliable {
    fn authorize<'a>(&'a self, attributes: &'a Attributes<'a>) -> Verdict<'a> {
        match attributes.what {
            What::Path("/panic") => panic!("on purpose"),
            What::Path("/never") => Verdict::Later(Box::pin(std::future::pending())),
            _ => Verdict::Now(Decision::allow("")),
        }
    }
}

#[tokio::test]
async fn aud_10_14_a_panic_and_a_client_that_disconnects_have_events_of_their_own() {
    let world = World::with_authorizer(Limits::default(), Arc::new(Unreliable)).await;
    let mut events = audit(&world, ALL, Vec::new());
    assert_eq!(world.get("/panic").await.code, 500);
    let all = taken(&mut events);
    assert_eq!(stages(&all), ["RequestReceived", "Panic"]);
    let expected = json!({"metadata": {}, "status": "Failure", "message": "APIServer panic'd: on purpose",
                          "reason": "InternalError", "code": 500});
    assert_eq!(all[1]["responseStatus"], expected);
    let request = tokio::time::timeout(std::time::Duration::from_millis(100), world.get("/never")).await;
    assert!(request.is_err(), "it is dropped, and its connection with it");
    assert_eq!(next(&mut events).await["stage"], "RequestReceived");
    let last = next(&mut events).await;
    assert_eq!(last["stage"], "ResponseComplete");
    let expected = json!({"metadata": {}, "status": "Success", "message": "Connection closed early", "code": 200});
    assert_eq!(last["responseStatus"], expected);
}

#[tokio::test]
async fn aud_28_deprecated_versions_are_annotated() {
    let (world, mut events) = audited("- level: Metadata").await;
    world.get("/api/v1/namespaces/default/endpoints").await;
    assert_eq!(taken(&mut events)[1]["annotations"]["k8s.io/deprecated"], "true");
    world.get(MAPS).await;
    assert!(taken(&mut events)[1]["annotations"].get("k8s.io/deprecated").is_none());
}

#[tokio::test]
async fn aud_15_a_request_without_an_id_gets_one() {
    let (world, mut events) = audited("- level: Metadata").await;
    let id = world.get(MAPS).await.header("audit-id").to_owned();
    assert_eq!(id.len(), 36, "{id}");
    assert!(taken(&mut events).iter().all(|event| event["auditID"] == id.as_str()));
}

#[tokio::test]
async fn aud_22_23_policies_annotate_what_they_find() {
    let (world, mut events) = audited("- level: Metadata").await;
    let policies = "/apis/admissionregistration.k8s.io/v1";
    let policy = json!({"metadata": {"name": "p"}, "spec": {
        "matchConstraints": {"resourceRules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]}]},
        "validations": [{"expression": "object.metadata.name == 'ok'", "message": "not ok"}],
        "auditAnnotations": [{"key": "seen", "valueExpression": "'name ' + object.metadata.name"}]}});
    let binding = json!({"metadata": {"name": "b"}, "spec": {"policyName": "p", "validationActions": ["Audit"]}});
    assert_eq!(world.post(&format!("{policies}/validatingadmissionpolicies"), &policy).await.code, 201);
    assert_eq!(world.post(&format!("{policies}/validatingadmissionpolicybindings"), &binding).await.code, 201);
    events.take();
    world.make_config_map("a", "").await;
    let annotations = &taken(&mut events)[1]["annotations"];
    let failure = "[{\"message\":\"not ok\",\"policy\":\"p\",\"binding\":\"b\",\"expressionIndex\":0,\"validationActions\":[\"Audit\"]}]";
    assert_eq!(annotations["validation.policy.admission.k8s.io/validation_failure"], failure);
    assert_eq!(annotations["p/seen"], "name a");
}

#[tokio::test]
async fn aud_29_the_id_of_an_issued_token_is_annotated() {
    let (world, mut events) = audited("- level: Metadata").await;
    let accounts = "/api/v1/namespaces/default/serviceaccounts";
    assert_eq!(world.post(accounts, &json!({"metadata": {"name": "r"}})).await.code, 201);
    assert_eq!(world.post(&format!("{accounts}/r/token"), &json!({"spec": {}})).await.code, 201);
    let last = taken(&mut events).pop().unwrap();
    let id = last["annotations"]["authentication.kubernetes.io/issued-credential-id"].as_str().unwrap();
    assert!(id.starts_with("JTI=") && id.len() == 40, "{id}");
}

/// A sink that loses everything.
struct Broken;

impl Sink for Broken {
    fn name(&self) -> &'static str {
        "broken"
    }

    fn send(&self, _: &Line) -> Delivery {
        Delivery::Lost("no space left on device".to_owned())
    }

    fn close(&self) -> std::pin::Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(std::future::ready(()))
    }
}

#[tokio::test]
async fn aud_37_a_strict_sink_that_fails_refuses_requests_and_another_does_not() {
    for (strict, code) in [(false, 200), (true, 500)] {
        let world = World::start().await;
        let _events = audit(&world, ALL, vec![Output { strict, ..Output::new(Arc::new(Broken)) }]);
        let answer = world.get(MAPS).await;
        assert_eq!(answer.code, code);
        if strict {
            let text = format!("Internal Server Error: \"{MAPS}\": failed to store audit event\n");
            assert_eq!(answer.text(), text);
        }
    }
}

#[tokio::test]
async fn aud_38_objects_are_left_out_of_large_events_for_a_sink_that_truncates() {
    #[derive(Default)]
    struct Lines(parking_lot::Mutex<Vec<Vec<u8>>>);
    impl Sink for Lines {
        fn name(&self) -> &'static str {
            "lines"
        }
        fn send(&self, line: &Line) -> Delivery {
            self.0.lock().push(line.json().to_vec());
            Delivery::Done
        }
        fn close(&self) -> std::pin::Pin<Box<dyn Future<Output = ()> + Send + '_>> {
            Box::pin(std::future::ready(()))
        }
    }
    let (world, lines) = (World::start().await, Arc::new(Lines::default()));
    let output = Output { truncate_bytes: Some(2000), ..Output::new(Arc::clone(&lines) as _) };
    let mut events = audit(&world, ALL, vec![output]);
    world.make_config_map("large", &"x".repeat(5000)).await;
    let short: Value = machinery::json::from_slice(lines.0.lock().last().unwrap()).unwrap();
    assert!(short.get("requestObject").is_none() && short.get("responseObject").is_none());
    assert_eq!(short["annotations"]["audit.k8s.io/truncated"], "true");
    assert_eq!(short["objectRef"]["name"], "large");
    let whole = taken(&mut events).pop().unwrap();
    assert_eq!(whole["requestObject"]["data"]["k"], "x".repeat(5000));
    assert!(whole["annotations"].get("audit.k8s.io/truncated").is_none());
}
