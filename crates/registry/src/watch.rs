//! Opens a watch at the place in the log a client asks for.

use std::sync::Arc;
use std::time::Duration;

use cache::Start;
use machinery::options::{ListOptions, WatchStart};
use machinery::{Revision, Status};
use rand::Rng;

use crate::registry::Registry;
use crate::request::Target;
use crate::watch_view::{WatchTerms, WatchView};

impl Registry {
    pub async fn watch(&self, target: &Target, options: &ListOptions) -> Result<WatchView, Status> {
        let filter = self.filter(target, options)?;
        let start = options.watch_start()?;
        let from = match start {
            WatchStart::After(revision) | WatchStart::InitialNotOlderThan(revision) => revision,
            _ => Revision::ZERO,
        };
        let terms = WatchTerms {
            bookmarks: options.allow_watch_bookmarks,
            mark_initial_end: options.wants_initial_bookmark(),
            timeout: self.watch_timeout(options.timeout_seconds),
            from,
        };
        let (kind, cache) = (Arc::clone(&target.kind), Arc::clone(self.cache()));
        let reached = match start {
            WatchStart::InitialFresh | WatchStart::FreshOnly => self.storage().fresh().await,
            WatchStart::InitialNotOlderThan(revision) => self.reach(revision).await,
            WatchStart::InitialAny | WatchStart::AnyOnly | WatchStart::After(_) => Ok(Revision::ZERO),
        };
        if let Err(status) = reached {
            return Ok(WatchView::refused(kind, cache, status, terms, self.settings().clock.clone()));
        }
        let start = match start {
            WatchStart::After(revision) => Start::After(revision),
            WatchStart::FreshOnly | WatchStart::AnyOnly => Start::Now,
            _ => Start::Initial,
        };
        let watcher = self.cache().watch(&self.collection(&target.kind), filter, start);
        let mut view = WatchView::new(kind, cache, watcher, terms, self.settings().clock.clone());
        if crate::conversion_webhook::webhook(&target.kind).is_some() {
            view.convert_with(Arc::clone(self.converter()));
        }
        Ok(view)
    }

    /// Spread over a factor of two, so that clients that came together do not all come back together.
    fn watch_timeout(&self, asked: Option<i64>) -> Duration {
        match asked {
            Some(seconds) if seconds < 0 => Duration::ZERO,
            Some(seconds) if seconds > 0 => Duration::from_secs(seconds.unsigned_abs()),
            _ => self.settings().watch_timeout_min.mul_f64(1.0 + rand::rng().random::<f64>()),
        }
    }
}
