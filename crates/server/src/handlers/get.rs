//! GET of one object.

use machinery::Status;
use machinery::options::GetOptions;
use registry::View;
use serde_json::Value;

use crate::body::ResponseBody;
use crate::handlers::Call;
use crate::reply::{self, Reply};
use crate::routing::ResourceRoute;

pub(super) async fn answer(call: &Call<'_>, route: &ResourceRoute) -> Result<Reply, Status> {
    let asked = call.negotiate(route)?;
    let options = GetOptions::from_query(call.query)?;
    let view = call.server.registry.get(&route.target, &options).await?;
    if let View::Made { value: Value::Null, .. } = view {
        // A log of which nothing has been written yet.
        return Ok(reply::with_body(204, reply::TEXT, ResponseBody::empty()));
    }
    call.show(200, &view, &route.target, &asked)
}
