//! The audit webhook: events are sent to a server as an EventList.

use std::future::Future;
use std::path::Path;
use std::pin::Pin;
use std::time::Duration;

use outbound::{Client, ClientLimits, Endpoint, Kubeconfig, Request};
use tokio::sync::watch;

use super::batch::Target;
use super::{Delivery, Sink};
use crate::audit::event::Line;
use std::sync::Arc;

const HEAD: &[u8] = br#"{"kind":"EventList","apiVersion":"audit.k8s.io/v1","metadata":{},"items":["#;
/// Attempts of one delivery, and the growth of the pause between them.
const ATTEMPTS: u32 = 5;
const BACKOFF_FACTOR: f64 = 1.5;
/// Time of one attempt.
const TIMEOUT: Duration = Duration::from_secs(30);
/// Longest pause between attempts while the server stops.
const HURRIED_PAUSE: Duration = Duration::from_millis(500);
/// Largest answer; its content is not used.
const ANSWER_BYTES_MAX: usize = 1 << 20;

/// Sends events to the server of a kubeconfig.
#[derive(Clone)]
pub struct Webhook(Arc<Inner>);

struct Inner {
    client: Client,
    endpoint: Endpoint,
    initial_backoff: Duration,
    /// Whether the server stops, so that pauses are short.
    hurry: watch::Sender<bool>,
}

impl Webhook {
    /// Reads the kubeconfig. An error is one sentence that names the file.
    pub fn read(path: &Path, initial_backoff: Duration) -> Result<Self, String> {
        let client = Client::new(ClientLimits { answer_bytes_max: ANSWER_BYTES_MAX, ..ClientLimits::default() });
        let config = Kubeconfig::read(path).map_err(|error| error.to_string())?;
        let endpoint = config.endpoint(&client).map_err(|error| format!("{}: {error}", path.display()))?;
        Ok(Webhook(Arc::new(Inner { client, endpoint, initial_backoff, hurry: watch::Sender::new(false) })))
    }

    /// Sends events; repeats failed attempts, whatever the failure.
    async fn post(&self, lines: &[Line]) -> Result<(), String> {
        let mut body = Vec::with_capacity(HEAD.len() + 2 + lines.iter().map(|line| line.0.len() + 1).sum::<usize>());
        body.extend_from_slice(HEAD);
        for (at, line) in lines.iter().enumerate() {
            if at > 0 {
                body.push(b',');
            }
            line.write_item(&mut body);
        }
        body.extend_from_slice(b"]}");
        let body = bytes::Bytes::from(body);
        let (mut pause, mut failure) = (self.0.initial_backoff, String::new());
        for attempt in 0..ATTEMPTS {
            if attempt > 0 {
                self.pause(pause).await;
                pause = pause.mul_f64(BACKOFF_FACTOR);
            }
            let request = Request::post_json(body.clone()).timeout(TIMEOUT);
            match self.0.client.send(&self.0.endpoint, request).await {
                Ok(answer) if answer.status.is_success() => return Ok(()),
                Ok(answer) => failure = format!("the answer was {}", answer.status),
                Err(error) => failure = error.to_string(),
            }
        }
        Err(failure)
    }

    async fn pause(&self, pause: Duration) {
        let mut hurry = self.0.hurry.subscribe();
        let hurried = async { hurry.wait_for(|hurry| *hurry).await.is_ok() };
        if let Ok(true) = tokio::time::timeout(pause, hurried).await {
            tokio::time::sleep(pause.min(HURRIED_PAUSE)).await;
        }
    }
}

impl Target for Webhook {
    fn name(&self) -> &'static str {
        "webhook"
    }

    fn deliver(&self, lines: Vec<Line>) -> Pin<Box<dyn Future<Output = Result<(), String>> + Send + '_>> {
        Box::pin(async move { self.post(&lines).await })
    }

    fn hurry(&self) {
        self.0.hurry.send_replace(true);
    }
}

/// In the blocking modes a request waits for its event.
impl Sink for Webhook {
    fn name(&self) -> &'static str {
        "webhook"
    }

    fn send(&self, line: &Line) -> Delivery {
        let (webhook, line) = (self.clone(), line.clone());
        Delivery::Pending(Box::pin(async move { webhook.post(&[line]).await }))
    }

    fn close(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        self.hurry();
        Box::pin(std::future::ready(()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use outbound::testing::{Reply, TestServer};
    use std::sync::atomic::{AtomicUsize, Ordering};

    async fn webhook(server: &TestServer) -> Webhook {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("kubeconfig");
        let text = format!(
            "clusters: [{{name: c, cluster: {{server: \"{}\"}}}}]\nusers: [{{name: u, user: {{token: sesame}}}}]\n\
             contexts: [{{name: x, context: {{cluster: c, user: u}}}}]\ncurrent-context: x\n",
            server.url("/audit")
        );
        std::fs::write(&file, text).unwrap();
        Webhook::read(&file, Duration::from_millis(1)).unwrap()
    }

    #[tokio::test]
    async fn aud_39_events_are_posted_as_a_list_and_failures_are_repeated() {
        let calls = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&calls);
        let server = TestServer::plain(move |_| match counted.fetch_add(1, Ordering::Relaxed) {
            0 => Reply::text("no").status(500),
            _ => Reply::text("yes"),
        })
        .await;
        let line = |n: u32| {
            Line(format!("{{\"kind\":\"Event\",\"apiVersion\":\"audit.k8s.io/v1\",\"level\":\"{n}\"}}\n").into())
        };
        webhook(&server).await.post(&[line(1), line(2)]).await.unwrap();
        assert_eq!(calls.load(Ordering::Relaxed), 2);
        let seen = server.requests().pop().unwrap();
        assert_eq!(seen.header("authorization"), "Bearer sesame");
        let expected = r#"{"kind":"EventList","apiVersion":"audit.k8s.io/v1","metadata":{},"items":[{"level":"1"},{"level":"2"}]}"#;
        assert_eq!(seen.body, expected);
    }

    #[tokio::test]
    async fn aud_39_a_server_that_always_fails_loses_the_events_after_five_attempts() {
        let server = TestServer::plain(|_| Reply::text("no").status(503)).await;
        let webhook = webhook(&server).await;
        let Delivery::Pending(delivery) = webhook.send(&Line("{}\n".into())) else { panic!("it must be waited for") };
        assert_eq!(delivery.await, Err("the answer was 503 Service Unavailable".to_owned()));
        assert_eq!(server.requests().len(), 5);
        assert!(Webhook::read(Path::new("/nonexistent/kubeconfig"), TIMEOUT).is_err());
    }
}
