//! `dogwatch lab`: waits until a cluster is quiet, shows what happened to an object, reports on faults, compares worlds, records and replays.
//!
//! - `settle`: waits; `timeline`: an object and what it owns over time, `page` as a web page; `report`: faults
//! - `diff`: two worlds, `fields` what differs in an object
//! - `record`: a command and all that its server did, in a file; `replay`: a server of such a file

mod diff;
mod fields;
mod page;
mod record;
mod replay;
mod report;
mod settle;
mod timeline;

use crate::args::LabCommand;
use crate::failure::Failure;

const API: &str = "/apis/lab.dogwatch.dev/v1";

pub(super) async fn lab(what: LabCommand) -> Result<(), Failure> {
    match what {
        LabCommand::Diff(args) => diff::diff(args).await,
        LabCommand::Record(args) => record::record(args).await,
        LabCommand::Replay(args) => replay::replay(args).await,
        LabCommand::Settle(args) => settle::settle(args).await,
        LabCommand::Timeline(args) => timeline::timeline(args).await,
        LabCommand::Report(args) => report::report(args).await,
    }
}

/// A refusal of a server that has no lab says what to do.
fn with_hint(failure: Failure) -> Failure {
    failure.hint("the server needs a lab: dogwatch up --lab")
}
