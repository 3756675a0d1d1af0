//! Watches over WebSocket: the handshake by the reference's rules, then one message for each event.

use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;

use futures::{Sink, Stream};
use http::{Extensions, HeaderMap, HeaderValue, StatusCode, Uri, header};
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use registry::Frames;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::{Role, WebSocketConfig};
use tokio_tungstenite::tungstenite::{Error, Message};

use crate::request::authentication::{WEBSOCKET_BEARER, subprotocols};
use crate::request::reply::{self, Reply};
use crate::wire::body::{ResponseBody, WatchBody};
use crate::wire::connection::Lease;

const VERSION: &str = "13";
/// Largest message accepted from a client; all are dropped.
const CLIENT_MESSAGE_MAX: usize = 64 * 1024;

/// Returns whether a request asks for a WebSocket.
#[must_use]
pub fn is_upgrade(headers: &HeaderMap) -> bool {
    let has = |name: header::HeaderName, wanted: &str| {
        headers
            .get_all(name)
            .iter()
            .filter_map(|value| value.to_str().ok())
            .flat_map(|value| value.split(','))
            .any(|token| token.trim().eq_ignore_ascii_case(wanted))
    };
    has(header::UPGRADE, "websocket") && has(header::CONNECTION, "upgrade")
}

/// The type of the messages that carry events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MessageKind {
    Text,
    Binary,
}

/// Responds to the handshake, and sends the watch's events once the connection is upgraded.
pub(crate) fn upgrade(headers: &HeaderMap, mut extensions: Extensions, watch: WatchBody, kind: MessageKind) -> Reply {
    let agreed = match handshake(headers) {
        Ok(agreed) => agreed,
        Err(refused) => return refused.reply(),
    };
    // Absent over HTTP/2 and for callers in the same process.
    let Some(upgrade) = extensions.remove::<OnUpgrade>() else {
        return Refused(StatusCode::BAD_REQUEST).reply();
    };
    let lease = extensions.remove::<Lease>();
    tokio::spawn(async move {
        // Held until the socket is closed: the connection still counts, and a stopping server waits for it.
        let _lease = lease;
        if let Ok(upgraded) = upgrade.await {
            let config = WebSocketConfig::default()
                .read_buffer_size(4 * 1024)
                .max_message_size(Some(CLIENT_MESSAGE_MAX))
                .max_frame_size(Some(CLIENT_MESSAGE_MAX));
            let io = TokioIo::new(upgraded);
            let socket = WebSocketStream::from_raw_socket(io, Role::Server, Some(config)).await;
            if let Err(error) = send(socket, watch, kind).await {
                tracing::trace!(%error, "WebSocket ended");
            }
        }
    });
    let mut reply = Reply::new(ResponseBody::empty());
    *reply.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let headers = reply.headers_mut();
    headers.insert(header::UPGRADE, HeaderValue::from_static("websocket"));
    headers.insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
    headers.insert(header::SEC_WEBSOCKET_ACCEPT, agreed.accept);
    if let Some(protocol) = agreed.protocol {
        headers.insert(header::SEC_WEBSOCKET_PROTOCOL, protocol);
    }
    reply
}

#[derive(Debug, PartialEq, Eq)]
struct Agreed {
    accept: HeaderValue,
    protocol: Option<HeaderValue>,
}

#[derive(Debug, PartialEq, Eq)]
struct Refused(StatusCode);

impl Refused {
    fn reply(&self) -> Reply {
        let mut reply = reply::with_body(self.0.as_u16(), reply::TEXT, ResponseBody::empty());
        if self.0 == StatusCode::BAD_REQUEST {
            reply.headers_mut().insert(header::SEC_WEBSOCKET_VERSION, HeaderValue::from_static(VERSION));
        }
        reply
    }
}

fn handshake(headers: &HeaderMap) -> Result<Agreed, Refused> {
    let bad = || Refused(StatusCode::BAD_REQUEST);
    let text = |name: header::HeaderName| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let key = text(header::SEC_WEBSOCKET_KEY);
    if key.is_empty() || text(header::SEC_WEBSOCKET_VERSION) != VERSION {
        return Err(bad());
    }
    let mut protocols = subprotocols(headers).filter(|protocol| !protocol.starts_with(WEBSOCKET_BEARER));
    let protocol = protocols.next();
    if protocols.next().is_some() {
        return Err(bad());
    }
    // A page in a browser can neither omit nor forge its origin, and WebSocket watches are for browsers.
    let origin: Option<Uri> = text(header::ORIGIN).parse().ok();
    if origin.is_none_or(|origin| origin.scheme().is_none()) {
        return Err(Refused(StatusCode::FORBIDDEN));
    }
    let accept = HeaderValue::from_str(&derive_accept_key(key.as_bytes())).map_err(|_| bad())?;
    let protocol = protocol.map(HeaderValue::from_str).transpose().map_err(|_| bad())?;
    Ok(Agreed { accept, protocol })
}

/// Sends events until the watch ends or the client disconnects. Messages of the client are read and dropped.
async fn send<S>(socket: WebSocketStream<S>, mut watch: WatchBody, kind: MessageKind) -> Result<(), Error>
where
    S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin,
{
    let mut socket = pin!(socket);
    loop {
        let next = poll_fn(|cx| {
            loop {
                match socket.as_mut().poll_next(cx) {
                    Poll::Ready(None | Some(Err(_) | Ok(Message::Close(_)))) => return Poll::Ready(Next::Disconnected),
                    Poll::Ready(Some(Ok(_))) => {}
                    Poll::Pending => break,
                }
            }
            watch.poll_next(cx).map(|frames| frames.map_or(Next::WatchEnded, Next::Send))
        })
        .await;
        match next {
            Next::Send(frames) => {
                for message in messages(frames, kind) {
                    poll_fn(|cx| socket.as_mut().poll_ready(cx)).await?;
                    socket.as_mut().start_send(message)?;
                }
                poll_fn(|cx| socket.as_mut().poll_flush(cx)).await?;
            }
            Next::WatchEnded if watch.is_broken() => return Ok(()),
            Next::WatchEnded => return poll_fn(|cx| socket.as_mut().poll_close(cx)).await,
            Next::Disconnected => return Ok(()),
        }
    }
}

enum Next {
    Send(Frames),
    WatchEnded,
    Disconnected,
}

/// Joins the slices of each event into one message.
fn messages(frames: Frames, kind: MessageKind) -> impl Iterator<Item = Message> {
    let Frames { segments, ends, .. } = frames;
    let mut from = 0;
    ends.into_iter().map(move |end| {
        let joined = segments.get(from..end).unwrap_or_default().concat();
        from = end;
        match kind {
            MessageKind::Binary => Message::binary(joined),
            MessageKind::Text => match String::from_utf8(joined) {
                Ok(text) => Message::text(text),
                Err(not_text) => Message::binary(not_text.into_bytes()),
            },
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;

    fn handshake_with(change: &[(&'static str, Option<&str>)]) -> Result<Agreed, Refused> {
        let mut headers = HeaderMap::new();
        for (name, value) in [
            ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
            ("sec-websocket-version", "13"),
            ("origin", "http://localhost"),
        ] {
            headers.insert(name, value.parse().unwrap());
        }
        for (name, value) in change {
            match value {
                Some(value) => drop(headers.insert(*name, value.parse().unwrap())),
                None => drop(headers.remove(*name)),
            }
        }
        handshake(&headers)
    }

    #[test]
    fn handshakes_of_spec_01_10_1() {
        assert_eq!(handshake_with(&[]).unwrap().accept, "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
        assert_eq!(handshake_with(&[]).unwrap().protocol, None);
        let bad = Err(Refused(StatusCode::BAD_REQUEST));
        assert_eq!(handshake_with(&[("sec-websocket-key", None)]), bad);
        assert_eq!(handshake_with(&[("sec-websocket-version", Some("8"))]), bad);
        assert_eq!(handshake_with(&[("sec-websocket-protocol", Some("a, b"))]), bad);
        let forbidden = Err(Refused(StatusCode::FORBIDDEN));
        assert_eq!(handshake_with(&[("origin", None)]), forbidden);
        assert_eq!(handshake_with(&[("origin", Some("null"))]), forbidden);
        assert_eq!(handshake_with(&[("origin", Some("/x"))]), forbidden);
        let one = handshake_with(&[("sec-websocket-protocol", Some("anything.at/all"))]).unwrap();
        assert_eq!(one.protocol.unwrap(), "anything.at/all");
        let token = format!("{WEBSOCKET_BEARER}abc, v1");
        assert_eq!(handshake_with(&[("sec-websocket-protocol", Some(&token))]).unwrap().protocol.unwrap(), "v1");
    }

    #[test]
    fn each_event_is_a_separate_message() {
        let segments = ["{\"a\":", "1}\n", "{\"b\":2}\n"].map(|part| Bytes::from_static(part.as_bytes())).to_vec();
        let sent: Vec<Message> =
            messages(Frames { segments, ends: vec![2, 3], ..Frames::default() }, MessageKind::Text).collect();
        assert_eq!(sent, [Message::text("{\"a\":1}\n"), Message::text("{\"b\":2}\n")]);
        let frames = Frames { segments: vec![Bytes::from_static(b"ab")], ends: vec![1], ..Frames::default() };
        let sent: Vec<Message> = messages(frames, MessageKind::Binary).collect();
        assert_eq!(sent, [Message::binary(&b"ab"[..])], "binary though it could be text");
    }
}
