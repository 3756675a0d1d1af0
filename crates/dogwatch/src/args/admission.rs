//! Arguments of `dogwatch admission`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::Scope;

#[derive(Debug, Subcommand)]
pub enum Admission {
    /// Evaluate admission policies on an object, without a server: exit code 0 if it is admitted, 1 if not.
    Test(AdmissionTest),
    /// Show what each plugin, policy and webhook does with an object (a dry run), or did with an earlier write.
    Trace(AdmissionTrace),
}

#[derive(Debug, Args)]
pub struct AdmissionTrace {
    /// Objects to create or update in a dry run; may be repeated.
    #[arg(short, long = "filename", value_name = "FILE", required_unless_present = "audit_id")]
    pub files: Vec<PathBuf>,
    /// A write that was traced before, by the Audit-Id of its answer.
    #[arg(long, value_name = "ID", conflicts_with = "files")]
    pub audit_id: Option<String>,
    /// Also show steps that did not apply.
    #[arg(long)]
    pub all: bool,
    /// Print the trace as JSON.
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub scope: Scope,
}

#[derive(Debug, Args)]
pub struct AdmissionTest {
    /// Policies and bindings, and what they need: params, namespaces, roles, definitions; may be repeated.
    #[arg(short, long = "filename", value_name = "FILE", required = true)]
    pub files: Vec<PathBuf>,
    /// The object to create, or to update with --old.
    #[arg(long, value_name = "FILE", required_unless_present = "old")]
    pub object: Option<PathBuf>,
    /// The object as it is stored; without --object it is deleted.
    #[arg(long, value_name = "FILE")]
    pub old: Option<PathBuf>,
    /// The user of the request [default: a member of system:masters].
    #[arg(long = "as", value_name = "USER")]
    pub user: Option<String>,
    /// A group of the user; may be repeated.
    #[arg(long = "as-group", value_name = "GROUP", requires = "user")]
    pub groups: Vec<String>,
    /// The namespace of objects that name none.
    #[arg(short, long, value_name = "NAME", default_value = "default")]
    pub namespace: String,
    /// Print the steps as JSON.
    #[arg(long)]
    pub json: bool,
}
