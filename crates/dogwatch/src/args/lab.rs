//! Flags of the lab.

use clap::Args;

/// Requests that can be kept at most: more would take more memory than the rest of the server.
const REQUESTS_MAX: i64 = 1_000_000;

/// Powers for those who test controllers.
#[derive(Debug, Clone, Copy, Default, Args)]
#[command(next_help_heading = "Lab")]
pub struct Lab {
    /// Serve the group lab.dogwatch.dev: objects that let requests fail, wait or lose their answers on purpose, and show what clients do.
    #[arg(long)]
    pub lab: bool,
    /// Number of requests and changes that the lab keeps.
    #[arg(long, requires = "lab", value_name = "N", default_value_t = lab::REQUESTS_DEFAULT as u64, value_parser = clap::value_parser!(u64).range(1..=REQUESTS_MAX as u64))]
    pub lab_requests: u64,
}

impl Lab {
    /// The number of requests that the lab keeps; none without a lab.
    #[must_use]
    pub fn requests(&self) -> Option<usize> {
        self.lab.then_some(self.lab_requests as usize)
    }
}
