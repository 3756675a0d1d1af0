//! What the program has to do to make a world: the lab does not know how a control plane is put together.

use std::any::Any;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use registry::Registry;
use server::Server;
use store::Store;

use crate::start::StartingBeside;

/// The future of a world.
pub type MakerFuture<'a> = Pin<Box<dyn Future<Output = Result<Made, String>> + Send + 'a>>;

/// Makes control planes.
pub trait Maker: Send + Sync {
    fn make(&self, order: Order) -> MakerFuture<'_>;
}

/// The world that is wanted.
pub struct Order {
    pub name: Arc<str>,
    pub store: Arc<dyn Store>,
    /// The registry of the world that the store was forked from; none begins with what every cluster has.
    pub origin: Option<Arc<Registry>>,
    pub controllers: bool,
    /// None for one that is only forked, and never asked.
    pub lab: Option<StartingBeside>,
    /// A bearer token whose user may do everything in this world.
    pub token: String,
}

/// A world that runs.
pub struct Made {
    pub server: Server,
    /// Its background work, which ends when this is dropped.
    pub tasks: Box<dyn Any + Send + Sync>,
}

/// How clients reach the server.
#[derive(Clone, Debug)]
pub struct Address {
    /// Without a slash at the end: `https://127.0.0.1:6443`.
    pub url: String,
    /// What clients trust.
    pub ca_pem: String,
}
