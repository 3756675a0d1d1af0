//! The dogwatch program: reads the command line and calls the library.

use std::process::ExitCode;

use clap::Parser;
use dogwatch::args::Cli;
use dogwatch::assets::{self, Asset};
use dogwatch::commands;
use dogwatch::failure::Failure;

/// A write allocates and frees a few hundred small blocks on several threads. jemalloc takes a tenth of the processor time
/// of writes less than the system's allocator.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    let mut words = std::env::args_os();
    if let Some(asset) = words.next().as_ref().and_then(Asset::of_command_line) {
        let words = words.map(|word| word.to_string_lossy().into_owned()).collect();
        return run(assets::run(asset, words));
    }
    match Cli::try_parse() {
        Ok(cli) => run(commands::run(cli.command)),
        Err(error) => {
            // Help and version are not failures; everything else is a usage error.
            let code = if error.use_stderr() { 2 } else { 0 };
            let _ = error.print();
            ExitCode::from(code)
        }
    }
}

fn run(command: impl Future<Output = Result<(), Failure>>) -> ExitCode {
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return report(&Failure::new(format!("no threads could be started: {error}"))),
    };
    match runtime.block_on(command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => report(&failure),
    }
}

fn report(failure: &Failure) -> ExitCode {
    eprintln!("error: {failure}");
    ExitCode::from(failure.code.unwrap_or(if failure.is_usage { 2 } else { 1 }))
}
