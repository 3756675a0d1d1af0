//! POST to the `token` subresource of a service account: issues a token.

use machinery::Status;
use machinery::json::json;
use machinery::options::CreateOptions;
use registry::{Body, Context, Outcome, Target, View};

use crate::request::handlers::Call;

/// Issues a token; none when the target is another resource.
pub(super) async fn answer(
    call: &Call<'_>,
    target: &Target,
    body: &Body,
    options: &CreateOptions,
    context: &Context,
) -> Result<Option<Outcome>, Status> {
    let asked = target.kind.collection == "core/serviceaccounts" && target.subresource.as_deref() == Some("token");
    let Some(tokens) = call.server.authenticator.accounts.as_ref().filter(|_| asked) else { return Ok(None) };
    let grant = call.server.registry.token_request(target, body, options, context, tokens.audiences()).await?;
    let until = jiff::Timestamp::from_second(grant.expires).map_err(Status::internal)?;
    let mut value = grant.request;
    value["status"] = json!({"token": tokens.sign(grant.claims)?, "expirationTimestamp": until.to_string()});
    Ok(Some(Outcome::new(201, View::Made { kind: None, value })))
}
