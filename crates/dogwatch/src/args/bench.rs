//! Arguments of `dogwatch bench`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

#[derive(Debug, Subcommand)]
pub enum Bench {
    /// All measurements, one after the other.
    All(BenchRun),
    /// Time from start to ready, and memory at that point.
    Start(BenchRun),
    /// Creating pods.
    Create(BenchRun),
    /// Reading single pods.
    Get(BenchRun),
    /// Merge patches of pods.
    Patch(BenchRun),
    /// Listing all pods: fresh, from the cache, by pages, by selectors.
    List(BenchRun),
    /// Writes to pods with many watchers.
    Fanout(BenchRun),
    /// Writes to pods while many watchers watch other pods.
    FanoutSelective(BenchRun),
    /// Writes to pods with many watchers, some of which do not read.
    SlowWatchers(BenchRun),
    /// Memory of a watcher without events.
    IdleWatchers(BenchRun),
    /// All informers disconnected at once, then back with a list and a watch.
    RelistStorm(BenchRun),
    /// The server killed and stopped under watchers, which resume without a list.
    Restart(BenchRun),
    /// Many concurrent watches that start with all objects.
    Watchlist(BenchRun),
    /// The embedded store against a bare SQLite writer with the same batching.
    Store(BenchRun),
    /// Simulated nodes and deployments, until every pod runs.
    Scale(BenchRun),
    /// Time until CustomResourceDefinitions are established, and writes of their objects.
    Crds(BenchRun),
    /// Gets by an administrator and by accounts with few and many role bindings.
    Access(BenchRun),
    /// Creating pods without policies, with policies on another kind, and with a policy of three rules.
    Admission(BenchRun),
    /// Gets of one client while another one floods the server with expensive lists.
    Fairness(BenchRun),
    /// Forks of a server with objects, empty worlds, and rewinds; --objects 100000 for the large fork.
    Worlds(BenchRun),
    /// Compare two results of --json, as a table and as a picture.
    Compare(BenchCompare),
    /// The baseline program, which only encrypts and writes; other measurements start it.
    #[command(hide = true)]
    Floor,
}

#[derive(Debug, Args)]
pub struct BenchRun {
    /// The server to measure [default: a temporary one].
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// A process of that server, for its processor time and memory; may be repeated.
    #[arg(long, value_name = "PID", requires = "kubeconfig")]
    pub pid: Vec<u32>,
    /// Use HTTP/2 instead of HTTP/1.1.
    #[arg(long)]
    pub http2: bool,
    /// Print the result as JSON.
    #[arg(long)]
    pub json: bool,
    /// Smaller loads: everything within five minutes.
    #[arg(long)]
    pub quick: bool,
    /// Directory for the files of servers and stores, which are removed afterwards [default: the system's temporary
    /// directory].
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,
    #[command(flatten)]
    pub load: BenchLoad,
}

/// Sizes of the load.
#[derive(Debug, Args)]
#[command(next_help_heading = "Load")]
pub struct BenchLoad {
    /// Pods that are created, read and listed.
    #[arg(long, value_name = "N")]
    pub objects: Option<u64>,
    /// Gets and patches.
    #[arg(long, value_name = "N")]
    pub requests: Option<u64>,
    /// Connections that send requests.
    #[arg(long, value_name = "N")]
    pub callers: Option<usize>,
    /// Lists of each kind.
    #[arg(long, value_name = "N")]
    pub lists: Option<u64>,
    /// Size of a pod as the server returns it.
    #[arg(long, value_name = "BYTES")]
    pub size: Option<usize>,
    /// Different specs among the pods, sent in turn [default: 100].
    #[arg(long, value_name = "N")]
    pub specs: Option<u64>,
    /// Open watches.
    #[arg(long, value_name = "N")]
    pub watchers: Option<usize>,
    /// Connections of those watchers; fewer than watchers only with --http2.
    #[arg(long, value_name = "N")]
    pub connections: Option<usize>,
    /// Writes per second that watchers see; requests per second for latencies.
    #[arg(long, value_name = "N")]
    pub rate: Option<f64>,
    /// Duration of the writes.
    #[arg(long, value_name = "SECONDS")]
    pub seconds: Option<f64>,
    /// A label selector of watchers; `bench=load` selects every pod.
    #[arg(long, value_name = "SELECTOR")]
    pub label_selector: Option<String>,
    /// A field selector of watchers.
    #[arg(long, value_name = "SELECTOR")]
    pub field_selector: Option<String>,
    /// Watchers that do not read.
    #[arg(long, value_name = "N")]
    pub slow: Option<usize>,
    /// Clients that list or watch everything at the same time.
    #[arg(long, value_name = "N")]
    pub informers: Option<usize>,
    /// Starts of each kind.
    #[arg(long, value_name = "N")]
    pub starts: Option<usize>,
    /// Puts into the store alone.
    #[arg(long, value_name = "N")]
    pub puts: Option<usize>,
    /// Simulated nodes.
    #[arg(long, value_name = "N")]
    pub nodes: Option<u32>,
    /// Pods of deployments on the simulated nodes.
    #[arg(long, value_name = "N")]
    pub pods: Option<u32>,
    /// CustomResourceDefinitions.
    #[arg(long, value_name = "N")]
    pub definitions: Option<u64>,
    /// Worlds of each kind.
    #[arg(long, value_name = "N")]
    pub worlds: Option<u64>,
}

#[derive(Debug, Args)]
pub struct BenchCompare {
    /// A result of --json.
    pub a: PathBuf,
    /// Another one.
    pub b: PathBuf,
    /// File to draw the picture to.
    #[arg(long, value_name = "FILE", default_value = "bench-compare.svg")]
    pub plot: PathBuf,
}
