//! GET of a collection.

use std::sync::Arc;

use machinery::Status;

use crate::request::handlers::Call;
use crate::request::reply::Reply;
use crate::request::routing::ResourceRoute;

pub(super) async fn answer(call: &Call<'_>, route: &ResourceRoute) -> Result<Reply, Status> {
    let asked = call.negotiate(route)?;
    let options = call.list_options().await?;
    let registry = call.registry;
    let list = if let Some(at) = call.as_of {
        Box::pin(registry.list_at(&route.target, &options, at)).await?
    } else if call.is_long_list(&route.target, &options) {
        let (registry, target) = (Arc::clone(registry), route.target.clone());
        let bytes = call.server.limits.heavy_bytes_min;
        Box::pin(call.heavy(bytes, async move { registry.list(&target, &options).await })).await?
    } else {
        registry.list(&route.target, &options).await?
    };
    call.show_list(list, &asked).await
}
