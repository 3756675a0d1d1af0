//! What a write reserves before it is made: service addresses, node ports and shares of quotas.
//!
//! - this file: [`Reservation`], which releases everything when it is dropped
//! - [`addresses`]: addresses and node ports; those of stored services follow the cache
//! - [`quota`]: shares of resource quotas, counted in the quotas' own status
//! - [`amounts`]: arithmetic of resources
//!
//! ```text
//!              ┌── refused, dropped before the store has it ──► released
//!   reserved ──┼── acknowledged at revision r ────────────────► kept; addresses until the cache shows r
//!              ├── outcome unknown ───────────────────────────► quota kept until recounted; addresses a moment longer
//!              └── dropped while the store has it ────────────► a moment later: released if the object did not change
//! ```
//!
//! A store may still make a write whose future was dropped or whose answer was lost. Within [`IN_FLIGHT_HOLD`] the cache shows
//! it, and then the service itself holds the address.

pub(crate) mod addresses;
pub(crate) mod amounts;
pub mod quota;

use std::sync::Arc;
use std::time::Duration;

use machinery::json::Value;
use machinery::{Revision, Status};
use store::{Key, WriteError};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;

use self::addresses::{Addresses, AllocationError, Held};
use self::quota::{Quota, QuotaUse, Share};
use crate::collections::SERVICES;
use crate::storage::Storage;

/// How long a write is waited for that the store has and whose caller has gone.
const IN_FLIGHT_HOLD: Duration = Duration::from_secs(1);

/// Everything that can be reserved. Owns the task that releases what is dropped.
pub(crate) struct Reservations {
    addresses: Arc<Addresses>,
    quota: Arc<Quota>,
    storage: Storage,
    /// Unbounded: a request sends at most one message at a time, and the server bounds the requests.
    dropped: mpsc::UnboundedSender<Dropped>,
}

/// What one attempt at a write has reserved.
#[must_use = "dropping a reservation releases it"]
pub(crate) struct Reservation<'r> {
    owner: &'r Reservations,
    held: Held,
    share: Share,
    /// The write that the store has and has not answered.
    in_flight: Option<InFlight>,
}

struct InFlight {
    key: Key,
    /// The revision that the write replaces; zero for a new object.
    replaces: Revision,
}

/// A reservation for the release task.
struct Dropped {
    held: Held,
    share: Share,
    in_flight: Option<InFlight>,
    released: Option<oneshot::Sender<()>>,
}

impl Reservations {
    /// Must be called within a runtime, which runs the release task.
    pub(crate) fn new(addresses: Arc<Addresses>, storage: Storage) -> Self {
        let quota = Arc::new(Quota::new(storage.clone()));
        let (dropped, received) = mpsc::unbounded_channel();
        tokio::spawn(release_dropped(received, Arc::clone(&addresses), Arc::clone(&quota), storage.clone()));
        Reservations { addresses, quota, storage, dropped }
    }

    pub(crate) fn open(&self) -> Reservation<'_> {
        Reservation { owner: self, held: Held::default(), share: Share::default(), in_flight: None }
    }

    pub(crate) fn quota(&self) -> &Arc<Quota> {
        &self.quota
    }
}

impl Reservation<'_> {
    /// Fills in what a service needs to be validated; may reserve a port.
    pub(crate) fn prepare_service(&mut self, service: &mut Value, old: Option<&Value>) {
        self.owner.addresses.prepare(&mut self.held, service, old);
    }

    /// Reserves the addresses and ports of a service. A service that cannot be read has some that are not known, so that no
    /// further ones are given out.
    pub(crate) fn allocate_service(&mut self, service: &mut Value, old: Option<&Value>) -> Result<(), AllocationError> {
        self.owner.addresses.allocate(&mut self.held, service, old)?;
        if self.held.is_empty() {
            return Ok(());
        }
        self.owner.storage.refuse_damaged(SERVICES, None).map_err(AllocationError::Unknown)
    }

    /// Reserves what a write takes from the quotas of its namespace. A refusal is returned once the shares that other quotas
    /// had granted by then are released.
    pub(crate) async fn reserve_quota(&mut self, wanted: &QuotaUse<'_>) -> Result<(), Status> {
        let reserved = self.owner.quota.reserve(wanted, &mut self.share).await;
        if reserved.is_err() {
            self.release().await;
        }
        reserved
    }

    /// Notes that the store is given the write.
    pub(crate) fn write_begins(&mut self, key: &Key, replaces: Revision) {
        if !self.is_empty() {
            self.in_flight = Some(InFlight { key: key.clone(), replaces });
        }
    }

    /// Settles the reservation by the store's answer. After a refusal everything is still reserved.
    pub(crate) fn write_ended(&mut self, outcome: &Result<Revision, WriteError>) {
        let in_flight = self.in_flight.take();
        match outcome {
            Ok(revision) => {
                self.share = Share::default();
                self.owner.addresses.hold_until_visible(std::mem::take(&mut self.held), *revision);
            }
            Err(WriteError::Unknown(_)) => {
                // It may have been made: its share stays taken until the quota is recounted.
                self.share = Share::default();
                self.in_flight = in_flight;
                self.hand_over(None);
            }
            Err(_) => {}
        }
    }

    /// Releases everything, and returns once it is free for others.
    pub(crate) async fn release(&mut self) {
        if self.share.is_empty() {
            return self.hand_over(None);
        }
        let (released, done) = oneshot::channel();
        self.hand_over(Some(released));
        // An error is a registry that ends.
        let _ = done.await;
    }

    fn is_empty(&self) -> bool {
        self.held.is_empty() && self.share.is_empty()
    }

    /// Releases at once what can be, and leaves the rest to the release task.
    fn hand_over(&mut self, released: Option<oneshot::Sender<()>>) {
        let in_flight = self.in_flight.take();
        let (mut held, share) = (std::mem::take(&mut self.held), std::mem::take(&mut self.share));
        if in_flight.is_none() {
            self.owner.addresses.release(&held);
            held = Held::default();
        }
        if held.is_empty() && share.is_empty() {
            return;
        }
        // Fails only when the registry is dropped, and the reservations with it.
        let _ = self.owner.dropped.send(Dropped { held, share, in_flight, released });
    }
}

impl Drop for Reservation<'_> {
    fn drop(&mut self) {
        self.hand_over(None);
    }
}

/// Releases dropped reservations, each on its own so that one that waits holds up no other. Ends with the registry.
async fn release_dropped(
    mut received: mpsc::UnboundedReceiver<Dropped>,
    addresses: Arc<Addresses>,
    quota: Arc<Quota>,
    storage: Storage,
) {
    let mut releases = JoinSet::new();
    while let Some(dropped) = received.recv().await {
        while releases.try_join_next().is_some() {}
        releases.spawn(release_one(dropped, Arc::clone(&addresses), Arc::clone(&quota), storage.clone()));
    }
}

async fn release_one(dropped: Dropped, addresses: Arc<Addresses>, quota: Arc<Quota>, storage: Storage) {
    let Dropped { held, share, in_flight, released } = dropped;
    let mut was_made = false;
    if let Some(InFlight { key, replaces }) = in_flight {
        tokio::time::sleep(IN_FLIGHT_HOLD).await;
        let current = storage.current(&key).await;
        was_made = current.is_ok_and(|item| item.is_some_and(|item| item.revision() > replaces));
    }
    addresses.release(&held);
    // An object that changed may have been changed by this write: too high a figure is corrected by the next recount.
    if !was_made {
        quota.release(share).await;
    }
    if let Some(released) = released {
        // The caller may have gone in the meantime.
        let _ = released.send(());
    }
}
