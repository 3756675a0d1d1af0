//! The checkpointer thread: copies the write-ahead log into the database file, and triggers retention sweeps.
//!
//! By default SQLite checkpoints inside a commit, and the callers of that commit wait for it. Here a second connection
//! copies pages while writes continue. A log can only start over once all of it is copied, which never happens while a
//! writer keeps appending. So when the log is long and nearly copied, the writer itself copies the short rest between two
//! groups, and its next commit starts the log over.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rusqlite::Connection;
use rusqlite::wal::CheckpointMode;
use tokio::sync::mpsc::WeakSender;

use super::schema;
use super::writer::Command;

/// Bytes written between two copies, roughly.
const COPY_EVERY_BYTES: usize = 2 * 1024 * 1024;

/// Length beyond which the log should start over. Short on purpose: syncing a write over an existing part of the file took half as
/// long as syncing one that makes the file longer (p50 160 against 430 µs for a single caller on ext4).
const START_OVER_BYTES: i64 = 4 * 1024 * 1024;

/// Pages left to copy that are few enough for the writer to copy between two groups.
const REST_PAGES: i32 = 128;

/// Length beyond which the writer copies all that is left, so that the log is bounded under any load.
const START_OVER_AT_ANY_COST_BYTES: i64 = 64 * 1024 * 1024;

/// Length to which a longer log is truncated when it starts over.
pub(super) const WAL_BYTES_KEPT: i64 = 32 * 1024 * 1024;

/// Bytes that a group adds to the log beyond its values: pages of the index and of the state, and half-full pages.
const GROUP_OVERHEAD_BYTES: usize = 16 * 1024;

const PAGE_BYTES: i64 = 4096;

/// The writer's handle to the checkpointer.
pub(super) struct Checkpoints {
    wake: SyncSender<()>,
    /// Set by the checkpointer when the writer should copy the rest.
    finish: Arc<AtomicBool>,
    /// Bytes written since the last request to copy.
    pending_bytes: usize,
    thread: JoinHandle<()>,
}

impl Checkpoints {
    pub(super) fn start(
        database: PathBuf,
        commands: WeakSender<Command>,
        sweep_interval: Duration,
    ) -> std::io::Result<Self> {
        // Capacity one: a second request while one waits adds nothing.
        let (wake, woken) = sync_channel(1);
        let finish = Arc::new(AtomicBool::new(false));
        let checkpointer = Checkpointer { database, commands, woken, finish: finish.clone(), sweep_interval };
        let thread =
            std::thread::Builder::new().name("store-checkpointer".to_owned()).spawn(move || checkpointer.run())?;
        Ok(Checkpoints { wake, finish, pending_bytes: 0, thread })
    }

    /// Counts a group of about this many bytes, and requests a copy when one is due.
    pub(super) fn add_bytes(&mut self, bytes: usize) {
        self.pending_bytes += bytes + GROUP_OVERHEAD_BYTES;
        if self.pending_bytes >= COPY_EVERY_BYTES {
            self.pending_bytes = 0;
            let _ = self.wake.try_send(());
        }
    }

    /// Copies the rest if the checkpointer has requested it. Returns how long writes waited for that.
    pub(super) fn finish_if_requested(&mut self, connection: &Connection) -> Duration {
        if !self.finish.swap(false, Ordering::Relaxed) {
            return Duration::ZERO;
        }
        let started = Instant::now();
        if let Err(error) = connection.wal_checkpoint_v2(None::<&str>, CheckpointMode::PASSIVE) {
            tracing::warn!(%error, "the write-ahead log could not be copied; it stays until the next try");
        }
        started.elapsed()
    }

    /// Ends the checkpointer, copies the whole log and closes the last connection that writes.
    pub(super) fn close(self, connection: Connection) {
        drop(self.wake);
        if self.thread.join().is_err() {
            tracing::error!("the checkpointer thread panicked");
        }
        if let Err(error) = connection.execute("UPDATE session SET clean = 1 WHERE id = 1", ()) {
            tracing::warn!(%error, "the store could not note its clean end");
        }
        if let Err(error) = connection.wal_checkpoint_v2(None::<&str>, CheckpointMode::TRUNCATE) {
            tracing::warn!(%error, "the write-ahead log stays; the next open reads it");
        }
        if let Err((_, error)) = connection.close() {
            tracing::warn!(%error, "the store did not close its file");
        }
    }
}

struct Checkpointer {
    database: PathBuf,
    /// Weak, so that the checkpointer does not keep a dropped store alive.
    commands: WeakSender<Command>,
    woken: Receiver<()>,
    finish: Arc<AtomicBool>,
    sweep_interval: Duration,
}

impl Checkpointer {
    fn run(self) {
        let connection = match schema::open_checkpointer(&self.database) {
            Ok(connection) => connection,
            Err(fault) => {
                tracing::error!(%fault, "the store cannot keep its log short");
                return;
            }
        };
        let mut sweep_at = Instant::now() + self.sweep_interval;
        loop {
            match self.woken.recv_timeout(sweep_at.saturating_duration_since(Instant::now())) {
                Ok(()) => self.copy(&connection),
                Err(RecvTimeoutError::Timeout) => {
                    sweep_at = Instant::now() + self.sweep_interval;
                    // If the channel is full, the writer is busy; the next interval tries again.
                    if let Some(commands) = self.commands.upgrade() {
                        let _ = commands.try_send(Command::Sweep);
                    }
                }
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    /// Copies until little is left, and requests the rest from the writer if the log is long.
    fn copy(&self, connection: &Connection) {
        for _ in 0..4 {
            match connection.wal_checkpoint_v2(None::<&str>, CheckpointMode::PASSIVE) {
                Ok((log, copied)) => {
                    if i64::from(log) * PAGE_BYTES < START_OVER_BYTES {
                        return;
                    }
                    let bytes = i64::from(log) * PAGE_BYTES;
                    if log - copied <= REST_PAGES || bytes >= START_OVER_AT_ANY_COST_BYTES {
                        self.finish.store(true, Ordering::Relaxed);
                        return;
                    }
                }
                Err(error) => {
                    tracing::warn!(%error, "the write-ahead log could not be copied; it grows until the next try");
                    return;
                }
            }
        }
    }
}
