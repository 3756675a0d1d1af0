//! GET of one object.

use machinery::Status;
use machinery::options::GetOptions;

use crate::request::handlers::Call;
use crate::request::operation::Operation;
use crate::request::reply::Reply;
use crate::request::routing::ResourceRoute;

pub(super) async fn answer(call: &Call<'_>, route: &ResourceRoute) -> Result<Reply, Status> {
    let asked = call.negotiate(route)?;
    let options = GetOptions::from_query(call.query)?;
    let registry = call.registry;
    let view = match (route.operation, call.as_of) {
        (Operation::GetScale, _) => registry.get_scale(&route.target, &options).await?,
        (_, Some(at)) => Box::pin(registry.get_at(&route.target, &options, at)).await?,
        _ => registry.get(&route.target, &options).await?,
    };
    call.show(200, view, &route.target, &asked).await
}
