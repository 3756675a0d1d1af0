//! What can be said to `dogwatch bench`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

#[derive(Debug, Subcommand)]
pub enum Bench {
    /// Everything, one after the other.
    All(BenchRun),
    /// From nothing to ready, and memory then.
    Start(BenchRun),
    /// Creating pods.
    Create(BenchRun),
    /// Reading single pods.
    Get(BenchRun),
    /// Merge patches of pods.
    Patch(BenchRun),
    /// Listing all pods: fresh, from what is there, by pages, by selectors.
    List(BenchRun),
    /// Writes to pods that many watch.
    Fanout(BenchRun),
    /// Writes to pods while many watch others.
    FanoutSelective(BenchRun),
    /// Writes to pods that many watch, some of whom do not read.
    SlowWatchers(BenchRun),
    /// Memory of a watcher to whom nothing happens.
    IdleWatchers(BenchRun),
    /// All informers cut off at once, all back with a list and a watch.
    RelistStorm(BenchRun),
    /// The server killed and stopped under watchers, who resume without a list.
    Restart(BenchRun),
    /// Watches that begin with everything there is, many at once.
    Watchlist(BenchRun),
    /// The embedded store against a bare SQLite writer with the same batching.
    Store(BenchRun),
    /// Simulated nodes and deployments, until every pod runs.
    Scale(BenchRun),
    /// CustomResourceDefinitions, until they are established, and writes of their objects.
    Crds(BenchRun),
    /// Two results of --json beside each other, as a table and as a picture.
    Compare(BenchCompare),
    /// The program that does nothing but encrypt and write; other measurements start it.
    #[command(hide = true)]
    Floor,
}

#[derive(Debug, Args)]
pub struct BenchRun {
    /// The server to measure [default: one of its own, in a folder that is removed afterwards].
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// A process of that server, for its processor time and memory; may be given several times.
    #[arg(long, value_name = "PID", requires = "kubeconfig")]
    pub pid: Vec<u32>,
    /// Speak HTTP/2 instead of HTTP/1.1.
    #[arg(long)]
    pub http2: bool,
    /// Print the result as JSON.
    #[arg(long)]
    pub json: bool,
    /// Smaller loads: everything within five minutes.
    #[arg(long)]
    pub quick: bool,
    /// Where servers and stores keep their files; they are removed afterwards [default: the system's folder for
    /// temporary files].
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,
    #[command(flatten)]
    pub load: BenchLoad,
}

/// How much of it.
#[derive(Debug, Args)]
#[command(next_help_heading = "Load")]
pub struct BenchLoad {
    /// Pods that are made, read and listed.
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
    /// Bytes of a pod as the server gives it.
    #[arg(long, value_name = "BYTES")]
    pub size: Option<usize>,
    /// Different specs among the pods, sent in turns [default: 100]. With as many as pods, each has its own.
    #[arg(long, value_name = "N")]
    pub specs: Option<u64>,
    #[arg(long, value_name = "N")]
    pub watchers: Option<usize>,
    /// Connections of those watchers; fewer than watchers only with --http2.
    #[arg(long, value_name = "N")]
    pub connections: Option<usize>,
    /// Writes a second that watchers see; requests a second for latencies.
    #[arg(long, value_name = "N")]
    pub rate: Option<f64>,
    /// How long writes go on.
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
    /// Clients that need everything at once.
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
    /// Pods of deployments on them.
    #[arg(long, value_name = "N")]
    pub pods: Option<u32>,
    /// CustomResourceDefinitions.
    #[arg(long, value_name = "N")]
    pub definitions: Option<u64>,
}

#[derive(Debug, Args)]
pub struct BenchCompare {
    /// A result of --json.
    pub a: PathBuf,
    /// Another one.
    pub b: PathBuf,
    /// Where to draw the picture.
    #[arg(long, value_name = "FILE", default_value = "bench-compare.svg")]
    pub plot: PathBuf,
}
