//! Reads on a few read-only connections, each in a transaction of its own, so that it sees one state.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

use machinery::Revision;
use parking_lot::Mutex;
use rusqlite::Connection;
use tokio::sync::Semaphore;

use super::fault::Fault;
use super::ledger::Floors;
use super::lock::DirectoryLock;
use super::row::{ByRevision, DELETED, StoredChange, StoredRow, revision};
use super::schema;
use crate::contract::{Batch, ListQuery};
use crate::entry::{Change, Entry, Snapshot};
use crate::error::{EngineError, ReadError, WatchError};
use crate::feed::{BATCH_BYTES_MAX, BATCH_CHANGES_MAX};
use crate::key::{Key, Prefix};

/// Changes that one read for a watch scans at most, matching or not.
const SCAN_CHANGES_MAX: usize = 4096;

/// A pool of read-only connections.
pub(super) struct Readers {
    database: PathBuf,
    idle: Mutex<Vec<Connection>>,
    permits: Arc<Semaphore>,
    count: usize,
    /// Keeps the directory locked until the last read has ended. Taken out on close, since a watch may hold on to the pool
    /// for longer without reading.
    lock: Mutex<Option<Arc<DirectoryLock>>>,
}

impl Readers {
    pub(super) fn new(database: PathBuf, count: usize, lock: Arc<DirectoryLock>) -> Self {
        let count = count.max(1);
        let (idle, permits) = (Mutex::new(Vec::new()), Arc::new(Semaphore::new(count)));
        Readers { database, idle, permits, count, lock: Mutex::new(Some(lock)) }
    }

    /// Runs a read on a blocking thread. Waits if all connections are in use.
    pub(super) async fn read<T: Send + 'static>(
        self: &Arc<Self>,
        read: impl FnOnce(&Connection) -> Result<T, Fault> + Send + 'static,
    ) -> Result<Result<T, Fault>, EngineError> {
        let permit = self.permits.clone().acquire_owned().await.map_err(|_| closed())?;
        let readers = self.clone();
        let lock = self.lock.lock().clone();
        let work = tokio::task::spawn_blocking(move || {
            let idle = readers.idle.lock().pop();
            let connection = match idle.map_or_else(|| schema::open_reader(&readers.database), Ok) {
                Ok(connection) => connection,
                Err(fault) => return Err(fault),
            };
            let result = in_transaction(&connection, read);
            if !readers.permits.is_closed() {
                readers.idle.lock().push(connection);
            }
            drop((lock, permit));
            result
        });
        work.await.map_err(|error| EngineError::new(format!("a read did not finish: {error}")))
    }

    /// Refuses further reads. Connections in use close when their read ends.
    pub(super) fn close(&self) {
        self.permits.close();
        self.idle.lock().clear();
        self.lock.lock().take();
    }

    /// Waits for the running reads, then closes.
    pub(super) async fn finish(&self) {
        // All permits at once: the queue is fair, so no read gets in between. An error means that it is already closed.
        let _all = self.permits.acquire_many(self.count as u32).await;
        self.close();
    }
}

pub(super) fn closed() -> EngineError {
    EngineError::new("the store is closed")
}

fn in_transaction<T>(connection: &Connection, read: impl FnOnce(&Connection) -> Result<T, Fault>) -> Result<T, Fault> {
    let transaction = connection.unchecked_transaction()?;
    let result = read(&transaction)?;
    transaction.finish()?;
    Ok(result)
}

/// The current entry of a key.
pub(super) fn get(connection: &Connection, key: &Key) -> Result<Option<Entry>, Fault> {
    let mut statement = connection.prepare_cached(
        "SELECT revision, key, previous, prior, size, sum, value FROM changes
         WHERE key = ?1 ORDER BY revision DESC LIMIT 1",
    )?;
    let mut rows = statement.query((key.as_str(),))?;
    let Some(row) = rows.next()? else { return Ok(None) };
    let change = StoredChange::read(row)?;
    if change.key != *key {
        return Err(Fault::Corrupt(format!("{key} is listed at {}, which is of {}", change.revision, change.key)));
    }
    Ok(change.into_entry())
}

/// Lists within the connection's transaction. `acknowledged` is the last revision acknowledged before the call.
pub(super) fn list(
    connection: &Connection,
    query: &ListQuery,
    acknowledged: Revision,
) -> Result<Result<Snapshot, ReadError>, Fault> {
    let at = match query.at {
        Some(at) => at,
        None => newest(connection)?.max(acknowledged),
    };
    let oldest = Floors::read(connection)?.floor(&query.prefix);
    if at < oldest {
        return Ok(Err(ReadError::Compacted { asked: at, oldest }));
    }
    // One pass over the key index, oldest version of a key first; values are read only for the entries of the page.
    let mut statement = connection.prepare_cached(
        "SELECT key, revision, size FROM changes INDEXED BY changes_by_key
         WHERE key >= ?1 ORDER BY key, revision",
    )?;
    let start_after = query.start_after.as_deref().filter(|after| *after >= query.prefix.as_str());
    let mut rows = statement.query((start_after.unwrap_or(query.prefix.as_str()),))?;
    let mut page = Page {
        values: ByRevision::prepare(connection)?,
        limit: query.limit,
        snapshot: Snapshot { revision: at, entries: Vec::new(), remaining: 0 },
    };
    let mut key = String::new();
    let mut current = None;
    while let Some(row) = rows.next()? {
        let next = row.get_ref(0)?.as_str().map_err(rusqlite::Error::from)?;
        if !next.starts_with(query.prefix.as_str()) {
            break;
        }
        if start_after == Some(next) {
            continue;
        }
        if next != key {
            page.add(&key, current.take())?;
            key.clear();
            key.push_str(next);
        }
        let revision = revision(row, 1)?;
        if revision <= at {
            current = (row.get::<_, i64>(2)? != DELETED).then_some(revision);
        }
    }
    page.add(&key, current)?;
    Ok(Ok(page.snapshot))
}

struct Page<'c> {
    values: ByRevision<'c>,
    limit: usize,
    snapshot: Snapshot,
}

impl Page<'_> {
    /// Adds the key if it exists at the page's revision.
    fn add(&mut self, key: &str, current: Option<Revision>) -> Result<(), Fault> {
        let Some(revision) = current else { return Ok(()) };
        if self.limit > 0 && self.snapshot.entries.len() == self.limit {
            self.snapshot.remaining += 1;
        } else {
            self.snapshot.entries.push(self.values.entry(key, revision)?);
        }
        Ok(())
    }
}

fn newest(connection: &Connection) -> Result<Revision, Fault> {
    let mut statement = connection.prepare_cached("SELECT revision FROM state WHERE id = 1")?;
    let mut rows = statement.query(())?;
    let row = rows.next()?.ok_or_else(|| Fault::Corrupt("the state row is missing".to_owned()))?;
    revision(row, 0)
}

/// Reads a batch of the changes after `after`, for a watch that is behind the tail.
pub(super) fn changes(
    connection: &Connection,
    prefix: &Prefix,
    after: Revision,
    acknowledged: Revision,
    newest_changes: &HashMap<Box<str>, Revision>,
) -> Result<Result<Batch, WatchError>, Fault> {
    let oldest = Floors::read(connection)?.floor(prefix);
    if after < oldest {
        return Ok(Err(WatchError::Compacted { asked: after, oldest }));
    }
    let mut statement = connection.prepare_cached(
        "SELECT revision, key, previous, prior, size, sum, value FROM changes
         WHERE revision > ?1 AND revision <= ?2 ORDER BY revision LIMIT ?3",
    )?;
    let mut values = ByRevision::prepare(connection)?;
    let mut rows = statement.query((after.0 as i64, acknowledged.0 as i64, SCAN_CHANGES_MAX as i64))?;
    let mut batch = Batch { changes: Vec::new(), revision: after };
    let mut chains = Chains { after, seen: HashMap::new() };
    let (mut scanned, mut bytes) = (0, 0);
    while let Some(row) = rows.next()? {
        scanned += 1;
        // Verified before its key is compared: a damaged key must not make a change disappear.
        let row = StoredRow::read(row)?;
        chains.add(prefix, &row)?;
        batch.revision = row.revision;
        if !row.key.starts_with(prefix.as_str()) {
            continue;
        }
        let StoredChange { key, revision, previous, value } = row.to_change()?;
        let previous = match previous.is_zero() {
            true => None,
            false => Some(values.entry(key.as_str(), previous)?),
        };
        bytes += value.as_ref().map_or(0, bytes::Bytes::len);
        batch.changes.push(Change { key, revision, value, previous });
        if batch.changes.len() == BATCH_CHANGES_MAX || bytes >= BATCH_BYTES_MAX {
            return Ok(Ok(batch));
        }
    }
    if scanned < SCAN_CHANGES_MAX {
        chains.end(prefix, newest_changes, acknowledged)?;
        // The scan is complete. The last revision may have no row: compaction removes deletes of other collections.
        batch.revision = batch.revision.max(acknowledged);
    }
    Ok(Ok(batch))
}

/// Verifies that a scan by revision skipped nothing: each change names the one before it in its collection.
///
/// Above its floor a collection has every change, so from one row to the next the chain must hold, and it must end at the
/// newest change. SQLite alone would not notice a damaged page that leads a search past some rows.
struct Chains {
    after: Revision,
    seen: HashMap<Box<str>, Revision>,
}

impl Chains {
    fn add(&mut self, prefix: &Prefix, row: &StoredRow<'_>) -> Result<(), Fault> {
        let collection = collection_of(row.key);
        if !prefix.may_hold(collection) {
            return Ok(());
        }
        let holds = match self.seen.get_mut(collection) {
            Some(seen) => std::mem::replace(seen, row.revision) == row.prior,
            None => {
                self.seen.insert(collection.into(), row.revision);
                row.prior <= self.after
            }
        };
        let holds = holds && row.revision > self.after && row.prior < row.revision;
        if holds { Ok(()) } else { Err(broken(collection, row.prior)) }
    }

    /// Verifies the ends of the chains after a scan up to `end`.
    fn end(&self, prefix: &Prefix, newest_changes: &HashMap<Box<str>, Revision>, end: Revision) -> Result<(), Fault> {
        for (collection, last) in newest_changes {
            let reached = self.seen.get(collection).copied().unwrap_or(self.after);
            if prefix.may_hold(collection) && *last <= end && reached < *last {
                return Err(broken(collection, *last));
            }
        }
        Ok(())
    }
}

fn broken(collection: &str, missing: Revision) -> Fault {
    Fault::Corrupt(format!("the change of revision {missing} of {collection:?} is missing"))
}

/// The first two segments of a key, which was validated when it was written.
fn collection_of(key: &str) -> &str {
    let end = key.match_indices('/').nth(1).map_or(key.len(), |(at, _)| at);
    &key[..end]
}
