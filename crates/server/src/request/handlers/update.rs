//! PUT of one object.

use machinery::Status;
use machinery::options::UpdateOptions;

use crate::request::handlers::Call;
use crate::request::reply::Reply;
use crate::request::routing::ResourceRoute;
use crate::wire::body::RequestBody;

pub(super) async fn answer(call: &Call<'_>, route: &ResourceRoute, body: RequestBody) -> Result<Reply, Status> {
    let asked = call.negotiate(route)?;
    let body = call.read_object(body).await?;
    let options = UpdateOptions::from_query(call.query)?;
    let context = call.context();
    let write = call.server.registry.update(&route.target, body, &options, &context);
    let outcome = call.within_write_limit(write).await?;
    call.show_outcome(&outcome, &route.target, &asked)
}
