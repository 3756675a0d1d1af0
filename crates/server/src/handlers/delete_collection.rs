//! DELETE of a collection.

use machinery::Status;
use machinery::options::ListOptions;

use crate::body::RequestBody;
use crate::handlers::{Call, delete};
use crate::reply::Reply;
use crate::routing::ResourceRoute;

pub(super) async fn answer(call: &Call<'_>, route: &ResourceRoute, body: RequestBody) -> Result<Reply, Status> {
    let asked = call.negotiate(route)?;
    let list = ListOptions::from_query(call.query)?;
    let options = delete::options(call, route, body).await?;
    let context = call.context();
    let deleted = call.server.registry.delete_collection(&route.target, &list, options, &context).await?;
    call.show_list(deleted, &asked).await
}
