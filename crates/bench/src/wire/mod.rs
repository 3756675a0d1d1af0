//! Requests and streams over TLS at the least cost: the load generator shares the machine with what it measures.
//!
//! - `framing`: the end of the body of an HTTP/1.1 response
//! - `http1`, `http2`: a connection of each protocol
//!
//! Bodies are passed on as they arrive and never decoded.

mod framing;
mod http1;
mod http2;

use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::target::Target;
use crate::trouble::Trouble;

use http1::Http1;
use http2::Http2;

/// Bytes of a body that are kept: a whole error, or the head of a list.
const KEPT_BYTES: usize = 64 * 1024;
/// Time without a response after which the server counts as gone.
const PATIENCE: Duration = Duration::from_secs(60);

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Protocol {
    #[default]
    Http1,
    Http2,
}

#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) method: &'static str,
    pub(crate) path: String,
    pub(crate) content_type: &'static str,
    pub(crate) body: Vec<u8>,
}

impl Request {
    pub(crate) fn get(path: impl Into<String>) -> Self {
        Request { method: "GET", path: path.into(), content_type: "", body: Vec::new() }
    }

    pub(crate) fn delete(path: impl Into<String>) -> Self {
        Request { method: "DELETE", ..Self::get(path) }
    }

    pub(crate) fn post(path: impl Into<String>, body: impl Into<Vec<u8>>) -> Self {
        Request { method: "POST", path: path.into(), content_type: "application/json", body: body.into() }
    }

    pub(crate) fn merge_patch(path: impl Into<String>, body: impl Into<Vec<u8>>) -> Self {
        Request { method: "PATCH", path: path.into(), content_type: "application/merge-patch+json", body: body.into() }
    }
}

#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    /// The size of the whole body.
    pub(crate) bytes: u64,
    /// The beginning of the body.
    pub(crate) kept: Vec<u8>,
}

impl Answer {
    pub(crate) fn succeeded(&self) -> bool {
        (200..300).contains(&self.status)
    }

    fn take(&mut self, piece: &[u8]) {
        self.bytes += piece.len() as u64;
        let room = KEPT_BYTES.saturating_sub(self.kept.len()).min(piece.len());
        self.kept.extend_from_slice(&piece[..room]);
    }
}

pub(crate) enum Connection {
    Http1(Box<Http1>),
    Http2(Http2),
}

impl Connection {
    pub(crate) async fn open(target: &Target, protocol: Protocol) -> Result<Self, Trouble> {
        Ok(match protocol {
            Protocol::Http1 => Connection::Http1(Box::new(Http1::open(target).await?)),
            Protocol::Http2 => Connection::Http2(Http2::open(target).await?),
        })
    }

    pub(crate) async fn ask(&mut self, request: &Request) -> Result<Answer, Trouble> {
        let asked = async {
            match self {
                Connection::Http1(connection) => connection.ask(request).await,
                Connection::Http2(connection) => connection.ask(request).await,
            }
        };
        match tokio::time::timeout(PATIENCE, asked).await {
            Ok(answered) => answered,
            Err(_) => {
                Err(Trouble::gone(format!("no response to {} {} for {PATIENCE:?}", request.method, request.path)))
            }
        }
    }

    /// As [`Connection::ask`]; anything but a success is a refusal to do `what`.
    pub(crate) async fn must(&mut self, what: &str, request: &Request) -> Result<Answer, Trouble> {
        let answer = self.ask(request).await?;
        if answer.succeeded() { Ok(answer) } else { Err(Trouble::refused(what, answer.status, &answer.kept)) }
    }

    /// Another user of the same connection, where the protocol has streams.
    pub(crate) fn share(&self) -> Option<Connection> {
        match self {
            Connection::Http1(_) => None,
            Connection::Http2(connection) => Some(Connection::Http2(connection.clone())),
        }
    }

    /// Opens a watch. The connection belongs to it from then on.
    pub(crate) async fn watch(self, path: &str) -> Result<Stream, Trouble> {
        let opened = async {
            match self {
                Connection::Http1(connection) => connection.watch(path).await.map(Stream::Http1),
                Connection::Http2(connection) => connection.watch(path).await.map(Stream::Http2),
            }
        };
        match tokio::time::timeout(PATIENCE, opened).await {
            Ok(opened) => opened,
            Err(_) => Err(Trouble::gone(format!("no response to a watch for {PATIENCE:?}"))),
        }
    }
}

/// The body of a watch.
pub(crate) enum Stream {
    Http1(Box<Http1>),
    Http2(Box<http2::Body>),
}

impl Stream {
    /// Waits for a part of the body and passes it to `each`; false at its end.
    pub(crate) async fn read(&mut self, mut each: impl FnMut(&[u8]) + Send) -> Result<bool, Trouble> {
        match self {
            Stream::Http1(connection) => connection.read_body(&mut each).await,
            Stream::Http2(body) => body.read(&mut each).await,
        }
    }
}

/// A TLS connection to the server, not yet speaking HTTP.
async fn connect(target: &Target, http2: bool) -> Result<TlsStream<TcpStream>, Trouble> {
    let unreachable = |error: std::io::Error| Trouble::Unreachable { url: target.url.clone(), why: error.to_string() };
    let opened = async {
        let tcp = TcpStream::connect(target.address).await?;
        tcp.set_nodelay(true)?;
        TlsConnector::from(target.tls(http2)).connect(target.name.clone(), tcp).await
    };
    match tokio::time::timeout(PATIENCE, opened).await {
        Ok(opened) => opened.map_err(unreachable),
        Err(_) => Err(unreachable(std::io::ErrorKind::TimedOut.into())),
    }
}
