//! The revisions of the cluster by time.

use std::sync::Arc;
use std::time::Duration;

use cache::Cache;
use machinery::Revision;

use crate::recorder::Recorder;

/// Finds the revision of the cluster now and a while ago.
#[derive(Clone)]
pub(crate) struct Past {
    pub(crate) cluster: Arc<Cache>,
    pub(crate) recorder: Arc<Recorder>,
}

impl Past {
    pub(crate) fn now(&self) -> Revision {
        self.cluster.revision()
    }

    /// The newest revision that was visible so long ago, as far as changes are recorded.
    pub(crate) fn before(&self, ago: Duration) -> Revision {
        self.recorder.revision_before(ago).unwrap_or_else(|| self.now())
    }
}
