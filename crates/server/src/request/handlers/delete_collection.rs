//! DELETE of a collection.

use bytes::Bytes;
use machinery::Status;
use registry::WriteRequest;

use crate::request::handlers::{Call, delete};
use crate::request::reply::Reply;
use crate::request::routing::ResourceRoute;

pub(super) async fn answer(call: &Call<'_>, route: &ResourceRoute, body: Bytes) -> Result<Reply, Status> {
    let asked = call.negotiate(route)?;
    let list = call.list_options().await?;
    let options = delete::options(call, &body)?;
    let context = call.context();
    let request = WriteRequest { target: &route.target, options: &options, ctx: &context };
    let deleted = call.registry.delete_collection(request, &list).await?;
    call.show_list(deleted, &asked).await
}
