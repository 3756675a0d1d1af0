//! Priority and fairness: no client can keep the server from others.
//!
//! A request belongs to a flow (crate `registry`, `flows`), whose priority level has a share of the server's seats. Most
//! requests take one seat, lists of many objects up to ten. Requests of the level `exempt` take none.
//!
//! - [`level`]: seats and queues of one level
//! - [`metrics`]: the figures of all levels; [`dump`]: as tables

pub(crate) mod dump;
pub(crate) mod level;
pub(crate) mod metrics;

use std::sync::Arc;
use std::time::Duration;

use access::authorizer::What;
use access::identity::User;
use arc_swap::ArcSwap;
use http::{HeaderMap, HeaderName, HeaderValue};
use parking_lot::Mutex;
use registry::flows::table::{FlowTable, LevelLimit};

use crate::limits::{Limits, Slot};
use level::{Bounds, Level, Pool, Refusal, Seat};

const SCHEMA_UID: HeaderName = HeaderName::from_static("x-kubernetes-pf-flowschema-uid");
const LEVEL_UID: HeaderName = HeaderName::from_static("x-kubernetes-pf-prioritylevel-uid");
/// Objects of a list for which it takes one seat, and the seats that it takes at most.
const OBJECTS_PER_SEAT: usize = 100;
const SEATS_MAX: usize = 10;

/// Assigns requests to levels.
pub(crate) struct Fairness {
    /// Seats of all levels together.
    seats: usize,
    /// Longest time that a request waits for a seat.
    wait: Duration,
    /// Bounds that all levels have in common.
    common: Bounds,
    pool: Arc<Pool>,
    levels: ArcSwap<Levels>,
    /// Held while levels are brought up to date.
    updating: Mutex<()>,
}

/// The levels of one state of the objects.
#[derive(Default)]
struct Levels {
    table: Arc<FlowTable>,
    /// In the order of the table; none for a level without a limit.
    levels: Vec<Option<Arc<Level>>>,
    schema_uids: Vec<HeaderValue>,
    level_uids: Vec<HeaderValue>,
}

/// The flow of a request.
#[derive(Clone)]
pub(crate) struct Flow {
    schema_uid: HeaderValue,
    level_uid: HeaderValue,
    /// None if its requests are never limited.
    level: Option<Arc<Level>>,
}

/// The place of a request among those in flight.
#[derive(Debug)]
pub(crate) struct Place {
    _slot: Slot,
    _seat: Option<Seat>,
}

impl Place {
    pub(crate) fn new(slot: Slot, seat: Option<Seat>) -> Self {
        Place { _slot: slot, _seat: seat }
    }
}

impl Flow {
    pub(crate) fn is_exempt(&self) -> bool {
        self.level.is_none()
    }

    /// Adds the headers that name the flow.
    pub(crate) fn add_headers(&self, headers: &mut HeaderMap) {
        headers.insert(SCHEMA_UID, self.schema_uid.clone());
        headers.insert(LEVEL_UID, self.level_uid.clone());
    }
}

impl Fairness {
    pub(crate) fn new(limits: &Limits) -> Self {
        Fairness {
            seats: limits.inflight_reads_max.saturating_add(limits.inflight_writes_max),
            wait: limits.request_timeout / 4,
            common: Bounds {
                wide_max: limits.long_lists_max,
                wide_per_user_max: limits.long_lists_per_user_max,
                wide_time: limits.long_list_time,
                ..Bounds::default()
            },
            pool: Arc::default(),
            levels: ArcSwap::default(),
            updating: Mutex::default(),
        }
    }

    /// Finds the flow of a request. None before the server has the objects that every cluster has.
    pub(crate) fn classify(&self, table: &Arc<FlowTable>, user: &User, verb: &str, what: &What<'_>) -> Option<Flow> {
        let mut levels = self.levels.load();
        if !Arc::ptr_eq(&levels.table, table) {
            self.update(table);
            levels = self.levels.load();
        }
        let flow = levels.table.classify(user, verb, what)?;
        Some(Flow {
            schema_uid: levels.schema_uids.get(flow.schema_at)?.clone(),
            level_uid: levels.level_uids.get(flow.at)?.clone(),
            level: levels.levels.get(flow.at)?.clone(),
        })
    }

    /// Takes seats for a request. An error is a refusal.
    pub(crate) async fn seat(&self, flow: &Flow, user: &User, width: usize) -> Result<Option<Seat>, Refusal> {
        match &flow.level {
            None => Ok(None),
            Some(level) => level.acquire((&user.name, &flow.schema_uid), width, self.wait).await.map(Some),
        }
    }

    /// Makes the levels those of the table. Levels that stay keep their requests.
    fn update(&self, table: &Arc<FlowTable>) {
        let _updating = self.updating.lock();
        let before = self.levels.load();
        if Arc::ptr_eq(&before.table, table) {
            return;
        }
        let limits = || table.levels.iter().filter_map(|level| level.limit);
        let shares: u64 = limits().map(|limit| u64::from(limit.shares)).sum();
        let nominal = |limit: &LevelLimit| {
            let seats = self.seats as u64 * u64::from(limit.shares);
            usize::try_from(seats.div_ceil(shares.max(1))).unwrap_or(usize::MAX)
        };
        self.pool.set_max(limits().map(|limit| nominal(&limit) * limit.lendable_percent as usize / 100).sum());
        let uid =
            |uid: &bytes::Bytes| HeaderValue::from_maybe_shared(uid.clone()).unwrap_or(HeaderValue::from_static(""));
        let levels = table.levels.iter().map(|level| {
            let limit = level.limit?;
            let known = before.levels.iter().flatten().find(|known| known.name == level.name);
            let kept = known.map_or_else(|| Arc::new(Level::new(&level.name, &self.pool)), Arc::clone);
            kept.set_bounds(Bounds { seats: nominal(&limit), queue_length: limit.queue_length, ..self.common });
            Some(kept)
        });
        self.levels.store(Arc::new(Levels {
            levels: levels.collect(),
            schema_uids: table.schemas().map(|schema| uid(&schema.uid)).collect(),
            level_uids: table.levels.iter().map(|level| uid(&level.uid)).collect(),
            table: Arc::clone(table),
        }));
    }

    fn levels(&self) -> Vec<Arc<Level>> {
        self.levels.load().levels.iter().flatten().map(Arc::clone).collect()
    }
}

/// The seats of a list of this many objects.
pub(crate) fn list_width(objects: usize) -> usize {
    objects.div_ceil(OBJECTS_PER_SEAT).clamp(1, SEATS_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn apf_7_lists_take_seats_by_the_number_of_their_objects() {
        for (objects, seats) in [(0, 1), (1, 1), (100, 1), (101, 2), (950, 10), (100_000, 10)] {
            assert_eq!(list_width(objects), seats, "{objects}");
        }
    }
}
