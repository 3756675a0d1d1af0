//! `dogwatch manual`: shell completions and man pages, from the definition that `--help` is printed from.

use std::io::Write;
use std::path::Path;

use clap::CommandFactory;

use crate::args::{Cli, Manual};
use crate::failure::Failure;

pub(super) fn manual(what: Manual) -> Result<(), Failure> {
    match what {
        Manual::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "dogwatch", &mut script);
            std::io::stdout()
                .write_all(&script)
                .map_err(|error| Failure::new(format!("the script cannot be written: {error}")))
        }
        Manual::Pages { dir } => pages(&dir),
    }
}

/// Writes `dogwatch.1`, `dogwatch-up.1` and so on.
fn pages(dir: &Path) -> Result<(), Failure> {
    clap_mangen::generate_to(Cli::command(), dir)
        .map_err(|error| Failure::new(format!("man pages cannot be written to {}: {error}", dir.display())))
}
