//! `dogwatch lab`: what a lab shows, for people.

mod diff;
mod fields;

use crate::args::LabCommand;
use crate::failure::Failure;

pub(super) async fn lab(what: LabCommand) -> Result<(), Failure> {
    match what {
        LabCommand::Diff(args) => diff::diff(args).await,
    }
}
