//! Flags of the lab.

use clap::Args;

/// Powers for those who test controllers.
#[derive(Debug, Clone, Copy, Default, Args)]
#[command(next_help_heading = "Lab")]
pub struct Lab {
    /// Serve the group lab.dogwatch.dev: objects that let requests fail, wait or lose their answers on purpose.
    #[arg(long)]
    pub lab: bool,
}
