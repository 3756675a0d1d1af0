//! The accept loop: spawns a task for each connection of a bound listener, and ends them all on shutdown.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use rustls::server::Acceptor;
use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinSet;
use tokio_rustls::LazyConfigAcceptor;

use crate::limits::Limits;
use crate::metrics::Metrics;
use crate::shutdown::Shutdown;
use crate::wire::connection::{self, Handler, Lease, Protocol};
use crate::wire::gate::Gate;
use crate::wire::peer::Peer;
use crate::wire::tls::Tls;

/// With these three, a half-open peer that has nothing to acknowledge is detected after about a minute.
const KEEP_ALIVE_IDLE: Duration = Duration::from_secs(30);
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(10);
const KEEP_ALIVE_RETRIES: u32 = 3;
/// A peer that acknowledges nothing for this long is disconnected; one that only reads slowly is not.
const UNACKNOWLEDGED_MAX: Duration = Duration::from_secs(300);
/// Pause after a failed accept, so that the loop does not spin while the process is out of descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

const PLAIN_ON_TLS: &[u8] = b"HTTP/1.0 400 Bad Request\r\nContent-Type: text/plain; charset=utf-8\r\n\
    Connection: close\r\n\r\nClient sent an HTTP request to an HTTPS server.\n";

/// Serves connections until `shutdown` begins to drain. Returns when all connections have ended, at the drain timeout, or
/// at the second signal; connections that are still open then are dropped.
///
/// `tls: None` serves plain HTTP/1.1, without HTTP/2 by prior knowledge: for loopback only.
pub async fn run<H: Handler>(
    listener: TcpListener,
    tls: Option<Tls>,
    handler: H,
    limits: Arc<Limits>,
    metrics: Arc<Metrics>,
    mut shutdown: Shutdown,
) {
    let slots = Arc::new(Semaphore::new(limits.connections_max.min(Semaphore::MAX_PERMITS)));
    // Closed when the last connection, or the WebSocket it was upgraded to, has dropped its sender.
    let (alive, mut all_ended) = mpsc::channel::<()>(1);
    let mut connections = JoinSet::new();
    let gate = handler.disturbances().map(|disturbances| Gate::new(Arc::clone(disturbances)));
    let mut cutting = JoinSet::new();
    if let Some(gate) = &gate {
        cutting.spawn(gate.clone().cut_connections());
    }
    loop {
        let accepted = tokio::select! {
            biased;
            () = shutdown.draining() => break,
            accepted = accept(&listener, &slots, &metrics) => accepted,
        };
        while connections.try_join_next().is_some() {}
        let (stream, address, permit) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!(%error, "accept failed");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let slot = metrics.connections.take();
        metrics.connections_accepted.fetch_add(1, Ordering::Relaxed);
        let held = (permit, slot, alive.clone());
        let (tls, handler, limits, metrics) = (tls.clone(), handler.clone(), Arc::clone(&limits), Arc::clone(&metrics));
        let gate = gate.clone();
        connections.spawn(async move {
            // The handshake is boxed and freed before serving: its state is larger than that of a served connection.
            match tls {
                None => {
                    if gate.as_ref().is_some_and(|gate| gate.is_guarded() && gate.refuses(address, None)) {
                        return;
                    }
                    let peer = peer(&stream, address);
                    let lease = Lease::new((held, gate.and_then(|gate| gate.note(&stream, address, None))));
                    connection::serve(stream, Protocol::Http1, handler, peer, limits, lease).await;
                }
                Some(tls) => {
                    let Some((stream, peer, protocol)) =
                        Box::pin(handshake(stream, address, &tls, gate.as_ref(), &limits, &metrics)).await
                    else {
                        return;
                    };
                    drop(tls);
                    let lease = match gate {
                        None => Lease::new(held),
                        Some(gate) => {
                            let (socket, session) = stream.get_ref();
                            Lease::new((held, gate.note(socket, address, session.server_name())))
                        }
                    };
                    connection::serve(stream, protocol, handler, peer, limits, lease).await;
                }
            }
        });
    }
    drop((listener, alive));
    handler.drain().begin();
    tokio::select! {
        _ = all_ended.recv() => {}
        () = shutdown.aborted() => tracing::warn!("aborted with connections open"),
        () = tokio::time::sleep(limits.drain_timeout) => {
            tracing::warn!(open = metrics.connections.taken(), "connections still open after the drain timeout");
        }
    }
    connections.shutdown().await;
}

type Accepted = (TcpStream, SocketAddr, tokio::sync::OwnedSemaphorePermit);

async fn accept(listener: &TcpListener, slots: &Arc<Semaphore>, metrics: &Metrics) -> std::io::Result<Accepted> {
    let permit = match Arc::clone(slots).try_acquire_owned() {
        Ok(permit) => permit,
        Err(_) => {
            metrics.refused(metrics.connections.name());
            Arc::clone(slots).acquire_owned().await.map_err(std::io::Error::other)?
        }
    };
    let (stream, address) = listener.accept().await?;
    let socket = SockRef::from(&stream);
    let keep_alive = TcpKeepalive::new()
        .with_time(KEEP_ALIVE_IDLE)
        .with_interval(KEEP_ALIVE_INTERVAL)
        .with_retries(KEEP_ALIVE_RETRIES);
    // A connection works without these options.
    let _ = socket.set_tcp_nodelay(true);
    let _ = socket.set_tcp_keepalive(&keep_alive);
    #[cfg(target_os = "linux")]
    let _ = socket.set_tcp_user_timeout(Some(UNACKNOWLEDGED_MAX));
    Ok((stream, address, permit))
}

fn peer(stream: &TcpStream, address: SocketAddr) -> Peer {
    Peer { address: Some(address), local: stream.local_addr().ok(), certificate: None }
}

type Secured = (tokio_rustls::server::TlsStream<TcpStream>, Peer, Protocol);

async fn handshake(
    stream: TcpStream,
    address: SocketAddr,
    tls: &Tls,
    gate: Option<&Gate>,
    limits: &Limits,
    metrics: &Metrics,
) -> Option<Secured> {
    let mut peer = peer(&stream, address);
    let accepting = async {
        if speaks_plain_http(&stream).await {
            refuse_plain_http(stream).await;
            return Err(std::io::Error::other("plain HTTP"));
        }
        match gate.filter(|gate| gate.is_guarded()) {
            None => tls.acceptor().accept(stream).await,
            Some(gate) => accept_through(gate, stream, address, tls).await,
        }
    };
    match tokio::time::timeout(limits.handshake_timeout, accepting).await {
        Ok(Ok(stream)) => {
            let session = stream.get_ref().1;
            let protocol = match session.alpn_protocol() {
                Some(b"h2") => Protocol::Http2,
                _ => Protocol::Http1,
            };
            peer.certificate = tls.client(session);
            Some((stream, peer, protocol))
        }
        Ok(Err(error)) => {
            metrics.handshakes_failed.fetch_add(1, Ordering::Relaxed);
            tracing::debug!(%address, %error, "TLS handshake failed");
            None
        }
        Err(_) => {
            metrics.handshakes_failed.fetch_add(1, Ordering::Relaxed);
            metrics.refused("handshake_timeout_seconds");
            tracing::debug!(%address, "TLS handshake took too long");
            None
        }
    }
}

/// Reads what the client asks for before the handshake goes on, and ends the connection if it is refused.
async fn accept_through(
    gate: &Gate,
    stream: TcpStream,
    address: SocketAddr,
    tls: &Tls,
) -> std::io::Result<tokio_rustls::server::TlsStream<TcpStream>> {
    let start = LazyConfigAcceptor::new(Acceptor::default(), stream).await?;
    if gate.refuses(address, start.client_hello().server_name()) {
        return Err(std::io::Error::other("refused by a fault"));
    }
    start.into_stream(tls.config()).await
}

/// Returns whether the client sends HTTP: a TLS handshake begins with byte 22, a request with a capital letter.
async fn speaks_plain_http(stream: &TcpStream) -> bool {
    let mut first = [0];
    matches!(stream.peek(&mut first).await, Ok(1)) && first[0].is_ascii_uppercase()
}

async fn refuse_plain_http(mut stream: TcpStream) {
    let _ = stream.write_all(PLAIN_ON_TLS).await;
    let _ = stream.shutdown().await;
    // Read the request: closing with unread bytes would reset the connection before the client reads the response.
    let mut unread = [0; 4096];
    let mut left: usize = 64 * 1024;
    while let Ok(count @ 1..) = stream.read(&mut unread).await {
        left = left.saturating_sub(count);
        if left == 0 {
            return;
        }
    }
}
