//! Watches over a log in this process: a cursor and a notification, never a queue for each watcher.
//!
//! The engine announces how far its log reaches; a watch that is not there yet reads a bounded batch from its own cursor.
//! A slow reader therefore costs nothing but its cursor, and many changes made in the meantime arrive as one batch.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use futures::stream;
use machinery::Revision;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::contract::{Batch, Changes, PROGRESS_INTERVAL};
use crate::error::WatchError;
use crate::key::Prefix;

/// Changes in a batch at most.
pub(crate) const BATCH_CHANGES_MAX: usize = 1024;

/// A batch ends after the change that takes its values past this.
pub(crate) const BATCH_BYTES_MAX: usize = 4 * 1024 * 1024;

/// Progress is sent early, so that a busy machine still keeps the promised interval.
const PROGRESS_AFTER: Duration = Duration::from_millis(PROGRESS_INTERVAL.as_millis() as u64 * 3 / 4);

/// State of an engine's log, announced to its watches.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Announced {
    /// Every write up to here is acknowledged and readable.
    pub(crate) revision: Revision,
    pub(crate) closed: bool,
}

/// A log that can be read forward from any retained revision.
pub(crate) trait Log: Send + Sync + 'static {
    /// Reads one batch of the changes after `after` below `prefix`. Called only when the log reaches beyond `after`. Always
    /// makes progress: the batch's revision is greater than `after`.
    fn read(&self, prefix: &Prefix, after: Revision) -> impl Future<Output = Result<Batch, WatchError>> + Send;
}

struct Cursor<L> {
    log: Arc<L>,
    announced: watch::Receiver<Announced>,
    prefix: Prefix,
    at: Revision,
    /// When to report progress if nothing else is sent.
    progress_at: Instant,
    failed: bool,
}

/// Starts a watch on `log`. The caller has checked that `after` can be watched from.
pub(crate) fn changes<L: Log>(
    log: Arc<L>,
    announced: watch::Receiver<Announced>,
    prefix: Prefix,
    after: Revision,
) -> Changes {
    let cursor =
        Cursor { log, announced, prefix, at: after, progress_at: Instant::now() + PROGRESS_AFTER, failed: false };
    Changes::new(stream::unfold(cursor, |mut cursor| async move {
        let batch = cursor.step().await?;
        cursor.progress_at = Instant::now() + PROGRESS_AFTER;
        cursor.failed = batch.is_err();
        Some((batch, cursor))
    }))
}

impl<L: Log> Cursor<L> {
    /// Waits for the next batch; `None` once the log is closed and read to its end, or after an error.
    async fn step(&mut self) -> Option<Result<Batch, WatchError>> {
        if self.failed {
            return None;
        }
        loop {
            let Announced { revision: end, closed } = *self.announced.borrow_and_update();
            while self.at < end {
                let batch = match self.log.read(&self.prefix, self.at).await {
                    Ok(batch) => batch,
                    Err(error) => return Some(Err(error)),
                };
                self.at = batch.revision;
                if !batch.changes.is_empty() {
                    return Some(Ok(batch));
                }
            }
            if closed {
                return None;
            }
            // Checked here as well as below: a log that is always busy elsewhere must not keep this watch silent.
            if Instant::now() >= self.progress_at {
                return Some(Ok(Batch { changes: Vec::new(), revision: self.at }));
            }
            tokio::select! {
                // An error means that the engine was dropped, which is the same as closed.
                changed = self.announced.changed() => if changed.is_err() { return None },
                () = tokio::time::sleep_until(self.progress_at) => {}
            }
        }
    }
}
