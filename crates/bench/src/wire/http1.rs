//! A connection that speaks HTTP/1.1, one request at a time.

use std::io::Write as _;

use memchr::memmem;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

use super::framing::{Framing, Head};
use super::{Answer, Request, Stream, connect};
use crate::target::Target;
use crate::trouble::Trouble;

/// Two TLS records.
const BUFFER: usize = 32 * 1024;
/// Longest response head accepted.
const HEAD_MAX: usize = 256 * 1024;

pub(crate) struct Http1 {
    io: TlsStream<TcpStream>,
    /// Bytes that were read and not used yet are `buffer[start..end]`.
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    out: Vec<u8>,
    framing: Framing,
    authority: String,
    authorization: Option<String>,
}

impl Http1 {
    pub(super) async fn open(target: &Target) -> Result<Self, Trouble> {
        let io = connect(target, false).await?;
        Ok(Http1 {
            io,
            buffer: vec![0; BUFFER],
            start: 0,
            end: 0,
            out: Vec::with_capacity(1024),
            framing: Framing::Done,
            authority: target.authority.clone(),
            authorization: target.authorization.clone(),
        })
    }

    pub(super) async fn ask(&mut self, request: &Request) -> Result<Answer, Trouble> {
        let status = self.send(request).await?;
        let mut answer = Answer { status, bytes: 0, kept: Vec::new() };
        while self.read_body(&mut |piece| answer.take(piece)).await? {}
        Ok(answer)
    }

    pub(super) async fn watch(mut self: Box<Self>, path: &str) -> Result<Box<Self>, Trouble> {
        let status = self.send(&Request::get(path)).await?;
        if status == 200 {
            return Ok(self);
        }
        let mut answer = Answer { status, bytes: 0, kept: Vec::new() };
        let mut stream = Stream::Http1(self);
        while stream.read(|piece| answer.take(piece)).await? {}
        Err(Trouble::refused("watch", status, &answer.kept))
    }

    /// Sends a request and reads the head of its response.
    async fn send(&mut self, request: &Request) -> Result<u16, Trouble> {
        self.out.clear();
        let Request { method, path, content_type, body } = request;
        // Writing to memory does not fail.
        let _ =
            write!(self.out, "{method} {path} HTTP/1.1\r\nHost: {}\r\nAccept: application/json\r\n", self.authority);
        if let Some(authorization) = &self.authorization {
            let _ = write!(self.out, "Authorization: {authorization}\r\n");
        }
        if !content_type.is_empty() {
            let _ = write!(self.out, "Content-Type: {content_type}\r\nContent-Length: {}\r\n", body.len());
        }
        self.out.extend_from_slice(b"\r\n");
        self.out.extend_from_slice(body);
        self.io.write_all(&self.out).await.map_err(Trouble::gone)?;
        self.io.flush().await.map_err(Trouble::gone)?;
        let head = self.read_head().await?;
        self.framing = head.framing;
        Ok(head.status)
    }

    async fn read_head(&mut self) -> Result<Head, Trouble> {
        loop {
            let unused = &self.buffer[self.start..self.end];
            if let Some(at) = memmem::find(unused, b"\r\n\r\n") {
                let head = Head::parse(&unused[..at + 4]).map_err(|_| Trouble::gone("its response is not HTTP"))?;
                self.start += at + 4;
                return Ok(head);
            }
            if self.end - self.start >= HEAD_MAX {
                return Err(Trouble::gone("the head of its response is too long"));
            }
            if !self.fill().await? {
                return Err(Trouble::gone("it closed the connection"));
            }
        }
    }

    /// Reads once from the socket and passes the part of the body to `each`; false when the body has ended.
    pub(super) async fn read_body(&mut self, each: &mut (dyn FnMut(&[u8]) + Send)) -> Result<bool, Trouble> {
        if self.framing.is_done() {
            return Ok(false);
        }
        if self.start == self.end && !self.fill().await? {
            return match self.framing {
                Framing::UntilClose => {
                    self.framing = Framing::Done;
                    Ok(false)
                }
                _ => Err(Trouble::gone("it closed the connection in the middle of a response")),
            };
        }
        let used = self.framing.decode(&self.buffer[self.start..self.end], each);
        self.start += used.map_err(|_| Trouble::gone("its response is not HTTP"))?;
        Ok(!self.framing.is_done())
    }

    /// Reads more bytes into the buffer; false at the end of the connection.
    async fn fill(&mut self) -> Result<bool, Trouble> {
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        } else if self.end == self.buffer.len() {
            self.buffer.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
            if self.end == self.buffer.len() {
                self.buffer.resize(self.buffer.len() * 2, 0);
            }
        }
        let read = self.io.read(&mut self.buffer[self.end..]).await.map_err(Trouble::gone)?;
        self.end += read;
        Ok(read > 0)
    }
}
