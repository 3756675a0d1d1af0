//! Asks a server for each request, and keeps its answers for a while.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use access::authorizer::{Attributes, Authorizer, Decision, RuleList, Verdict, What};
use access::identity::User;
use http::StatusCode;
use lru::LruCache;
use machinery::json::{Text, Value};
use outbound::{Client, Endpoint, ErrorKind, Kubeconfig, Request};
use parking_lot::Mutex;
use tokio::time::Instant;

use super::modes::{ReviewVersion, WebhookConfig};
use super::review;

/// Answers that are kept.
const ANSWERS_MAX: NonZeroUsize = NonZeroUsize::new(8192).unwrap();
/// Bytes of a request's attributes from which on its answer is not kept: a client chooses them.
const KEPT_ATTRIBUTE_BYTES_MAX: usize = 10_000;
/// Attempts to get an answer, and the wait after the first, which grows by half each time.
const ATTEMPTS: u32 = 5;
const RETRY: Duration = Duration::from_millis(500);

/// A condition on a request, compiled from an expression.
pub trait Condition: Send + Sync + 'static {
    /// Evaluates the condition for the spec of a review.
    fn matches(&self, spec: &Value) -> Result<bool, String>;
}

/// Compiles the expressions of match conditions. Given by the program, which knows the language.
pub type CompileCondition = Arc<dyn Fn(&str) -> Result<Box<dyn Condition>, String> + Send + Sync>;

/// An authorizer that asks a server.
pub struct WebhookAuthorizer {
    client: Client,
    endpoint: Endpoint,
    version: ReviewVersion,
    timeout: Duration,
    allowed_ttl: Duration,
    refused_ttl: Duration,
    deny_on_failure: bool,
    conditions: Vec<(String, Box<dyn Condition>)>,
    answers: Mutex<LruCache<String, (Instant, Decision)>>,
}

impl WebhookAuthorizer {
    /// Reads the kubeconfig and compiles the conditions. The error names the file or the expression.
    pub fn new(client: &Client, config: &WebhookConfig, compile: &CompileCondition) -> Result<Self, String> {
        let path = config.kubeconfig.display();
        let kubeconfig = Kubeconfig::read(&config.kubeconfig).map_err(|error| error.to_string())?;
        let endpoint = kubeconfig.endpoint(client).map_err(|error| format!("{path}: {error}"))?;
        let mut conditions = Vec::with_capacity(config.conditions.len());
        for expression in &config.conditions {
            let condition =
                compile(expression).map_err(|why| format!("the condition {expression:?} is wrong: {why}"))?;
            conditions.push((expression.clone(), condition));
        }
        Ok(WebhookAuthorizer {
            client: client.clone(),
            endpoint,
            version: config.version,
            timeout: config.timeout,
            allowed_ttl: config.allowed_ttl,
            refused_ttl: config.refused_ttl,
            deny_on_failure: config.deny_on_failure,
            conditions,
            answers: Mutex::new(LruCache::new(ANSWERS_MAX)),
        })
    }

    /// Whether the webhook is asked. A condition that is false decides, also if another one failed.
    fn is_asked(&self, spec: &Value) -> Result<bool, String> {
        let mut errors = Vec::new();
        for (expression, condition) in &self.conditions {
            match condition.matches(spec) {
                Ok(true) => {}
                Ok(false) => return Ok(false),
                Err(why) => {
                    errors.push(format!("cel evaluation error: expression '{expression}' resulted in error: {why}"));
                }
            }
        }
        match errors.as_slice() {
            [] => Ok(true),
            [one] => Err(one.clone()),
            several => Err(format!("[{}]", several.join(", "))),
        }
    }

    fn failed(&self, error: impl Into<Text>) -> Decision {
        Decision { denied: self.deny_on_failure, ..Decision::failed(error) }
    }

    fn kept(&self, key: &str) -> Option<Decision> {
        let mut answers = self.answers.lock();
        match answers.get(key) {
            Some((until, decision)) if Instant::now() < *until => Some(decision.clone()),
            Some(_) => {
                answers.pop(key);
                None
            }
            None => None,
        }
    }

    async fn ask(&self, spec: &Value, key: String, keep: bool) -> Decision {
        let review = review::review(self.version, spec).to_string();
        let mut wait = RETRY;
        let mut attempt = 1;
        let status = loop {
            match self.send(review.clone()).await {
                Ok(status) => break status,
                Err(failure) if failure.again && attempt < ATTEMPTS => {
                    attempt += 1;
                    tokio::time::sleep(wait).await;
                    wait = wait.mul_f64(1.5);
                }
                Err(failure) => {
                    tracing::warn!(url = self.endpoint.url(), why = failure.why, "authorization webhook failed");
                    return self.failed(failure.why);
                }
            }
        };
        let decision = decision(&status);
        let ttl = if decision.allowed { self.allowed_ttl } else { self.refused_ttl };
        if keep && !ttl.is_zero() {
            self.answers.lock().put(key, (Instant::now() + ttl, decision.clone()));
        }
        decision
    }

    /// Sends a review once; returns the status of the answer.
    async fn send(&self, review: String) -> Result<Value, Failure> {
        let request = Request::post_json(review).timeout(self.timeout);
        let answer = self.client.send(&self.endpoint, request).await;
        let answer =
            answer.map_err(|error| Failure { again: error.kind() == ErrorKind::Closed, why: error.to_string() })?;
        if !answer.status.is_success() {
            let again = matches!(
                answer.status,
                StatusCode::INTERNAL_SERVER_ERROR | StatusCode::TOO_MANY_REQUESTS | StatusCode::GATEWAY_TIMEOUT
            );
            let why = format!("authorization webhook answered with {}", answer.status);
            return Err(Failure { again, why });
        }
        let unreadable = |why: String| Failure { again: false, why: format!("authorization webhook answer: {why}") };
        let value: Value = serde_json::from_slice(&answer.body).map_err(|error| unreadable(error.to_string()))?;
        if value["kind"] != "SubjectAccessReview" {
            return Err(unreadable("not a SubjectAccessReview".to_owned()));
        }
        Ok(value["status"].clone())
    }
}

/// A call without an answer.
struct Failure {
    again: bool,
    why: String,
}

fn decision(status: &Value) -> Decision {
    let is = |member: &str| status[member].as_bool().unwrap_or_default();
    let reason = Text::new(status["reason"].as_str().unwrap_or_default());
    match (is("allowed"), is("denied")) {
        (true, true) => Decision {
            error: "webhook subject access review returned both allow and deny response".into(),
            ..Decision::deny(reason)
        },
        (false, true) => Decision::deny(reason),
        (true, false) => Decision::allow(reason),
        (false, false) => Decision::no_opinion_because(reason),
    }
}

fn attribute_bytes(attributes: &Attributes<'_>) -> usize {
    let what = match &attributes.what {
        What::Path(path) => path.len(),
        What::Resource(about) => {
            [about.group, about.version, about.resource, about.subresource, about.namespace, about.name]
                .iter()
                .map(|text| text.len())
                .sum()
        }
    };
    what + attributes.verb.len()
}

impl Authorizer for WebhookAuthorizer {
    fn authorize<'a>(&'a self, attributes: &'a Attributes<'a>) -> Verdict<'a> {
        let spec = review::spec(attributes);
        match self.is_asked(&spec) {
            Ok(true) => {}
            Ok(false) => return Verdict::Now(Decision::no_opinion()),
            Err(error) => return Verdict::Now(self.failed(error)),
        }
        let key = spec.to_string();
        if let Some(decision) = self.kept(&key) {
            return Verdict::Now(decision);
        }
        // A long selector makes a long key.
        let keep = attribute_bytes(attributes) < KEPT_ATTRIBUTE_BYTES_MAX && key.len() < 2 * KEPT_ATTRIBUTE_BYTES_MAX;
        Verdict::Later(Box::pin(async move { self.ask(&spec, key, keep).await }))
    }

    fn rules_for(&self, _: &User, _: &str) -> RuleList {
        RuleList::unsupported("webhook")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn az_8_allowed_denied_or_neither() {
        let of = |text: &str| decision(&serde_json::from_str(text).unwrap());
        assert_eq!(of(r#"{"allowed":true,"reason":"r"}"#), Decision::allow("r"));
        assert_eq!(of(r#"{"allowed":false,"denied":true,"reason":"r"}"#), Decision::deny("r"));
        assert_eq!(of(r#"{"allowed":false,"reason":"r"}"#), Decision::no_opinion_because("r"));
        assert_eq!(of("null"), Decision::no_opinion());
        let both = of(r#"{"allowed":true,"denied":true}"#);
        assert!(both.denied && !both.allowed && !both.error.is_empty());
    }
}
