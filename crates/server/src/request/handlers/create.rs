//! POST to a collection or a subresource.

use machinery::Status;
use machinery::options::CreateOptions;

use crate::request::handlers::{Call, review, token};
use crate::request::reply::Reply;
use crate::request::routing::ResourceRoute;
use crate::wire::body::RequestBody;

pub(super) async fn answer(call: &Call<'_>, route: &ResourceRoute, body: RequestBody) -> Result<Reply, Status> {
    let asked = call.negotiate(route)?;
    let body = call.read_object(body).await?;
    let options = CreateOptions::from_query(call.query)?;
    let context = call.context();
    let write = async {
        if let Some(outcome) = review::answer(call, &route.target, &body, &options, &context).await? {
            return Ok(outcome);
        }
        if let Some(outcome) = token::answer(call, &route.target, &body, &options, &context).await? {
            return Ok(outcome);
        }
        call.server.registry.create(&route.target, body, &options, &context).await
    };
    let outcome = call.within_write_limit(write).await?;
    call.show_outcome(&outcome, &route.target, &asked)
}
