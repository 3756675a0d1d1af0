//! Tokens of service accounts: signs and verifies them.
//!
//! They are JSON Web Tokens. A token is valid if a known [key](keys) signed it, it has not expired, it is for one of the
//! wanted audiences, and its account and the object it is bound to still exist with the same UID. [`legacy`] has the tokens
//! that secrets hold, [`discovery`] what others need to verify tokens.

pub mod discovery;
pub mod keys;
mod legacy;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jiff::Timestamp;
use machinery::Status;
use machinery::go_text::quote;
use machinery::json::{Value, json};
use parking_lot::{Mutex, RwLock};
use registry::{Registry, TokenTerms};
use serde::Deserialize;
use sha2::{Digest as _, Sha256};

use crate::request::authentication::{Notes, TokenVerdict};
use access::identity::User;
pub use keys::TokenKeys;

/// The issuer of tokens, and the audience of a token that names none, unless others are configured.
pub const ISSUER: &str = "https://kubernetes.default.svc.cluster.local";
/// Tolerated difference between clocks.
const LEEWAY_SECONDS: i64 = 60;
/// Verified tokens in the cache; at the limit it is cleared.
const VERIFIED_MAX: usize = 4096;
const EXTRA_PREFIX: &str = "authentication.kubernetes.io/";

/// How tokens are issued.
#[derive(Clone, Debug)]
pub struct TokenSettings {
    /// The first one issues, tokens of all are accepted.
    pub issuers: Vec<String>,
    /// The audiences of this server; the issuers if empty.
    pub audiences: Vec<String>,
    /// Longest lifetime of a token.
    pub seconds_max: Option<i64>,
    /// The address of the key set in the discovery document; the server's own if none is given.
    pub jwks_uri: Option<String>,
}

impl Default for TokenSettings {
    fn default() -> Self {
        TokenSettings { issuers: vec![ISSUER.to_owned()], audiences: Vec::new(), seconds_max: None, jwks_uri: None }
    }
}

/// Signs tokens, and verifies those of its keys.
pub struct AccountTokens {
    registry: Arc<Registry>,
    settings: TokenSettings,
    keys: RwLock<Arc<TokenKeys>>,
    /// Tokens whose signature was verified, by digest: the signature is the most expensive check. They are cleared with
    /// the keys.
    verified: Mutex<HashMap<[u8; 32], Arc<Signed>>>,
}

/// A token with a good signature.
struct Signed {
    claims: Value,
    /// The keys that verified it.
    keys: Arc<TokenKeys>,
    /// The user of a token that is not a legacy one.
    user: Option<Arc<User>>,
}

impl fmt::Debug for AccountTokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AccountTokens").field("settings", &self.settings).finish_non_exhaustive()
    }
}

impl AccountTokens {
    #[must_use]
    pub fn new(registry: Arc<Registry>, keys: TokenKeys, mut settings: TokenSettings) -> Self {
        if settings.audiences.is_empty() {
            settings.audiences.clone_from(&settings.issuers);
        }
        AccountTokens { registry, settings, keys: RwLock::new(Arc::new(keys)), verified: Mutex::default() }
    }

    /// For the accounts of another world. It accepts the tokens of this one, and issues tokens that only it accepts: accounts
    /// of a fork have the names and uids of their origin's, and who may do everything in the fork may not be them here.
    #[must_use]
    pub fn beside(&self, registry: Arc<Registry>, world: &str) -> Self {
        let mut settings = self.settings.clone();
        let issuer = settings.issuers.first().map_or(ISSUER, String::as_str);
        settings.issuers.insert(0, format!("{}/worlds/{world}", issuer.trim_end_matches('/')));
        AccountTokens { registry, settings, keys: RwLock::new(self.keys()), verified: Mutex::default() }
    }

    /// Uses other keys from now on: tokens of keys that are gone become invalid.
    pub fn replace_keys(&self, keys: TokenKeys) {
        *self.keys.write() = Arc::new(keys);
        self.verified.lock().clear();
    }

    #[must_use]
    pub fn keys(&self) -> Arc<TokenKeys> {
        Arc::clone(&self.keys.read())
    }

    #[must_use]
    pub fn settings(&self) -> &TokenSettings {
        &self.settings
    }

    /// The audiences of a token that names none.
    #[must_use]
    pub fn audiences(&self) -> &[String] {
        &self.settings.audiences
    }

    pub(crate) fn terms(&self) -> TokenTerms<'_> {
        TokenTerms { audiences: &self.settings.audiences, seconds_max: self.settings.seconds_max }
    }

    pub fn sign(&self, mut claims: Value) -> Result<String, Status> {
        claims["iss"] = json!(self.settings.issuers.first().map_or(ISSUER, String::as_str));
        let signed = self.keys().sign(&claims);
        signed.map_err(|error| Status::internal(format_args!("failed to generate token: {error}")))
    }

    /// Signs a token that a secret holds.
    pub fn sign_legacy(
        &self,
        namespace: &str,
        account: &str,
        account_uid: &str,
        secret: &str,
    ) -> Result<String, String> {
        self.keys().sign(&legacy::claims(namespace, account, account_uid, secret))
    }

    /// Verifies a token for one of `audiences`. Returns none for a token of another issuer.
    pub(crate) fn user(&self, token: &str, audiences: &[String], now: Timestamp, notes: Notes<'_>) -> TokenVerdict {
        let signed = match self.signed(token)? {
            Ok(signed) => signed,
            Err(why) => return Some(Err(why)),
        };
        Some(self.check(&signed, token, audiences, now, notes))
    }

    /// Returns a token with a good signature; none for a token of another issuer.
    fn signed(&self, token: &str) -> Option<Result<Arc<Signed>, String>> {
        let digest: [u8; 32] = Sha256::digest(token.as_bytes()).into();
        let keys = self.keys();
        if let Some(known) = self.verified.lock().get(&digest)
            && Arc::ptr_eq(&known.keys, &keys)
        {
            return Some(Ok(Arc::clone(known)));
        }
        let issuer = unverified_issuer(token)?;
        let is_legacy = issuer == legacy::ISSUER;
        if !is_legacy && !self.settings.issuers.contains(&issuer) {
            return None;
        }
        let claims = match keys.verify(token)? {
            Ok(claims) => claims,
            Err(why) => return Some(Err(why.to_owned())),
        };
        let user = (!is_legacy).then(|| Arc::new(user_from_claims(&claims)));
        let signed = Arc::new(Signed { claims, keys, user });
        let mut verified = self.verified.lock();
        if verified.len() >= VERIFIED_MAX {
            verified.clear();
        }
        verified.insert(digest, Arc::clone(&signed));
        Some(Ok(signed))
    }

    fn check(
        &self,
        signed: &Signed,
        token: &str,
        audiences: &[String],
        now: Timestamp,
        notes: Notes<'_>,
    ) -> Result<(Arc<User>, Vec<String>), String> {
        let claims = &signed.claims;
        let mut token_audiences: Vec<&str> = match &claims["aud"] {
            Value::String(one) => vec![one],
            several => several.as_array().into_iter().flatten().filter_map(Value::as_str).collect(),
        };
        if token_audiences.is_empty() {
            notes.annotations.set("authentication.k8s.io/legacy-token", claims["sub"].as_str().unwrap_or_default());
            token_audiences = self.settings.audiences.iter().map(String::as_str).collect();
        }
        let common: Vec<String> =
            audiences.iter().filter(|one| token_audiences.contains(&one.as_str())).cloned().collect();
        if common.is_empty() {
            let (has, wanted) = (quoted(&token_audiences), quoted(audiences));
            return Err(format!("token audiences {has} is invalid for the target audiences {wanted}"));
        }
        let Some(user) = &signed.user else {
            let user = legacy::user(&self.registry, claims, token, now, notes)?;
            return Ok((Arc::new(user), common));
        };
        check_times(claims, now)?;
        self.registry.check_token_claims(claims)?;
        note_stale(claims, now, notes);
        Ok((Arc::clone(user), common))
    }
}

/// The issuer that a token names; none if it is not a token of this form. Nothing of it is verified.
pub(crate) fn unverified_issuer(token: &str) -> Option<String> {
    #[derive(Deserialize)]
    struct Claims {
        #[serde(default)]
        iss: String,
    }
    let mut parts = token.split('.');
    let (Some(_), Some(claims), Some(_), None) = (parts.next(), parts.next(), parts.next(), parts.next()) else {
        return None;
    };
    let claims = URL_SAFE_NO_PAD.decode(claims).ok()?;
    serde_json::from_slice::<Claims>(&claims).ok().map(|claims| claims.iss)
}

fn check_times(claims: &Value, now: Timestamp) -> Result<(), String> {
    // Numbers may have fractions.
    let at = |name: &str| claims[name].as_i64().or_else(|| claims[name].as_f64().map(|seconds| seconds as i64));
    let now = now.as_second();
    if at("nbf").is_some_and(|begins| now < begins.saturating_sub(LEEWAY_SECONDS)) {
        return Err("service account token is not valid yet".to_owned());
    }
    if at("exp").is_some_and(|expires| now > expires.saturating_add(LEEWAY_SECONDS)) {
        return Err("service account token has expired".to_owned());
    }
    if at("iat").is_some_and(|issued| now < issued.saturating_sub(LEEWAY_SECONDS)) {
        return Err("service account token is issued in the future".to_owned());
    }
    Ok(())
}

/// Notes the use of a token of a pod that should have been renewed.
fn note_stale(claims: &Value, now: Timestamp, notes: Notes<'_>) {
    let Some(threshold) = claims["kubernetes.io"]["warnafter"].as_i64().filter(|at| *at != 0) else { return };
    if now.as_second() > threshold && notes.annotations.are_kept() {
        let subject = claims["sub"].as_str().unwrap_or_default();
        let late = now.as_second() - threshold;
        let text = format!("subject: {subject}, seconds after warning threshold: {late}");
        notes.annotations.set("authentication.k8s.io/stale-token", text);
    }
}

/// `["a" "b"]`
fn quoted<S: AsRef<str>>(texts: &[S]) -> String {
    let texts: Vec<String> = texts.iter().map(|text| quote(text.as_ref())).collect();
    format!("[{}]", texts.join(" "))
}

fn user_from_claims(claims: &Value) -> User {
    let about = &claims["kubernetes.io"];
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let account = &about["serviceaccount"];
    let mut user = account_user(&text(&about["namespace"]), &text(&account["name"]), &text(&account["uid"]));
    for (key, value) in [
        ("credential-id", text(&claims["jti"])),
        ("pod-name", text(&about["pod"]["name"])),
        ("pod-uid", text(&about["pod"]["uid"])),
        ("node-name", text(&about["node"]["name"])),
        ("node-uid", text(&about["node"]["uid"])),
    ] {
        if !value.is_empty() {
            let value = if key == "credential-id" { format!("JTI={value}") } else { value };
            user.extra.insert(format!("{EXTRA_PREFIX}{key}"), vec![value]);
        }
    }
    user
}

/// The user of a service account.
fn account_user(namespace: &str, name: &str, uid: &str) -> User {
    User {
        name: format!("system:serviceaccount:{namespace}:{name}"),
        uid: uid.to_owned(),
        groups: vec!["system:serviceaccounts".to_owned(), format!("system:serviceaccounts:{namespace}")],
        ..User::default()
    }
    .authenticated()
}
