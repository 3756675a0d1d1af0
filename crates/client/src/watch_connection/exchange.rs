//! One request on a connection of its own, and the head of its response (RFC 9112).

use std::io;

use bytes::{Buf, BytesMut};
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode, Uri, header};
use thiserror::Error;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use super::BoxError;
use super::body::{Framing, READ_BYTES, ResponseBody};

/// Longest response head accepted.
const HEAD_BYTES_MAX: usize = 128 << 10;
/// Heads up to this length are parsed after each read, so that a peer that does not speak HTTP is noticed at once. Longer ones
/// are parsed again only when another line has arrived: parsing starts at the beginning each time.
const PARSE_EACH_READ_BYTES_MAX: usize = 1 << 10;
/// Most headers accepted in a response.
const HEADERS_MAX: usize = 128;

/// A response that violates HTTP.
#[derive(Debug, Error)]
pub(super) enum MalformedResponse {
    #[error("the response is not HTTP/1.1: {0}")]
    Head(String),
    #[error("the response head is longer than {HEAD_BYTES_MAX} bytes")]
    LongHead,
    #[error("the response has an invalid content length")]
    Length,
    #[error("a chunk of the response has an invalid size or end")]
    Chunk,
}

/// Sends a request that has no body, and reads the head of its response.
pub async fn exchange<I>(mut io: I, request: &Parts) -> Result<Response<ResponseBody<I>>, BoxError>
where
    I: AsyncRead + AsyncWrite + Unpin,
{
    io.write_all(&request_head(request)?).await?;
    io.flush().await?;
    let mut read = BytesMut::with_capacity(READ_BYTES);
    let mut parsed = 0;
    loop {
        let is_short = parsed == 0 || read.len() <= PARSE_EACH_READ_BYTES_MAX;
        if (is_short || memchr::memchr(b'\n', &read[parsed..]).is_some())
            && let Some((response, length)) = parse_head(&read)?
        {
            read.advance(length);
            parsed = 0;
            // "Continue" and the like: the final response follows.
            if response.status().is_informational() {
                continue;
            }
            let framing = body_framing(&response)?;
            return Ok(response.map(|()| ResponseBody::new(io, read, framing)));
        }
        if read.len() > HEAD_BYTES_MAX {
            return Err(MalformedResponse::LongHead.into());
        }
        parsed = read.len();
        read.reserve(READ_BYTES);
        if io.read_buf(&mut read).await? == 0 {
            // The last bytes may not have been parsed: they decide between a malformed head and one that was cut.
            parse_head(&read)?;
            return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
        }
    }
}

/// The head of the request: its path and query, and the host as a header.
fn request_head(request: &Parts) -> Result<Vec<u8>, BoxError> {
    let path = request.uri.path_and_query().map_or("/", |path| path.as_str());
    let mut head = format!("{} {path} HTTP/1.1\r\n", request.method).into_bytes();
    let mut line = |name: &HeaderName, value: &HeaderValue| {
        head.extend_from_slice(name.as_ref());
        head.extend_from_slice(b": ");
        head.extend_from_slice(value.as_bytes());
        head.extend_from_slice(b"\r\n");
    };
    if !request.headers.contains_key(header::HOST) {
        line(&header::HOST, &HeaderValue::from_str(host(&request.uri))?);
    }
    for (name, value) in &request.headers {
        line(name, value);
    }
    head.extend_from_slice(b"\r\n");
    Ok(head)
}

/// Host and port, without user information.
fn host(uri: &Uri) -> &str {
    let authority = uri.authority().map_or("", |authority| authority.as_str());
    authority.rsplit('@').next().unwrap_or_default()
}

/// The head and its length; `None` if it is incomplete.
fn parse_head(read: &[u8]) -> Result<Option<(Response<()>, usize)>, BoxError> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut head = httparse::Response::new(&mut headers);
    let length = match head.parse(read) {
        Ok(httparse::Status::Complete(length)) => length,
        Ok(httparse::Status::Partial) => return Ok(None),
        Err(error) => return Err(MalformedResponse::Head(error.to_string()).into()),
    };
    let mut response = Response::new(());
    *response.status_mut() = StatusCode::from_u16(head.code.unwrap_or_default())?;
    for header in head.headers.iter() {
        let name = HeaderName::from_bytes(header.name.as_bytes())?;
        response.headers_mut().append(name, HeaderValue::from_bytes(header.value)?);
    }
    Ok(Some((response, length)))
}

fn body_framing(response: &Response<()>) -> Result<Framing, MalformedResponse> {
    if matches!(response.status(), StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED) {
        return Ok(Framing::Length(0));
    }
    // Takes precedence over a content length.
    if response.headers().contains_key(header::TRANSFER_ENCODING) {
        return Ok(if is_chunked(response.headers()) { Framing::chunks() } else { Framing::UntilClosed });
    }
    let mut lengths = response.headers().get_all(header::CONTENT_LENGTH).iter().map(parse_length);
    let Some(length) = lengths.next() else { return Ok(Framing::UntilClosed) };
    let length = length.ok_or(MalformedResponse::Length)?;
    lengths.all(|other| other == Some(length)).then_some(Framing::Length(length)).ok_or(MalformedResponse::Length)
}

fn parse_length(value: &HeaderValue) -> Option<u64> {
    let digits = value.as_bytes();
    // `parse` alone would accept a sign.
    digits.iter().all(u8::is_ascii_digit).then(|| value.to_str().ok()?.parse().ok())?
}

/// True if chunked is the last transfer coding.
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

    /// Returns the result for a response that arrives in pieces of `pieces` bytes, and the request as the server received it.
    async fn response_in(pieces: usize, answer: &[u8], uri: &str) -> (Result<(u16, Vec<u8>), String>, String) {
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
        let whole = response_in(usize::MAX, answer, "http://h/").await.0;
        // However it arrives.
        for pieces in [1, 2, 7] {
            assert_eq!(response_in(pieces, answer, "http://h/").await.0, whole, "in pieces of {pieces}");
        }
        whole
    }

    fn body(text: &str) -> Result<(u16, Vec<u8>), String> {
        Ok((200, text.as_bytes().to_vec()))
    }

    #[tokio::test]
    async fn a_request_has_path_and_host() {
        let asked = async |uri: &str| response_in(99, b"HTTP/1.1 204 No Content\r\n\r\n", uri).await.1;
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
    async fn a_body_ends_after_its_length_or_with_the_connection() {
        assert_eq!(answer(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabcdef").await, body("abc"));
        assert_eq!(answer(b"HTTP/1.0 200 OK\r\n\r\nabcdef").await, body("abcdef"));
        assert_eq!(answer(b"HTTP/1.1 200 OK\r\ntransfer-encoding: gzip\r\n\r\nabc").await, body("abc"));
        assert_eq!(answer(b"HTTP/1.1 204 No Content\r\ncontent-length: 3\r\n\r\nabc").await, Ok((204, Vec::new())));
        let both = b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\ntransfer-encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n";
        assert_eq!(answer(both).await, body("a"));
    }

    #[tokio::test]
    async fn informational_responses_are_skipped() {
        let text = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: a\r\n\r\nHTTP/1.1 403 Forbidden\r\ncontent-length: 2\r\n\r\nno";
        assert_eq!(answer(text).await, Ok((403, b"no".to_vec())));
    }

    #[tokio::test]
    async fn a_response_that_is_cut_is_a_broken_connection() {
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
    async fn responses_that_violate_http_are_errors() {
        for (text, error) in [
            ("SSH-2.0-OpenSSH\r\n", "is not HTTP/1.1"),
            ("HTTP/2.0 200 OK\r\n\r\n", "is not HTTP/1.1"),
            ("HTTP/1.1 200 OK\r\nbad header\r\n\r\n", "is not HTTP/1.1"),
            ("HTTP/1.1 099 What\r\n\r\n", "status code"),
            ("HTTP/1.1 200 OK\r\ncontent-length: +3\r\n\r\nabc", "content length"),
            ("HTTP/1.1 200 OK\r\ncontent-length: 3\r\ncontent-length: 4\r\n\r\nabcd", "content length"),
            ("HTTP/1.1 200 OK\r\ncontent-length: 99999999999999999999\r\n\r\n", "content length"),
            ("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nxyz\r\n", "invalid size or end"),
            ("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n-1\r\n", "invalid size or end"),
            ("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nfffffffffffffffff\r\n", "invalid size or end"),
            ("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1\r\nabc\r\n", "invalid size or end"),
        ] {
            let found = answer(text.as_bytes()).await.unwrap_err();
            assert!(found.contains(error), "{text:?}: {found}");
        }
    }

    #[tokio::test]
    async fn endless_heads_sizes_and_trailers_are_errors() {
        let endless = |head: &str| [head.as_bytes(), &[b'a'; 2 * HEAD_BYTES_MAX][..]].concat();
        let error_of = async |text: Vec<u8>| response_in(64 << 10, &text, "http://h/").await.0.unwrap_err();
        assert!(error_of(endless("HTTP/1.1 200 OK\r\nx: ")).await.contains("longer than"));
        assert!(
            error_of(endless("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1;"))
                .await
                .contains("invalid size or end")
        );
        let trailers = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n0\r\nx: ";
        assert!(error_of(endless(trailers)).await.contains("invalid size or end"));
    }
}
