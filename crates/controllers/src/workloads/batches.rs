//! Many writes, carefully at first: if one fails for a reason that would make all fail, few are tried.

use std::future::Future;

use futures::future::join_all;

/// How many pods one sync of a ReplicaSet or Job creates or deletes at most.
pub(crate) const BURST: usize = 500;

/// What came of a series of writes.
#[derive(Debug)]
pub(crate) struct Outcome<E> {
    /// How many succeeded.
    pub(crate) succeeded: usize,
    /// The first failure. After the batch in which it happened nothing more was tried.
    pub(crate) failure: Option<E>,
}

/// Runs `write` for 0, 1, … `count` − 1 in batches of 1, 2, 4, … at a time, until one fails (RS-4).
pub(crate) async fn slow_start<F, R, E>(count: usize, write: F) -> Outcome<E>
where
    F: Fn(usize) -> R,
    R: Future<Output = Result<(), E>>,
{
    let mut outcome = Outcome { succeeded: 0, failure: None };
    let (mut done, mut size) = (0, 1);
    while done < count && outcome.failure.is_none() {
        let batch = size.min(count - done);
        for result in join_all((done..done + batch).map(&write)).await {
            match result {
                Ok(()) => outcome.succeeded += 1,
                Err(error) => outcome.failure = outcome.failure.or(Some(error)),
            }
        }
        done += batch;
        size *= 2;
    }
    outcome
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[tokio::test]
    async fn rs_4_a_failure_stops_after_its_batch() {
        for (count, fails_at, tried) in [(0, 99, 0), (10, 99, 10), (10, 0, 1), (10, 1, 3), (10, 3, 7), (10, 9, 10)] {
            let calls = AtomicUsize::new(0);
            let outcome = slow_start(count, |index| {
                calls.fetch_add(1, Ordering::Relaxed);
                async move { if index >= fails_at { Err(index) } else { Ok(()) } }
            })
            .await;
            assert_eq!(calls.into_inner(), tried, "{count} writes, failing at {fails_at}");
            assert_eq!(outcome.failure, (fails_at < count).then_some(fails_at));
            assert_eq!(outcome.succeeded, fails_at.min(count));
        }
    }
}
