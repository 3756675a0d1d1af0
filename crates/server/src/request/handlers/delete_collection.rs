//! DELETE of a collection.

use machinery::Status;
use machinery::options::ListOptions;
use registry::WriteRequest;

use crate::request::handlers::{Call, delete};
use crate::request::reply::Reply;
use crate::request::routing::ResourceRoute;
use crate::wire::body::RequestBody;

pub(super) async fn answer(call: &Call<'_>, route: &ResourceRoute, body: RequestBody) -> Result<Reply, Status> {
    let asked = call.negotiate(route)?;
    let list = ListOptions::from_query(call.query)?;
    let options = delete::options(call, route, body).await?;
    let request = WriteRequest { target: &route.target, options: &options, ctx: &call.context() };
    let deleted = call.server.registry.delete_collection(request, &list).await?;
    call.show_list(deleted, &asked).await
}
