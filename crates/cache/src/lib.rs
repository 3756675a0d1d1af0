//! One feed in; snapshots, history and thousands of watchers out.
//!
//! The cache follows the store's single log and keeps, for each collection (`core/pods`), three things:
//!
//! - an immutable ordered [snapshot](collection) that a reader clones in constant time;
//! - a [history](history) of shared [events](event), which watchers read at their own pace;
//! - a [routing table](routing) that finds the watchers of an event without testing the others.
//!
//! Map of the files, in the order an object passes through them: [`feed`] receives changes from the store, [`item`] is an
//! object in the cache, [`items`] all of them in order, [`event`] a change to one, [`collection`] applies it, [`history`]
//! keeps it, [`routing`] finds the watchers it concerns by their [`filter`], [`watcher`] delivers it. [`spec`] has the
//! selectable fields, [`pending_writes`] the objects that this process is writing, [`tally`] the counters; [`collections`]
//! holds every collection, [`cache`] is the whole, with the freshness of reads; `fork` begins another one with its objects. An
//! [`observer`] derives something from objects and is called before their revision is announced; a [`backlog`] is what an open watch
//! has not been sent.
//!
//! The cache knows no HTTP and no kinds: an object is a key, a revision, labels, selectable fields and shared bytes.

pub mod backlog;
pub mod cache;
pub mod collection;
pub mod collections;
pub mod event;
mod feed;
pub mod filter;
mod fork;
pub mod history;
pub mod item;
mod items;
pub mod observer;
pub mod pending_writes;
pub mod routing;
pub mod spec;
pub mod tally;
pub mod watcher;

pub use backlog::{Backlog, WatchScope};
pub use cache::{Cache, CacheError, Config, TooFarAhead};
pub use collection::{Collection, ExactError, Snapshot};
pub use collections::Collections;
pub use event::{Event, EventKind};
pub use filter::{Filter, Term};
pub use item::Item;
pub use observer::Observer;
pub use pending_writes::PendingWrite;
pub use spec::{FieldSpec, Spec};
pub use tally::{Figures, Tally};
pub use watcher::{Delivery, OneOrMore, Output, Start, WatchEnd, Watcher};
