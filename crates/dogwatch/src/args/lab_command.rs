//! Arguments of `dogwatch lab`.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};
use server::authorization::file::parse_duration;

use super::Report;

#[derive(Debug, Subcommand)]
pub enum LabCommand {
    /// Compare the objects of two worlds, or of one world at two revisions: exit code 0 if they are equal, 1 if they differ.
    Diff(LabDiff),
    /// Run a command against a new server with a lab, and write all that happened there to a file.
    Record(Record),
    /// Serve a recording: every revision can be read, and watches see its changes again.
    Replay(Replay),
    /// Wait until nothing is written and every watch was sent everything: exit code 4 and who is busy if not.
    Settle(Settle),
    /// Show who wrote an object and all that it owns, when, and after what.
    Timeline(Timeline),
    /// Show what the faults did: exit code 3 if that is not what is expected.
    Report(LabReport),
}

#[derive(Debug, Args)]
pub struct LabDiff {
    /// WORLD or WORLD@REVISION; the world without a prefix is main.
    #[arg(value_name = "WORLD[@REVISION]")]
    pub before: String,
    /// What it is compared with.
    #[arg(value_name = "WORLD[@REVISION]")]
    pub after: String,
    #[arg(short, long, value_enum, default_value_t = Report::Text)]
    pub output: Report,
    /// The kubeconfig of the server [default: $KUBECONFIG, .dogwatch/kubeconfig, ~/.kube/config].
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub struct Record {
    /// The file to write.
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// Run the API server alone, without controllers and nodes.
    #[arg(long)]
    pub no_controllers: bool,
    /// The command, which finds the server by KUBECONFIG.
    #[arg(value_name = "COMMAND", last = true, required = true)]
    pub command: Vec<String>,
}

#[derive(Debug, Args)]
pub struct Replay {
    /// The recording.
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// Address to listen on; port 0 picks a free port, which is in the kubeconfig.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:0")]
    pub listen: SocketAddr,
    /// So many times as fast as it was recorded; 0 plays everything at once.
    #[arg(long, value_name = "N", default_value_t = 1.0, value_parser = speed)]
    pub speed: f64,
    /// Begin at this revision.
    #[arg(long, value_name = "REVISION")]
    pub at: Option<u64>,
    /// File to write the kubeconfig to [default: a file in a temporary directory].
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub struct Settle {
    /// For so long nothing is written.
    #[arg(long, value_name = "DURATION", default_value = "200ms", value_parser = duration)]
    pub quiet: Duration,
    /// Give up after so long.
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = duration)]
    pub timeout: Duration,
    /// Resource that may be written meanwhile [default: leases.coordination.k8s.io, events]; may be repeated.
    #[arg(long, value_name = "RESOURCE")]
    pub ignore: Vec<String>,
    /// User agent that may write meanwhile, with * for any characters; may be repeated.
    #[arg(long, value_name = "PATTERN")]
    pub ignore_agents: Vec<String>,
    /// User agent of a client whose watches are waited for [default: all]; may be repeated.
    #[arg(long = "client", value_name = "PATTERN")]
    pub clients: Vec<String>,
    /// The kubeconfig of the server [default: $KUBECONFIG, .dogwatch/kubeconfig, ~/.kube/config].
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub struct Timeline {
    /// The object, such as deployment/web.
    #[arg(value_name = "KIND/NAME")]
    pub object: String,
    /// Write a web page to this file instead.
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// The namespace [default: the kubeconfig's].
    #[arg(short, long, value_name = "NAME")]
    pub namespace: Option<String>,
    /// The kubeconfig of the server [default: $KUBECONFIG, .dogwatch/kubeconfig, ~/.kube/config].
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub struct LabReport {
    /// The kubeconfig of the server [default: $KUBECONFIG, .dogwatch/kubeconfig, ~/.kube/config].
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
}

fn speed(text: &str) -> Result<f64, String> {
    let speed = text.parse().ok().filter(|speed: &f64| speed.is_finite() && *speed >= 0.0);
    speed.ok_or_else(|| "a speed is a number that is not negative, such as 2 or 0.5".to_owned())
}

fn duration(text: &str) -> Result<Duration, String> {
    parse_duration(text).ok_or_else(|| "a duration is a number with a unit, such as 200ms or 5s".to_owned())
}
