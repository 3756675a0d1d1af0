//! Discovery: `/api`, `/apis` and the paths below them. Aggregated documents are built once for each set of served kinds.

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

use crate::aggregation::MergedDiscovery;
use crate::request::negotiation::{accept_header, pretty};
use crate::request::reply::{self, Reply};
use crate::wire::body::ResponseBody;

const AGGREGATED: HeaderValue = HeaderValue::from_static(discovery::AGGREGATED_TYPE);
const AGGREGATED_PROTOBUF: HeaderValue =
    HeaderValue::from_static("application/vnd.kubernetes.protobuf;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList");
const PUBLIC: HeaderValue = HeaderValue::from_static("public");
const VARY_ACCEPT: HeaderValue = HeaderValue::from_static("Accept");

/// The aggregated documents of the served kinds.
#[derive(Default)]
pub struct DiscoveryBodies(Mutex<Option<Arc<Documents>>>);

struct Documents {
    kinds: Arc<Kinds>,
    core: Document,
    groups: Document,
}

struct Document {
    body: Bytes,
    etag: HeaderValue,
}

impl Document {
    fn new(value: &Value) -> Self {
        let mut body = machinery::go_text::json_bytes(value);
        body.push(b'\n');
        let etag = HeaderValue::from_str(&discovery::etag(&body)).unwrap_or(HeaderValue::from_static("\"\""));
        Document { body: body.into(), etag }
    }
}

impl DiscoveryBodies {
    fn documents(&self, kinds: &Arc<Kinds>) -> Arc<Documents> {
        let mut cached = self.0.lock();
        match &*cached {
            Some(documents) if Arc::ptr_eq(&documents.kinds, kinds) => Arc::clone(documents),
            _ => {
                let documents = Arc::new(Documents {
                    kinds: Arc::clone(kinds),
                    core: Document::new(&discovery::aggregated_core(kinds)),
                    groups: Document::new(&discovery::aggregated_groups(kinds)),
                });
                *cached = Some(Arc::clone(&documents));
                documents
            }
        }
    }

    /// `/api`; `address` is the one that the client connected to.
    pub(crate) fn core_versions(
        &self,
        kinds: &Arc<Kinds>,
        address: &str,
        headers: &HeaderMap,
        query: &Query,
    ) -> Result<Reply, Status> {
        match negotiate_discovery(accept_header(headers))? {
            Discovery::Aggregated(MediaType::Json) => Ok(aggregated(&self.documents(kinds).core, headers)),
            Discovery::Aggregated(media) => {
                let mut reply = encoded(&discovery::aggregated_core(kinds), media, headers, query)?;
                if media == MediaType::Protobuf {
                    reply.headers_mut().insert(header::CONTENT_TYPE, AGGREGATED_PROTOBUF);
                }
                Ok(reply)
            }
            Discovery::Plain(media) => {
                let mut reply = encoded(&discovery::core_versions(address), media, headers, query)?;
                reply.headers_mut().insert(header::VARY, VARY_ACCEPT);
                Ok(reply)
            }
        }
    }

    /// `/apis`
    pub(crate) fn groups(&self, kinds: &Arc<Kinds>, headers: &HeaderMap, query: &Query) -> Result<Reply, Status> {
        match negotiate_discovery(accept_header(headers))? {
            Discovery::Aggregated(MediaType::Json) => Ok(aggregated(&self.documents(kinds).groups, headers)),
            Discovery::Aggregated(media) => {
                let mut reply = encoded(&discovery::aggregated_groups(kinds), media, headers, query)?;
                if media == MediaType::Protobuf {
                    reply.headers_mut().insert(header::CONTENT_TYPE, AGGREGATED_PROTOBUF);
                }
                Ok(reply)
            }
            Discovery::Plain(media) => {
                let mut reply = encoded(&discovery::groups(kinds), media, headers, query)?;
                reply.headers_mut().insert(header::VARY, VARY_ACCEPT);
                Ok(reply)
            }
        }
    }
}

/// `/apis` of a server that passes some group versions on.
pub(crate) fn merged_groups(merged: &MergedDiscovery, headers: &HeaderMap, query: &Query) -> Result<Reply, Status> {
    match negotiate_discovery(accept_header(headers))? {
        Discovery::Aggregated(MediaType::Json) => Ok(aggregated(&Document::new(&merged.aggregated), headers)),
        Discovery::Aggregated(media) => {
            let mut reply = encoded(&merged.aggregated, media, headers, query)?;
            if media == MediaType::Protobuf {
                reply.headers_mut().insert(header::CONTENT_TYPE, AGGREGATED_PROTOBUF);
            }
            Ok(reply)
        }
        Discovery::Plain(media) => {
            let mut reply = encoded(&merged.groups, media, headers, query)?;
            reply.headers_mut().insert(header::VARY, VARY_ACCEPT);
            Ok(reply)
        }
    }
}

/// `/apis/{group}`, `/api/v1`, `/apis/{group}/{version}`: small enough to be built for each request.
pub(crate) fn plain(value: Option<Value>, headers: &HeaderMap, query: &Query) -> Result<Reply, Status> {
    let value = value.ok_or_else(Status::router_not_found)?;
    match negotiate_discovery(accept_header(headers))? {
        Discovery::Plain(media) => encoded(&value, media, headers, query),
        // These paths have no aggregated form; clients that ask for one also read JSON.
        Discovery::Aggregated(_) => encoded(&value, MediaType::Json, headers, query),
    }
}

fn aggregated(document: &Document, headers: &HeaderMap) -> Reply {
    let known = headers.get(header::IF_NONE_MATCH).is_some_and(|known| known == document.etag);
    let mut reply = if known {
        reply::with_body(304, AGGREGATED, ResponseBody::empty())
    } else {
        reply::whole(200, AGGREGATED, document.body.clone())
    };
    let headers = reply.headers_mut();
    headers.insert(header::ETAG, document.etag.clone());
    headers.insert(header::VARY, VARY_ACCEPT);
    headers.insert(header::CACHE_CONTROL, PUBLIC);
    reply
}

/// Encodes a value that is not an object of a kind, in the negotiated media type.
pub(crate) fn encoded(value: &Value, media: MediaType, headers: &HeaderMap, query: &Query) -> Result<Reply, Status> {
    let encoding = match media {
        MediaType::Yaml => Encoding::Yaml,
        MediaType::Protobuf => Encoding::Protobuf,
        MediaType::Json => Encoding::Json { pretty: pretty(headers, query) },
    };
    let form = Form { encoding, shape: Shape::Plain };
    let segments = View::Made { kind: None, value: value.clone() }.render(&form, Timestamp::UNIX_EPOCH)?;
    Ok(reply::rendered(200, encoding, segments))
}
