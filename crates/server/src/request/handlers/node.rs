//! Subresources that the node of a pod serves: its log, and connections to its containers.

use http::header;
use machinery::Status;

use crate::request::handlers::Call;
use crate::request::reply::{self, Reply};
use crate::request::routing::ResourceRoute;
use crate::wire::body::ResponseBody;

pub(super) async fn answer(call: &Call<'_>, route: &ResourceRoute) -> Result<Reply, Status> {
    call.server.registry.connect(&route.target, call.query, &call.context()).await?;
    // A log of which nothing has been written yet.
    let mut reply = reply::with_body(204, reply::TEXT, ResponseBody::empty());
    reply.headers_mut().remove(header::CONTENT_TYPE);
    Ok(reply)
}
