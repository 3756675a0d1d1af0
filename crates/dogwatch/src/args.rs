//! Command-line arguments.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use controllers::Selection;

mod access;
mod admission;
mod audit;
mod authentication;
mod authorization;
mod bench;
mod explain;
mod lab;
mod lab_command;
mod wait;
mod webhooks;

pub use access::{Access, AccountKubeconfig, Report, Roles, Why};
pub use admission::{Admission, AdmissionTest, AdmissionTrace};
pub use audit::{Audit, AuditFormat, AuditMode};
pub use authentication::Authentication;
pub use authorization::Authorization;
pub use bench::{Bench, BenchCompare, BenchRun};
pub use explain::Explain;
pub use lab::Lab;
pub use lab_command::{LabCommand, LabDiff, LabReport, Record, Replay, Settle, Timeline};
pub use wait::{State, Wait};
pub use webhooks::{Missing, Webhooks};

/// The Kubernetes list-watch mechanism in one binary.
#[derive(Debug, Parser)]
#[command(name = "dogwatch", version, about, disable_help_subcommand = true)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run the API server.
    Up(Up),
    /// Show objects.
    Get(Get),
    /// Show changes as they happen.
    Watch(Watch),
    /// Create or update objects from files.
    Apply(Apply),
    /// Delete objects.
    Delete(Delete),
    /// Wait until objects are in a state.
    Wait(Wait),
    /// Serve the API as plain HTTP on loopback.
    Proxy(Proxy),
    /// Serve the console, a web page, for the server of a kubeconfig.
    Console(Console),
    /// Print a folder in which this program is kube-apiserver, etcd and kubectl, for KUBEBUILDER_ASSETS.
    Assets,
    /// Explain rights, derive roles, create credentials of service accounts.
    #[command(subcommand)]
    Access(Access),
    /// Evaluate policies on an object, or show what admission did with a write.
    #[command(subcommand)]
    Admission(Admission),
    /// Wait until a cluster is quiet, show what happened to an object, report on faults, compare worlds, record and replay.
    #[command(subcommand)]
    Lab(LabCommand),
    /// Measure a server: a temporary one, or any that has a kubeconfig.
    #[command(subcommand)]
    Bench(Bench),
    /// Write a consistent copy of a store to a new file; the server may be running.
    Backup(Backup),
    /// Create a data directory from a backup.
    Restore(Restore),
    /// List damage in a data directory: exit code 0 without, 1 with damage.
    Check(Check),
    /// Print the completion script of a shell, or write man pages.
    #[command(subcommand)]
    Manual(Manual),
}

#[derive(Debug, Subcommand)]
pub enum Manual {
    /// Print the completion script of a shell.
    Completions { shell: clap_complete::Shell },
    /// Write a man page for each command to an existing directory.
    Pages { dir: PathBuf },
}

#[derive(Debug, Args)]
pub struct Up {
    /// Directory for objects, certificates and the kubeconfig.
    #[arg(long, value_name = "DIR", default_value = ".dogwatch")]
    pub data_dir: PathBuf,
    /// Keep objects in memory only.
    #[arg(long, conflicts_with_all = ["etcd", "durability"])]
    pub memory: bool,
    #[command(flatten)]
    pub etcd: Etcd,
    /// Address to listen on; port 0 picks a free port, which is in the kubeconfig.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:6443")]
    pub listen: SocketAddr,
    /// File to write the kubeconfig to [default: DIR/kubeconfig].
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// Additional name or address for the serving certificate; may be repeated.
    #[arg(long, value_name = "NAME")]
    pub tls_san: Vec<String>,
    /// Number of simulated nodes.
    #[arg(long, value_name = "N", default_value_t = 3)]
    pub nodes: usize,
    /// YAML file with the behaviour of simulated nodes, see docs/nodes.md.
    #[arg(long, value_name = "FILE", conflicts_with = "no_controllers")]
    pub stages: Option<PathBuf>,
    /// Run the API server alone, without controllers and nodes.
    #[arg(long)]
    pub no_controllers: bool,
    /// Controllers to run: `-job,-cronjob` is all but these, `deployment,replicaset` only these.
    #[arg(long, value_name = "NAMES", allow_hyphen_values = true, value_parser = Selection::parse,
          conflicts_with = "no_controllers")]
    pub controllers: Option<Selection>,
    /// Whether a write is acknowledged only after it is synced to disk.
    #[arg(long, value_enum, default_value_t = Durability::Full)]
    pub durability: Durability,
    /// File of bearer tokens: lines of `token,user,uid,"group1,group2"`.
    #[arg(long, value_name = "FILE", visible_alias = "token-auth-file")]
    pub token_file: Option<PathBuf>,
    /// Refuse requests without credentials with 401 instead of treating them as system:anonymous.
    #[arg(long)]
    pub no_anonymous: bool,
    /// Approve every certificate request.
    #[arg(long)]
    pub approve_csrs: bool,
    /// Admission plugins to run beside those that are on by default.
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub enable_admission_plugins: Vec<String>,
    /// Admission plugins not to run.
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub disable_admission_plugins: Vec<String>,
    /// The network of service addresses.
    #[arg(long, value_name = "NETWORK", default_value = "10.96.0.0/16", value_parser = service_network)]
    pub service_cluster_ip_range: (Ipv4Addr, u8),
    /// The ports of services of type NodePort.
    #[arg(long, value_name = "FIRST-LAST", default_value = "30000-32767", value_parser = port_range)]
    pub service_node_port_range: (u16, u16),
    /// Log filter: `info`, `debug`, `server=debug,store=info`, …
    #[arg(long, value_name = "FILTER", default_value = "warn,client::list_watch=error")]
    pub log: String,
    #[command(flatten)]
    pub authentication: Authentication,
    #[command(flatten)]
    pub authorization: Authorization,
    #[command(flatten)]
    pub webhooks: Webhooks,
    #[command(flatten)]
    pub explain: Explain,
    #[command(flatten)]
    pub lab: Lab,
    #[command(flatten)]
    pub audit: Audit,
    #[command(flatten)]
    pub limits: Limits,
}

/// Reads `10.0.0.0/24`. Of several networks, as for two address families, the first one of IPv4 is used.
fn service_network(text: &str) -> Result<(Ipv4Addr, u8), String> {
    let network = |text: &str| {
        let (address, bits) = text.trim().split_once('/')?;
        let (address, bits): (Ipv4Addr, u8) = (address.parse().ok()?, bits.parse().ok()?);
        let mask = || u32::MAX << (32 - u32::from(bits));
        (12..=30).contains(&bits).then(|| (Ipv4Addr::from(u32::from(address) & mask()), bits))
    };
    text.split(',').find_map(network).ok_or_else(|| "a network is like 10.96.0.0/16, with 12 to 30 bits".to_owned())
}

/// Reads `30000-32767`.
fn port_range(text: &str) -> Result<(u16, u16), String> {
    let range = text.split_once('-').and_then(|(first, last)| Some((first.parse().ok()?, last.parse().ok()?)));
    let valid = range.filter(|(first, last)| *first > 0 && first <= last);
    valid.ok_or_else(|| "a range of ports is like 30000-32767".to_owned())
}

/// An etcd cluster as the store.
#[derive(Debug, Clone, Args)]
pub struct Etcd {
    /// Keep objects in this etcd cluster.
    #[arg(long = "etcd", id = "etcd", value_name = "URL,URL", value_delimiter = ',')]
    pub endpoints: Vec<String>,
    /// Key prefix of objects in etcd.
    #[arg(long = "etcd-prefix", value_name = "KEY", default_value = "/registry/", requires = "etcd")]
    pub prefix: String,
    /// The authority that signed etcd's certificate.
    #[arg(long = "etcd-ca", value_name = "FILE", requires = "etcd")]
    pub ca: Option<PathBuf>,
    /// The client certificate for etcd.
    #[arg(long = "etcd-cert", value_name = "FILE", requires = "etcd_key")]
    pub cert: Option<PathBuf>,
    /// The key of that certificate.
    #[arg(long = "etcd-key", id = "etcd_key", value_name = "FILE", requires = "etcd")]
    pub key: Option<PathBuf>,
    /// The user in etcd; the password is read from DOGWATCH_ETCD_PASSWORD.
    #[arg(long = "etcd-user", value_name = "NAME", requires = "etcd")]
    pub user: Option<String>,
}

/// Limits of the server.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Limits")]
pub struct Limits {
    /// Largest request body.
    #[arg(long, value_name = "BYTES")]
    pub max_body_bytes: Option<usize>,
    /// Open connections.
    #[arg(long, value_name = "N")]
    pub max_connections: Option<usize>,
    /// Concurrent reads.
    #[arg(long, value_name = "N")]
    pub max_requests_inflight: Option<usize>,
    /// Concurrent writes.
    #[arg(long, value_name = "N")]
    pub max_mutating_requests_inflight: Option<usize>,
    /// Open watches.
    #[arg(long, value_name = "N")]
    pub max_watches: Option<usize>,
    /// Time limit of a request other than a watch.
    #[arg(long, value_name = "SECONDS")]
    pub request_timeout: Option<u64>,
    /// Time that a stopping server waits for open requests.
    #[arg(long, value_name = "SECONDS")]
    pub drain_timeout: Option<u64>,
    /// Bytes of all request bodies that are being read or handled.
    #[arg(long, value_name = "BYTES")]
    pub max_body_bytes_total: Option<usize>,
    /// Bytes of responses that are rendered and not sent yet.
    #[arg(long, value_name = "BYTES")]
    pub max_unsent_bytes: Option<usize>,
    /// Time after which a client that does not read its response is disconnected.
    #[arg(long, value_name = "SECONDS")]
    pub response_stall_timeout: Option<u64>,
    /// Bytes of the selectors of open watches.
    #[arg(long, value_name = "BYTES")]
    pub max_watch_selector_bytes: Option<usize>,
    /// Bytes of webhook responses that are being read.
    #[arg(long, value_name = "BYTES")]
    pub max_webhook_bytes: Option<usize>,
    /// Bytes that large requests may have which run at the same time.
    #[arg(long, value_name = "BYTES")]
    pub max_heavy_bytes: Option<usize>,
    /// Minimum age before a change may leave the history that watches resume from.
    #[arg(long, value_name = "SECONDS")]
    pub history_age: Option<u64>,
    /// Minimum number of changes of a resource that stay in history, whatever their age.
    #[arg(long, value_name = "N")]
    pub history_changes: Option<u64>,
    /// Maximum size of history; the oldest changes beyond it are dropped, whatever their age.
    #[arg(long, value_name = "BYTES")]
    pub history_bytes: Option<u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Durability {
    /// Every acknowledged write survives a power failure.
    Full,
    /// The last moments before a power failure may be lost; a crash of the process loses nothing.
    Relaxed,
}

/// The server and the objects that a command applies to.
#[derive(Debug, Clone, Args)]
pub struct Scope {
    /// The kubeconfig of the server [default: $KUBECONFIG, .dogwatch/kubeconfig, ~/.kube/config].
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// The namespace [default: the kubeconfig's].
    #[arg(short, long, value_name = "NAME", conflicts_with = "all_namespaces")]
    pub namespace: Option<String>,
    /// All namespaces.
    #[arg(short = 'A', long)]
    pub all_namespaces: bool,
    /// Only objects with these labels.
    #[arg(short = 'l', long, value_name = "SELECTOR")]
    pub selector: Option<String>,
}

impl Scope {
    /// The namespace of the command; none means all.
    pub(crate) fn namespace<'a>(&'a self, default: &'a str) -> Option<&'a str> {
        if self.all_namespaces { None } else { Some(self.namespace.as_deref().unwrap_or(default)) }
    }

    /// The label selector as a query.
    pub(crate) fn query(&self) -> Option<String> {
        let selector = self.selector.as_deref()?;
        Some(form_urlencoded::Serializer::new(String::new()).append_pair("labelSelector", selector).finish())
    }
}

#[derive(Debug, Args)]
pub struct Get {
    /// pods, pod, po, deployments.apps, …
    pub resource: String,
    pub name: Option<String>,
    #[arg(short, long, value_enum, default_value_t = Output::Table)]
    pub output: Output,
    #[command(flatten)]
    pub scope: Scope,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Output {
    Table,
    Wide,
    Json,
    Yaml,
    Name,
}

#[derive(Debug, Args)]
pub struct Watch {
    /// pods, pod, po, deployments.apps, …
    pub resource: String,
    pub name: Option<String>,
    /// Start after this resourceVersion instead of with the existing objects.
    #[arg(long, value_name = "REVISION")]
    pub from: Option<u64>,
    /// Print events as the server sends them.
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub scope: Scope,
}

#[derive(Debug, Args)]
pub struct Apply {
    /// Files of objects, YAML or JSON; `-` is standard input.
    #[arg(short = 'f', long = "filename", value_name = "FILE", required = true)]
    pub files: Vec<PathBuf>,
    /// Take over fields that others manage.
    #[arg(long)]
    pub force: bool,
    /// Refuse objects that exist.
    #[arg(long, conflicts_with = "force")]
    pub create: bool,
    #[command(flatten)]
    pub scope: Scope,
}

#[derive(Debug, Args)]
pub struct Delete {
    /// pods, pod, po, deployments.apps, …
    #[arg(required_unless_present = "files")]
    pub resource: Option<String>,
    pub names: Vec<String>,
    /// Delete the objects of these files.
    #[arg(short = 'f', long = "filename", value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// An object that does not exist is no error.
    #[arg(long)]
    pub ignore_not_found: bool,
    #[command(flatten)]
    pub scope: Scope,
}

#[derive(Debug, Args)]
pub struct Proxy {
    /// The port on 127.0.0.1; 0 picks a free one.
    #[arg(long, default_value_t = 8001)]
    pub port: u16,
    /// The kubeconfig of the server [default: $KUBECONFIG, .dogwatch/kubeconfig, ~/.kube/config].
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub struct Console {
    /// The port on 127.0.0.1; 0 picks a free one.
    #[arg(long, default_value_t = 0)]
    pub port: u16,
    /// The kubeconfig of the server [default: $KUBECONFIG, .dogwatch/kubeconfig, ~/.kube/config].
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub struct Backup {
    /// The file to write; it must not exist.
    pub file: PathBuf,
    /// The data directory to copy.
    #[arg(long, value_name = "DIR", default_value = ".dogwatch")]
    pub data_dir: PathBuf,
    #[command(flatten)]
    pub etcd: Etcd,
}

#[derive(Debug, Args)]
pub struct Restore {
    /// The backup to read.
    pub file: PathBuf,
    /// The data directory to create; it must be empty or absent.
    #[arg(long, value_name = "DIR", default_value = ".dogwatch")]
    pub data_dir: PathBuf,
}

#[derive(Debug, Args)]
pub struct Check {
    /// The data directory.
    #[arg(value_name = "DIR", default_value = ".dogwatch")]
    pub dir: PathBuf,
    /// Keep everything that can be read, and set damaged values aside in DIR/damaged-TIME.json. Refused while a server
    /// runs on the directory.
    #[arg(long)]
    pub repair: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks_and_ports_of_services() {
        assert_eq!(service_network("10.0.0.7/24"), Ok((Ipv4Addr::new(10, 0, 0, 0), 24)));
        assert_eq!(service_network("fd00::/108,10.1.0.0/16"), Ok((Ipv4Addr::new(10, 1, 0, 0), 16)));
        assert!(["10.0.0.0", "10.0.0.0/40", "x/24", "10.0.0.0/31"].iter().all(|text| service_network(text).is_err()));
        assert_eq!(port_range("30000-30010"), Ok((30000, 30010)));
        assert!(["30000", "2-1", "0-5", "1-70000"].iter().all(|text| port_range(text).is_err()));
    }

    #[test]
    fn a_selector_is_escaped_in_the_query() {
        let cli = |words: &[&str]| match Cli::try_parse_from(words).expect("valid arguments").command {
            Command::Get(get) => get.scope.query(),
            other => panic!("not a get: {other:?}"),
        };
        assert_eq!(cli(&["dogwatch", "get", "pods"]), None);
        assert_eq!(
            cli(&["dogwatch", "get", "pods", "-l", "env in (a, b),tier!=x&y=1"]).as_deref(),
            Some("labelSelector=env+in+%28a%2C+b%29%2Ctier%21%3Dx%26y%3D1")
        );
    }
}
