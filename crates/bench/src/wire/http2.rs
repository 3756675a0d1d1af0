//! An HTTP/2 connection, and one of its streams.

use bytes::Bytes;
use h2::RecvStream;
use h2::client::{Builder, SendRequest};

use super::{Answer, Request, connect};
use crate::target::Target;
use crate::trouble::Trouble;

/// Large enough that a stream never waits for the generator.
const STREAM_WINDOW: u32 = 4 << 20;
const CONNECTION_WINDOW: u32 = 64 << 20;
const FRAME: u32 = 64 << 10;

#[derive(Clone)]
pub(crate) struct Http2 {
    sender: SendRequest<Bytes>,
    authority: String,
    authorization: Option<String>,
}

pub(crate) struct Body {
    body: RecvStream,
    /// Keeps the connection open as long as its stream is.
    _sender: SendRequest<Bytes>,
}

impl Http2 {
    pub(super) async fn open(target: &Target) -> Result<Self, Trouble> {
        let io = connect(target, true).await?;
        if io.get_ref().1.alpn_protocol() != Some(b"h2") {
            return Err(Trouble::impossible(format!("{} does not speak HTTP/2", target.url)));
        }
        let (sender, connection) = Builder::new()
            .initial_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .max_frame_size(FRAME)
            .handshake::<_, Bytes>(io)
            .await
            .map_err(Trouble::gone)?;
        // Ends with the connection; its errors reach the streams.
        tokio::spawn(async move {
            let _ = connection.await;
        });
        Ok(Http2 { sender, authority: target.authority.clone(), authorization: target.authorization.clone() })
    }

    pub(super) async fn ask(&mut self, request: &Request) -> Result<Answer, Trouble> {
        let (status, body) = self.send(request).await?;
        let mut answer = Answer { status, bytes: 0, kept: Vec::new() };
        let mut body = Body { body, _sender: self.sender.clone() };
        while body.read(&mut |piece| answer.take(piece)).await? {}
        Ok(answer)
    }

    pub(super) async fn watch(mut self, path: &str) -> Result<Box<Body>, Trouble> {
        let (status, body) = self.send(&Request::get(path)).await?;
        let mut body = Box::new(Body { body, _sender: self.sender });
        if status == 200 {
            return Ok(body);
        }
        let mut answer = Answer { status, bytes: 0, kept: Vec::new() };
        while body.read(&mut |piece| answer.take(piece)).await? {}
        Err(Trouble::refused("watch", status, &answer.kept))
    }

    async fn send(&mut self, request: &Request) -> Result<(u16, RecvStream), Trouble> {
        let mut head = http::Request::builder()
            .version(http::Version::HTTP_2)
            .method(request.method)
            .uri(format!("https://{}{}", self.authority, request.path))
            .header(http::header::ACCEPT, "application/json");
        if let Some(authorization) = &self.authorization {
            head = head.header(http::header::AUTHORIZATION, authorization);
        }
        if !request.content_type.is_empty() {
            head = head
                .header(http::header::CONTENT_TYPE, request.content_type)
                .header(http::header::CONTENT_LENGTH, request.body.len());
        }
        let head = head.body(()).map_err(Trouble::impossible)?;
        let mut ready = self.sender.clone().ready().await.map_err(Trouble::gone)?;
        let ends = request.body.is_empty();
        let (response, mut out) = ready.send_request(head, ends).map_err(Trouble::gone)?;
        if !ends {
            out.send_data(Bytes::copy_from_slice(&request.body), true).map_err(Trouble::gone)?;
        }
        let response = response.await.map_err(Trouble::gone)?;
        Ok((response.status().as_u16(), response.into_body()))
    }
}

impl Body {
    pub(super) async fn read(&mut self, each: &mut (dyn FnMut(&[u8]) + Send)) -> Result<bool, Trouble> {
        match self.body.data().await {
            None => Ok(false),
            Some(Err(error)) => Err(Trouble::gone(error)),
            Some(Ok(piece)) => {
                each(&piece);
                self.body.flow_control().release_capacity(piece.len()).map_err(Trouble::gone)?;
                Ok(true)
            }
        }
    }
}
