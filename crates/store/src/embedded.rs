//! The default engine: SQLite in a directory, one writer thread, writes acknowledged after the sync.
//!
//! - `schema`: tables, pragmas, identification of the file; `docs/storage-format.md` has a worked example
//! - `writer`: the thread that takes commands; `group`: one synced transaction of writes; `statements`: its SQL
//! - `answers`: results of writes, sent to their callers
//! - `ledger`: the writer's index in memory
//! - `compaction`: removal of history in small steps
//! - `checkpointer`: the thread that copies the write-ahead log into the file
//! - `reader`: gets, lists, and watches that are behind the tail
//! - `tail`: the newest changes in memory, for live watches
//! - `session`: detection of lost writes at open
//! - `health`: failed syncs, a full disk, a removed directory
//! - `check`, `repair`: damage in a directory, listed and set aside
//! - `row`, `fault`, `lock`, `backup`: checksums, errors, the directory lock, copies

mod answers;
mod backup;
mod check;
mod checkpointer;
mod compaction;
mod fault;
mod group;
mod health;
mod ledger;
mod lock;
mod reader;
mod repair;
mod row;
mod schema;
mod session;
mod statements;
mod tail;
mod writer;

pub use backup::{Restored, backup_directory, restore, verify};
pub use check::{CheckReport, Damage, check_directory};
pub use repair::{Repaired, SetAside, repair_directory};

use std::collections::HashMap;
use std::fs::{DirBuilder, File, OpenOptions};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use bytes::Bytes;
use machinery::Revision;
use machinery::clock::Clock;
use parking_lot::{Mutex, RwLock};
use rusqlite::Connection;
use tokio::sync::{mpsc, oneshot, watch};

use crate::contract::{Batch, Changes, HealthCheck, ListQuery, Stats, Store, StoreFuture, VALUE_BYTES_MAX};
use crate::entry::{Entry, Snapshot};
use crate::error::{EngineError, OpenError, ReadError, WatchError, WriteError};
use crate::feed::{self, Announced, Log};
use crate::key::{Key, Prefix};
use crate::retention::Retention;

use answers::Answers;
use checkpointer::Checkpoints;
use fault::{CommitFailure, Fault};
use group::{Write, WriteRequest};
use health::Health;
use ledger::{Floors, Ledger};
use lock::DirectoryLock;
use reader::{Readers, closed};
use tail::Tail;
use writer::{Command, Writer};

/// Commands that wait for the writer at most; further callers wait for space in the channel.
const COMMANDS_MAX: usize = 1024;

/// The guarantee that an acknowledgement gives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Durability {
    /// The write is on disk: it survives a power failure.
    #[default]
    Full,
    /// The operating system has the write: it survives the end of the process, but not a power failure. After a power
    /// failure the store opens in an earlier state, skips ahead in its revisions and makes every client list again.
    Relaxed,
}

impl Durability {
    fn synchronous(self) -> &'static str {
        match self {
            Durability::Full => "FULL",
            Durability::Relaxed => "NORMAL",
        }
    }
}

#[derive(Clone)]
pub struct EmbeddedOptions {
    /// The data directory; created if it is missing.
    pub dir: PathBuf,
    pub durability: Durability,
    pub retention: Retention,
    pub value_bytes_max: usize,
    /// Concurrent reads at most.
    pub readers: usize,
    /// The newest changes kept in memory for live watches, by number and by bytes of values.
    pub tail_changes_max: usize,
    pub tail_bytes_max: usize,
    /// The time of changes, for retention and statistics.
    pub clock: Clock,
}

impl EmbeddedOptions {
    #[must_use]
    pub fn new(dir: impl Into<PathBuf>) -> Self {
        EmbeddedOptions {
            dir: dir.into(),
            durability: Durability::Full,
            retention: Retention::default(),
            value_bytes_max: VALUE_BYTES_MAX,
            readers: 4,
            tail_changes_max: 4096,
            tail_bytes_max: 8 * 1024 * 1024,
            clock: Clock::system(),
        }
    }
}

/// A store in a directory of the local file system.
pub struct EmbeddedStore {
    shared: Arc<Shared>,
    readers: Arc<Readers>,
    commands: mpsc::Sender<Command>,
    value_bytes_max: usize,
    /// Joined when the store is closed or dropped, so that the directory is free afterwards.
    writer: Mutex<Option<JoinHandle<()>>>,
}

/// The longest times the writer spent on work other than writes. No write waits for more than one of each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pauses {
    /// One step of compaction.
    pub compaction_step: Duration,
    /// Copying the rest of the write-ahead log.
    pub checkpoint: Duration,
}

/// State that the writer publishes to readers and watches.
struct Shared {
    database: PathBuf,
    durability: Durability,
    clock: Clock,
    tail: RwLock<Tail>,
    floors: RwLock<Floors>,
    /// The newest change of each collection: never older than the announced revision.
    newest_changes: RwLock<HashMap<Box<str>, Revision>>,
    stats: Mutex<Stats>,
    announced: watch::Sender<Announced>,
    pauses: Mutex<Pauses>,
    /// Changes after this revision outlive their age and number.
    held: AtomicU64,
    readers: Arc<Readers>,
    health: Arc<Health>,
}

impl EmbeddedStore {
    /// Opens the store of a directory, or creates one. Blocks while it reads the index of all keys.
    pub fn open(options: EmbeddedOptions) -> Result<Self, OpenError> {
        make_directory(&options.dir)?;
        let lock = Arc::new(DirectoryLock::take(&options.dir)?);
        let database = schema::database(&options.dir);
        make_private(&database)?;
        let (connection, ledger, last_mark_unix_ms) = load_or_rebuild(&database, &options)?;

        let revision = ledger.revision();
        let health = Arc::new(Health::new(&database).map_err(inaccessible(&database))?);
        let readers = Arc::new(Readers::new(database.clone(), options.readers, lock.clone(), health.clone()));
        let shared = Arc::new(Shared {
            database: database.clone(),
            durability: options.durability,
            clock: options.clock.clone(),
            tail: RwLock::new(Tail::new(revision, options.tail_changes_max, options.tail_bytes_max)),
            floors: RwLock::new(ledger.floors()),
            newest_changes: RwLock::new(ledger.newest_changes()),
            stats: Mutex::new(ledger.stats()),
            announced: watch::Sender::new(Announced { revision, closed: false }),
            pauses: Mutex::default(),
            held: AtomicU64::new(u64::MAX),
            readers: readers.clone(),
            health,
        });
        let (commands, received) = mpsc::channel(COMMANDS_MAX);
        let threads = |error: std::io::Error| EngineError::new(format!("no thread for the store: {error}"));
        let checkpoints =
            Checkpoints::start(database, commands.downgrade(), options.retention.interval).map_err(threads)?;
        let value_bytes_max = options.value_bytes_max;
        let writer = Writer {
            connection,
            ledger,
            shared: shared.clone(),
            options,
            commands: received,
            answers: Answers::start(),
            checkpoints,
            last_mark_unix_ms,
            lock,
        };
        let writer = std::thread::Builder::new().name("store-writer".to_owned()).spawn(|| writer.run());
        let writer = Mutex::new(Some(writer.map_err(threads)?));
        Ok(EmbeddedStore { shared, readers, commands, value_bytes_max, writer })
    }

    /// The longest pauses since the store was opened or the pauses were last reset.
    #[must_use]
    pub fn pauses(&self) -> Pauses {
        *self.shared.pauses.lock()
    }

    pub fn reset_pauses(&self) {
        *self.shared.pauses.lock() = Pauses::default();
    }

    async fn write(&self, key: Key, value: Option<Bytes>, expected: Option<Revision>) -> Result<Revision, WriteError> {
        if let Some(bytes) = value.as_ref().map(Bytes::len).filter(|bytes| *bytes > self.value_bytes_max) {
            return Err(WriteError::TooLarge { bytes, max: self.value_bytes_max });
        }
        let (answer, answered) = oneshot::channel();
        let write = Write { request: WriteRequest { key, value, expected }, answer };
        self.commands.send(Command::Write(write)).await.map_err(|_| closed())?;
        // The writer has ended before this write.
        answered.await.unwrap_or_else(|_| Err(closed().into()))
    }

    fn announced(&self) -> Result<Revision, EngineError> {
        let Announced { revision, closed: is_closed } = *self.shared.announced.borrow();
        if is_closed { Err(closed()) } else { Ok(revision) }
    }

    /// Waits until `revision`, which a read has seen on disk, is announced. This takes microseconds; without it, a watch
    /// from the revision just read could be refused as a future one.
    async fn wait_until_announced(&self, revision: Revision) -> Result<(), EngineError> {
        let mut announced = self.shared.announced.subscribe();
        let reached = announced.wait_for(|announced| announced.closed || announced.revision >= revision).await;
        reached.map(drop).map_err(|_| closed())
    }
}

/// Opens the file and reads its index. Rows that only count others are rebuilt if they are damaged: no object depends on
/// them, and one flipped bit must not keep a server from starting.
fn load_or_rebuild(database: &Path, options: &EmbeddedOptions) -> Result<(Connection, Ledger, i64), OpenError> {
    let load = || {
        let connection = schema::open_writer(database, options.durability)?;
        let loaded = session::begin(&connection, options.durability).and_then(|()| {
            let ledger = Ledger::load(&connection)?;
            let mark: Option<i64> = connection.query_row("SELECT max(unix_ms) FROM marks", (), |row| row.get(0))?;
            Ok((ledger, mark.unwrap_or(0)))
        });
        let (ledger, mark) = loaded.map_err(|fault| fault.into_open_error(database))?;
        Ok((connection, ledger, mark))
    };
    let refused = match load() {
        Err(refused @ OpenError::Corrupt { .. }) => refused,
        opened => return opened,
    };
    match repair::rebuild_counts(&options.dir, &options.clock) {
        Ok(Some(rebuilt)) => {
            let file = rebuilt.files.map(|(_, kept)| kept.display().to_string()).unwrap_or_default();
            tracing::warn!(%refused, objects = rebuilt.objects, file, "rebuilt the counts of the store; the damaged file is kept");
            load()
        }
        // Its own failure would hide the damage.
        Ok(None) | Err(_) => Err(refused),
    }
}

impl Drop for EmbeddedStore {
    fn drop(&mut self) {
        // The writer ends when there is no sender left; the checkpointer has only a weak one.
        let (commands, _) = mpsc::channel(1);
        self.commands = commands;
        if let Some(writer) = self.writer.get_mut().take()
            && writer.join().is_err()
        {
            tracing::error!("the writer thread panicked");
        }
    }
}

impl Store for EmbeddedStore {
    fn get<'a>(&'a self, key: &'a Key) -> StoreFuture<'a, Result<Option<Entry>, ReadError>> {
        Box::pin(async move {
            self.announced()?;
            let key = key.clone();
            let entry = self.readers.read(move |connection| reader::get(connection, &key)).await??;
            if let Some(entry) = &entry {
                self.wait_until_announced(entry.revision).await?;
            }
            Ok(entry)
        })
    }

    fn list(&self, query: ListQuery) -> StoreFuture<'_, Result<Snapshot, ReadError>> {
        Box::pin(async move {
            let current = self.announced()?;
            if let Some(asked) = query.at.filter(|asked| *asked > current) {
                return Err(ReadError::Future { asked, current });
            }
            let snapshot = self.readers.read(move |connection| reader::list(connection, &query, current)).await???;
            self.wait_until_announced(snapshot.revision).await?;
            Ok(snapshot)
        })
    }

    fn create(&self, key: Key, value: Bytes) -> StoreFuture<'_, Result<Revision, WriteError>> {
        Box::pin(self.write(key, Some(value), None))
    }

    fn update(&self, key: Key, value: Bytes, expected: Revision) -> StoreFuture<'_, Result<Revision, WriteError>> {
        Box::pin(self.write(key, Some(value), Some(expected)))
    }

    fn delete(&self, key: Key, expected: Revision) -> StoreFuture<'_, Result<Revision, WriteError>> {
        Box::pin(self.write(key, None, Some(expected)))
    }

    fn hold(&self, after: Option<Revision>) {
        self.shared.held.store(after.map_or(u64::MAX, |after| after.0), Ordering::Relaxed);
    }

    fn watch(&self, prefix: Prefix, after: Revision) -> StoreFuture<'_, Result<Changes, WatchError>> {
        Box::pin(async move {
            let current = self.announced()?;
            if after > current {
                return Err(WatchError::Future { asked: after, current });
            }
            let oldest = self.shared.floors.read().floor(&prefix);
            if after < oldest {
                return Err(WatchError::Compacted { asked: after, oldest });
            }
            Ok(feed::changes(self.shared.clone(), self.shared.announced.subscribe(), prefix, after))
        })
    }

    fn compact(&self, at: Revision) -> StoreFuture<'_, Result<(), ReadError>> {
        Box::pin(async move {
            let (answer, answered) = oneshot::channel();
            self.commands.send(Command::Compact { at, answer }).await.map_err(|_| closed())?;
            answered.await.unwrap_or_else(|_| Err(closed().into()))
        })
    }

    fn current_revision(&self) -> StoreFuture<'_, Result<Revision, ReadError>> {
        Box::pin(async move { Ok(self.announced()?) })
    }

    fn oldest_revision<'a>(&'a self, prefix: &'a Prefix) -> StoreFuture<'a, Result<Revision, ReadError>> {
        Box::pin(async move {
            self.announced()?;
            Ok(self.shared.floors.read().floor(prefix))
        })
    }

    fn backup<'a>(&'a self, to: &'a Path) -> StoreFuture<'a, Result<(), EngineError>> {
        Box::pin(async move {
            self.announced()?;
            let (from, to) = (self.shared.database.clone(), to.to_owned());
            let work = tokio::task::spawn_blocking(move || backup::backup(&from, &to));
            work.await.unwrap_or_else(|error| Err(EngineError::new(format!("the backup did not finish: {error}"))))
        })
    }

    fn stats(&self) -> StoreFuture<'_, Result<Stats, ReadError>> {
        Box::pin(async move {
            self.announced()?;
            let stats = self.shared.stats.lock().clone();
            Ok(Stats { disk_bytes: Some(self.shared.disk_bytes()), ..stats })
        })
    }

    fn health(&self) -> StoreFuture<'_, Vec<HealthCheck>> {
        Box::pin(async move {
            if self.announced().is_err() {
                // A closed store has no files.
                return Vec::new();
            }
            let health = Arc::clone(&self.shared.health);
            tokio::task::spawn_blocking(move || health.report()).await.unwrap_or_default()
        })
    }

    fn close(&self) -> StoreFuture<'_, ()> {
        Box::pin(async move {
            self.readers.finish().await;
            let (answer, answered) = oneshot::channel();
            if self.commands.send(Command::Close { answer }).await.is_ok() {
                let _ = answered.await;
            }
        })
    }
}

impl Shared {
    /// The revision after which changes are held; that of no change if none are.
    fn held(&self) -> Revision {
        Revision(self.held.load(Ordering::Relaxed))
    }

    fn announce(&self, revision: Revision) {
        self.announced.send_modify(|announced| announced.revision = revision);
    }

    fn close(&self) {
        self.announced.send_modify(|announced| announced.closed = true);
        self.readers.close();
    }

    /// Switches whether the writer's next commits wait for the disk. With relaxed durability they never do.
    fn sync_commits(&self, connection: &Connection, sync: bool) -> Result<(), Fault> {
        if self.durability == Durability::Full {
            connection.pragma_update(None, "synchronous", if sync { "FULL" } else { "NORMAL" })?;
        }
        Ok(())
    }

    /// Classifies a failed commit. A probe finds out whether a failed write was a lack of space.
    fn classify(&self, fault: &Fault) -> CommitFailure {
        let failure = fault.commit_failure();
        if failure != CommitFailure::Lost || !fault.is_failed_write() {
            return failure;
        }
        if self.health.probe_is_full() { CommitFailure::Full } else { CommitFailure::Lost }
    }

    fn disk_bytes(&self) -> u64 {
        let files = [self.database.clone(), with_suffix(&self.database, "-wal"), with_suffix(&self.database, "-shm")];
        files.iter().filter_map(|file| file.metadata().ok()).map(|metadata| metadata.len()).sum()
    }
}

impl Log for Shared {
    async fn read(&self, prefix: &Prefix, after: Revision) -> Result<Batch, WatchError> {
        if let Some(batch) = self.tail.read().read(prefix, after) {
            return Ok(batch);
        }
        let acknowledged = self.announced.borrow().revision;
        let (prefix, newest) = (prefix.clone(), self.newest_changes.read().clone());
        let read = move |connection: &Connection| reader::changes(connection, &prefix, after, acknowledged, &newest);
        self.readers.read(read).await??
    }
}

fn with_suffix(database: &Path, suffix: &str) -> PathBuf {
    let mut name = database.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

fn inaccessible(path: &Path) -> impl Fn(std::io::Error) -> OpenError {
    let path = path.display().to_string();
    move |error| OpenError::Inaccessible { path: path.clone(), reason: error.to_string() }
}

/// Creates the directory for its owner alone: objects hold secrets.
fn make_directory(dir: &Path) -> Result<(), OpenError> {
    if !dir.is_dir() {
        DirBuilder::new().recursive(true).mode(0o700).create(dir).map_err(inaccessible(dir))?;
        if let Some(parent) = dir.parent().filter(|parent| !parent.as_os_str().is_empty()) {
            // Makes the name of the new directory as durable as its content.
            File::open(parent).and_then(|parent| parent.sync_all()).map_err(inaccessible(parent))?;
        }
    }
    Ok(())
}

/// Creates the database file before SQLite opens it, with permissions that its log then inherits.
fn make_private(database: &Path) -> Result<(), OpenError> {
    let file = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(database);
    file.map(drop).map_err(inaccessible(database))
}
