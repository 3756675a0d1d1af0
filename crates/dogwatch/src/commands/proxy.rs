//! `dogwatch proxy`: serves plain HTTP on loopback and forwards it with the kubeconfig's credentials.

use std::convert::Infallible;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode, header};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use kube::client::Body;
use tokio::net::TcpListener;

use super::console::LoopbackPage;
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

const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
/// Content types of forms.
const FORM_TYPES: [&str; 3] = ["application/x-www-form-urlencoded", "multipart/form-data", "text/plain"];

pub(super) async fn proxy(args: Proxy) -> Result<(), Failure> {
    let remote = Remote::connect(args.kubeconfig.as_deref()).await?;
    let listener = TcpListener::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, args.port))).await.map_err(|error| {
        Failure::new(format!("cannot listen on port {}: {error}", args.port)).hint("--port 0 picks a free one")
    })?;
    println!("Starting to serve on {}", listener.local_addr().map_err(Failure::new)?);
    serve(listener, remote, None).await
}

/// Serves until the program is interrupted; with a page, also that.
pub(super) async fn serve(listener: TcpListener, remote: Remote, page: Option<LoopbackPage>) -> Result<(), Failure> {
    let proxy = Arc::new(LoopbackProxy { remote, page });
    loop {
        let (stream, _) = tokio::select! {
            accepted = listener.accept() => accepted.map_err(Failure::new)?,
            _ = tokio::signal::ctrl_c() => return Ok(()),
        };
        let proxy = Arc::clone(&proxy);
        let _ = stream.set_nodelay(true);
        tokio::spawn(async move {
            let service = service_fn(move |request| forward(Arc::clone(&proxy), request));
            let connection = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service);
            if let Err(error) = connection.await {
                tracing::debug!(%error, "a proxied connection ended");
            }
        });
    }
}

struct LoopbackProxy {
    remote: Remote,
    page: Option<LoopbackPage>,
}

async fn forward(proxy: Arc<LoopbackProxy>, request: Request<Incoming>) -> Result<Response<Body>, Infallible> {
    if let Err((code, why)) = check(request.method(), request.headers()) {
        return Ok(refusal(code, why));
    }
    if let Some(page) = proxy.page.as_ref().filter(|page| page.has(request.uri().path())) {
        return Ok(page.answer(request).await);
    }
    let (mut head, body) = request.into_parts();
    if let Some(Err((code, why))) = proxy.page.as_ref().map(|page| page.take_token(&mut head.headers)) {
        return Ok(refusal(code, why));
    }
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
    Ok(match proxy.remote.send(request).await {
        Ok(mut response) => {
            for name in HOP_HEADERS {
                response.headers_mut().remove(name);
            }
            response
        }
        Err(failure) => refusal(StatusCode::BAD_GATEWAY, &failure.sentence),
    })
}

/// Refuses requests that a web page in the user's browser could have sent: the proxy adds the user's credentials to them.
fn check(method: &Method, headers: &HeaderMap) -> Result<(), (StatusCode, &'static str)> {
    let text = |name: &HeaderName| headers.get(name).map(|value| value.to_str().unwrap_or("?"));
    let forbidden = |why| Err((StatusCode::FORBIDDEN, why));
    if method == Method::CONNECT {
        return Err((StatusCode::METHOD_NOT_ALLOWED, "the proxy opens no tunnels"));
    }
    // A name of another web page may resolve to loopback.
    let host = text(&header::HOST).unwrap_or_default();
    if !is_loopback(host) || headers.get_all(header::HOST).iter().count() > 1 {
        return forbidden("the proxy is for localhost");
    }
    // Browsers send the origin of the page with every write and with reads of other origins, and pages cannot change it.
    if let Some(origin) = text(&header::ORIGIN)
        && origin.strip_prefix("http://") != Some(host)
    {
        return forbidden("the proxy is not for pages of other origins");
    }
    if text(&SEC_FETCH_SITE).is_some_and(|site| !matches!(site, "same-origin" | "none")) {
        return forbidden("the proxy is not for pages of other sites");
    }
    // Forms are the only writes that a page can send to another origin without asking it first, and only with these types.
    let is_write = !matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS);
    let media = text(&header::CONTENT_TYPE).map(|media| media.split(';').next().unwrap_or_default().trim());
    let is_form = media.is_some_and(|media| FORM_TYPES.iter().any(|form| media.eq_ignore_ascii_case(form)));
    if is_write && is_form {
        return Err((StatusCode::UNSUPPORTED_MEDIA_TYPE, "the proxy takes no forms"));
    }
    Ok(())
}

/// Returns whether a host, with or without a port, is this machine.
fn is_loopback(host: &str) -> bool {
    let name = match host.rsplit_once(':') {
        Some((name, port)) if !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    };
    matches!(name, "localhost" | "127.0.0.1" | "[::1]")
}

/// A refusal of the proxy itself, as the `Status` that clients of the API read.
pub(super) fn refusal(code: StatusCode, why: &str) -> Response<Body> {
    let reason = match code {
        StatusCode::UNAUTHORIZED => "Unauthorized",
        StatusCode::FORBIDDEN => "Forbidden",
        StatusCode::METHOD_NOT_ALLOWED => "MethodNotAllowed",
        StatusCode::UNSUPPORTED_MEDIA_TYPE => "UnsupportedMediaType",
        StatusCode::BAD_REQUEST => "BadRequest",
        _ => "ServiceUnavailable",
    };
    let status = serde_json::json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": why, "reason": reason, "code": code.as_u16(),
    });
    let mut response = Response::new(Body::from(format!("{status}\n").into_bytes()));
    *response.status_mut() = code;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(method: Method, pairs: &[(&'static str, &'static str)]) -> u16 {
        let headers: HeaderMap = pairs
            .iter()
            .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)))
            .collect();
        check(&method, &headers).map_or_else(|(code, _)| code.as_u16(), |()| 200)
    }

    #[test]
    fn clients_of_this_machine_are_served() {
        let host = ("host", "127.0.0.1:8001");
        assert_eq!(code(Method::GET, &[host]), 200);
        assert_eq!(code(Method::GET, &[("host", "localhost")]), 200);
        assert_eq!(code(Method::GET, &[("host", "[::1]:8001")]), 200);
        assert_eq!(code(Method::POST, &[host, ("content-type", "application/json")]), 200);
        assert_eq!(code(Method::DELETE, &[host]), 200);
        // The address bar, and a page that the API itself serves.
        assert_eq!(code(Method::GET, &[host, ("sec-fetch-site", "none")]), 200);
        let page = [host, ("origin", "http://127.0.0.1:8001"), ("sec-fetch-site", "same-origin")];
        assert_eq!(code(Method::PATCH, &page), 200);
    }

    #[test]
    fn requests_that_a_web_page_could_have_sent_are_refused() {
        let host = ("host", "localhost:8001");
        assert_eq!(code(Method::GET, &[]), 403);
        assert_eq!(code(Method::GET, &[("host", "evil.example:8001")]), 403);
        assert_eq!(code(Method::GET, &[("host", "localhost.evil.example")]), 403);
        assert_eq!(code(Method::GET, &[("host", "localhost:8001"), ("host", "evil.example")]), 403);
        for origin in ["http://evil.example", "null", "http://localhost:3000", "https://localhost:8001", "file://"] {
            assert_eq!(code(Method::POST, &[host, ("origin", origin)]), 403, "{origin}");
        }
        for site in ["cross-site", "same-site", "anything"] {
            assert_eq!(code(Method::GET, &[host, ("sec-fetch-site", site)]), 403, "{site}");
        }
        for media in ["text/plain", "application/x-www-form-urlencoded", "Multipart/Form-Data; boundary=x"] {
            assert_eq!(code(Method::POST, &[host, ("content-type", media)]), 415, "{media}");
        }
        assert_eq!(code(Method::CONNECT, &[host]), 405);
    }
}
