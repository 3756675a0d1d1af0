//! Tokens with a clock that the test moves.

use std::sync::atomic::{AtomicI64, Ordering};

use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use machinery::clock::Clock;
use machinery::media::MediaType;
use machinery::options::{CreateOptions, DeleteOptions, UpdateOptions};
use registry::{Annotations, Body, Context, Settings, Target, Warnings, WriteRequest};
use store::Retention;
use store::memory::MemoryStore;

use super::*;

const START: i64 = 1_800_000_000;

struct World {
    registry: Arc<Registry>,
    tokens: AccountTokens,
    seconds: Arc<AtomicI64>,
    warnings: Warnings,
    annotations: Annotations,
}

impl World {
    async fn new() -> Self {
        Self::with(TokenSettings::default()).await
    }

    async fn with(settings: TokenSettings) -> Self {
        let seconds = Arc::new(AtomicI64::new(START));
        let source = Arc::clone(&seconds);
        let clock = Clock::from_fn(move || Timestamp::from_second(source.load(Ordering::Relaxed)).unwrap());
        let store = Arc::new(MemoryStore::new(Retention::default()));
        let registry = Registry::start(store, Settings { clock, ..Settings::default() }).await.unwrap();
        let keys = TokenKeys::new(&crate::certs::make_key().unwrap(), &[]).unwrap();
        let tokens = AccountTokens::new(Arc::clone(&registry), keys, settings);
        let (warnings, annotations) = (Warnings::default(), Annotations::recording());
        let world = World { registry, tokens, seconds, warnings, annotations };
        world
            .make("serviceaccounts", json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "sa"}}))
            .await;
        world
    }

    fn advance(&self, seconds: i64) {
        self.seconds.fetch_add(seconds, Ordering::Relaxed);
    }

    fn now(&self) -> Timestamp {
        Timestamp::from_second(self.seconds.load(Ordering::Relaxed)).unwrap()
    }

    fn target(&self, plural: &str, name: Option<&str>, subresource: Option<&str>) -> Target {
        let kind = Arc::clone(self.registry.kinds().get("", "v1", plural).unwrap());
        let text = |text: &str| text.to_owned();
        let namespace = kind.namespaced.then(|| text("default"));
        Target { kind, namespace, name: name.map(text), subresource: subresource.map(text) }
    }

    async fn make(&self, plural: &str, object: Value) -> Value {
        let body = Body { bytes: Bytes::from(object.to_string()), media: MediaType::Json };
        let target = self.target(plural, None, None);
        let (options, ctx) = (CreateOptions::default(), Context::default());
        let request = WriteRequest { target: &target, options: &options, ctx: &ctx };
        self.registry.create(request, &body).await.unwrap();
        self.get(plural, object["metadata"]["name"].as_str().unwrap()).unwrap()
    }

    fn get(&self, plural: &str, name: &str) -> Option<Value> {
        let namespace = (plural != "nodes").then_some("default");
        self.registry.cached_object(&format!("core/{plural}"), namespace, name)
    }

    async fn update(&self, plural: &str, object: &Value) {
        let body = Body { bytes: Bytes::from(object.to_string()), media: MediaType::Json };
        let target = self.target(plural, object["metadata"]["name"].as_str(), None);
        let (options, ctx) = (UpdateOptions::default(), Context::default());
        let request = WriteRequest { target: &target, options: &options, ctx: &ctx };
        self.registry.update(request, &body).await.unwrap();
    }

    async fn delete(&self, plural: &str, name: &str, grace: i64) {
        let options = DeleteOptions { grace_period_seconds: Some(grace), ..DeleteOptions::default() };
        let target = self.target(plural, Some(name), None);
        let request = WriteRequest { target: &target, options: &options, ctx: &Context::default() };
        self.registry.delete(request).await.unwrap();
    }

    async fn grant(&self, request: Value) -> Result<registry::TokenGrant, Status> {
        let body = Body { bytes: Bytes::from(request.to_string()), media: MediaType::Json };
        let target = self.target("serviceaccounts", Some("sa"), Some("token"));
        let options = CreateOptions::default();
        let ctx =
            Context { warnings: self.warnings.clone(), annotations: self.annotations.clone(), ..Context::default() };
        let request = WriteRequest { target: &target, options: &options, ctx: &ctx };
        self.registry.request_token(request, &body, self.tokens.terms()).await
    }

    async fn request_token(&self, spec: Value) -> Result<String, Status> {
        let request = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec});
        self.tokens.sign(self.grant(request).await?.claims)
    }

    fn verify(&self, token: &str) -> Result<Arc<User>, String> {
        self.verify_for(token, &self.tokens.settings.audiences).map(|(user, _)| user)
    }

    fn verify_for(&self, token: &str, audiences: &[String]) -> Result<(Arc<User>, Vec<String>), String> {
        let notes = Notes { warnings: &self.warnings, annotations: &self.annotations };
        self.tokens.user(token, audiences, self.now(), notes).unwrap_or_else(|| Err("not ours".to_owned()))
    }

    async fn pod(&self, node: &str) -> Value {
        let spec = json!({"serviceAccountName": "sa", "nodeName": node, "containers": [{"name": "c", "image": "i"}]});
        self.make("pods", json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": spec})).await
    }
}

fn bound(kind: &str, name: &str) -> Value {
    json!({"boundObjectRef": {"apiVersion": "v1", "kind": kind, "name": name}})
}

fn claims(token: &str) -> Value {
    serde_json::from_slice(&URL_SAFE_NO_PAD.decode(token.split('.').nth(1).unwrap()).unwrap()).unwrap()
}

#[tokio::test]
async fn au_20_58_a_token_authenticates_its_account() {
    let world = World::new().await;
    let token = world.request_token(json!({})).await.unwrap();
    let jti = claims(&token)["jti"].as_str().unwrap().to_owned();
    let first = world.verify(&token).unwrap();
    assert_eq!(first.name, "system:serviceaccount:default:sa");
    assert_eq!(first.uid, world.get("serviceaccounts", "sa").unwrap()["metadata"]["uid"].as_str().unwrap());
    assert_eq!(first.groups, ["system:serviceaccounts", "system:serviceaccounts:default", "system:authenticated"]);
    assert_eq!(first.extra["authentication.kubernetes.io/credential-id"], [format!("JTI={jti}")]);
    assert!(Arc::ptr_eq(&first, &world.verify(&token).unwrap()), "a verified token shares its user");
    assert_eq!(
        world.annotations.get()["authentication.kubernetes.io/issued-credential-id"],
        format!("JTI={jti}"),
        "AU-58"
    );

    world.pod("n1").await;
    let token = world.request_token(bound("Pod", "p")).await.unwrap();
    let user = world.verify(&token).unwrap();
    assert_eq!(user.extra["authentication.kubernetes.io/pod-name"], ["p"]);
    assert_eq!(user.extra["authentication.kubernetes.io/node-name"], ["n1"]);
    assert!(!user.extra.contains_key("authentication.kubernetes.io/node-uid"), "the node does not exist");
    assert!(claims(&token)["kubernetes.io"]["node"].get("uid").is_none());
}

#[tokio::test]
async fn au_21_tokens_of_other_issuers_and_of_other_keys() {
    let world = World::new().await;
    let token = world.request_token(json!({})).await.unwrap();
    let other = World::new().await;
    assert_eq!(other.verify(&token).unwrap_err(), "invalid signature, no keys found");
    let mut parts: Vec<&str> = token.split('.').collect();
    let flipped = format!("A{}", parts[2].get(1..).unwrap());
    parts[2] = &flipped;
    assert_eq!(world.verify(&parts.join(".")).unwrap_err(), "go-jose/go-jose: error in cryptographic primitive");
    for odd in ["", "a", "a.b.c", "..", "nope", "eyJhbGciOiJub25lIn0.e30.x"] {
        assert_eq!(world.verify(odd).unwrap_err(), "not ours");
    }
    // Without a key id every key is tried.
    let header = URL_SAFE_NO_PAD.encode(r#"{"alg":"ES256"}"#);
    let unsigned = format!("{header}.{}.AAAA", parts[1]);
    assert_eq!(world.verify(&unsigned).unwrap_err(), "go-jose/go-jose: error in cryptographic primitive");
    let elsewhere = TokenSettings { issuers: vec!["https://example.org".to_owned()], ..TokenSettings::default() };
    assert_eq!(World::with(elsewhere).await.verify(&token).unwrap_err(), "not ours");
}

#[tokio::test]
async fn au_22_times_have_a_leeway_of_a_minute() {
    let world = World::new().await;
    let token = world.request_token(json!({"expirationSeconds": 600})).await.unwrap();
    world.advance(630);
    assert!(world.verify(&token).is_ok(), "expired half a minute ago");
    world.advance(60);
    assert_eq!(world.verify(&token).unwrap_err(), "service account token has expired");
    world.advance(-690 - 61);
    assert_eq!(world.verify(&token).unwrap_err(), "service account token is not valid yet");
    world.advance(31);
    assert!(world.verify(&token).is_ok());
    let mut future = claims(&token);
    future["nbf"] = json!(START - 1000);
    future["iat"] = json!(START + 1000);
    let token = world.tokens.sign(future).unwrap();
    assert_eq!(world.verify(&token).unwrap_err(), "service account token is issued in the future");
}

#[tokio::test]
async fn au_23_a_token_is_for_its_audiences() {
    let world = World::new().await;
    let token = world.request_token(json!({"audiences": ["vault", "other"]})).await.unwrap();
    assert_eq!(
        world.verify(&token).unwrap_err(),
        "token audiences [\"vault\" \"other\"] is invalid for the target audiences \
         [\"https://kubernetes.default.svc.cluster.local\"]"
    );
    let (_, common) = world.verify_for(&token, &["x".into(), "vault".into()]).unwrap();
    assert_eq!(common, ["vault"]);
    let mut without = claims(&token);
    without.as_object_mut().unwrap().shift_remove("aud");
    let token = world.tokens.sign(without).unwrap();
    assert!(world.verify(&token).is_ok(), "no audience counts as this server's");
    assert!(world.verify_for(&token, &["vault".into()]).is_err());
}

#[tokio::test]
async fn au_9_24_ba_4_a_token_ends_with_its_account() {
    let world = World::new().await;
    let token = world.request_token(json!({})).await.unwrap();
    world.verify(&token).unwrap();
    let old = world.get("serviceaccounts", "sa").unwrap();
    world.delete("serviceaccounts", "sa", 0).await;
    assert_eq!(world.verify(&token).unwrap_err(), "serviceaccounts \"sa\" not found");
    let new = world
        .make(
            "serviceaccounts",
            json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "sa", "finalizers": ["a.b/c"]}}),
        )
        .await;
    let uid = |account: &Value| account["metadata"]["uid"].as_str().unwrap().to_owned();
    assert_eq!(
        world.verify(&token).unwrap_err(),
        format!("service account UID ({}) does not match claim ({})", uid(&new), uid(&old))
    );
    let token = world.request_token(json!({})).await.unwrap();
    world.delete("serviceaccounts", "sa", 0).await;
    world.advance(60);
    assert!(world.verify(&token).is_ok());
    world.advance(1);
    assert_eq!(world.verify(&token).unwrap_err(), "service account default/sa has been deleted");
}

#[tokio::test]
async fn au_25_ba_4_a_bound_token_ends_with_what_it_is_bound_to() {
    let world = World::new().await;
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}});
    let old = world.make("secrets", secret.clone()).await;
    let token = world.request_token(bound("Secret", "s")).await.unwrap();
    world.verify(&token).unwrap();
    world.delete("secrets", "s", 0).await;
    assert_eq!(world.verify(&token).unwrap_err(), "service account token has been invalidated");
    let new = world.make("secrets", secret).await;
    let uid = |object: &Value| object["metadata"]["uid"].as_str().unwrap().to_owned();
    assert_eq!(
        world.verify(&token).unwrap_err(),
        format!("secret UID ({}) does not match service account secret ref claim ({})", uid(&new), uid(&old))
    );

    world.pod("n1").await;
    let token = world.request_token(bound("Pod", "p")).await.unwrap();
    world.delete("pods", "p", 600).await;
    // A minute from the end of its grace period on.
    world.advance(600 + 60);
    assert!(world.verify(&token).is_ok());
    world.advance(1);
    assert_eq!(world.verify(&token).unwrap_err(), "service account token has been invalidated");
}

#[tokio::test]
async fn au_26_only_a_token_bound_to_a_node_needs_it() {
    let world = World::new().await;
    world.make("nodes", json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}})).await;
    world.pod("n1").await;
    let of_node = world.request_token(bound("Node", "n1")).await.unwrap();
    let of_pod = world.request_token(bound("Pod", "p")).await.unwrap();
    assert_eq!(world.verify(&of_node).unwrap().extra["authentication.kubernetes.io/node-name"], ["n1"]);
    world.delete("nodes", "n1", 0).await;
    assert_eq!(world.verify(&of_node).unwrap_err(), "service account token has been invalidated");
    assert!(world.verify(&of_pod).unwrap().extra.contains_key("authentication.kubernetes.io/node-uid"));
}

#[tokio::test]
async fn au_27_56_a_pod_gets_a_longer_token_and_the_late_use_is_noted() {
    let world = World::new().await;
    world.pod("").await;
    let mut spec = bound("Pod", "p");
    spec["expirationSeconds"] = json!(3607);
    let request = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec});
    let grant = world.grant(request).await.unwrap();
    assert_eq!(grant.expires, START + 3607);
    assert_eq!(grant.claims["exp"], START + 365 * 24 * 3600);
    assert_eq!(grant.claims["kubernetes.io"]["warnafter"], START + 3607);
    let token = world.tokens.sign(grant.claims).unwrap();
    world.advance(3607);
    world.verify(&token).unwrap();
    assert!(!world.annotations.get().contains_key("authentication.k8s.io/stale-token"));
    world.advance(5);
    world.verify(&token).unwrap();
    assert_eq!(
        world.annotations.get()["authentication.k8s.io/stale-token"],
        "subject: system:serviceaccount:default:sa, seconds after warning threshold: 5"
    );
    let elsewhere = world.request_token(json!({"expirationSeconds": 3607})).await.unwrap();
    assert_eq!(claims(&elsewhere)["exp"], START + 3612 + 3607, "only of pods");
}

impl World {
    /// A secret with a token of the account.
    async fn legacy(&self) -> String {
        let uid = self.get("serviceaccounts", "sa").unwrap()["metadata"]["uid"].as_str().unwrap().to_owned();
        let token = self.tokens.sign_legacy("default", "sa", &uid, "t").unwrap();
        let annotations = json!({"kubernetes.io/service-account.name": "sa", "kubernetes.io/service-account.uid": uid});
        let secret = json!({
            "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/service-account-token",
            "metadata": {"name": "t", "annotations": annotations}, "data": {"token": STANDARD.encode(&token)},
        });
        self.make("secrets", secret).await;
        token
    }
}

#[tokio::test]
async fn au_28_a_token_is_good_while_its_secret_holds_it() {
    let world = World::new().await;
    let token = world.legacy().await;
    let user = world.verify(&token).unwrap();
    assert_eq!(user.name, "system:serviceaccount:default:sa");
    assert_eq!(user.groups, ["system:serviceaccounts", "system:serviceaccounts:default", "system:authenticated"]);
    assert!(user.extra.is_empty());
    world.advance(10 * 365 * 24 * 3600);
    assert!(world.verify(&token).is_ok(), "it does not expire");
    let notes = world.annotations.get();
    assert_eq!(notes["authentication.k8s.io/legacy-token"], "system:serviceaccount:default:sa");
    assert_eq!(notes["authentication.k8s.io/legacy-token-manual-secret"], "t");

    let mut secret = world.get("secrets", "t").unwrap();
    secret["metadata"].as_object_mut().unwrap().shift_remove("resourceVersion");
    secret["data"]["token"] = json!(STANDARD.encode("another"));
    world.update("secrets", &secret).await;
    assert_eq!(world.verify(&token).unwrap_err(), "Token does not match server's copy");
    world.delete("secrets", "t", 0).await;
    assert_eq!(world.verify(&token).unwrap_err(), "Token has been invalidated");
    let token = world.legacy().await;
    world.delete("serviceaccounts", "sa", 0).await;
    assert_eq!(world.verify(&token).unwrap_err(), "serviceaccounts \"sa\" not found");
    let mut odd = legacy::claims("default", "sa", "u", "t");
    odd["sub"] = json!("system:serviceaccount:default:other");
    let odd = world.tokens.keys().sign(&odd).unwrap();
    assert_eq!(world.verify(&odd).unwrap_err(), "sub claim is invalid");
}

#[tokio::test]
async fn au_29_the_use_of_a_secret_is_marked() {
    let world = World::new().await;
    let token = world.legacy().await;
    world.verify(&token).unwrap();
    let label =
        || world.get("secrets", "t").unwrap()["metadata"]["labels"]["kubernetes.io/legacy-token-last-used"].clone();
    while label().is_null() {
        tokio::task::yield_now().await;
    }
    assert_eq!(label(), "2027-01-15");

    let mut account = world.get("serviceaccounts", "sa").unwrap();
    account["secrets"] = json!([{"name": "t"}]);
    world.update("serviceaccounts", &account).await;
    world.verify(&token).unwrap();
    assert_eq!(world.warnings.take().len(), 1);
    assert_eq!(world.annotations.get()["authentication.k8s.io/legacy-token-autogenerated-secret"], "t");

    let mut secret = world.get("secrets", "t").unwrap();
    secret["metadata"]["labels"]["kubernetes.io/legacy-token-invalid-since"] = json!("2027-01-01");
    world.update("secrets", &secret).await;
    assert!(
        world
            .verify(&token)
            .unwrap_err()
            .starts_with("the token in secret default/t for service account default/sa has been")
    );
    assert_eq!(world.annotations.get()["authentication.k8s.io/legacy-token-invalidated"], "t/default");
}

#[tokio::test]
async fn au_50_51_52_the_request_is_filled_in_and_must_name_its_account() {
    let world = World::new().await;
    let request = |metadata: Value| json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "metadata": metadata});
    let grant = world.grant(request(json!({}))).await.unwrap();
    let account = world.get("serviceaccounts", "sa").unwrap();
    assert_eq!(grant.request["metadata"]["uid"], account["metadata"]["uid"]);
    assert_eq!(grant.request["metadata"]["name"], "sa");
    let spec = &grant.request["spec"];
    assert_eq!(*spec, json!({"audiences": [ISSUER], "expirationSeconds": 3600, "boundObjectRef": null}));
    let refused = async |metadata: Value| {
        let status = world.grant(request(metadata)).await.unwrap_err();
        (status.code, status.message)
    };
    let text = "TokenRequest.authentication.k8s.io \"sa\" is invalid: metadata.name: Invalid value: \"x\": must match the service \
                account name if specified";
    assert_eq!(refused(json!({"name": "x"})).await, (422, text.to_owned()));
    assert_eq!(refused(json!({"namespace": "x"})).await.0, 400);
    let (code, text) = refused(json!({"uid": "a"})).await;
    assert_eq!(code, 409);
    assert!(text.starts_with(
        "Operation cannot be fulfilled on TokenRequest.authentication.k8s.io \"sa\": the UID in the token request (a) does not \
         match the UID of the service account ("
    ));
}

#[tokio::test]
async fn au_53_54_57_requests_that_are_refused() {
    let world = World::new().await;
    let refused = async |spec: Value| {
        let status = world.request_token(spec).await.unwrap_err();
        (status.code, status.message)
    };
    assert!(
        refused(json!({"expirationSeconds": 5})).await.1.ends_with("may not specify a duration less than 10 minutes")
    );
    assert!(refused(json!({"expirationSeconds": 8_589_934_592_i64})).await.1.ends_with("larger than 2^32 seconds"));
    let mut both = bound("Pod", "x");
    both["expirationSeconds"] = json!(5);
    assert_eq!(refused(both).await.0, 422, "validated before the pod is looked up");
    let to = |kind: &str| json!({"boundObjectRef": {"apiVersion": "v1", "kind": kind, "name": "x", "uid": "u"}});
    assert_eq!(refused(to("Pod")).await, (404, "pods \"x\" not found".to_owned()));
    assert_eq!(refused(to("ConfigMap")).await.1, "cannot bind token to object of type /v1, Kind=ConfigMap");
    assert_eq!(refused(bound("Pod", "")).await, (400, "Name parameter required.".to_owned()));
    world.make("secrets", json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "x"}})).await;
    let (code, text) = refused(to("Secret")).await;
    assert_eq!(code, 409);
    assert!(text.starts_with(
        "Operation cannot be fulfilled on Secret \"x\": the UID in the bound object reference (u) does not"
    ));
    let pod = json!({"serviceAccountName": "other", "containers": [{"name": "c", "image": "i"}]});
    world.make("pods", json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "o"}, "spec": pod})).await;
    assert_eq!(
        refused(bound("Pod", "o")).await.1,
        "cannot bind token for serviceaccount \"sa\" to pod running with different serviceaccount name."
    );
}

#[tokio::test]
async fn au_55_a_maximum_shortens_a_token() {
    let world = World::with(TokenSettings { seconds_max: Some(1000), ..TokenSettings::default() }).await;
    let token = world.request_token(json!({"expirationSeconds": 5000})).await.unwrap();
    assert_eq!(claims(&token)["exp"], START + 1000);
    assert_eq!(world.warnings.take(), ["requested expiration of 5000 seconds shortened to 1000 seconds"]);
}

#[tokio::test]
async fn rot_3_tokens_of_listed_keys_stay_good() {
    let world = World::new().await;
    let (first, second) = (crate::certs::make_key().unwrap(), crate::certs::make_key().unwrap());
    world.tokens.replace_keys(TokenKeys::new(&first, &[]).unwrap());
    let token = world.request_token(json!({})).await.unwrap();
    world.verify(&token).unwrap();
    world.tokens.replace_keys(TokenKeys::new(&second, &[first]).unwrap());
    world.verify(&token).unwrap();
    let newer = world.request_token(json!({})).await.unwrap();
    world.tokens.replace_keys(TokenKeys::new(&second, &[]).unwrap());
    assert_eq!(world.verify(&token).unwrap_err(), "invalid signature, no keys found");
    world.verify(&newer).unwrap();
}

#[test]
fn keys_of_all_kinds_sign_and_verify() {
    use rcgen::{KeyPair, PKCS_ECDSA_P384_SHA384, PKCS_RSA_SHA256};
    for algorithm in [&PKCS_ECDSA_P384_SHA384, &PKCS_RSA_SHA256] {
        let pair = KeyPair::generate_for(algorithm).unwrap();
        let keys = TokenKeys::new(&pair.serialize_pem(), &[]).unwrap();
        let token = keys.sign(&json!({"iss": "x"})).unwrap();
        let other = TokenKeys::new(&crate::certs::make_key().unwrap(), &[pair.public_key_pem()]).unwrap();
        assert_eq!(other.verify(&token).unwrap().unwrap()["iss"], "x");
        let key = &other.public()[1];
        assert_eq!(key.jwk["kid"], json!(key.id));
    }
    assert!(TokenKeys::new(&crate::certs::make_key().unwrap(), &["no key".to_owned()]).is_err());
}
