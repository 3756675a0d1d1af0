//! GET of a collection.

use machinery::Status;
use machinery::options::ListOptions;

use crate::request::handlers::Call;
use crate::request::reply::Reply;
use crate::request::routing::ResourceRoute;

pub(super) async fn answer(call: &Call<'_>, route: &ResourceRoute) -> Result<Reply, Status> {
    let asked = call.negotiate(route)?;
    let options = ListOptions::from_query(call.query)?;
    let list = call.server.registry.list(&route.target, &options).await?;
    call.show_list(list, &asked).await
}
