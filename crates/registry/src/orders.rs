//! Objects whose writes are orders: what a write asks for is done once it is stored, and before it is answered. Also the rules of
//! objects that their schema cannot express, since they depend on where the objects are.

use std::future::Future;
use std::pin::Pin;

use machinery::json::Value;
use machinery::{FieldError, Status};

/// Takes orders.
pub trait Orders: Send + Sync {
    /// Whether writes of a collection are orders.
    fn has(&self, collection: &str) -> bool;

    /// Checks a write, and changes the object to what is stored. Called again after each conflict with another write.
    fn take(&self, old: &Value, new: &mut Value) -> Result<Option<Order>, Status>;

    /// Errors of an object that is about to be created or changed, beside those that its schema finds.
    fn check(&self, collection: &str, new: &Value) -> Vec<FieldError>;
}

/// What a write asks for. Done once; returns the status that the object has afterwards.
pub type Order = Box<dyn FnOnce() -> Pin<Box<dyn Future<Output = Value> + Send>> + Send>;
