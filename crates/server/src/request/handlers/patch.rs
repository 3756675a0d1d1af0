//! PATCH of one object, with one of the four patch types.

use machinery::Status;
use machinery::media::{self, PatchType};
use machinery::options::PatchOptions;
use registry::PatchBody;

use crate::request::handlers::Call;
use crate::request::reply::Reply;
use crate::request::routing::ResourceRoute;
use crate::wire::body::RequestBody;

pub(super) async fn answer(call: &Call<'_>, route: &ResourceRoute, body: RequestBody) -> Result<Reply, Status> {
    let kind = media::patch_type(call.content_type(), route.target.kind.custom)?;
    let asked = call.negotiate(route)?;
    let body = PatchBody { bytes: call.read(body).await?, kind };
    let options = PatchOptions::from_query(call.query, kind == PatchType::Apply)?;
    let context = call.context();
    let write = call.server.registry.patch(&route.target, body, &options, &context);
    let outcome = call.within_write_limit(write).await?;
    call.show_outcome(&outcome, &route.target, &asked)
}
