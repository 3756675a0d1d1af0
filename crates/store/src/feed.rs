//! How a watch runs over a log inside this process: a cursor and a notification, never a queue for each watcher.
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

/// The most changes a batch carries.
pub(crate) const BATCH_CHANGES_MAX: usize = 1024;

/// A batch ends after the change that takes its values past this.
pub(crate) const BATCH_BYTES_MAX: usize = 4 * 1024 * 1024;

/// Progress is sent a little early, so that a busy machine still keeps the promised interval.
const PROGRESS_AFTER: Duration = Duration::from_millis(PROGRESS_INTERVAL.as_millis() as u64 * 3 / 4);

/// What an engine announces to everyone who waits for its log.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Announced {
    /// Everything up to here is acknowledged and readable.
    pub(crate) revision: Revision,
    pub(crate) closed: bool,
}

/// A log that can be read forward from any retained revision.
pub(crate) trait Log: Send + Sync + 'static {
    /// The changes after `after` below `prefix`, at most a batch of them. Asked only when the log reaches beyond `after`,
    /// and always gets further: the batch's revision is greater than `after`.
    fn read(&self, prefix: &Prefix, after: Revision) -> impl Future<Output = Result<Batch, WatchError>> + Send;
}

struct Cursor<L> {
    log: Arc<L>,
    announced: watch::Receiver<Announced>,
    prefix: Prefix,
    at: Revision,
    /// When silence has lasted long enough.
    progress_at: Instant,
    failed: bool,
}

/// A watch on `log`. The caller has checked that `after` can be watched from.
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
    /// Waits for the next thing to say; `None` once there is nothing left to say.
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
            // Asked here and not only below: a log that never rests elsewhere must not keep this watch silent.
            if Instant::now() >= self.progress_at {
                return Some(Ok(Batch { changes: Vec::new(), revision: self.at }));
            }
            tokio::select! {
                // An error means that the engine is gone: the same as closed.
                changed = self.announced.changed() => if changed.is_err() { return None },
                () = tokio::time::sleep_until(self.progress_at) => {}
            }
        }
    }
}
