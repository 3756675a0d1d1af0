//! Worlds: control planes beside the one of the server, made from nothing or forked from another at a revision.
//!
//! - this file: the worlds that exist, and which requests concern them
//! - `maker`: what the program has to do to make one
//! - `create`: the creation of a World; `objects`: objects of the lab as these read and write them

mod create;
mod maker;
pub(crate) mod objects;

use std::collections::HashMap;
use std::sync::{Arc, OnceLock, Weak};

use cache::{Collection, Collections, Event, Observer};
use machinery::options::CreateOptions;
use machinery::{Revision, Status};
use parking_lot::RwLock;
use registry::{Body, Registry, WriteRequest};
use server::Server;
use server::worlds::{MAIN, WeakServer, WriteFuture};
use tokio::sync::OnceCell;

use crate::checkpoints::Checkpoints;
use crate::kinds::{CHECKPOINTS, WORLDS};
pub use maker::{Address, Made, Maker, MakerFuture, Order};

/// Worlds beside `main` at most.
pub const WORLDS_MAX: usize = 10_000;

/// All worlds of a server.
pub struct Worlds {
    main: WeakServer,
    maker: Box<dyn Maker>,
    /// None for a server without listeners.
    address: OnceLock<Address>,
    by_name: RwLock<HashMap<Arc<str>, Made>>,
    /// The origin of worlds that are made from nothing, which is made for the first of them.
    blank: OnceCell<Made>,
    checkpoints: Checkpoints,
}

impl Worlds {
    #[must_use]
    pub fn new(main: WeakServer, maker: Box<dyn Maker>) -> Arc<Self> {
        Arc::new(Worlds {
            main,
            maker,
            address: OnceLock::new(),
            by_name: RwLock::default(),
            blank: OnceCell::new(),
            checkpoints: Checkpoints::default(),
        })
    }

    /// Names the address that clients reach this server by. Only the first is used.
    pub fn set_address(&self, address: Address) {
        let _ = self.address.set(address);
    }

    /// The server of a world, `main` included.
    #[must_use]
    pub fn server(&self, name: &str) -> Option<Server> {
        if name == MAIN {
            return self.main.upgrade();
        }
        self.by_name.read().get(name).map(|world| world.server.clone())
    }

    pub(crate) fn main(&self) -> &WeakServer {
        &self.main
    }

    pub(crate) fn checkpoints(&self) -> &Checkpoints {
        &self.checkpoints
    }

    /// Ends a world: its watches end, and its memory is freed when its last request has ended.
    fn end(&self, name: &str) {
        let ended = self.by_name.write().remove(name);
        if let Some(world) = ended {
            world.server.end_watches();
        }
    }
}

impl server::worlds::Worlds for Worlds {
    fn find(&self, name: &str) -> Option<Server> {
        self.server(name)
    }

    fn create<'a>(
        &'a self,
        registry: &'a Arc<Registry>,
        request: WriteRequest<'a, CreateOptions>,
        body: &'a Body,
    ) -> Option<WriteFuture<'a>> {
        match (request.target.kind.collection.as_str(), request.target.subresource.as_deref()) {
            (WORLDS, None) => Some(Box::pin(self.create_world(registry, request, body))),
            (CHECKPOINTS, None) => Some(Box::pin(self.create_checkpoint(registry, request, body))),
            (CHECKPOINTS, Some("rewind")) => Some(Box::pin(self.rewind(registry, request))),
            _ => None,
        }
    }
}

/// Follows the objects that stand for worlds and checkpoints. Does not keep the worlds, which keep the registry that it observes.
pub(crate) struct Deletions(pub(crate) Weak<Worlds>);

impl Observer for Deletions {
    fn observes(&self, collection: &str) -> bool {
        matches!(collection, WORLDS | CHECKPOINTS)
    }

    fn loaded(&self, _: &Collections, _: &Collection, _: Revision) {}

    fn changed(&self, _: &Collections, changes: &[Arc<Event>]) {
        let Some(worlds) = self.0.upgrade() else { return };
        for event in changes.iter().filter(|event| event.current().is_none()) {
            let Some(gone) = event.previous() else { continue };
            match event.key().collection() {
                WORLDS => worlds.end(gone.name()),
                _ => worlds.release(gone.name()),
            }
        }
    }
}

/// The error of a server that is about to stop.
fn stopping() -> Status {
    Status::service_unavailable("the server is stopping")
}
