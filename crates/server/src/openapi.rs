//! `/openapi/v2` and `/openapi/v3`: the operations of the served kinds, without the schemas of their fields.
//!
//! Enough for clients to learn what they ask of a server before they write: which paths and methods there are, for which
//! kind, and which query parameters they take (`fieldValidation`, `dryRun`, …). Made on first use, once for each set of
//! served kinds.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, header};
use machinery::Status;
use machinery::json::{Map, Value, json};
use machinery::query::Query;
use parking_lot::Mutex;
use registry::discovery;
use registry::kind::Kind;
use registry::kinds::Kinds;

use crate::body::ResponseBody;
use crate::negotiation::accept_header;
use crate::reply::{self, JSON, Reply};
use crate::version;

/// The documents of the kinds that are served now.
#[derive(Default)]
pub struct OpenApiDocuments(Mutex<Option<Arc<Made>>>);

struct Made {
    of: Arc<Kinds>,
    v2: Document,
    index: Document,
    /// By path without the leading slash: `api/v1`, `apis/apps/v1`.
    v3: BTreeMap<String, Document>,
}

struct Document {
    body: Bytes,
    /// Without quotes, as it stands in URLs.
    hash: String,
}

impl Document {
    fn new(value: &Value) -> Self {
        let body = machinery::go_text::json_bytes(value);
        Document { hash: discovery::etag(&body).trim_matches('"').to_owned(), body: body.into() }
    }
}

impl OpenApiDocuments {
    fn of(&self, kinds: &Arc<Kinds>) -> Arc<Made> {
        let mut held = self.0.lock();
        match &*held {
            Some(made) if Arc::ptr_eq(&made.of, kinds) => Arc::clone(made),
            _ => {
                let made = Arc::new(make(kinds));
                *held = Some(Arc::clone(&made));
                made
            }
        }
    }

    pub(crate) fn v2(&self, kinds: &Arc<Kinds>, headers: &HeaderMap) -> Result<Reply, Status> {
        if message_accepted(headers) {
            return Ok(reply::whole(200, HeaderValue::from_static(MESSAGE_TYPES[0]), v2_message()));
        }
        json_accepted(headers)?;
        Ok(document(&self.of(kinds).v2, headers))
    }

    /// The index, or the document of a group version.
    pub(crate) fn v3(
        &self,
        kinds: &Arc<Kinds>,
        path: Option<&str>,
        headers: &HeaderMap,
        query: &Query,
    ) -> Result<Reply, Status> {
        let made = self.of(kinds);
        let Some(path) = path else {
            return Ok(document(&made.index, headers));
        };
        let Some(wanted) = made.v3.get(path) else {
            return Ok(reply::page_not_found());
        };
        json_accepted(headers)?;
        match query.get("hash") {
            Some(hash) if !hash.is_empty() && hash != wanted.hash => {
                let mut reply = reply::with_body(301, reply::TEXT, ResponseBody::empty());
                let location = format!("/openapi/v3/{path}?hash={}", wanted.hash);
                if let Ok(location) = HeaderValue::from_str(&location) {
                    reply.headers_mut().insert(header::LOCATION, location);
                }
                Ok(reply)
            }
            Some(hash) if !hash.is_empty() => {
                let mut reply = document(wanted, headers);
                let immutable = HeaderValue::from_static("public, immutable");
                reply.headers_mut().insert(header::CACHE_CONTROL, immutable);
                let year = std::time::SystemTime::now() + std::time::Duration::from_secs(365 * 86_400);
                if let Ok(expires) = HeaderValue::from_str(&http_date(year)) {
                    reply.headers_mut().insert(header::EXPIRES, expires);
                }
                Ok(reply)
            }
            _ => Ok(document(wanted, headers)),
        }
    }
}

/// `Sun, 06 Nov 1994 08:49:37 GMT`
pub(crate) fn http_date(at: std::time::SystemTime) -> String {
    let at = jiff::Timestamp::try_from(at).unwrap_or(jiff::Timestamp::UNIX_EPOCH);
    at.strftime("%a, %d %b %Y %H:%M:%S GMT").to_string()
}

/// How clients ask for the second version as a message; the first is how it is answered.
const MESSAGE_TYPES: [&str; 2] = [
    "application/com.github.proto-openapi.spec.v2.v1.0+protobuf",
    "application/com.github.proto-openapi.spec.v2@v1.0+protobuf",
];

/// Whether the client prefers the message: it stands before anything else we could send.
fn message_accepted(headers: &HeaderMap) -> bool {
    let accept = accept_header(headers).unwrap_or_default();
    let first = accept.split(',').next().unwrap_or_default();
    MESSAGE_TYPES.contains(&first.split(';').next().unwrap_or_default().trim())
}

/// The second version as a message: what it is, and no operations. kubectl asks for it when it meets a kind without
/// operations of its own (a `List`), and takes a document that knows no schema as nothing to check by.
fn v2_message() -> Vec<u8> {
    fn put(out: &mut Vec<u8>, number: u8, content: &[u8]) {
        // Every piece is shorter than 128 bytes: its length is one byte.
        debug_assert!(content.len() < 128);
        out.extend([number << 3 | 2, content.len() as u8]);
        out.extend_from_slice(content);
    }
    let mut info = Vec::new();
    put(&mut info, 1, b"Kubernetes");
    put(&mut info, 2, version::GIT_VERSION.as_bytes());
    let mut message = Vec::new();
    put(&mut message, 1, b"2.0");
    put(&mut message, 2, &info);
    put(&mut message, 8, b"");
    message
}

/// The documents themselves are JSON; a client that takes nothing else is told so.
fn json_accepted(headers: &HeaderMap) -> Result<(), Status> {
    let accept = accept_header(headers).unwrap_or_default();
    let fits = accept.is_empty()
        || accept.split(',').any(|clause| {
            matches!(clause.split(';').next().unwrap_or_default().trim(), "*/*" | "application/*" | "application/json")
        });
    if fits { Ok(()) } else { Err(Status::not_acceptable(&["application/json"])) }
}

fn document(document: &Document, headers: &HeaderMap) -> Reply {
    let etag = format!("\"{}\"", document.hash);
    let known = headers.get(header::IF_NONE_MATCH).is_some_and(|known| known.as_bytes() == etag.as_bytes());
    let mut reply = if known {
        reply::with_body(304, JSON, ResponseBody::empty())
    } else {
        reply::whole(200, JSON, document.body.clone())
    };
    if let Ok(etag) = HeaderValue::from_str(&etag) {
        reply.headers_mut().insert(header::ETAG, etag);
    }
    reply.headers_mut().insert(header::VARY, HeaderValue::from_static("Accept-Encoding, Accept"));
    reply
}

fn make(kinds: &Arc<Kinds>) -> Made {
    let mut v3 = BTreeMap::new();
    let mut all_paths = Map::new();
    for group in kinds.groups() {
        for served in &group.versions {
            let root = root(&group.name, &served.name);
            let mut paths = Map::new();
            for kind in &served.kinds {
                add_paths(&mut paths, &root, kind);
            }
            all_paths.extend(paths.iter().map(|(path, item)| (path.clone(), item.clone())));
            let body = json!({
                "openapi": "3.0.0",
                "info": {"title": "Kubernetes", "version": version::GIT_VERSION},
                "paths": paths,
                "components": {"schemas": {}},
            });
            v3.insert(root, Document::new(&body));
        }
    }
    let urls: Map = v3
        .iter()
        .map(|(path, document)| {
            let url = format!("/openapi/v3/{path}?hash={}", document.hash);
            (path.clone(), json!({"serverRelativeURL": url}))
        })
        .collect();
    let v2 = json!({
        "swagger": "2.0",
        "info": {"title": "Kubernetes", "version": version::GIT_VERSION},
        "paths": all_paths,
        "definitions": {},
    });
    Made { of: Arc::clone(kinds), v2: Document::new(&v2), index: Document::new(&json!({"paths": urls})), v3 }
}

fn root(group: &str, version: &str) -> String {
    if group.is_empty() { format!("api/{version}") } else { format!("apis/{group}/{version}") }
}

/// Query parameters by verb: name and type.
fn parameters(verb: &str) -> &'static [(&'static str, &'static str)] {
    match verb {
        "get" => &[("pretty", "string")],
        "list" | "watch" => &[
            ("pretty", "string"),
            ("allowWatchBookmarks", "boolean"),
            ("continue", "string"),
            ("fieldSelector", "string"),
            ("labelSelector", "string"),
            ("limit", "integer"),
            ("resourceVersion", "string"),
            ("resourceVersionMatch", "string"),
            ("sendInitialEvents", "boolean"),
            ("timeoutSeconds", "integer"),
            ("watch", "boolean"),
        ],
        "create" | "update" => {
            &[("pretty", "string"), ("dryRun", "string"), ("fieldManager", "string"), ("fieldValidation", "string")]
        }
        "patch" => &[
            ("pretty", "string"),
            ("dryRun", "string"),
            ("fieldManager", "string"),
            ("fieldValidation", "string"),
            ("force", "boolean"),
        ],
        "delete" => &[
            ("pretty", "string"),
            ("dryRun", "string"),
            ("gracePeriodSeconds", "integer"),
            ("orphanDependents", "boolean"),
            ("propagationPolicy", "string"),
        ],
        _ => &[
            ("pretty", "string"),
            ("continue", "string"),
            ("dryRun", "string"),
            ("fieldSelector", "string"),
            ("gracePeriodSeconds", "integer"),
            ("labelSelector", "string"),
            ("limit", "integer"),
            ("orphanDependents", "boolean"),
            ("propagationPolicy", "string"),
        ],
    }
}

fn add_paths(paths: &mut Map, root: &str, kind: &Kind) {
    let place = if kind.namespaced { "/namespaces/{namespace}" } else { "" };
    let collection = format!("/{root}{place}/{}", kind.plural);
    let own = (&kind.gvk.group, &kind.gvk.version, &kind.gvk.kind);
    let verbs: Vec<&str> = kind.verbs.iter().map(String::as_str).collect();
    add(paths, &collection, &[("get", "list"), ("post", "create"), ("delete", "deletecollection")], &verbs, own);
    add(
        paths,
        &format!("{collection}/{{name}}"),
        &[("get", "get"), ("put", "update"), ("patch", "patch"), ("delete", "delete")],
        &verbs,
        own,
    );
    if kind.namespaced {
        add(paths, &format!("/{root}/{}", kind.plural), &[("get", "list")], &verbs, own);
    }
    for sub in &kind.subresources {
        let verbs: Vec<&str> = sub.verbs.iter().map(String::as_str).collect();
        let gvk = (&sub.gvk.group, &sub.gvk.version, &sub.gvk.kind);
        let methods = [("get", "get"), ("put", "update"), ("patch", "patch"), ("post", "create"), ("delete", "delete")];
        add(paths, &format!("{collection}/{{name}}/{}", sub.name), &methods, &verbs, gvk);
    }
}

fn add(
    paths: &mut Map,
    path: &str,
    methods: &[(&str, &str)],
    verbs: &[&str],
    (group, version, kind): (&String, &String, &String),
) {
    let mut item = Map::new();
    for (method, verb) in methods.iter().filter(|(_, verb)| verbs.contains(verb)) {
        let action = match *verb {
            "create" => "post",
            "update" => "put",
            other => other,
        };
        let parameters: Vec<Value> = parameters(verb)
            .iter()
            .map(|(name, kind)| json!({"name": name, "in": "query", "schema": {"type": kind, "uniqueItems": true}}))
            .collect();
        item.insert(
            (*method).to_owned(),
            json!({
                "operationId": operation_id(action, path),
                "parameters": parameters,
                "responses": {"200": {"description": "OK"}},
                "x-kubernetes-action": action,
                "x-kubernetes-group-version-kind": {"group": group, "version": version, "kind": kind},
            }),
        );
    }
    if item.is_empty() {
        return;
    }
    let in_path: Vec<Value> = ["namespace", "name"]
        .into_iter()
        .filter(|name| path.contains(&format!("{{{name}}}")))
        .map(|name| json!({"name": name, "in": "path", "required": true, "schema": {"type": "string"}}))
        .collect();
    if !in_path.is_empty() {
        item.insert("parameters", in_path.into());
    }
    paths.insert(path.to_owned(), item.into());
}

/// A name that no two operations share.
fn operation_id(action: &str, path: &str) -> String {
    let words: String = path
        .split(['/', '.', '-', '{', '}'])
        .filter(|part| !part.is_empty())
        .map(|part| part[..1].to_ascii_uppercase() + &part[1..])
        .collect();
    format!("{action}{words}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kinds() -> Arc<Kinds> {
        Arc::new(registry::kinds::builtin().clone())
    }

    fn body(reply: Reply) -> Value {
        let whole = reply.into_body().into_whole().unwrap();
        serde_json::from_reader(bytes::Buf::reader(whole)).unwrap()
    }

    /// What kubectl looks for before it sends `fieldValidation=Strict`.
    #[test]
    fn the_second_version_is_a_message_for_who_asks_for_one() {
        let documents = OpenApiDocuments::default();
        for asked in MESSAGE_TYPES {
            let headers = HeaderMap::from_iter([(header::ACCEPT, HeaderValue::from_static(asked))]);
            let reply = documents.v2(&kinds(), &headers).unwrap();
            assert_eq!(reply.headers()[header::CONTENT_TYPE], MESSAGE_TYPES[0]);
        }
        let message = v2_message();
        assert!(message.starts_with(b"\x0a\x032.0\x12") && message.ends_with(&[8 << 3 | 2, 0]), "{message:?}");
        let other = HeaderMap::from_iter([(header::ACCEPT, HeaderValue::from_static("text/html"))]);
        assert_eq!(documents.v2(&kinds(), &other).unwrap_err().code, 406);
    }

    #[test]
    fn patch_operations_name_their_kind_and_parameters() {
        let documents = OpenApiDocuments::default();
        let (headers, query) = (HeaderMap::new(), Query::default());
        let apps = body(documents.v3(&kinds(), Some("apis/apps/v1"), &headers, &query).unwrap());
        let patch = &apps["paths"]["/apis/apps/v1/namespaces/{namespace}/deployments/{name}"]["patch"];
        assert_eq!(
            patch["x-kubernetes-group-version-kind"],
            json!({"group": "apps", "version": "v1", "kind": "Deployment"})
        );
        let names: Vec<&str> =
            patch["parameters"].as_array().unwrap().iter().map(|p| p["name"].as_str().unwrap()).collect();
        assert!(names.contains(&"fieldValidation") && names.contains(&"dryRun"), "{names:?}");
    }

    #[test]
    fn hashes_lead_to_the_document_and_wrong_ones_to_the_right_one() {
        let documents = OpenApiDocuments::default();
        let kinds = kinds();
        let headers = HeaderMap::new();
        let index = body(documents.v3(&kinds, None, &headers, &Query::default()).unwrap());
        let url = index["paths"]["api/v1"]["serverRelativeURL"].as_str().unwrap();
        let (_, query) = url.split_once('?').unwrap();
        let right = documents.v3(&kinds, Some("api/v1"), &headers, &Query::parse(query)).unwrap();
        assert_eq!(right.status(), 200);
        assert_eq!(right.headers()[header::CACHE_CONTROL], "public, immutable");
        let wrong = documents.v3(&kinds, Some("api/v1"), &headers, &Query::parse("hash=AB")).unwrap();
        assert_eq!(wrong.status(), 301);
        assert_eq!(wrong.headers()[header::LOCATION], url);
        let etag = right.headers()[header::ETAG].clone();
        let known = HeaderMap::from_iter([(header::IF_NONE_MATCH, etag)]);
        assert_eq!(documents.v3(&kinds, Some("api/v1"), &known, &Query::default()).unwrap().status(), 304);
        assert_eq!(documents.v3(&kinds, Some("apis/nope/v1"), &headers, &Query::default()).unwrap().status(), 404);
    }
}
