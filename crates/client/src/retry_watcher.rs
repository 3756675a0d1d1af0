//! `RetryWatcher`: every event from a version on, in order, across reconnects; or an explicit end.
//!
//! A reflector recovers by listing again, which skips the events in between. A program that needs each event (to wait for a
//! transition, or to check an order) needs the opposite: an error when continuity is lost.

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use thiserror::Error as ThisError;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use crate::list_watch::{ListerWatcher, WatchItem, WatchStream};
use crate::wire::{Params, VersionMatch};
use crate::{Error, ResourceVersion};

/// Minimum time between two starts; a watch that lived longer is restarted at once.
const RESTART_PERIOD: Duration = Duration::from_secs(1);

/// The start version is not a point in history.
#[derive(Debug, Clone, PartialEq, Eq, ThisError)]
#[error("cannot resume a watch from resource version {0:?}: list first and start from the version of the list")]
pub struct InvalidStart(String);

/// A watch that survives everything but the loss of history.
///
/// ```no_run
/// use std::sync::Arc;
///
/// use client::list_watch::{ApiListWatch, WatchItem};
/// use client::retry_watcher::{RetryWatcher, until};
/// use k8s_openapi::api::core::v1::Pod;
///
/// # async fn run(client: kube::Client) -> Result<(), client::retry_watcher::UntilError> {
/// let source = ApiListWatch::namespaced::<Pod>(client, "default").fields("metadata.name=web");
/// let mut watcher = RetryWatcher::with_initial_state(Arc::new(source));
/// until(&mut watcher, vec![Box::new(|item| matches!(item, WatchItem::Deleted(_)))]).await?;
/// # Ok(())
/// # }
/// ```
pub struct RetryWatcher {
    source: Arc<dyn ListerWatcher>,
    /// All events up to here were taken by the consumer.
    last: ResourceVersion,
    state: State,
    /// True until the initial state is complete: until then there is no version to resume from.
    initial: bool,
    done: CancellationToken,
}

enum State {
    /// No watch is open; open one not before this.
    Closed {
        not_before: Instant,
    },
    Open {
        stream: WatchStream,
        opened: Instant,
    },
    Ended,
}

impl RetryWatcher {
    /// Watches everything after `from`.
    pub fn new(source: Arc<dyn ListerWatcher>, from: ResourceVersion) -> Result<Self, InvalidStart> {
        if from.is_unset() || from == ResourceVersion::any() {
            return Err(InvalidStart(from.to_string()));
        }
        let state = State::Closed { not_before: Instant::now() };
        Ok(Self { source, last: from, state, initial: false, done: CancellationToken::new() })
    }

    /// Delivers the current objects as additions, then watches everything after that. Until the initial state is complete
    /// there is nothing to resume from: a failure before that is the end.
    pub fn with_initial_state(source: Arc<dyn ListerWatcher>) -> Self {
        let state = State::Closed { not_before: Instant::now() };
        let last = ResourceVersion::default();
        Self { source, last, state, initial: true, done: CancellationToken::new() }
    }

    /// Cancelled when there are no more events. Separate from the events: some may still be unread.
    pub fn done(&self) -> CancellationToken {
        self.done.clone()
    }

    /// The version up to which events were delivered.
    pub fn last_version(&self) -> &ResourceVersion {
        &self.last
    }

    /// Ends the watch. May be called any number of times.
    pub fn stop(&mut self) {
        self.state = State::Ended;
        self.done.cancel();
    }

    /// The next event; bookmarks are not shown. An ERROR item is the last one. Dropping the future loses nothing.
    pub async fn next(&mut self) -> Option<WatchItem> {
        loop {
            match &mut self.state {
                State::Ended => return None,
                State::Closed { not_before } => {
                    sleep_until(*not_before).await;
                    let opened = Instant::now();
                    match self.source.watch(self.params()).await {
                        Ok(stream) => self.state = State::Open { stream, opened },
                        Err(error) if self.initial || error.is_expired() || error.is_denied() => {
                            return Some(self.end_with(error));
                        }
                        Err(error) => self.restart(opened, error.retry_after()),
                    }
                }
                State::Open { stream, opened } => {
                    let opened = *opened;
                    match stream.next().await {
                        Some(Ok(item)) => {
                            if let Some(item) = self.take(item, opened) {
                                return Some(item);
                            }
                        }
                        Some(Err(Error::Decode { what, message })) => {
                            return Some(self.end_with(Error::Decode { what, message }));
                        }
                        Some(Err(error)) if self.initial => return Some(self.end_with(error)),
                        None if self.initial => {
                            let message = "the watch ended before the initial state was complete".to_owned();
                            return Some(self.end_with(Error::Decode { what: "a watch", message }));
                        }
                        Some(Err(_)) | None => self.restart(opened, None),
                    }
                }
            }
        }
    }

    fn params(&self) -> Params {
        let params = Params { allow_bookmarks: true, ..Params::default() };
        match self.initial {
            true => Params { send_initial_events: true, version_match: Some(VersionMatch::NotOlderThan), ..params },
            false => Params { version: Some(self.last.clone()), ..params },
        }
    }

    fn take(&mut self, item: WatchItem, opened: Instant) -> Option<WatchItem> {
        let version = match &item {
            WatchItem::Added(raw) | WatchItem::Modified(raw) | WatchItem::Deleted(raw) => raw.version.clone(),
            WatchItem::Bookmark(bookmark) => {
                if !self.initial || bookmark.initial_events_end {
                    self.initial = false;
                    self.last = bookmark.version.clone();
                }
                return None;
            }
            WatchItem::Error(error) if self.initial || error.is_expired() => return Some(self.end_with(error.clone())),
            WatchItem::Error(error) => {
                self.restart(opened, error.retry_after());
                return None;
            }
            WatchItem::Unknown { kind, .. } => {
                let message = format!("unknown event type {kind:?}");
                return Some(self.end_with(Error::Decode { what: "a watch event", message }));
            }
        };
        if version.is_unset() {
            let message = "an object without a resource version".to_owned();
            return Some(self.end_with(Error::Decode { what: "a watch event", message }));
        }
        if !self.initial {
            self.last = version;
        }
        Some(item)
    }

    fn restart(&mut self, opened: Instant, retry_after: Option<Duration>) {
        let not_before = (opened + RESTART_PERIOD).max(Instant::now() + retry_after.unwrap_or_default());
        self.state = State::Closed { not_before };
    }

    fn end_with(&mut self, error: Error) -> WatchItem {
        self.stop();
        WatchItem::Error(error)
    }
}

/// Waiting for conditions on a [`RetryWatcher`] failed.
#[derive(Debug, Clone, ThisError)]
pub enum UntilError {
    /// The watch ended before all conditions held.
    #[error("the watch ended before the condition was met")]
    Ended,
    /// The watch failed for good.
    #[error("the watch failed before the condition was met: {0}")]
    Failed(Error),
}

/// A condition on events.
pub type Condition = Box<dyn FnMut(&WatchItem) -> bool + Send>;

/// Waits until each condition has held, in order. The next condition is first tried on the event that satisfied the previous
/// one. Returns the event that satisfied the last.
pub async fn until(watcher: &mut RetryWatcher, conditions: Vec<Condition>) -> Result<Option<WatchItem>, UntilError> {
    let mut current: Option<WatchItem> = None;
    for mut condition in conditions {
        if current.as_ref().is_some_and(&mut condition) {
            continue;
        }
        loop {
            match watcher.next().await {
                None => return Err(UntilError::Ended),
                Some(WatchItem::Error(error)) => return Err(UntilError::Failed(error)),
                Some(item) => {
                    let holds = condition(&item);
                    current = Some(item);
                    if holds {
                        break;
                    }
                }
            }
        }
    }
    Ok(current)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scripted::*;

    fn watcher(source: &ScriptedSource) -> RetryWatcher {
        RetryWatcher::new(Arc::new(source.clone()), "5".into()).unwrap()
    }

    fn show(item: Option<WatchItem>) -> String {
        match item {
            Some(WatchItem::Added(raw)) => format!("+{raw:?}").split(' ').next().unwrap_or_default().to_owned(),
            Some(WatchItem::Error(_)) => "error".into(),
            Some(other) => format!("{other:?}"),
            None => "end".into(),
        }
    }

    fn versions(source: &ScriptedSource) -> Vec<String> {
        source.requests().iter().map(|p| p.version.clone().unwrap_or_default().to_string()).collect()
    }

    #[test]
    fn rw_01_a_start_that_is_no_point_in_history_is_refused() {
        for bad in ["", "0"] {
            let source = Arc::new(ScriptedSource::new());
            assert_eq!(RetryWatcher::new(source, bad.into()).err(), Some(InvalidStart(bad.into())));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn rw_02_bookmarks_move_the_version_and_are_not_shown() {
        let source = ScriptedSource::new();
        source.on_watch(Ok(vec![added("a@6"), bookmark("9")]));
        source.on_watch(Ok(vec![added("b@10"), Step::Hang]));
        let mut watcher = watcher(&source);
        assert_eq!(show(watcher.next().await), "+a@6");
        assert_eq!(watcher.last_version().as_str(), "6", "moves when the consumer takes the event");
        assert_eq!(show(watcher.next().await), "+b@10");
        assert_eq!(versions(&source), ["5", "9"]);
        assert!(source.requests().iter().all(|p| p.allow_bookmarks));
    }

    #[tokio::test(start_paused = true)]
    async fn rw_03_restarts_are_a_second_apart_and_follow_retry_after() {
        let source = ScriptedSource::new();
        source.on_watch(Ok(vec![]));
        source.on_watch(Err(refused()));
        source.on_watch(Ok(vec![in_stream(failure(500, "InternalError"))]));
        source.on_watch(Ok(vec![in_stream(failure(504, "Timeout"))]));
        source.on_watch(Ok(vec![in_stream(failure(400, "Surprise"))]));
        source.on_watch(Ok(vec![Step::Fail(refused())]));
        source.on_watch(Ok(vec![in_stream(busy(9))]));
        source.on_watch(Ok(vec![Step::Wait(Duration::from_secs(30))]));
        source.on_watch(Ok(vec![added("a@6"), Step::Hang]));
        let mut watcher = watcher(&source);
        assert_eq!(show(watcher.next().await), "+a@6");
        let at = source.request_times();
        let gaps: Vec<u64> = at.windows(2).map(|p| (p[1] - p[0]).as_secs()).collect();
        assert_eq!(gaps, [1, 1, 1, 1, 1, 1, 9, 30], "a long-lived watch restarts at once");
        assert!(versions(&source).iter().all(|version| version == "5"));
    }

    #[tokio::test(start_paused = true)]
    async fn rw_04_lost_history_denial_and_nonsense_are_the_end() {
        let nameless = raw(serde_json::json!({"metadata": {"name": "a"}}));
        type Check = fn(&Error) -> bool;
        let undecodable: Check = |error| matches!(error, Error::Decode { .. });
        let endings: Vec<(Result<Vec<Step>, Error>, Check)> = vec![
            (Ok(vec![in_stream(gone())]), Error::is_expired),
            (Err(gone()), Error::is_expired),
            (Err(failure(403, "Forbidden")), Error::is_denied),
            (Err(failure(401, "Unauthorized")), Error::is_denied),
            (Ok(vec![Step::Item(WatchItem::Added(nameless))]), undecodable),
            (Ok(vec![Step::Item(WatchItem::Unknown { kind: "X".into(), version: "9".into() })]), undecodable),
        ];
        for (ending, is_passed_on) in endings {
            let name = format!("{ending:?}");
            let source = ScriptedSource::new();
            source.on_watch(ending);
            let mut watcher = watcher(&source);
            assert!(matches!(watcher.next().await, Some(WatchItem::Error(error)) if is_passed_on(&error)), "{name}");
            assert!(watcher.done().is_cancelled(), "{name}");
            assert_eq!(show(watcher.next().await), "end", "{name}");
            assert_eq!(source.requests().len(), 1);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_initial_state_is_delivered_once_and_the_watch_resumes_after_it() {
        let source = ScriptedSource::new();
        source.on_watch(Ok(vec![added("a@9"), bookmark("3"), added("b@4"), end("12"), modified("a@13")]));
        source.on_watch(Ok(vec![deleted("b@14"), Step::Hang]));
        let mut watcher = RetryWatcher::with_initial_state(Arc::new(source.clone()));
        assert_eq!(show(watcher.next().await), "+a@9");
        assert!(watcher.last_version().is_unset(), "the version of an old object is not a position");
        assert_eq!(show(watcher.next().await), "+b@4");
        assert!(matches!(watcher.next().await, Some(WatchItem::Modified(_))));
        assert!(matches!(watcher.next().await, Some(WatchItem::Deleted(_))));
        assert_eq!(versions(&source), ["", "13"]);
        let asked: Vec<bool> = source.requests().iter().map(|params| params.send_initial_events).collect();
        assert_eq!(asked, [true, false]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_failure_before_the_initial_state_is_complete_is_the_end() {
        for ending in [Ok(vec![added("a@9")]), Err(refused()), Ok(vec![in_stream(failure(500, "InternalError"))])] {
            let name = format!("{ending:?}");
            let source = ScriptedSource::new();
            source.on_watch(ending);
            let mut watcher = RetryWatcher::with_initial_state(Arc::new(source.clone()));
            let mut last = show(watcher.next().await);
            if last == "+a@9" {
                last = show(watcher.next().await);
            }
            assert_eq!((last.as_str(), source.requests().len()), ("error", 1), "{name}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn rw_05_stop_is_idempotent_and_done_is_separate() {
        let source = ScriptedSource::new();
        let mut watcher = watcher(&source);
        let done = watcher.done();
        assert!(!done.is_cancelled());
        watcher.stop();
        watcher.stop();
        done.cancelled().await;
        assert_eq!(show(watcher.next().await), "end");
    }

    #[tokio::test(start_paused = true)]
    async fn rw_06_conditions_hold_one_after_the_other() {
        let source = ScriptedSource::new();
        source.on_watch(Ok(vec![added("a@6"), modified("a@7"), deleted("a@8"), Step::Hang]));
        let mut watching = watcher(&source);
        let any: Condition = Box::new(|_| true);
        let added_too: Condition = Box::new(|item| matches!(item, WatchItem::Added(_)));
        let gone_now: Condition = Box::new(|item| matches!(item, WatchItem::Deleted(_)));
        let last = until(&mut watching, vec![any, added_too, gone_now]).await.unwrap();
        assert!(matches!(last, Some(WatchItem::Deleted(_))), "the second condition held on the first event");

        let source = ScriptedSource::new();
        source.on_watch(Ok(vec![in_stream(gone())]));
        let mut watching = watcher(&source);
        let failed = until(&mut watching, vec![Box::new(|_| true)]).await;
        assert!(matches!(failed, Err(UntilError::Failed(_))));
        assert!(matches!(until(&mut watching, vec![Box::new(|_| true)]).await, Err(UntilError::Ended)));
    }
}
