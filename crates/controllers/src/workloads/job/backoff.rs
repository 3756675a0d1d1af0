//! How long a job waits after failures before it makes another pod (JB-4).

use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Pod;

use crate::pods;

const FIRST: Duration = Duration::from_secs(10);
const LONGEST: Duration = Duration::from_secs(600);

/// The failures of a job since its last success.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Record {
    failures: u32,
    last: Option<Timestamp>,
}

impl Record {
    /// The record after these pods have finished.
    pub(super) fn after(self, succeeded: &[Arc<Pod>], failed: &[Arc<Pod>]) -> Self {
        let times = |pods: &[Arc<Pod>]| -> Vec<Timestamp> { pods.iter().filter_map(|pod| finished_at(pod)).collect() };
        let failures = times(failed);
        match times(succeeded).into_iter().max() {
            None if failures.is_empty() => self,
            None => {
                let count = u32::try_from(failures.len()).unwrap_or(u32::MAX);
                Self { failures: self.failures.saturating_add(count), last: failures.into_iter().max() }
            }
            Some(success) => {
                let later: Vec<Timestamp> = failures.into_iter().filter(|failure| *failure > success).collect();
                Self { failures: u32::try_from(later.len()).unwrap_or(u32::MAX), last: later.into_iter().max() }
            }
        }
    }

    /// How long to wait from now on.
    pub(super) fn remaining(self, now: Timestamp) -> Duration {
        self.last.map_or(Duration::ZERO, |last| wait(self.failures, last, now))
    }
}

/// How long to wait after so many failures, the last of them at a time.
pub(super) fn wait(failures: u32, last: Timestamp, now: Timestamp) -> Duration {
    if failures == 0 {
        return Duration::ZERO;
    }
    let delay = 2u32.checked_pow(failures - 1).map_or(LONGEST, |factor| FIRST.saturating_mul(factor).min(LONGEST));
    let left = SignedDuration::try_from(delay).unwrap_or_default() - now.duration_since(last);
    Duration::try_from(left).unwrap_or_default()
}

/// When a pod has finished: as its containers say, or its readiness, or its deletion, or its creation.
pub(super) fn finished_at(pod: &Pod) -> Option<Timestamp> {
    let statuses = pod.status.as_ref().and_then(|status| status.container_statuses.as_deref()).unwrap_or_default();
    let ended = |status: &k8s_openapi::api::core::v1::ContainerStatus| {
        Some(status.state.as_ref()?.terminated.as_ref()?.finished_at.as_ref()?.0)
    };
    let all: Option<Vec<Timestamp>> = statuses.iter().map(ended).collect();
    if let Some(last) = all.and_then(|all| all.into_iter().max()) {
        return Some(last);
    }
    if let Some(ready) = pods::condition(pod, "Ready").filter(|ready| ready.status == "False")
        && let Some(since) = &ready.last_transition_time
    {
        return Some(since.0);
    }
    if let Some(deleted) = &pod.metadata.deletion_timestamp {
        let grace = pod.metadata.deletion_grace_period_seconds.unwrap_or(0);
        return deleted.0.checked_sub(SignedDuration::from_secs(grace)).ok();
    }
    pod.metadata.creation_timestamp.as_ref().map(|time| time.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn pod(second: i64) -> Arc<Pod> {
        let time = Timestamp::from_second(second).unwrap().to_string();
        let state = json!({"terminated": {"exitCode": 1, "finishedAt": time}});
        let status =
            json!({"name": "c", "image": "", "imageID": "", "ready": false, "restartCount": 0, "state": state});
        Arc::new(serde_json::from_value(json!({"metadata": {}, "status": {"containerStatuses": [status]}})).unwrap())
    }

    #[test]
    fn jb_4_ten_seconds_doubled_with_every_failure() {
        let at = |second: i64| Timestamp::from_second(second).unwrap();
        for (failures, seconds) in [(0, 0), (1, 10), (2, 20), (3, 40), (6, 320), (7, 600), (40, 600)] {
            assert_eq!(wait(failures, at(1000), at(1000)), Duration::from_secs(seconds), "{failures} failures");
        }
        assert_eq!(wait(2, at(1000), at(1015)), Duration::from_secs(5));
        assert_eq!(wait(2, at(1000), at(2000)), Duration::ZERO);
    }

    #[test]
    fn jb_4_a_success_forgives_the_failures_before_it() {
        let now = Timestamp::from_second(100).unwrap();
        let record = Record::default().after(&[], &[pod(90), pod(95)]);
        assert_eq!(record.remaining(now), Duration::from_secs(15), "20 s since 95");
        assert_eq!(record.after(&[], &[]), record);
        assert_eq!(record.after(&[pod(99)], &[]).remaining(now), Duration::ZERO);
        assert_eq!(record.after(&[pod(96)], &[pod(95), pod(98)]).remaining(now), Duration::from_secs(8));
        assert_eq!(record.after(&[], &[pod(100)]).remaining(now), Duration::from_secs(40));
    }
}
