//! Passes requests to aggregated servers, and their answers back: bodies are streamed, upgrades joined.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use access::identity::User;
use bytes::Bytes;
use http::{Extensions, HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use http_body::Body as _;
use http_body_util::BodyExt as _;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use outbound::{AnswerBody, OutgoingBody};
use registry::Frames;
use registry::api_services::RemoteService;

use super::{Aggregator, Unresolved};
use crate::request::reply::{self, Reply};
use crate::wire::body::{EventSource, Observer, ResponseBody, WatchBody};
use crate::wire::connection::Lease;
use crate::wire::drain::Ticket;

/// Time that a server has for a discovery document.
const DISCOVERY_TIMEOUT: Duration = Duration::from_secs(5);
/// Larger bodies are streamed.
const WHOLE_BYTES_MAX: u64 = 64 * 1024;

/// Headers that name the user; a client cannot send them through this server.
const REMOTE_PREFIX: &str = "x-remote-";
const REMOTE_USER: HeaderName = HeaderName::from_static("x-remote-user");
const REMOTE_UID: HeaderName = HeaderName::from_static("x-remote-uid");
const REMOTE_GROUP: HeaderName = HeaderName::from_static("x-remote-group");
const REMOTE_EXTRA: &str = "x-remote-extra-";

/// Headers of a connection, not of a request.
const HOP_BY_HOP: [&str; 9] = [
    "connection",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// A request that is passed on.
pub(crate) struct Passed<'a> {
    pub(crate) method: &'a http::Method,
    pub(crate) uri: &'a http::Uri,
    pub(crate) headers: &'a HeaderMap,
    pub(crate) body: Bytes,
    pub(crate) user: &'a User,
    /// With the client's side of an upgrade.
    pub(crate) extensions: Extensions,
    /// Time for the head of the answer; none for a watch.
    pub(crate) timeout: Option<Duration>,
    pub(crate) drain: Ticket,
    /// Largest piece of a streamed body.
    pub(crate) bytes_max: usize,
}

impl Aggregator {
    /// Passes a request to the server that serves its group version.
    pub(crate) async fn pass(&self, remote: &RemoteService, mut passed: Passed<'_>) -> Reply {
        if has_dot_segments(passed.uri.path()) {
            // The right to it was decided for the path as it is written; the other server may read it differently.
            return text(StatusCode::BAD_REQUEST, "the path has relative segments");
        }
        if !remote.available {
            return unavailable("service unavailable");
        }
        let (endpoint, _) = match self.endpoint(remote) {
            Ok(found) => found,
            Err(Unresolved::Address(_)) => return unavailable("service unavailable"),
            Err(Unresolved::Configuration(why)) => return text(StatusCode::INTERNAL_SERVER_ERROR, &why),
        };
        let upgrade = upgrade_of(passed.headers);
        let request = match request(&passed, upgrade.as_ref()) {
            Ok(request) => request,
            Err(why) => return unavailable(&why),
        };
        let is_discovery = passed.uri.path().split('/').filter(|part| !part.is_empty()).count() == 3;
        let timeout = if is_discovery { Some(DISCOVERY_TIMEOUT) } else { passed.timeout };
        let opening = self.client.open(&endpoint, request);
        let opened = match timeout {
            None => opening.await,
            Some(timeout) => match tokio::time::timeout(timeout, opening).await {
                Ok(opened) => opened,
                Err(_) => return unavailable("context deadline exceeded"),
            },
        };
        let response = match opened {
            Ok(response) => response,
            Err(error) => return unavailable(error.why()),
        };
        if response.status() == StatusCode::SWITCHING_PROTOCOLS {
            let extensions = std::mem::take(&mut passed.extensions);
            return join(response, upgrade.as_ref(), extensions).await;
        }
        answer(response, passed).await
    }
}

fn has_dot_segments(path: &str) -> bool {
    path.split('/').any(|segment| {
        let decoded = percent_encoding::percent_decode_str(segment).collect::<Vec<u8>>();
        decoded.split(|byte| *byte == b'/').any(|part| part == b"." || part == b"..")
    })
}

fn text(code: StatusCode, message: &str) -> Reply {
    reply::whole(code.as_u16(), reply::TEXT, Bytes::from(format!("{message}\n")))
}

fn unavailable(message: &str) -> Reply {
    text(StatusCode::SERVICE_UNAVAILABLE, message)
}

/// The protocol that a client wants to switch to.
fn upgrade_of(headers: &HeaderMap) -> Option<HeaderValue> {
    let wants = headers
        .get_all(header::CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .any(|token| token.trim().eq_ignore_ascii_case("upgrade"));
    headers.get(header::UPGRADE).filter(|_| wants).cloned()
}

fn request(passed: &Passed<'_>, upgrade: Option<&HeaderValue>) -> Result<http::Request<OutgoingBody>, String> {
    let body = if passed.body.is_empty() { outbound::empty() } else { outbound::whole(passed.body.clone()) };
    let mut request = http::Request::new(body);
    *request.method_mut() = passed.method.clone();
    // Path and query as the client sent them; the host is that of the endpoint.
    let path = passed.uri.path_and_query().map_or("/", |path| path.as_str());
    *request.uri_mut() = path.parse().unwrap_or_default();
    let headers = request.headers_mut();
    *headers = end_to_end(passed.headers);
    for name in [header::HOST, header::AUTHORIZATION, header::CONTENT_LENGTH, header::EXPECT] {
        headers.remove(name);
    }
    if let Some(protocol) = upgrade {
        headers.insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
        headers.insert(header::UPGRADE, protocol.clone());
    }
    let user = passed.user;
    let extra: Vec<(&str, &[String])> =
        user.extra.iter().map(|(key, values)| (key.as_str(), values.as_slice())).collect();
    remote_headers(headers, &user.name, &user.uid, &user.groups, &extra)?;
    Ok(request)
}

/// The headers that are not of the connection.
fn end_to_end(headers: &HeaderMap) -> HeaderMap {
    let named: Vec<String> = headers
        .get_all(header::CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .map(|token| token.trim().to_ascii_lowercase())
        .collect();
    let mut kept = HeaderMap::with_capacity(headers.len());
    for (name, value) in headers {
        let is_hop = HOP_BY_HOP.contains(&name.as_str()) || named.iter().any(|token| token == name.as_str());
        if !is_hop {
            kept.append(name.clone(), value.clone());
        }
    }
    kept
}

/// Sets the headers that name a user, in place of any that are there. An error if one cannot be set: the server would
/// take the request for one of a user without that group or attribute, so it must not be sent.
pub(super) fn remote_headers(
    headers: &mut HeaderMap,
    name: &str,
    uid: &str,
    groups: &[String],
    extra: &[(&str, &[String])],
) -> Result<(), String> {
    let sent: Vec<HeaderName> =
        headers.keys().filter(|name| name.as_str().starts_with(REMOTE_PREFIX)).cloned().collect();
    for name in sent {
        headers.remove(name);
    }
    let mut add = |name: &HeaderName, value: &str| {
        let refused = || format!("the user has a value that the header {name} cannot have");
        // A receiver drops blanks at the ends, and would take the group " system:masters" for another one.
        if value.trim() != value {
            return Err(refused());
        }
        // From bytes: text that is not ASCII is sent as UTF-8.
        let value = HeaderValue::from_bytes(value.as_bytes()).map_err(|_| refused())?;
        headers.try_append(name, value).map_err(|_| "the user has too many extra keys".to_owned())?;
        Ok::<(), String>(())
    };
    add(&REMOTE_USER, name)?;
    if !uid.is_empty() {
        add(&REMOTE_UID, uid)?;
    }
    for group in groups {
        add(&REMOTE_GROUP, group)?;
    }
    for (key, values) in extra {
        let name = HeaderName::from_bytes(format!("{REMOTE_EXTRA}{}", escape(key)).as_bytes())
            .map_err(|_| "the user has an extra key that a header cannot have".to_owned())?;
        for value in *values {
            add(&name, value)?;
        }
    }
    Ok(())
}

/// A key as part of a header's name: other characters in percent encoding.
fn escape(key: &str) -> String {
    let mut escaped = String::with_capacity(key.len());
    for byte in key.bytes() {
        let is_legal = byte.is_ascii_alphanumeric() || b"!#$&'*+-.^_`|~".contains(&byte);
        if is_legal {
            escaped.push(char::from(byte));
        } else {
            escaped.push_str(&format!("%{byte:02X}"));
        }
    }
    escaped
}

async fn answer(response: http::Response<AnswerBody>, passed: Passed<'_>) -> Reply {
    let (head, body) = response.into_parts();
    if head.status.is_redirection() && head.headers.contains_key(header::LOCATION) {
        // A client would follow it with its credentials.
        let message = "the backend attempted to redirect this request, which is not permitted";
        return text(StatusCode::BAD_GATEWAY, message);
    }
    let mut headers = end_to_end(&head.headers);
    headers.remove(header::CONTENT_LENGTH);
    let exact = body.size_hint().exact();
    let body = match exact {
        Some(0) => ResponseBody::empty(),
        Some(len) if len <= WHOLE_BYTES_MAX => match body.collect().await {
            Ok(whole) => ResponseBody::whole(whole.to_bytes()),
            Err(error) => return unavailable(error.why()),
        },
        _ => ResponseBody::watch(WatchBody::new(
            Box::new(Streamed(body)),
            Box::new(Unobserved),
            passed.drain,
            passed.bytes_max,
        )),
    };
    let mut reply = Reply::new(body);
    *reply.status_mut() = head.status;
    *reply.headers_mut() = headers;
    reply
}

/// The body of an answer as a source of pieces.
struct Streamed(AnswerBody);

impl EventSource for Streamed {
    fn poll_frames(&mut self, cx: &mut Context<'_>, _: usize) -> Poll<Option<Frames>> {
        loop {
            return match Pin::new(&mut self.0).poll_frame(cx) {
                Poll::Pending => Poll::Pending,
                Poll::Ready(None) => Poll::Ready(None),
                Poll::Ready(Some(Err(error))) => {
                    tracing::debug!(%error, "the answer of an aggregated server ended early");
                    Poll::Ready(None)
                }
                Poll::Ready(Some(Ok(frame))) => {
                    let Ok(data) = frame.into_data() else { continue };
                    let bytes = data.len();
                    Poll::Ready(Some(Frames { segments: vec![data], ends: vec![1], bytes, ..Frames::default() }))
                }
            };
        }
    }
}

struct Unobserved;

impl Observer for Unobserved {
    fn sent(&mut self, _: &Frames) {}
}

/// Joins the two sides of an upgrade to the protocol that the client asked for.
async fn join<B>(mut response: http::Response<B>, upgrade: Option<&HeaderValue>, mut extensions: Extensions) -> Reply {
    if upgrade.is_none() {
        // The client still speaks HTTP: the server would read its next requests as they are, with their credentials.
        return unavailable("the backend switched protocols, which this request did not ask for");
    }
    // Absent over HTTP/2 and for callers in the same process.
    let Some(client) = extensions.remove::<OnUpgrade>() else {
        return text(StatusCode::BAD_REQUEST, "the connection cannot be upgraded");
    };
    let lease = extensions.remove::<Lease>();
    let server = match hyper::upgrade::on(&mut response).await {
        Ok(server) => server,
        Err(error) => return unavailable(&error.to_string()),
    };
    tokio::spawn(async move {
        // Held until both sides are closed: the connection still counts, and a stopping server waits for it.
        let _lease = lease;
        if let Ok(client) = client.await {
            let (mut client, mut server) = (TokioIo::new(client), TokioIo::new(server));
            if let Err(error) = tokio::io::copy_bidirectional(&mut client, &mut server).await {
                tracing::trace!(%error, "an upgraded connection ended");
            }
        }
    });
    let mut reply = Reply::new(ResponseBody::empty());
    *reply.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let mut headers = end_to_end(response.headers());
    headers.insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
    if let Some(protocol) = response.headers().get(header::UPGRADE) {
        headers.insert(header::UPGRADE, protocol.clone());
    }
    *reply.headers_mut() = headers;
    reply
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agg_6_a_client_cannot_name_the_user_itself() {
        let mut headers = HeaderMap::new();
        headers.insert("x-remote-user", HeaderValue::from_static("root"));
        headers.insert("x-remote-extra-scopes", HeaderValue::from_static("all"));
        headers.insert("accept", HeaderValue::from_static("*/*"));
        let groups = ["a".to_owned(), "b".to_owned()];
        let values = ["1".to_owned(), "2".to_owned()];
        remote_headers(&mut headers, "alice", "7", &groups, &[("example.com/key%", &values)]).unwrap();
        let all = |name: &str| headers.get_all(name).iter().filter_map(|v| v.to_str().ok()).collect::<Vec<_>>();
        assert_eq!(all("x-remote-user"), ["alice"]);
        assert_eq!(all("x-remote-uid"), ["7"]);
        assert_eq!(all("x-remote-group"), ["a", "b"]);
        assert_eq!(all("x-remote-extra-scopes"), [""; 0]);
        assert_eq!(headers.keys().filter(|name| name.as_str().contains("extra")).count(), 1);
        assert_eq!(all("accept"), ["*/*"]);
    }

    #[test]
    fn agg_6_users_are_named_in_full_or_not_at_all() {
        let text = |text: &str| vec![text.to_owned()];
        let mut headers = HeaderMap::new();
        let (groups, values) = (text("équipe"), text("プロジェクト"));
        remote_headers(&mut headers, "zoë", "ü", &groups, &[("key", &values)]).unwrap();
        for (name, value) in [
            ("x-remote-user", "zoë"),
            ("x-remote-uid", "ü"),
            ("x-remote-group", "équipe"),
            ("x-remote-extra-key", "プロジェクト"),
        ] {
            assert_eq!(headers.get(name).map(HeaderValue::as_bytes), Some(value.as_bytes()), "{name}");
        }

        let bad = text("a\nb");
        let set = |name: &str, uid: &str, groups: &[String], values: &[String]| {
            remote_headers(&mut HeaderMap::new(), name, uid, groups, &[("key", values)])
        };
        assert_eq!(set("alice", "", &[], &[]), Ok(()));
        let refused = |header: &str| Err(format!("the user has a value that the header {header} cannot have"));
        assert_eq!(set("a\nb", "", &[], &[]), refused("x-remote-user"));
        assert_eq!(set("alice", "a\nb", &[], &[]), refused("x-remote-uid"));
        assert_eq!(set("alice", "", &bad, &[]), refused("x-remote-group"));
        assert_eq!(set("alice", "", &[], &bad), refused("x-remote-extra-key"));
        assert_eq!(set("alice", "", &text(" system:masters"), &[]), refused("x-remote-group"));

        let keys: Vec<String> = (0..40_000).map(|key| key.to_string()).collect();
        let many: Vec<(&str, &[String])> = keys.iter().map(|key| (key.as_str(), groups.as_slice())).collect();
        let set = remote_headers(&mut HeaderMap::new(), "alice", "", &[], &many);
        assert_eq!(set, Err("the user has too many extra keys".to_owned()));
    }

    #[tokio::test]
    async fn agg_6_a_server_cannot_switch_protocols_unasked() {
        let switched = || {
            let mut response = http::Response::new(());
            *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
            response
        };
        let reply = join(switched(), None, Extensions::new()).await;
        assert_eq!(reply.status(), StatusCode::SERVICE_UNAVAILABLE);
        // Asked for, it is the client's connection that decides.
        let asked = HeaderValue::from_static("websocket");
        let reply = join(switched(), Some(&asked), Extensions::new()).await;
        assert_eq!(reply.status(), StatusCode::BAD_REQUEST);
    }

    #[test]
    fn agg_6_paths_that_can_be_read_in_two_ways_are_refused() {
        for path in ["/apis/g/v/../x", "/apis/g/v/%2e%2e/x", "/apis/g/v/a%2F..%2Fb", "/apis/g/v/."] {
            assert!(has_dot_segments(path), "{path}");
        }
        for path in ["/apis/g/v/a..b", "/apis/g/v/.hidden", "/apis/g/v/a%2Fb"] {
            assert!(!has_dot_segments(path), "{path}");
        }
    }

    #[test]
    fn agg_6_keys_of_extra_are_escaped() {
        assert_eq!(escape("scopes"), "scopes");
        assert_eq!(escape("example.com/a%b"), "example.com%2Fa%25b");
    }

    #[test]
    fn agg_6_headers_of_the_connection_are_not_passed_on() {
        let mut headers = HeaderMap::new();
        headers.insert("connection", HeaderValue::from_static("keep-alive, x-private"));
        headers.insert("x-private", HeaderValue::from_static("1"));
        headers.insert("te", HeaderValue::from_static("trailers"));
        headers.insert("x-public", HeaderValue::from_static("1"));
        let kept = end_to_end(&headers);
        assert_eq!(kept.keys().map(HeaderName::as_str).collect::<Vec<_>>(), ["x-public"]);
    }
}
