//! One request on a connection of its own, and the head of its answer (RFC 9112).

use std::io;

use bytes::{Buf, BytesMut};
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode, Uri, header};
use thiserror::Error;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use super::BoxError;
use super::body::{AnswerBody, Framing, READ_BYTES};

/// A head longer than this is none.
const HEAD_BYTES_MAX: usize = 128 << 10;
/// More headers than this is not an answer either.
const HEADERS_MAX: usize = 128;

/// An answer that breaks the rules of HTTP.
#[derive(Debug, Error)]
pub(super) enum Malformed {
    #[error("the answer is not HTTP/1.1: {0}")]
    Head(String),
    #[error("the head of the answer is longer than {HEAD_BYTES_MAX} bytes")]
    LongHead,
    #[error("the answer names its length in a way that cannot be read")]
    Length,
    #[error("a piece of the answer does not name its length")]
    Chunk,
}

/// Sends a request that has no body, and reads the head of its answer.
pub(super) async fn exchange<I>(mut io: I, request: &Parts) -> Result<Response<AnswerBody<I>>, BoxError>
where
    I: AsyncRead + AsyncWrite + Unpin,
{
    io.write_all(&head_of(request)?).await?;
    io.flush().await?;
    let mut read = BytesMut::with_capacity(READ_BYTES);
    loop {
        if let Some((answer, length)) = parse(&read)? {
            read.advance(length);
            // "Continue" and the like: the answer itself follows.
            if answer.status().is_informational() {
                continue;
            }
            let framing = framing_of(&answer)?;
            return Ok(answer.map(|()| AnswerBody::new(io, read, framing)));
        }
        if read.len() > HEAD_BYTES_MAX {
            return Err(Malformed::LongHead.into());
        }
        read.reserve(READ_BYTES);
        if io.read_buf(&mut read).await? == 0 {
            return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
        }
    }
}

/// The request as a server reads it: its path alone, and the host as a header.
fn head_of(request: &Parts) -> Result<Vec<u8>, BoxError> {
    let path = request.uri.path_and_query().map_or("/", |path| path.as_str());
    let mut head = format!("{} {path} HTTP/1.1\r\n", request.method).into_bytes();
    let mut line = |name: &HeaderName, value: &HeaderValue| {
        head.extend_from_slice(name.as_ref());
        head.extend_from_slice(b": ");
        head.extend_from_slice(value.as_bytes());
        head.extend_from_slice(b"\r\n");
    };
    if !request.headers.contains_key(header::HOST) {
        line(&header::HOST, &HeaderValue::from_str(host_of(&request.uri))?);
    }
    for (name, value) in &request.headers {
        line(name, value);
    }
    head.extend_from_slice(b"\r\n");
    Ok(head)
}

/// Without a user's name, which is not part of a host.
fn host_of(uri: &Uri) -> &str {
    let authority = uri.authority().map_or("", |authority| authority.as_str());
    authority.rsplit('@').next().unwrap_or_default()
}

/// The head and its length; nothing if it is not all there.
fn parse(read: &[u8]) -> Result<Option<(Response<()>, usize)>, BoxError> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut head = httparse::Response::new(&mut headers);
    let length = match head.parse(read) {
        Ok(httparse::Status::Complete(length)) => length,
        Ok(httparse::Status::Partial) => return Ok(None),
        Err(error) => return Err(Malformed::Head(error.to_string()).into()),
    };
    let mut answer = Response::new(());
    *answer.status_mut() = StatusCode::from_u16(head.code.unwrap_or_default())?;
    for header in head.headers.iter() {
        let name = HeaderName::from_bytes(header.name.as_bytes())?;
        answer.headers_mut().append(name, HeaderValue::from_bytes(header.value)?);
    }
    Ok(Some((answer, length)))
}

fn framing_of(answer: &Response<()>) -> Result<Framing, Malformed> {
    if matches!(answer.status(), StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED) {
        return Ok(Framing::Length(0));
    }
    // An answer that has both is read by this one.
    if answer.headers().contains_key(header::TRANSFER_ENCODING) {
        return Ok(if is_chunked(answer.headers()) { Framing::chunks() } else { Framing::UntilClosed });
    }
    let mut lengths = answer.headers().get_all(header::CONTENT_LENGTH).iter().map(length_of);
    let Some(length) = lengths.next() else { return Ok(Framing::UntilClosed) };
    let length = length.ok_or(Malformed::Length)?;
    lengths.all(|other| other == Some(length)).then_some(Framing::Length(length)).ok_or(Malformed::Length)
}

fn length_of(value: &HeaderValue) -> Option<u64> {
    let digits = value.as_bytes();
    // `parse` alone would take a sign.
    digits.iter().all(u8::is_ascii_digit).then(|| value.to_str().ok()?.parse().ok())?
}

/// Chunks are the last thing that was done to the body.
fn is_chunked(headers: &HeaderMap) -> bool {
    let last = headers.get_all(header::TRANSFER_ENCODING).iter().next_back();
    let coding = last.and_then(|value| value.to_str().ok()?.rsplit(',').next());
    coding.is_some_and(|coding| coding.trim().eq_ignore_ascii_case("chunked"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body_util::BodyExt;
    use tokio::io::duplex;

    /// What a client makes of an answer that arrives in pieces of so many bytes, and what it had asked.
    async fn answer_in(pieces: usize, answer: &[u8], uri: &str) -> (Result<(u16, Vec<u8>), String>, String) {
        let (client, mut server) = duplex(1 << 20);
        let answer = answer.to_vec();
        let serving = tokio::spawn(async move {
            let mut asked = vec![0; 4096];
            let length = server.read(&mut asked).await.unwrap();
            for piece in answer.chunks(pieces) {
                if server.write_all(piece).await.is_err() {
                    break;
                }
                tokio::task::yield_now().await;
            }
            String::from_utf8_lossy(&asked[..length]).into_owned()
        });
        let request = http::Request::get(uri).header("accept", "application/json").body(()).unwrap().into_parts().0;
        let answered = async {
            let answer = exchange(client, &request).await?;
            let code = answer.status().as_u16();
            let body = answer.into_body().collect().await?.to_bytes();
            Ok::<_, BoxError>((code, body.to_vec()))
        };
        (answered.await.map_err(|error| error.to_string()), serving.await.unwrap())
    }

    async fn answer(answer: &[u8]) -> Result<(u16, Vec<u8>), String> {
        let whole = answer_in(usize::MAX, answer, "http://h/").await.0;
        // However it arrives.
        for pieces in [1, 2, 7] {
            assert_eq!(answer_in(pieces, answer, "http://h/").await.0, whole, "in pieces of {pieces}");
        }
        whole
    }

    fn body(text: &str) -> Result<(u16, Vec<u8>), String> {
        Ok((200, text.as_bytes().to_vec()))
    }

    #[tokio::test]
    async fn a_server_is_asked_by_path_and_host() {
        let asked = async |uri: &str| answer_in(99, b"HTTP/1.1 204 No Content\r\n\r\n", uri).await.1;
        let text = asked("https://[::1]:6443/api?watch=1").await;
        assert_eq!(text, "GET /api?watch=1 HTTP/1.1\r\nhost: [::1]:6443\r\naccept: application/json\r\n\r\n");
        let text = asked("https://user:word@example.com").await;
        assert_eq!(text, "GET / HTTP/1.1\r\nhost: example.com\r\naccept: application/json\r\n\r\n");
    }

    #[tokio::test]
    async fn chunks_are_joined_whatever_their_sizes_and_extensions() {
        let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, Chunked\r\n\r\n";
        let joined = |rest: &str| format!("{head}{rest}").into_bytes();
        assert_eq!(answer(&joined("3\r\nabc\r\nA;x=\"y\"\r\n0123456789\r\n0\r\n\r\n")).await, body("abc0123456789"));
        assert_eq!(answer(&joined("1\r\na\r\n000\r\nx: y\r\nz: w\r\n\r\n")).await, body("a"), "with trailers");
    }

    #[tokio::test]
    async fn a_body_ends_where_its_length_says_or_where_the_connection_does() {
        assert_eq!(answer(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabcdef").await, body("abc"));
        assert_eq!(answer(b"HTTP/1.0 200 OK\r\n\r\nabcdef").await, body("abcdef"));
        assert_eq!(answer(b"HTTP/1.1 200 OK\r\ntransfer-encoding: gzip\r\n\r\nabc").await, body("abc"));
        assert_eq!(answer(b"HTTP/1.1 204 No Content\r\ncontent-length: 3\r\n\r\nabc").await, Ok((204, Vec::new())));
        let both = b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\ntransfer-encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n";
        assert_eq!(answer(both).await, body("a"));
    }

    #[tokio::test]
    async fn what_comes_before_the_answer_is_passed_over() {
        let text = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: a\r\n\r\nHTTP/1.1 403 Forbidden\r\ncontent-length: 2\r\n\r\nno";
        assert_eq!(answer(text).await, Ok((403, b"no".to_vec())));
    }

    #[tokio::test]
    async fn an_answer_that_is_cut_is_a_broken_connection() {
        for text in [
            "",
            "HTTP/1.1 200 OK\r\n",
            "HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nab",
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n",
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5",
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nabc",
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc",
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n",
        ] {
            let error = answer(text.as_bytes()).await.unwrap_err();
            assert!(error.contains("unexpected end of file"), "{text:?}: {error}");
        }
    }

    #[tokio::test]
    async fn what_is_not_http_is_said_to_be_none() {
        for (text, error) in [
            ("SSH-2.0-OpenSSH\r\n", "is not HTTP/1.1"),
            ("HTTP/2.0 200 OK\r\n\r\n", "is not HTTP/1.1"),
            ("HTTP/1.1 200 OK\r\nbad header\r\n\r\n", "is not HTTP/1.1"),
            ("HTTP/1.1 099 What\r\n\r\n", "status code"),
            ("HTTP/1.1 200 OK\r\ncontent-length: +3\r\n\r\nabc", "its length"),
            ("HTTP/1.1 200 OK\r\ncontent-length: 3\r\ncontent-length: 4\r\n\r\nabcd", "its length"),
            ("HTTP/1.1 200 OK\r\ncontent-length: 99999999999999999999\r\n\r\n", "its length"),
            ("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nxyz\r\n", "does not name its length"),
            ("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n-1\r\n", "does not name its length"),
            ("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nfffffffffffffffff\r\n", "does not name its length"),
            ("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1\r\nabc\r\n", "does not name its length"),
        ] {
            let told = answer(text.as_bytes()).await.unwrap_err();
            assert!(told.contains(error), "{text:?}: {told}");
        }
    }

    #[tokio::test]
    async fn nothing_that_a_server_sends_without_end_is_kept_without_end() {
        let endless = |head: &str| [head.as_bytes(), &[b'a'; 2 * HEAD_BYTES_MAX][..]].concat();
        let told = async |text: Vec<u8>| answer_in(64 << 10, &text, "http://h/").await.0.unwrap_err();
        assert!(told(endless("HTTP/1.1 200 OK\r\nx: ")).await.contains("longer than"));
        assert!(
            told(endless("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1;")).await.contains("name its length")
        );
        let trailers = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n0\r\nx: ";
        assert!(told(endless(trailers)).await.contains("name its length"));
    }
}
