//! `dogwatch console`: the web page for the server of any kubeconfig, on loopback.

use std::net::{Ipv4Addr, SocketAddr};

use bytes::Bytes;
use console::Console;
use http::{HeaderMap, Request, Response, StatusCode, header};
use http_body_util::{BodyExt as _, Limited};
use hyper::body::Incoming;
use kube::client::Body;
use machinery::clock::Clock;
use tokio::net::TcpListener;

use super::proxy::{refusal, serve};
use super::remote::Remote;
use crate::args;
use crate::failure::Failure;

pub(super) async fn console(args: args::Console) -> Result<(), Failure> {
    let remote = Remote::connect(args.kubeconfig.as_deref()).await?;
    let listener = TcpListener::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, args.port))).await.map_err(|error| {
        Failure::new(format!("cannot listen on port {}: {error}", args.port)).hint("--port 0 picks a free one")
    })?;
    let address = listener.local_addr().map_err(Failure::new)?;
    let page = LoopbackPage { console: Console::new(&rand::random::<[u8; 32]>(), Vec::new()), clock: Clock::system() };
    let code = page.console.visitors().issue_code(page.clock.now().as_second());
    println!("console     http://{address}{}#code={code}", console::PATH);
    serve(listener, remote, Some(page)).await
}

/// The page before a proxy. Requests of the API need a token of the page, so that other programs of this machine do not act
/// with the user's credentials.
pub(super) struct LoopbackPage {
    console: Console,
    clock: Clock,
}

impl LoopbackPage {
    pub(super) fn has(&self, path: &str) -> bool {
        console::is_own_path(path)
    }

    /// Answers a request for a file or a token.
    pub(super) async fn answer(&self, request: Request<Incoming>) -> Response<Body> {
        let (head, body) = request.into_parts();
        let Ok(body) = Limited::new(body, console::TOKEN_REQUEST_BYTES_MAX).collect().await else {
            return refusal(StatusCode::BAD_REQUEST, "the body could not be read");
        };
        let request: Request<Bytes> = Request::from_parts(head, body.to_bytes());
        let (head, body) = self.console.answer(&request, self.clock.now().as_second()).into_parts();
        Response::from_parts(head, Body::from(body.to_vec()))
    }

    /// Removes the token of the page from a request of the API; without a good one, the request is refused.
    pub(super) fn take_token(&self, headers: &mut HeaderMap) -> Result<(), (StatusCode, &'static str)> {
        let token = headers.remove(header::AUTHORIZATION);
        let token = token.as_ref().and_then(|value| value.to_str().ok()?.strip_prefix("Bearer "));
        let now = self.clock.now().as_second();
        if token.is_some_and(|token| self.console.visitors().is_valid(token, now)) {
            return Ok(());
        }
        Err((StatusCode::UNAUTHORIZED, "open the printed link: its page has the token that is needed here"))
    }
}
