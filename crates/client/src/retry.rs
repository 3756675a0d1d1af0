//! `retry_on_conflict`: repeats a read-modify-write while it conflicts with other writers.

use std::future::Future;
use std::time::Duration;

use crate::Error;

/// Number and delays of the attempts.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RetrySteps {
    /// Total number of attempts.
    pub attempts: u32,
    /// The first delay.
    pub delay: Duration,
    /// Factor from one delay to the next.
    pub factor: f64,
    /// Largest share of the delay that is added at random.
    pub jitter: f64,
}

impl RetrySteps {
    /// For occasional conflicts: 5 attempts, 10 ms apart.
    pub const DEFAULT: Self = Self { attempts: 5, delay: Duration::from_millis(10), factor: 1.0, jitter: 0.1 };
    /// For many active writers: 4 attempts, 10 ms, 50 ms, 250 ms apart.
    pub const BACKOFF: Self = Self { attempts: 4, delay: Duration::from_millis(10), factor: 5.0, jitter: 0.1 };
}

/// Runs `attempt` until its result is not a conflict, or the attempts are used up.
///
/// ```
/// use client::retry::{RetrySteps, retry_on_conflict};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), client::Error> {
/// let written = retry_on_conflict(RetrySteps::DEFAULT, || async {
///     // … read the object, change it, write it …
///     Ok("written")
/// });
/// assert_eq!(written.await?, "written");
/// # Ok(())
/// # }
/// ```
pub async fn retry_on_conflict<T, F, Fut>(steps: RetrySteps, mut attempt: F) -> Result<T, Error>
where
    F: FnMut() -> Fut,
    Fut: Future<Output = Result<T, Error>>,
{
    let mut delay = steps.delay.as_secs_f64();
    for _ in 1..steps.attempts {
        match attempt().await {
            Err(error) if error.is_conflict() => {
                let jittered = delay * (1.0 + rand::random::<f64>() * steps.jitter);
                tokio::time::sleep(Duration::from_secs_f64(jittered)).await;
                delay *= steps.factor;
            }
            other => return other,
        }
    }
    attempt().await
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scripted::failure;
    use tokio::time::Instant;

    #[tokio::test(start_paused = true)]
    async fn rc_05_conflicts_are_retried_and_nothing_else() {
        let mut attempts = 0;
        let result: Result<(), Error> = retry_on_conflict(RetrySteps::DEFAULT, || {
            attempts += 1;
            async { Err(failure(409, "Conflict")) }
        })
        .await;
        assert!(result.unwrap_err().is_conflict());
        assert_eq!(attempts, 5);
        let mut attempts = 0;
        let result: Result<(), Error> = retry_on_conflict(RetrySteps::DEFAULT, || {
            attempts += 1;
            async { Err(failure(403, "Forbidden")) }
        })
        .await;
        assert!(result.is_err());
        assert_eq!(attempts, 1);
    }

    #[tokio::test(start_paused = true)]
    async fn rc_05_the_backoff_grows_fivefold() {
        let began = Instant::now();
        let _: Result<(), Error> =
            retry_on_conflict(RetrySteps::BACKOFF, || async { Err(failure(409, "Conflict")) }).await;
        let took = began.elapsed().as_millis();
        assert!((310..=345).contains(&took), "{took} ms");
    }
}
