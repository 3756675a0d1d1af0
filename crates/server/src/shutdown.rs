//! Shutdown signals: the first drains, the second aborts.

use tokio::sync::watch;

/// The phase of a shutdown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    Serving,
    /// No new connections; open requests finish, watches end cleanly.
    Draining,
    /// Open connections are dropped.
    Aborted,
}

/// Sends shutdown signals.
#[derive(Debug)]
pub struct Trigger(watch::Sender<Phase>);

/// Receives shutdown signals. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Shutdown(watch::Receiver<Phase>);

/// Creates a connected pair.
#[must_use]
pub fn channel() -> (Trigger, Shutdown) {
    let (sender, receiver) = watch::channel(Phase::Serving);
    (Trigger(sender), Shutdown(receiver))
}

impl Trigger {
    /// Advances from serving to draining, or from draining to aborted.
    pub fn signal(&self) -> Phase {
        self.0.send_modify(|phase| {
            *phase = match phase {
                Phase::Serving => Phase::Draining,
                Phase::Draining | Phase::Aborted => Phase::Aborted,
            }
        });
        *self.0.borrow()
    }

    pub fn drain(&self) {
        self.0.send_modify(|phase| *phase = (*phase).max(Phase::Draining));
    }

    pub fn abort(&self) {
        self.0.send_modify(|phase| *phase = Phase::Aborted);
    }
}

impl Shutdown {
    #[must_use]
    pub fn phase(&self) -> Phase {
        *self.0.borrow()
    }

    /// Returns when draining has begun, or when the trigger was dropped: then no signal can follow.
    pub async fn draining(&mut self) {
        let _ = self.0.wait_for(|phase| *phase >= Phase::Draining).await;
    }

    /// Returns when the shutdown is aborted.
    pub async fn aborted(&mut self) {
        if self.0.wait_for(|phase| *phase >= Phase::Aborted).await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn first_signal_drains_second_aborts() {
        let (trigger, mut shutdown) = channel();
        assert_eq!(shutdown.phase(), Phase::Serving);
        assert_eq!(trigger.signal(), Phase::Draining);
        shutdown.draining().await;
        assert_eq!(trigger.signal(), Phase::Aborted);
        shutdown.aborted().await;
        assert_eq!(trigger.signal(), Phase::Aborted);
    }

    #[tokio::test]
    async fn a_lost_trigger_drains() {
        let (trigger, mut shutdown) = channel();
        drop(trigger);
        shutdown.draining().await;
    }
}
