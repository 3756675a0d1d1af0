//! GET: one object, as fresh as requested.

use std::sync::Arc;

use cache::Item;
use machinery::Status;
use machinery::options::{GetMode, GetOptions};

use super::view::View;
use crate::registry::Registry;
use crate::request::Target;

pub(crate) async fn get(registry: &Registry, target: &Target, options: &GetOptions) -> Result<View, Status> {
    let item = find(registry, target, options).await?;
    Ok(View::Stored { kind: Arc::clone(&target.kind), item })
}

/// Finds the target's object, converted to its version.
pub(crate) async fn find(registry: &Registry, target: &Target, options: &GetOptions) -> Result<Arc<Item>, Status> {
    match options.mode()? {
        GetMode::Fresh => {
            registry.storage().fresh().await?;
        }
        GetMode::Any => {}
        GetMode::NotOlderThan(revision) => {
            registry.storage().reach(revision).await?;
        }
    }
    let item = registry.storage().visible(&registry.key(target)?)?;
    let item = item.ok_or_else(|| Status::not_found(&target.gr(), target.name()))?;
    registry.converter().prepare(&target.kind, std::slice::from_ref(&item)).await?;
    Ok(item)
}
