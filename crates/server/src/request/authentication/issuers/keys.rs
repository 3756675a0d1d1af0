//! The public keys of an issuer, from its discovery document.

use std::sync::Arc;
use std::time::Duration;

use jsonwebtoken::jwk::{AlgorithmParameters, EllipticCurve, JwkSet};
use jsonwebtoken::{Algorithm, DecodingKey};
use machinery::json::Value;
use outbound::{Client, Endpoint, Request, Roots, Tls, TlsOptions};
use parking_lot::RwLock;
use tokio::time::Instant;

/// Time for one document.
const TIMEOUT: Duration = Duration::from_secs(30);
/// Shortest time between two reads of the keys: a client can send tokens with any key id.
const REFETCH_MIN: Duration = Duration::from_secs(1);
/// Keys of an issuer.
const KEYS_MAX: usize = 256;
const WELL_KNOWN: &str = "/.well-known/openid-configuration";

/// A key of an issuer.
pub(super) struct Key {
    pub(super) id: Option<String>,
    pub(super) algorithms: &'static [Algorithm],
    pub(super) decoding: DecodingKey,
}

/// The keys of an issuer, which are read again when a token names an unknown one.
pub(super) struct RemoteKeys {
    client: Client,
    endpoint: Endpoint,
    keys: RwLock<Arc<Vec<Key>>>,
    /// Held while keys are read, so that they are read once for all who wait.
    reading: tokio::sync::Mutex<Option<Instant>>,
}

impl RemoteKeys {
    /// Reads the discovery document and the keys.
    pub(super) async fn discover(
        client: &Client,
        url: &str,
        discovery_url: Option<&str>,
        ca_pem: Option<&str>,
    ) -> Result<Self, String> {
        let roots = Roots::bundle(ca_pem.unwrap_or_default());
        let tls = client.tls(&TlsOptions { roots, ..TlsOptions::default() }).map_err(|error| error.to_string())?;
        let well_known = format!("{}{WELL_KNOWN}", url.trim_end_matches('/'));
        let document = read(client, discovery_url.unwrap_or(&well_known), &tls).await?;
        let document: Value = serde_json::from_slice(&document)
            .map_err(|error| format!("the discovery document cannot be read: {error}"))?;
        let found = document["issuer"].as_str().unwrap_or_default();
        if found != url {
            return Err(format!(
                "oidc: issuer did not match the issuer returned by provider, expected {url:?} got {found:?}"
            ));
        }
        let jwks_uri = document["jwks_uri"].as_str().unwrap_or_default();
        if !jwks_uri.starts_with("https://") {
            return Err(format!(
                "the discovery document names {jwks_uri:?} as the address of its keys, which is not https"
            ));
        }
        let endpoint = Endpoint::new(jwks_uri, tls).map_err(|error| error.to_string())?;
        let keys = RemoteKeys {
            client: client.clone(),
            endpoint,
            keys: RwLock::default(),
            reading: tokio::sync::Mutex::new(None),
        };
        keys.refetch().await?;
        Ok(keys)
    }

    /// The keys that a token may be signed with: those with its key id, all without one.
    pub(super) fn current(&self) -> Arc<Vec<Key>> {
        Arc::clone(&self.keys.read())
    }

    /// Reads the keys again, unless that was done after `known` were read or a moment ago.
    pub(super) async fn newer(&self, known: &Arc<Vec<Key>>) -> Result<Arc<Vec<Key>>, String> {
        let mut last = self.reading.lock().await;
        let current = self.current();
        if !Arc::ptr_eq(&current, known) || last.is_some_and(|at| at.elapsed() < REFETCH_MIN) {
            return Ok(current);
        }
        *last = Some(Instant::now());
        self.refetch().await.map_err(|why| format!("fetching keys {why}"))?;
        Ok(self.current())
    }

    async fn refetch(&self) -> Result<(), String> {
        let answer = self.client.send(&self.endpoint, Request::get().timeout(TIMEOUT)).await;
        let answer = answer.map_err(|error| error.to_string())?;
        if !answer.status.is_success() {
            return Err(format!("{}: {}", self.endpoint.url(), answer.status));
        }
        *self.keys.write() = Arc::new(parse(&answer.body)?);
        Ok(())
    }
}

async fn read(client: &Client, url: &str, tls: &Tls) -> Result<bytes::Bytes, String> {
    let endpoint = Endpoint::new(url, tls.clone()).map_err(|error| error.to_string())?;
    let answer = client.send(&endpoint, Request::get().timeout(TIMEOUT)).await.map_err(|error| error.to_string())?;
    if !answer.status.is_success() {
        return Err(format!("{url}: {}", answer.status));
    }
    Ok(answer.body)
}

/// Reads a key set. Keys of unknown kinds are left out.
fn parse(body: &[u8]) -> Result<Vec<Key>, String> {
    let document: Value =
        serde_json::from_slice(body).map_err(|error| format!("the key set cannot be read: {error}"))?;
    let listed = document["keys"].as_array().into_iter().flatten().take(KEYS_MAX);
    let mut keys = Vec::new();
    for one in listed {
        // One by one: a single key that cannot be read is no reason to refuse the others.
        let set = format!("{{\"keys\":[{one}]}}");
        let Ok(JwkSet { keys: read }) = serde_json::from_str::<JwkSet>(&set) else { continue };
        for jwk in &read {
            let algorithms: &'static [Algorithm] = match &jwk.algorithm {
                AlgorithmParameters::RSA(_) => &[
                    Algorithm::RS256,
                    Algorithm::RS384,
                    Algorithm::RS512,
                    Algorithm::PS256,
                    Algorithm::PS384,
                    Algorithm::PS512,
                ],
                AlgorithmParameters::EllipticCurve(curve) => match curve.curve {
                    EllipticCurve::P256 => &[Algorithm::ES256],
                    EllipticCurve::P384 => &[Algorithm::ES384],
                    _ => continue,
                },
                _ => continue,
            };
            if let Ok(decoding) = DecodingKey::from_jwk(jwk) {
                keys.push(Key { id: jwk.common.key_id.clone(), algorithms, decoding });
            }
        }
    }
    if keys.is_empty() {
        return Err("the key set has no key that can be used".to_owned());
    }
    Ok(keys)
}
