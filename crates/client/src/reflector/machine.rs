//! The states of a reflector and their transitions.
//!
//! ```text
//!            ┌────────────────────────── Pause ◄──────────────┐ any failure that ends a round
//!            ▼                                                │
//!          Start ──► StreamList ──(end bookmark)──────────► Watch ◄──┐
//!            │           │ cannot, or never ends              ▲ │    │ stream ended:
//!            │           ▼                                    │ │    │ same version
//!            └─────────► List ──(whole set)──► OpenWatch ─────┘ └────┘
//! ```
//!
//! Every state is one function that returns the next state. Nothing here checks for a stop: the caller drops the running
//! future, and with it the request, the pause or the wait for the target.

use std::sync::Arc;
use std::time::Duration;

use futures::{FutureExt, StreamExt};
use tokio::time::{Instant, sleep, sleep_until, timeout_at};

use super::staging::{Staging, is_state};
use super::{Decode, Phase, Problem, ProblemHandler, ReflectorConfig, ReflectorMetrics, Target, log_problem};
use crate::backoff::{Backoff, after, from_now};
use crate::list_watch::{Bookmark, ExpectedKind, ListerWatcher, WatchItem, WatchStream};
use crate::object::Undecodable;
use crate::pager::{PAGE_LIMIT, list_all};
use crate::queue::{Certainty, Deletion, Delta};
use crate::wire::{Params, VersionMatch};
use crate::{Error, RawObject, ResourceVersion, Stored};

/// The state of a reflector.
enum State {
    /// The set is unknown, or known to be incomplete: get it whole.
    Start,
    /// Request the whole set as a stream that continues as the watch.
    StreamList,
    /// Request the whole set as a list.
    List,
    /// The set is complete up to the last version: watch from there.
    OpenWatch,
    /// Changes arrive.
    Watch(OpenStream),
    /// Wait, then continue.
    Pause(Duration, After),
}

/// The state after a pause.
enum After {
    Start,
    StreamList,
    OpenWatch,
}

struct OpenStream {
    stream: WatchStream,
    /// Time of the request.
    opened: Instant,
    /// Number of events, bookmarks included.
    events: u64,
    /// False while the watch shows its initial state: if it was opened at "" or "0", which is no point in history, the
    /// leading ADDED events are in no order and their versions are not a position (RF-3).
    versions_trusted: bool,
}

/// Decodes wire objects into stored ones.
pub(super) struct Decoder<K: ?Sized> {
    expected: Option<ExpectedKind>,
    without_managed_fields: bool,
    decode: Decode<K>,
    metrics: Arc<ReflectorMetrics>,
}

impl<K: ?Sized> Decoder<K> {
    /// False for objects of another kind, and for tables (RF-4).
    pub(super) fn is_expected(&self, raw: &RawObject) -> bool {
        let foreign = match (&raw.kind, &self.expected) {
            (Some(kind), Some(expected)) => {
                *kind != expected.kind || raw.api_version.as_ref().is_some_and(|v| *v != expected.api_version)
            }
            (Some(kind), None) => kind == "Table",
            (None, _) => false,
        };
        if foreign {
            self.metrics.foreign.inc();
            tracing::warn!(kind = ?raw.kind, expected = ?self.expected, key = %raw.key, "skipping an object of another kind");
        }
        !foreign
    }

    /// The stored form; `None` if the transform dropped the object.
    pub(super) fn decode(&self, raw: RawObject) -> Result<Option<Arc<K>>, Box<Undecodable>> {
        let raw = if self.without_managed_fields { raw.without_managed_fields() } else { raw };
        (self.decode)(&raw).map_err(|error| {
            self.metrics.undecodable.inc();
            tracing::warn!(key = %raw.key, version = %raw.version, %error, "cannot decode an object");
            Box::new(Undecodable { raw, error: Arc::new(error) })
        })
    }
}

pub(super) struct Machine<K: ?Sized> {
    source: Arc<dyn ListerWatcher>,
    target: Arc<dyn Target<K>>,
    config: ReflectorConfig,
    metrics: Arc<ReflectorMetrics>,
    decoder: Arc<Decoder<K>>,
    pub(super) on_problem: ProblemHandler,
    backoff: Backoff,
    /// The target is complete up to here; unset before the first set.
    last: Option<ResourceVersion>,
    /// Objects up to this version were sent to the target by a relist that did not complete. No older set may follow.
    ahead: Option<ResourceVersion>,
    /// The server cannot serve `last` (expired, or too large): request the most recent state instead.
    last_unavailable: bool,
    /// An RV=0 list was paginated, so the server's cache is off: page from now on.
    pages: bool,
    /// Number of consecutive "too many requests" responses to the streaming list.
    busy: u32,
    /// Number of consecutive streaming lists that ended before their end bookmark.
    unfinished: u32,
    /// Times of the first and the last of the current streak of internal errors.
    internal_errors: Option<(Instant, Instant)>,
}

/// Time without an internal error that ends a streak of them.
const INTERNAL_ERROR_CALM: Duration = Duration::from_secs(60);

/// Longest streaming list, in multiples of the limit for one without progress.
const INITIAL_EVENTS_EXTENSIONS: u32 = 10;

/// Number of times that a streaming list that ended early is reopened without a delay.
const UNFINISHED_FREE: u32 = 2;

impl<K: Stored + ?Sized> Machine<K> {
    pub(super) fn new(
        source: Arc<dyn ListerWatcher>,
        target: Arc<dyn Target<K>>,
        config: ReflectorConfig,
        metrics: Arc<ReflectorMetrics>,
        decode: Decode<K>,
    ) -> Self {
        let decoder = Decoder {
            expected: source.expected_kind(),
            without_managed_fields: config.without_managed_fields,
            decode,
            metrics: metrics.clone(),
        };
        Self {
            source,
            target,
            metrics,
            decoder: Arc::new(decoder),
            on_problem: Arc::new(log_problem),
            backoff: Backoff::new(config.backoff),
            config,
            last: None,
            ahead: None,
            last_unavailable: false,
            pages: false,
            busy: 0,
            unfinished: 0,
            internal_errors: None,
        }
    }

    pub(super) fn set_decode(&mut self, decode: Decode<K>) {
        let Decoder { expected, without_managed_fields, metrics, .. } = &*self.decoder;
        self.decoder = Arc::new(Decoder {
            expected: expected.clone(),
            without_managed_fields: *without_managed_fields,
            decode,
            metrics: metrics.clone(),
        });
    }

    pub(super) async fn run(&mut self) {
        let mut state = State::Start;
        loop {
            state = match state {
                State::Start if self.config.streaming && self.source.supports_streaming_list() => State::StreamList,
                State::Start => State::List,
                State::StreamList => self.stream_list().await,
                State::List => self.list().await,
                State::OpenWatch => self.open_watch().await,
                State::Watch(stream) => self.watch(stream).await,
                State::Pause(delay, after) => {
                    sleep(delay).await;
                    match after {
                        After::Start => State::Start,
                        After::StreamList => State::StreamList,
                        After::OpenWatch => State::OpenWatch,
                    }
                }
            }
        }
    }

    // ---- the whole set as a stream ----

    async fn stream_list(&mut self) -> State {
        self.metrics.streaming_lists.inc();
        let requested = self.relist_version();
        let params = Params {
            version: Some(requested.clone()),
            version_match: Some(VersionMatch::NotOlderThan),
            allow_bookmarks: true,
            send_initial_events: true,
            timeout_seconds: Some(self.config.watch_timeout_seconds()),
            ..Params::default()
        };
        let opened = Instant::now();
        // Each initial object is progress and extends the limit, but not beyond `longest`.
        let longest = from_now(self.config.initial_events_limit.saturating_mul(INITIAL_EVENTS_EXTENSIONS));
        let limit = from_now(self.config.initial_events_limit);
        let stream = match timeout_at(limit, self.source.watch(params)).await {
            Ok(Ok(stream)) => stream,
            Ok(Err(error)) => return self.stream_list_failed(Phase::Open, error, &requested),
            Err(_) => return self.give_up_streaming("no response to the streaming list in time"),
        };
        let open = OpenStream { stream, opened, events: 0, versions_trusted: true };
        let mut staging = self.staging(self.config.relist_in_place && !requested.is_unset());
        let state = self.stage_stream(open, &mut staging, &requested, limit, longest).await;
        self.keep_ahead(&staging);
        state
    }

    async fn stage_stream(
        &mut self,
        mut open: OpenStream,
        staging: &mut Staging<K>,
        requested: &ResourceVersion,
        mut limit: Instant,
        longest: Instant,
    ) -> State {
        let opened = open.opened;
        let mut warn_at = from_now(self.config.initial_events_warning);
        loop {
            let item = match timeout_at(warn_at.min(limit), open.stream.next()).await {
                Ok(item) => item,
                Err(_) if Instant::now() >= limit => {
                    return self.give_up_streaming("the end of the initial state did not arrive in time");
                }
                Err(_) => {
                    tracing::warn!(waited = ?opened.elapsed(), "still waiting for the end of the initial state");
                    warn_at = from_now(self.config.initial_events_warning);
                    continue;
                }
            };
            let now = Instant::now();
            self.metrics.record_arrival(now);
            match item {
                Some(Ok(WatchItem::Added(raw))) => {
                    open.events += 1;
                    staging.insert(raw).await;
                    limit = longest.min(after(now, self.config.initial_events_limit));
                }
                Some(Ok(WatchItem::Modified(raw))) => {
                    open.events += 1;
                    staging.insert(raw).await;
                }
                Some(Ok(WatchItem::Deleted(raw))) => {
                    open.events += 1;
                    staging.remove(&raw);
                }
                Some(Ok(WatchItem::Bookmark(Bookmark { version, initial_events_end: true }))) => {
                    open.events += 1;
                    (self.busy, self.unfinished) = (0, 0);
                    return match self.accept_set(staging, requested, version).await {
                        Accepted::Yes => State::Watch(open),
                        Accepted::HistoryWentBack => State::Start,
                    };
                }
                Some(Ok(WatchItem::Bookmark(_) | WatchItem::Unknown { .. })) => open.events += 1,
                Some(Ok(WatchItem::Error(error))) => return self.stream_list_failed(Phase::Stream, error, requested),
                Some(Err(error)) if !error.is_broken_connection() => {
                    return self.stream_list_failed(Phase::Stream, error, requested);
                }
                Some(Err(_)) | None if self.was_very_short(&open) => {
                    return self.give_up_streaming("the streaming list ended at once");
                }
                Some(Err(_)) | None => {
                    self.unfinished += 1;
                    if self.unfinished > UNFINISHED_FREE {
                        return State::Pause(self.backoff.next(None), After::StreamList);
                    }
                    return State::StreamList;
                }
            }
        }
    }

    fn stream_list_failed(&mut self, phase: Phase, error: Error, requested: &ResourceVersion) -> State {
        if error.is_refused() || error.is_too_many_requests() {
            self.report(phase, &error);
            self.busy += u32::from(error.is_too_many_requests());
            if self.busy >= self.config.busy_limit {
                self.busy = 0;
                self.metrics.fallbacks.inc();
                return State::List;
            }
            return State::Pause(self.backoff.next(error.retry_after()), After::StreamList);
        }
        if (error.is_expired() || error.is_too_large_version()) && !requested.is_unset() {
            self.last_unavailable = true;
            return State::StreamList;
        }
        // A refusal to stream is not a problem: the list that follows reports a real one, such as a missing permission.
        if phase == Phase::Stream {
            self.report(phase, &error);
        }
        self.give_up_streaming("the server does not stream its initial state")
    }

    fn give_up_streaming(&mut self, why: &str) -> State {
        tracing::debug!(why, "falling back to a list");
        self.metrics.fallbacks.inc();
        State::List
    }

    // ---- the whole set as a list ----

    async fn list(&mut self) -> State {
        let mut tried_recent = false;
        loop {
            let requested = if self.last.is_none() && !self.last_unavailable {
                ResourceVersion::any()
            } else {
                self.relist_version()
            };
            match self.list_at(&requested).await {
                Ok(Accepted::Yes) => return State::OpenWatch,
                Ok(Accepted::HistoryWentBack) => {}
                Err(error) if !tried_recent && (error.is_expired() || error.is_too_large_version()) => {
                    self.last_unavailable = true;
                    tried_recent = true;
                }
                Err(error) => {
                    self.report(Phase::List, &error);
                    return State::Pause(self.backoff.next(error.retry_after()), After::Start);
                }
            }
        }
    }

    async fn list_at(&mut self, requested: &ResourceVersion) -> Result<Accepted, Error> {
        self.metrics.lists.inc();
        let zero = *requested == ResourceVersion::any();
        let limit = match self.config.page_limit {
            Some(forced) => Some(forced),
            None if self.pages || zero || requested.is_unset() => Some(PAGE_LIMIT),
            // With a limit the server would read its store; without one it can serve from its cache.
            None => None,
        };
        let params = Params { version: Some(requested.clone()), limit, ..Params::default() };
        // The pages of one list may be served by servers at different versions; an unpaged list cannot.
        let in_place = self.config.relist_in_place && limit.is_none();
        let mut staging = self.staging(in_place);
        // Boxed: the compiler cannot prove that the future of a sink behind a reference is `Send` in the place where it is spawned.
        let listed = list_all(&*self.source, params, self.config.idle_limit, &mut staging).boxed().await;
        self.keep_ahead(&staging);
        let listed = listed?;
        self.metrics.record_arrival(Instant::now());
        if zero && listed.paginated {
            self.pages = true;
        }
        Ok(self.accept_set(&mut staging, requested, listed.version).await)
    }

    // ---- changes ----

    async fn open_watch(&mut self) -> State {
        let version = self.last.clone().unwrap_or_default();
        let params = Params {
            version: Some(version.clone()),
            allow_bookmarks: true,
            timeout_seconds: Some(self.config.watch_timeout_seconds()),
            ..Params::default()
        };
        self.metrics.watches.inc();
        let opened = Instant::now();
        let answer = tokio::time::timeout(self.config.idle_limit, self.source.watch(params)).await;
        match answer {
            Ok(Ok(stream)) => {
                let versions_trusted = !version.is_unset() && version != ResourceVersion::any();
                State::Watch(OpenStream { stream, opened, events: 0, versions_trusted })
            }
            // A server that restarts refuses or breaks connections: no change is known to be missing, so no relist.
            Ok(Err(error)) if error.is_unreachable() || error.is_too_many_requests() => {
                self.report(Phase::Open, &error);
                State::Pause(self.backoff.next(error.retry_after()), After::OpenWatch)
            }
            Ok(Err(error)) => {
                self.report(Phase::Open, &error);
                State::Pause(self.backoff.next(error.retry_after()), After::Start)
            }
            Err(_) => {
                self.metrics.idle_restarts.inc();
                State::Pause(self.backoff.next(None), After::OpenWatch)
            }
        }
    }

    async fn watch(&mut self, mut open: OpenStream) -> State {
        let mut resync_at = self.config.resync.map(from_now);
        // Reset when it fires and not for each event, which would take the timer's lock twice for each event.
        let idle = sleep_until(from_now(self.config.idle_limit));
        tokio::pin!(idle);
        let mut idle_at = idle.deadline();
        loop {
            let resync = async {
                match resync_at {
                    Some(at) => sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            let item = tokio::select! {
                biased;
                item = open.stream.next() => item,
                () = resync => {
                    if self.target.should_resync()
                        && let Err(error) = self.target.apply(Delta::SyncAll).await
                    {
                        tracing::warn!(%error, "resync failed");
                        return self.end_round(&open, None);
                    }
                    resync_at = self.config.resync.map(from_now);
                    continue;
                }
                () = &mut idle => {
                    if Instant::now() < idle_at {
                        idle.as_mut().reset(idle_at);
                        continue;
                    }
                    tracing::info!(version = ?self.last, "nothing arrived on the watch, reopening it");
                    self.metrics.idle_restarts.inc();
                    self.backoff.stream_ended(open.opened);
                    return State::OpenWatch;
                }
            };
            let now = Instant::now();
            idle_at = after(now, self.config.idle_limit);
            self.metrics.record_arrival(now);
            match item {
                Some(Ok(WatchItem::Error(error))) => return self.stream_error(&open, error),
                Some(Ok(item)) => {
                    open.events += 1;
                    self.metrics.events.inc();
                    if let Next::HistoryWentBack = self.take_event(item, &mut open).await {
                        self.last_unavailable = true;
                        return self.end_round(&open, None);
                    }
                }
                Some(Err(error)) if !error.is_broken_connection() => return self.stream_error(&open, error),
                Some(Err(_)) | None if self.was_very_short(&open) => {
                    tracing::debug!("the watch ended at once and without an event");
                    return self.end_round(&open, None);
                }
                Some(Err(_)) | None => {
                    self.metrics.restarts.inc();
                    self.backoff.stream_ended(open.opened);
                    return State::OpenWatch;
                }
            }
        }
    }

    fn stream_error(&mut self, open: &OpenStream, error: Error) -> State {
        self.report(Phase::Stream, &error);
        if error.is_too_many_requests() {
            self.backoff.stream_ended(open.opened);
            return State::Pause(self.backoff.next(error.retry_after()), After::OpenWatch);
        }
        if error.is_internal() && self.within_internal_error_window() {
            return State::OpenWatch;
        }
        self.end_round(open, error.retry_after())
    }

    fn within_internal_error_window(&mut self) -> bool {
        let now = Instant::now();
        let began = match self.internal_errors {
            Some((began, last)) if now - last <= INTERNAL_ERROR_CALM => began,
            _ => now,
        };
        self.internal_errors = Some((began, now));
        !self.config.internal_error_window.is_zero() && now - began <= self.config.internal_error_window
    }

    fn end_round(&mut self, open: &OpenStream, hint: Option<Duration>) -> State {
        self.backoff.stream_ended(open.opened);
        State::Pause(self.backoff.next(hint), After::Start)
    }

    // ---- one event ----

    /// Passes an event to the target, then moves the last version (RF-1, RF-2).
    async fn take_event(&mut self, item: WatchItem, open: &mut OpenStream) -> Next {
        let version = match item {
            WatchItem::Added(raw) => {
                self.metrics.bytes.add(raw.body.len() as u64);
                if !self.decoder.is_expected(&raw) {
                    return Next::Continue;
                }
                if self.is_repeated(&raw) {
                    self.metrics.repeated.inc();
                    return Next::Continue;
                }
                let version = raw.version.clone();
                self.store(raw, Delta::Added).await;
                if !open.versions_trusted {
                    return Next::Continue;
                }
                version
            }
            WatchItem::Modified(raw) => {
                self.metrics.bytes.add(raw.body.len() as u64);
                if !self.decoder.is_expected(&raw) {
                    return Next::Continue;
                }
                let version = raw.version.clone();
                self.store(raw, Delta::Updated).await;
                version
            }
            WatchItem::Deleted(raw) => {
                self.metrics.bytes.add(raw.body.len() as u64);
                if !self.decoder.is_expected(&raw) {
                    return Next::Continue;
                }
                let version = raw.version.clone();
                self.delete(raw).await;
                version
            }
            WatchItem::Bookmark(bookmark) => {
                if self.last.as_ref().is_some_and(|last| bookmark.version.is_before(last)) {
                    tracing::warn!(bookmark = %bookmark.version, last = ?self.last, "the server's history went back");
                    return Next::HistoryWentBack;
                }
                self.apply(Delta::Bookmark(bookmark.version.clone())).await;
                bookmark.version
            }
            WatchItem::Unknown { kind, version } => {
                tracing::warn!(kind, "unknown type of watch event");
                version
            }
            // Handled by the caller.
            WatchItem::Error(_) => return Next::Continue,
        };
        open.versions_trusted = true;
        self.set_last(version);
        Next::Continue
    }

    async fn store(&mut self, raw: RawObject, delta: fn(Arc<K>) -> Delta<K>) {
        match self.decoder.decode(raw) {
            Ok(Some(object)) => self.apply(delta(object)).await,
            Ok(None) => {}
            Err(undecodable) => self.apply(Delta::Undecodable(undecodable)).await,
        }
    }

    async fn delete(&mut self, raw: RawObject) {
        let key = raw.key.clone();
        // The object is gone even if its last state cannot be decoded.
        let object = match self.decoder.decode(raw) {
            Ok(Some(object)) => Some(object),
            Ok(None) | Err(_) => self.target.known(&key),
        };
        self.apply(Delta::Deleted(Deletion { key, object, certainty: Certainty::Observed })).await;
    }

    /// True for an ADDED whose state is already stored, or older: the server replays history that was not requested.
    fn is_repeated(&self, raw: &RawObject) -> bool {
        self.target.known(&raw.key).is_some_and(|known| {
            let stored = known.version();
            known.uid() == raw.uid && (is_state(&*known, raw) || raw.version.is_before(&stored))
        })
    }

    async fn apply(&self, delta: Delta<K>) {
        if let Err(error) = self.target.apply(delta).await {
            tracing::warn!(%error, "the target refused a change");
        }
    }

    // ---- shared by both ways to get the whole set ----

    /// Creates the staging area of the next set. In place, changed objects are sent to the target as they arrive; only for a
    /// set that the server guarantees to be no older than the target's.
    fn staging(&self, in_place: bool) -> Staging<K> {
        let not_older = self.last.is_some() && !self.last_unavailable;
        Staging::new(
            self.decoder.clone(),
            self.target.clone(),
            self.metrics.clone(),
            !self.last_unavailable,
            in_place && not_older,
        )
    }

    /// Remembers how far a relist has changed the target, in case it does not complete.
    fn keep_ahead(&mut self, staging: &Staging<K>) {
        if let Some(sent) = staging.newest_sent()
            && self.ahead.as_ref().is_none_or(|ahead| ahead.is_before(sent))
        {
            self.ahead = Some(sent.clone());
        }
    }

    async fn accept_set(
        &mut self,
        staging: &mut Staging<K>,
        requested: &ResourceVersion,
        version: ResourceVersion,
    ) -> Accepted {
        let went_back = [&self.last, &self.ahead].into_iter().flatten().any(|seen| version.is_before(seen));
        if went_back && !(requested.is_unset() && self.last_unavailable) {
            tracing::warn!(%version, last = ?self.last, "the server's history went back, requesting its most recent state");
            self.last_unavailable = true;
            return Accepted::HistoryWentBack;
        }
        if went_back {
            self.metrics.history_resets.inc();
        }
        self.last_unavailable = false;
        self.metrics.replacements.inc();
        self.apply(Delta::ReplacedAll(staging.finish(version.clone(), went_back))).await;
        staging.forget_sent();
        self.ahead = None;
        self.set_last(version);
        Accepted::Yes
    }

    /// The version that a whole set must not be older than: the last one, unless the server cannot serve it.
    fn relist_version(&self) -> ResourceVersion {
        match (&self.last, &self.ahead) {
            _ if self.last_unavailable => ResourceVersion::unset(),
            (Some(last), Some(ahead)) if last.is_before(ahead) => ahead.clone(),
            (Some(last), _) => last.clone(),
            (None, _) => ResourceVersion::unset(),
        }
    }

    fn set_last(&mut self, version: ResourceVersion) {
        self.metrics.set_last_version(&version);
        self.last = Some(version);
    }

    fn was_very_short(&self, open: &OpenStream) -> bool {
        open.events == 0 && open.opened.elapsed() < self.config.very_short
    }

    fn report(&self, phase: Phase, error: &Error) {
        (self.on_problem)(&Problem { phase, error: error.clone() });
    }
}

enum Accepted {
    Yes,
    HistoryWentBack,
}

enum Next {
    Continue,
    HistoryWentBack,
}
