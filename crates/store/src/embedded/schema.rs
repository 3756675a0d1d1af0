//! The file: its tables, its pragmas, and who may open it. `docs/storage-format.md` explains each of them.

use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::{Connection, OpenFlags};

use super::Durability;
use super::fault::Fault;
use super::ledger::State;
use crate::error::OpenError;

/// "dogw": the mark in the header that says whose file this is.
pub(super) const APPLICATION_ID: i64 = 0x646f_6777;

/// The storage format this code writes; a greater number in a file is refused.
pub(super) const FORMAT_VERSION: i64 = 1;

const PAGE_BYTES: u32 = 4096;

/// Memory for pages of the one connection that writes, in KiB. Reads mostly come from the cache above the store.
const WRITER_CACHE_KIB: u32 = 8 * 1024;
const READER_CACHE_KIB: u32 = 1024;

/// Nobody of ours holds a lock for long; this is for a person who opened the file with another tool.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

const TABLES: &str = "
    CREATE TABLE changes (
        revision INTEGER PRIMARY KEY,
        key      TEXT    NOT NULL,
        previous INTEGER NOT NULL,
        prior    INTEGER NOT NULL,
        size     INTEGER NOT NULL,
        sum      INTEGER NOT NULL,
        value    BLOB
    ) STRICT;
    CREATE UNIQUE INDEX changes_by_key ON changes (key, revision, size);
    CREATE TABLE history (
        collection INTEGER NOT NULL,
        revision   INTEGER NOT NULL,
        previous   INTEGER NOT NULL,
        bytes      INTEGER NOT NULL,
        deletes    INTEGER NOT NULL,
        sum        INTEGER NOT NULL,
        PRIMARY KEY (collection, revision)
    ) STRICT, WITHOUT ROWID;
    CREATE TABLE collections (
        id    INTEGER PRIMARY KEY,
        name  TEXT    NOT NULL UNIQUE,
        floor INTEGER NOT NULL,
        sum   INTEGER NOT NULL
    ) STRICT;
    CREATE TABLE marks (
        revision INTEGER PRIMARY KEY,
        unix_ms  INTEGER NOT NULL
    ) STRICT;
    CREATE TABLE state (
        id       INTEGER PRIMARY KEY CHECK (id = 1),
        revision INTEGER NOT NULL,
        floor    INTEGER NOT NULL,
        rows     INTEGER NOT NULL,
        digest   INTEGER NOT NULL,
        sum      INTEGER NOT NULL
    ) STRICT;
    CREATE TABLE session (
        id         INTEGER PRIMARY KEY CHECK (id = 1),
        boot       TEXT    NOT NULL,
        durability TEXT    NOT NULL,
        clean      INTEGER NOT NULL
    ) STRICT;
";

/// Where the database of a data directory is.
pub(super) fn database(dir: &Path) -> PathBuf {
    dir.join("store.db")
}

/// Opens the database for writing, makes it if there is none, refuses what is not ours. The caller holds the lock.
pub(super) fn open_writer(path: &Path, durability: Durability) -> Result<Connection, OpenError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags).map_err(|error| Fault::from(error).opening(path))?;
    // First of all: a file that is not ours is left as it is.
    let fresh = identify(&connection, path)?;
    prepare(&connection, durability, fresh).map_err(|fault| fault.opening(path))?;
    Ok(connection)
}

pub(super) fn open_reader(path: &Path) -> Result<Connection, Fault> {
    let connection =
        Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX)?;
    connection.busy_timeout(BUSY_TIMEOUT)?;
    connection.pragma_update(None, "cache_size", -i64::from(READER_CACHE_KIB))?;
    Ok(connection)
}

/// The connection that copies the log into the database file. It never writes rows.
pub(super) fn open_keeper(path: &Path) -> Result<Connection, Fault> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags)?;
    connection.pragma_update(None, "wal_autocheckpoint", 0)?;
    connection.pragma_update(None, "cache_size", -64)?;
    // A connection opens its files with its first statement; without one a checkpoint has nothing to work on.
    connection.query_row("SELECT count(*) FROM state", (), |_| Ok(()))?;
    Ok(connection)
}

/// Whose file this is: true if it is nobody's yet.
pub(super) fn identify(connection: &Connection, path: &Path) -> Result<bool, OpenError> {
    let name = || path.display().to_string();
    let number = |pragma: &str| -> Result<i64, OpenError> {
        connection.pragma_query_value(None, pragma, |row| row.get(0)).map_err(|error| {
            if error.sqlite_error_code() == Some(rusqlite::ErrorCode::NotADatabase) {
                OpenError::Foreign { path: name(), reason: "it is not a SQLite database".to_owned() }
            } else {
                Fault::from(error).opening(path)
            }
        })
    };
    let application = number("application_id")?;
    let version = number("user_version")?;
    let tables: i64 = connection
        .query_row("SELECT count(*) FROM sqlite_schema", (), |row| row.get(0))
        .map_err(|error| Fault::from(error).opening(path))?;
    match (application, version) {
        (0, 0) if tables == 0 => Ok(true),
        (APPLICATION_ID, FORMAT_VERSION) => Ok(false),
        (APPLICATION_ID, found) if found > FORMAT_VERSION => {
            Err(OpenError::Newer { path: name(), found, known: FORMAT_VERSION })
        }
        (APPLICATION_ID, found) => {
            Err(OpenError::Foreign { path: name(), reason: format!("its storage format {found} was never released") })
        }
        (other, _) => Err(OpenError::Foreign {
            path: name(),
            reason: format!("it is the SQLite database of another program (application id {other:#x})"),
        }),
    }
}

fn prepare(connection: &Connection, durability: Durability, fresh: bool) -> Result<(), Fault> {
    connection.busy_timeout(BUSY_TIMEOUT)?;
    connection.pragma_update(None, "cache_size", -i64::from(WRITER_CACHE_KIB))?;
    if fresh {
        connection.pragma_update(None, "page_size", PAGE_BYTES)?;
    }
    connection.pragma_update_and_check(None, "journal_mode", "WAL", |_| Ok(()))?;
    connection.pragma_update(None, "synchronous", durability.synchronous())?;
    // Checkpoints are the keeper's work, see keeper.rs.
    connection.pragma_update(None, "wal_autocheckpoint", 0)?;
    connection.pragma_update_and_check(None, "journal_size_limit", super::keeper::WAL_BYTES_KEPT, |_| Ok(()))?;
    connection.pragma_update(None, "temp_store", "MEMORY")?;
    connection.set_prepared_statement_cache_capacity(64);
    if fresh {
        // The marks of ownership and the tables in one transaction: half of a store is nobody's file.
        connection.execute_batch(&format!(
            "BEGIN IMMEDIATE; {TABLES} INSERT INTO state VALUES (1, 0, 0, 0, 0, {});
             PRAGMA application_id = {APPLICATION_ID}; PRAGMA user_version = {FORMAT_VERSION}; COMMIT;",
            State::default().sum()
        ))?;
    }
    Ok(())
}
