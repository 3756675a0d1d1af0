//! What `/api`, `/apis` and the paths below them say, made once for each set of served kinds.

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, header};
use jiff::Timestamp;
use machinery::Status;
use machinery::accept::{Discovery, negotiate_discovery};
use machinery::json::Value;
use machinery::media::MediaType;
use machinery::query::Query;
use parking_lot::Mutex;
use registry::discovery;
use registry::kinds::Kinds;
use registry::{Encoding, Form, Shape, View};

use crate::request::negotiation::{accept_header, pretty};
use crate::request::reply::{self, Reply};
use crate::wire::body::ResponseBody;

const AGGREGATED: HeaderValue = HeaderValue::from_static(discovery::AGGREGATED_TYPE);
const AGGREGATED_PROTOBUF: HeaderValue =
    HeaderValue::from_static("application/vnd.kubernetes.protobuf;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList");
const PUBLIC: HeaderValue = HeaderValue::from_static("public");
const VARY_ACCEPT: HeaderValue = HeaderValue::from_static("Accept");

/// The aggregated bodies of the kinds that are served now.
#[derive(Default)]
pub struct DiscoveryBodies(Mutex<Option<Arc<Made>>>);

struct Made {
    of: Arc<Kinds>,
    core: Tagged,
    groups: Tagged,
}

struct Tagged {
    body: Bytes,
    etag: HeaderValue,
}

impl Tagged {
    fn new(value: &Value) -> Self {
        let mut body = machinery::go_text::json_bytes(value);
        body.push(b'\n');
        let etag = HeaderValue::from_str(&discovery::etag(&body)).unwrap_or(HeaderValue::from_static("\"\""));
        Tagged { body: body.into(), etag }
    }
}

impl DiscoveryBodies {
    fn of(&self, kinds: &Arc<Kinds>) -> Arc<Made> {
        let mut held = self.0.lock();
        match &*held {
            Some(made) if Arc::ptr_eq(&made.of, kinds) => Arc::clone(made),
            _ => {
                let made = Arc::new(Made {
                    of: Arc::clone(kinds),
                    core: Tagged::new(&discovery::aggregated_core(kinds)),
                    groups: Tagged::new(&discovery::aggregated_groups(kinds)),
                });
                *held = Some(Arc::clone(&made));
                made
            }
        }
    }

    /// `/api`; the address is the one the client reached.
    pub(crate) fn core_versions(
        &self,
        kinds: &Arc<Kinds>,
        address: &str,
        headers: &HeaderMap,
        query: &Query,
    ) -> Result<Reply, Status> {
        match negotiate_discovery(accept_header(headers))? {
            Discovery::Aggregated(MediaType::Json) => Ok(aggregated(&self.of(kinds).core, headers)),
            Discovery::Aggregated(media) => {
                let mut reply = shown(&discovery::aggregated_core(kinds), media, headers, query)?;
                if media == MediaType::Protobuf {
                    reply.headers_mut().insert(header::CONTENT_TYPE, AGGREGATED_PROTOBUF);
                }
                Ok(reply)
            }
            Discovery::Plain(media) => {
                let mut reply = shown(&discovery::core_versions(address), media, headers, query)?;
                reply.headers_mut().insert(header::VARY, VARY_ACCEPT);
                Ok(reply)
            }
        }
    }

    /// `/apis`
    pub(crate) fn groups(&self, kinds: &Arc<Kinds>, headers: &HeaderMap, query: &Query) -> Result<Reply, Status> {
        match negotiate_discovery(accept_header(headers))? {
            Discovery::Aggregated(MediaType::Json) => Ok(aggregated(&self.of(kinds).groups, headers)),
            Discovery::Aggregated(media) => {
                let mut reply = shown(&discovery::aggregated_groups(kinds), media, headers, query)?;
                if media == MediaType::Protobuf {
                    reply.headers_mut().insert(header::CONTENT_TYPE, AGGREGATED_PROTOBUF);
                }
                Ok(reply)
            }
            Discovery::Plain(media) => {
                let mut reply = shown(&discovery::groups(kinds), media, headers, query)?;
                reply.headers_mut().insert(header::VARY, VARY_ACCEPT);
                Ok(reply)
            }
        }
    }
}

/// `/apis/{group}`, `/api/v1`, `/apis/{group}/{version}`: small enough to be made for each request.
pub(crate) fn plain(value: Option<Value>, headers: &HeaderMap, query: &Query) -> Result<Reply, Status> {
    let value = value.ok_or_else(Status::router_not_found)?;
    match negotiate_discovery(accept_header(headers))? {
        Discovery::Plain(media) => shown(&value, media, headers, query),
        // These paths know no aggregated form; JSON is what such a client reads next.
        Discovery::Aggregated(_) => shown(&value, MediaType::Json, headers, query),
    }
}

fn aggregated(tagged: &Tagged, headers: &HeaderMap) -> Reply {
    let known = headers.get(header::IF_NONE_MATCH).is_some_and(|known| known == tagged.etag);
    let mut reply = if known {
        reply::with_body(304, AGGREGATED, ResponseBody::empty())
    } else {
        reply::whole(200, AGGREGATED, tagged.body.clone())
    };
    let headers = reply.headers_mut();
    headers.insert(header::ETAG, tagged.etag.clone());
    headers.insert(header::VARY, VARY_ACCEPT);
    headers.insert(header::CACHE_CONTROL, PUBLIC);
    reply
}

/// A value that is no object of a kind, in the form that was asked for.
pub(crate) fn shown(value: &Value, media: MediaType, headers: &HeaderMap, query: &Query) -> Result<Reply, Status> {
    let encoding = match media {
        MediaType::Yaml => Encoding::Yaml,
        MediaType::Protobuf => Encoding::Protobuf,
        MediaType::Json => Encoding::Json { pretty: pretty(headers, query) },
    };
    let form = Form { encoding, shape: Shape::Plain };
    let segments = View::Made { kind: None, value: value.clone() }.render(&form, Timestamp::UNIX_EPOCH)?;
    Ok(reply::rendered(200, encoding, segments))
}
