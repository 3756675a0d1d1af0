//! Doors to an object that open only onto part of it, or do something with it.
//!
//! - `scale`: the replica count of a workload as a kind of its own
//! - `binding`: a pod gets its node
//! - `eviction`: a pod goes, if its disruption budget allows
//! - `token`: what a service account's tokens say
//! - `node`: what only a node could answer (logs, exec, …)
//!
//! `status`, `finalize`, `ephemeralcontainers`, `resize` and `approval` speak the object's own kind: they go the way of an
//! ordinary update, and the kind's strategy says which part of the object they may change.

mod binding;
mod eviction;
pub(crate) mod node;
mod scale;
pub(crate) mod token;

use std::sync::Arc;

use cache::Item;
use machinery::Status;
use machinery::options::{CreateOptions, PatchOptions, UpdateOptions};

use crate::registry::Registry;
use crate::request::{Body, Context, PatchBody, Target};
use crate::view::{Outcome, View};

/// What GET shows of an object through the target's door.
pub(crate) fn show(target: &Target, item: Arc<Item>) -> Result<View, Status> {
    match target.subresource.as_deref() {
        Some("scale") => scale::show(target, &item),
        _ => Ok(View::Stored { kind: Arc::clone(&target.kind), item }),
    }
}

impl Registry {
    /// POST to something that is not stored itself.
    pub(crate) async fn create_subresource(
        &self,
        target: &Target,
        body: Body,
        options: &CreateOptions,
        ctx: &Context,
    ) -> Result<Outcome, Status> {
        match (target.kind.plural.as_str(), target.subresource.as_deref()) {
            ("bindings", None) | ("pods", Some("binding")) => self.bind(target, &body, options, ctx).await,
            ("pods", Some("eviction")) => self.evict(target, &body, options, ctx).await,
            _ => Err(Status::router_method_not_allowed()),
        }
    }

    /// PUT to a door that speaks another kind; `None` is for the ordinary way.
    pub(crate) async fn update_subresource(
        &self,
        target: &Target,
        body: &Body,
        options: &UpdateOptions,
        ctx: &Context,
    ) -> Result<Option<Outcome>, Status> {
        match target.subresource.as_deref() {
            Some("scale") => self.put_scale(target, body, options, ctx).await.map(Some),
            _ => Ok(None),
        }
    }

    /// PATCH to a door that speaks another kind; `None` is for the ordinary way.
    pub(crate) async fn patch_subresource(
        &self,
        target: &Target,
        body: &PatchBody,
        options: &PatchOptions,
        ctx: &Context,
    ) -> Result<Option<Outcome>, Status> {
        match target.subresource.as_deref() {
            Some("scale") => self.patch_scale(target, body, options, ctx).await.map(Some),
            _ => Ok(None),
        }
    }
}
