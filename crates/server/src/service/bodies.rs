//! The bodies of requests, read within the limits, and compressed bodies of responses.

use std::time::Duration;

use access::identity::User;
use bytes::Bytes;
use http::request::Parts;
use http::{HeaderValue, StatusCode, header};
use machinery::Status;

use super::Inner;
use crate::limits::Slot;
use crate::request::reply::Reply;
use crate::wire::body::{BodyError, ReadTerms, RequestBody, ResponseBody};
use crate::wire::compression;

const VARY_ENCODING: HeaderValue = HeaderValue::from_static("Accept-Encoding");
const GZIP: HeaderValue = HeaderValue::from_static("gzip");

impl Inner {
    /// Reads the body of a request, within the limits on its size and speed and on the size of all bodies. They are charged
    /// for as long as the returned slot is held.
    pub(super) async fn read_body(&self, body: &mut RequestBody, user: &User) -> Result<(Bytes, Slot), Status> {
        let (limits, metrics) = (&self.limits, &self.metrics);
        let mut charged = metrics.body_bytes.force(0);
        let is_master = user.is_master();
        let mut charge =
            |bytes: usize| if is_master { charged.grow(bytes) } else { charged.grow_for(&user.name, bytes) };
        let terms = ReadTerms {
            bytes_max: limits.body_bytes_max,
            grace: limits.body_grace,
            bytes_per_second_min: limits.body_bytes_per_second_min,
            charge: &mut charge,
        };
        let (limit, status) = match body.read(terms).await {
            Ok(bytes) => return Ok((bytes, charged)),
            Err(BodyError::Broken(why)) => return Err(Status::bad_request(why)),
            Err(BodyError::TooLarge) => {
                let max = limits.body_bytes_max;
                ("body_bytes_max", Status::request_entity_too_large(format_args!("limit is {max}")))
            }
            Err(BodyError::NoBudget) => {
                let why = "the bodies of all requests are too large together, please try again later";
                (metrics.body_bytes.name(), Status::too_many_requests(why, 1))
            }
            Err(BodyError::TooSlow) => {
                let mut status = Status::timeout("the body of the request arrived too slowly");
                status.code = 408;
                ("body_bytes_per_second_min", status)
            }
        };
        metrics.refused(limit);
        Err(status)
    }

    /// Reads the rest of the body of a refused request over HTTP/1.1, or announces that the connection is closed after the
    /// response.
    pub(super) async fn finish_body(&self, body: &mut RequestBody, parts: &Parts, reply: &mut Reply) {
        let limits = &self.limits;
        // A client that waits for `100 Continue` sends no body after another response, and reading would ask for it.
        let waits = parts.headers.contains_key(header::EXPECT);
        let (bytes_max, time_max) = match reply.status() {
            StatusCode::PAYLOAD_TOO_LARGE => (limits.body_bytes_max.saturating_mul(4), limits.body_grace),
            StatusCode::REQUEST_TIMEOUT => (0, Duration::ZERO),
            _ => (limits.discard_bytes_max, limits.discard_timeout),
        };
        if waits || !body.discard(bytes_max, time_max).await {
            reply.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
    }

    pub(super) async fn compress(&self, reply: Reply, parts: &Parts) -> Reply {
        let bytes = reply.body().whole_len().filter(|len| *len > compression::BYTES_MIN);
        let Some(bytes) = bytes else { return reply };
        if reply.headers().contains_key(header::CONTENT_ENCODING) || !compression::accepted(&parts.headers) {
            return reply;
        }
        let (head, body) = reply.into_parts();
        let chunk = match body.into_whole() {
            Ok(chunk) => chunk,
            Err(body) => return Reply::from_parts(head, body),
        };
        let uncompressed = chunk.clone();
        let budget = self.metrics.unsent_bytes.clone();
        let work = async move {
            let compressed = compression::gzip(chunk);
            let charged = budget.force(compressed.len());
            Ok((compressed, charged))
        };
        match self.heavy.run(None, bytes, work).await {
            Ok((compressed, charged)) => {
                let mut reply = Reply::from_parts(head, ResponseBody::whole(compressed).until_sent(charged));
                reply.headers_mut().insert(header::CONTENT_ENCODING, GZIP);
                reply.headers_mut().append(header::VARY, VARY_ENCODING);
                reply
            }
            Err(_) => {
                let charged = self.metrics.unsent_bytes.force(bytes);
                Reply::from_parts(head, ResponseBody::whole(uncompressed).until_sent(charged))
            }
        }
    }
}
