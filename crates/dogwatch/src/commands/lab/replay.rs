//! `dogwatch lab replay`: serves a recording; writes are refused.

use std::sync::Arc;

use machinery::Revision;

use super::record::arguments;
use crate::args::Replay;
use crate::failure::Failure;
use crate::recording::{Player, Recording};
use crate::up::{self, Given};

pub(super) async fn replay(args: Replay) -> Result<(), Failure> {
    let file = args.file.clone();
    let read = tokio::task::spawn_blocking(move || Recording::read(&file)).await;
    let Recording { header, changes, rows } = read.map_err(Failure::new)?.map_err(Failure::usage)?;
    let last = changes.last().map_or(Revision::ZERO, |change| change.revision);
    let begin = args.at.map_or(header.ready, Revision).max(header.ready);
    if begin > last {
        return Err(Failure::usage(format!("--at {begin}: the recording ends at revision {last}")));
    }
    let mut player = Player::new(changes);
    player.play_until(header.ready).await.map_err(Failure::usage)?;

    let dir = tempfile::tempdir().map_err(|error| Failure::new(format!("no temporary directory: {error}")))?;
    let listen = args.listen.to_string();
    let rows_max = last.0.clamp(10_000, 1_000_000).to_string();
    // Without warnings: what a server writes by itself, such as the APIService of a new kind, is refused, and comes from the recording.
    let mut flags = vec!["--memory", "--lab", "--lab-requests", &rows_max, "--listen", &listen, "--log", "error"];
    if !header.has_controllers {
        flags.push("--no-controllers");
    }
    let mut arguments = arguments(dir.path(), &flags)?;
    arguments.kubeconfig = args.kubeconfig;
    println!("recording   {} of {}: revisions {} to {last}", header.command.join(" "), header.started, header.ready);
    let given = Given { store: Some(player.store()), recorded: Some(Arc::new(rows)), is_silent: false };
    let running = up::start(arguments, given).await?;
    player.play_until(begin).await.map_err(Failure::new)?;
    println!("playing from revision {begin}");
    let playing = tokio::spawn(async move {
        match player.play_all(args.speed).await {
            Ok(last) => println!("the recording has ended at revision {last}; stop with ^C"),
            Err(error) => eprintln!("error: {error}"),
        }
    });
    let ended = running.wait().await;
    playing.abort();
    ended
}
