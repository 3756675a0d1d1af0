//! Flags of authentication.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use server::authorization::file::parse_duration;

/// Who asks.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Authentication")]
pub struct Authentication {
    /// File of kind AuthenticationConfiguration: issuers of tokens, and anonymous requests; it is read again when it changes.
    #[arg(long, value_name = "FILE", conflicts_with = "oidc_issuer_url")]
    pub authentication_config: Option<PathBuf>,
    /// Authorities of client certificates beside the server's own; read again when it changes.
    #[arg(long, value_name = "FILE")]
    pub client_ca_file: Option<PathBuf>,
    /// Serving certificate in place of the server's own, with those between it and its authority; read again when it changes.
    #[arg(long, value_name = "FILE", requires = "tls_private_key_file")]
    pub tls_cert_file: Option<PathBuf>,
    /// Key of that certificate.
    #[arg(long, value_name = "FILE", requires = "tls_cert_file")]
    pub tls_private_key_file: Option<PathBuf>,
    /// Private key that signs tokens of service accounts, in place of the server's own; read again when it changes.
    #[arg(long, value_name = "FILE")]
    pub service_account_signing_key_file: Option<PathBuf>,
    /// Keys whose tokens of service accounts are accepted beside those of the signing key; may be repeated.
    #[arg(long, value_name = "FILE")]
    pub service_account_key_file: Vec<PathBuf>,
    /// Issuer of service account tokens; the first issues, tokens of the others are accepted too.
    #[arg(long, value_name = "URL")]
    pub service_account_issuer: Vec<String>,
    /// Address of the keys in the issuer's discovery document [default: the server's own].
    #[arg(long, value_name = "URL")]
    pub service_account_jwks_uri: Option<String>,
    /// Longest lifetime of a service account token.
    #[arg(long, value_name = "DURATION", value_parser = token_lifetime)]
    pub service_account_max_token_expiration: Option<Duration>,
    /// Audiences of this server [default: the issuers of service account tokens].
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub api_audiences: Vec<String>,
    /// Accept tokens of secrets of type bootstrap.kubernetes.io/token.
    #[arg(long)]
    pub enable_bootstrap_token_auth: bool,
    /// Name the reason in each 401.
    #[arg(long)]
    pub explain_unauthorized: bool,
    /// Authority of front proxies, which name users in headers; read again when it changes.
    #[arg(long, value_name = "FILE")]
    pub requestheader_client_ca_file: Option<PathBuf>,
    /// Common names of front proxies [default: any].
    #[arg(long, value_name = "NAMES", value_delimiter = ',', requires = "requestheader_client_ca_file")]
    pub requestheader_allowed_names: Vec<String>,
    /// Headers for the name of a user.
    #[arg(long, value_name = "NAMES", value_delimiter = ',', default_value = "X-Remote-User")]
    pub requestheader_username_headers: Vec<String>,
    /// Headers for the UID of a user.
    #[arg(long, value_name = "NAMES", value_delimiter = ',', default_value = "X-Remote-Uid")]
    pub requestheader_uid_headers: Vec<String>,
    /// Headers for the groups of a user.
    #[arg(long, value_name = "NAMES", value_delimiter = ',', default_value = "X-Remote-Group")]
    pub requestheader_group_headers: Vec<String>,
    /// Prefixes of headers for the extra of a user.
    #[arg(long, value_name = "PREFIXES", value_delimiter = ',', default_value = "X-Remote-Extra-")]
    pub requestheader_extra_headers_prefix: Vec<String>,
    /// Issuer of OpenID Connect tokens.
    #[arg(long, value_name = "URL", requires = "oidc_client_id")]
    pub oidc_issuer_url: Option<String>,
    /// Audience of those tokens.
    #[arg(long, value_name = "NAME", requires = "oidc_issuer_url")]
    pub oidc_client_id: Option<String>,
    /// Claim with the name of the user.
    #[arg(long, value_name = "CLAIM", default_value = "sub")]
    pub oidc_username_claim: String,
    /// Prefix of names; `-` for none [default: the issuer and #, none for the claim email].
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
    pub oidc_username_prefix: Option<String>,
    /// Claim with the groups of the user.
    #[arg(long, value_name = "CLAIM")]
    pub oidc_groups_claim: Option<String>,
    /// Prefix of groups.
    #[arg(long, value_name = "TEXT", default_value = "")]
    pub oidc_groups_prefix: String,
    /// Claim that a token must have, as `name=value`; may be repeated.
    #[arg(long, value_name = "CLAIM")]
    pub oidc_required_claim: Vec<String>,
    /// Authority of the issuer's servers [default: those of the system].
    #[arg(long, value_name = "FILE")]
    pub oidc_ca_file: Option<PathBuf>,
    /// Accepted algorithms.
    #[arg(long, value_name = "NAMES", value_delimiter = ',', default_value = "RS256")]
    pub oidc_signing_algs: Vec<String>,
    /// Kubeconfig with the address of a server that reviews tokens.
    #[arg(long, value_name = "FILE")]
    pub authentication_token_webhook_config_file: Option<PathBuf>,
    /// Version of the reviews that it is sent: v1 or v1beta1.
    #[arg(long, value_name = "VERSION", default_value = "v1beta1")]
    pub authentication_token_webhook_version: String,
    /// How long its answers are kept.
    #[arg(long, value_name = "DURATION", default_value = "2m", value_parser = duration)]
    pub authentication_token_webhook_cache_ttl: Duration,
}

fn duration(text: &str) -> Result<Duration, String> {
    parse_duration(text).ok_or_else(|| "must be a duration such as 30s or 5m".to_owned())
}

fn token_lifetime(text: &str) -> Result<Duration, String> {
    let found = duration(text)?;
    let hour = Duration::from_secs(3600);
    if found < hour || found.as_secs() > 1 << 32 {
        return Err("must be at least an hour and at most 2^32 seconds".to_owned());
    }
    Ok(found)
}
