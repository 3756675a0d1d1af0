//! The parameters of the reflector.

use std::time::Duration;

use crate::backoff::BackoffConfig;

/// The configuration of a reflector. The defaults are those of client-go 1.36 where it has one.
#[derive(Debug, Clone, PartialEq)]
pub struct ReflectorConfig {
    /// Request the initial state as a stream, and list only if the server cannot stream.
    pub streaming: bool,
    /// Always list in pages of this size. `None`: 500 where pages help, no pages where the server's cache can serve.
    pub page_limit: Option<u32>,
    /// The watch timeout is uniform between this and twice this; less than five minutes counts as five.
    pub min_watch_timeout: Duration,
    /// Delays after failures.
    pub backoff: BackoffConfig,
    /// Interval of resyncs; `None`: never.
    pub resync: Option<Duration>,
    /// A streaming list without progress or end for this long is abandoned for a list (RF-19).
    pub initial_events_limit: Duration,
    /// Interval of the warnings before that.
    pub initial_events_warning: Duration,
    /// A watch on which nothing at all arrives for this long is dead and is reopened. Servers send bookmarks about every
    /// minute.
    pub idle_limit: Duration,
    /// A watch that ends this soon and without an event is a failure, not a timeout.
    pub very_short: Duration,
    /// Internal errors within this time of the first do not cause a relist.
    pub internal_error_window: Duration,
    /// Number of consecutive "too many requests" responses to a streaming list after which it is a list instead (RF-20).
    pub busy_limit: u32,
    /// During a relist, publish each changed object as soon as it arrives, and remove missing ones at the end. The old and
    /// the new set then never exist at the same time, which matters for large sets; but until the end the store is a mixture
    /// that the server never had: new objects together with old ones that no longer exist. Off, readers see the old set or
    /// the new one (RF-11). In both cases the version moves at the end.
    pub relist_in_place: bool,
    /// Cut `metadata.managedFields` out of every object before it is decoded.
    pub without_managed_fields: bool,
}

impl Default for ReflectorConfig {
    fn default() -> Self {
        Self {
            streaming: true,
            page_limit: None,
            min_watch_timeout: MIN_WATCH_TIMEOUT,
            backoff: BackoffConfig::default(),
            resync: None,
            initial_events_limit: Duration::from_secs(60),
            initial_events_warning: Duration::from_secs(10),
            idle_limit: Duration::from_secs(180),
            very_short: Duration::from_secs(1),
            internal_error_window: Duration::ZERO,
            busy_limit: 3,
            relist_in_place: false,
            without_managed_fields: false,
        }
    }
}

const MIN_WATCH_TIMEOUT: Duration = Duration::from_secs(300);

impl ReflectorConfig {
    /// A watch timeout, spread so that many watches do not end together.
    pub(super) fn watch_timeout_seconds(&self) -> u32 {
        let min = self.min_watch_timeout.max(MIN_WATCH_TIMEOUT).as_secs().min(u64::from(u32::MAX / 2));
        rand::random_range(min..min * 2) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn watch_timeouts_are_spread_over_five_to_ten_minutes() {
        let config = ReflectorConfig { min_watch_timeout: Duration::from_secs(5), ..ReflectorConfig::default() };
        let drawn: Vec<u32> = (0..200).map(|_| config.watch_timeout_seconds()).collect();
        assert!(drawn.iter().all(|s| (300..600).contains(s)));
        assert!(drawn.iter().any(|s| *s != drawn[0]), "all clients would reconnect at once");
        let long = ReflectorConfig { min_watch_timeout: Duration::from_secs(1000), ..ReflectorConfig::default() };
        assert!((1000..2000).contains(&long.watch_timeout_seconds()));
    }
}
