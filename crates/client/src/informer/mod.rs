//! `SharedInformer`: one watch of a kind, many readers and many handlers.
//!
//! - `event`: the events that a handler receives
//! - `mailbox`: the backlog of one handler, bounded by the number of objects and not by the number of changes
//! - `hub`: the one place where the store and the mailboxes change together, so that joining is exact
//! - `resync`: the schedule of repetitions for handlers that want them
//! - `handler`: running a function over a mailbox
//! - `inline_handler`: the same without a wake-up, as long as the function keeps up
//! - `factory`: one informer for each kind

mod event;
mod factory;
mod handler;
mod hub;
mod inline_handler;
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
