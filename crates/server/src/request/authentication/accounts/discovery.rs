//! What others need to verify tokens of service accounts: the discovery document and the key set.

use machinery::json::{Value, json};

use super::AccountTokens;

/// The path of the discovery document.
pub const DOCUMENT: &str = "/.well-known/openid-configuration";
/// The path of the key set.
pub const KEY_SET: &str = "/openid/v1/jwks";

/// The discovery document of the issuer; none if its name is not an https address. `host` is the server's own.
pub(crate) fn document(tokens: &AccountTokens, host: &str) -> Option<Value> {
    let issuer = tokens.settings.issuers.first().filter(|issuer| issuer.starts_with("https://"))?;
    let jwks_uri = tokens.settings.jwks_uri.clone().unwrap_or_else(|| format!("https://{host}{KEY_SET}"));
    let keys = tokens.keys();
    let mut algorithms: Vec<String> = keys.public().iter().map(|key| format!("{:?}", key.algorithm)).collect();
    algorithms.sort();
    algorithms.dedup();
    Some(json!({
        "issuer": issuer,
        "jwks_uri": jwks_uri,
        "response_types_supported": ["id_token"],
        "subject_types_supported": ["public"],
        "id_token_signing_alg_values_supported": algorithms,
    }))
}

/// The public keys; none where there is no discovery document.
pub(crate) fn key_set(tokens: &AccountTokens) -> Option<Value> {
    document(tokens, "")?;
    Some(json!({"keys": tokens.keys().public().iter().map(|key| key.jwk.clone()).collect::<Vec<_>>()}))
}
