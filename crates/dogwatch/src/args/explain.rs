//! Flags by which the server explains what admission does.

use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;
use registry::admission::webhooks::recorder::Recorder;

use crate::failure::Failure;

/// What the server shows of admission.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Admission")]
pub struct Explain {
    /// Name every refusal of policies and webhooks as a cause, and the policy or webhook that set a refused field.
    #[arg(long)]
    pub explain_refusals: bool,
    /// Trace the admission of every write and keep the last N traces, for `dogwatch admission trace --audit-id`.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub trace_admission: usize,
    /// Make policies and webhooks managers of the fields that they set: `admission:NAME` in managedFields.
    #[arg(long)]
    pub own_mutations: bool,
    /// Append every review of an admission webhook and its answer to a file, as lines of JSON.
    #[arg(long, value_name = "FILE")]
    pub record_reviews: Option<PathBuf>,
}

impl Explain {
    /// Opens the file of reviews.
    pub fn recorder(&self) -> Result<Option<Arc<Recorder>>, Failure> {
        let Some(file) = &self.record_reviews else { return Ok(None) };
        let opened = Recorder::open(file);
        opened
            .map(|recorder| Some(Arc::new(recorder)))
            .map_err(|error| Failure::usage(format!("--record-reviews {}: {error}", file.display())))
    }
}
