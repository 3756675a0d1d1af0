//! The client commands, and `bench`.
//!
//! - `remote`: the server of a kubeconfig, and the resources it serves
//! - `get`, `watch`, `apply`, `delete`, `wait`: one module for each command
//! - `access`: rights, roles and credentials
//! - `admission`: policies without a server
//! - `lab`: a quiet cluster, timelines, faults
//! - `proxy`: plain HTTP on loopback to that server
//! - `console`: the web page for that server
//! - `documents`: objects in files
//! - `lab`: what a lab shows
//! - `bench`: measurements
//! - `check`: damage in a data directory
//! - `manual`: shell completions and man pages

mod access;
mod admission;
mod apply;
mod bench;
mod check;
mod console;
mod delete;
mod documents;
mod get;
mod lab;
mod manual;
mod proxy;
mod remote;
mod wait;
mod watch;

use std::pin::Pin;

use crate::args::Command;
use crate::failure::Failure;
use crate::{engine, up};

/// Runs a command. Boxed, so that commands are compiled once, in the library.
pub fn run(command: Command) -> Pin<Box<dyn Future<Output = Result<(), Failure>>>> {
    match command {
        Command::Up(args) => Box::pin(up::run(args)),
        Command::Get(args) => Box::pin(get::get(args)),
        Command::Watch(args) => Box::pin(watch::watch(args)),
        Command::Apply(args) => Box::pin(apply::apply(args)),
        Command::Delete(args) => Box::pin(delete::delete(args)),
        Command::Wait(args) => Box::pin(wait::wait(args)),
        Command::Assets => Box::pin(async {
            println!("{}", crate::assets::folder()?.display());
            Ok(())
        }),
        Command::Proxy(args) => Box::pin(proxy::proxy(args)),
        Command::Console(args) => Box::pin(console::console(args)),
        Command::Access(what) => Box::pin(access::access(what)),
        Command::Admission(what) => Box::pin(admission::admission(what)),
        Command::Lab(what) => Box::pin(lab::lab(what)),
        Command::Bench(what) => Box::pin(bench::bench(what)),
        Command::Backup(args) => Box::pin(async move {
            engine::backup(&args.data_dir, &args.etcd, &args.file).await?;
            println!("wrote {}", args.file.display());
            Ok(())
        }),
        Command::Check(args) => Box::pin(check::check(args)),
        Command::Manual(what) => Box::pin(std::future::ready(manual::manual(what))),
        Command::Restore(args) => Box::pin(async move {
            let objects = engine::restore(&args.file, &args.data_dir).await?;
            println!("restored {objects} objects to {}", args.data_dir.display());
            Ok(())
        }),
    }
}
