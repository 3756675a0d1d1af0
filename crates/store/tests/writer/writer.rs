//! A process that writes to an embedded store and reports each acknowledgement, for tests that kill it or fill its disk.
//!
//! - `load DIR SEED full|relaxed`: eight callers until killed; `open REVISION`, then a line for each acknowledgement
//! - `puts DIR COUNT`: one caller; `ack N` after each acknowledgement, then `end`
//! - `until-error DIR COUNT`: as `puts`, but continues after an error: `error N KIND`; then reports if reads still work
//! - `fill DIR`: fills a small filesystem, frees space, continues; see [`fill`]
//! - `hold DIR`: opens, prints `open`, waits for the end of its input

mod load;
mod report;

use std::io::{Read, Write};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use report::Acknowledged;
use store::embedded::{Durability, EmbeddedOptions, EmbeddedStore};
use store::{Key, ListQuery, Prefix, Revision, Store, WriteError};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let outcome = runtime.map_err(|error| error.to_string()).and_then(|runtime| {
        runtime.block_on(async {
            match words.as_slice() {
                ["load", dir, seed, durability] => load(Path::new(dir), seed, durability).await,
                ["puts", dir, count] => puts(Path::new(dir), count, false).await,
                ["until-error", dir, count] => puts(Path::new(dir), count, true).await,
                ["fill", dir] => fill(Path::new(dir)).await,
                ["hold", dir] => hold(Path::new(dir)),
                _ => Err("usage: see the top of the source".to_owned()),
            }
        })
    });
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn print_line(line: &str) {
    let mut out = std::io::stdout().lock();
    // One write for each line: a process killed here has printed all of it, or a part without the line end.
    let _ = out.write_all(format!("{line}\n").as_bytes()).and_then(|()| out.flush());
}

fn open(options: EmbeddedOptions) -> Result<EmbeddedStore, String> {
    EmbeddedStore::open(options).map_err(|error| error.to_string())
}

fn key(text: &str) -> Result<Key, String> {
    Key::new(text).map_err(|error| error.to_string())
}

async fn load(dir: &Path, seed: &str, durability: &str) -> Result<(), String> {
    let mut options = EmbeddedOptions::new(dir);
    options.durability = if durability == "relaxed" { Durability::Relaxed } else { Durability::Full };
    options.tail_changes_max = 64;
    let seed: u64 = seed.parse().map_err(|_| "the seed is a number")?;
    let store = Arc::new(open(options)?);
    let start = store.current_revision().await.map_err(|error| error.to_string())?;
    print_line(&format!("open {start}"));
    let mut callers = tokio::task::JoinSet::new();
    for caller in 0..8 {
        let store = store.clone();
        callers.spawn(async move { call(&store, caller, seed * 8 + caller, start).await });
    }
    while let Some(ended) = callers.join_next().await {
        ended.map_err(|error| error.to_string())??;
    }
    Ok(())
}

/// Writes to keys of its own, so that every outcome is known, and sometimes compacts history.
async fn call(store: &EmbeddedStore, caller: u64, seed: u64, start: Revision) -> Result<(), String> {
    let mut rng = SmallRng::seed_from_u64(seed);
    for round in 0_u64.. {
        let key = key(&format!("core/pods/{caller}/{}", rng.random_range(0..12)))?;
        let current = store.get(&key).await.map_err(|error| error.to_string())?.map(|entry| entry.revision);
        let tag = (seed << 32) | round;
        let (tag, written) = match current {
            None => (Some(tag), store.create(key.clone(), load::value(tag)).await),
            Some(expected) if rng.random_ratio(1, 4) => (None, store.delete(key.clone(), expected).await),
            Some(expected) => (Some(tag), store.update(key.clone(), load::value(tag), expected).await),
        };
        let revision = written.map_err(|error| error.to_string())?.0;
        print_line(&Acknowledged { revision, key: key.as_str().to_owned(), tag }.to_string());
        // Only history from before this process: the test reads everything after.
        if rng.random_ratio(1, 100) {
            store.compact(start).await.map_err(|error| error.to_string())?;
        }
    }
    Ok(())
}

async fn puts(dir: &Path, count: &str, beyond_errors: bool) -> Result<(), String> {
    let store = open(EmbeddedOptions::new(dir))?;
    let count: u32 = count.parse().map_err(|_| "the count is a number")?;
    for number in 0..count {
        let written =
            store.create(key(&format!("core/pods/a/{number}"))?, load::value(u64::from(number) * 2 + 1)).await;
        match written {
            Ok(_) => print_line(&format!("ack {number}")),
            Err(error) if beyond_errors => print_line(&format!("error {number} {}", kind(&error))),
            Err(error) => return Err(error.to_string()),
        }
    }
    let listed = store.list(ListQuery::default()).await.map_err(|error| error.to_string())?;
    print_line(&format!("readable {}", listed.entries.len()));
    print_line("end");
    Ok(())
}

fn kind(error: &WriteError) -> &'static str {
    match error {
        WriteError::Full(_) => "full",
        WriteError::Poisoned(_) => "poisoned",
        WriteError::Unknown(_) => "unknown",
        WriteError::Unavailable(_) => "unavailable",
        _ => "other",
    }
}

/// On a filesystem that is nearly full because of a file named `ballast` in the store's directory: writes until it is full,
/// verifies that reads and watches work, removes the ballast, and verifies that writes work and nothing is lost.
async fn fill(dir: &Path) -> Result<(), String> {
    let text = |error: &dyn std::fmt::Display| error.to_string();
    let data = dir.join("data");
    let store = open(EmbeddedOptions::new(&data))?;
    let mut live = store.watch(Prefix::everything(), Revision::ZERO).await.map_err(|error| text(&error))?;
    let mut acknowledged = Vec::new();
    let mut number = 0;
    let mut write = async |store: &EmbeddedStore| {
        number += 1;
        store
            .create(key(&format!("core/pods/a/{number}"))?, load::value(number))
            .await
            .map(|revision| (revision, number))
            .map_err(|error| format!("{}: {error}", kind(&error)))
    };
    loop {
        match write(&store).await {
            Ok(done) => acknowledged.push(done),
            Err(error) if error.starts_with("full: ") => break,
            Err(error) => return Err(format!("a full disk must say so, not {error}")),
        }
    }
    if acknowledged.is_empty() {
        return Err("the disk was full before the first write".to_owned());
    }
    // More than once: a full store stays usable and returns the same error.
    for _ in 0..10 {
        match write(&store).await {
            Err(error) if error.starts_with("full: ") => {}
            // A small value may still fit where a large one did not.
            Ok(done) => acknowledged.push(done),
            Err(error) => return Err(format!("a disk that is still full must say so, not {error}")),
        }
    }
    check(&store, &acknowledged).await.map_err(|error| format!("while full: {error}"))?;
    let mut seen = 0;
    while seen < acknowledged.len() {
        let batch = live.next().await.ok_or("the watch ended")?.map_err(|error| text(&error))?;
        seen += batch.changes.len();
    }

    std::fs::remove_file(dir.join("ballast")).map_err(|error| text(&error))?;
    for _ in 0..50 {
        acknowledged.push(write(&store).await.map_err(|error| format!("with room again: {error}"))?);
    }
    check(&store, &acknowledged).await.map_err(|error| format!("with room again: {error}"))?;
    drop((live, store));
    let store = open(EmbeddedOptions::new(&data))?;
    check(&store, &acknowledged).await.map_err(|error| format!("after reopening: {error}"))?;
    print_line(&format!("end {}", acknowledged.len()));
    Ok(())
}

async fn check(store: &EmbeddedStore, acknowledged: &[(Revision, u64)]) -> Result<(), String> {
    let listed = store.list(ListQuery::default()).await.map_err(|error| error.to_string())?;
    let mut found: Vec<(Revision, Option<u64>)> =
        listed.entries.iter().map(|entry| (entry.revision, load::tag_of(&entry.value))).collect();
    found.sort();
    let expected: Vec<(Revision, Option<u64>)> =
        acknowledged.iter().map(|(revision, tag)| (*revision, Some(*tag))).collect();
    if found == expected {
        Ok(())
    } else {
        Err(format!("{} entries where {} were written", found.len(), expected.len()))
    }
}

fn hold(dir: &Path) -> Result<(), String> {
    let _store = open(EmbeddedOptions::new(dir))?;
    print_line("open");
    std::io::stdin().read_to_end(&mut Vec::new()).map(drop).map_err(|error| error.to_string())
}
