//! `SharedInformer`: one watch of a kind, many readers and many handlers.
//!
//! - `event`: what a handler is told
//! - `mailbox`: what waits for one handler, bounded by the number of objects and not by the number of changes
//! - `hub`: the one place where the store changes and the mailboxes learn of it, so that joining is exact
//! - `resync`: which handler is due to see everything again
//! - `handler`: running a function over a mailbox
//! - `carrier`: who runs it: the informer while it keeps up, otherwise a task of its own
//! - `factory`: one informer for each kind

mod carrier;
mod event;
mod factory;
mod handler;
mod hub;
mod mailbox;
#[cfg(test)]
mod model;
mod resync;
mod shared;
#[cfg(test)]
mod tests;

pub use event::Event;
pub use factory::{FactoryReport, InformerFactory};
pub use handler::{HandlerHandle, HandlerStats};
pub use mailbox::Delivery;
pub use shared::{InformerConfig, InformerError, InformerReport, SharedInformer, Subscription, SubscriptionOptions};
