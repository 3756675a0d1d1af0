//! Certificate requests: who asks, who decides, who signs.

use machinery::json::{Value, json};

use crate::world::{Answer, World};

const REQUESTS: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";

/// CN=jane, O=dev.
const JANE: &str = "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURSBSRVFVRVNULS0tLS0KTUlHY01GQUNBUUF3SFRFTk1Bc0dBMVVFQXd3RWFtRnVaVEVNTUFvR0ExVUVDZ3dEWkdWMk1Db3dCUVlESzJWdwpBeUVBWHNVajY4VFBFSmdMcnlEcXpGbmRONjYwM0l3TU1JS054WmYrcjB1cnhlK2dBREFGQmdNclpYQURRUUN6CnBPVmV0czNCMlpuRTZRcFhncHlLWFZHNGJpUi9jWFQvMUlNT09YQ2lWL2owV2hRckFOMVdIL1IxRm9JT29PUUcKNEtkYjlDaGtJTHEvQ2hQWHlVUUIKLS0tLS1FTkQgQ0VSVElGSUNBVEUgUkVRVUVTVC0tLS0tCg==";
/// CN=root, O=system:masters.
const MASTERS: &str = "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURSBSRVFVRVNULS0tLS0KTUlHbk1Gc0NBUUF3S0RFWE1CVUdBMVVFQ2d3T2MzbHpkR1Z0T20xaGMzUmxjbk14RFRBTEJnTlZCQU1NQkhKdgpiM1F3S2pBRkJnTXJaWEFESVFBRHc4VG1nQm4xWjNVZDJ5dzRpRTVPQVZpQUNESE5rcU9PamhlbzlhWkYrcUFBCk1BVUdBeXRsY0FOQkFLZzI3UUg2S1RIb2cvdm5Ea1pwTUFFOVVJaUZudVlJSFl3UzluMHJTQUZLRStuTjJUeHMKSmdLVmdFN1hGM3gwMDZzN1RmS1J6S1BOS2ZnbzFyUm5YUU09Ci0tLS0tRU5EIENFUlRJRklDQVRFIFJFUVVFU1QtLS0tLQo=";

/// A certificate, whose length lets it be repeated in Base64.
const ISSUED: &str = "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0tCk1JSUJFakNCeGFBREFnRUNBZ0VCTUFVR0F5dGxjREFNTVFvd0NBWURWUVFEREFGak1CNFhEVEkyTURFd01UQXcKTURBd01Gb1hEVEkzTURFeU1EQXdNREF3TUZvd0RERUtNQWdHQTFVRUF3d0JZekFxTUFVR0F5dGxjQU1oQU01RQpQTW5rT3hNZ0NLL1A3dE1CRGk3NU1lL3p6czhEU1lWYXluSWUzTmNvbzB3d1NqQUpCZ05WSFJNRUFqQUFNQjBHCkExVWREZ1FXQkJSaEhHVy9LMlpzYXZLcWFPU1RySnVFdmJSbU56QWVCZ05WSFNNRUZ6QVZvUkNrRGpBTU1Rb3cKQ0FZRFZRUUREQUZqZ2dFQk1BVUdBeXRsY0FOQkFNUmxxMXljc3l4ejFINW15bjRXNUJEZGkwQXNHcWxjUUZoQQpJeVhwbzlYRkNnS2g1T2dQUG5aRjVKVUMzNkNCeE0yY1oyeTNrdGVlcnhTVXVjT1FBd1U9Ci0tLS0tRU5EIENFUlRJRklDQVRFLS0tLS0K";

fn request(name: &str, spec: Value) -> Value {
    let mut object = json!({
        "metadata": {"name": name},
        "spec": {"request": JANE, "signerName": "example.com/s", "usages": ["client auth"]},
    });
    for (member, value) in spec.as_object().into_iter().flatten() {
        object["spec"][&**member] = value.clone();
    }
    object
}

fn condition(kind: &str) -> Value {
    json!({"type": kind, "status": "True", "reason": "R", "message": "m"})
}

fn conditions(kinds: &[&str]) -> Value {
    json!({"status": {"conditions": kinds.iter().map(|kind| condition(kind)).collect::<Vec<_>>()}})
}

async fn patch(world: &World, user: &str, path: &str, body: Value) -> Answer {
    world.ask_as(user, "PATCH", &format!("{REQUESTS}/{path}"), "application/merge-patch+json", Some(body)).await
}

/// Lets a user write requests and their subresources, and do these things with signers.
async fn grant(world: &World, user: &str, signers: Value) {
    let mut rules = json!([
        {"verbs": ["create", "get", "update", "patch"], "apiGroups": ["certificates.k8s.io"],
         "resources": ["certificatesigningrequests", "certificatesigningrequests/approval",
                       "certificatesigningrequests/status"]},
    ]);
    if signers.is_object() {
        rules.as_array_mut().unwrap().push(signers);
    }
    world.grant(user, true, rules).await;
}

fn may(verb: &str, signer: &str) -> Value {
    json!({"verbs": [verb], "apiGroups": ["certificates.k8s.io"], "resources": ["signers"], "resourceNames": [signer]})
}

#[tokio::test]
async fn csr_1_a_request_is_of_the_user_who_sends_it() {
    let world = World::start().await;
    grant(&world, "alice", Value::Null).await;
    let mut body = request("c", json!({"username": "root", "groups": ["system:masters"], "uid": "1"}));
    body["status"] = conditions(&["Approved"])["status"].clone();
    let made = world.ask("alice", "POST", REQUESTS, Some(body)).await;
    assert_eq!(made.code, 201, "{}", made.text());
    let made = made.json();
    assert_eq!(made["spec"]["username"], "alice");
    assert_eq!(made["spec"]["groups"], json!(["system:authenticated"]));
    assert_eq!((&made["spec"]["uid"], &made["status"]), (&Value::Null, &json!({})));
    let changed = patch(&world, "alice", "c", json!({"spec": {"signerName": "example.com/t"}})).await;
    assert_eq!((changed.code, &changed.json()["spec"]["signerName"]), (200, &json!("example.com/s")));
}

#[tokio::test]
async fn csr_2_what_is_no_request_is_refused() {
    let world = World::start().await;
    let flipped = JANE.replacen("CnBPVmV0czNC", "CnBPVmV0czND", 1);
    assert_ne!(flipped, JANE);
    for (spec, why) in [
        (
            json!({"request": "bm9wZQ=="}),
            "spec.request: Invalid value: \"bm9wZQ==\": PEM block type must be CERTIFICATE REQUEST",
        ),
        (json!({"request": flipped}), "x509: Ed25519 verification failure"),
        (json!({"usages": []}), "spec.usages: Required value"),
        (json!({"usages": ["client auth", "client auth"]}), "spec.usages[1]: Duplicate value: \"client auth\""),
        (json!({"usages": ["fly"]}), "spec.usages[0]: Unsupported value: \"fly\": supported values: \"any\","),
        (
            json!({"signerName": "kubernetes.io/legacy-unknown"}),
            "spec.signerName: Invalid value: \"kubernetes.io/legacy-unknown\": the legacy signerName is not allowed via this \
             API version",
        ),
        (json!({"signerName": "example.com/a/b"}), "must be a fully qualified domain and path"),
        (json!({"signerName": "com/a"}), "should be a domain with at least two segments separated by dots"),
        (
            json!({"signerName": "a.b/Bad"}),
            "spec.signerName: Invalid value: \"Bad\": validating label \"Bad\": a lowercase",
        ),
        (json!({"expirationSeconds": 599}), "may not specify a duration less than 600 seconds (10 minutes)"),
    ] {
        let refused = world.ask("root", "POST", REQUESTS, Some(request("c", spec))).await;
        assert_eq!(refused.code, 422, "{why}");
        assert!(refused.message().contains(why), "{} has no {why}", refused.message());
    }
}

#[tokio::test]
async fn csr_3_pl_16_a_user_cannot_ask_to_be_a_master() {
    let world = World::start().await;
    let client = json!({"request": MASTERS, "signerName": "kubernetes.io/kube-apiserver-client"});
    let refused = world.ask("root", "POST", REQUESTS, Some(request("c", client))).await;
    let why = "certificatesigningrequests.certificates.k8s.io \"c\" is forbidden: use of kubernetes.io/kube-apiserver-client \
               signer with system:masters group is not allowed";
    assert_eq!((refused.code, refused.message()), (403, why.to_owned()));
    let other = request("c", json!({"request": MASTERS}));
    assert_eq!(world.ask("root", "POST", REQUESTS, Some(other)).await.code, 201, "another signer decides for itself");
}

#[tokio::test]
async fn csr_4_pl_13_a_decision_needs_the_right_to_its_signer() {
    let world = World::start().await;
    world.make(REQUESTS, request("c", json!({}))).await;
    let refusal = "certificatesigningrequests.certificates.k8s.io \"c\" is forbidden: user not permitted to approve requests with \
                   signerName \"example.com/s\"";
    for signers in
        [Value::Null, may("approve", "example.com/t"), may("approve", "example.org/*"), may("sign", "example.com/s")]
    {
        grant(&world, "alice", signers).await;
        for body in [conditions(&["Approved"]), conditions(&["Denied"]), json!({"metadata": {"labels": {"a": "b"}}})] {
            let refused = patch(&world, "alice", "c/approval", body).await;
            assert_eq!((refused.code, refused.message()), (403, refusal.to_owned()));
        }
    }
    for (name, signer) in [("c", "example.com/s"), ("d", "example.com/*")] {
        if name != "c" {
            world.make(REQUESTS, request(name, json!({}))).await;
        }
        grant(&world, "alice", may("approve", signer)).await;
        let approved = patch(&world, "alice", &format!("{name}/approval"), conditions(&["Approved"])).await;
        assert_eq!(approved.code, 200, "{}", approved.text());
        let made = &approved.json()["status"]["conditions"][0];
        assert!(made["lastUpdateTime"].is_string() && made["lastTransitionTime"].is_string(), "{made}");
    }
    let certificate = patch(&world, "root", "c/approval", json!({"status": {"certificate": "bm9wZQ=="}})).await;
    assert_eq!((certificate.code, &certificate.json()["status"]["certificate"]), (200, &Value::Null));
}

#[tokio::test]
async fn csr_5_csr_8_pl_14_a_certificate_needs_the_right_to_sign() {
    let world = World::start().await;
    world.make(REQUESTS, request("c", json!({}))).await;
    grant(&world, "alice", may("approve", "example.com/s")).await;
    let issued = json!({"status": {"certificate": ISSUED}});
    let refused = patch(&world, "alice", "c/status", issued.clone()).await;
    let why = "certificatesigningrequests.certificates.k8s.io \"c\" is forbidden: user not permitted to sign requests with \
               signerName \"example.com/s\"";
    assert_eq!((refused.code, refused.message()), (403, why.to_owned()));
    assert_eq!(patch(&world, "alice", "c/status", conditions(&["Failed"])).await.code, 403);
    let labels = json!({"metadata": {"labels": {"a": "b"}}});
    assert_eq!(patch(&world, "alice", "c/status", labels).await.code, 200, "nothing is signed");
    grant(&world, "alice", may("sign", "example.com/*")).await;
    let nothing = patch(&world, "alice", "c/status", json!({"status": {"certificate": "bm9wZQ=="}})).await;
    assert!(nothing.message().ends_with("must contain at least one CERTIFICATE PEM block"), "{}", nothing.message());
    assert_eq!(patch(&world, "alice", "c/status", issued).await.code, 200);
    let again = json!({"status": {"certificate": format!("{ISSUED}{ISSUED}")}});
    let refused = patch(&world, "root", "c/status", again).await;
    assert!(refused.message().contains("updates may not modify existing certificate content"), "{}", refused.message());
    assert_eq!(refused.code, 422);
}

#[tokio::test]
async fn csr_6_csr_7_decisions_are_final() {
    let world = World::start().await;
    world.make(REQUESTS, request("c", json!({}))).await;
    let refused = async |path: &str, body: Value, why: &str| {
        let refused = patch(&world, "root", path, body).await;
        assert_eq!(refused.code, 422, "{why}");
        assert!(refused.message().contains(why), "{} has no {why}", refused.message());
    };
    let add = "status.conditions: Forbidden: updates may not add a condition of type \"Approved\"";
    refused("c/status", conditions(&["Approved"]), add).await;
    let twice = conditions(&["Approved", "Approved"]);
    refused("c/approval", twice, "status.conditions[1].type: Duplicate value: \"Approved\"").await;
    refused("c/approval", json!({"status": {"conditions": [{"type": "", "status": "True"}]}}), "type: Required value")
        .await;
    let false_one = json!({"status": {"conditions": [{"type": "Denied", "status": "False"}]}});
    refused("c/approval", false_one, "Unsupported value: \"False\": supported values: \"True\"").await;
    let main = patch(&world, "root", "c", conditions(&["Approved"])).await;
    assert_eq!((main.code, &main.json()["status"]), (200, &json!({})), "kept silently");
    assert_eq!(patch(&world, "root", "c/approval", conditions(&["Approved"])).await.code, 200);
    let remove = "status.conditions: Forbidden: updates may not remove a condition of type \"Approved\"";
    refused("c/approval", json!({"status": {"conditions": []}}), remove).await;
    let both = "status.conditions: Invalid value: \"Denied\": Approved and Denied conditions are mutually exclusive";
    refused("c/approval", conditions(&["Approved", "Denied"]), both).await;
}

#[tokio::test]
async fn csr_10_a_table_shows_the_state_of_a_request() {
    let world = World::start().await;
    world.make(REQUESTS, request("c", json!({"expirationSeconds": 3600}))).await;
    let state = async || {
        let uri = format!("{REQUESTS}/c");
        let accept = "application/json;as=Table;v=v1;g=meta.k8s.io";
        let request = http::Request::get(uri).header("accept", accept).body(kube::client::Body::empty()).unwrap();
        let body = world.send("root", request).await.into_body();
        let body = http_body_util::BodyExt::collect(body).await.unwrap().to_bytes();
        let table: Value = serde_json::from_slice(&body).unwrap();
        table["rows"][0]["cells"].as_array().unwrap().last().unwrap().clone()
    };
    assert_eq!(state().await, "Pending");
    patch(&world, "root", "c/approval", conditions(&["Approved"])).await;
    assert_eq!(state().await, "Approved");
    patch(&world, "root", "c/status", json!({"status": {"certificate": ISSUED}})).await;
    assert_eq!(state().await, "Approved,Issued");
    let mut failed = conditions(&["Approved", "Failed"]);
    failed["status"]["certificate"] = json!(ISSUED);
    patch(&world, "root", "c/status", failed).await;
    assert_eq!(state().await, "Approved,Failed,Issued");
}
