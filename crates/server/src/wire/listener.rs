//! The accept loop: takes a bound listener, gives every connection its own task, and ends them all when told to.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinSet;

use crate::limits::Limits;
use crate::metrics::Metrics;
use crate::shutdown::Shutdown;
use crate::wire::connection::{self, Handler, Lease, Protocol};
use crate::wire::peer::Peer;
use crate::wire::tls::Tls;

/// Half-open peers that have nothing to acknowledge are noticed after about a minute.
const KEEP_ALIVE_IDLE: Duration = Duration::from_secs(30);
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(10);
const KEEP_ALIVE_RETRIES: u32 = 3;
/// A peer that does not take what was sent to it is given up after this long; a reader that is only slow is not.
const UNACKNOWLEDGED_MAX: Duration = Duration::from_secs(300);
/// Out of descriptors: pause, so that the loop does not spin until some are free.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

const PLAIN_ON_TLS: &[u8] = b"HTTP/1.0 400 Bad Request\r\nContent-Type: text/plain; charset=utf-8\r\n\
    Connection: close\r\n\r\nClient sent an HTTP request to an HTTPS server.\n";

/// Serves everything that connects, until `shutdown` says otherwise. Returns when all connections have ended, or when
/// the drain limit is over, or at the second signal; whatever is open then is dropped.
///
/// `tls: None` speaks plain HTTP/1.1 (and HTTP/2 with prior knowledge is not offered): for loopback only.
pub async fn run<H: Handler>(
    listener: TcpListener,
    tls: Option<Tls>,
    handler: H,
    limits: Arc<Limits>,
    metrics: Arc<Metrics>,
    mut shutdown: Shutdown,
) {
    let places = Arc::new(Semaphore::new(limits.connections_max.min(Semaphore::MAX_PERMITS)));
    // Closed when the last connection (or what it was upgraded to) has dropped its end.
    let (alive, mut all_ended) = mpsc::channel::<()>(1);
    let mut connections = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            biased;
            () = shutdown.draining() => break,
            accepted = accept(&listener, &places, &metrics) => accepted,
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
        let place = metrics.connections.take();
        metrics.connections_accepted.fetch_add(1, Ordering::Relaxed);
        let lease = Lease::new((permit, place, alive.clone()));
        let (tls, handler, limits, metrics) = (tls.clone(), handler.clone(), Arc::clone(&limits), Arc::clone(&metrics));
        connections.spawn(async move {
            // In a box of its own that is gone after the handshake: its state is larger than that of serving.
            match tls {
                None => {
                    let peer = peer(&stream, address);
                    connection::serve(stream, Protocol::Http1, handler, peer, limits, lease).await;
                }
                Some(tls) => {
                    let Some((stream, peer, protocol)) =
                        Box::pin(handshake(stream, address, &tls, &limits, &metrics)).await
                    else {
                        return;
                    };
                    drop(tls);
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
            tracing::warn!(open = metrics.connections.taken(), "connections still open after the drain limit");
        }
    }
    connections.shutdown().await;
}

type Accepted = (TcpStream, SocketAddr, tokio::sync::OwnedSemaphorePermit);

async fn accept(listener: &TcpListener, places: &Arc<Semaphore>, metrics: &Metrics) -> std::io::Result<Accepted> {
    let permit = match Arc::clone(places).try_acquire_owned() {
        Ok(permit) => permit,
        Err(_) => {
            metrics.refused(metrics.connections.name());
            Arc::clone(places).acquire_owned().await.map_err(std::io::Error::other)?
        }
    };
    let (stream, address) = listener.accept().await?;
    let socket = SockRef::from(&stream);
    let keep_alive = TcpKeepalive::new()
        .with_time(KEEP_ALIVE_IDLE)
        .with_interval(KEEP_ALIVE_INTERVAL)
        .with_retries(KEEP_ALIVE_RETRIES);
    // None of these is worth refusing a connection for.
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
    limits: &Limits,
    metrics: &Metrics,
) -> Option<Secured> {
    let mut peer = peer(&stream, address);
    let accepting = async {
        if speaks_plain_http(&stream).await {
            tell_plain(stream).await;
            return Err(std::io::Error::other("plain HTTP"));
        }
        tls.acceptor.accept(stream).await
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

/// A TLS handshake begins with byte 22, a request with a capital letter.
async fn speaks_plain_http(stream: &TcpStream) -> bool {
    let mut first = [0];
    matches!(stream.peek(&mut first).await, Ok(1)) && first[0].is_ascii_uppercase()
}

async fn tell_plain(mut stream: TcpStream) {
    let _ = stream.write_all(PLAIN_ON_TLS).await;
    let _ = stream.shutdown().await;
    // Read what was asked, or closing would reset the connection before the answer is seen.
    let mut asked = [0; 4096];
    let mut left: usize = 64 * 1024;
    while let Ok(count @ 1..) = stream.read(&mut asked).await {
        left = left.saturating_sub(count);
        if left == 0 {
            return;
        }
    }
}
