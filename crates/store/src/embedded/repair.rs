//! Repair of a damaged store: a new file with everything that can be read, and the rest set aside.
//!
//! The new file has the current value of each key, byte for byte with its revision and checksum, and no history. As after
//! a restore, the revision counter skips ahead, so that every client lists again. A key whose newest change cannot be read
//! is not replaced by an older value: it is set aside. The damaged file stays in the directory under another name.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use machinery::Revision;
use machinery::clock::Clock;
use machinery::json::{Value, json};
use rusqlite::{Connection, OptionalExtension};

use super::check::{self, Damage};
use super::fault::Fault;
use super::ledger::{Collection, State};
use super::lock::DirectoryLock;
use super::row::{ByRevision, Tally};
use super::session::SKIPPED_REVISIONS;
use super::{Durability, inaccessible, schema};
use crate::error::OpenError;
use crate::key::Key;

/// The result of a repair.
#[derive(Clone, Debug, Default)]
pub struct Repaired {
    /// All damage that was found. If there is none, nothing was changed.
    pub damage: Vec<Damage>,
    /// Objects in the repaired store.
    pub objects: u64,
    /// Objects that were set aside.
    pub set_aside: Vec<SetAside>,
    /// Rows that were written once and are not found at all.
    pub missing: u64,
    /// The file with the objects that were set aside, and the damaged store.
    pub files: Option<(PathBuf, PathBuf)>,
}

/// A value that could not be read as it was written.
#[derive(Clone, Debug)]
pub struct SetAside {
    pub key: String,
    pub revision: Revision,
    pub reason: String,
    /// The bytes as they are in the file, if they can be read at all.
    value: Option<Vec<u8>>,
}

/// The newest known change of a key.
#[derive(Clone, Copy)]
struct Newest {
    revision: Revision,
    size: i64,
}

/// Repairs the store in `dir`. Refused while a server has it open.
pub fn repair_directory(dir: &Path, clock: &Clock) -> Result<Repaired, OpenError> {
    let path = schema::database(dir);
    path.metadata().map_err(inaccessible(&path))?;
    let _lock = DirectoryLock::take(dir)?;
    copy_log(&path).map_err(|fault| fault.into_open_error(&path))?;
    let old = check::open(&path)?;
    let (_, damage) = check::check(&old);
    if damage.is_empty() {
        return Ok(Repaired::default());
    }
    let salvaged = salvage(&old, &make_partial(dir)?)?;
    drop(old);
    publish(dir, damage, salvaged, clock)
}

/// Rebuilds the rows that only count and number others, `state` and `collections`, from what they count. Returns `None` and
/// changes nothing if anything else is damaged: then it is not certain that all objects would be kept.
pub(super) fn rebuild_counts(dir: &Path, clock: &Clock) -> Result<Option<Repaired>, OpenError> {
    let path = schema::database(dir);
    copy_log(&path).map_err(|fault| fault.into_open_error(&path))?;
    let old = check::open(&path)?;
    let (_, damage) = check::check(&old);
    let only_counts = damage.iter().all(|damage| matches!(damage.table, "state" | "collections"));
    if damage.is_empty() || !only_counts || !is_complete(&old) {
        return Ok(None);
    }
    let salvaged = salvage(&old, &make_partial(dir)?)?;
    drop(old);
    if salvaged.missing > 0 || !salvaged.set_aside.is_empty() {
        return Ok(None);
    }
    publish(dir, damage, salvaged, clock).map(Some)
}

/// Whether the key index and the changes name the same rows: what `state` would prove otherwise.
fn is_complete(old: &Connection) -> bool {
    let (mut indexed, mut stored) = (Tally::default(), Tally::default());
    let index = check::for_each_index_row(old, |key, revision, size| indexed.add(key, revision, size));
    let changes = check::for_each_change(old, |key, revision, size| stored.add(key, revision, size));
    index.is_ok() && changes && indexed == stored
}

/// The empty file that is to replace the store.
fn make_partial(dir: &Path) -> Result<PathBuf, OpenError> {
    let partial = dir.join("store.db.partial");
    for suffix in ["", "-wal", "-shm"] {
        let _ = std::fs::remove_file(super::with_suffix(&partial, suffix));
    }
    super::make_private(&partial)?;
    Ok(partial)
}

/// Puts the new file in place of the damaged one, which stays under another name.
fn publish(dir: &Path, damage: Vec<Damage>, salvaged: Repaired, clock: &Clock) -> Result<Repaired, OpenError> {
    let (path, partial) = (schema::database(dir), dir.join("store.db.partial"));
    let stamp = clock.now().strftime("%Y%m%dT%H%M%SZ").to_string();
    let (list, kept) = (dir.join(format!("damaged-{stamp}.json")), dir.join(format!("damaged-{stamp}.db")));
    write_list(&list, &damage, &salvaged.set_aside).map_err(inaccessible(&list))?;
    // The damaged file keeps a name at every moment, and the log is empty, so that an interruption leaves one of the two.
    let published = File::open(&partial)
        .and_then(|file| file.sync_all())
        .and_then(|()| std::fs::hard_link(&path, &kept))
        .and_then(|()| std::fs::rename(&partial, &path))
        .and_then(|()| File::open(dir)?.sync_all());
    published.map_err(inaccessible(&path))?;
    Ok(Repaired { damage, files: Some((list, kept)), ..salvaged })
}

/// Copies the write-ahead log into the database file and removes it.
fn copy_log(path: &Path) -> Result<(), Fault> {
    let connection = schema::open_checkpointer(path).or_else(|_| Connection::open(path).map_err(Fault::from))?;
    let busy: i64 = connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", (), |row| row.get(0))?;
    if busy != 0 {
        return Err(Fault::Moved("its log is in use by another program".to_owned()));
    }
    Ok(())
}

/// Writes everything that can be read to the new file `to`.
fn salvage(old: &Connection, to: &Path) -> Result<Repaired, OpenError> {
    let new = schema::open_writer(to, Durability::Full)?;
    let salvaged = (|| {
        let state = State::read(old).ok();
        let (newest, rows, highest) = newest_changes(old, state);
        let mut repaired = Repaired::default();
        if let Some(state) = state {
            repaired.missing = u64::try_from(state.tally.rows).unwrap_or(0).saturating_sub(rows);
        }
        let transaction = new.unchecked_transaction()?;
        let tally = copy_values(old, &transaction, &newest, &mut repaired)?;
        let last = state.map_or(highest, |state| state.revision.max(highest));
        let revision = Revision(last.0 + SKIPPED_REVISIONS);
        let state = State { revision, floor: revision, tally };
        transaction.execute(
            "UPDATE state SET revision = ?1, floor = ?1, rows = ?2, digest = ?3, sum = ?4 WHERE id = 1",
            (revision.0 as i64, tally.rows, tally.digest, state.sum()),
        )?;
        transaction.execute(
            "INSERT OR REPLACE INTO session (id, boot, durability, clean) VALUES (1, '', ?1, 1)",
            (Durability::Full.synchronous(),),
        )?;
        transaction.commit()?;
        new.query_row("PRAGMA wal_checkpoint(TRUNCATE)", (), |_| Ok(()))?;
        Ok(repaired)
    })();
    let salvaged = salvaged.map_err(|fault: Fault| fault.into_open_error(to));
    if let Err((_, error)) = new.close() {
        return Err(Fault::from(error).into_open_error(to));
    }
    salvaged
}

/// The newest change of each key, from the key index and, if that is damaged, also from the changes themselves. Returns
/// them with the number of rows found and the highest revision.
fn newest_changes(old: &Connection, state: Option<State>) -> (BTreeMap<String, Newest>, u64, Revision) {
    let mut tally = Tally::default();
    let mut indexed: Vec<(String, Newest)> = Vec::new();
    let whole = check::for_each_index_row(old, |key, revision, size| {
        tally.add(key, revision, size);
        indexed.push((key.to_owned(), Newest { revision, size }));
    });
    let trusted = whole.is_ok() && state.is_some_and(|state| state.tally == tally);
    let mut newest: BTreeMap<String, Newest> = BTreeMap::new();
    let mut add = |key: String, change: Newest| {
        let known = newest.entry(key).or_insert(change);
        if change.revision > known.revision {
            *known = change;
        }
    };
    let highest = |changes: &BTreeMap<String, Newest>| changes.values().map(|change| change.revision).max();
    if trusted {
        let rows = indexed.len() as u64;
        indexed.into_iter().for_each(|(key, change)| add(key, change));
        let last = highest(&newest).unwrap_or_default();
        return (newest, rows, last);
    }
    let mut stored: BTreeMap<Revision, String> = BTreeMap::new();
    let complete = check::for_each_change(old, |key, revision, size| {
        stored.insert(revision, key.to_owned());
        add(key.to_owned(), Newest { revision, size });
    });
    let limit = state.map(|state| state.revision).or_else(|| stored.keys().next_back().copied()).unwrap_or_default();
    let mut rows = stored.len() as u64;
    for (key, change) in indexed {
        // A row of a damaged index counts only if the change that it names may exist and is not another one.
        let is_new = change.revision <= limit && !stored.contains_key(&change.revision);
        if is_new && !complete && Key::new(&*key).is_ok() {
            rows += 1;
            add(key, change);
        }
    }
    let last = highest(&newest).unwrap_or_default();
    (newest, rows, last)
}

/// Copies the current value of each key, and sets aside those that are damaged. Returns the tally of the copies.
fn copy_values(
    old: &Connection,
    new: &Connection,
    newest: &BTreeMap<String, Newest>,
    repaired: &mut Repaired,
) -> Result<Tally, Fault> {
    let mut changes = ByRevision::prepare(old)?;
    let mut row = old.prepare("SELECT previous, prior, size, sum, value FROM changes WHERE revision = ?1")?;
    let mut insert = new.prepare(
        "INSERT INTO changes (revision, key, previous, prior, size, sum, value) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
    )?;
    let mut collections: BTreeMap<String, Collection> = BTreeMap::new();
    let mut tally = Tally::default();
    for (key, Newest { revision, size }) in newest.iter().filter(|(_, change)| !check::is_delete(change.size)) {
        if let Err(fault) = check::check_change(&mut changes, key, *revision, *size) {
            let value = raw_value(old, *revision);
            let reason = fault.to_string();
            repaired.set_aside.push(SetAside { key: key.clone(), revision: *revision, reason, value });
            continue;
        }
        let name = Key::new(key.as_str()).map_err(|error| Fault::Corrupt(error.to_string()))?.collection().to_owned();
        let id = collections.len() as i64 + 1;
        collections.entry(name).or_insert(Collection { id, ..Collection::default() });
        let mut rows = row.query((revision.0 as i64,))?;
        let found = rows.next()?.ok_or_else(|| Fault::Corrupt(format!("{key} is missing")))?;
        let (previous, prior, sum): (i64, i64, i64) = (found.get(0)?, found.get(1)?, found.get(3)?);
        let value = found.get_ref(4)?.as_blob().map_err(rusqlite::Error::from)?;
        insert.execute((revision.0 as i64, key, previous, prior, size, sum, value))?;
        tally.add(key, *revision, *size);
        repaired.objects += 1;
    }
    let mut insert = new.prepare("INSERT INTO collections (id, name, floor, sum) VALUES (?1, ?2, 0, ?3)")?;
    for (name, collection) in collections {
        insert.execute((collection.id, &name, collection.sum(&name)))?;
    }
    Ok(tally)
}

/// The bytes of a damaged value, if they can be read.
fn raw_value(old: &Connection, revision: Revision) -> Option<Vec<u8>> {
    let read = old.query_row("SELECT value FROM changes WHERE revision = ?1", (revision.0 as i64,), |row| {
        row.get::<_, Option<Vec<u8>>>(0)
    });
    read.optional().ok().flatten().flatten()
}

/// Writes the damage and the values that were set aside to a new file, for its owner alone.
fn write_list(to: &Path, damage: &[Damage], set_aside: &[SetAside]) -> std::io::Result<()> {
    let damage: Vec<Value> = damage.iter().map(|damage| Value::from(damage.to_string())).collect();
    let values: Vec<Value> = set_aside
        .iter()
        .map(|value| {
            // Objects are JSON text; damage may have made it another text, or none.
            let bytes = value.value.as_deref().unwrap_or_default();
            json!({
                "key": value.key.clone(),
                "revision": value.revision.0,
                "reason": value.reason.clone(),
                "readable": value.value.is_some(),
                "text": String::from_utf8_lossy(bytes).into_owned(),
                "hex": bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>(),
            })
        })
        .collect();
    let content = json!({"damage": damage, "values": values}).to_string();
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(to)?;
    file.write_all(content.as_bytes())?;
    file.sync_all()
}
