//! Detection of an etcd that went back or was replaced: wiped, or restored from a backup while this server ran.
//!
//! A read that etcd confirms with a majority, and a transaction, carry a revision at least as high as every answer that
//! arrived before they were sent. A lower one means that acknowledged writes are gone. From then on revisions would repeat
//! with other content, so this process neither writes nor vouches for freshness again: only a restart accepts the older
//! state. Lists and watches still work, so that the cache can show what etcd has now.
//!
//! A restored etcd can also be ahead, if others wrote to it before this server asked again. It then answers as another cluster:
//! connections that reconnect by themselves are not checked anew, so every confirmed answer is.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use machinery::Revision;

use super::fault::Fault;
use super::messages::ResponseHeader;

#[derive(Debug, Default)]
pub(super) struct Timeline {
    /// The highest revision in any answer.
    highest: AtomicU64,
    /// The cluster of the first answer; zero before it.
    cluster: AtomicU64,
    /// Set once etcd went back or was replaced: the sentence for errors and health checks.
    rewound: OnceLock<String>,
}

impl Timeline {
    /// The revision that every later answer must have at least. Call it before sending.
    pub(super) fn highest(&self) -> Revision {
        Revision(self.highest.load(Ordering::Acquire))
    }

    /// Takes the header of an answer, which has the revision `answered`, to a call that was sent after [`Timeline::highest`]
    /// returned `at_least`.
    pub(super) fn observe_answer(
        &self,
        header: Option<&ResponseHeader>,
        answered: Revision,
        at_least: Revision,
    ) -> Result<(), Fault> {
        if let Some(now) = header.map(|header| header.cluster_id).filter(|id| *id != 0)
            && let Err(before) = self.cluster.compare_exchange(0, now, Ordering::AcqRel, Ordering::Acquire)
            && before != now
        {
            let reason = format!(
                "etcd answers as the cluster {now:x}, before as {before:x}: it was replaced or restored from a backup; \
                 restart the server to go on from there"
            );
            if self.rewound.set(reason).is_ok() {
                tracing::error!("etcd is another cluster than before; no more writes until a restart");
            }
        }
        self.observe(answered, at_least)
    }

    fn observe(&self, answered: Revision, at_least: Revision) -> Result<(), Fault> {
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

    /// Fails once etcd went back or was replaced.
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

    #[test]
    fn another_cluster_is_noticed_though_its_revision_is_higher() {
        let timeline = Timeline::default();
        let answer = |cluster_id: u64, revision: u64| {
            let header = ResponseHeader { cluster_id, ..ResponseHeader::default() };
            timeline.observe_answer(Some(&header), Revision(revision), timeline.highest())
        };
        assert!(answer(0, 3).is_ok(), "a header without a cluster says nothing");
        assert!(answer(0xa, 7).is_ok());
        assert!(answer(0xa, 8).is_ok());
        let fault = answer(0xb, 900).unwrap_err();
        assert!(fault.to_string().contains("as the cluster b, before as a"), "{fault}");
        assert!(answer(0xa, 9).is_err(), "what happened in between stays unknown");
    }
}
