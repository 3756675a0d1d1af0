//! Arguments of `dogwatch lab`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::Report;

#[derive(Debug, Subcommand)]
pub enum LabCommand {
    /// Compare the objects of two worlds, or of one world at two revisions: exit code 0 if they are equal, 1 if they differ.
    Diff(LabDiff),
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
