//! Users from issuers, front proxies, bootstrap tokens and other audiences, with the flags that allow them.

use std::sync::Arc;

use machinery::json::{Value, json};
use outbound::Request;
use outbound::testing::{Authority, Reply, TestServer};
use parking_lot::Mutex;
use server::authentication::accounts::TokenKeys;
use server::certs::make_key;

use crate::world::{Files, World, new_pki};

/// An issuer on a socket with one key.
pub(crate) struct TestIssuer {
    server: TestServer,
    pub(crate) authority: Authority,
    keys: TokenKeys,
}

impl TestIssuer {
    pub(crate) async fn start() -> Self {
        let authority = Authority::new();
        let keys = TokenKeys::new(&make_key().unwrap(), &[]).unwrap();
        let published = keys.public()[0].jwk.clone();
        let address = Arc::new(Mutex::new(String::new()));
        let url = Arc::clone(&address);
        let server =
            TestServer::start(authority.leaf(&["127.0.0.1", "localhost"]), move |seen| match seen.path.as_str() {
                "/.well-known/openid-configuration" => {
                    let url = url.lock().clone();
                    Reply::text(&json!({"issuer": url, "jwks_uri": format!("{url}/keys")}).to_string())
                }
                _ => Reply::text(&json!({"keys": [published]}).to_string()),
            })
            .await;
        *address.lock() = server.url("").trim_end_matches('/').to_owned();
        TestIssuer { server, authority, keys }
    }

    pub(crate) fn url(&self) -> String {
        self.server.url("").trim_end_matches('/').to_owned()
    }

    /// A token that is valid for the audience `dogwatch`.
    pub(crate) fn sign(&self, changes: &Value) -> String {
        let mut claims = json!({"iss": self.url(), "aud": "dogwatch", "exp": 4_000_000_000_i64, "sub": "42"});
        for (name, value) in changes.as_object().unwrap() {
            claims[&**name] = value.clone();
        }
        self.keys.sign(&claims).unwrap()
    }

    pub(crate) fn file(&self, username: &Value) -> String {
        let issuer = json!({"url": self.url(), "certificateAuthority": self.authority.pem, "audiences": ["dogwatch"]});
        let jwt = json!([{
            "issuer": issuer, "claimMappings": {"username": username},
            "userValidationRules": [{"expression": "!user.username.startsWith('system:')", "message": "reserved"}],
        }]);
        json!({"apiVersion": "apiserver.config.k8s.io/v1", "kind": "AuthenticationConfiguration", "jwt": jwt})
            .to_string()
    }
}

#[tokio::test]
async fn au_68_issuers_by_flags_and_by_a_file() {
    let issuer = TestIssuer::start().await;
    let files = Files::new();
    let ca = files.write("ca.crt", &issuer.authority.pem);
    let url = issuer.url();
    let words = [
        "--oidc-issuer-url",
        &url,
        "--oidc-client-id",
        "dogwatch",
        "--oidc-ca-file",
        &ca,
        "--oidc-groups-claim",
        "groups",
        "--oidc-groups-prefix",
        "g:",
        "--oidc-signing-algs",
        "RS256,ES256",
        "--oidc-required-claim",
        "env=test",
        "--explain-unauthorized",
    ];
    let world = World::start(files, &words).await;
    let user = world.who(&issuer.sign(&json!({"groups": ["a"], "env": "test"}))).await.unwrap();
    assert_eq!(user["username"], format!("{url}#42"));
    assert_eq!(user["groups"], json!(["g:a", "system:authenticated"]));
    let (code, why) = world.who(&issuer.sign(&json!({}))).await.unwrap_err();
    assert_eq!(code, 401);
    assert_eq!(why, "[invalid bearer token, oidc: required claim env not present in ID token]");

    let files = Files::new();
    let config =
        files.write("config", &issuer.file(&json!({"expression": "claims.name.lowerAscii() + '@' + claims.sub"})));
    let world = World::start(files, &["--authentication-config", &config, "--explain-unauthorized"]).await;
    assert_eq!(world.who(&issuer.sign(&json!({"name": "ANN"}))).await.unwrap()["username"], "ann@42");
    let (_, why) = world.who(&issuer.sign(&json!({"name": "system:x"}))).await.unwrap_err();
    assert!(why.contains("user info validation rule") && why.contains("reserved"), "{why}");
    let (_, why) = world.who(&issuer.sign(&json!({}))).await.unwrap_err();
    assert!(
        why.contains("oidc: error evaluating username claim expression") && why.contains("no such key: name"),
        "{why}"
    );
}

#[tokio::test]
async fn au_64_anonymous_requests_on_single_paths() {
    let files = Files::new();
    let config = files.write(
        "config",
        "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthenticationConfiguration\n\
         anonymous: {enabled: true, conditions: [{path: /livez}]}\n",
    );
    let world = World::start(files, &["--authentication-config", &config]).await;
    let code = async |path: &str| world.ask(Request::get(), path, &world.pki.ca_pem, None, None).await.unwrap().0;
    assert_eq!(code("/livez").await, 200);
    assert_eq!(code("/livez/ping").await, 401);
    assert_eq!(code("/readyz").await, 401);
}

#[tokio::test]
async fn au_65_where_everything_is_allowed_credentials_are_needed() {
    let world = World::start(Files::new(), &["--authorization-mode", "AlwaysAllow"]).await;
    assert_eq!(world.ask(Request::get(), "/livez", &world.pki.ca_pem, None, None).await.unwrap().0, 401);
    assert_eq!(world.code(&world.pki.admin).await, 200);
}

#[tokio::test]
async fn au_66_a_front_proxy_names_the_user() {
    let proxies = new_pki();
    let files = Files::new();
    let ca = files.write("proxy-ca.crt", &proxies.ca_pem);
    let words = ["--requestheader-client-ca-file", &ca, "--requestheader-allowed-names", "kubernetes-admin,front"];
    let world = World::start(files, &words).await;
    let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
    let mut request = Request::post_json(review.to_string());
    request.headers.insert("x-remote-user", "zoe".parse().unwrap());
    request.headers.insert("x-remote-group", "devs".parse().unwrap());
    let path = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
    let who = async |leaf| {
        let (code, body) = world.ask(request.clone(), path, &world.pki.ca_pem, Some(leaf), None).await.unwrap();
        assert_eq!(code, 201, "{body}");
        body["status"]["userInfo"]["username"].as_str().unwrap().to_owned()
    };
    assert_eq!(who(&proxies.admin).await, "zoe");
    assert_eq!(who(&world.pki.admin).await, "kubernetes-admin", "an ordinary certificate is not a proxy's");
}

#[tokio::test]
async fn au_63_bootstrap_tokens_are_off_unless_enabled() {
    for (words, known) in [(&[][..], false), (&["--enable-bootstrap-token-auth"], true)] {
        let world = World::start(Files::new(), words).await;
        let secret = json!({
            "apiVersion": "v1", "kind": "Secret", "type": "bootstrap.kubernetes.io/token",
            "metadata": {"name": "bootstrap-token-abcdef", "namespace": "kube-system"},
            "stringData": {
                "token-id": "abcdef", "token-secret": "0123456789abcdef", "usage-bootstrap-authentication": "true",
            },
        });
        world.post("/api/v1/namespaces/kube-system/secrets", &secret).await;
        let user = world.who("abcdef.0123456789abcdef").await;
        assert_eq!(user.is_ok_and(|user| user["username"] == "system:bootstrap:abcdef"), known);
    }
}

#[tokio::test]
async fn au_8_23_issuers_and_audiences_of_service_accounts() {
    let words = [
        "--service-account-issuer",
        "https://a.example",
        "--service-account-issuer",
        "https://b.example",
        "--api-audiences",
        "api",
    ];
    let world = World::start(Files::new(), &words).await;
    let token = world.account_token().await;
    let claims = token.split('.').nth(1).unwrap();
    let claims: Value = serde_json::from_slice(&base64url(claims)).unwrap();
    assert_eq!((&claims["iss"], &claims["aud"]), (&json!("https://a.example"), &json!(["api"])));
    assert_eq!(world.who(&token).await.unwrap()["username"], "system:serviceaccount:default:sa");
    let review = json!({
        "apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token, "audiences": ["other"]},
    });
    let reviewed = world.post("/apis/authentication.k8s.io/v1/tokenreviews", &review).await;
    assert_eq!(
        reviewed["status"]["error"],
        "[invalid bearer token, token audiences [\"api\"] is invalid for the target audiences [\"other\"]]"
    );
}

/// Decodes unpadded base64url.
fn base64url(text: &str) -> Vec<u8> {
    const ALPHABET: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let (mut bytes, mut bits, mut held) = (Vec::new(), 0_u32, 0);
    for byte in text.bytes() {
        let value = ALPHABET.iter().position(|known| *known == byte).unwrap();
        bits = (bits << 6) | u32::try_from(value).unwrap();
        held += 6;
        if held >= 8 {
            held -= 8;
            bytes.push(u8::try_from((bits >> held) & 0xff).unwrap());
        }
    }
    bytes
}
