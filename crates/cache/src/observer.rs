//! Code that follows a collection from inside the feed.
//!
//! An observer keeps something that is derived from objects (an index, a table of kinds) and is called before the revision
//! of a change is announced: a reader that waits for a revision finds the derived state as new as the objects.

use std::sync::Arc;

use machinery::Revision;

use crate::collection::Collection;
use crate::collections::Collections;
use crate::event::Event;

/// Derives something from the objects of some collections. Calls never overlap; they hold up the feed, so they are short.
pub trait Observer: Send + Sync {
    /// Whether changes of a collection are reported; the same answer every time.
    fn observes(&self, collection: &str) -> bool;

    /// Takes a collection as it was read from the store at `revision`: at the start, and again if the log was lost.
    fn loaded(&self, collections: &Collections, collection: &Collection, revision: Revision);

    /// Takes changes that became visible together, in the order of the log.
    fn changed(&self, collections: &Collections, changes: &[Arc<Event>]);
}
