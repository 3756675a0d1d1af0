//! Flags of authorization.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use server::authorization::file::parse_duration;

/// Who may do what.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Authorization")]
pub struct Authorization {
    /// Modes in their order: RBAC, Node, Webhook, AlwaysAllow, AlwaysDeny [default: RBAC].
    #[arg(long, value_name = "MODES", value_delimiter = ',')]
    pub authorization_mode: Option<Vec<String>>,
    /// File of kind AuthorizationConfiguration, read again when it changes.
    #[arg(long, value_name = "FILE", conflicts_with = "authorization_mode")]
    pub authorization_config: Option<PathBuf>,
    /// Kubeconfig with the address of the webhook of mode Webhook.
    #[arg(long, value_name = "FILE", conflicts_with = "authorization_config")]
    pub authorization_webhook_config_file: Option<PathBuf>,
    /// Version of the reviews that the webhook is sent: v1 or v1beta1.
    #[arg(long, value_name = "VERSION", default_value = "v1beta1")]
    pub authorization_webhook_version: String,
    /// How long the webhook's consent is kept.
    #[arg(long, value_name = "DURATION", default_value = "5m", value_parser = duration)]
    pub authorization_webhook_cache_authorized_ttl: Duration,
    /// How long the webhook's refusal is kept.
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = duration)]
    pub authorization_webhook_cache_unauthorized_ttl: Duration,
    /// Name in each 403 the bindings that come nearest.
    #[arg(long)]
    pub explain_forbidden: bool,
    /// End a running watch when its user loses the right to it.
    #[arg(long)]
    pub recheck_watches: bool,
}

fn duration(text: &str) -> Result<Duration, String> {
    parse_duration(text).ok_or_else(|| "must be a duration such as 30s or 5m".to_owned())
}
