//! PUT of one object.

use bytes::Bytes;
use machinery::Status;
use machinery::options::UpdateOptions;
use registry::WriteRequest;

use crate::request::handlers::Call;
use crate::request::operation::Operation;
use crate::request::reply::Reply;
use crate::request::routing::ResourceRoute;

pub(super) async fn answer(call: &Call<'_>, route: &ResourceRoute, body: Bytes) -> Result<Reply, Status> {
    let asked = call.negotiate(route)?;
    let body = call.object(body)?;
    let options = UpdateOptions::from_query(call.query)?;
    let request = WriteRequest { target: &route.target, options: &options, ctx: &call.context() };
    let registry = call.registry;
    let write = async {
        match route.operation {
            Operation::UpdateScale => registry.update_scale(request, &body).await,
            _ => registry.update(request, &body).await,
        }
    };
    let outcome = call.within_write_limit(write).await?;
    call.show_outcome(outcome, &route.target, &asked).await
}
