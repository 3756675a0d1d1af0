//! Tokens of other issuers: JSON Web Tokens whose keys an issuer publishes (OpenID Connect).
//!
//! - [`config`] reads the structured file
//! - [`keys`] reads the keys of an issuer
//! - [`claims`] makes a user of the claims of a token

pub mod claims;
pub mod config;
mod keys;
#[cfg(test)]
mod tests;

use std::fmt;
use std::str::FromStr as _;
use std::sync::Arc;

use access::identity::User;
use jiff::Timestamp;
use jsonwebtoken::{Algorithm, Validation};
use machinery::go_text::quote;
use machinery::json::Value;
use outbound::Client;
use parking_lot::RwLock;

use super::accounts::unverified_issuer;
use claims::{Compiled, Mapping, Rule, Variable};
use keys::{Key, RemoteKeys};

/// Tolerated difference between clocks, for the begin of a token's validity.
const LEEWAY_SECONDS: i64 = 60;
/// The algorithms that the reference allows; those of the curve P-521 cannot be verified here.
const ALGORITHMS: [Algorithm; 8] = [
    Algorithm::ES256,
    Algorithm::ES384,
    Algorithm::PS256,
    Algorithm::PS384,
    Algorithm::PS512,
    Algorithm::RS256,
    Algorithm::RS384,
    Algorithm::RS512,
];

/// Compiles the expressions of a file. Given by the program, which knows the language.
pub type Compile = Arc<dyn Fn(Variable, &str) -> Result<Box<dyn Compiled>, String> + Send + Sync>;

/// An issuer, as a file or flags describe it.
#[derive(Debug)]
pub struct IssuerSettings {
    pub url: String,
    /// The address of the discovery document, if it is not below `url`.
    pub discovery_url: Option<String>,
    /// The authorities of the issuer's servers; those of the system without.
    pub ca_pem: Option<String>,
    pub audiences: Vec<String>,
    /// Names of the accepted algorithms; all without.
    pub algorithms: Option<Vec<String>>,
    pub mapping: Mapping,
    pub rules: Vec<Rule>,
    pub user_rules: Vec<Rule>,
}

/// The issuers whose tokens are accepted. The set can be replaced while the server runs.
#[derive(Default)]
pub struct Issuers {
    current: RwLock<Arc<Vec<Issuer>>>,
}

impl fmt::Debug for Issuers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.current.read().iter().map(|issuer| &issuer.settings.url)).finish()
    }
}

struct Issuer {
    settings: IssuerSettings,
    algorithms: Vec<Algorithm>,
    keys: RemoteKeys,
}

impl Issuers {
    /// Reads the keys of all issuers. The error names the issuer that cannot be reached.
    pub async fn discover(client: &Client, settings: Vec<IssuerSettings>) -> Result<Self, String> {
        let issuers = Self::default();
        issuers.replace(client, settings).await?;
        Ok(issuers)
    }

    /// Replaces all issuers once the keys of all new ones are read.
    pub async fn replace(&self, client: &Client, settings: Vec<IssuerSettings>) -> Result<(), String> {
        let found = settings.into_iter().map(|settings| Issuer::discover(client, settings));
        let found = futures::future::try_join_all(found).await?;
        *self.current.write() = Arc::new(found);
        Ok(())
    }

    /// The user of a token; none for a token of an unknown issuer.
    pub(crate) async fn user(&self, token: &str, now: Timestamp) -> Option<Result<Arc<User>, String>> {
        let issuers = Arc::clone(&self.current.read());
        if issuers.is_empty() {
            return None;
        }
        let url = unverified_issuer(token)?;
        let issuer = issuers.iter().find(|issuer| issuer.settings.url == url)?;
        Some(issuer.user(token, now).await.map(Arc::new))
    }
}

impl Issuer {
    async fn discover(client: &Client, settings: IssuerSettings) -> Result<Self, String> {
        let algorithms = match &settings.algorithms {
            None => ALGORITHMS.to_vec(),
            Some(names) => {
                let known = |name: &String| Algorithm::from_str(name).ok().filter(|found| ALGORITHMS.contains(found));
                let found = names
                    .iter()
                    .map(|name| known(name).ok_or_else(|| format!("oidc: unsupported signing alg: {name:?}")));
                found.collect::<Result<_, _>>()?
            }
        };
        let (url, discovery) = (&settings.url, settings.discovery_url.as_deref());
        let keys = RemoteKeys::discover(client, url, discovery, settings.ca_pem.as_deref()).await;
        let keys = keys.map_err(|why| format!("the issuer {url} cannot be used: {why}"))?;
        Ok(Issuer { settings, algorithms, keys })
    }

    async fn user(&self, token: &str, now: Timestamp) -> Result<User, String> {
        let claims = self.verify(token, now).await.map_err(|why| format!("oidc: verify token: {why}"))?;
        let settings = &self.settings;
        claims::user(&claims, &settings.mapping, &settings.rules, &settings.user_rules)
    }

    /// Verifies a token; returns its claims.
    async fn verify(&self, token: &str, now: Timestamp) -> Result<Value, String> {
        let header = jsonwebtoken::decode_header(token).map_err(|error| format!("oidc: malformed jwt: {error}"))?;
        if !self.algorithms.contains(&header.alg) {
            let names: Vec<String> = self.algorithms.iter().map(|one| quote(&format!("{one:?}"))).collect();
            return Err(format!(
                "oidc: id token signed with unsupported algorithm, expected [{}] got {}",
                names.join(" "),
                quote(&format!("{:?}", header.alg))
            ));
        }
        let id = header.kid.as_deref();
        let known = self.keys.current();
        let claims = match signed(token, header.alg, id, &known) {
            Some(claims) => claims,
            // The issuer may have a new key.
            None => {
                let newer = self.keys.newer(&known).await?;
                signed(token, header.alg, id, &newer)
                    .ok_or("failed to verify signature: failed to verify id token signature")?
            }
        };
        self.check(&claims, now)?;
        Ok(claims)
    }

    fn check(&self, claims: &Value, now: Timestamp) -> Result<(), String> {
        let found: Vec<&str> = match &claims["aud"] {
            Value::String(one) => vec![one],
            several => several.as_array().into_iter().flatten().filter_map(Value::as_str).collect(),
        };
        if !self.settings.audiences.iter().any(|wanted| found.contains(&wanted.as_str())) {
            let list = |texts: &[String]| texts.iter().map(|text| quote(text)).collect::<Vec<_>>().join(" ");
            let found: Vec<String> = found.into_iter().map(str::to_owned).collect();
            let wanted = match self.settings.audiences.as_slice() {
                [one] => format!("audience {}", quote(one)),
                several => format!("audience in [{}]", list(several)),
            };
            return Err(format!("oidc: expected {wanted} got [{}]", list(&found)));
        }
        let at = |name: &str| claims[name].as_i64().or_else(|| claims[name].as_f64().map(|seconds| seconds as i64));
        let shown = |seconds: i64| Timestamp::from_second(seconds).map(|at| at.to_string()).unwrap_or_default();
        let expires = at("exp").unwrap_or_default();
        if now.as_second() > expires {
            return Err(format!("oidc: token is expired (Token Expiry: {})", shown(expires)));
        }
        if let Some(begins) = at("nbf").filter(|begins| now.as_second() < begins.saturating_sub(LEEWAY_SECONDS)) {
            return Err(format!("oidc: current time {now} before the nbf (not before) time: {}", shown(begins)));
        }
        Ok(())
    }
}

/// The claims of a token that one of the keys signed.
fn signed(token: &str, algorithm: Algorithm, id: Option<&str>, keys: &[Key]) -> Option<Value> {
    let fits = |key: &&Key| {
        key.algorithms.contains(&algorithm) && (id.is_none() || key.id.is_none() || key.id.as_deref() == id)
    };
    keys.iter().filter(fits).find_map(|key| {
        let mut validation = Validation::new(algorithm);
        // Times and audiences have their own texts.
        validation.validate_exp = false;
        validation.validate_aud = false;
        validation.required_spec_claims.clear();
        jsonwebtoken::decode::<Value>(token, &key.decoding, &validation).ok().map(|token| token.claims)
    })
}
