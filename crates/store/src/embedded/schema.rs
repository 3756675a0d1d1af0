//! The database file: tables, pragmas and identification. `docs/storage-format.md` explains each of them.

use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::{Connection, OpenFlags};

use super::Durability;
use super::fault::Fault;
use super::ledger::State;
use crate::error::OpenError;

/// "dogw": identifies the file in its header.
pub(super) const APPLICATION_ID: i64 = 0x646f_6777;

/// The storage format this code writes; a greater number in a file is refused.
pub(super) const FORMAT_VERSION: i64 = 1;

const PAGE_BYTES: u32 = 4096;

/// Page cache of the one connection that writes, in KiB. Most reads are served by the object cache above the store.
const WRITER_CACHE_KIB: u32 = 8 * 1024;
const READER_CACHE_KIB: u32 = 1024;

/// For a file that is open in another tool; this engine never holds a lock for long.
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

/// Path of the database in a data directory.
pub(super) fn database(dir: &Path) -> PathBuf {
    dir.join("store.db")
}

/// Opens or creates the database for writing. Refuses files of other programs. The caller holds the directory lock.
pub(super) fn open_writer(path: &Path, durability: Durability) -> Result<Connection, OpenError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection =
        Connection::open_with_flags(path, flags).map_err(|error| Fault::from(error).into_open_error(path))?;
    // Before anything else, so that a file of another program stays unchanged.
    let fresh = identify(&connection, path)?;
    prepare(&connection, durability, fresh).map_err(|fault| fault.into_open_error(path))?;
    Ok(connection)
}

pub(super) fn open_reader(path: &Path) -> Result<Connection, Fault> {
    let connection =
        Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX)?;
    connection.busy_timeout(BUSY_TIMEOUT)?;
    connection.pragma_update(None, "cache_size", -i64::from(READER_CACHE_KIB))?;
    Ok(connection)
}

/// Opens the connection that copies the log into the database file. It never writes rows.
pub(super) fn open_checkpointer(path: &Path) -> Result<Connection, Fault> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags)?;
    connection.pragma_update(None, "wal_autocheckpoint", 0)?;
    connection.pragma_update(None, "cache_size", -64)?;
    // A connection opens its files with its first statement; without one a checkpoint would do nothing.
    connection.query_row("SELECT count(*) FROM state", (), |_| Ok(()))?;
    Ok(connection)
}

/// Returns true for a new, empty file, false for a store. Any other file is an error.
pub(super) fn identify(connection: &Connection, path: &Path) -> Result<bool, OpenError> {
    let name = || path.display().to_string();
    let number = |pragma: &str| -> Result<i64, OpenError> {
        connection.pragma_query_value(None, pragma, |row| row.get(0)).map_err(|error| {
            if error.sqlite_error_code() == Some(rusqlite::ErrorCode::NotADatabase) {
                OpenError::Foreign { path: name(), reason: "it is not a SQLite database".to_owned() }
            } else {
                Fault::from(error).into_open_error(path)
            }
        })
    };
    let application = number("application_id")?;
    let version = number("user_version")?;
    let tables: i64 = connection
        .query_row("SELECT count(*) FROM sqlite_schema", (), |row| row.get(0))
        .map_err(|error| Fault::from(error).into_open_error(path))?;
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
    // See checkpointer.rs.
    connection.pragma_update(None, "wal_autocheckpoint", 0)?;
    connection.pragma_update_and_check(None, "journal_size_limit", super::checkpointer::WAL_BYTES_KEPT, |_| Ok(()))?;
    connection.pragma_update(None, "temp_store", "MEMORY")?;
    connection.set_prepared_statement_cache_capacity(64);
    if fresh {
        // Identification and tables in one transaction, so that there is never half a store.
        connection.execute_batch(&format!(
            "BEGIN IMMEDIATE; {TABLES} INSERT INTO state VALUES (1, 0, 0, 0, 0, {});
             PRAGMA application_id = {APPLICATION_ID}; PRAGMA user_version = {FORMAT_VERSION}; COMMIT;",
            State::default().sum()
        ))?;
    }
    Ok(())
}
