//! The lab of a server: the registry of its objects, and its powers.

use std::sync::Arc;

use registry::{Registry, Settings};
use server::service::Lab;
use store::memory::MemoryStore;
use store::{Retention, Store};
use tokio::task::JoinSet;

use crate::faults::{self, Faults};
use crate::kinds::{self, GROUP};

/// Starts a lab. Its objects have a store of their own in memory; `tasks` get its background work.
pub async fn start(settings: Settings, tasks: &mut JoinSet<()>) -> Result<Lab, String> {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new(Retention::default()));
    let kinds = kinds::beside(&schema::kinds::Kinds::default());
    let faults = Faults::new(settings.clock.clone());
    let observers = vec![Arc::clone(&faults) as _];
    let settings = Settings { kinds, is_bare: true, observers, ..settings };
    let registry = Registry::start(store, settings).await.map_err(|error| error.to_string())?;
    tasks.spawn(faults::report(Arc::clone(&faults), Arc::downgrade(&registry)));
    Ok(Lab { registry, group: GROUP, disturbances: faults })
}
