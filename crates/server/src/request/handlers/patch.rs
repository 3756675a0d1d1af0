//! PATCH of one object, with one of the four patch types.

use bytes::Bytes;
use machinery::Status;
use machinery::media::{self, PatchType};
use machinery::options::PatchOptions;
use registry::{PatchBody, WriteRequest};

use crate::request::handlers::Call;
use crate::request::operation::Operation;
use crate::request::reply::Reply;
use crate::request::routing::ResourceRoute;

pub(super) async fn answer(call: &Call<'_>, route: &ResourceRoute, body: Bytes) -> Result<Reply, Status> {
    let kind = media::patch_type(call.content_type(), route.target.kind.custom)?;
    let asked = call.negotiate(route)?;
    let body = PatchBody { bytes: body, kind };
    let options = PatchOptions::from_query(call.query, kind == PatchType::Apply)?;
    call.annotations.keep_body(|| match kind {
        PatchType::Apply => registry::unstored::yaml(&body.bytes).ok(),
        PatchType::Json | PatchType::Merge | PatchType::Strategic => machinery::json::from_slice(&body.bytes).ok(),
    });
    let request = WriteRequest { target: &route.target, options: &options, ctx: &call.context() };
    let registry = call.registry;
    let write = async {
        match route.operation {
            Operation::PatchScale => registry.patch_scale(request, &body).await,
            _ => registry.patch(request, &body).await,
        }
    };
    let outcome = call.within_write_limit(write).await?;
    call.show_outcome(outcome, &route.target, &asked).await
}
