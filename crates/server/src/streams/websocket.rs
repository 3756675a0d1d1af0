//! WebSocket connections of sessions: channels in messages, or the bytes of a SPDY connection.
//!
//! The first byte of each message is its channel: 0 to 2 are the standard streams, 3 is the result, 4 the size of the terminal.
//! In the protocols in `base64.` it is a digit, and the rest is base64. Only in version 5 a client can end a channel:
//! `ff 00` ends channel 0.

use std::io::ErrorKind;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::{Buf as _, Bytes};
use futures::stream::{SplitSink, SplitStream};
use futures::{SinkExt as _, StreamExt as _};
use http::{HeaderMap, HeaderValue, StatusCode, header};
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, Role, WebSocketConfig};
use tokio_tungstenite::tungstenite::{Error, Message};

use super::pipes::{Outgoing, PIPE_BYTES_MAX, PipeWriter, STREAM_CLOSE_MAX, STREAM_IDLE_MAX, STREAM_STALL_MAX, feed};
use crate::request::authentication::{WEBSOCKET_BEARER, subprotocols};

/// Largest message of a client. kubectl sends at most 32 KiB at once.
pub const STREAM_MESSAGE_BYTES_MAX: usize = 1024 * 1024;
/// The channel of the messages that end another channel.
const END_OF_CHANNEL: u8 = 255;

const VERSION: &str = "13";

/// How the messages of a protocol look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Coding {
    Binary,
    Base64,
}

/// A protocol of WebSocket channels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ChannelProtocol {
    pub(super) name: &'static str,
    pub(super) coding: Coding,
    /// Whether the result is a `Status` and not a text.
    pub(super) has_status: bool,
    /// Whether a client can end a channel.
    pub(super) has_ends: bool,
}

impl ChannelProtocol {
    const fn new(name: &'static str, coding: Coding, version: u8) -> Self {
        ChannelProtocol { name, coding, has_status: version >= 4, has_ends: version >= 5 }
    }
}

/// The protocols of commands. Without any the first of them is meant, and not named in the response.
pub(super) const COMMAND_PROTOCOLS: [ChannelProtocol; 5] = [
    ChannelProtocol::new("channel.k8s.io", Coding::Binary, 1),
    ChannelProtocol::new("base64.channel.k8s.io", Coding::Base64, 1),
    ChannelProtocol::new("v4.channel.k8s.io", Coding::Binary, 4),
    ChannelProtocol::new("v4.base64.channel.k8s.io", Coding::Base64, 4),
    ChannelProtocol::new("v5.channel.k8s.io", Coding::Binary, 5),
];

/// The protocols of port forwards without SPDY.
pub(super) const FORWARD_PROTOCOLS: [ChannelProtocol; 2] = [COMMAND_PROTOCOLS[2], COMMAND_PROTOCOLS[3]];

/// The protocol of port forwards that carries a SPDY connection.
pub(super) const TUNNEL: &str = "SPDY/3.1+portforward.k8s.io";

/// The protocols that a client offers, without the one that carries its token.
pub(super) fn offered(headers: &HeaderMap) -> Vec<&str> {
    subprotocols(headers).filter(|protocol| !protocol.starts_with(WEBSOCKET_BEARER)).collect()
}

/// The headers of the response to a handshake, or the code of its refusal.
pub(super) fn accept(headers: &HeaderMap, protocol: Option<&'static str>) -> Result<HeaderMap, StatusCode> {
    let text = |name: header::HeaderName| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let key = text(header::SEC_WEBSOCKET_KEY);
    if key.is_empty() || text(header::SEC_WEBSOCKET_VERSION) != VERSION {
        return Err(StatusCode::BAD_REQUEST);
    }
    let accept = HeaderValue::from_str(&derive_accept_key(key.as_bytes())).map_err(|_| StatusCode::BAD_REQUEST)?;
    let mut response = HeaderMap::new();
    response.insert(header::UPGRADE, HeaderValue::from_static("websocket"));
    response.insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
    response.insert(header::SEC_WEBSOCKET_ACCEPT, accept);
    if let Some(protocol) = protocol {
        response.insert(header::SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static(protocol));
    }
    Ok(response)
}

/// A socket of the server.
pub(super) type Socket = WebSocketStream<TokioIo<Upgraded>>;

pub(super) async fn socket(upgraded: Upgraded) -> Socket {
    let config = WebSocketConfig::default()
        .read_buffer_size(16 * 1024)
        .max_message_size(Some(STREAM_MESSAGE_BYTES_MAX))
        .max_frame_size(Some(STREAM_MESSAGE_BYTES_MAX));
    WebSocketStream::from_raw_socket(TokioIo::new(upgraded), Role::Server, Some(config)).await
}

/// A message of a client.
#[derive(Debug, PartialEq, Eq)]
pub enum Incoming {
    Data(u8, Bytes),
    End(u8),
    /// Empty, or not of a channel.
    Nothing,
}

/// Reads a message: `text` for text messages, which the protocols in base64 use.
#[must_use]
pub fn incoming(message: Bytes, is_base64: bool, has_ends: bool) -> Incoming {
    let mut message = message;
    if message.is_empty() {
        return Incoming::Nothing;
    }
    let channel = message.get_u8();
    if is_base64 {
        let Ok(decoded) = STANDARD.decode(&message) else { return Incoming::Nothing };
        return match channel {
            b'0'..=b'9' => Incoming::Data(channel - b'0', decoded.into()),
            _ => Incoming::Nothing,
        };
    }
    match (channel, has_ends) {
        (END_OF_CHANNEL, true) => message.first().map_or(Incoming::Nothing, |channel| Incoming::End(*channel)),
        _ => Incoming::Data(channel, message),
    }
}

fn outgoing(channel: u32, bytes: &[u8], coding: Coding) -> Message {
    let channel = u8::try_from(channel).unwrap_or_default();
    match coding {
        Coding::Binary => Message::binary([&[channel], bytes].concat()),
        Coding::Base64 => Message::text(format!("{}{}", char::from(b'0' + channel % 10), STANDARD.encode(bytes))),
    }
}

/// Carries channels over a socket until a close is sent or the client disconnects. `channels` are those that the client writes to.
pub(super) async fn carry_channels(
    socket: Socket,
    frames: mpsc::Receiver<Outgoing>,
    channels: Vec<Option<PipeWriter>>,
    protocol: ChannelProtocol,
) {
    let (sink, stream) = socket.split();
    tokio::select! {
        () = read_channels(stream, channels, protocol) => {}
        () = write_channels(sink, frames, protocol.coding) => {}
    }
}

async fn next(stream: &mut SplitStream<Socket>, limit: Duration) -> Option<Message> {
    match timeout(limit, stream.next()).await {
        Ok(Some(Ok(Message::Close(_)) | Err(_)) | None) | Err(_) => None,
        Ok(Some(Ok(message))) => Some(message),
    }
}

async fn read_channels(
    mut stream: SplitStream<Socket>,
    mut channels: Vec<Option<PipeWriter>>,
    protocol: ChannelProtocol,
) {
    while let Some(message) = next(&mut stream, STREAM_IDLE_MAX).await {
        if !(message.is_binary() || message.is_text()) {
            continue;
        }
        let is_base64 = protocol.coding == Coding::Base64;
        match incoming(message.into_data(), is_base64, protocol.has_ends) {
            Incoming::Data(channel, bytes) => {
                let Some(slot) = channels.get_mut(usize::from(channel)) else { continue };
                let Some(writer) = slot else { continue };
                match feed(writer, &bytes).await {
                    Ok(()) => {}
                    Err(error) if error.kind() == ErrorKind::TimedOut => return,
                    Err(_) => *slot = None,
                }
            }
            Incoming::End(channel) => {
                if let Some(mut writer) = channels.get_mut(usize::from(channel)).and_then(Option::take) {
                    let _ = writer.shutdown().await;
                }
            }
            Incoming::Nothing => {}
        }
    }
}

async fn send(sink: &mut SplitSink<Socket, Message>, message: Message) -> Result<(), Error> {
    let late = || Error::Io(std::io::ErrorKind::TimedOut.into());
    timeout(STREAM_STALL_MAX, sink.send(message)).await.unwrap_or_else(|_| Err(late()))
}

async fn write_channels(mut sink: SplitSink<Socket, Message>, mut frames: mpsc::Receiver<Outgoing>, coding: Coding) {
    while let Some(frame) = frames.recv().await {
        let message = match frame {
            Outgoing::Data(channel, bytes) => outgoing(channel, &bytes, coding),
            Outgoing::Close => {
                let _ = send(&mut sink, normal_close()).await;
                let _ = timeout(STREAM_CLOSE_MAX, sink.close()).await;
                return;
            }
            // Channels are neither opened nor ended by the server.
            Outgoing::Accept(_) | Outgoing::End(_) | Outgoing::Reset(_) | Outgoing::Pong(_) => continue,
        };
        if send(&mut sink, message).await.is_err() {
            return;
        }
    }
}

fn normal_close() -> Message {
    Message::Close(Some(CloseFrame { code: CloseCode::Normal, reason: "".into() }))
}

/// Carries the bytes of another connection over a socket, one message for each piece, until either side ends.
pub(super) async fn carry_bytes(socket: Socket, inner: DuplexStream) {
    let (mut sink, mut stream) = socket.split();
    let (mut reader, mut writer) = tokio::io::split(inner);
    let reading = async {
        while let Some(message) = next(&mut stream, STREAM_IDLE_MAX).await {
            if message.is_binary() && feed(&mut writer, &message.into_data()).await.is_err() {
                return;
            }
        }
    };
    let writing = async {
        let mut buffer = vec![0; PIPE_BYTES_MAX];
        loop {
            match reader.read(&mut buffer).await {
                Ok(0) | Err(_) => break,
                Ok(len) => {
                    let message = Message::binary(buffer.get(..len).unwrap_or_default().to_vec());
                    if send(&mut sink, message).await.is_err() {
                        return;
                    }
                }
            }
        }
        let _ = send(&mut sink, normal_close()).await;
        let _ = timeout(STREAM_CLOSE_MAX, sink.close()).await;
    };
    tokio::select! {
        () = reading => {}
        () = writing => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sp_5_messages_have_a_channel() {
        let read = |bytes: &'static [u8], is_base64, has_ends| incoming(Bytes::from_static(bytes), is_base64, has_ends);
        assert_eq!(read(b"\x00ls", false, true), Incoming::Data(0, Bytes::from_static(b"ls")));
        assert_eq!(read(b"\xff\x00", false, true), Incoming::End(0));
        assert_eq!(read(b"\xff\x00", false, false), Incoming::Data(255, Bytes::from_static(b"\0")));
        assert_eq!(read(b"\xff", false, true), Incoming::Nothing);
        assert_eq!(read(b"0bHM=", true, false), Incoming::Data(0, Bytes::from_static(b"ls")));
        assert_eq!(read(b"0*", true, false), Incoming::Nothing);
        assert_eq!(read(b"", false, true), Incoming::Nothing);
        assert_eq!(outgoing(1, b"ls", Coding::Base64), Message::text("1bHM="));
        assert_eq!(outgoing(3, b"x", Coding::Binary), Message::binary(&b"\x03x"[..]));
    }
}
