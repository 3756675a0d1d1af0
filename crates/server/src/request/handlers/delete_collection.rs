//! DELETE of a collection.

use machinery::Status;
use machinery::options::ListOptions;

use crate::request::handlers::{Call, delete};
use crate::request::reply::Reply;
use crate::request::routing::ResourceRoute;
use crate::wire::body::RequestBody;

pub(super) async fn answer(call: &Call<'_>, route: &ResourceRoute, body: RequestBody) -> Result<Reply, Status> {
    let asked = call.negotiate(route)?;
    let list = ListOptions::from_query(call.query)?;
    let options = delete::options(call, route, body).await?;
    let context = call.context();
    let deleted = call.server.registry.delete_collection(&route.target, &list, options, &context).await?;
    call.show_list(deleted, &asked).await
}
