//! Settlements: a question that is answered when the cluster is quiet.
//!
//! - `spec`: the question; `busy`: what is not quiet, for the answer of one that timed out

mod busy;
mod spec;

use std::sync::Arc;
use std::time::Duration;

use cache::Cache;
use machinery::json::{Value, json};
use machinery::{FieldError, GroupResource, Status};
use server::queues::BusyQueue;
use server::worlds::WeakServer;
use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep_until};

use crate::faults::Faults;
use crate::kinds::GROUP;
use crate::recorder::Recorder;
use spec::Spec;

/// Settlements that wait at the same time.
const WAITING_MAX: usize = 64;
/// How often watches that are behind and queues that are not empty are looked at again.
const LOOK_INTERVAL: Duration = Duration::from_millis(10);

/// Answers settlements.
pub(crate) struct Settlements {
    cluster: Arc<Cache>,
    recorder: Arc<Recorder>,
    faults: Arc<Faults>,
    /// Has the queues of the controllers.
    server: WeakServer,
    places: Semaphore,
}

impl Settlements {
    pub(crate) fn new(
        cluster: Arc<Cache>,
        recorder: Arc<Recorder>,
        faults: Arc<Faults>,
        server: WeakServer,
    ) -> Arc<Self> {
        Arc::new(Settlements { cluster, recorder, faults, server, places: Semaphore::new(WAITING_MAX) })
    }

    /// Adds the status to a settlement.
    pub(crate) async fn answer(&self, mut object: Value) -> Result<Value, Status> {
        let spec = Spec::read(&object["spec"]).map_err(|(field, value, why)| {
            let kind = GroupResource::new(GROUP, "Settlement");
            let name = object["metadata"]["name"].as_str().unwrap_or_default();
            Status::invalid(&kind, name, &[FieldError::invalid(field, json!(value), why)])
        })?;
        let Ok(_place) = self.places.try_acquire() else {
            return Err(Status::too_many_requests(
                "too many settlements wait at the same time, please try again later",
                1,
            ));
        };
        object["status"] = self.settle(&spec).await;
        Ok(object)
    }

    async fn settle(&self, spec: &Spec) -> Value {
        let began = Instant::now();
        let deadline = began + spec.timeout;
        let (mut changed, first) = self.recorder.follow_changes();
        let mut last = first;
        let mut changes = 0_u64;
        let is_counted = |row: &crate::recorder::Change| !spec.ignores(row);
        // What was quiet before the request came counts too.
        let mut quiet_since = began.checked_sub(self.recorder.quiet_for(is_counted)).unwrap_or(began);
        loop {
            changed.mark_unchanged();
            let rows = self.recorder.changes_after(last);
            last = rows.last().map_or(last, |row| row.sequence);
            let counted = rows.iter().filter(|row| is_counted(row)).count() as u64;
            let now = Instant::now();
            if counted > 0 {
                changes += counted;
                quiet_since = now;
            }
            let quiet_at = quiet_since + spec.quiet;
            let is_behind =
                now >= quiet_at && !(self.behind(spec).is_empty() && self.busy_queues(spec.quiet).is_empty());
            if now >= quiet_at && !is_behind {
                return self.status(true, began, changes, None);
            }
            if now >= deadline {
                let mut busy = busy::describe(&self.recorder, spec, first, began.elapsed(), self.behind(spec));
                busy["queues"] = busy::describe_queues(&self.busy_queues(spec.quiet));
                return self.status(false, began, changes, Some(busy));
            }
            let next = if is_behind { now + LOOK_INTERVAL } else { quiet_at };
            tokio::select! {
                _ = changed.changed() => {}
                () = sleep_until(next.min(deadline)) => {}
            }
        }
    }

    /// The watches that were not sent all that concerns them.
    fn behind(&self, spec: &Spec) -> Vec<Value> {
        self.recorder.watches_behind(|agent| spec.waits_for(agent))
    }

    /// The queues of built-in controllers with keys in line, in work, or due within `quiet`.
    fn busy_queues(&self, quiet: Duration) -> Vec<BusyQueue> {
        let server = self.server.upgrade();
        server.as_ref().and_then(|server| server.queues()).map(|queues| queues.busy(quiet)).unwrap_or_default()
    }

    fn status(&self, settled: bool, began: Instant, changes: u64, busy: Option<Value>) -> Value {
        let mut status = json!({
            "settled": settled,
            "revision": self.cluster.revision().0,
            "waited": format!("{}ms", began.elapsed().as_millis()),
            "changes": changes,
        });
        let unmet = self.faults.unmet();
        if !unmet.is_empty() {
            status["unmet"] = json!(unmet);
        }
        if let Some(busy) = busy {
            status["busy"] = busy;
        }
        status
    }
}
