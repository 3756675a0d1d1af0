//! The registry of a lab's objects: a store of its own in memory, made when the objects are first asked for.

use std::sync::{Arc, Weak};

use cache::{Cache, Observer};
use clock::WorldClock;
use machinery::Status;
use registry::{Registry, Settings};
use schema::kinds::Kinds;
use server::service::{LabObjects, LabRegistry};
use server::worlds::WeakServer;
use store::memory::MemoryStore;
use store::{Retention, Store};
use tokio::sync::OnceCell;
use tokio::task::JoinSet;

use crate::clocks::{Clocks, Quiet};
use crate::faults::{self, Faults};
use crate::kinds;
use crate::objects::Objects;
use crate::recorder::Recorder;
use crate::rules::Rules;
use crate::settlements::Settlements;
use crate::worlds::{Deletions, Worlds};

/// The registry of the lab of one world.
pub(crate) struct OwnRegistry {
    world: Arc<str>,
    /// The objects of the world.
    cluster: Arc<Cache>,
    clock: WorldClock,
    recorder: Arc<Recorder>,
    faults: Arc<Faults>,
    /// In `main`: those whose objects are among the lab's.
    worlds: Option<Weak<Worlds>>,
    started: OnceCell<Started>,
}

struct Started {
    registry: Arc<Registry>,
    /// Writes the status of faults until this is dropped.
    _tasks: JoinSet<()>,
}

impl OwnRegistry {
    pub(crate) fn new(
        world: Arc<str>,
        cluster: Arc<Cache>,
        clock: WorldClock,
        recorder: Arc<Recorder>,
        faults: Arc<Faults>,
        worlds: Option<Weak<Worlds>>,
    ) -> Self {
        OwnRegistry { world, cluster, clock, recorder, faults, worlds, started: OnceCell::new() }
    }

    async fn start(&self, server: WeakServer) -> Result<Started, Status> {
        let store: Arc<dyn Store> = Arc::new(MemoryStore::new(Retention::default()));
        let mut observers = vec![Arc::clone(&self.faults) as Arc<dyn Observer>];
        observers.extend(self.worlds.clone().map(|worlds| Arc::new(Deletions(worlds)) as _));
        let none = Kinds::default();
        let kinds = if self.worlds.is_some() { kinds::beside(&none) } else { kinds::of_world(&none) };
        let clocks = Clocks::new(self.clock.clone(), Quiet(Arc::clone(&self.cluster)));
        let (recorder, faults) = (Arc::clone(&self.recorder), Arc::clone(&self.faults));
        let settlements =
            Settlements::new(Arc::clone(&self.cluster), Arc::clone(&recorder), Arc::clone(&faults), server);
        let settings = Settings {
            kinds,
            is_bare: true,
            observers,
            computed: Some(Arc::new(Objects { recorder, settlements })),
            orders: Some(Arc::new(Rules { world: Arc::clone(&self.world), clocks: Arc::clone(&clocks) })),
            ..Settings::default()
        };
        let registry = Registry::start(store, settings).await.map_err(Status::internal)?;
        clocks.make(&registry).await?;
        let mut tasks = JoinSet::new();
        tasks.spawn(faults::report(faults, Arc::downgrade(&registry)));
        Ok(Started { registry, _tasks: tasks })
    }
}

impl LabObjects for OwnRegistry {
    fn registry(&self, server: WeakServer) -> LabRegistry<'_> {
        Box::pin(async {
            let started = self.started.get_or_try_init(|| self.start(server)).await?;
            Ok(Arc::clone(&started.registry))
        })
    }
}
