//! How a server authenticates users, from its flags and files.
//!
//! - this file reads flags and files, and builds the authenticator
//! - `expressions` compiles the expressions of a file
//! - `reloading` reads files again when they change, and publishes authorities for extension servers

mod expressions;
mod reloading;

use std::path::Path;
use std::sync::Arc;

use outbound::{Client, ClientLimits};
use registry::Registry;
use server::authentication::Authenticator;
use server::authentication::accounts::{AccountTokens, TokenKeys, TokenSettings};
use server::authentication::anonymous::Anonymous;
use server::authentication::authorities::ClientAuthorities;
use server::authentication::bootstrap::BootstrapTokens;
use server::authentication::front_proxy::FrontProxy;
use server::authentication::issuers::claims::{Claim, Mapping, Rule};
use server::authentication::issuers::{IssuerSettings, Issuers, config};
use server::authentication::tokens::Tokens;
use server::authentication::webhook::WebhookTokens;
use server::certs::{Leaf, Pki};
use server::tls::Tls;

use crate::args;
use crate::failure::Failure;
pub use reloading::Reloading;

/// How users are authenticated beside the server's own certificates and the token file.
#[derive(Clone, Default)]
pub struct Authentication {
    pub tokens: TokenSettings,
    /// Keys whose tokens of service accounts are accepted beside those of the signing key, as PEM.
    pub account_keys_pem: Vec<String>,
    /// Replaces the server's own signing key.
    signing_key_pem: Option<String>,
    pub bootstrap_tokens: bool,
    pub front_proxy: Option<FrontProxy>,
    /// Whether a 401 names its reason.
    pub explains: bool,
    issuers: Option<Arc<Issuers>>,
    webhook: Option<Arc<WebhookTokens>>,
    /// What the file says about requests without credentials.
    anonymous: Option<Anonymous>,
}

impl Authentication {
    /// Reads flags and their files, and the keys of issuers. What is wrong or cannot be reached is a usage error.
    pub async fn from_args(args: &args::Authentication, no_anonymous: bool) -> Result<Self, Failure> {
        let mut tokens = TokenSettings {
            audiences: args.api_audiences.clone(),
            seconds_max: args.service_account_max_token_expiration.map(|most| most.as_secs().cast_signed()),
            jwks_uri: args.service_account_jwks_uri.clone(),
            ..TokenSettings::default()
        };
        if !args.service_account_issuer.is_empty() {
            tokens.issuers.clone_from(&args.service_account_issuer);
        }
        let client = Client::new(ClientLimits::default());
        let mut found = Authentication {
            tokens,
            bootstrap_tokens: args.enable_bootstrap_token_auth,
            explains: args.explain_unauthorized,
            front_proxy: args.requestheader_client_ca_file.as_ref().map(|_| front_proxy(args)),
            ..Authentication::default()
        };
        (found.signing_key_pem, found.account_keys_pem) = account_keys(args)?;
        if let Some(path) = &args.authentication_token_webhook_config_file {
            let (version, ttl) =
                (&args.authentication_token_webhook_version, args.authentication_token_webhook_cache_ttl);
            let webhook = WebhookTokens::read(&client, path, version, ttl)
                .map_err(|why| Failure::usage(format!("--authentication-token-webhook-config-file {why}")))?;
            found.webhook = Some(Arc::new(webhook));
        }
        let settings = match &args.authentication_config {
            Some(path) => {
                let read = read_config(path, &found.tokens).map_err(Failure::usage)?;
                if read.anonymous.is_some() && no_anonymous {
                    return Err(Failure::usage(beside_no_anonymous(path)));
                }
                found.anonymous = read.anonymous;
                read.issuers
            }
            None => oidc(args)?.into_iter().collect(),
        };
        if !settings.is_empty() || args.authentication_config.is_some() {
            let issuers = Issuers::discover(&client, settings).await.map_err(Failure::usage)?;
            found.issuers = Some(Arc::new(issuers));
        }
        Ok(found)
    }

    /// The authenticator of a server. `key_pem` is the server's own signing key.
    pub(crate) fn build(
        &self,
        registry: &Arc<Registry>,
        tokens: Tokens,
        key_pem: &str,
        anonymous: bool,
        allows_all: bool,
    ) -> Result<Authenticator, Failure> {
        let keys = TokenKeys::new(self.signing_key_pem.as_deref().unwrap_or(key_pem), &self.account_keys_pem);
        let keys = keys.map_err(|error| Failure::usage(format!("keys of service accounts: {error}")))?;
        let anonymous = match &self.anonymous {
            // Where everything is allowed to all users, a request without credentials is refused.
            _ if allows_all => Anonymous::allowed(false),
            Some(stated) => stated.clone(),
            None => Anonymous::allowed(anonymous),
        };
        Ok(Authenticator {
            front_proxy: self.front_proxy.clone(),
            tokens,
            accounts: Some(AccountTokens::new(Arc::clone(registry), keys, self.tokens.clone())),
            bootstrap: self.bootstrap_tokens.then(|| BootstrapTokens::new(Arc::clone(registry))),
            issuers: self.issuers.clone(),
            webhook: self.webhook.clone(),
            page: None,
            anonymous,
            audiences: self.tokens.audiences.clone(),
            explains: self.explains,
        })
    }
}

/// Reads a file; the error names the flag.
fn read(flag: &str, path: &Path) -> Result<String, Failure> {
    std::fs::read_to_string(path).map_err(|error| Failure::usage(format!("--{flag} {}: {error}", path.display())))
}

fn beside_no_anonymous(path: &Path) -> String {
    format!("--authentication-config {}: anonymous cannot be set beside --no-anonymous", path.display())
}

fn read_config(path: &Path, tokens: &TokenSettings) -> Result<config::Configuration, String> {
    config::read(path, &expressions::compile(), &tokens.issuers).map_err(|why| format!("--authentication-config {why}"))
}

/// The signing key, if one is given, and the other keys of service accounts.
fn account_keys(args: &args::Authentication) -> Result<(Option<String>, Vec<String>), Failure> {
    let signing = args.service_account_signing_key_file.as_deref();
    let signing = signing.map(|path| read("service-account-signing-key-file", path)).transpose()?;
    let others = args.service_account_key_file.iter().map(|path| {
        let pem = read("service-account-key-file", path)?;
        TokenKeys::check(&pem)
            .map_err(|error| Failure::usage(format!("--service-account-key-file {}: {error}", path.display())))?;
        Ok(pem)
    });
    let others = others.collect::<Result<_, Failure>>()?;
    if let (Some(pem), Some(path)) = (&signing, &args.service_account_signing_key_file) {
        TokenKeys::new(pem, &[]).map_err(|error| {
            Failure::usage(format!("--service-account-signing-key-file {}: {error}", path.display()))
        })?;
    }
    Ok((signing, others))
}

fn front_proxy(args: &args::Authentication) -> FrontProxy {
    let lower = |names: &[String]| names.iter().map(|name| name.trim().to_ascii_lowercase()).collect();
    FrontProxy {
        allowed_names: args.requestheader_allowed_names.clone(),
        username_headers: lower(&args.requestheader_username_headers),
        uid_headers: lower(&args.requestheader_uid_headers),
        group_headers: lower(&args.requestheader_group_headers),
        extra_prefixes: lower(&args.requestheader_extra_headers_prefix),
    }
}

/// The issuer of the `--oidc-*` flags.
fn oidc(args: &args::Authentication) -> Result<Option<IssuerSettings>, Failure> {
    let (Some(url), Some(audience)) = (&args.oidc_issuer_url, &args.oidc_client_id) else { return Ok(None) };
    config::check_url(url).map_err(|why| Failure::usage(format!("--oidc-issuer-url {url}: {why}")))?;
    let claim = &args.oidc_username_claim;
    let prefix = match args.oidc_username_prefix.as_deref() {
        Some("-") => String::new(),
        Some(prefix) if !prefix.is_empty() => prefix.to_owned(),
        _ if claim == "email" => String::new(),
        _ => format!("{url}#"),
    };
    let mut rules = Vec::new();
    for required in &args.oidc_required_claim {
        let Some((claim, value)) = required.split_once('=') else {
            return Err(Failure::usage(format!("--oidc-required-claim {required}: must be name=value")));
        };
        rules.push(Rule::Required { claim: claim.to_owned(), value: value.to_owned() });
    }
    let groups = args.oidc_groups_claim.as_ref();
    let groups = groups.map(|name| Claim::Named { name: name.clone(), prefix: args.oidc_groups_prefix.clone() });
    Ok(Some(IssuerSettings {
        url: url.clone(),
        discovery_url: None,
        ca_pem: args.oidc_ca_file.as_deref().map(|path| read("oidc-ca-file", path)).transpose()?,
        audiences: vec![audience.clone()],
        algorithms: Some(args.oidc_signing_algs.clone()),
        mapping: Mapping {
            username: Claim::Named { name: claim.clone(), prefix },
            groups,
            uid: None,
            extra: Vec::new(),
        },
        rules,
        user_rules: Vec::new(),
    }))
}

/// The serving certificate: the given one, else the server's own.
pub(crate) fn serving(args: &args::Authentication, own: &Leaf) -> Result<Leaf, Failure> {
    match (&args.tls_cert_file, &args.tls_private_key_file) {
        (Some(certificate), Some(key)) => {
            Ok(Leaf { cert_pem: read("tls-cert-file", certificate)?, key_pem: read("tls-private-key-file", key)? })
        }
        _ => Ok(own.clone()),
    }
}

/// The authorities of users, the server's own first, and those of front proxies, as PEM.
fn authorities_pem(args: &args::Authentication, own_pem: &str) -> Result<(String, Option<String>), Failure> {
    let given = |flag: &str, path: &Path| {
        let pem = read(flag, path)?;
        ClientAuthorities::new(&pem, None)
            .map_err(|error| Failure::usage(format!("--{flag} {}: {error}", path.display())))?;
        Ok(pem)
    };
    let mut users = own_pem.to_owned();
    if let Some(path) = &args.client_ca_file {
        users.push_str(&given("client-ca-file", path)?);
    }
    let proxies = args.requestheader_client_ca_file.as_deref();
    Ok((users, proxies.map(|path| given("requestheader-client-ca-file", path)).transpose()?))
}

/// The TLS settings of a listener: serving certificate and client authorities.
pub fn tls(args: &args::Authentication, pki: &Pki) -> Result<Tls, Failure> {
    let (users, proxies) = authorities_pem(args, &pki.ca_pem)?;
    let authorities = ClientAuthorities::new(&users, proxies.as_deref()).map_err(Failure::new)?;
    Tls::with(&serving(args, &pki.serving)?, authorities).map_err(|error| match &args.tls_cert_file {
        Some(path) => Failure::usage(format!("--tls-cert-file {}: {error}", path.display())),
        None => Failure::new(error),
    })
}
