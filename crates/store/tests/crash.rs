//! SIGKILL at random instants: every acknowledged write is present, none is partial, and a watch resumes with no gap.

#[path = "writer/load.rs"]
mod load;
#[path = "writer/report.rs"]
mod report;

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use rand::Rng;
use report::Acknowledged;
use store::embedded::{EmbeddedOptions, EmbeddedStore, verify};
use store::{Change, ListQuery, Prefix, Revision, Store};

/// Kills of the writer, unless configured otherwise.
const KILLS: u32 = 20;
const KILLS_ENV: &str = "DOGWATCH_TORTURE_KILLS";

/// The expected state of the store: key to (revision, tag).
type State = BTreeMap<String, (u64, u64)>;

/// Starts a writer, kills it shortly after its first acknowledgement, and returns its reports.
fn write_and_kill(dir: &Path, seed: u32, life: Duration, durability: &str) -> Vec<Acknowledged> {
    let mut child = Command::new(env!("CARGO_BIN_EXE_store-writer"))
        .args(["load", &dir.display().to_string(), &seed.to_string(), durability])
        .stdout(Stdio::piped())
        .spawn()
        .expect("the writer starts");
    let mut lines = BufReader::new(child.stdout.take().expect("piped"));
    let mut opened = String::new();
    lines.read_line(&mut opened).expect("readable");
    assert!(opened.starts_with("open "), "the writer opens what the last one left: {opened:?}");
    let reading = std::thread::spawn(move || {
        let mut acknowledged: Vec<Acknowledged> = Vec::new();
        let mut line = String::new();
        while lines.read_line(&mut line).expect("readable") > 0 {
            // A line without its end was being written at the instant of the kill.
            if let Some(whole) = line.strip_suffix('\n') {
                acknowledged.push(whole.parse().expect("a report"));
            }
            line.clear();
        }
        acknowledged
    });
    std::thread::sleep(life);
    child.kill().expect("still running: it writes until it is killed");
    child.wait().expect("killed");
    reading.join().expect("the reports are readable")
}

/// Every change after `after`, by a watch, as a client that resumes gets it.
async fn resume(store: &EmbeddedStore, after: Revision) -> Vec<Change> {
    let end = store.current_revision().await.expect("readable");
    let mut changes = store.watch(Prefix::everything(), after).await.expect("the revision is retained");
    let (mut seen, mut reached) = (Vec::new(), after);
    while reached < end {
        let batch = changes.next().await.expect("open").expect("sound");
        seen.extend(batch.changes);
        reached = batch.revision;
    }
    seen
}

fn apply(state: &mut State, changes: &[Change]) {
    for change in changes {
        let key = change.key.as_str();
        let before =
            change.previous.as_ref().map(|entry| (entry.revision.0, load::tag_of(&entry.value).expect("whole")));
        assert_eq!(before, state.get(key).copied(), "{key} at {} follows what was there", change.revision);
        match &change.value {
            Some(value) => {
                let tag = load::tag_of(value).unwrap_or_else(|| panic!("{key} at {} is half a value", change.revision));
                state.insert(key.to_owned(), (change.revision.0, tag));
            }
            None => drop(state.remove(key)),
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn crash_by_kill_loses_nothing_acknowledged() {
    let kills = std::env::var(KILLS_ENV).ok().map_or(KILLS, |kills| kills.parse().expect("a number of kills"));
    let dir = tempfile::tempdir().expect("a temporary directory");
    let mut rng = rand::rng();
    let mut state = State::new();
    let mut last = Revision::ZERO;
    let mut total = 0;
    for kill in 0..kills {
        let life = Duration::from_millis(rng.random_range(0..120));
        // The writes of a killed process are with the system at either durability; only a power failure makes a difference.
        let durability = if kill % 4 == 3 { "relaxed" } else { "full" };
        let acknowledged = write_and_kill(dir.path(), kill, life, durability);
        total += acknowledged.len();

        let store = EmbeddedStore::open(EmbeddedOptions::new(dir.path())).expect("opens with no repair");
        let changes = resume(&store, last).await;
        let revisions: Vec<u64> = changes.iter().map(|change| change.revision.0).collect();
        let expected: Vec<u64> = (last.0 + 1..=last.0 + changes.len() as u64).collect();
        assert_eq!(revisions, expected, "kill {kill}: every revision once, in order, with no gap");
        let by_revision: BTreeMap<u64, &Change> = changes.iter().map(|change| (change.revision.0, change)).collect();
        for line in &acknowledged {
            let change = by_revision.get(&line.revision).unwrap_or_else(|| panic!("kill {kill}: {line:?} is lost"));
            let found = (change.key.as_str(), change.value.as_deref().map(|value| load::tag_of(value).expect("whole")));
            assert_eq!(found, (line.key.as_str(), line.tag), "kill {kill}: revision {}", line.revision);
        }
        // Eight callers, each with at most one write whose report was lost in the kill.
        let unreported = changes.len() - acknowledged.len();
        assert!(unreported <= 8, "kill {kill}: {unreported} changes without a report");

        apply(&mut state, &changes);
        let listed = store.list(ListQuery::default()).await.expect("readable");
        let found: State = listed
            .entries
            .iter()
            .map(|entry| {
                let tag = load::tag_of(&entry.value).expect("whole");
                (entry.key.as_str().to_owned(), (entry.revision.0, tag))
            })
            .collect();
        assert_eq!(found, state, "kill {kill}");
        last = listed.revision;
        store.close().await;
        drop(store);
        verify(&dir.path().join("store.db")).expect("every page and every checksum is sound");
    }
    println!("{kills} kills, {total} acknowledged writes, none lost");
    assert!(total > 0, "the writers were killed before they wrote anything: nothing was tested");
}
