//! WATCH: opens a watch at the revision that a client requests.

use std::sync::Arc;
use std::time::Duration;

use cache::Start;
use machinery::options::{ListOptions, WatchStart};
use machinery::{Revision, Status};
use rand::Rng;

use super::watch_view::{WatchTerms, WatchView};
use super::{list, past};
use crate::conversion_webhook;
use crate::failure;
use crate::registry::Registry;
use crate::request::Target;

/// Opens a watch; with `at`, what is there at its beginning is that of an earlier revision.
pub(crate) async fn watch(
    registry: &Registry,
    target: &Target,
    options: &ListOptions,
    at: Option<Revision>,
) -> Result<WatchView, Status> {
    let filter = registry.filter(target, options)?;
    let start = options.watch_start()?;
    let from = match start {
        WatchStart::After(revision) | WatchStart::InitialNotOlderThan(revision) => revision,
        _ => Revision::ZERO,
    };
    let settings = registry.settings();
    let terms = WatchTerms {
        bookmarks: options.allow_watch_bookmarks,
        mark_initial_end: options.wants_initial_bookmark(),
        timeout: watch_timeout(options.timeout_seconds, settings.watch_timeout_min),
        from,
    };
    let (kind, cache, clock) = (Arc::clone(&target.kind), Arc::clone(registry.cache()), settings.clock.clone());
    if let Some(computed) = registry.computed(target) {
        let start = match start {
            WatchStart::After(revision) => Start::After(revision),
            WatchStart::FreshOnly | WatchStart::AnyOnly => Start::Now,
            _ => Start::Initial,
        };
        let watch = computed.watch(&target.kind.collection, start);
        return Ok(WatchView::computed(kind, cache, (watch, filter), terms, clock));
    }
    if let Some(at) = at.filter(|_| !matches!(start, WatchStart::After(_))) {
        let collection = registry.collection(&target.kind);
        let snapshot = match start {
            WatchStart::InitialNotOlderThan(asked) => past::refuse_newer(asked, at),
            _ => Ok(()),
        };
        let snapshot = match snapshot {
            Ok(()) => cache.snapshot_at(&collection, at).await.map_err(failure::exact),
            Err(status) => Err(status),
        };
        let watcher = match snapshot {
            Err(status) => return Ok(WatchView::refused(kind, cache, status, terms, clock)),
            Ok(_) if matches!(start, WatchStart::FreshOnly | WatchStart::AnyOnly) => {
                cache.watch(&collection, filter, Start::After(at))
            }
            Ok(snapshot) => cache.watch_at(&collection, filter, snapshot),
        };
        return Ok(converted(registry, target, WatchView::new(kind, cache, watcher, terms, clock)));
    }
    let reached = match start {
        WatchStart::InitialFresh | WatchStart::FreshOnly => registry.storage().fresh().await,
        WatchStart::InitialNotOlderThan(revision) => registry.storage().reach(revision).await,
        WatchStart::InitialAny | WatchStart::AnyOnly | WatchStart::After(_) => Ok(Revision::ZERO),
    };
    if let Err(status) = reached {
        return Ok(WatchView::refused(kind, cache, status, terms, clock));
    }
    let start = match start {
        WatchStart::After(revision) => Start::After(revision),
        WatchStart::FreshOnly | WatchStart::AnyOnly => Start::Now,
        _ => Start::Initial,
    };
    let collection = registry.collection(&target.kind);
    if start == Start::Initial
        && let Err(status) = list::refuse_damaged(&cache.snapshot(&collection), &collection, &filter)
    {
        return Ok(WatchView::refused(kind, cache, status, terms, clock));
    }
    let watcher = cache.watch(&collection, filter, start);
    Ok(converted(registry, target, WatchView::new(kind, cache, watcher, terms, clock)))
}

/// A watch whose objects a webhook converts, if the kind has one.
fn converted(registry: &Registry, target: &Target, mut view: WatchView) -> WatchView {
    if conversion_webhook::webhook(&target.kind).is_some() {
        view.convert_with(Arc::clone(registry.converter()));
    }
    view
}

/// The timeout of a watch. Unless the client names one it is spread over a factor of two, so that clients that started
/// together do not all return together.
fn watch_timeout(requested: Option<i64>, min: Duration) -> Duration {
    match requested {
        Some(seconds) if seconds < 0 => Duration::ZERO,
        Some(seconds) if seconds > 0 => Duration::from_secs(seconds.unsigned_abs()),
        _ => min.mul_f64(1.0 + rand::rng().random::<f64>()),
    }
}
