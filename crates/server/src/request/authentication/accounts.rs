//! Tokens of service accounts: signs and verifies them.
//!
//! They are JSON Web Tokens (ES256). A token is valid if this server signed it, it has not expired, it is for one of the
//! wanted audiences, and its account and the object it is bound to still exist with the same UID.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::Arc;

use jiff::Timestamp;
use jsonwebtoken::{Algorithm, DecodingKey, EncodingKey, Header, Validation};
use machinery::Status;
use machinery::json::{Value, json};
use parking_lot::Mutex;
use rcgen::{KeyPair, PublicKeyData as _};
use registry::Registry;
use sha2::{Digest as _, Sha256};

use crate::error::CertError;
use access::identity::User;

/// The issuer of tokens, and the audience of a token that names none.
pub const ISSUER: &str = "https://kubernetes.default.svc.cluster.local";
/// Tolerated difference between clocks.
const LEEWAY_SECONDS: i64 = 60;
/// Verified tokens in the cache; at the limit it is cleared.
const VERIFIED_MAX: usize = 4096;

/// The user of a token and the audiences it is valid for, or the reason why it is not valid.
pub type TokenVerdict = Result<(Arc<User>, Vec<String>), String>;

/// Signs tokens, and verifies those it signed.
pub struct AccountTokens {
    registry: Arc<Registry>,
    signing: EncodingKey,
    verifying: DecodingKey,
    key_id: String,
    audiences: Vec<String>,
    /// The claims of tokens whose signature was verified, by digest: the signature is the most expensive check.
    verified: Mutex<HashMap<[u8; 32], Arc<Value>>>,
}

impl fmt::Debug for AccountTokens {
    /// Keys stay out of logs.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AccountTokens").field("key_id", &self.key_id).finish_non_exhaustive()
    }
}

impl AccountTokens {
    /// `key_pem` is a key of [`crate::certs::make_key`].
    pub fn new(registry: Arc<Registry>, key_pem: &str) -> Result<Self, CertError> {
        let pair = KeyPair::from_pem(key_pem)?;
        let digest = Sha256::digest(pair.der_bytes());
        Ok(AccountTokens {
            registry,
            signing: EncodingKey::from_ec_der(&pair.serialize_der()),
            verifying: DecodingKey::from_ec_der(pair.der_bytes()),
            key_id: digest.iter().take(16).map(|byte| format!("{byte:02x}")).collect(),
            audiences: vec![ISSUER.to_owned()],
            verified: Mutex::default(),
        })
    }

    /// The audiences of a token that names none.
    #[must_use]
    pub fn audiences(&self) -> &[String] {
        &self.audiences
    }

    pub fn sign(&self, mut claims: Value) -> Result<String, Status> {
        claims["iss"] = json!(ISSUER);
        let header = Header { kid: Some(self.key_id.clone()), typ: None, ..Header::new(Algorithm::ES256) };
        jsonwebtoken::encode(&header, &claims, &self.signing)
            .map_err(|error| Status::internal(format_args!("failed to generate token: {error}")))
    }

    /// Verifies a token for one of `audiences`. Returns none for a token that this server did not sign.
    pub fn user(&self, token: &str, audiences: &[String], now: Timestamp) -> Option<TokenVerdict> {
        let claims = self.signed_claims(token)?;
        Some(self.check_claims(&claims, audiences, now))
    }

    /// Returns the claims of a token that this server signed.
    fn signed_claims(&self, token: &str) -> Option<Arc<Value>> {
        let digest: [u8; 32] = Sha256::digest(token.as_bytes()).into();
        if let Some(known) = self.verified.lock().get(&digest) {
            return Some(Arc::clone(known));
        }
        let mut validation = Validation::new(Algorithm::ES256);
        // Times and audiences are checked on each use, by `check_claims`.
        validation.validate_exp = false;
        validation.validate_aud = false;
        validation.required_spec_claims.clear();
        validation.set_issuer(&[ISSUER]);
        let claims = jsonwebtoken::decode::<Value>(token, &self.verifying, &validation).ok()?.claims;
        let claims = Arc::new(claims);
        let mut verified = self.verified.lock();
        if verified.len() >= VERIFIED_MAX {
            verified.clear();
        }
        verified.insert(digest, Arc::clone(&claims));
        Some(claims)
    }

    fn check_claims(&self, claims: &Value, audiences: &[String], now: Timestamp) -> TokenVerdict {
        let token_audiences: Vec<&str> = match &claims["aud"] {
            Value::String(one) => vec![one],
            several => several.as_array().into_iter().flatten().filter_map(Value::as_str).collect(),
        };
        let common: Vec<String> =
            audiences.iter().filter(|one| token_audiences.contains(&one.as_str())).cloned().collect();
        if common.is_empty() {
            let (has, wanted) = (quoted(&token_audiences), quoted(audiences));
            return Err(format!("token audiences {has} is invalid for the target audiences {wanted}"));
        }
        let (now, at) = (now.as_second(), |name: &str| claims[name].as_i64());
        if at("exp").is_none_or(|expires| now > expires.saturating_add(LEEWAY_SECONDS)) {
            return Err("service account token has expired".to_owned());
        }
        if at("nbf").is_some_and(|begins| now < begins.saturating_sub(LEEWAY_SECONDS)) {
            return Err("service account token is not valid yet".to_owned());
        }
        self.registry.check_token_claims(claims)?;
        Ok((Arc::new(user_from_claims(claims)), common))
    }
}

/// `["a" "b"]`
fn quoted<S: AsRef<str>>(texts: &[S]) -> String {
    let texts: Vec<String> = texts.iter().map(|text| format!("{:?}", text.as_ref())).collect();
    format!("[{}]", texts.join(" "))
}

fn user_from_claims(claims: &Value) -> User {
    let about = &claims["kubernetes.io"];
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let namespace = text(&about["namespace"]);
    let mut extra = BTreeMap::new();
    for (key, value) in [
        ("credential-id", text(&claims["jti"])),
        ("pod-name", text(&about["pod"]["name"])),
        ("pod-uid", text(&about["pod"]["uid"])),
        ("node-name", text(&about["node"]["name"])),
        ("node-uid", text(&about["node"]["uid"])),
    ] {
        if !value.is_empty() {
            let value = if key == "credential-id" { format!("JTI={value}") } else { value };
            extra.insert(format!("authentication.kubernetes.io/{key}"), vec![value]);
        }
    }
    User {
        name: text(&claims["sub"]),
        uid: text(&about["serviceaccount"]["uid"]),
        groups: vec!["system:serviceaccounts".to_owned(), format!("system:serviceaccounts:{namespace}")],
        extra,
    }
    .authenticated()
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use jiff::SignedDuration;
    use machinery::clock::Clock;
    use machinery::media::MediaType;
    use machinery::options::{CreateOptions, DeleteOptions};
    use registry::{Body, Context, Settings, Target, WriteRequest};
    use store::Retention;
    use store::memory::MemoryStore;

    struct World {
        registry: Arc<Registry>,
        tokens: AccountTokens,
    }

    impl World {
        async fn new() -> Self {
            let store = Arc::new(MemoryStore::new(Retention::default()));
            let registry = Registry::start(store, Settings::default()).await.unwrap();
            let tokens = AccountTokens::new(Arc::clone(&registry), &crate::certs::make_key().unwrap()).unwrap();
            let world = World { registry, tokens };
            world
                .make(
                    "serviceaccounts",
                    json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "sa"}}),
                )
                .await;
            world
        }

        fn target(&self, plural: &str, name: Option<&str>, subresource: Option<&str>) -> Target {
            let kind = Arc::clone(self.registry.kinds().get("", "v1", plural).unwrap());
            let text = |text: &str| text.to_owned();
            Target { kind, namespace: Some(text("default")), name: name.map(text), subresource: subresource.map(text) }
        }

        async fn make(&self, plural: &str, object: Value) {
            let body = Body { bytes: Bytes::from(object.to_string()), media: MediaType::Json };
            let target = self.target(plural, None, None);
            let (options, ctx) = (CreateOptions::default(), Context::default());
            let request = WriteRequest { target: &target, options: &options, ctx: &ctx };
            self.registry.create(request, &body).await.unwrap();
            self.registry.ready().await;
        }

        async fn delete(&self, plural: &str, name: &str) {
            let options = DeleteOptions { grace_period_seconds: Some(0), ..DeleteOptions::default() };
            let target = self.target(plural, Some(name), None);
            let request = WriteRequest { target: &target, options: &options, ctx: &Context::default() };
            self.registry.delete(request).await.unwrap();
            self.registry.ready().await;
        }

        async fn request_token(&self, spec: Value) -> Result<String, Status> {
            let object = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec});
            let body = Body { bytes: Bytes::from(object.to_string()), media: MediaType::Json };
            let target = self.target("serviceaccounts", Some("sa"), Some("token"));
            let (options, ctx) = (CreateOptions::default(), Context::default());
            let request = WriteRequest { target: &target, options: &options, ctx: &ctx };
            let grant = self.registry.request_token(request, &body, self.tokens.audiences()).await?;
            self.tokens.sign(grant.claims)
        }

        fn verify(&self, token: &str, at: Timestamp) -> Result<Arc<User>, String> {
            let verdict = self.tokens.user(token, self.tokens.audiences(), at);
            verdict.unwrap_or_else(|| Err("not ours".to_owned())).map(|(user, _)| user)
        }
    }

    #[tokio::test]
    async fn a_token_authenticates_its_account() {
        let world = World::new().await;
        let token = world.request_token(json!({})).await.unwrap();
        let now = Clock::system().now();
        for _ in 0..2 {
            let user = world.verify(&token, now).unwrap();
            assert_eq!(user.name, "system:serviceaccount:default:sa");
            assert_eq!(
                user.groups,
                ["system:serviceaccounts", "system:serviceaccounts:default", "system:authenticated"]
            );
            assert!(user.extra["authentication.kubernetes.io/credential-id"][0].starts_with("JTI="));
        }
        assert_eq!(
            world.verify(&token, now + SignedDuration::from_secs(3700)).unwrap_err(),
            "service account token has expired"
        );
        assert!(world.verify(&token, now - SignedDuration::from_secs(100)).unwrap_err().contains("not valid yet"));
        world.delete("serviceaccounts", "sa").await;
        assert!(world.verify(&token, now).unwrap_err().contains("not found"));
    }

    #[tokio::test]
    async fn only_what_we_signed_counts() {
        let world = World::new().await;
        let token = world.request_token(json!({})).await.unwrap();
        let mut parts: Vec<&str> = token.split('.').collect();
        let other = World::new().await;
        assert_eq!(other.verify(&token, Clock::system().now()).unwrap_err(), "not ours");
        parts[2] = "AAAA";
        assert_eq!(world.verify(&parts.join("."), Clock::system().now()).unwrap_err(), "not ours");
        for odd in ["", "a", "a.b.c", "..", "nope"] {
            assert_eq!(world.verify(odd, Clock::system().now()).unwrap_err(), "not ours");
        }
    }

    #[tokio::test]
    async fn a_token_is_for_its_audiences() {
        let world = World::new().await;
        let token = world.request_token(json!({"audiences": ["vault", "other"]})).await.unwrap();
        let why = world.verify(&token, Clock::system().now()).unwrap_err();
        assert!(why.starts_with("token audiences [\"vault\" \"other\"] is invalid for the target audiences [\"https:"));
        let (_, common) =
            world.tokens.user(&token, &["x".into(), "vault".into()], Clock::system().now()).unwrap().unwrap();
        assert_eq!(common, ["vault"]);
    }

    #[tokio::test]
    async fn a_bound_token_dies_with_what_it_is_bound_to() {
        let world = World::new().await;
        let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}});
        world.make("secrets", secret.clone()).await;
        let bound = json!({"boundObjectRef": {"apiVersion": "v1", "kind": "Secret", "name": "s"}});
        let token = world.request_token(bound).await.unwrap();
        world.verify(&token, Clock::system().now()).unwrap();
        world.delete("secrets", "s").await;
        assert_eq!(
            world.verify(&token, Clock::system().now()).unwrap_err(),
            "service account token has been invalidated"
        );
        world.make("secrets", secret).await;
        assert!(world.verify(&token, Clock::system().now()).unwrap_err().contains("does not match"));
    }

    #[tokio::test]
    async fn requests_that_are_refused() {
        let world = World::new().await;
        let refused = async |spec: Value| {
            let status = world.request_token(spec).await.unwrap_err();
            (status.code, status.message)
        };
        assert_eq!(refused(json!({"expirationSeconds": 5})).await.0, 422);
        assert_eq!(refused(json!({"expirationSeconds": 8_589_934_592_i64})).await.0, 422);
        let to = |kind: &str| json!({"boundObjectRef": {"apiVersion": "v1", "kind": kind, "name": "x", "uid": "u"}});
        assert_eq!(refused(to("Pod")).await.0, 404);
        assert_eq!(refused(to("ConfigMap")).await.1, "cannot bind token to object of type /v1, Kind=ConfigMap");
        let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "x"}});
        world.make("secrets", secret).await;
        assert_eq!(refused(to("Secret")).await.0, 409);
    }
}
