//! DELETE of one object.

use bytes::Bytes;
use machinery::media::MediaType;
use machinery::options::DeleteOptions;
use machinery::{Status, media};
use registry::WriteRequest;

use crate::request::handlers::Call;
use crate::request::reply::Reply;
use crate::request::routing::ResourceRoute;

pub(super) async fn answer(call: &Call<'_>, route: &ResourceRoute, body: Bytes) -> Result<Reply, Status> {
    let asked = call.negotiate(route)?;
    let options = options(call, &body)?;
    let context = call.context();
    let request = WriteRequest { target: &route.target, options: &options, ctx: &context };
    let outcome = call.within_write_limit(call.registry.delete(request)).await?;
    call.show_outcome(outcome, &route.target, &asked).await
}

/// Delete options of the body; of the query only without a body.
pub(super) fn options(call: &Call<'_>, bytes: &Bytes) -> Result<DeleteOptions, Status> {
    if bytes.is_empty() {
        return DeleteOptions::from_query(call.query);
    }
    let media = media::body_type(call.content_type())?;
    let value = match media {
        MediaType::Json => {
            let options = DeleteOptions::from_json(bytes)?;
            call.annotations.keep_delete_options(|| machinery::json::from_slice(bytes).ok());
            return Ok(options);
        }
        MediaType::Yaml => registry::unstored::yaml(bytes)?,
        MediaType::Protobuf => registry::unstored::protobuf_options(bytes)?,
    };
    let options = DeleteOptions::from_value(&value)?;
    call.annotations.keep_delete_options(|| Some(value));
    Ok(options)
}
