//! DELETE of a collection: every object that a selector selects, one by one.

use machinery::Status;
use machinery::options::{DeleteOptions, ListOptions};

use super::delete::{Admitted, delete_admitted};
use crate::read::list::list;
use crate::read::view::ListView;
use crate::registry::Registry;
use crate::request::{Target, WriteRequest};

/// Not atomic: the first refusal ends it, and what was deleted before stays deleted. Returns the objects as they were listed.
pub(crate) async fn delete_collection(
    registry: &Registry,
    request: WriteRequest<'_, DeleteOptions>,
    selection: &ListOptions,
) -> Result<ListView, Status> {
    let listed = list(registry, request.target, selection).await?;
    for item in &listed.items {
        let target = Target::of_item(&request.target.kind, item);
        let request = WriteRequest { target: &target, ..request };
        match delete_admitted(registry, request, Admitted::Here { name: "" }).await {
            Ok(_) => {}
            // Another request deleted it first.
            Err(status) if status.is_not_found() => {}
            Err(status) => return Err(status),
        }
    }
    Ok(listed)
}
