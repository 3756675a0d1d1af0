//! Port forwards: connections of a client to ports of a pod, over SPDY streams or WebSocket channels.
//!
//! Over SPDY each connection is a pair of streams, `data` and `error`, with the same `requestID`. Over WebSocket channels the ports are
//! those of the query, and each has one connection: channels 0 and 1 are data and error of the first port, and so on. The first
//! message of each channel is its port.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::containers::{ContainerRef, Containers, Reader};
use super::pipes::{Outgoing, PIPE_BYTES_MAX, STREAM_CLOSE_MAX, STREAM_CREATION_MAX, StreamWriter, frames, pipe};
use super::spdy::{self, NewStream, STREAMS_MAX, headers::value};
use super::websocket::{self, ChannelProtocol};

/// The protocol over SPDY.
pub(super) const FORWARD_PROTOCOL: &str = "portforward.k8s.io";
/// Ports of one request over WebSocket channels.
pub(super) const PORTS_MAX: usize = 100;

/// What a client asks for.
#[derive(Clone)]
pub(super) struct ForwardRequest {
    pub(super) containers: Arc<dyn Containers>,
    pub(super) of: ContainerRef,
    /// Name and UID of the pod, for messages.
    pub(super) pod: String,
    pub(super) uid: String,
}

impl ForwardRequest {
    /// Joins one connection, and reports why it failed. Returns whether it succeeded.
    async fn join(&self, port: u16, from: Reader, data: &StreamWriter, error: &StreamWriter) -> bool {
        let (reader, writer) = pipe();
        let joined = self.containers.forward(self.of.clone(), port, from, Box::new(writer));
        let (result, _) = tokio::join!(joined, data.send_all(reader));
        let Err(why) = result else { return true };
        let (pod, uid) = (&self.pod, &self.uid);
        let _ = error.write(format!("error forwarding port {port} to pod {pod}, uid {uid}: {why}")).await;
        false
    }
}

/// Forwards ports over SPDY.
pub(super) async fn over_spdy(request: ForwardRequest, upgraded: Upgraded) {
    serve_spdy(request, TokioIo::new(upgraded)).await;
}

/// Forwards ports over SPDY inside a WebSocket.
pub(super) async fn over_tunnel(request: ForwardRequest, upgraded: Upgraded) {
    let socket = websocket::socket(upgraded).await;
    let (inner, outer) = tokio::io::duplex(PIPE_BYTES_MAX);
    tokio::join!(websocket::carry_bytes(socket, outer), serve_spdy(request, inner));
}

async fn serve_spdy(request: ForwardRequest, io: impl AsyncRead + AsyncWrite + Send + 'static) {
    let (carrying, mut opened, frames) = spdy::serve(io);
    drop(frames);
    let mut pairs = Pairs::default();
    let mut connections = JoinSet::new();
    // Tasks of their own: here they would wait for `carrying`, which is not polled meanwhile.
    let mut resets = JoinSet::new();
    let mut carrying = std::pin::pin!(carrying);
    let mut overdue = tokio::time::interval(STREAM_CREATION_MAX);
    loop {
        tokio::select! {
            result = &mut carrying => {
                if let Err(error) = result {
                    tracing::trace!(%error, "a port forward ended");
                }
                return;
            }
            Some(stream) = opened.recv(), if resets.len() < STREAMS_MAX => match pairs.add(stream) {
                Added::Pair(_, Pair { data, error }) if connections.len() >= STREAMS_MAX => {
                    resets.spawn(reset(data.writer));
                    resets.spawn(reset(error.writer));
                }
                Added::Pair(port, pair) => {
                    let request = request.clone();
                    connections.spawn(async move { join_pair(&request, port, pair).await });
                }
                Added::Half => {}
                Added::Refused(writer) => drop(resets.spawn(reset(writer))),
            },
            _ = overdue.tick() => {
                for late in pairs.take_overdue() {
                    resets.spawn(reset(late.writer));
                }
            }
            Some(_) = connections.join_next(), if !connections.is_empty() => {}
            Some(_) = resets.join_next(), if !resets.is_empty() => {}
        }
    }
}

async fn reset(writer: StreamWriter) {
    let _ = writer.reset().await;
}

async fn join_pair(request: &ForwardRequest, port: u16, pair: Pair) {
    let Pair { data, error } = pair;
    let succeeded = tokio::select! {
        succeeded = request.join(port, Box::new(data.reader), &data.writer, &error.writer) => succeeded,
        _ = data.cancelled => false,
        _ = error.cancelled => false,
    };
    for writer in [&data.writer, &error.writer] {
        let _ = if succeeded { writer.end().await } else { writer.reset().await };
    }
}

/// Streams of which the other half is missing.
#[derive(Default)]
struct Pairs {
    waiting: HashMap<String, (u32, NewStream)>,
    /// Counts the checks for streams that wait too long.
    checks: u32,
}

/// The two streams of a connection.
struct Pair {
    data: NewStream,
    error: NewStream,
}

enum Added {
    Pair(u16, Pair),
    Half,
    Refused(StreamWriter),
}

impl Pairs {
    fn add(&mut self, stream: NewStream) -> Added {
        let port = value(&stream.headers, "port").parse::<u16>().ok().filter(|port| *port > 0);
        let kind = value(&stream.headers, "streamtype").to_owned();
        let (Some(port), "data" | "error") = (port, kind.as_str()) else { return Added::Refused(stream.writer) };
        let id = match value(&stream.headers, "requestid") {
            // Old clients send none: the number of a data stream is then that of its error stream and two.
            "" if kind == "data" => stream.writer.stream.saturating_sub(2).to_string(),
            "" => stream.writer.stream.to_string(),
            id => id.to_owned(),
        };
        let Some((since, other)) = self.waiting.remove(&id) else {
            if self.waiting.len() >= STREAMS_MAX {
                return Added::Refused(stream.writer);
            }
            self.waiting.insert(id, (self.checks, stream));
            return Added::Half;
        };
        match (value(&other.headers, "streamtype"), kind.as_str()) {
            ("error", "data") => Added::Pair(port, Pair { data: stream, error: other }),
            ("data", "error") => Added::Pair(port, Pair { data: other, error: stream }),
            _ => {
                self.waiting.insert(id, (since, other));
                Added::Refused(stream.writer)
            }
        }
    }

    /// Removes the streams that already waited at the check before this one.
    fn take_overdue(&mut self) -> Vec<NewStream> {
        let checks = self.checks;
        self.checks += 1;
        let overdue: Vec<String> =
            self.waiting.iter().filter(|(_, (since, _))| *since < checks).map(|(id, _)| id.clone()).collect();
        overdue.iter().filter_map(|id| self.waiting.remove(id)).map(|(_, stream)| stream).collect()
    }
}

/// The ports of a query, or why they cannot be read.
pub(super) fn ports<'q>(lists: impl Iterator<Item = &'q str>) -> Result<Vec<u16>, String> {
    let mut ports = Vec::new();
    for list in lists {
        if list.is_empty() {
            return Err("query parameter \"port\" cannot be empty".to_owned());
        }
        for text in list.split(',') {
            let quoted = machinery::go_text::quote(list);
            let port = text.parse::<u16>().map_err(|_| {
                let why = if text.bytes().all(|byte| byte.is_ascii_digit()) && !text.is_empty() {
                    "value out of range"
                } else {
                    "invalid syntax"
                };
                let text = machinery::go_text::quote(text);
                format!("unable to parse {quoted} as a port: strconv.ParseUint: parsing {text}: {why}")
            })?;
            if port == 0 {
                return Err(format!("port {quoted} must be > 0"));
            }
            ports.push(port);
        }
    }
    match ports.len() {
        0 => Err("query parameter \"port\" is required".to_owned()),
        1..=PORTS_MAX => Ok(ports),
        _ => Err(format!("at most {PORTS_MAX} ports can be forwarded at once")),
    }
}

/// Forwards ports over WebSocket channels.
pub(super) async fn over_channels(
    request: ForwardRequest,
    upgraded: Upgraded,
    ports: Vec<u16>,
    protocol: ChannelProtocol,
) {
    let socket = websocket::socket(upgraded).await;
    let (sender, waiting) = frames();
    let mut channels = Vec::with_capacity(ports.len() * 2);
    let mut connections = JoinSet::new();
    for (index, port) in (0u32..).zip(&ports) {
        let (reader, writer) = pipe();
        channels.extend([Some(writer), None]);
        let writer = |stream| StreamWriter { stream, frames: sender.clone() };
        let (request, port, data, error) = (request.clone(), *port, writer(index * 2), writer(index * 2 + 1));
        connections.spawn(async move {
            let number = Bytes::copy_from_slice(&port.to_le_bytes());
            if data.write(number.clone()).await.is_ok() && error.write(number).await.is_ok() {
                request.join(port, Box::new(reader), &data, &error).await;
            }
        });
    }
    let mut carrying = std::pin::pin!(websocket::carry_channels(socket, waiting, channels, protocol));
    let all_ended = async {
        while connections.join_next().await.is_some() {}
        close(&sender).await;
    };
    tokio::select! {
        () = &mut carrying => {}
        () = all_ended => {
            let _ = tokio::time::timeout(STREAM_CLOSE_MAX, carrying).await;
        }
    }
}

async fn close(frames: &mpsc::Sender<Outgoing>) {
    let _ = frames.send(Outgoing::Close).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stream(number: u32, headers: &[(&str, &str)]) -> NewStream {
        let headers = headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let writer = StreamWriter { stream: number, frames: frames().0 };
        NewStream { headers, reader: pipe().0, writer, cancelled: tokio::sync::oneshot::channel().1 }
    }

    #[test]
    fn sp_8_streams_are_paired_by_their_request() {
        let mut pairs = Pairs::default();
        let half = |kind, id| stream(1, &[("port", "80"), ("streamtype", kind), ("requestid", id)]);
        assert!(matches!(pairs.add(half("error", "0")), Added::Half));
        assert!(matches!(pairs.add(half("data", "1")), Added::Half));
        assert!(matches!(pairs.add(half("error", "0")), Added::Refused(_)), "a second error stream");
        assert!(matches!(pairs.add(half("data", "0")), Added::Pair(80, _)));
        assert!(matches!(pairs.add(half("error", "1")), Added::Pair(80, _)));
        // Without an identifier: by the numbers of the streams.
        assert!(matches!(pairs.add(stream(5, &[("port", "80"), ("streamtype", "error")])), Added::Half));
        assert!(matches!(pairs.add(stream(7, &[("port", "80"), ("streamtype", "data")])), Added::Pair(80, _)));
        for headers in [&[("port", "0"), ("streamtype", "data")][..], &[("port", "80")], &[("streamtype", "data")]] {
            assert!(matches!(pairs.add(stream(9, headers)), Added::Refused(_)), "{headers:?}");
        }
        assert!(matches!(pairs.add(half("data", "2")), Added::Half));
        assert_eq!((pairs.take_overdue().len(), pairs.take_overdue().len()), (0, 1));
    }

    #[test]
    fn sp_9_ports_are_read_as_a_kubelet_reads_them() {
        let read = |lists: &[&'static str]| ports(lists.iter().copied());
        assert_eq!(read(&["80,443", "8080"]), Ok(vec![80, 443, 8080]));
        let refused = |lists| read(lists).unwrap_err();
        assert_eq!(refused(&[]), "query parameter \"port\" is required");
        assert_eq!(refused(&[""]), "query parameter \"port\" cannot be empty");
        assert_eq!(refused(&["0"]), "port \"0\" must be > 0");
        assert_eq!(
            refused(&["x"]),
            "unable to parse \"x\" as a port: strconv.ParseUint: parsing \"x\": invalid syntax"
        );
    }
}
