//! Backup, verification and restore of a store.

use std::fs::File;
use std::path::Path;

use machinery::Revision;
use rusqlite::Connection;

use super::fault::Fault;
use super::ledger::Ledger;
use super::lock::DirectoryLock;
use super::row::StoredRow;
use super::{Durability, inaccessible, make_directory, schema, session};
use crate::contract::Stats;
use crate::error::{EngineError, OpenError};

/// The initial state of a restored store.
#[derive(Clone, Debug)]
pub struct Restored {
    pub objects: u64,
    /// The counter of the new store: far ahead of the backup's, see [`restore`].
    pub revision: Revision,
}

/// Writes a consistent copy of the store in `dir` to the new file `to`. A process that has the store open can go on writing.
pub fn backup_directory(dir: &Path, to: &Path) -> Result<(), EngineError> {
    let database = schema::database(dir);
    if !database.is_file() {
        return Err(EngineError::new(format!("there is no store in {}", dir.display())));
    }
    backup(&database, to)
}

/// Writes a consistent, compact copy of the database at `from` to the new file `to`. Writes continue meanwhile.
pub(super) fn backup(from: &Path, to: &Path) -> Result<(), EngineError> {
    let failed = |what: String| EngineError::new(format!("backup to {}: {what}", to.display()));
    if to.exists() {
        return Err(failed("the file exists already; choose a new name".to_owned()));
    }
    // Renamed when complete, so that the final name never has half a backup.
    let mut partial = to.as_os_str().to_owned();
    partial.push(".partial");
    let partial = Path::new(&partial);
    let copied = copy(from, partial).map_err(failed).and_then(|()| {
        verify(partial).map_err(|error| failed(error.to_string()))?;
        publish(partial, to).map_err(|error| failed(error.to_string()))
    });
    if copied.is_err() {
        let _ = std::fs::remove_file(partial);
    }
    copied
}

fn copy(from: &Path, to: &Path) -> Result<(), String> {
    if let Err(error) = std::fs::remove_file(to)
        && error.kind() != std::io::ErrorKind::NotFound
    {
        return Err(error.to_string());
    }
    let name = to.to_str().ok_or("the name is not text")?;
    // Rewrites every row instead of copying pages, so that structural damage is found and not copied.
    let connection = schema::open_reader(from).map_err(|fault| fault.to_string())?;
    connection.execute("VACUUM INTO ?1", (name,)).map(drop).map_err(|error| Fault::from(error).to_string())
}

fn publish(partial: &Path, to: &Path) -> std::io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(partial, std::fs::Permissions::from_mode(0o600))?;
    File::open(partial)?.sync_all()?;
    std::fs::rename(partial, to)?;
    sync_directory(to)
}

fn sync_directory(of: &Path) -> std::io::Result<()> {
    let parent = of.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(parent)?.sync_all()
}

/// Verifies all of a store file that is not in use: structure, indexes, counts and every checksum.
pub fn verify(path: &Path) -> Result<Stats, OpenError> {
    if !path.is_file() {
        let reason = "there is no such file".to_owned();
        return Err(OpenError::Inaccessible { path: path.display().to_string(), reason });
    }
    let connection = Connection::open_with_flags(path, rusqlite::OpenFlags::SQLITE_OPEN_READ_ONLY)
        .map_err(|error| Fault::from(error).into_open_error(path))?;
    if schema::identify(&connection, path)? {
        let reason = "it is empty".to_owned();
        return Err(OpenError::Foreign { path: path.display().to_string(), reason });
    }
    verify_all(&connection).map_err(|fault| fault.into_open_error(path))
}

fn verify_all(connection: &Connection) -> Result<Stats, Fault> {
    let report: String = connection.query_row("PRAGMA integrity_check(1)", (), |row| row.get(0))?;
    if report != "ok" {
        return Err(Fault::Corrupt(report));
    }
    let ledger = Ledger::load(connection)?;
    let mut statement = connection.prepare("SELECT revision, key, previous, prior, size, sum, value FROM changes")?;
    let mut rows = statement.query(())?;
    while let Some(row) = rows.next()? {
        StoredRow::read(row)?;
    }
    Ok(ledger.stats())
}

/// Creates a store in a new data directory from a backup.
///
/// The backup is verified first, and the directory must be missing or empty. Objects keep their revisions, but the counter
/// skips ahead and history starts anew: clients of the original store may have seen later revisions than the backup has,
/// and must list again instead of seeing those revisions with other content.
pub fn restore(backup: &Path, dir: &Path) -> Result<Restored, OpenError> {
    let stats = verify(backup)?;
    make_directory(dir)?;
    let occupied = std::fs::read_dir(dir).map_err(inaccessible(dir))?.next().is_some();
    if occupied {
        let reason = "it is not empty; a restore needs a new directory".to_owned();
        return Err(OpenError::Inaccessible { path: dir.display().to_string(), reason });
    }
    let _lock = DirectoryLock::take(dir)?;
    let database = schema::database(dir);
    let partial = dir.join("store.db.partial");
    super::make_private(&partial)?;
    std::fs::copy(backup, &partial).map_err(inaccessible(&partial))?;
    let revision = prepare_copy(&partial)?;
    let published = File::open(&partial)
        .and_then(|file| file.sync_all())
        .and_then(|()| std::fs::rename(&partial, &database))
        .and_then(|()| sync_directory(&database));
    published.map_err(inaccessible(&database))?;
    Ok(Restored { objects: stats.objects, revision })
}

/// Skips ahead in the copy before it gets its final name, so that an interrupted restore leaves no store behind.
fn prepare_copy(partial: &Path) -> Result<Revision, OpenError> {
    let open_error = |fault: Fault| fault.into_open_error(partial);
    let connection = Connection::open(partial).map_err(|error| open_error(error.into()))?;
    let skipped = (|| {
        let transaction = connection.unchecked_transaction()?;
        let revision = session::skip_ahead(&transaction)?;
        transaction.execute(
            "INSERT OR REPLACE INTO session (id, boot, durability, clean) VALUES (1, '', ?1, 1)",
            (Durability::Full.synchronous(),),
        )?;
        transaction.commit()?;
        Ok(revision)
    })();
    skipped.map_err(open_error)
}
