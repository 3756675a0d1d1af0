//! The yardstick: SQLite with the same batching and the same table, and nothing else.
//!
//! No check of existing keys, no checksum, no history, no watch: the cost of a store beyond this is its own.

use std::path::Path;
use std::thread::JoinHandle;

use ::store::Key;
use bytes::Bytes;
use rusqlite::Connection;
use tokio::sync::{mpsc, oneshot};

struct Put {
    key: Key,
    value: Bytes,
    answer: oneshot::Sender<Result<(), String>>,
}

pub(super) struct BareWriter {
    puts: mpsc::Sender<Put>,
    thread: JoinHandle<()>,
}

impl BareWriter {
    pub(super) fn open(path: &Path) -> Result<Self, String> {
        let connection = prepare(path).map_err(|error| error.to_string())?;
        let (puts, waiting) = mpsc::channel(1024);
        let thread = std::thread::Builder::new().name("bare-writer".to_owned());
        let thread = thread.spawn(move || write_all(&connection, waiting)).map_err(|error| error.to_string())?;
        Ok(BareWriter { puts, thread })
    }

    pub(super) async fn put(&self, key: Key, value: Bytes) -> Result<(), String> {
        let (answer, answered) = oneshot::channel();
        self.puts.send(Put { key, value, answer }).await.map_err(|_| "the writer ended".to_owned())?;
        answered.await.map_err(|_| "the writer ended".to_owned())?
    }

    pub(super) fn close(self) {
        drop(self.puts);
        // A panic of the writer has already failed the puts it left unanswered.
        let _ = self.thread.join();
    }
}

fn prepare(path: &Path) -> rusqlite::Result<Connection> {
    let connection = Connection::open(path)?;
    connection.pragma_update_and_check(None, "journal_mode", "WAL", |_| Ok(()))?;
    connection.pragma_update(None, "synchronous", "FULL")?;
    connection.pragma_update(None, "cache_size", -8192)?;
    connection.execute_batch(
        "CREATE TABLE puts (revision INTEGER PRIMARY KEY, key TEXT NOT NULL, value BLOB) STRICT;
         CREATE UNIQUE INDEX puts_by_key ON puts (key, revision);",
    )?;
    Ok(connection)
}

fn write_all(connection: &Connection, mut waiting: mpsc::Receiver<Put>) {
    let mut group = Vec::with_capacity(512);
    let mut revision = 0;
    while waiting.blocking_recv_many(&mut group, 512) > 0 {
        let outcome = write_group(connection, &group, &mut revision).map_err(|error| error.to_string());
        for put in group.drain(..) {
            let _ = put.answer.send(outcome.clone());
        }
    }
}

fn write_group(connection: &Connection, group: &[Put], revision: &mut i64) -> rusqlite::Result<()> {
    connection.prepare_cached("BEGIN IMMEDIATE")?.execute(())?;
    let mut insert = connection.prepare_cached("INSERT INTO puts (revision, key, value) VALUES (?1, ?2, ?3)")?;
    for put in group {
        *revision += 1;
        insert.execute((*revision, put.key.as_str(), &put.value[..]))?;
    }
    connection.prepare_cached("COMMIT")?.execute(()).map(drop)
}
