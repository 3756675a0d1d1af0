//! The members of one etcd cluster: connections, login, choice of a member, failover.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use futures::FutureExt;
use futures::future::{BoxFuture, Shared};
use parking_lot::{Mutex, RwLock};
use tokio::sync::{Semaphore, watch};
use tokio::time::{Instant, timeout_at};
use tonic::metadata::{Ascii, MetadataValue};
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};
use tonic_prost::ProstCodec;

use super::fault::{self, Fault};
use super::messages::{
    AuthenticateRequest, AuthenticateResponse, CompactionRequest, CompactionResponse, RangeRequest, RangeResponse,
    ResponseHeader, StatusRequest, StatusResponse, TxnRequest, TxnResponse, path,
};
use super::options::{EtcdCredentials, EtcdOptions, EtcdTls};
use crate::error::OpenError;

/// etcd closes connections that are pinged more often than every five seconds.
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(8);
const KEEP_ALIVE_TIMEOUT: Duration = Duration::from_secs(4);

/// Flow-control windows, large enough for a page of a list without a round trip in between.
const STREAM_WINDOW_BYTES: u32 = 4 << 20;
const CONNECTION_WINDOW_BYTES: u32 = 16 << 20;

/// The first pause after every member has failed; it doubles up to [`PAUSE_MAX`].
const PAUSE_MIN: Duration = Duration::from_millis(20);
const PAUSE_MAX: Duration = Duration::from_millis(500);

/// The effect of executing a call twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Effect {
    /// None: it is retried after any transient fault.
    None,
    /// A change: it is retried only if it certainly had no effect.
    Change,
}

/// An open connection to a member of the right cluster.
#[derive(Clone)]
pub(super) struct Connection {
    pub(super) channel: Channel,
    /// Version of the member, such as `3.5.1`. Empty if the member does not reveal it.
    pub(super) version: String,
}

type Connecting = Shared<BoxFuture<'static, Result<Connection, Fault>>>;

/// One address, and the connection to it that all calls share.
struct Member {
    url: String,
    endpoint: Endpoint,
    /// All calls that need the connection wait for the same attempt.
    connection: Mutex<Option<Connecting>>,
}

/// A cluster, by its configured members.
pub(super) struct Cluster {
    members: Vec<Member>,
    /// The member to call first. A failure moves it to the next.
    preferred: AtomicUsize,
    credentials: Option<EtcdCredentials>,
    token: RwLock<Option<MetadataValue<Ascii>>>,
    /// One login at a time: etcd spends a good part of a second on a password.
    login: Semaphore,
    /// Zero until the first connection. Endpoints of two clusters, by mistake, would mix two logs.
    cluster_id: Arc<AtomicU64>,
    request_timeout: Duration,
    connect_timeout: Duration,
    closed: watch::Sender<bool>,
}

impl Cluster {
    pub(super) fn new(options: &EtcdOptions) -> Result<Arc<Self>, OpenError> {
        let members = options
            .urls()?
            .into_iter()
            .map(|url| {
                let endpoint = endpoint(&url, options)
                    .map_err(|reason| OpenError::Inaccessible { path: url.clone(), reason: fault::chain(&reason) })?;
                Ok(Member { url, endpoint, connection: Mutex::new(None) })
            })
            .collect::<Result<Vec<_>, OpenError>>()?;
        Ok(Arc::new(Cluster {
            members,
            preferred: AtomicUsize::new(0),
            credentials: options.credentials.clone(),
            token: RwLock::new(None),
            login: Semaphore::new(1),
            cluster_id: Arc::default(),
            request_timeout: options.request_timeout,
            connect_timeout: options.connect_timeout,
            closed: watch::Sender::new(false),
        }))
    }

    pub(super) fn urls(&self) -> String {
        self.members.iter().map(|member| member.url.as_str()).collect::<Vec<_>>().join(", ")
    }

    pub(super) fn url(&self, member: usize) -> &str {
        &self.members[member].url
    }

    pub(super) fn request_timeout(&self) -> Duration {
        self.request_timeout
    }

    pub(super) async fn range(&self, request: RangeRequest) -> Result<RangeResponse, Fault> {
        self.call(path::RANGE, request, Effect::None).await
    }

    pub(super) async fn txn(&self, request: TxnRequest) -> Result<TxnResponse, Fault> {
        self.call(path::TXN, request, Effect::Change).await
    }

    pub(super) async fn compact(&self, revision: i64) -> Result<(), Fault> {
        // Repeating a compaction is harmless; etcd answers "compacted".
        let done: Result<CompactionResponse, Fault> =
            self.call(path::COMPACT, CompactionRequest { revision }, Effect::None).await;
        match done {
            Ok(_) | Err(Fault::Compacted) => Ok(()),
            Err(fault) => Err(fault),
        }
    }

    pub(super) async fn status(&self) -> Result<StatusResponse, Fault> {
        self.call(path::STATUS, StatusRequest {}, Effect::None).await
    }

    /// Calls the preferred member, and others as long as that is safe and within the time limit.
    async fn call<Q, A>(&self, path: &'static str, request: Q, effect: Effect) -> Result<A, Fault>
    where
        Q: prost::Message + Clone + Send + Sync + 'static,
        A: prost::Message + Default + Send + Sync + 'static,
    {
        let deadline = Instant::now() + self.request_timeout;
        let mut pause = PAUSE_MIN;
        let mut logins = 0;
        for attempt in 1.. {
            self.check_open()?;
            let member = self.preferred();
            let used = self.token().await?;
            // A member that hangs must not use up the time of a call that another one can answer.
            let attempt_deadline = match effect {
                Effect::None if self.members.len() > 1 => deadline.min(Instant::now() + self.request_timeout / 2),
                _ => deadline,
            };
            let fault = match self.attempt(member, path, request.clone(), used.clone(), attempt_deadline).await {
                Ok(answer) => return Ok(answer),
                Err(fault) => fault,
            };
            match &fault {
                Fault::Token(_) if self.credentials.is_some() && logins < 2 => {
                    logins += 1;
                    self.forget_token(used.as_ref());
                    continue;
                }
                transient if transient.is_transient() => self.mark_failed(member),
                _ => return Err(fault),
            }
            let again = matches!(fault, Fault::Unsent(_)) || effect == Effect::None;
            if !again || Instant::now() + pause >= deadline {
                return Err(fault);
            }
            if attempt % self.members.len() == 0 {
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(PAUSE_MAX);
            }
        }
        unreachable!("the loop above ends only by returning")
    }

    /// Sends one call to one member.
    async fn attempt<Q, A>(
        &self,
        member: usize,
        path: &'static str,
        request: Q,
        token: Option<MetadataValue<Ascii>>,
        deadline: Instant,
    ) -> Result<A, Fault>
    where
        Q: prost::Message + Send + Sync + 'static,
        A: prost::Message + Default + Send + Sync + 'static,
    {
        let url = self.url(member);
        let connection = timeout_at(deadline, self.connection(member))
            .await
            .unwrap_or_else(|_| Err(Fault::Unsent(format!("{url}: no connection in time"))))?;
        let call = unary(url, connection.channel, path, with_metadata(request, token));
        let waited = deadline.saturating_duration_since(Instant::now());
        timeout_at(deadline, call)
            .await
            .unwrap_or_else(|_| Err(Fault::Lost(format!("{url}: no answer within {waited:.1?}"))))
    }

    /// The shared connection to a member, opened if there is none.
    pub(super) async fn connection(&self, member: usize) -> Result<Connection, Fault> {
        let slot = &self.members[member].connection;
        let connecting = slot.lock().get_or_insert_with(|| self.dial(member).boxed().shared()).clone();
        // Drops a failed attempt, so that the next caller makes a new one.
        connecting.await.inspect_err(|_| drop(slot.lock().take()))
    }

    /// Opens a separate connection: a watch that falls behind must not fill the flow-control window that calls need, and in
    /// etcd before 3.5.8 large reads starve watches on the same connection.
    pub(super) fn dial(&self, member: usize) -> impl Future<Output = Result<Connection, Fault>> + Send + use<> {
        let Member { url, endpoint, .. } = &self.members[member];
        let (url, endpoint, time_limit) = (url.clone(), endpoint.clone(), self.connect_timeout);
        let cluster_id = self.cluster_id.clone();
        let dialling = async move {
            let channel = endpoint.connect().await;
            let channel = channel.map_err(|error| Fault::Unsent(format!("{url}: {}", fault::chain(&error))))?;
            // Before any call: verifies that this is the cluster of the other endpoints.
            let request = tonic::Request::new(StatusRequest {});
            match unary::<_, StatusResponse>(&url, channel.clone(), path::STATUS, request).await {
                Ok(status) => {
                    check_cluster(&url, &cluster_id, status.header.as_ref())?;
                    Ok(Connection { channel, version: status.version })
                }
                Err(fault) if fault.is_transient() => Err(Fault::Unsent(fault.to_string())),
                // Status may require a login. Then the cluster is not verified.
                Err(_) => Ok(Connection { channel, version: String::new() }),
            }
        };
        let url = self.members[member].url.clone();
        async move {
            tokio::time::timeout(time_limit, dialling)
                .await
                .unwrap_or_else(|_| Err(Fault::Unsent(format!("{url}: no connection within {time_limit:.1?}"))))
        }
    }

    pub(super) fn preferred(&self) -> usize {
        self.preferred.load(Ordering::Relaxed) % self.members.len()
    }

    /// Prefers the next member from now on, and drops the connection to this one.
    pub(super) fn mark_failed(&self, member: usize) {
        self.members[member].connection.lock().take();
        let next = (member + 1) % self.members.len();
        // Of several callers that failed on the same member, only the first changes the preference.
        let _ = self.preferred.compare_exchange(member, next, Ordering::Relaxed, Ordering::Relaxed);
    }

    pub(super) fn after(&self, member: usize) -> usize {
        (member + 1) % self.members.len()
    }

    /// The token for calls, after a login if there is none yet.
    pub(super) async fn token(&self) -> Result<Option<MetadataValue<Ascii>>, Fault> {
        let Some(credentials) = &self.credentials else { return Ok(None) };
        if let Some(token) = self.token.read().clone() {
            return Ok(Some(token));
        }
        let _turn = self.login.acquire().await.map_err(|_| closed())?;
        if let Some(token) = self.token.read().clone() {
            return Ok(Some(token));
        }
        let token = self.log_in(credentials).await?;
        *self.token.write() = Some(token.clone());
        Ok(Some(token))
    }

    /// Drops a refused token, unless it has been replaced in the meantime.
    pub(super) fn forget_token(&self, refused: Option<&MetadataValue<Ascii>>) {
        let mut token = self.token.write();
        if token.as_ref() == refused {
            *token = None;
        }
    }

    async fn log_in(&self, credentials: &EtcdCredentials) -> Result<MetadataValue<Ascii>, Fault> {
        let request =
            AuthenticateRequest { name: credentials.username.clone(), password: credentials.password.clone() };
        let deadline = Instant::now() + self.request_timeout;
        let mut last = closed();
        // A second login is harmless, so any transient fault is a reason to try the next member.
        for _ in 0..self.members.len() {
            self.check_open()?;
            let member = self.preferred();
            let answer: Result<AuthenticateResponse, Fault> =
                self.attempt(member, path::AUTHENTICATE, request.clone(), None, deadline).await;
            match answer {
                Ok(answer) => {
                    return MetadataValue::try_from(answer.token)
                        .map_err(|_| Fault::Refused(format!("{}: the token is not text", self.url(member))));
                }
                Err(fault) if fault.is_transient() => {
                    self.mark_failed(member);
                    // The caller's own request has not been sent yet.
                    last = Fault::Unsent(fault.to_string());
                }
                Err(fault) => return Err(Fault::Refused(fault.to_string())),
            }
        }
        Err(last)
    }

    fn check_open(&self) -> Result<(), Fault> {
        if *self.closed.borrow() { Err(closed()) } else { Ok(()) }
    }

    /// Drops the connections. Running calls keep theirs until they end.
    pub(super) fn close(&self) {
        self.closed.send_replace(true);
        for member in &self.members {
            member.connection.lock().take();
        }
    }

    /// Becomes true when the store closes.
    pub(super) fn closing(&self) -> watch::Receiver<bool> {
        self.closed.subscribe()
    }
}

/// Refuses a member of a cluster other than the one that answered first.
fn check_cluster(url: &str, known: &AtomicU64, header: Option<&ResponseHeader>) -> Result<(), Fault> {
    let Some(header) = header else { return Ok(()) };
    match known.compare_exchange(0, header.cluster_id, Ordering::Relaxed, Ordering::Relaxed) {
        Err(known) if known != header.cluster_id => Err(Fault::OtherCluster(format!(
            "{url} belongs to another etcd cluster ({:x}) than the endpoint that answered first ({known:x})",
            header.cluster_id
        ))),
        _ => Ok(()),
    }
}

fn closed() -> Fault {
    Fault::Unsent("the store is closed".to_owned())
}

/// Sends one unary call over a given connection.
pub(super) async fn unary<Q, A>(
    url: &str,
    channel: Channel,
    path: &'static str,
    request: tonic::Request<Q>,
) -> Result<A, Fault>
where
    Q: prost::Message + Send + Sync + 'static,
    A: prost::Message + Default + Send + Sync + 'static,
{
    let mut grpc = tonic::client::Grpc::new(channel).max_decoding_message_size(usize::MAX);
    grpc.ready().await.map_err(|error| Fault::Unsent(format!("{url}: {}", fault::chain(&error))))?;
    let codec = ProstCodec::<Q, A>::default();
    match grpc.unary(request, http::uri::PathAndQuery::from_static(path), codec).await {
        Ok(answer) => Ok(answer.into_inner()),
        Err(status) => Err(fault::from_status(url, &status)),
    }
}

/// Adds the token, and requires a leader: a member without one fails the call instead of waiting.
pub(super) fn with_metadata<Q>(message: Q, token: Option<MetadataValue<Ascii>>) -> tonic::Request<Q> {
    let mut request = tonic::Request::new(message);
    request.metadata_mut().insert("hasleader", MetadataValue::from_static("true"));
    if let Some(token) = token {
        request.metadata_mut().insert("token", token);
    }
    request
}

fn endpoint(url: &str, options: &EtcdOptions) -> Result<Endpoint, tonic::transport::Error> {
    let endpoint = Endpoint::from_shared(url.to_owned())?
        .connect_timeout(options.connect_timeout)
        .tcp_nodelay(true)
        .http2_keep_alive_interval(KEEP_ALIVE_INTERVAL)
        .keep_alive_timeout(KEEP_ALIVE_TIMEOUT)
        .initial_stream_window_size(STREAM_WINDOW_BYTES)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES);
    match &options.tls {
        Some(tls) => endpoint.tls_config(tls_config(tls)),
        None => Ok(endpoint),
    }
}

fn tls_config(tls: &EtcdTls) -> ClientTlsConfig {
    let mut config = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(&tls.ca));
    if let Some(identity) = &tls.identity {
        config = config.identity(Identity::from_pem(&identity.cert, &identity.key));
    }
    match &tls.domain {
        Some(domain) => config.domain_name(domain),
        None => config,
    }
}
