//! Faults of the embedded store: full or failing disk, damaged bytes, a second process, files of other programs.

#[path = "writer/load.rs"]
mod load;

use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use store::embedded::{EmbeddedOptions, EmbeddedStore, restore, verify};
use store::error::OpenError;
use store::{Key, ListQuery, Prefix, ReadError, Revision, Snapshot, Store, WatchError, WriteError};

const WRITER: &str = env!("CARGO_BIN_EXE_store-writer");

fn open(dir: &Path) -> Result<EmbeddedStore, OpenError> {
    EmbeddedStore::open(EmbeddedOptions::new(dir))
}

fn refusal(dir: &Path) -> OpenError {
    match open(dir) {
        Ok(_) => panic!("{} opened", dir.display()),
        Err(error) => error,
    }
}

fn key(text: &str) -> Key {
    Key::new(text).expect("well formed")
}

fn lines(output: &Output) -> Vec<String> {
    String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect()
}

/// Runs the writer under `strace`, which `cargo xtask tools` installs.
fn traced(strace: &[&str], writer: &[&str]) -> Output {
    let output = Command::new("strace").arg("-f").args(strace).arg("--").arg(WRITER).args(writer).output();
    output.expect("this test needs strace in the PATH: `cargo xtask tools` installs it")
}

#[test]
fn the_acknowledgement_comes_after_the_sync() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let trace = dir.path().join("trace");
    let data = dir.path().join("data");
    let (trace_name, data_name) = (trace.display().to_string(), data.display().to_string());
    let output = traced(
        &["-y", "-e", "trace=pwrite64,write,fsync,fdatasync", "-e", "signal=none", "-o", &trace_name],
        &["puts", &data_name, "40"],
    );
    assert!(output.status.success(), "{output:?}");
    let text = std::fs::read_to_string(&trace).expect("strace wrote its trace");

    // Whether the log has unsynced writes, in the order in which the calls returned.
    let (mut unsynced, mut syncs, mut acknowledged) = (false, 0, 0);
    let mut syncing = std::collections::BTreeMap::new();
    for line in text.lines() {
        let (thread, call) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
        let call = call.trim_start();
        let log = call.contains("store.db-wal");
        let sync = call.starts_with("fdatasync(") || call.starts_with("fsync(");
        if call.starts_with("pwrite64(") && log {
            unsynced = true;
        } else if sync && log && call.ends_with("<unfinished ...>") {
            syncing.insert(thread.to_owned(), ());
        } else if (sync && log || call.contains("sync resumed>") && syncing.remove(thread).is_some())
            && call.ends_with("= 0")
        {
            unsynced = false;
            syncs += 1;
        } else if call.starts_with("write(1<") && call.contains("\"ack ") {
            assert!(!unsynced, "acknowledged before its sync: {line}");
            acknowledged += 1;
            assert!(syncs >= acknowledged, "{acknowledged} acknowledgements after {syncs} syncs: {line}");
        }
    }
    assert_eq!(acknowledged, 40, "the trace shows every acknowledgement:\n{text}");
}

#[test]
fn a_failed_sync_stops_all_later_writes_and_loses_nothing_acknowledged() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let data = dir.path().join("data").display().to_string();
    // Counted for each thread; the writer thread makes its fifteenth sync in the middle of the run.
    let output = traced(
        &["-e", "trace=fsync,fdatasync", "-e", "inject=fsync,fdatasync:error=EIO:when=15+", "-o", "/dev/null"],
        &["until-error", &data, "40"],
    );
    let printed = lines(&output);
    let acknowledged: Vec<u32> = printed
        .iter()
        .filter_map(|line| line.strip_prefix("ack "))
        .map(|number| number.parse().expect("a number"))
        .collect();
    let errors: Vec<&String> = printed.iter().filter(|line| line.starts_with("error ")).collect();
    assert!(!acknowledged.is_empty() && acknowledged.len() < 40, "{printed:?}");
    let failed = acknowledged.len() as u32;
    assert_eq!(acknowledged, (0..failed).collect::<Vec<_>>(), "nothing is acknowledged after the failure");
    assert_eq!(errors[0], &format!("error {failed} unknown"), "the write whose sync failed may be there or not");
    assert_eq!(errors.len() as u32, 40 - failed);
    assert!(errors[1..].iter().all(|line| line.ends_with(" poisoned")), "{errors:?}");
    assert!(printed.contains(&format!("readable {failed}")), "reads go on: {printed:?}");

    let store = open(Path::new(&data)).expect("a poisoned store can be opened again");
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let listed = runtime.block_on(store.list(ListQuery::default())).expect("readable");
    let found = listed.entries.len() as u32;
    assert!(found == failed || found == failed + 1, "{found} entries after {failed} acknowledgements");
    for number in acknowledged {
        let entry = runtime.block_on(store.get(&key(&format!("core/pods/a/{number}")))).expect("readable");
        assert_eq!(entry.expect("acknowledged").value, load::value(u64::from(number) * 2 + 1));
    }
}

/// Writes that share a transaction with one that SQLite refuses are lost with it, before or after it in the group.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_write_of_a_failed_group_is_acknowledged() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let store = open(dir.path()).expect("opens");
    let first = store.create(key("core/pods/a/first"), "0".into()).await.expect("written");
    let file = rusqlite::Connection::open(dir.path().join("store.db")).expect("the file can be opened");
    file.execute_batch(
        "CREATE TRIGGER refusal BEFORE INSERT ON changes WHEN NEW.key LIKE '%/bad-%'
         BEGIN SELECT RAISE(ABORT, 'refused by the test'); END",
    )
    .expect("a trigger");

    let (mut acknowledged, mut lost_with_others) = (std::collections::BTreeMap::new(), 0);
    for round in 0..20 {
        let names = (0..24).map(|n| format!("core/pods/a/{}-{round}-{n}", if n % 12 == 5 { "bad" } else { "good" }));
        let writes = names.map(|name| async { (store.create(key(&name), "1".into()).await, name) });
        for (result, name) in futures::future::join_all(writes).await {
            match result {
                Ok(revision) => {
                    assert!(!name.contains("bad") && revision > first, "{name} at {revision}");
                    assert!(acknowledged.insert(revision, name).is_none(), "{revision} was assigned twice");
                }
                Err(WriteError::Unavailable(_)) => lost_with_others += usize::from(name.contains("good")),
                Err(error) => panic!("{name}: {error}"),
            }
        }
    }
    assert!(lost_with_others > 0, "no group had a refused write and another one");

    file.execute_batch("DROP TRIGGER refusal").expect("the trigger is there");
    let last = store.create(key("core/pods/a/last"), "2".into()).await.expect("writes go on");
    acknowledged.insert(first, "core/pods/a/first".to_owned());
    acknowledged.insert(last, "core/pods/a/last".to_owned());
    let present = async |store: &EmbeddedStore| {
        let listed = store.list(ListQuery::default()).await.expect("readable");
        let entries = listed.entries.into_iter();
        entries
            .map(|entry| (entry.revision, entry.key.as_str().to_owned()))
            .collect::<std::collections::BTreeMap<_, _>>()
    };
    assert_eq!(present(&store).await, acknowledged);
    let stats = store.stats().await.expect("readable");
    assert_eq!((stats.objects, stats.revision), (acknowledged.len() as u64, last));
    store.close().await;
    drop((store, file));
    let store = open(dir.path()).expect("the index matches its tally");
    assert_eq!(present(&store).await, acknowledged);
}

#[test]
fn a_full_disk_refuses_writes_and_goes_on_once_there_is_room() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    // A filesystem of six megabytes in a mount namespace of its own, which ends with the process.
    let script = "mount -t tmpfs -o size=6m none \"$1\" && dd if=/dev/zero of=\"$1/ballast\" bs=1k count=4096 2>&1 \
                  && exec \"$2\" fill \"$1\"";
    let output = Command::new("unshare")
        .args(["--mount", "--map-root-user", "sh", "-c", script, "sh"])
        .arg(dir.path())
        .arg(WRITER)
        .output()
        .expect("this test needs unshare of util-linux");
    let printed = lines(&output);
    assert!(output.status.success(), "{printed:?} {}", String::from_utf8_lossy(&output.stderr));
    assert!(printed.iter().any(|line| line.starts_with("end ")), "{printed:?}");
}

/// Creates and closes a store with some hundred changes. Returns its list, and the watch of all its history.
async fn sample(dir: &Path) -> (Snapshot, Vec<store::Change>) {
    let store = open(dir).expect("an empty directory opens");
    let mut revisions = Vec::new();
    for number in 0..120_u64 {
        let name = key(&format!("core/pods/{}/{number:03}", number % 3));
        // Short, so that damage also hits the bytes between values.
        let value = load::value(number).slice(..(200 + number as usize * 7).min(load::value(number).len()));
        revisions.push((name.clone(), store.create(name, value).await.expect("free")));
    }
    for (name, revision) in revisions.iter().step_by(3) {
        store.update(name.clone(), load::value(revision.0), *revision).await.expect("current");
    }
    for (name, revision) in revisions.iter().skip(1).step_by(6) {
        store.delete(name.clone(), *revision).await.expect("current");
    }
    let truth = everything(&store).await.expect("nothing is damaged yet");
    store.close().await;
    truth
}

async fn everything(store: &EmbeddedStore) -> Result<(Snapshot, Vec<store::Change>), String> {
    let listed = store.list(ListQuery::default()).await.map_err(|error| match error {
        ReadError::Corrupt(what) => what,
        other => panic!("damage must be called damage: {other}"),
    })?;
    let mut watch = store.watch(Prefix::everything(), Revision::ZERO).await.map_err(|error| error.to_string())?;
    let (mut changes, mut reached) = (Vec::new(), Revision::ZERO);
    while reached < listed.revision {
        let batch = watch.next().await.expect("open").map_err(|error| match error {
            WatchError::Corrupt(what) => what,
            other => panic!("damage must be called damage: {other}"),
        })?;
        changes.extend(batch.changes);
        reached = batch.revision;
    }
    Ok((listed, changes))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_damaged_page_is_detected_and_named_never_read_as_something_else() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let good = dir.path().join("good");
    let truth = sample(&good).await;
    let bytes = std::fs::read(good.join("store.db")).expect("readable");
    verify(&good.join("store.db")).expect("sound");

    // The same damage in every run, unless more trials are configured.
    let trials = std::env::var("DOGWATCH_TORTURE_PAGES").ok().map_or(300, |trials| trials.parse().expect("a number"));
    let mut rng = SmallRng::seed_from_u64(20);
    let (mut refused, mut named) = (0, 0);
    for trial in 0..trials {
        let bad = dir.path().join(format!("bad-{trial}"));
        std::fs::create_dir(&bad).expect("a new directory");
        let mut damaged = bytes.clone();
        // A few adjacent bytes anywhere after the first page; damage in that page makes the file unrecognizable.
        let at = rng.random_range(4096..damaged.len() - 8);
        for byte in &mut damaged[at..at + rng.random_range(1..8)] {
            *byte ^= rng.random_range(1..=255_u8);
        }
        std::fs::write(bad.join("store.db"), &damaged).expect("writable");
        match open(&bad) {
            Err(OpenError::Corrupt { path, reason }) => {
                assert!(path.ends_with("store.db") && !reason.is_empty());
                refused += 1;
            }
            Err(other) => panic!("trial {trial} at {at}: damage must be called damage: {other}"),
            Ok(store) => match everything(&store).await {
                Ok(found) => assert!(found == truth, "trial {trial}: damage at {at} was read as something else"),
                Err(what) => {
                    assert!(!what.is_empty());
                    named += 1;
                }
            },
        }
        std::fs::remove_dir_all(&bad).expect("removable");
    }
    println!("{trials} damaged files: {refused} refused at open, {named} named when read, the rest unharmed");
    assert!(refused > 0 && named > 0, "{refused} refused, {named} named");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_damaged_value_is_named_by_its_key_and_harms_no_other() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    {
        let store = open(dir.path()).expect("opens");
        store.create(key("core/secrets/a/good"), "good value".into()).await.expect("free");
        store.create(key("core/secrets/a/bad"), "NEEDLE in the file".into()).await.expect("free");
        store.close().await;
    }
    let file = dir.path().join("store.db");
    let mut bytes = std::fs::read(&file).expect("readable");
    let at = bytes.windows(6).position(|window| window == b"NEEDLE").expect("values are stored as they are");
    bytes[at] ^= 1;
    std::fs::write(&file, bytes).expect("writable");

    let store = open(dir.path()).expect("a store with one damaged value opens");
    let good = store.get(&key("core/secrets/a/good")).await.expect("readable").expect("present");
    assert_eq!(&good.value[..], b"good value");
    let bad = store.get(&key("core/secrets/a/bad")).await;
    let Err(ReadError::Corrupt(what)) = bad else { panic!("{bad:?}") };
    assert!(what.contains("core/secrets/a/bad") && what.contains("revision 2"), "{what}");
    let refused = store.delete(key("core/secrets/a/bad"), Revision(2)).await.expect_err("its content is not known");
    assert!(refused.to_string().contains("checksum"), "{refused}");
    store.create(key("core/secrets/a/next"), "goes on".into()).await.expect("writes go on");
    drop(store);
    let error = verify(&file).expect_err("damaged");
    assert!(matches!(error, OpenError::Corrupt { .. }) && error.to_string().contains("revision 2"), "{error}");
}

#[test]
fn a_second_process_is_refused_and_told_by_whom() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let mut holder = Command::new(WRITER)
        .args(["hold", &dir.path().display().to_string()])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the holder starts");
    let mut printed = String::new();
    BufReader::new(holder.stdout.as_mut().expect("piped")).read_line(&mut printed).expect("readable");
    assert_eq!(printed, "open\n");
    for _ in 0..2 {
        let error = refusal(dir.path());
        assert!(matches!(error, OpenError::Locked { .. }), "{error}");
        assert!(error.to_string().contains(&format!("pid {}", holder.id())), "{error}");
    }
    drop(holder.stdin.take());
    assert!(holder.wait().expect("ends").success());
    let store = open(dir.path()).expect("free again");
    assert!(matches!(refusal(dir.path()), OpenError::Locked { .. }), "this process counts too");
    drop(store);
    open(dir.path()).expect("free again");
}

#[test]
fn a_directory_without_rights_is_refused_with_a_reason() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let file = dir.path().join("file");
    std::fs::write(&file, "not a directory").expect("writable");
    let error = refusal(&file.join("data"));
    assert!(matches!(error, OpenError::Inaccessible { .. }), "{error}");

    let data = dir.path().join("data");
    std::fs::create_dir(&data).expect("a new directory");
    std::fs::set_permissions(&data, std::fs::Permissions::from_mode(0o500)).expect("permitted");
    if std::fs::write(data.join("probe"), "").is_err() {
        let error = refusal(&data);
        assert!(matches!(error, OpenError::Inaccessible { .. }), "{error}");
        assert!(error.to_string().contains("denied"), "{error}");
    } else {
        // Permissions do not apply to root, so an unprivileged user tries.
        use std::os::unix::process::CommandExt;
        std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o755)).expect("permitted");
        let writer = dir.path().join("writer");
        std::fs::copy(WRITER, &writer).expect("copied to a place where user nobody may run it");
        let data = data.display().to_string();
        let output = Command::new(writer)
            .args(["hold", &data])
            .uid(65534)
            .gid(65534)
            .stdin(Stdio::null())
            .output()
            .expect("runs");
        let printed = String::from_utf8_lossy(&output.stderr);
        assert!(
            !output.status.success() && printed.contains("cannot be used") && printed.contains("denied"),
            "{printed}"
        );
    }
}

#[tokio::test]
async fn other_files_are_refused_and_left_alone() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let file = dir.path().join("store.db");
    std::fs::File::create(&file).and_then(|mut file| file.write_all(&[b'x'; 9000])).expect("writable");
    assert!(matches!(refusal(dir.path()), OpenError::Foreign { .. }));
    assert_eq!(std::fs::read(&file).expect("readable"), [b'x'; 9000]);

    std::fs::remove_file(&file).expect("permitted");
    let other = rusqlite::Connection::open(&file).expect("a database of another program");
    other.execute_batch("CREATE TABLE theirs (x); INSERT INTO theirs VALUES (1);").expect("writable");
    drop(other);
    let before = std::fs::read(&file).expect("readable");
    let error = refusal(dir.path());
    assert!(matches!(error, OpenError::Foreign { .. }), "{error}");
    assert_eq!(std::fs::read(&file).expect("readable"), before, "not a byte is changed");

    std::fs::remove_file(&file).expect("permitted");
    open(dir.path()).expect("opens").close().await;
    let newer = rusqlite::Connection::open(&file).expect("opens");
    newer.pragma_update(None, "user_version", 99).expect("writable");
    drop(newer);
    let error = refusal(dir.path());
    assert!(matches!(error, OpenError::Newer { found: 99, .. }), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backup_is_taken_while_writes_go_on_and_restores_to_a_store() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let store = std::sync::Arc::new(open(&dir.path().join("data")).expect("opens"));
    for number in 0..50_u64 {
        store.create(key(&format!("core/pods/a/{number}")), load::value(number)).await.expect("free");
    }
    let before = store.current_revision().await.expect("readable");
    let writing = tokio::spawn({
        let store = store.clone();
        async move {
            for number in 50.. {
                if store.create(key(&format!("core/pods/b/{number}")), load::value(number)).await.is_err() {
                    return;
                }
            }
        }
    });
    let backup = dir.path().join("backup.db");
    store.backup(&backup).await.expect("a backup of a working store");
    let again = store.backup(&backup).await.expect_err("a backup never replaces a file");
    assert!(again.to_string().contains("exists"), "{again}");
    let after = store.current_revision().await.expect("readable");
    store.close().await;
    writing.await.expect("ends when the store closes");

    let copy = dir.path().join("copy");
    let restored = restore(&backup, &copy).expect("a sound backup restores");
    assert!(restored.revision > after, "no revision is given out twice");
    let refused = restore(&backup, &copy).expect_err("not over a store");
    assert!(refused.to_string().contains("not empty"), "{refused}");
    let store = open(&copy).expect("the restored store opens");
    let listed = store.list(ListQuery::prefix(Prefix::new("core/pods/a/"))).await.expect("readable");
    assert_eq!(listed.entries.len(), 50);
    for entry in listed.entries {
        assert!(entry.revision <= before, "objects keep their revisions");
        assert!(load::tag_of(&entry.value).is_some(), "whole");
    }
    let stale = store.watch(Prefix::everything(), after).await.err().expect("clients list again");
    assert!(matches!(stale, WatchError::Compacted { .. }), "{stale}");
    store.create(key("core/pods/c/1"), "goes on".into()).await.expect("writes go on");
    drop(store);

    let mut bytes = std::fs::read(&backup).expect("readable");
    let middle = bytes.len() / 2;
    bytes[middle..middle + 64].fill(0x55);
    let bad = dir.path().join("bad.db");
    std::fs::write(&bad, bytes).expect("writable");
    let refused = restore(&bad, &dir.path().join("never")).expect_err("a damaged backup is not restored");
    assert!(matches!(refused, OpenError::Corrupt { .. }), "{refused}");
    assert!(!dir.path().join("never").exists(), "and leaves nothing behind");
}

/// Flips one bit of every `needle` in the file of a closed store: pages also have remains of cells that were moved.
fn flip(file: &Path, needle: &[u8]) {
    let mut bytes = std::fs::read(file).expect("readable");
    let places: Vec<usize> = (0..bytes.len()).filter(|at| bytes[*at..].starts_with(needle)).collect();
    assert!(!places.is_empty(), "values are stored as they are");
    places.into_iter().for_each(|at| bytes[at] ^= 1);
    std::fs::write(file, bytes).expect("writable");
}

/// Writes three objects, of which the value of `core/secrets/a/bad` is damaged afterwards.
async fn damaged_sample(dir: &Path) {
    let store = open(dir).expect("opens");
    store.create(key("core/secrets/a/good"), "good value".into()).await.expect("free");
    store.create(key("core/secrets/a/bad"), "NEEDLE in the file".into()).await.expect("free");
    store.create(key("core/pods/a/other"), "other value".into()).await.expect("free");
    store.close().await;
    drop(store);
    flip(&dir.join("store.db"), b"NEEDLE");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_list_that_tolerates_damage_has_everything_else_and_names_the_key_and_the_file() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    damaged_sample(dir.path()).await;
    let store = open(dir.path()).expect("opens");
    let refused = store.list(ListQuery::default()).await.expect_err("a list leaves nothing out in silence");
    let text = refused.to_string();
    assert!(text.contains("core/secrets/a/bad") && text.contains("store.db"), "{text}");
    let listed = store.list(ListQuery { tolerate_damage: true, ..ListQuery::default() }).await.expect("readable");
    let names: Vec<&str> = listed.entries.iter().map(|entry| entry.key.as_str()).collect();
    assert_eq!(names, ["core/pods/a/other", "core/secrets/a/good"]);
    let [damaged] = &listed.damaged[..] else { panic!("{:?}", listed.damaged) };
    assert_eq!((damaged.key.as_str(), damaged.revision), ("core/secrets/a/bad", Revision(2)));
    assert!(damaged.reason.contains("store.db"), "{}", damaged.reason);
    let others = store.list(ListQuery::prefix(Prefix::new("core/pods/"))).await.expect("not damaged");
    assert_eq!(others.entries.len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_check_lists_damage_and_a_repair_sets_it_aside() {
    use store::embedded::{check_directory, repair_directory};
    let dir = tempfile::tempdir().expect("a temporary directory");
    let clock = machinery::clock::Clock::system();
    damaged_sample(dir.path()).await;
    let report = check_directory(dir.path()).expect("readable");
    assert_eq!(report.rows, 3);
    let [damage] = &report.damage[..] else { panic!("{:?}", report.damage) };
    assert_eq!((damage.table, damage.key.as_deref()), ("changes", Some("core/secrets/a/bad")));
    assert_eq!(damage.revision, Some(Revision(2)));

    let store = open(dir.path()).expect("opens");
    let refused = repair_directory(dir.path(), &clock).expect_err("the directory is in use");
    assert!(matches!(refused, OpenError::Locked { .. }), "{refused}");
    let before = store.current_revision().await.expect("open");
    store.close().await;
    drop(store);

    let repaired = repair_directory(dir.path(), &clock).expect("repairable");
    assert_eq!((repaired.objects, repaired.missing), (2, 0));
    assert_eq!(repaired.set_aside.iter().map(|value| value.key.as_str()).collect::<Vec<_>>(), ["core/secrets/a/bad"]);
    let (list, kept) = repaired.files.expect("there was damage");
    let mode = list.metadata().expect("written").permissions().mode() & 0o777;
    assert_eq!(mode, 0o600, "values are secret");
    let content = std::fs::read_to_string(&list).expect("text");
    assert!(content.contains("core/secrets/a/bad") && content.contains(" in the file"), "{content}");
    assert!(!check_directory(dir.path()).expect("readable").damage.iter().any(|_| true), "sound");
    assert!(verify(&kept).is_err(), "the damaged file is kept as it was");

    let store = open(dir.path()).expect("the repaired store opens");
    let good = store.get(&key("core/secrets/a/good")).await.expect("readable").expect("kept");
    assert_eq!((good.revision, &good.value[..]), (Revision(1), &b"good value"[..]));
    assert!(store.get(&key("core/secrets/a/bad")).await.expect("readable").is_none(), "set aside");
    let stale = store.watch(Prefix::everything(), before).await.err().expect("clients list again");
    assert!(matches!(stale, WatchError::Compacted { .. }), "{stale}");
    let next = store.create(key("core/secrets/a/bad"), "again".into()).await.expect("the name is free");
    assert!(next > before, "no revision is given out twice");
    store.close().await;
    drop(store);
    assert!(repair_directory(dir.path(), &clock).expect("sound").files.is_none(), "nothing to repair, nothing changed");
}

/// Rows of `state` and `collections` only count others, so that a start rebuilds them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn damaged_counts_are_rebuilt_at_the_next_start() {
    for damage in [
        "UPDATE state SET rows = rows + 1",
        "UPDATE state SET revision = 1",
        "UPDATE state SET digest = 0, sum = 7",
        "DELETE FROM state",
        "UPDATE collections SET floor = 2 WHERE name = 'core/pods'",
        "UPDATE collections SET name = 'core/podz' WHERE name = 'core/pods'",
    ] {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let store = open(dir.path()).expect("opens");
        store.create(key("core/pods/a/one"), "1".into()).await.expect("free");
        store.create(key("core/nodes/n"), "node".into()).await.expect("free");
        store.create(key("core/pods/a/gone"), "3".into()).await.expect("free");
        store.update(key("core/pods/a/one"), "two".into(), Revision(1)).await.expect("as expected");
        let last = store.delete(key("core/pods/a/gone"), Revision(3)).await.expect("as expected");
        store.close().await;
        drop(store);
        let file = rusqlite::Connection::open(dir.path().join("store.db")).expect("a database");
        file.execute_batch(damage).expect(damage);
        file.close().expect("closed");

        let store = open(dir.path()).unwrap_or_else(|refused| panic!("{damage}: {refused}"));
        let listed = store.list(ListQuery::default()).await.expect("readable");
        let found: Vec<_> = listed.entries.iter().map(|entry| (entry.key.as_str(), &entry.value[..])).collect();
        assert_eq!(found, [("core/nodes/n", &b"node"[..]), ("core/pods/a/one", b"two")], "{damage}");
        let stale = store.watch(Prefix::everything(), last).await.err().expect("clients list again");
        assert!(matches!(stale, WatchError::Compacted { .. }), "{damage}: {stale}");
        let next = store.create(key("core/pods/a/new"), "n".into()).await.expect("free");
        assert!(next > last, "{damage}: no revision is given out twice");
        let kept = std::fs::read_dir(dir.path()).expect("a directory").flatten();
        let kept: Vec<_> = kept.map(|file| file.file_name().to_string_lossy().into_owned()).collect();
        assert!(kept.iter().any(|name| name.starts_with("damaged-") && name.ends_with(".db")), "{damage}: {kept:?}");
        store.close().await;
        drop(store);
        verify(&dir.path().join("store.db")).unwrap_or_else(|error| panic!("{damage}: {error}"));
    }
}

/// A count that does not match because objects are missing is no damaged count.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn missing_objects_are_not_taken_for_a_wrong_count() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let store = open(dir.path()).expect("opens");
    store.create(key("core/pods/a/one"), "1".into()).await.expect("free");
    store.create(key("core/pods/a/two"), "2".into()).await.expect("free");
    store.close().await;
    drop(store);
    let file = rusqlite::Connection::open(dir.path().join("store.db")).expect("a database");
    file.execute_batch("DELETE FROM changes WHERE revision = 2").expect("deleted");
    file.close().expect("closed");
    let refused = open(dir.path()).err().expect("refused");
    assert!(matches!(refused, OpenError::Corrupt { .. }), "{refused}");
}

/// Whatever is damaged: after a repair the store opens and has only values that were written.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_repaired_store_has_no_value_that_was_not_current() {
    use store::embedded::repair_directory;
    let dir = tempfile::tempdir().expect("a temporary directory");
    let good = dir.path().join("good");
    let (truth, _) = sample(&good).await;
    let bytes = std::fs::read(good.join("store.db")).expect("readable");
    let clock = machinery::clock::Clock::system();
    let mut rng = SmallRng::seed_from_u64(21);
    let (mut repaired, mut kept) = (0, 0);
    for trial in 0..60 {
        let bad = dir.path().join(format!("bad-{trial}"));
        std::fs::create_dir(&bad).expect("a new directory");
        let mut damaged = bytes.clone();
        let (at, size) = match trial % 3 {
            0 => (rng.random_range(4096..damaged.len() - 1), 1),
            1 => (rng.random_range(4096..damaged.len() - 64), 64),
            _ => (rng.random_range(1..damaged.len() / 4096) * 4096, 4096),
        };
        match size {
            1 => damaged[at] ^= 1 << rng.random_range(0..8),
            size => damaged[at..at + size].fill(0),
        }
        std::fs::write(bad.join("store.db"), &damaged).expect("writable");
        if damaged == bytes {
            continue;
        }
        match repair_directory(&bad, &clock) {
            Ok(done) => {
                repaired += 1;
                let store = open(&bad).unwrap_or_else(|error| panic!("trial {trial} at {at}: {error}"));
                let listed = store.list(ListQuery::default()).await.expect("everything is readable");
                for entry in &listed.entries {
                    assert!(truth.entries.contains(entry), "trial {trial} at {at}: {} was not current", entry.key);
                }
                let lost = truth.entries.len() - listed.entries.len();
                let known = done.set_aside.len() as u64 + done.missing;
                assert!(lost as u64 <= known, "trial {trial} at {at}: {lost} lost, {known} named");
                kept += listed.entries.len();
            }
            Err(error) => assert!(error.to_string().contains("store.db"), "{error}"),
        }
        std::fs::remove_dir_all(&bad).expect("removable");
    }
    assert!(repaired > 40 && kept > repaired * truth.entries.len() / 2, "{repaired} repaired, {kept} objects kept");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_write_to_a_removed_or_replaced_directory_is_not_acknowledged() {
    for replaced in [false, true] {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let data = dir.path().join("data");
        let store = open(&data).expect("opens");
        store.create(key("core/pods/a/before"), "0".into()).await.expect("written");
        assert!(store.health().await.iter().all(|check| check.problem.is_none()));
        std::fs::rename(&data, dir.path().join("elsewhere")).expect("permitted");
        if replaced {
            open(&data).expect("a new store").close().await;
        }
        let refused = store.create(key("core/pods/a/after"), "1".into()).await.expect_err("not acknowledged");
        assert!(matches!(&refused, WriteError::Poisoned(reason) if reason.contains("store.db")), "{refused}");
        let health = store.health().await;
        let failed: Vec<_> = health.iter().filter(|check| check.problem.is_some()).collect();
        let [check] = &failed[..] else { panic!("{health:?}") };
        assert_eq!(check.name, "store-directory");
        assert!(check.problem.as_ref().is_some_and(|problem| problem.needs_restart));
        if let Ok(read) = store.get(&key("core/pods/a/before")).await {
            assert_eq!(read.expect("a read is of the old store, or fails").value, "0");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_removed_log_is_noticed_by_the_health_check_alone() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let store = open(dir.path()).expect("opens");
    std::fs::remove_file(dir.path().join("store.db-wal")).expect("permitted");
    let health = store.health().await;
    assert!(health.iter().any(|check| check.name == "store-directory" && check.problem.is_some()), "{health:?}");
}

/// Compaction of the other collections goes on, and a deleted object does not return.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn damage_in_the_history_of_one_collection_stops_the_compaction_of_no_other() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let store = open(dir.path()).expect("opens");
    for collection in ["core/secrets", "core/pods"] {
        let name = key(&format!("{collection}/a/victim"));
        let first = store.create(name.clone(), format!("NEEDLE {collection}").into()).await.expect("free");
        let second = store.update(name.clone(), "second".into(), first).await.expect("current");
        store.delete(name, second).await.expect("current");
    }
    store.close().await;
    drop(store);
    let file = dir.path().join("store.db");
    let mut bytes = std::fs::read(&file).expect("readable");
    let value = bytes.windows(19).position(|window| window == b"NEEDLE core/secrets").expect("stored as it is");
    let name = bytes[..value].windows(6).rposition(|window| window == b"victim").expect("the key is before the value");
    assert!(value - name < 32, "of the same row");
    bytes[name] ^= 1;
    std::fs::write(&file, bytes).expect("writable");

    let store = open(dir.path()).expect("opens");
    let now = store.create(key("core/nodes/n"), "1".into()).await.expect("free");
    store.compact(now).await.expect("the others are compacted");
    let stats = store.stats().await.expect("open");
    assert_eq!((stats.objects, stats.history), (1, 3), "only the damaged collection keeps its history");
    store.close().await;
    drop(store);
    let store = open(dir.path()).expect("the index still matches its tally");
    let listed = store.list(ListQuery::default()).await.expect("nothing current is damaged");
    assert_eq!(listed.entries.iter().map(|entry| entry.key.as_str()).collect::<Vec<_>>(), ["core/nodes/n"]);
}
