//! POST to a collection or a subresource.

use bytes::Bytes;
use machinery::Status;
use machinery::options::CreateOptions;
use registry::WriteRequest;

use crate::request::handlers::{Call, review, token};
use crate::request::operation::Operation;
use crate::request::reply::Reply;
use crate::request::routing::ResourceRoute;

pub(super) async fn answer(call: &Call<'_>, route: &ResourceRoute, body: Bytes) -> Result<Reply, Status> {
    let asked = call.negotiate(route)?;
    let body = call.object(body)?;
    let options = CreateOptions::from_query(call.query)?;
    let request = WriteRequest { target: &route.target, options: &options, ctx: &call.context() };
    let registry = call.registry;
    let write = async {
        let worlds = call.server.worlds_of(&route.target);
        if let Some(write) = worlds.and_then(|worlds| worlds.create(registry, request, &body)) {
            return write.await;
        }
        match route.operation {
            Operation::Bind => registry.bind(request, &body).await,
            Operation::Evict => registry.evict(request, &body).await,
            Operation::RequestToken => token::issue(call, request, &body).await,
            Operation::Lab => Err(Status::router_method_not_allowed()),
            Operation::Review(kind) => review::compute(call, kind, request, &body).await,
            _ => registry.create(request, &body).await,
        }
    };
    // A question may take as long as its request.
    let outcome = match registry.is_computed(&route.target) {
        true => write.await?,
        false => call.within_write_limit(write).await?,
    };
    call.show_outcome(outcome, &route.target, &asked).await
}
