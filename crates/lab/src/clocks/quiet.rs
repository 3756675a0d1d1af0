//! When what a moved clock set off has ended.

use std::sync::Arc;
use std::time::Duration;

use cache::Cache;
use clock::Consequences;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use machinery::Revision;
use tokio::time::Instant;

/// Time of the machine without a write after which nothing more is expected to follow.
const QUIET: Duration = Duration::from_millis(6);
/// How often is looked.
const LOOK: Duration = Duration::from_millis(1);
/// Controllers that keep on writing hold the clock so long at most.
const GIVE_UP: Duration = Duration::from_secs(2);

/// Watches the revision of a cluster. That no write comes for a while is all that can be seen from here: a client that thinks for
/// longer acts after the clock has moved on.
pub(crate) struct Quiet(pub(crate) Arc<Cache>);

impl Quiet {
    fn revision(&self) -> Revision {
        self.0.revision()
    }
}

impl Consequences for Quiet {
    fn ended(&self) -> BoxFuture<'_, ()> {
        async {
            let began = Instant::now();
            let (mut seen, mut since) = (self.revision(), began);
            while since.elapsed() < QUIET && began.elapsed() < GIVE_UP {
                tokio::time::sleep(LOOK).await;
                let now = self.revision();
                if now != seen {
                    (seen, since) = (now, Instant::now());
                }
            }
        }
        .boxed()
    }
}
