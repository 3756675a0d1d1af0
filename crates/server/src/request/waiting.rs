//! Requests that wait for a webhook: they leave their place in flight, so that others (such as those of the webhook itself)
//! can be handled, and are bounded in number instead.

use std::sync::Arc;

use machinery::Status;
use parking_lot::Mutex;
use registry::request::{Place as Leave, Waiting};

use crate::fairness::Place;
use crate::limits::Slot;
use crate::metrics::Metrics;
use crate::request::heavy::Permits;

/// The places that a write holds, until it waits for a webhook.
#[derive(Debug)]
pub(crate) struct WritePlaces {
    in_flight: Mutex<Option<Place>>,
    /// Of a heavy request.
    heavy: Mutex<Option<Permits>>,
    metrics: Arc<Metrics>,
}

/// A request that waits.
struct WaitingRequest {
    _slot: Slot,
}

impl Waiting for WaitingRequest {}

impl WritePlaces {
    pub(crate) fn new(in_flight: Option<Place>, metrics: &Arc<Metrics>) -> Self {
        WritePlaces { in_flight: Mutex::new(in_flight), heavy: Mutex::default(), metrics: Arc::clone(metrics) }
    }

    /// Takes back the place in flight, if it was not left.
    pub(crate) fn take(&self) -> Option<Place> {
        self.in_flight.lock().take()
    }

    pub(crate) fn hold(&self, permits: Permits) {
        *self.heavy.lock() = Some(permits);
    }

    pub(crate) fn release(&self) {
        self.heavy.lock().take();
    }
}

impl Leave for WritePlaces {
    fn leave(&self) -> Result<Box<dyn Waiting>, Status> {
        let waiting = &self.metrics.webhooks_waiting;
        let Some(slot) = waiting.take() else {
            self.metrics.refused(waiting.name());
            let why = "too many requests are waiting for webhooks, please try again later";
            return Err(Status::too_many_requests(why, 1));
        };
        drop(self.take());
        self.release();
        Ok(Box::new(WaitingRequest { _slot: slot }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::Limits;

    #[test]
    fn a_request_that_waits_leaves_its_place_to_others() {
        let limits = Limits { inflight_writes_max: 1, webhooks_waiting_max: 1, ..Limits::default() };
        let metrics = Arc::new(Metrics::new(&limits));
        let place = Place::new(metrics.inflight_writes.take().unwrap(), None);
        let places = WritePlaces::new(Some(place), &metrics);
        assert!(metrics.inflight_writes.take().is_none());
        let waiting = places.leave().unwrap();
        let other = metrics.inflight_writes.take().expect("the place is free");
        let refused = places.leave().map(|_| ()).unwrap_err();
        assert_eq!(refused.code, 429, "the number of those that wait is bounded");
        drop((waiting, other));
        assert!(places.leave().is_ok() && places.take().is_none());
    }
}
