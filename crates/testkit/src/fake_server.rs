//! `FakeServer`: a scripted HTTP/1.1 server over a real socket.
//!
//! A test queues the responses, in order; the server records the requests and their times. It can fail as a real server
//! rarely does: end a chunk in the middle, go silent, refuse connections, respond 410 as a status or as an event, send less
//! than it announced.
//!
//! ```no_run
//! # async fn example() {
//! use testkit::fake_server::{Answer, FakeServer, added, bookmark_end, pod};
//! let server = FakeServer::start().await;
//! server.answer(Answer::watch().line(added(&pod("a", 1))).line(bookmark_end(5)).hold());
//! // … point a client at server.url() …
//! server.wait_for_requests(1).await;
//! assert_eq!(server.requests()[0].query("resourceVersion"), Some(""));
//! # }
//! ```

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use machinery::object_meta::INITIAL_EVENTS_END;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, mpsc};
use tokio::task::{AbortHandle, JoinSet};

/// Time that a test waits for something that must happen. Long, so that a slow machine fails no test.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// A request as it arrived.
#[derive(Debug, Clone)]
pub struct Request {
    /// `GET`, …
    pub method: String,
    /// Without the query.
    pub path: String,
    /// The query, decoded, in order.
    pub params: Vec<(String, String)>,
    /// The headers, names in lower case.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: Vec<u8>,
    /// When it arrived.
    pub at: Instant,
    /// The remote address; no two open connections share one.
    pub peer: SocketAddr,
}

impl Request {
    /// The value of a query parameter.
    pub fn query(&self, name: &str) -> Option<&str> {
        self.params.iter().find(|(n, _)| n == name).map(|(_, v)| v.as_str())
    }

    /// The value of a header.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(n, _)| n == name).map(|(_, v)| v.as_str())
    }

    /// `list 0`, `stream `, `watch 5`: the kind of list-watch request and its version; `-` without a version.
    pub fn summary(&self) -> String {
        let kind = match (self.query("watch"), self.query("sendInitialEvents")) {
            (Some("true"), Some("true")) => "stream",
            (Some("true"), _) => "watch",
            _ => "list",
        };
        format!("{kind} {}", self.query("resourceVersion").unwrap_or("-"))
    }
}

enum Step {
    Line(String),
    Bytes(Vec<u8>),
    Wait(Duration),
    Live(mpsc::Receiver<String>),
    /// Keep the connection open and silent until the client closes it.
    Hold,
    /// Close the connection without ending the body.
    Cut,
}

/// The response to a request.
pub struct Answer {
    code: u16,
    headers: Vec<(String, String)>,
    /// A body of known length; a watch has chunks instead.
    body: Option<Vec<u8>>,
    steps: VecDeque<Step>,
}

impl Answer {
    /// A watch: 200 and an open body. Without `hold` or `cut` at the end, the body ends properly.
    pub fn watch() -> Self {
        Self { code: 200, headers: Vec::new(), body: None, steps: VecDeque::new() }
    }

    /// A JSON answer.
    pub fn json(code: u16, body: &Value) -> Self {
        Self { code, headers: Vec::new(), body: Some(body.to_string().into_bytes()), steps: VecDeque::new() }
    }

    /// A list of these objects.
    pub fn list(version: u64, items: Vec<Value>) -> Self {
        Self::list_page(version, items, None)
    }

    /// A page of a list.
    pub fn list_page(version: u64, items: Vec<Value>, continue_token: Option<&str>) -> Self {
        let metadata = json!({"resourceVersion": version.to_string(), "continue": continue_token.unwrap_or("")});
        Self::json(200, &json!({"kind": "PodList", "apiVersion": "v1", "metadata": metadata, "items": items}))
    }

    /// A failure with a Status body.
    pub fn status(code: u16, reason: &str) -> Self {
        Self::json(code, &status(code, reason, reason))
    }

    /// Adds a header.
    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Sends one line of a watch.
    pub fn line(mut self, event: Value) -> Self {
        self.steps.push_back(Step::Line(event.to_string()));
        self
    }

    /// Sends raw bytes as one chunk.
    pub fn bytes(mut self, bytes: impl Into<Vec<u8>>) -> Self {
        self.steps.push_back(Step::Bytes(bytes.into()));
        self
    }

    /// Waits before the next step.
    pub fn wait(mut self, duration: Duration) -> Self {
        self.steps.push_back(Step::Wait(duration));
        self
    }

    /// Sends the first half of an event, then closes the connection: a cut in the middle of a frame.
    pub fn cut_inside(self, event: &Value) -> Self {
        let text = event.to_string();
        let half = text.len() / 2;
        let bytes = text.as_bytes()[..half].to_vec();
        self.bytes(bytes).cut()
    }

    /// Closes the connection without ending the body.
    pub fn cut(mut self) -> Self {
        self.steps.push_back(Step::Cut);
        self
    }

    /// Keeps the connection open and silent.
    pub fn hold(mut self) -> Self {
        self.steps.push_back(Step::Hold);
        self
    }

    /// From here on sends the lines that the test writes; the body ends when the test drops the writer.
    pub fn live(mut self) -> (Self, LiveWriter) {
        let (sender, receiver) = mpsc::channel(1024);
        self.steps.push_back(Step::Live(receiver));
        (self, LiveWriter { sender })
    }
}

/// Writes into a running watch.
#[derive(Clone)]
pub struct LiveWriter {
    sender: mpsc::Sender<String>,
}

impl LiveWriter {
    /// Sends one event. Does nothing if the client has disconnected.
    pub async fn line(&self, event: Value) {
        let _ = self.sender.send(event.to_string()).await;
    }
}

/// The server. Stops when dropped.
pub struct FakeServer {
    address: SocketAddr,
    shared: Arc<Shared>,
    accepting: Mutex<Option<AbortHandle>>,
}

type Responder = Box<dyn FnMut(&Request) -> Answer + Send>;

#[derive(Default)]
struct Shared {
    answers: Mutex<VecDeque<Answer>>,
    /// Responds when no answer is queued.
    responder: Mutex<Option<Responder>>,
    requests: Mutex<Vec<Request>>,
    unscripted: Mutex<usize>,
    open: Mutex<usize>,
    changed: Notify,
}

impl FakeServer {
    /// Listens on a free port of the loopback interface.
    pub async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("loopback has a free port");
        let address = listener.local_addr().expect("a bound socket has an address");
        let server = Self { address, shared: Arc::default(), accepting: Mutex::new(None) };
        server.accept(listener);
        server
    }

    /// `http://127.0.0.1:port`.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Queues an answer. Requests take them in order; a request without one gets 500 and is counted.
    pub fn answer(&self, answer: Answer) {
        self.shared.answers.lock().push_back(answer);
    }

    /// Computes the answer to every request for which none is queued.
    pub fn answer_with(&self, responder: impl FnMut(&Request) -> Answer + Send + 'static) {
        *self.shared.responder.lock() = Some(Box::new(responder));
    }

    /// The requests so far.
    pub fn requests(&self) -> Vec<Request> {
        self.shared.requests.lock().clone()
    }

    /// The requests in short, see [`Request::summary`].
    pub fn summaries(&self) -> Vec<String> {
        self.requests().iter().map(Request::summary).collect()
    }

    /// Number of requests for which no answer was queued.
    pub fn unscripted(&self) -> usize {
        *self.shared.unscripted.lock()
    }

    /// Waits until `n` requests arrived.
    pub async fn wait_for_requests(&self, n: usize) {
        let what = format!("{n} requests");
        self.eventually(&what, || self.shared.requests.lock().len() >= n).await;
    }

    /// Waits until no connection is open.
    pub async fn all_closed(&self) {
        self.eventually("all connections closed", || *self.shared.open.lock() == 0).await;
    }

    async fn eventually(&self, what: &str, holds: impl Fn() -> bool) {
        let waiting = async {
            loop {
                let changed = self.shared.changed.notified();
                if holds() {
                    return;
                }
                changed.await;
            }
        };
        if tokio::time::timeout(PATIENCE, waiting).await.is_err() {
            panic!("timed out waiting for {what}; requests so far: {:?}", self.summaries());
        }
    }

    /// Stops listening: new connections are refused, open ones are closed.
    pub fn refuse(&self) {
        if let Some(accepting) = self.accepting.lock().take() {
            accepting.abort();
        }
    }

    /// Listens again on the same port.
    pub async fn listen_again(&self) {
        // The closed listener may take a moment to free the port.
        let deadline = Instant::now() + PATIENCE;
        loop {
            match TcpListener::bind(self.address).await {
                Ok(listener) => return self.accept(listener),
                Err(error) if Instant::now() >= deadline => panic!("cannot listen again: {error}"),
                Err(_) => tokio::time::sleep(Duration::from_millis(5)).await,
            }
        }
    }

    fn accept(&self, listener: TcpListener) {
        let shared = self.shared.clone();
        let task = tokio::spawn(async move {
            // Connections belong to this task: aborting it closes them.
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let shared = shared.clone();
                connections.spawn(async move {
                    let _open = Open::new(shared.clone());
                    let _ = serve(stream, &shared).await;
                });
            }
        });
        *self.accepting.lock() = Some(task.abort_handle());
    }
}

impl Drop for FakeServer {
    fn drop(&mut self) {
        self.refuse();
    }
}

/// Counts a connection while it lives.
struct Open(Arc<Shared>);

impl Open {
    fn new(shared: Arc<Shared>) -> Self {
        *shared.open.lock() += 1;
        Self(shared)
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        *self.0.open.lock() -= 1;
        self.0.changed.notify_waiters();
    }
}

async fn serve(mut stream: TcpStream, shared: &Shared) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let mut buffer = Vec::new();
    while let Some(request) = read_request(&mut stream, &mut buffer).await? {
        let scripted = shared.answers.lock().pop_front();
        let answer = scripted.or_else(|| shared.responder.lock().as_mut().map(|respond| respond(&request)));
        let answer = answer.unwrap_or_else(|| {
            *shared.unscripted.lock() += 1;
            Answer::status(500, "InternalError")
        });
        shared.requests.lock().push(request);
        shared.changed.notify_waiters();
        if !write_answer(&mut stream, answer).await? {
            return Ok(());
        }
    }
    Ok(())
}

async fn read_request(stream: &mut TcpStream, buffer: &mut Vec<u8>) -> std::io::Result<Option<Request>> {
    let head_end = loop {
        if let Some(at) = buffer.windows(4).position(|w| w == b"\r\n\r\n") {
            break at;
        }
        if stream.read_buf(buffer).await? == 0 {
            return Ok(None);
        }
    };
    let head = String::from_utf8_lossy(&buffer[..head_end]).into_owned();
    buffer.drain(..head_end + 4);
    let mut lines = head.split("\r\n");
    let mut first = lines.next().unwrap_or_default().split(' ');
    let method = first.next().unwrap_or_default().to_owned();
    let target = first.next().unwrap_or_default();
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let headers: Vec<(String, String)> = lines
        .filter_map(|line| line.split_once(':'))
        .map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()))
        .collect();
    let length = headers.iter().find(|(n, _)| n == "content-length").and_then(|(_, v)| v.parse().ok()).unwrap_or(0);
    while buffer.len() < length {
        if stream.read_buf(buffer).await? == 0 {
            return Ok(None);
        }
    }
    let body = buffer.drain(..length).collect();
    let params = form_urlencoded::parse(query.as_bytes()).into_owned().collect();
    Ok(Some(Request {
        method,
        path: path.to_owned(),
        params,
        headers,
        body,
        at: Instant::now(),
        peer: stream.peer_addr()?,
    }))
}

/// True if the connection can take another request.
async fn write_answer(stream: &mut TcpStream, answer: Answer) -> std::io::Result<bool> {
    let mut head = format!("HTTP/1.1 {} Scripted\r\ncontent-type: application/json\r\n", answer.code);
    for (name, value) in &answer.headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    match &answer.body {
        Some(body) => head.push_str(&format!("content-length: {}\r\n\r\n", body.len())),
        None => head.push_str("transfer-encoding: chunked\r\n\r\n"),
    }
    stream.write_all(head.as_bytes()).await?;
    if let Some(body) = answer.body {
        stream.write_all(&body).await?;
        return Ok(true);
    }
    for step in answer.steps {
        match step {
            Step::Line(text) => write_chunk(stream, format!("{text}\n").as_bytes()).await?,
            Step::Bytes(bytes) => write_chunk(stream, &bytes).await?,
            Step::Wait(duration) => {
                if !wait_or_gone(stream, tokio::time::sleep(duration)).await {
                    return Ok(false);
                }
            }
            Step::Live(mut lines) => loop {
                let mut next = None;
                if !wait_or_gone(stream, async { next = lines.recv().await }).await {
                    return Ok(false);
                }
                match next {
                    Some(text) => write_chunk(stream, format!("{text}\n").as_bytes()).await?,
                    None => break,
                }
            },
            Step::Hold => {
                wait_or_gone(stream, std::future::pending::<()>()).await;
                return Ok(false);
            }
            Step::Cut => return Ok(false),
        }
    }
    stream.write_all(b"0\r\n\r\n").await?;
    Ok(true)
}

async fn write_chunk(stream: &mut TcpStream, bytes: &[u8]) -> std::io::Result<()> {
    let mut chunk = format!("{:x}\r\n", bytes.len()).into_bytes();
    chunk.extend_from_slice(bytes);
    chunk.extend_from_slice(b"\r\n");
    stream.write_all(&chunk).await
}

/// Waits for `work`; false if the client closed the connection first.
async fn wait_or_gone(stream: &mut TcpStream, work: impl Future<Output = ()>) -> bool {
    let mut byte = [0u8; 1];
    tokio::select! {
        () = work => true,
        _ = stream.peek(&mut byte) => false,
    }
}

/// A Status object.
pub fn status(code: u16, reason: &str, message: &str) -> Value {
    json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": message, "reason": reason, "code": code})
}

/// A small pod in namespace `default`; its UID is `uid-<name>`.
pub fn pod(name: &str, version: u64) -> Value {
    pod_with_uid(name, version, &format!("uid-{name}"))
}

/// The same with another UID.
pub fn pod_with_uid(name: &str, version: u64, uid: &str) -> Value {
    json!({"kind": "Pod", "apiVersion": "v1",
        "metadata": {"name": name, "namespace": "default", "uid": uid, "resourceVersion": version.to_string()},
        "spec": {"nodeName": format!("node-of-{name}"), "containers": [{"name": "c", "image": "i"}]}})
}

/// An ADDED event.
pub fn added(object: &Value) -> Value {
    json!({"type": "ADDED", "object": object})
}

/// A MODIFIED event.
pub fn modified(object: &Value) -> Value {
    json!({"type": "MODIFIED", "object": object})
}

/// A DELETED event.
pub fn deleted(object: &Value) -> Value {
    json!({"type": "DELETED", "object": object})
}

/// A BOOKMARK event.
pub fn bookmark(version: u64) -> Value {
    json!({"type": "BOOKMARK", "object": {"kind": "Pod", "apiVersion": "v1", "metadata": {"resourceVersion": version.to_string()}}})
}

/// The BOOKMARK event that ends the initial state.
pub fn bookmark_end(version: u64) -> Value {
    let mut event = bookmark(version);
    event["object"]["metadata"]["annotations"] = json!({INITIAL_EVENTS_END: "true"});
    event
}

/// An ERROR event.
pub fn error_event(code: u16, reason: &str) -> Value {
    json!({"type": "ERROR", "object": status(code, reason, reason)})
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn talk(server: &FakeServer, request: &str) -> String {
        let mut stream = TcpStream::connect(server.address).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut text = Vec::new();
        stream.shutdown().await.unwrap();
        stream.read_to_end(&mut text).await.unwrap();
        String::from_utf8(text).unwrap()
    }

    #[tokio::test]
    async fn answers_are_sent_in_order_and_requests_are_recorded() {
        let server = FakeServer::start().await;
        server.answer(Answer::json(200, &json!({"n": 1})));
        let text = talk(&server, "GET /api/v1/pods?labelSelector=a%3Db+c&watch=true HTTP/1.1\r\nHost: x\r\n\r\n").await;
        assert!(text.ends_with("{\"n\":1}"), "{text}");
        let request = server.requests().remove(0);
        assert_eq!((request.path.as_str(), request.query("labelSelector")), ("/api/v1/pods", Some("a=b c")));
        let text = talk(&server, "GET / HTTP/1.1\r\n\r\n").await;
        assert!(text.starts_with("HTTP/1.1 500"));
        assert_eq!(server.unscripted(), 1);
    }

    #[tokio::test]
    async fn a_cut_body_has_no_end() {
        let server = FakeServer::start().await;
        server.answer(Answer::watch().line(bookmark(5)).cut_inside(&bookmark(6)));
        let text = talk(&server, "GET / HTTP/1.1\r\n\r\n").await;
        assert!(text.contains("\"5\"") && !text.ends_with("0\r\n\r\n"), "{text}");
        server.answer(Answer::watch().line(bookmark(5)));
        let text = talk(&server, "GET / HTTP/1.1\r\n\r\n").await;
        assert!(text.ends_with("0\r\n\r\n"), "{text}");
    }

    #[tokio::test]
    async fn it_can_refuse_and_come_back() {
        let server = FakeServer::start().await;
        server.refuse();
        server.all_closed().await;
        while TcpStream::connect(server.address).await.is_ok() {
            tokio::task::yield_now().await;
        }
        server.listen_again().await;
        assert!(TcpStream::connect(server.address).await.is_ok());
    }
}
