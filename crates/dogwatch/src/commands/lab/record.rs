//! `dogwatch lab record`: runs a command against a server of its own and writes all that happened there to a file.

use std::path::Path;
use std::process::Stdio;

use access::identity::{MASTERS, User};
use clap::{Args as _, FromArgMatches as _};
use machinery::clock::Clock;
use tokio::process::Command;

use crate::args::{Record, Up};
use crate::assets;
use crate::failure::Failure;
use crate::recording::{Header, Recorder};
use crate::up::{self, Given, Running};

/// Requests and changes of which the recording says who made them.
const ROWS: &str = "200000";
/// Exit code of a command that a signal ended, plus the number of the signal: as shells have it.
const SIGNALLED: i32 = 128;
/// Exit code of a command that cannot be started, as shells have it.
const NOT_FOUND: u8 = 127;

pub(super) async fn record(args: Record) -> Result<(), Failure> {
    let dir = tempfile::tempdir().map_err(|error| Failure::new(format!("no temporary directory: {error}")))?;
    let mut flags = vec!["--memory", "--lab", "--lab-requests", ROWS, "--listen", "127.0.0.1:0"];
    if args.no_controllers {
        flags.push("--no-controllers");
    }
    let running = up::start(arguments(dir.path(), &flags)?, Given { is_silent: true, ..Given::default() }).await?;
    let header = Header {
        started: Clock::system().now(),
        command: args.command.clone(),
        ready: running.cluster.registry().cache().revision(),
        has_controllers: !args.no_controllers,
    };
    let store = running.cluster.store().clone();
    let recorder = Recorder::start(&args.file, &header, &*store).await.map_err(Failure::usage)?;
    let outcome = run(&args.command, &running).await;
    let code = outcome.as_ref().copied().unwrap_or_default();
    let user = User { name: "dogwatch-admin".to_owned(), groups: vec![MASTERS.to_owned()], ..User::default() };
    let client = kube::Client::new(running.cluster.server().in_process(user.authenticated()), "default");
    let written = recorder.finish(&args.file, &*store, &client, code).await;
    running.stop().await;
    written.map_err(Failure::new)?;
    match outcome? {
        0 => Ok(()),
        code => {
            let code = u8::try_from(code).unwrap_or(1);
            Err(Failure::with_code(code, format!("the command ended with exit code {code}")))
        }
    }
}

/// The arguments of a server with these flags.
pub(super) fn arguments(dir: &Path, flags: &[&str]) -> Result<Up, Failure> {
    let command = Up::augment_args(clap::Command::new("up").no_binary_name(true));
    let words = flags.iter().map(std::ffi::OsString::from).chain(["--data-dir".into(), dir.into()]);
    let matches = command.try_get_matches_from(words).map_err(|error| Failure::usage(error.to_string()))?;
    Up::from_arg_matches(&matches).map_err(|error| Failure::usage(error.to_string()))
}

/// Runs the command to its end and returns its exit code.
async fn run(words: &[String], running: &Running) -> Result<i32, Failure> {
    let Some((program, words)) = words.split_first() else { return Err(Failure::usage("no command was given")) };
    let mut command = Command::new(program);
    command.args(words).stdin(Stdio::inherit()).env("KUBECONFIG", &running.kubeconfig);
    // Suites of controller-runtime: the first makes envtest use the server of KUBECONFIG. Those that start one of their own all the
    // same find this program, but what they do there is not recorded.
    command.env("USE_EXISTING_CLUSTER", "true").env("KUBEBUILDER_ASSETS", assets::folder()?);
    let ended = command.status().await;
    let status =
        ended.map_err(|error| Failure::with_code(NOT_FOUND, format!("{program} cannot be started: {error}")))?;
    let signal = std::os::unix::process::ExitStatusExt::signal(&status);
    Ok(status.code().or(signal.map(|signal| SIGNALLED + signal)).unwrap_or(1))
}
