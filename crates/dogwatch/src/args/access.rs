//! Arguments of `dogwatch access`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use server::authorization::file::parse_duration;

#[derive(Debug, Subcommand)]
pub enum Access {
    /// Explain why a user may do something, or which binding comes nearest and what it lacks.
    Why(Why),
    /// Print the smallest roles for what a user did, and what its present roles lack or grant beyond that.
    Roles(Roles),
    /// Create a service account with a token and print a kubeconfig for it.
    Kubeconfig(AccountKubeconfig),
}

/// The output of an explanation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Report {
    Text,
    Json,
}

#[derive(Debug, Args)]
pub struct Why {
    /// get, list, create, …
    pub verb: String,
    /// pods, deployments.apps, pods/log, or a path that begins with a slash.
    pub resource: String,
    /// Name of the object.
    pub name: Option<String>,
    /// The user to ask about.
    #[arg(long = "as", value_name = "USER")]
    pub user: String,
    /// A group of the user; may be repeated.
    #[arg(long = "as-group", value_name = "GROUP")]
    pub groups: Vec<String>,
    #[arg(short, long, value_enum, default_value_t = Report::Text)]
    pub output: Report,
    /// The kubeconfig of the server [default: $KUBECONFIG, .dogwatch/kubeconfig, ~/.kube/config].
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// The namespace [default: the kubeconfig's].
    #[arg(short, long, value_name = "NAME", conflicts_with = "all_namespaces")]
    pub namespace: Option<String>,
    /// All namespaces.
    #[arg(short = 'A', long)]
    pub all_namespaces: bool,
}

#[derive(Debug, Args)]
pub struct Roles {
    /// The user, such as system:serviceaccount:NAMESPACE:NAME.
    #[arg(long, value_name = "USER")]
    pub user: String,
    /// Only what happened from this time on: 2006-01-02T15:04:05Z, or how long ago: 10m.
    #[arg(long, value_name = "TIME")]
    pub from: Option<String>,
    /// Print only what the user's present roles lack.
    #[arg(long)]
    pub missing: bool,
    /// Allow only the objects that the user named (resourceNames), where they were few.
    #[arg(long)]
    pub names: bool,
    #[arg(short, long, value_enum, default_value_t = Report::Text)]
    pub output: Report,
    /// The kubeconfig of the server [default: $KUBECONFIG, .dogwatch/kubeconfig, ~/.kube/config].
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub struct AccountKubeconfig {
    /// The service account; it and its namespace are created if they do not exist.
    #[arg(long, value_name = "NAMESPACE/NAME")]
    pub as_serviceaccount: String,
    /// How long its token is valid.
    #[arg(long, value_name = "DURATION", default_value = "24h", value_parser = duration)]
    pub duration: Duration,
    /// File to write instead of standard output.
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// The kubeconfig of the server [default: $KUBECONFIG, .dogwatch/kubeconfig, ~/.kube/config].
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
}

fn duration(text: &str) -> Result<Duration, String> {
    parse_duration(text).ok_or_else(|| "must be a duration such as 30m or 24h".to_owned())
}
