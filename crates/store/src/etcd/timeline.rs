//! Detection of an etcd that went back: wiped, or restored from an older backup while this server ran.
//!
//! A read that etcd confirms with a majority, and a transaction, carry a revision at least as high as every answer that
//! arrived before they were sent. A lower one means that acknowledged writes are gone. From then on revisions would repeat
//! with other content, so this process neither writes nor vouches for freshness again: only a restart accepts the older
//! state. Lists and watches still work, so that the cache can show what etcd has now.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use machinery::Revision;

use super::fault::Fault;

#[derive(Debug, Default)]
pub(super) struct Timeline {
    /// The highest revision in any answer.
    highest: AtomicU64,
    /// Set once etcd went back: the sentence for errors and health checks.
    rewound: OnceLock<String>,
}

impl Timeline {
    /// The revision that every later answer must have at least. Call it before sending.
    pub(super) fn highest(&self) -> Revision {
        Revision(self.highest.load(Ordering::Acquire))
    }

    /// Takes the revision of an answer to a call that was sent after [`Timeline::highest`] returned `at_least`.
    pub(super) fn observe(&self, answered: Revision, at_least: Revision) -> Result<(), Fault> {
        if answered < at_least {
            let reason = format!(
                "etcd went back from revision {at_least} to {answered}: it was wiped or restored from an older backup; \
                 restart the server to go on from there"
            );
            if self.rewound.set(reason).is_ok() {
                tracing::error!(before = %at_least, now = %answered, "etcd went back; no more writes until a restart");
            }
        } else {
            self.highest.fetch_max(answered.0, Ordering::AcqRel);
        }
        self.check()
    }

    /// Takes a revision that a watch has delivered.
    pub(super) fn advance(&self, delivered: Revision) {
        self.highest.fetch_max(delivered.0, Ordering::AcqRel);
    }

    /// Fails once etcd went back.
    pub(super) fn check(&self) -> Result<(), Fault> {
        self.rewound.get().map_or(Ok(()), |reason| Err(Fault::Refused(reason.clone())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_below_an_earlier_one_is_noticed_for_good() {
        let timeline = Timeline::default();
        assert!(timeline.observe(Revision(7), timeline.highest()).is_ok());
        let sent_before = timeline.highest();
        assert!(timeline.observe(Revision(9), sent_before).is_ok());
        assert!(timeline.observe(Revision(8), sent_before).is_ok(), "overtaken on the way, but sent before");
        let fault = timeline.observe(Revision(8), timeline.highest()).unwrap_err();
        assert!(fault.to_string().contains("from revision 9 to 8"), "{fault}");
        assert!(timeline.observe(Revision(20), timeline.highest()).is_err(), "the gap stays unknown");
        assert!(timeline.check().is_err());
    }
}
