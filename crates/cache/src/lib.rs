//! One feed in; snapshots, history and thousands of watchers out.
//!
//! The cache follows the store's single log and keeps, for each collection (`core/pods`), three things:
//!
//! - an immutable ordered [snapshot](collection) that a reader clones in constant time;
//! - a [history](history) of shared [events](event), which watchers walk at their own pace;
//! - a [routing table](routing) that finds the watchers an event concerns without asking the others.
//!
//! Map of the files, in the order an object passes through them: [`feed`] takes changes from the store, [`item`] is an
//! object as the cache holds it, [`items`] all of them in order, [`event`] a change to one, [`collection`] applies it,
//! [`history`] remembers it, [`routing`] finds who wants it by their [`filter`], [`watcher`] hands it out. [`spec`] says what
//! of an object can be selected on, [`foretold`] what a writer of this process knew of it before; [`tally`] counts;
//! [`collections`] holds them all, [`cache`] is the whole and answers how fresh it is. An
//! [`observer`] derives something from objects and is called before their revision is announced.
//!
//! The cache knows no HTTP and no kinds: an object is a key, a revision, labels, selectable fields and shared bytes.

pub mod cache;
pub mod collection;
pub mod collections;
pub mod event;
mod feed;
pub mod filter;
pub mod foretold;
pub mod history;
pub mod item;
mod items;
pub mod observer;
pub mod routing;
pub mod spec;
pub mod tally;
pub mod watcher;

pub use cache::{Cache, CacheError, Config, TooFarAhead};
pub use collection::{Collection, ExactError, Snapshot};
pub use collections::Collections;
pub use event::{Event, EventKind};
pub use filter::{Filter, Term};
pub use foretold::Foretelling;
pub use item::Item;
pub use observer::Observer;
pub use spec::{FieldSpec, Spec};
pub use tally::{Figures, Tally};
pub use watcher::{Delivery, Few, Output, Start, WatchEnd, Watcher};
