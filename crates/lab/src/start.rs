//! The lab of a server, and those of the worlds beside it.

use std::sync::Arc;

use cache::Observer;
use clock::WorldClock;
use machinery::Clock;
use registry::Registry;
use server::service::{Lab, LabObjects as _};
use server::worlds::{MAIN, WeakServer};
use tokio::sync::watch;

use crate::faults::Faults;
use crate::kinds::GROUP;
use crate::past::Past;
use crate::recorder::{Recorder, Rows, Share};
use crate::registries::OwnRegistry;
use crate::worlds::{Maker, Worlds};

/// The lab of a world before its server exists: it follows the objects of the world from their first change on.
pub struct Starting {
    world: Arc<str>,
    recorder: Arc<Recorder>,
    disturbed: Arc<watch::Sender<u64>>,
    /// The time of the lab itself: the machine's.
    clock: Clock,
    requests_max: usize,
}

impl Starting {
    /// The lab of `main`, which keeps so many requests.
    #[must_use]
    pub fn new(requests_max: usize, clock: Clock) -> Self {
        Self::of_world(MAIN.into(), requests_max, clock, None)
    }

    fn of_world(world: Arc<str>, requests_max: usize, clock: Clock, share: Option<Share>) -> Self {
        let disturbed = Arc::<watch::Sender<u64>>::default();
        let recorder = Recorder::new(requests_max, Arc::clone(&disturbed), clock.clone(), share);
        Starting { world, recorder, disturbed, clock, requests_max }
    }

    /// Shows the rows of a recording, whose changes are played to the cluster.
    pub fn restore(&self, rows: Arc<Rows>) {
        self.recorder.restore(rows);
    }

    /// Follows the objects of the world.
    #[must_use]
    pub fn observer(&self) -> Arc<dyn Observer> {
        Arc::clone(&self.recorder) as _
    }

    fn faults(&self, cluster: &Registry) -> Arc<Faults> {
        let past = Past { cluster: Arc::clone(cluster.cache()), recorder: Arc::clone(&self.recorder) };
        Faults::new(Arc::clone(&self.world), Arc::clone(&self.disturbed), self.clock.clone(), past)
    }
}

/// What the labs of worlds beside `main` have in common.
pub(crate) struct Common {
    requests_max: usize,
    clock: Clock,
    /// What their recorders share.
    share: Share,
    /// The faults of `main`, which may name other worlds.
    faults: Arc<Faults>,
}

impl Common {
    /// The lab of a world that is about to be made.
    pub(crate) fn lab_of(&self, world: &Arc<str>) -> StartingBeside {
        let share = Some(self.share.clone());
        let starting = Starting::of_world(Arc::clone(world), self.requests_max, self.clock.clone(), share);
        StartingBeside { starting, main: Arc::clone(&self.faults) }
    }
}

/// The lab of a world beside `main`, before its server exists.
pub struct StartingBeside {
    starting: Starting,
    main: Arc<Faults>,
}

impl StartingBeside {
    /// As [`Starting::observer`].
    #[must_use]
    pub fn observer(&self) -> Arc<dyn Observer> {
        self.starting.observer()
    }

    /// The lab of the world. Its objects are made when they are first asked for.
    #[must_use]
    pub fn start(self, cluster: &Registry, clock: WorldClock) -> Lab {
        let faults = self.starting.faults(cluster);
        self.main.share_with(&faults);
        let Starting { world, recorder, .. } = self.starting;
        let cache = Arc::clone(cluster.cache());
        let objects = OwnRegistry::new(world, cache, clock, Arc::clone(&recorder), Arc::clone(&faults), None);
        Lab { objects: Arc::new(objects), group: GROUP, disturbances: faults, recorder }
    }
}

/// What faults are expected to have done in the end, those of all worlds that exist.
#[derive(Clone)]
pub struct Expectations(Arc<Faults>);

impl Expectations {
    /// A sentence for each expectation that is not met.
    #[must_use]
    pub fn unmet(&self) -> Vec<String> {
        self.0.unmet_everywhere()
    }
}

/// The lab of a server.
pub struct Started {
    pub lab: Lab,
    pub worlds: Arc<Worlds>,
    pub expectations: Expectations,
}

/// Starts the lab of a server. Its objects have a store of their own in memory.
pub async fn start(
    starting: Starting,
    cluster: &Registry,
    clock: WorldClock,
    main: WeakServer,
    maker: Box<dyn Maker>,
) -> Result<Started, String> {
    let faults = starting.faults(cluster);
    let Starting { world, recorder, clock: own_clock, requests_max, .. } = starting;
    let common = Common { requests_max, clock: own_clock, share: Share::default(), faults: Arc::clone(&faults) };
    let worlds = Worlds::new(main.clone(), maker, common);
    let cache = Arc::clone(cluster.cache());
    let of_worlds = Some(Arc::downgrade(&worlds));
    let objects = OwnRegistry::new(world, cache, clock, Arc::clone(&recorder), Arc::clone(&faults), of_worlds);
    objects.registry(main).await.map_err(|status| status.to_string())?;
    let lab = Lab { objects: Arc::new(objects), group: GROUP, disturbances: Arc::clone(&faults) as _, recorder };
    Ok(Started { lab, worlds, expectations: Expectations(faults) })
}
