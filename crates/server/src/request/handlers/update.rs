//! PUT of one object.

use bytes::Bytes;
use machinery::Status;
use machinery::options::UpdateOptions;

use crate::request::handlers::Call;
use crate::request::reply::Reply;
use crate::request::routing::ResourceRoute;

pub(super) async fn answer(call: &Call<'_>, route: &ResourceRoute, body: Bytes) -> Result<Reply, Status> {
    let asked = call.negotiate(route)?;
    let body = call.object(body)?;
    let options = UpdateOptions::from_query(call.query)?;
    let context = call.context();
    let write = call.server.registry.update(&route.target, body, &options, &context);
    let outcome = call.within_write_limit(write).await?;
    call.show_outcome(outcome, &route.target, &asked).await
}
