//! `dogwatch proxy`: serves plain HTTP on loopback and forwards it with the kubeconfig's credentials.

use std::convert::Infallible;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use http::{HeaderValue, Request, Response, StatusCode, header};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use kube::client::Body;
use tokio::net::TcpListener;

use super::remote::Remote;
use crate::args::Proxy;
use crate::failure::Failure;

/// Headers of a single hop, which are not forwarded.
const HOP_HEADERS: [header::HeaderName; 7] = [
    header::CONNECTION,
    header::HOST,
    header::PROXY_AUTHENTICATE,
    header::PROXY_AUTHORIZATION,
    header::TE,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
];

pub(super) async fn proxy(args: Proxy) -> Result<(), Failure> {
    let remote = Arc::new(Remote::connect(args.kubeconfig.as_deref()).await?);
    let listener = TcpListener::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, args.port))).await.map_err(|error| {
        Failure::new(format!("cannot listen on port {}: {error}", args.port)).hint("--port 0 picks a free one")
    })?;
    println!("Starting to serve on {}", listener.local_addr().map_err(Failure::new)?);
    loop {
        let (stream, _) = tokio::select! {
            accepted = listener.accept() => accepted.map_err(Failure::new)?,
            _ = tokio::signal::ctrl_c() => return Ok(()),
        };
        let remote = Arc::clone(&remote);
        let _ = stream.set_nodelay(true);
        tokio::spawn(async move {
            let service = service_fn(move |request| forward(Arc::clone(&remote), request));
            let connection = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service);
            if let Err(error) = connection.await {
                tracing::debug!(%error, "a proxied connection ended");
            }
        });
    }
}

async fn forward(remote: Arc<Remote>, request: Request<Incoming>) -> Result<Response<Body>, Infallible> {
    // Another web page in the user's browser must not reach the cluster by a name that resolves to loopback.
    let host = request.headers().get(header::HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
    let name = host.rsplit_once(':').map_or(host, |(name, _)| name);
    if !matches!(name, "localhost" | "127.0.0.1" | "[::1]") {
        return Ok(refusal(StatusCode::FORBIDDEN, "Forbidden: the proxy is for localhost"));
    }
    let (mut head, body) = request.into_parts();
    for name in HOP_HEADERS {
        head.headers.remove(name);
    }
    let body = match body.collect().await {
        Ok(body) => body.to_bytes(),
        Err(error) => return Ok(refusal(StatusCode::BAD_REQUEST, &error.to_string())),
    };
    let path = head.uri.path_and_query().map_or("/", http::uri::PathAndQuery::as_str);
    let Ok(uri) = path.parse() else { return Ok(refusal(StatusCode::BAD_REQUEST, "no path")) };
    head.uri = uri;
    let request = Request::from_parts(head, Body::from(body.to_vec()));
    Ok(match remote.send(request).await {
        Ok(mut response) => {
            for name in HOP_HEADERS {
                response.headers_mut().remove(name);
            }
            response
        }
        Err(failure) => refusal(StatusCode::BAD_GATEWAY, &failure.sentence),
    })
}

fn refusal(code: StatusCode, text: &str) -> Response<Body> {
    let mut response = Response::new(Body::from(format!("{text}\n").into_bytes()));
    *response.status_mut() = code;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    response
}
