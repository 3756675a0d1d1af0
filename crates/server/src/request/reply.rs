//! Builds responses: bodies with their headers, and `Status` errors in a form that the client reads.

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Response, StatusCode, header};
use jiff::Timestamp;
use machinery::Status;
use machinery::accept::error_media;
use machinery::media::MediaType;
use registry::{Encoding, Form, Segments, Shape, View};

use crate::wire::body::ResponseBody;
use crate::wire::chunk::Chunk;

pub type Reply = Response<ResponseBody>;

pub const JSON: HeaderValue = HeaderValue::from_static("application/json");
pub const YAML: HeaderValue = HeaderValue::from_static("application/yaml");
pub const PROTOBUF: HeaderValue = HeaderValue::from_static("application/vnd.kubernetes.protobuf");
pub const PROTOBUF_WATCH: HeaderValue = HeaderValue::from_static("application/vnd.kubernetes.protobuf;stream=watch");
pub const TEXT: HeaderValue = HeaderValue::from_static("text/plain; charset=utf-8");
pub const NOSNIFF: HeaderValue = HeaderValue::from_static("nosniff");

/// A response with a whole body.
pub fn whole(code: u16, content_type: HeaderValue, body: impl Into<Chunk>) -> Reply {
    with_body(code, content_type, ResponseBody::whole(body))
}

/// A response with any body.
#[must_use]
pub fn with_body(code: u16, content_type: HeaderValue, body: ResponseBody) -> Reply {
    let mut reply = Response::new(body);
    *reply.status_mut() = StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    // Capacity for the headers that every response gets later, so that the map is allocated once.
    let mut headers = HeaderMap::with_capacity(6);
    headers.insert(header::CONTENT_TYPE, content_type);
    *reply.headers_mut() = headers;
    reply
}

/// A response of rendered slices.
#[must_use]
pub fn rendered(code: u16, encoding: Encoding, segments: Segments) -> Reply {
    rendered_chunk(code, encoding, Chunk::from(segments.0))
}

/// A response of a rendered chunk.
#[must_use]
pub(crate) fn rendered_chunk(code: u16, encoding: Encoding, chunk: Chunk) -> Reply {
    let content_type = match encoding {
        Encoding::Json { .. } => JSON,
        Encoding::Yaml => YAML,
        Encoding::Protobuf => PROTOBUF,
    };
    whole(code, content_type, chunk)
}

/// A response in plain text, for health checks and overload.
pub fn text(code: u16, text: impl Into<Bytes>) -> Reply {
    let mut reply = whole(code, TEXT, text.into());
    reply.headers_mut().insert(header::X_CONTENT_TYPE_OPTIONS, NOSNIFF);
    reply
}

/// The 404 of a path that is not part of the API.
#[must_use]
pub fn page_not_found() -> Reply {
    text(404, "404 page not found\n")
}

/// The 500 of a request that an authorizer could not decide. A browser may render this text: markup is escaped.
#[must_use]
pub fn undecided(uri: &http::Uri, error: &str) -> Reply {
    let uri = uri.path_and_query().map_or("", |path| path.as_str());
    let why = format!("Internal Server Error: {}: {error}\n", machinery::go_text::quote(uri));
    text(500, why.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;"))
}

/// The 429 of a server at one of its limits.
#[must_use]
pub fn overloaded() -> Reply {
    let mut reply = text(429, "Too many requests, please try again later.\n");
    reply.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
    reply
}

/// An error response with a `Status`, in a form that the client reads.
#[must_use]
pub fn status(status: &Status, accept: Option<&str>, pretty: bool) -> Reply {
    let encoding = match error_media(accept) {
        MediaType::Yaml => Encoding::Yaml,
        MediaType::Protobuf => Encoding::Protobuf,
        MediaType::Json => Encoding::Json { pretty },
    };
    let form = Form { encoding, shape: Shape::Plain };
    let segments = View::Status(status.clone()).render(&form, Timestamp::UNIX_EPOCH);
    let mut reply = match segments {
        Ok(segments) => rendered(status.http_code(), encoding, segments),
        Err(_) => whole(status.http_code(), JSON, status.to_json()),
    };
    let headers = reply.headers_mut();
    if let Some(seconds) = status.retry_after_seconds() {
        headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
    }
    if status.code == 403 {
        headers.insert(header::X_CONTENT_TYPE_OPTIONS, NOSNIFF);
    }
    reply
}
