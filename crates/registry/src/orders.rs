//! Objects whose writes are orders: what a write asks for is done once it is stored, and before it is answered.

use std::future::Future;
use std::pin::Pin;

use machinery::Status;
use machinery::json::Value;

/// Takes orders.
pub trait Orders: Send + Sync {
    /// Whether writes of a collection are orders.
    fn has(&self, collection: &str) -> bool;

    /// Checks a write, and changes the object to what is stored. Called again after each conflict with another write.
    fn take(&self, old: &Value, new: &mut Value) -> Result<Option<Order>, Status>;
}

/// What a write asks for. Done once; returns the status that the object has afterwards.
pub type Order = Box<dyn FnOnce() -> Pin<Box<dyn Future<Output = Value> + Send>> + Send>;
