//! The lab of a server: the registry of its objects, and its powers.

use std::sync::Arc;

use cache::Observer;
use clock::WorldClock;
use machinery::Clock;
use registry::{Registry, Settings};
use server::service::Lab;
use store::memory::MemoryStore;
use store::{Retention, Store};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::clocks::{ClockOrders, Clocks, Quiet};
use crate::faults::{self, Faults};
use crate::kinds::{self, GROUP};
use crate::objects::Objects;
use crate::past::Past;
use crate::recorder::{Recorder, Rows};
use crate::settlements::Settlements;
use crate::worlds::{Deletions, Worlds};

/// A lab before its server exists: it follows the objects of the cluster from their first change on.
pub struct Starting {
    recorder: Arc<Recorder>,
    disturbed: Arc<watch::Sender<u64>>,
}

impl Starting {
    /// A lab that keeps so many requests.
    #[must_use]
    pub fn new(requests_max: usize, clock: Clock) -> Self {
        let disturbed = Arc::<watch::Sender<u64>>::default();
        Starting { recorder: Recorder::new(requests_max, Arc::clone(&disturbed), clock), disturbed }
    }

    /// Shows the rows of a recording, whose changes are played to the cluster.
    pub fn restore(&self, rows: Arc<Rows>) {
        self.recorder.restore(rows);
    }

    /// Follows the objects of the cluster.
    #[must_use]
    pub fn observer(&self) -> Arc<dyn Observer> {
        Arc::clone(&self.recorder) as _
    }
}

/// What faults are expected to have done in the end.
#[derive(Clone)]
pub struct Expectations(Arc<Faults>);

impl Expectations {
    /// A sentence for each expectation that is not met.
    #[must_use]
    pub fn unmet(&self) -> Vec<String> {
        self.0.unmet()
    }
}

/// Starts the lab of a cluster. Its objects have a store of their own in memory; `tasks` get its background work.
pub async fn start(
    starting: Starting,
    cluster: &Registry,
    clock: WorldClock,
    settings: Settings,
    worlds: &Arc<Worlds>,
    tasks: &mut JoinSet<()>,
) -> Result<(Lab, Expectations), String> {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new(Retention::default()));
    let kinds = kinds::beside(&schema::kinds::Kinds::default());
    let Starting { recorder, disturbed } = starting;
    let past = Past { cluster: Arc::clone(cluster.cache()), recorder: Arc::clone(&recorder) };
    let faults = Faults::new(disturbed, settings.clock.clone(), past);
    let observers = vec![Arc::clone(&faults) as _, Arc::new(Deletions(Arc::downgrade(worlds))) as _];
    let cluster = Arc::clone(cluster.cache());
    let clocks = Clocks::new(clock, Quiet(Arc::clone(&cluster)));
    let settlements = Settlements::new(cluster, Arc::clone(&recorder), Arc::clone(&faults), worlds.main().clone());
    let computed = Some(Arc::new(Objects { recorder: Arc::clone(&recorder), settlements }) as _);
    let orders = Some(Arc::new(ClockOrders(Arc::clone(&clocks))) as _);
    let settings = Settings { kinds, is_bare: true, observers, computed, orders, ..settings };
    let registry = Registry::start(store, settings).await.map_err(|error| error.to_string())?;
    clocks.make(&registry).await.map_err(|error| error.to_string())?;
    tasks.spawn(faults::report(Arc::clone(&faults), Arc::downgrade(&registry)));
    let expectations = Expectations(Arc::clone(&faults));
    Ok((Lab { registry, group: GROUP, disturbances: faults, recorder }, expectations))
}
