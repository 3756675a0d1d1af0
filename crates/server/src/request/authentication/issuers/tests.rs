//! An issuer that the test runs: its documents over TLS, its keys, and tokens signed with them.

use std::path::Path;

use machinery::json::json;
use outbound::ClientLimits;
use outbound::testing::{Authority, Reply, TestServer};
use parking_lot::Mutex;

use super::claims::Compiled;
use super::config::{Configuration, parse};
use super::*;
use crate::certs::make_key;
use crate::request::authentication::accounts::TokenKeys;

const NOW: i64 = 1_800_000_000;

/// An issuer with keys that can be replaced.
struct TestIssuer {
    server: TestServer,
    authority: Authority,
    keys: Arc<Mutex<TokenKeys>>,
}

fn new_keys() -> TokenKeys {
    TokenKeys::new(&make_key().unwrap(), &[]).unwrap()
}

impl TestIssuer {
    async fn start() -> Self {
        let authority = Authority::new();
        let keys = Arc::new(Mutex::new(new_keys()));
        let served = Arc::clone(&keys);
        let address = Arc::new(Mutex::new(String::new()));
        let url = Arc::clone(&address);
        let server =
            TestServer::start(authority.leaf(&["localhost", "127.0.0.1"]), move |seen| match seen.path.as_str() {
                "/.well-known/openid-configuration" | "/elsewhere" => {
                    let url = url.lock().clone();
                    Reply::text(&json!({"issuer": url, "jwks_uri": format!("{url}/keys")}).to_string())
                }
                "/keys" => {
                    let keys: Vec<Value> = served.lock().public().iter().map(|key| key.jwk.clone()).collect();
                    Reply::text(&json!({"keys": keys}).to_string())
                }
                _ => Reply::text("no").status(404),
            })
            .await;
        *address.lock() = server.url("").trim_end_matches('/').to_owned();
        TestIssuer { server, authority, keys }
    }

    fn url(&self) -> String {
        self.server.url("").trim_end_matches('/').to_owned()
    }

    fn sign(&self, changes: Value) -> String {
        let mut claims = json!({"iss": self.url(), "aud": "dogwatch", "exp": NOW + 600, "sub": "42", "jti": "t-1"});
        for (name, value) in changes.as_object().unwrap() {
            claims[&**name] = value.clone();
        }
        self.keys.lock().sign(&claims).unwrap()
    }

    fn configuration(&self, mappings: Value, more: Value) -> Configuration {
        let mut jwt = json!({
            "issuer": {"url": self.url(), "certificateAuthority": self.authority.pem, "audiences": ["dogwatch"]},
            "claimMappings": mappings,
        });
        for (name, value) in more.as_object().unwrap() {
            jwt[&**name] = value.clone();
        }
        let file = json!({
            "apiVersion": "apiserver.config.k8s.io/v1", "kind": "AuthenticationConfiguration", "jwt": [jwt],
        });
        parse(file.to_string().as_bytes(), &compile(), &[]).unwrap()
    }

    async fn issuers(&self, mappings: Value, more: Value) -> Issuers {
        Issuers::discover(&client(), self.configuration(mappings, more).issuers).await.unwrap()
    }
}

fn client() -> Client {
    Client::new(ClientLimits::default())
}

fn now() -> Timestamp {
    Timestamp::from_second(NOW).unwrap()
}

/// Knows the expressions of these tests: `claims.NAME`, and `claims.NAME == 'VALUE'` (`user.NAME` alike).
struct Known {
    member: String,
    value: Option<String>,
}

impl Compiled for Known {
    fn evaluate(&self, variable: &Value) -> Result<Value, String> {
        let found = variable.get(self.member.as_str()).ok_or_else(|| format!("no such key: {}", self.member))?;
        Ok(match &self.value {
            None => found.clone(),
            Some(value) => Value::Bool(found.as_str() == Some(value)),
        })
    }
}

fn compile() -> Compile {
    Arc::new(|variable, text| {
        let prefix = if variable == Variable::Claims { "claims." } else { "user." };
        let rest = text.strip_prefix(prefix).ok_or_else(|| format!("undeclared reference in {text:?}"))?;
        let (member, value) = match rest.split_once(" == ") {
            Some((member, value)) => (member, Some(value.trim_matches('\'').to_owned())),
            None => (rest, None),
        };
        Ok(Box::new(Known { member: member.to_owned(), value }) as Box<dyn Compiled>)
    })
}

fn by_claim() -> Value {
    json!({"username": {"claim": "sub", "prefix": "oidc:"}, "groups": {"claim": "groups", "prefix": "g:"}})
}

#[tokio::test]
async fn au_68_claims_with_prefixes_name_user_and_groups() {
    let issuer = TestIssuer::start().await;
    let issuers = issuer.issuers(by_claim(), json!({})).await;
    let user = issuers.user(&issuer.sign(json!({"groups": ["a", "b"]})), now()).await.unwrap().unwrap();
    assert_eq!(user.name, "oidc:42");
    assert_eq!(user.groups, ["g:a", "g:b", "system:authenticated"]);
    assert_eq!(user.extra["authentication.kubernetes.io/credential-id"], ["JTI=t-1"]);
    let one = issuers.user(&issuer.sign(json!({"groups": "a"})), now()).await.unwrap().unwrap();
    assert_eq!(one.groups, ["g:a", "system:authenticated"]);
    let none = issuers.user(&issuer.sign(json!({})), now()).await.unwrap().unwrap();
    assert_eq!(none.groups, ["system:authenticated"]);
}

#[tokio::test]
async fn au_68_expressions_name_every_part() {
    let issuer = TestIssuer::start().await;
    let mappings = json!({
        "username": {"expression": "claims.name"}, "groups": {"expression": "claims.roles"}, "uid": {"expression": "claims.id"},
        "extra": [{"key": "acme.io/team", "valueExpression": "claims.team"}],
    });
    let more = json!({
        "claimValidationRules": [{"expression": "claims.tier == 'gold'", "message": "only gold"}, {"claim": "env", "requiredValue": "test"}],
        "userValidationRules": [{"expression": "user.username == 'ann'", "message": "only ann"}],
    });
    let issuers = issuer.issuers(mappings, more).await;
    let claims = json!({"name": "ann", "roles": ["x", ""], "id": "u7", "team": "red", "tier": "gold", "env": "test"});
    let ann = issuers.user(&issuer.sign(claims.clone()), now()).await.unwrap().unwrap();
    assert_eq!((ann.name.as_str(), ann.uid.as_str()), ("ann", "u7"));
    assert_eq!(ann.groups, ["x", "system:authenticated"]);
    assert_eq!(ann.extra["acme.io/team"], ["red"]);
    let refused = async |name: &str, value: &str| {
        let mut claims = claims.clone();
        claims[name] = json!(value);
        issuers.user(&issuer.sign(claims), now()).await.unwrap().unwrap_err()
    };
    assert_eq!(
        refused("tier", "tin").await,
        "oidc: error evaluating claim validation expression: validation expression 'claims.tier == 'gold'' failed: only gold"
    );
    assert_eq!(refused("env", "live").await, "oidc: required claim env value does not match. Got = live, want = test");
    assert!(refused("name", "bob").await.starts_with("oidc: error evaluating user info validation rule: "));
    assert_eq!(refused("name", "").await, "oidc: empty username via CEL expression is not allowed");
}

#[tokio::test]
async fn au_69_reasons_to_refuse_a_token() {
    let issuer = TestIssuer::start().await;
    let issuers = issuer.issuers(by_claim(), json!({})).await;
    assert!(
        issuers.user(&issuer.sign(json!({"iss": "https://other.example"})), now()).await.is_none(),
        "not its token"
    );
    assert!(issuers.user("nope", now()).await.is_none());
    let refused = async |changes: Value| issuers.user(&issuer.sign(changes), now()).await.unwrap().unwrap_err();
    assert_eq!(
        refused(json!({"aud": ["x", "y"]})).await,
        "oidc: verify token: oidc: expected audience \"dogwatch\" got [\"x\" \"y\"]"
    );
    assert!(
        refused(json!({"exp": NOW - 1}))
            .await
            .starts_with("oidc: verify token: oidc: token is expired (Token Expiry: ")
    );
    assert!(refused(json!({"nbf": NOW + 100})).await.contains("before the nbf (not before) time"));
    assert!(refused(json!({"sub": 7})).await.starts_with("oidc: parse username claims \"sub\""));
    let foreign =
        new_keys().sign(&json!({"iss": issuer.url(), "aud": "dogwatch", "exp": NOW + 600, "sub": "root"})).unwrap();
    assert_eq!(
        issuers.user(&foreign, now()).await.unwrap().unwrap_err(),
        "oidc: verify token: failed to verify signature: failed to verify id token signature"
    );
}

#[tokio::test]
async fn au_68_keys_are_read_again_for_an_unknown_one() {
    let issuer = TestIssuer::start().await;
    let issuers = issuer.issuers(by_claim(), json!({})).await;
    let reads = || issuer.server.requests().iter().filter(|seen| seen.path == "/keys").count();
    issuers.user(&issuer.sign(json!({})), now()).await.unwrap().unwrap();
    assert_eq!(reads(), 1, "known keys are kept");
    *issuer.keys.lock() = new_keys();
    issuers.user(&issuer.sign(json!({})), now()).await.unwrap().unwrap();
    assert_eq!(reads(), 2);
    // Tokens with invented keys cannot make the server ask without end.
    for _ in 0..10 {
        let foreign = new_keys().sign(&json!({"iss": issuer.url(), "aud": "dogwatch", "exp": NOW + 600})).unwrap();
        assert!(issuers.user(&foreign, now()).await.unwrap().is_err());
    }
    assert!(reads() <= 4, "{} reads", reads());
}

#[tokio::test]
async fn au_70_a_new_set_is_used_once_its_keys_are_there() {
    let (first, second) = (TestIssuer::start().await, TestIssuer::start().await);
    let issuers = first.issuers(by_claim(), json!({})).await;
    let mut unreachable = second.configuration(by_claim(), json!({})).issuers;
    unreachable[0].ca_pem = Some(Authority::new().pem);
    let why = issuers.replace(&client(), unreachable).await.unwrap_err();
    assert!(why.starts_with(&format!("the issuer {} cannot be used: ", second.url())), "{why}");
    assert!(issuers.user(&first.sign(json!({})), now()).await.unwrap().is_ok(), "the old set stays");
    issuers.replace(&client(), second.configuration(by_claim(), json!({})).issuers).await.unwrap();
    assert!(issuers.user(&first.sign(json!({})), now()).await.is_none());
    assert!(issuers.user(&second.sign(json!({})), now()).await.unwrap().is_ok());
}

#[tokio::test]
async fn au_68_the_discovery_document_may_be_elsewhere_and_must_name_the_issuer() {
    let issuer = TestIssuer::start().await;
    let mut settings = issuer.configuration(by_claim(), json!({})).issuers;
    settings[0].discovery_url = Some(format!("{}/elsewhere", issuer.url()));
    let issuers = Issuers::discover(&client(), settings).await.unwrap();
    assert!(issuers.user(&issuer.sign(json!({})), now()).await.unwrap().is_ok());
    let mut settings = issuer.configuration(by_claim(), json!({})).issuers;
    settings[0].url = "https://issuer.example".to_owned();
    settings[0].discovery_url = Some(format!("{}/elsewhere", issuer.url()));
    let why = Issuers::discover(&client(), settings).await.unwrap_err();
    assert!(why.contains("issuer did not match the issuer returned by provider"), "{why}");
}

#[test]
fn au_64_68_wrong_files_are_refused_with_the_field() {
    let read = |jwt: &str| {
        let head = "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthenticationConfiguration\n";
        parse(format!("{head}{jwt}").as_bytes(), &compile(), &["https://own".to_owned()]).unwrap_err()
    };
    let issuer =
        |more: &str| format!("jwt:\n- issuer: {{url: 'https://a', audiences: [x]}}\n  claimMappings: {more}\n");
    for (text, expected) in [
        ("jwt: 7\n", "jwt: must be a list"),
        ("nope: 7\n", "nope: unknown field"),
        (
            "anonymous: {enabled: false, conditions: [{path: /livez}]}\n",
            "anonymous.conditions: enabled should be set to true",
        ),
        ("jwt: [{issuer: {url: 'http://a'}}]\n", "jwt[0].issuer.url: URL scheme must be https"),
        ("jwt: [{issuer: {url: 'https://a?b'}}]\n", "jwt[0].issuer.url: URL must not contain a query"),
        ("jwt: [{issuer: {url: 'https://u@a'}}]\n", "jwt[0].issuer.url: URL must not contain a username"),
        ("jwt: [{issuer: {url: 'https://a'}}]\n", "jwt[0].issuer.audiences: required"),
        (
            "jwt: [{issuer: {url: 'https://a', audiences: [x, z]}}]\n",
            "jwt[0].issuer.audienceMatchPolicy: must be MatchAny",
        ),
        (&issuer("{username: {claim: sub}}"), "jwt[0].claimMappings.username.prefix: is required"),
        (
            &issuer("{username: {claim: sub, prefix: '', expression: claims.x}}"),
            "jwt[0].claimMappings.username: claim and",
        ),
        (&issuer("{username: {expression: nope}}"), "jwt[0].claimMappings.username.expression: undeclared reference"),
        (
            &issuer("{username: {expression: claims.email}}"),
            "jwt[0].claimMappings.username.expression: claims.email_verified must",
        ),
        (&issuer("{}"), "jwt[0].claimMappings.username: claim or expression is required"),
        (
            &issuer("{username: {claim: sub, prefix: ''}, extra: [{key: a.k8s.io/x, valueExpression: claims.x}]}"),
            "jwt[0].claimMappings.extra[0].key: k8s.io, kubernetes.io and their subdomains are reserved",
        ),
    ] {
        let why = read(text);
        assert!(why.starts_with(expected), "{text}: {why}");
    }
    let own = issuer("{username: {claim: sub, prefix: ''}}").replace("https://a", "https://own");
    assert!(read(&own).contains("must not overlap with disallowed issuers"));
    let twice = issuer("{username: {claim: sub, prefix: ''}}");
    let twice = format!("{twice}{}", twice.trim_start_matches("jwt:\n"));
    assert!(read(&twice).contains("is there twice"));
    assert!(super::config::read(Path::new("/nope/file"), &compile(), &[]).unwrap_err().starts_with("/nope/file: "));
    let open = "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthenticationConfiguration\nanonymous: {enabled: true, conditions: [{path: /livez}]}\n";
    let anonymous = parse(open.as_bytes(), &compile(), &[]).unwrap().anonymous.unwrap();
    assert!(anonymous.user("/livez").is_some() && anonymous.user("/readyz").is_none());
}
