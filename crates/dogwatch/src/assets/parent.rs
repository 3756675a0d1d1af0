//! Ends this process with the one that started it, so that a test that is killed leaves no servers behind.

use std::time::Duration;

/// How often the parent is looked at.
const EVERY: Duration = Duration::from_millis(250);

/// Returns when the process that started this one has ended; never if `DOGWATCH_KEEP` is set.
///
/// The system's own signal for this is bound to the thread of the parent that started the process, and programs in Go
/// end threads that are not idle for long; so the parent is compared instead.
pub(super) async fn ended() {
    let parent = rustix::process::getppid();
    if std::env::var_os("DOGWATCH_KEEP").is_some() || parent.is_none() {
        return std::future::pending().await;
    }
    while rustix::process::getppid() == parent {
        tokio::time::sleep(EVERY).await;
    }
}
