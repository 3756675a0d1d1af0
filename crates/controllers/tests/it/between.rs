//! A client between controllers and their server: it records every request, and can refuse it, delay it, or
//! hold back the events of a watch. Only here can a test see what a controller does not do, and when.

use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use controllers::{Clients, Settings};
use futures::FutureExt as _;
use futures::future::BoxFuture;
use http::{Request, Response};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, StreamBody};
use kube::Client;
use kube::client::Body;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::{CancellationToken, DropGuard};

/// One request, as it was sent.
#[derive(Debug, Clone)]
pub(crate) struct Asked {
    pub(crate) method: String,
    pub(crate) path: String,
    pub(crate) query: String,
    /// Null where there was no body.
    pub(crate) body: Value,
    pub(crate) at: Instant,
    /// None while it is under way.
    pub(crate) answered: Option<Instant>,
}

impl Asked {
    /// `POST /api/v1/namespaces/default/pods`
    pub(crate) fn line(&self) -> String {
        format!("{} {}", self.method, self.path)
    }

    pub(crate) fn is_watch(&self) -> bool {
        self.query.contains("watch=")
    }
}

/// The treatment of a request.
pub(crate) enum Turn {
    Pass,
    /// Answered with a Status of this code and never sent on.
    Refuse(u16),
    /// Sent on after a while.
    Late(Duration),
    /// Forwarded; the response is held until this returns true.
    Held(watch::Receiver<bool>),
}

type Rule = dyn Fn(&Asked) -> Turn + Send + Sync;
type Answer = Response<UnsyncBoxBody<Bytes, kube::Error>>;

/// Controllers that are given it speak to the server through it.
#[derive(Clone)]
pub(crate) struct Between {
    client: Client,
    asked: Arc<Mutex<Vec<Asked>>>,
    rule: Arc<Rule>,
}

impl Between {
    pub(crate) fn new(client: Client, rule: impl Fn(&Asked) -> Turn + Send + Sync + 'static) -> Self {
        Self { client, asked: Arc::default(), rule: Arc::new(rule) }
    }

    /// Runs controllers behind it until what is returned is dropped.
    pub(crate) fn run(&self, settings: Settings) -> DropGuard {
        let stop = CancellationToken::new();
        let clients = Clients::from(Client::new(self.clone(), "default"));
        tokio::spawn(controllers::manager::run(clients, settings, stop.clone()));
        stop.drop_guard()
    }

    /// All requests so far, in order.
    pub(crate) fn asked(&self) -> Vec<Asked> {
        self.asked.lock().clone()
    }

    /// Those whose line begins like this.
    pub(crate) fn asked_like(&self, line: &str) -> Vec<Asked> {
        self.asked().into_iter().filter(|asked| asked.line().starts_with(line)).collect()
    }

    async fn pass(self, request: Request<Body>) -> Result<Answer, kube::Error> {
        let (head, body) = request.into_parts();
        let body = body.collect().await?.to_bytes();
        let asked = Asked {
            method: head.method.to_string(),
            path: head.uri.path().to_owned(),
            query: head.uri.query().unwrap_or_default().to_owned(),
            body: serde_json::from_slice(&body).unwrap_or_default(),
            at: Instant::now(),
            answered: None,
        };
        let turn = (self.rule)(&asked);
        let place = {
            let mut all = self.asked.lock();
            all.push(asked);
            all.len() - 1
        };
        let mut gate = None;
        match turn {
            Turn::Pass => {}
            Turn::Refuse(code) => {
                self.asked.lock()[place].answered = Some(Instant::now());
                return Ok(refusal(code));
            }
            Turn::Late(wait) => tokio::time::sleep(wait).await,
            Turn::Held(until) => gate = Some(until),
        }
        let answer = self.client.send(Request::from_parts(head, Body::from(body))).await;
        self.asked.lock()[place].answered = Some(Instant::now());
        Ok(answer?.map(|body| held(body, gate)))
    }
}

fn refusal(code: u16) -> Answer {
    let status = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": code,
        "reason": "InternalError", "message": "refused by the test"});
    let body = Full::new(Bytes::from(status.to_string())).map_err(|never| match never {});
    let answer = Response::builder().status(code).header("content-type", "application/json");
    answer.body(body.boxed_unsync()).expect("an answer")
}

fn held(body: Body, gate: Option<watch::Receiver<bool>>) -> UnsyncBoxBody<Bytes, kube::Error> {
    let Some(gate) = gate else { return body.boxed_unsync() };
    let frames = futures::stream::unfold((body, gate), |(mut body, mut gate)| async move {
        let frame = body.frame().await?;
        // The test has ended when the sender is dropped.
        gate.wait_for(|open| *open).await.ok()?;
        Some((frame, (body, gate)))
    });
    StreamBody::new(frames).boxed_unsync()
}

impl tower_service::Service<Request<Body>> for Between {
    type Response = Answer;
    type Error = kube::Error;
    type Future = BoxFuture<'static, Result<Answer, kube::Error>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), kube::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        self.clone().pass(request).boxed()
    }
}
