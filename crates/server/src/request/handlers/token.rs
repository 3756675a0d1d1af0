//! POST to a service account's `token`: a token for it.

use machinery::Status;
use machinery::json::json;
use machinery::options::CreateOptions;
use registry::{Body, Context, Outcome, Target, View};

use crate::request::handlers::Call;

/// The answer, or none when the target is something else.
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
