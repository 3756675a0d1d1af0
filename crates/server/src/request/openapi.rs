//! `/openapi/v2` and `/openapi/v3`: documents of the served kinds, as JSON or protobuf.
//!
//! The documents are built by the schema crate; `cache` holds the recently requested ones. A document is identified by a
//! hash, which clients send in the URL to request it and in `If-None-Match` when they already have it.

mod cache;

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, header};
use jiff::{SignedDuration, Timestamp};
use machinery::accept::preferred;
use machinery::query::Query;
use registry::kinds::Kinds;
use registry::openapi::Encoding;
use serde_json::{Map, Value, json};

use crate::http_date::http_date;
use crate::limits::Limits;
use crate::request::negotiation::accept_header;
use crate::request::reply::{self, JSON, Reply};
use crate::wire::body::ResponseBody;
use cache::{DocumentCache, DocumentName};

/// Media types of version 2 and of version 3; the first of an encoding is that of the response.
const V2: [(&str, Encoding); 3] = [
    ("application/json", Encoding::Json),
    ("application/com.github.proto-openapi.spec.v2.v1.0+protobuf", Encoding::Message),
    ("application/com.github.proto-openapi.spec.v2@v1.0+protobuf", Encoding::Message),
];
const V3: [(&str, Encoding); 3] = [
    ("application/json", Encoding::Json),
    ("application/com.github.proto-openapi.spec.v3.v1.0+protobuf", Encoding::Message),
    ("application/com.github.proto-openapi.spec.v3@v1.0+protobuf", Encoding::Message),
];
/// Lifetime of a document that was requested by its hash: it never changes.
const EXPIRY: SignedDuration = SignedDuration::from_hours(365 * 24);
const VARY_ACCEPT: HeaderValue = HeaderValue::from_static("Accept");

/// The documents of the served kinds.
pub struct OpenApiDocuments(DocumentCache);

impl OpenApiDocuments {
    #[must_use]
    pub fn new(limits: &Limits) -> Self {
        OpenApiDocuments(DocumentCache::new(limits.openapi_bytes_max, limits.openapi_idle_timeout))
    }

    /// The document of version 2.
    pub(crate) async fn v2(&self, kinds: &Arc<Kinds>, headers: &HeaderMap) -> Reply {
        let Some(encoding) = negotiated(&V2, headers) else { return not_acceptable() };
        self.document(kinds, DocumentName::V2, encoding, &V2, headers).await.unwrap_or_else(reply::page_not_found)
    }

    /// The index of version 3, or the document of a path (`apis/apps/v1`).
    pub(crate) async fn v3(
        &self,
        kinds: &Arc<Kinds>,
        path: Option<String>,
        headers: &HeaderMap,
        query: &Query,
        now: Timestamp,
    ) -> Reply {
        let Some(path) = path else { return self.index(kinds, headers) };
        let name = DocumentName::V3(path);
        let (Some(hash), DocumentName::V3(path)) = (self.0.hash(kinds, &name), &name) else {
            return reply::page_not_found();
        };
        let Some(encoding) = negotiated(&V3, headers) else { return not_acceptable() };
        let wanted = query.get("hash").filter(|wanted| !wanted.is_empty());
        if wanted.is_some_and(|wanted| wanted != hash) {
            let mut reply = reply::with_body(301, reply::TEXT, ResponseBody::empty());
            if let Ok(location) = HeaderValue::from_str(&url(path, &hash)) {
                reply.headers_mut().insert(header::LOCATION, location);
            }
            reply.headers_mut().insert(header::VARY, VARY_ACCEPT);
            return reply;
        }
        let is_named = wanted.is_some();
        let Some(mut reply) = self.document(kinds, name, encoding, &V3, headers).await else {
            return reply::page_not_found();
        };
        if is_named {
            let immutable = HeaderValue::from_static("public, immutable");
            reply.headers_mut().insert(header::CACHE_CONTROL, immutable);
            let expires = now.saturating_add(EXPIRY).unwrap_or(Timestamp::MAX);
            if let Ok(expires) = HeaderValue::from_str(&http_date(expires)) {
                reply.headers_mut().insert(header::EXPIRES, expires);
            }
        }
        reply
    }

    /// The list of documents, each with a URL that identifies its present content.
    fn index(&self, kinds: &Arc<Kinds>, headers: &HeaderMap) -> Reply {
        let hashes = self.0.hashes(kinds);
        let urls: Map<String, Value> = hashes
            .into_iter()
            .map(|(path, hash)| {
                let url = url(&path, &hash);
                (path, json!({"serverRelativeURL": url}))
            })
            .collect();
        let body = machinery::go_text::json_bytes(&json!({"paths": urls}));
        let hash = registry::discovery::etag(&body);
        tagged(hash.trim_matches('"'), JSON, headers, || body.into())
    }

    async fn document(
        &self,
        kinds: &Arc<Kinds>,
        name: DocumentName,
        encoding: Encoding,
        types: &[(&'static str, Encoding)],
        headers: &HeaderMap,
    ) -> Option<Reply> {
        let hash = self.0.hash(kinds, &name)?;
        let media = types.iter().find(|(_, form)| *form == encoding).map(|(media, _)| *media)?;
        let media = HeaderValue::from_static(media);
        let body = match is_unchanged(&hash, headers) {
            true => Bytes::new(),
            false => self.0.document(kinds, name, encoding, &hash).await?,
        };
        let mut reply = tagged(&hash, media, headers, || body);
        reply.headers_mut().insert(header::VARY, VARY_ACCEPT);
        Some(reply)
    }
}

fn url(path: &str, hash: &str) -> String {
    format!("/openapi/v3/{path}?hash={hash}")
}

fn negotiated(types: &[(&str, Encoding); 3], headers: &HeaderMap) -> Option<Encoding> {
    preferred(accept_header(headers), &types.map(|(media, _)| media)).map(|at| types[at].1)
}

fn not_acceptable() -> Reply {
    let mut reply = reply::with_body(406, reply::TEXT, ResponseBody::empty());
    reply.headers_mut().insert(header::VARY, VARY_ACCEPT);
    reply
}

/// Returns whether the client already has this content; `If-None-Match` may list several.
fn is_unchanged(hash: &str, headers: &HeaderMap) -> bool {
    let known = headers.get(header::IF_NONE_MATCH).and_then(|known| known.to_str().ok()).unwrap_or_default();
    known.split(',').any(|known| {
        let known = known.trim();
        known == "*" || known.trim_start_matches("W/").trim_matches('"') == hash
    })
}

fn tagged(hash: &str, media: HeaderValue, headers: &HeaderMap, body: impl FnOnce() -> Bytes) -> Reply {
    let mut reply = match is_unchanged(hash, headers) {
        true => reply::with_body(304, media, ResponseBody::empty()),
        false => reply::whole(200, media, body()),
    };
    if let Ok(etag) = HeaderValue::from_str(&format!("\"{hash}\"")) {
        reply.headers_mut().insert(header::ETAG, etag);
    }
    reply
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kinds() -> Arc<Kinds> {
        Arc::new(registry::kinds::builtin().clone())
    }

    fn documents() -> OpenApiDocuments {
        OpenApiDocuments::new(&Limits::default())
    }

    fn accepting(media: &'static str) -> HeaderMap {
        HeaderMap::from_iter([(header::ACCEPT, HeaderValue::from_static(media))])
    }

    fn body(reply: Reply) -> Value {
        let whole = reply.into_body().into_whole().unwrap();
        serde_json::from_reader(bytes::Buf::reader(whole)).unwrap()
    }

    #[tokio::test]
    async fn both_versions_are_available_as_protobuf() {
        let documents = documents();
        for (wanted, _) in &V2[1..] {
            let reply = documents.v2(&kinds(), &accepting(wanted)).await;
            assert_eq!(reply.headers()[header::CONTENT_TYPE], V2[1].0);
            let whole = reply.into_body().into_whole().unwrap();
            assert!(bytes::Buf::chunk(&whole).starts_with(b"\x0a\x032.0\x12"));
        }
        for (wanted, _) in &V3[1..] {
            let path = Some("apis/batch/v1".to_owned());
            let reply =
                documents.v3(&kinds(), path, &accepting(wanted), &Query::default(), Timestamp::UNIX_EPOCH).await;
            assert_eq!(reply.headers()[header::CONTENT_TYPE], V3[1].0);
        }
        assert_eq!(documents.v2(&kinds(), &accepting("text/html")).await.status(), 406);
        let path = Some("api/v1".to_owned());
        let refused = documents.v3(&kinds(), path, &accepting(V2[1].0), &Query::default(), Timestamp::UNIX_EPOCH).await;
        assert_eq!(refused.status(), 406);
    }

    /// kubectl checks this before it sends `fieldValidation=Strict`.
    #[tokio::test]
    async fn patch_operations_name_their_kind_and_parameters() {
        let (headers, query) = (HeaderMap::new(), Query::default());
        let path = Some("apis/apps/v1".to_owned());
        let apps = body(documents().v3(&kinds(), path, &headers, &query, Timestamp::UNIX_EPOCH).await);
        let patch = &apps["paths"]["/apis/apps/v1/namespaces/{namespace}/deployments/{name}"]["patch"];
        assert_eq!(
            patch["x-kubernetes-group-version-kind"],
            json!({"group": "apps", "version": "v1", "kind": "Deployment"})
        );
        let names: Vec<&str> =
            patch["parameters"].as_array().unwrap().iter().map(|p| p["name"].as_str().unwrap()).collect();
        assert!(names.contains(&"fieldValidation") && names.contains(&"dryRun"), "{names:?}");
    }

    #[tokio::test]
    async fn hashes_lead_to_the_document_and_wrong_ones_to_the_right_one() {
        let (documents, kinds, headers) = (documents(), kinds(), HeaderMap::new());
        let api = || Some("api/v1".to_owned());
        let index = body(documents.v3(&kinds, None, &headers, &Query::default(), Timestamp::UNIX_EPOCH).await);
        let url = index["paths"]["api/v1"]["serverRelativeURL"].as_str().unwrap();
        let (_, query) = url.split_once('?').unwrap();
        let right = documents.v3(&kinds, api(), &headers, &Query::parse(query), Timestamp::UNIX_EPOCH).await;
        assert_eq!(right.status(), 200);
        assert_eq!(right.headers()[header::CACHE_CONTROL], "public, immutable");
        assert_eq!(right.headers()[header::EXPIRES], "Fri, 01 Jan 1971 00:00:00 GMT", "a year later");
        let wrong = documents.v3(&kinds, api(), &headers, &Query::parse("hash=AB"), Timestamp::UNIX_EPOCH).await;
        assert_eq!(wrong.status(), 301);
        assert_eq!(wrong.headers()[header::LOCATION], url);
        let etag = right.headers()[header::ETAG].clone();
        let known = HeaderMap::from_iter([(header::IF_NONE_MATCH, etag)]);
        assert_eq!(documents.v3(&kinds, api(), &known, &Query::default(), Timestamp::UNIX_EPOCH).await.status(), 304);
        let nope = Some("apis/nope/v1".to_owned());
        assert_eq!(documents.v3(&kinds, nope, &headers, &Query::default(), Timestamp::UNIX_EPOCH).await.status(), 404);
    }
}
