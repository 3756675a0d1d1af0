//! Reviews of users, permissions and tokens: computed for each request, never stored.

mod permissions;

use machinery::Status;
use machinery::json::{Value, json};
use machinery::options::CreateOptions;
use registry::{Body, Outcome, View, WriteRequest};

use crate::request::authentication::Notes;
use crate::request::handlers::Call;
use crate::request::operation::Review;
use permissions::Subject;

/// Computes a review.
pub(super) async fn compute(
    call: &Call<'_>,
    review: Review,
    request: WriteRequest<'_, CreateOptions>,
    body: &Body,
) -> Result<Outcome, Status> {
    let mut object = call.registry.admit_unstored(request, body, |object| check(review, object)).await?;
    object["status"] = match review {
        Review::SelfSubject => {
            object["metadata"]["creationTimestamp"] =
                json!(call.server.clock.now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string());
            json!({"userInfo": call.user.to_value()})
        }
        Review::Token => token(call, &object).await,
        Review::SelfSubjectAccess => permissions::decide(call, call.user, &object["spec"]).await,
        Review::SubjectAccess | Review::LocalSubjectAccess => {
            permissions::decide(call, &permissions::subject(&object["spec"]), &object["spec"]).await
        }
        Review::SelfSubjectRules => {
            let status = permissions::rules(call, &object["spec"]);
            // The answer has nothing of what was sent.
            object["metadata"] = json!({});
            object["spec"] = json!({});
            status
        }
    };
    Ok(Outcome::new(201, View::Made { kind: None, value: object }))
}

/// Validates a review: after the plugins, policies and webhooks that change it, and before those that only refuse.
fn check(review: Review, object: &Value) -> Result<(), Status> {
    let is_empty = |member: &str| text(&object["spec"], member).is_empty();
    match review {
        Review::SelfSubject => Ok(()),
        Review::Token if is_empty("token") => {
            Err(Status::bad_request("token is required for TokenReview in authentication"))
        }
        Review::SelfSubjectRules if is_empty("namespace") => Err(Status::bad_request("no namespace on request")),
        Review::Token | Review::SelfSubjectRules => Ok(()),
        Review::SelfSubjectAccess => permissions::check(object, Subject::Myself),
        Review::SubjectAccess => permissions::check(object, Subject::Named),
        Review::LocalSubjectAccess => permissions::check(object, Subject::Local),
    }
}

fn text<'v>(value: &'v Value, name: &str) -> &'v str {
    value[name].as_str().unwrap_or_default()
}

fn texts(value: &Value) -> Vec<String> {
    value.as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
}

async fn token(call: &Call<'_>, object: &Value) -> Value {
    let token = text(&object["spec"], "token");
    let audiences = texts(&object["spec"]["audiences"]);
    let audiences = Some(audiences.as_slice()).filter(|audiences| !audiences.is_empty());
    let notes = Notes { warnings: call.warnings, annotations: call.annotations };
    match call.server.authenticator.token(token, audiences, call.server.clock.now(), notes).await {
        Ok((user, common)) => {
            let mut status = json!({"authenticated": true, "user": user.to_value()});
            if !common.is_empty() {
                status["audiences"] = json!(common);
            }
            status
        }
        Err(why) => json!({"user": {}, "error": why.joined()}),
    }
}
