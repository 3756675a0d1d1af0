//! POST to the `token` subresource of a service account: issues a token.

use machinery::Status;
use machinery::json::json;
use machinery::options::CreateOptions;
use registry::{Body, Outcome, View, WriteRequest};

use crate::request::handlers::Call;

pub(super) async fn issue(
    call: &Call<'_>,
    request: WriteRequest<'_, CreateOptions>,
    body: &Body,
) -> Result<Outcome, Status> {
    let Some(tokens) = &call.server.authenticator.accounts else { return Err(Status::router_method_not_allowed()) };
    let grant = call.registry.request_token(request, body, tokens.terms()).await?;
    let until = jiff::Timestamp::from_second(grant.expires).map_err(Status::internal)?;
    let mut value = grant.request;
    value["status"] = json!({"token": tokens.sign(grant.claims)?, "expirationTimestamp": until.to_string()});
    Ok(Outcome::new(201, View::Made { kind: None, value }))
}
