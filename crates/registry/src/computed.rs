//! Kinds whose objects are computed when they are read, and never stored: what was seen of a server, for instance.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use cache::{EventKind, Item, Start, WatchEnd};
use machinery::continue_token::ContinueToken;
use machinery::json::Value;
use machinery::options::{CreateOptions, DeleteOptions, ListMode, ListOptions};
use machinery::{Revision, Status, fields};

use crate::body;
use crate::read::view::{ListView, Outcome, View};
use crate::registry::Registry;
use crate::request::{Body, Target, WriteRequest};

/// Computes objects.
pub trait Computed: Send + Sync {
    /// Whether the objects of a collection are computed.
    fn has(&self, collection: &str) -> bool;

    /// The revision of a list of now.
    fn revision(&self) -> Revision;

    /// Calls `take` with the objects whose names are not before `from`, in order of their names, until it returns false. Those
    /// that `fields` does not select may be left out.
    fn scan(&self, collection: &str, from: &str, fields: &fields::Selector, take: &mut dyn FnMut(Arc<Item>) -> bool);

    fn get(&self, collection: &str, name: &str) -> Option<Arc<Item>>;

    fn watch(&self, collection: &str, start: Start) -> Box<dyn ComputedWatch>;

    /// Answers a question that is asked by creating an object.
    fn create(&self, collection: &str, object: Value) -> Pin<Box<dyn Future<Output = Result<Value, Status>> + Send>>;

    /// Ends what an object shows; false if there is no such object.
    fn delete(&self, collection: &str, name: &str) -> bool;
}

/// An open watch of computed objects.
pub trait ComputedWatch: Send {
    /// The next events; pending if there are none.
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Result<Vec<ComputedEvent>, WatchEnd>>;

    /// Every event up to here has been returned.
    fn revision(&self) -> Revision;
}

/// One event of such a watch.
#[derive(Debug)]
pub enum ComputedEvent {
    Object(EventKind, Arc<Item>),
    /// The initial objects are complete as of this revision.
    InitialEnd(Revision),
}

pub(crate) fn get(computed: &dyn Computed, target: &Target) -> Result<View, Status> {
    let item = computed.get(&target.kind.collection, target.name());
    let item = item.ok_or_else(|| Status::not_found(&target.gr(), target.name()))?;
    Ok(View::Stored { kind: Arc::clone(&target.kind), item })
}

/// A list of now, whatever revision is requested: there is no other.
pub(crate) fn list(
    registry: &Registry,
    computed: &dyn Computed,
    target: &Target,
    options: &ListOptions,
) -> Result<ListView, Status> {
    let filter = registry.filter(target, options)?;
    let from = match options.list_mode()? {
        ListMode::Continue(token) => token.start,
        _ => String::new(),
    };
    let (revision, limit) = (computed.revision(), options.page_size());
    let (mut items, mut has_more): (Vec<Arc<Item>>, bool) = (Vec::new(), false);
    computed.scan(&target.kind.collection, &from, &options.field_selector, &mut |item| {
        if !filter.admits(&item) {
            return true;
        }
        has_more = limit == Some(items.len());
        if !has_more {
            items.push(item);
        }
        !has_more
    });
    let last = items.last().filter(|_| has_more);
    let continue_token = last.map(|last| ContinueToken::after(last.name(), revision).encode());
    Ok(ListView { kind: Arc::clone(&target.kind), items, revision, continue_token, remaining: None })
}

pub(crate) async fn create(
    computed: &dyn Computed,
    request: WriteRequest<'_, CreateOptions>,
    body: &Body,
) -> Result<Outcome, Status> {
    let WriteRequest { target, options, ctx } = request;
    let mut object = body::object(&target.kind, body, options.field_validation, ctx)?;
    schema::defaults::apply(&target.kind, &mut object, None);
    let value = computed.create(&target.kind.collection, object).await?;
    Ok(Outcome::new(201, View::Made { kind: None, value }))
}

pub(crate) fn delete(computed: &dyn Computed, request: WriteRequest<'_, DeleteOptions>) -> Result<Outcome, Status> {
    let WriteRequest { target, options, .. } = request;
    let missing = || Status::not_found(&target.gr(), target.name());
    let collection = &target.kind.collection;
    if options.dry_run {
        computed.get(collection, target.name()).ok_or_else(missing)?;
    } else if !computed.delete(collection, target.name()) {
        return Err(missing());
    }
    Ok(Outcome::new(200, View::Status(Status::deleted(&target.gr(), target.name(), ""))))
}
