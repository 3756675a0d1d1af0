//! Tokens that another server reviews: it is sent a TokenReview.

use std::collections::HashMap;
use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use access::identity::User;
use machinery::json::{Map, Value, json};
use outbound::{Client, Endpoint, Kubeconfig, Request};
use parking_lot::Mutex;
use sha2::{Digest as _, Sha256};
use tokio::time::Instant;

use super::{TokenUser, TokenVerdict};

/// Time for one call.
const TIMEOUT: Duration = Duration::from_secs(30);
/// Attempts to get an answer, and the wait after the first, which grows by half each time.
const ATTEMPTS: u32 = 5;
const RETRY: Duration = Duration::from_millis(500);
/// Answers that are kept; at the limit all are dropped.
const ANSWERS_MAX: usize = 4096;
/// How long an answer is kept unless a flag says otherwise.
pub const CACHE_TTL: Duration = Duration::from_secs(120);

/// Authenticates tokens by asking a server.
pub struct WebhookTokens {
    client: Client,
    endpoint: Endpoint,
    version: &'static str,
    ttl: Duration,
    /// Answers by the digest of token and audiences.
    answers: Mutex<HashMap<[u8; 32], (Instant, TokenVerdict)>>,
}

impl fmt::Debug for WebhookTokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WebhookTokens").field("url", &self.endpoint.url()).finish_non_exhaustive()
    }
}

impl WebhookTokens {
    /// Reads the kubeconfig of the server. `version` is `v1` or `v1beta1`. The error is one sentence that begins with the file.
    pub fn read(client: &Client, path: &Path, version: &str, ttl: Duration) -> Result<Self, String> {
        let version = match version {
            "v1" => "authentication.k8s.io/v1",
            "v1beta1" => "authentication.k8s.io/v1beta1",
            other => return Err(format!("{other:?} is not a version of TokenReview: v1 or v1beta1")),
        };
        let kubeconfig = Kubeconfig::read(path).map_err(|error| error.to_string())?;
        let endpoint = kubeconfig.endpoint(client).map_err(|error| format!("{}: {error}", path.display()))?;
        Ok(WebhookTokens { client: client.clone(), endpoint, version, ttl, answers: Mutex::default() })
    }

    /// The user of a token; none if the server does not know it.
    pub(crate) async fn user(&self, token: &str, audiences: &[String]) -> TokenVerdict {
        let mut digest = Sha256::new();
        for text in std::iter::once(token).chain(audiences.iter().map(String::as_str)) {
            digest.update((text.len() as u64).to_le_bytes());
            digest.update(text.as_bytes());
        }
        let key: [u8; 32] = digest.finalize().into();
        if let Some((at, answer)) = self.answers.lock().get(&key)
            && at.elapsed() < self.ttl
        {
            return answer.clone();
        }
        let status = match self.ask(token, audiences).await {
            Ok(status) => status,
            // A server that does not answer is asked again by the next request.
            Err(why) => return Some(Err(why)),
        };
        let answer = verdict(&status, audiences);
        let mut answers = self.answers.lock();
        if answers.len() >= ANSWERS_MAX {
            answers.clear();
        }
        answers.insert(key, (Instant::now(), answer.clone()));
        answer
    }

    /// Sends the review; returns its status.
    async fn ask(&self, token: &str, audiences: &[String]) -> Result<Value, String> {
        let mut spec = json!({"token": token});
        if !audiences.is_empty() {
            spec["audiences"] = json!(audiences);
        }
        let review = json!({
            "kind": "TokenReview", "apiVersion": self.version, "metadata": {}, "spec": spec, "status": {"user": {}},
        });
        let body = review.to_string();
        let mut wait = RETRY;
        for attempt in 1.. {
            let answer = self.client.send(&self.endpoint, Request::post_json(body.clone()).timeout(TIMEOUT)).await;
            let why = match answer {
                Ok(answer) if answer.status.is_success() => {
                    let answer: Value = serde_json::from_slice(&answer.body)
                        .map_err(|error| format!("the answer of the token webhook cannot be read: {error}"))?;
                    return Ok(answer["status"].clone());
                }
                Ok(answer) if answer.status.is_server_error() || answer.status.as_u16() == 429 => {
                    format!("the token webhook answered {}", answer.status)
                }
                Ok(answer) => return Err(format!("the token webhook answered {}", answer.status)),
                Err(error) => error.to_string(),
            };
            if attempt == ATTEMPTS {
                return Err(why);
            }
            tokio::time::sleep(wait).await;
            wait = wait * 3 / 2;
        }
        Err("the token webhook was not asked".to_owned())
    }
}

/// What an answer means for the wanted audiences.
fn verdict(status: &Value, audiences: &[String]) -> TokenVerdict {
    if status["authenticated"].as_bool() != Some(true) {
        return match status["error"].as_str().unwrap_or_default() {
            "" => None,
            why => Some(Err(why.to_owned())),
        };
    }
    let texts = |value: &Value| -> Vec<String> {
        value.as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
    };
    let stated = texts(&status["audiences"]);
    let common: Vec<String> = match (stated.is_empty(), audiences.is_empty()) {
        (_, true) => stated,
        // A server that does not know of audiences answers for this server.
        (true, false) => audiences.to_vec(),
        (false, false) => audiences.iter().filter(|one| stated.contains(one)).cloned().collect(),
    };
    if common.is_empty() && !audiences.is_empty() {
        return None;
    }
    let user = &status["user"];
    let text = |name: &str| user[name].as_str().unwrap_or_default().to_owned();
    let none = Map::new();
    let extra = user["extra"].as_object().unwrap_or(&none).iter().map(|(key, values)| (key.to_string(), texts(values)));
    let user =
        User { name: text("username"), uid: text("uid"), groups: texts(&user["groups"]), extra: extra.collect() };
    if user.name.is_empty() {
        return Some(Err("the token webhook named no user".to_owned()));
    }
    let found: TokenUser = (Arc::new(user.authenticated()), common);
    Some(Ok(found))
}

#[cfg(test)]
mod tests {
    use super::*;
    use outbound::testing::{Authority, Reply, TestServer};

    async fn webhook(
        script: impl Fn(&Value) -> Value + Send + Sync + 'static,
    ) -> (WebhookTokens, TestServer, tempfile::TempDir) {
        let authority = Authority::new();
        let server = TestServer::start(authority.leaf(&["localhost", "127.0.0.1"]), move |seen| {
            let review: Value = serde_json::from_str(&seen.body).unwrap();
            Reply::text(&json!({"kind": "TokenReview", "status": script(&review)}).to_string())
        })
        .await;
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("ca.crt"), &authority.pem).unwrap();
        let kubeconfig = format!(
            "clusters: [{{name: c, cluster: {{server: '{}', certificate-authority: ca.crt}}}}]\nusers: [{{name: u, user: {{}}}}]\n\
             contexts: [{{name: x, context: {{cluster: c, user: u}}}}]\ncurrent-context: x\n",
            server.url("/review")
        );
        let path = dir.path().join("kubeconfig");
        std::fs::write(&path, kubeconfig).unwrap();
        let tokens =
            WebhookTokens::read(&Client::new(outbound::ClientLimits::default()), &path, "v1", CACHE_TTL).unwrap();
        (tokens, server, dir)
    }

    #[tokio::test]
    async fn au_71_a_server_reviews_tokens() {
        let (tokens, server, _dir) = webhook(|review| {
            assert_eq!(review["apiVersion"], "authentication.k8s.io/v1");
            match review["spec"]["token"].as_str().unwrap() {
                "good" => json!({
                    "authenticated": true, "audiences": ["api", "x"],
                    "user": {"username": "zoe", "uid": "9", "groups": ["devs"], "extra": {"a": ["b"]}},
                }),
                "agnostic" => json!({"authenticated": true, "user": {"username": "zoe"}}),
                "bad" => json!({"authenticated": false, "error": "no such token"}),
                _ => json!({"authenticated": false}),
            }
        })
        .await;
        let api = ["api".to_owned()];
        let (user, audiences) = tokens.user("good", &api).await.unwrap().unwrap();
        assert_eq!((user.name.as_str(), user.uid.as_str()), ("zoe", "9"));
        assert_eq!(user.groups, ["devs", "system:authenticated"]);
        assert_eq!(user.extra["a"], ["b"]);
        assert_eq!(audiences, api);
        assert!(tokens.user("good", &["other".to_owned()]).await.is_none(), "its audiences are others");
        assert_eq!(tokens.user("agnostic", &api).await.unwrap().unwrap().1, api);
        assert_eq!(tokens.user("bad", &api).await.unwrap().unwrap_err(), "no such token");
        assert!(tokens.user("unknown", &api).await.is_none());
        let asked = server.requests().len();
        assert!(tokens.user("good", &api).await.unwrap().is_ok());
        assert_eq!(server.requests().len(), asked, "the answer is kept");
    }

    #[tokio::test]
    async fn au_71_a_file_that_cannot_be_used_is_named() {
        let client = Client::new(outbound::ClientLimits::default());
        let why = WebhookTokens::read(&client, Path::new("/nope/k"), "v1", CACHE_TTL).unwrap_err();
        assert!(why.contains("/nope/k"), "{why}");
        assert!(WebhookTokens::read(&client, Path::new("/nope/k"), "v2", CACHE_TTL).is_err());
    }
}
