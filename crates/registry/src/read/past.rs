//! Reads that are answered from the past, as a server does whose cache has fallen behind.

use std::sync::Arc;

use machinery::options::{GetMode, GetOptions, ListMode, ListOptions};
use machinery::{Revision, Status};

use super::list;
use super::view::{ListView, View};
use crate::failure;
use crate::registry::Registry;
use crate::request::Target;

/// The object as it was at a revision.
pub(crate) async fn get(
    registry: &Registry,
    target: &Target,
    options: &GetOptions,
    at: Revision,
) -> Result<View, Status> {
    if let GetMode::NotOlderThan(asked) = options.mode()? {
        refuse_newer(asked, at)?;
    }
    let key = registry.key(target)?;
    let snapshot = registry.cache().snapshot_at(&registry.collection(&target.kind), at).await;
    let snapshot = snapshot.map_err(failure::exact)?;
    let item = snapshot.get(&key).cloned().ok_or_else(|| Status::not_found(&target.gr(), target.name()))?;
    registry.converter().prepare(&target.kind, std::slice::from_ref(&item)).await?;
    Ok(View::Stored { kind: Arc::clone(&target.kind), item })
}

/// The objects as they were at a revision, also where the client asks for the newest ones.
pub(crate) async fn list(
    registry: &Registry,
    target: &Target,
    options: &ListOptions,
    at: Revision,
) -> Result<ListView, Status> {
    match options.list_mode()? {
        ListMode::Exact(asked) | ListMode::NotOlderThan(asked) if asked > at => refuse_newer(asked, at)?,
        ListMode::Exact(_) | ListMode::Continue(_) => return list::list(registry, target, options).await,
        ListMode::Fresh | ListMode::Any | ListMode::NotOlderThan(_) => {}
    }
    let options =
        ListOptions { resource_version: at.to_string(), resource_version_match: "Exact".to_owned(), ..options.clone() };
    list::list(registry, target, &options).await
}

/// The answer of a server that has not seen the revision yet.
pub(super) fn refuse_newer(asked: Revision, at: Revision) -> Result<(), Status> {
    if asked > at { Err(Status::too_large_resource_version(asked, at)) } else { Ok(()) }
}
