//! Opens connections.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_rustls::TlsConnector;

use crate::client::OutgoingBody;
use crate::ending::MayEnd;
use crate::endpoint::Endpoint;
use crate::error::{Error, ErrorKind};
use crate::go_text;

/// Time of one attempt to connect to one address.
const DIAL_TIMEOUT: Duration = Duration::from_secs(30);
/// Pause between attempts at an address that refuses connections.
const REFUSED_PAUSE: Duration = Duration::from_millis(25);

/// An open connection. Its task ends with it.
pub(crate) struct Connection {
    pub(crate) sender: http1::SendRequest<OutgoingBody>,
    _task: Task,
}

struct Task(JoinHandle<()>);

impl Drop for Task {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Connects, secures and prepares a connection. A loopback address that refuses is tried again for `refused_wait`.
pub(crate) async fn connect(endpoint: &Endpoint, refused_wait: Duration) -> Result<Connection, Error> {
    let stream = dial(&endpoint.address(), refused_wait).await?;
    // Small requests must not wait for more.
    let _ = stream.set_nodelay(true);
    if !endpoint.is_secure() {
        return handshake(stream).await;
    }
    let name = endpoint.server_name();
    let name = ServerName::try_from(name.clone())
        .map_err(|_| Error::new(ErrorKind::Configuration, format!("tls: invalid server name {name:?}")))?;
    let connector = TlsConnector::from(Arc::clone(&endpoint.tls.config));
    let stream = connector.connect(name, stream).await.map_err(|error| go_text::transport(&error))?;
    handshake(MayEnd(stream)).await
}

async fn handshake<S>(stream: S) -> Result<Connection, Error>
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let (sender, connection) =
        http1::handshake(TokioIo::new(stream)).await.map_err(|error| go_text::exchange(&error))?;
    let task = tokio::spawn(async move {
        // A failure reaches the request that is under way.
        let _ = connection.with_upgrades().await;
    });
    Ok(Connection { sender, _task: Task(task) })
}

async fn dial(address: &str, refused_wait: Duration) -> Result<TcpStream, Error> {
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host).trim_matches(['[', ']']);
    let addresses: Vec<SocketAddr> =
        tokio::net::lookup_host(address).await.map_err(|_| go_text::no_such_host(host))?.collect();
    let until = Instant::now() + refused_wait;
    loop {
        let mut failure = None;
        for address in &addresses {
            let attempt = tokio::time::timeout(DIAL_TIMEOUT, TcpStream::connect(address)).await;
            let error = match attempt {
                Ok(Ok(stream)) => return Ok(stream),
                Ok(Err(error)) => go_text::dial(*address, &error),
                Err(_) => Error::new(ErrorKind::Connection, format!("dial tcp {address}: i/o timeout")),
            };
            failure.get_or_insert(error);
        }
        let failure = failure.unwrap_or_else(|| go_text::no_such_host(host));
        let is_loopback = addresses.iter().all(|address| address.ip().is_loopback());
        if failure.kind() != ErrorKind::Refused || !is_loopback || Instant::now() + REFUSED_PAUSE > until {
            return Err(failure);
        }
        tokio::time::sleep(REFUSED_PAUSE).await;
    }
}
