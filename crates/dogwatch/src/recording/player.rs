//! A store that is played the changes of a recording, and that refuses all other writes.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use machinery::Revision;
use store::error::EngineError;
use store::memory::MemoryStore;
use store::{
    Changes, Entry, Key, ListQuery, Prefix, ReadError, Restored, Retention, Snapshot, Stats, Store, StoreFuture,
    WatchError, Write, WriteError,
};
use tokio::time::Instant;

use super::file::RecordedChange;

/// Longest wait between two changes, however slow the speed: a clock of the machine cannot hold more.
const WAIT_MAX: Duration = Duration::from_secs(365 * 24 * 3600);

/// Plays changes into a store.
pub(crate) struct Player {
    inner: Arc<MemoryStore>,
    /// Those that were not played yet.
    left: std::vec::IntoIter<RecordedChange>,
}

impl Player {
    pub(crate) fn new(changes: Vec<RecordedChange>) -> Self {
        // Every revision can be read again, however long it is ago.
        let retention = Retention {
            age_min: Duration::MAX,
            changes_min: u64::MAX,
            history_bytes_max: u64::MAX,
            ..Retention::default()
        };
        Player { inner: Arc::new(MemoryStore::new(retention)), left: changes.into_iter() }
    }

    /// The store, for a server.
    pub(crate) fn store(&self) -> Arc<dyn Store> {
        Arc::new(Played(Arc::clone(&self.inner)))
    }

    /// Plays all changes up to a revision at once.
    pub(crate) async fn play_until(&mut self, revision: Revision) -> Result<(), String> {
        while let Some(next) = self.left.as_slice().first().filter(|next| next.revision <= revision).cloned() {
            self.left.next();
            self.play(next).await?;
        }
        Ok(())
    }

    /// Plays what is left, so many times as fast as it was recorded; zero plays it at once. Returns the last revision.
    pub(crate) async fn play_all(mut self, speed: f64) -> Result<Revision, String> {
        let (began, first) = (Instant::now(), self.left.as_slice().first().map(|change| change.time));
        while let Some(next) = self.left.next() {
            let since = first.and_then(|first| Duration::try_from(next.time.duration_since(first)).ok());
            if let Some(since) = since.filter(|_| speed > 0.0) {
                let wait = Duration::try_from_secs_f64(since.as_secs_f64() / speed).unwrap_or(WAIT_MAX).min(WAIT_MAX);
                tokio::time::sleep_until(began + wait).await;
            }
            self.play(next).await?;
        }
        self.inner.current_revision().await.map_err(|error| error.to_string())
    }

    async fn play(&self, change: RecordedChange) -> Result<(), String> {
        let RecordedChange { revision, key, value, .. } = change;
        let current = self.inner.get(&key).await.map_err(|error| error.to_string())?;
        let expected = current.map(|entry| entry.revision);
        let written = self.inner.write_all(vec![Write { key, value, expected }]).await;
        let written = written.map_err(|error| error.to_string())?;
        if written == revision { Ok(()) } else { Err(format!("revision {revision} became {written}")) }
    }
}

/// The store without its writes.
struct Played(Arc<MemoryStore>);

fn refused<'a, T>() -> StoreFuture<'a, Result<T, WriteError>> {
    Box::pin(async { Err(WriteError::ReadOnly("a recording cannot be changed".to_owned())) })
}

impl Store for Played {
    fn get<'a>(&'a self, key: &'a Key) -> StoreFuture<'a, Result<Option<Entry>, ReadError>> {
        self.0.get(key)
    }

    fn list(&self, query: ListQuery) -> StoreFuture<'_, Result<Snapshot, ReadError>> {
        self.0.list(query)
    }

    fn create(&self, _: Key, _: Bytes) -> StoreFuture<'_, Result<Revision, WriteError>> {
        refused()
    }

    fn update(&self, _: Key, _: Bytes, _: Revision) -> StoreFuture<'_, Result<Revision, WriteError>> {
        refused()
    }

    fn delete(&self, _: Key, _: Revision) -> StoreFuture<'_, Result<Revision, WriteError>> {
        refused()
    }

    fn write_all(&self, _: Vec<Write>) -> StoreFuture<'_, Result<Revision, WriteError>> {
        refused()
    }

    fn restore(&self, _: Vec<Entry>) -> StoreFuture<'_, Result<Restored, WriteError>> {
        refused()
    }

    /// A world that is forked from a recording can be written.
    fn fork(&self, at: Option<Revision>) -> StoreFuture<'_, Result<Arc<dyn Store>, ReadError>> {
        self.0.fork(at)
    }

    fn watch(&self, prefix: Prefix, after: Revision) -> StoreFuture<'_, Result<Changes, WatchError>> {
        self.0.watch(prefix, after)
    }

    fn compact(&self, _: Revision) -> StoreFuture<'_, Result<(), ReadError>> {
        Box::pin(async { Err(EngineError::new("a recording keeps its history").into()) })
    }

    fn current_revision(&self) -> StoreFuture<'_, Result<Revision, ReadError>> {
        self.0.current_revision()
    }

    fn oldest_revision<'a>(&'a self, prefix: &'a Prefix) -> StoreFuture<'a, Result<Revision, ReadError>> {
        self.0.oldest_revision(prefix)
    }

    fn backup<'a>(&'a self, to: &'a Path) -> StoreFuture<'a, Result<(), EngineError>> {
        self.0.backup(to)
    }

    fn stats(&self) -> StoreFuture<'_, Result<Stats, ReadError>> {
        self.0.stats()
    }

    fn close(&self) -> StoreFuture<'_, ()> {
        self.0.close()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(revision: u64, second: u32, value: Option<&'static str>) -> RecordedChange {
        RecordedChange {
            revision: Revision(revision),
            time: format!("2026-01-01T00:00:{second:02}Z").parse().unwrap(),
            key: Key::new("core/configmaps/default/a").unwrap(),
            value: value.map(|text| Bytes::from_static(text.as_bytes())),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn see_5_changes_are_played_at_their_pace_and_nobody_else_writes() {
        let changes = vec![
            change(1, 0, Some("one")),
            change(2, 10, Some("two")),
            change(3, 30, None),
            change(4, 30, Some("four")),
        ];
        let mut player = Player::new(changes);
        let store = player.store();
        player.play_until(Revision(1)).await.unwrap();
        assert_eq!(store.current_revision().await.unwrap(), Revision(1));
        let key = Key::new("core/configmaps/default/b").unwrap();
        let refused = store.create(key, Bytes::new()).await;
        assert!(matches!(refused, Err(WriteError::ReadOnly(_))), "{refused:?}");
        let began = Instant::now();
        let playing = tokio::spawn(player.play_all(2.0));
        let mut watch = store.watch(Prefix::everything(), Revision(1)).await.unwrap();
        let mut seen = Vec::new();
        while seen.len() < 3 {
            let batch = watch.next().await.unwrap().unwrap();
            seen.extend(batch.changes.iter().map(|change| (change.revision.0, began.elapsed().as_secs())));
        }
        assert_eq!(seen, [(2, 0), (3, 10), (4, 10)], "twenty seconds at twice the speed");
        assert_eq!(playing.await.unwrap().unwrap(), Revision(4));
        let past = store.list(ListQuery { at: Some(Revision(2)), ..ListQuery::default() }).await.unwrap();
        assert_eq!(&past.entries[0].value[..], b"two");
    }

    #[tokio::test]
    async fn see_5_a_speed_of_zero_plays_at_once() {
        let player = Player::new(vec![change(1, 0, Some("one")), change(2, 59, Some("two"))]);
        assert_eq!(player.play_all(0.0).await.unwrap(), Revision(2));
    }
}
