//! A complete check of a data directory: every table, every checksum, every index row.
//!
//! It reads the file as it is and stops at nothing: damage in one place does not hide damage in another.

use std::path::{Path, PathBuf};

use machinery::Revision;
use rusqlite::{Connection, OpenFlags};

use super::compaction::HistoryRow;
use super::fault::Fault;
use super::ledger::{self, Ledger, State};
use super::row::{ByRevision, DELETED, StoredChange, StoredRow, revision};
use super::{inaccessible, schema};
use crate::error::OpenError;

/// Structural problems that SQLite lists at most.
const STRUCTURE_PROBLEMS_MAX: u32 = 100;

/// The result of a check.
#[derive(Clone, Debug)]
pub struct CheckReport {
    /// The file that was checked.
    pub path: PathBuf,
    /// Rows of the key index: current values, replaced values and deletes.
    pub rows: u64,
    pub damage: Vec<Damage>,
}

/// One damaged place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// The table or index; `pages` is the structure of the file.
    pub table: &'static str,
    pub key: Option<String>,
    pub revision: Option<Revision>,
    pub reason: String,
}

impl Damage {
    fn of(table: &'static str, fault: &Fault) -> Self {
        Damage { table, key: None, revision: None, reason: fault.to_string() }
    }
}

impl std::fmt::Display for Damage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "table {}", self.table)?;
        if let Some(key) = &self.key {
            write!(f, ", key {key}")?;
        }
        if let Some(revision) = self.revision {
            write!(f, ", revision {revision}")?;
        }
        write!(f, ": {}", self.reason)
    }
}

/// Checks the store in `dir`. A server may be running on it.
pub fn check_directory(dir: &Path) -> Result<CheckReport, OpenError> {
    let path = schema::database(dir);
    let connection = open(&path)?;
    let (rows, damage) = check(&connection);
    Ok(CheckReport { path, rows, damage })
}

/// Opens an existing store to read it.
pub(super) fn open(path: &Path) -> Result<Connection, OpenError> {
    let metadata = path.metadata().map_err(inaccessible(path))?;
    if !metadata.is_file() {
        let reason = "it is not a file".to_owned();
        return Err(OpenError::Inaccessible { path: path.display().to_string(), reason });
    }
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection =
        Connection::open_with_flags(path, flags).map_err(|error| Fault::from(error).into_open_error(path))?;
    if schema::identify(&connection, path)? {
        let reason = "it is empty".to_owned();
        return Err(OpenError::Foreign { path: path.display().to_string(), reason });
    }
    // One transaction, so that a server that writes meanwhile is no damage.
    connection.execute_batch("BEGIN").map_err(|error| Fault::from(error).into_open_error(path))?;
    Ok(connection)
}

/// Returns the number of index rows and the damage.
pub(super) fn check(connection: &Connection) -> (u64, Vec<Damage>) {
    let mut damage = Vec::new();
    let mut add = |table, result: Result<(), Fault>| {
        if let Err(fault) = result {
            damage.push(Damage::of(table, &fault));
        }
    };
    let mut structure = Vec::new();
    add("pages", check_structure(connection, &mut structure));
    let state = State::read(connection);
    add("state", state.as_ref().map(drop).map_err(|fault| Fault::Corrupt(fault.to_string())));
    let mut rows_damaged = Vec::new();
    add("collections", check_collections(connection, &mut rows_damaged));
    add("history", check_history(connection, &mut rows_damaged));
    let index = check_index(connection);
    let mut read = 0;
    add("changes", check_changes(connection, &mut read, &mut rows_damaged));
    if state.is_ok() && !rows_damaged.iter().any(|damage: &Damage| damage.table == "collections") {
        add("changes_by_key", index);
    }
    damage.extend(structure);
    damage.extend(rows_damaged);
    (read, damage)
}

fn check_structure(connection: &Connection, damage: &mut Vec<Damage>) -> Result<(), Fault> {
    let mut statement = connection.prepare(&format!("PRAGMA integrity_check({STRUCTURE_PROBLEMS_MAX})"))?;
    let mut rows = statement.query(())?;
    while let Some(row) = rows.next()? {
        let reason: String = row.get(0)?;
        if reason != "ok" {
            damage.push(Damage { table: "pages", key: None, revision: None, reason });
        }
    }
    Ok(())
}

fn check_collections(connection: &Connection, damage: &mut Vec<Damage>) -> Result<(), Fault> {
    let mut statement = connection.prepare("SELECT id, name, floor, sum FROM collections")?;
    let mut rows = statement.query(())?;
    while let Some(row) = rows.next()? {
        if let Err(fault) = ledger::read_collection(row) {
            damage.push(Damage::of("collections", &fault));
        }
    }
    Ok(())
}

fn check_history(connection: &Connection, damage: &mut Vec<Damage>) -> Result<(), Fault> {
    let mut statement =
        connection.prepare("SELECT revision, previous, bytes, deletes, sum, collection FROM history")?;
    let mut rows = statement.query(())?;
    while let Some(row) = rows.next()? {
        let checked = (|| {
            let bytes: i64 = row.get(2)?;
            let at = revision(row, 0)?;
            let found =
                HistoryRow { at, previous: revision(row, 1)?, bytes: bytes.max(0) as u64, deletes: row.get(3)? };
            let is_same = row.get::<_, u32>(4)? == found.sum(row.get(5)?);
            if is_same { Ok(()) } else { Err(Fault::Corrupt("the row does not match its checksum".to_owned())) }
        })();
        if let Err(fault) = checked {
            let revision = revision(row, 0).ok();
            damage.push(Damage { revision, ..Damage::of("history", &fault) });
        }
    }
    Ok(())
}

/// Checks the order of the key index, and its rows against the tally.
fn check_index(connection: &Connection) -> Result<(), Fault> {
    Ledger::load(connection).map(drop)
}

/// Checks every change that the key index names.
fn check_changes(connection: &Connection, read: &mut u64, damage: &mut Vec<Damage>) -> Result<(), Fault> {
    let mut changes = ByRevision::prepare(connection)?;
    for_each_index_row(connection, |key, at, size| {
        *read += 1;
        if let Err(fault) = check_change(&mut changes, key, at, size) {
            let key = Some(key.to_owned());
            damage.push(Damage { table: "changes", key, revision: Some(at), reason: fault.to_string() });
        }
    })
}

/// Checks one change against the row of the index that names it.
pub(super) fn check_change(changes: &mut ByRevision<'_>, key: &str, at: Revision, size: i64) -> Result<(), Fault> {
    let StoredChange { key: found, value, .. } = changes.read(at)?;
    if found.as_str() != key {
        return Err(Fault::Corrupt(format!("the change is of {found}")));
    }
    if super::row::size_of(value.as_deref()) != size {
        return Err(Fault::Corrupt("the index has another size".to_owned()));
    }
    Ok(())
}

/// Calls `each` for the key, revision and size of every row of the key index that can be read.
pub(super) fn for_each_index_row(
    connection: &Connection,
    mut each: impl FnMut(&str, Revision, i64),
) -> Result<(), Fault> {
    let mut statement = connection
        .prepare("SELECT key, revision, size FROM changes INDEXED BY changes_by_key ORDER BY key, revision")?;
    let mut rows = statement.query(())?;
    while let Some(row) = rows.next()? {
        let key = row.get_ref(0)?.as_str().map_err(rusqlite::Error::from)?;
        each(key, revision(row, 1)?, row.get(2)?);
    }
    Ok(())
}

/// Calls `each` for every intact row of `changes` by revision. Returns true if no row was damaged or unreadable.
pub(super) fn for_each_change(connection: &Connection, mut each: impl FnMut(&str, Revision, i64)) -> bool {
    let Ok(mut statement) = connection.prepare(
        "SELECT revision, key, previous, prior, size, sum, value FROM changes NOT INDEXED
         WHERE revision > ?1 ORDER BY revision",
    ) else {
        return false;
    };
    let (mut after, mut step, mut whole) = (0_i64, 1_i64, true);
    // A damaged page ends a scan without a position, so the next one starts further on, in growing steps.
    while step < i64::MAX / 4 {
        let began_at = after;
        let scanned = (|| {
            let mut rows = statement.query((after,))?;
            while let Some(row) = rows.next()? {
                after = row.get(0)?;
                match StoredRow::read(row) {
                    Ok(row) => each(row.key, row.revision, row.size()),
                    Err(_) => whole = false,
                }
            }
            Ok::<(), rusqlite::Error>(())
        })();
        if scanned.is_ok() {
            return whole;
        }
        whole = false;
        step = if after > began_at { 1 } else { step * 2 };
        after = after.saturating_add(step);
    }
    false
}

/// True if a size in the index means a deleted key.
pub(super) fn is_delete(size: i64) -> bool {
    size == DELETED
}
