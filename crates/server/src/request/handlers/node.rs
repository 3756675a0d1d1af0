//! Subresources that the node of a pod serves: its log, and connections to its containers.

use http::{Extensions, header};
use machinery::Status;

use crate::request::handlers::Call;
use crate::request::reply::{self, Reply};
use crate::request::routing::ResourceRoute;
use crate::streams;
use crate::wire::body::ResponseBody;

pub(super) async fn answer(call: &Call<'_>, route: &ResourceRoute, extensions: Extensions) -> Result<Reply, Status> {
    let rest = rest_of_path(call.path, route.target.name.as_deref().unwrap_or_default());
    let Some(mut connection) = call.registry.connect(&route.target, call.query, rest, &call.context()).await? else {
        // A log of which nothing has been written yet.
        let mut reply = reply::with_body(204, reply::TEXT, ResponseBody::empty());
        reply.headers_mut().remove(header::CONTENT_TYPE);
        return Ok(reply);
    };
    let serving = call.server.containers.get().zip(connection.node.as_ref());
    let Some(containers) = serving.filter(|(containers, node)| containers.runs(node)).map(|(found, _)| found) else {
        return Err(connection.unserved);
    };
    let subresource = route.target.subresource.as_deref().unwrap_or_default();
    if subresource != "log" {
        streams::needs_upgrade(call.headers)?;
    }
    match connection.query.take() {
        None => streams::answer(call, containers, connection, subresource, extensions),
        Some(query) => {
            let call = Call { query: &query, ..call.clone() };
            streams::answer(&call, containers, connection, subresource, extensions)
        }
    }
}

/// What follows `/{name}/proxy` in a path.
fn rest_of_path<'a>(path: &'a str, name: &str) -> &'a str {
    path.split_once(&format!("/{name}/proxy")).map_or("", |(_, rest)| rest)
}
