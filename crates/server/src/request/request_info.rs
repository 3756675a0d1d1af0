//! Parses method and path: verb, group, version, resource, namespace, name. Nothing is looked up.
//!
//! `GET /api/v1/namespaces/a/pods/p/status` is `get` of `pods` `p`, subresource `status`, in `a`;
//! `GET /apis/apps/v1/watch/deployments` is the deprecated form of `watch`;
//! `GET /apis/apps/v1` is not a resource: its verb is the lower-case method.

use std::borrow::Cow;

use http::Method;
use machinery::options::ListOptions;
use machinery::query::Query;
use machinery::{Status, fields};
use percent_encoding::percent_decode_str;

use access::authorizer::{ResourceAttributes, What};
use access::selectors::{FieldTerms, LabelTerms, Selectors};

/// The verb of a request for a resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Verb {
    Get,
    List,
    Watch,
    Create,
    Update,
    Patch,
    Delete,
    DeleteCollection,
    /// `/proxy/` after the version, a path that no longer exists.
    Proxy,
    /// A method without a verb (HEAD is `Get`).
    None,
}

impl Verb {
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Verb::Get => "get",
            Verb::List => "list",
            Verb::Watch => "watch",
            Verb::Create => "create",
            Verb::Update => "update",
            Verb::Patch => "patch",
            Verb::Delete => "delete",
            Verb::DeleteCollection => "deletecollection",
            Verb::Proxy => "proxy",
            Verb::None => "",
        }
    }

    /// The verb's label in metrics.
    #[must_use]
    pub const fn metric(self) -> &'static str {
        match self {
            Verb::Get => "GET",
            Verb::List => "LIST",
            Verb::Watch => "WATCH",
            Verb::Create => "POST",
            Verb::Update => "PUT",
            Verb::Patch => "PATCH",
            Verb::Delete => "DELETE",
            Verb::DeleteCollection => "DELETECOLLECTION",
            Verb::Proxy | Verb::None => "other",
        }
    }

    #[must_use]
    pub const fn writes(self) -> bool {
        matches!(self, Verb::Create | Verb::Update | Verb::Patch | Verb::Delete | Verb::DeleteCollection)
    }
}

/// A parsed request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestInfo<'r> {
    /// The decoded path.
    pub path: Cow<'r, str>,
    pub method: &'r Method,
    /// None for `/version`, `/apis/apps/v1`, `/nope`.
    pub resource: Option<ResourceInfo>,
    query: &'r Query,
}

/// A request for a resource. Absent parts are empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResourceInfo {
    pub verb: Verb,
    pub group: String,
    pub version: String,
    pub namespace: String,
    pub resource: String,
    pub name: String,
    /// The name that the field selector of a list or watch requires: rules that name objects apply to it too. Not on
    /// `/watch/` paths.
    pub selected_name: String,
    pub subresource: String,
    /// Segments after the subresource (`proxy/a/b`).
    pub more: usize,
    /// `/watch/` after the version.
    pub legacy_watch: bool,
}

impl<'r> RequestInfo<'r> {
    /// Parses a request. The only error is a path with a broken escape.
    pub fn new(method: &'r Method, path: &'r str, query: &'r Query) -> Result<Self, Status> {
        let path = decode(path)?;
        let resource = resource(method, &path, query);
        Ok(RequestInfo { path, method, resource, query })
    }

    /// The target for authorization.
    #[must_use]
    pub fn what(&self) -> What<'_> {
        match &self.resource {
            Some(info) => What::Resource(ResourceAttributes { selectors: self.selectors(info), ..info.attributes() }),
            None => What::Path(&self.path),
        }
    }

    /// The selectors of verbs that have some. Those of `/watch/` paths are no attributes: not every such path uses them.
    fn selectors(&self, info: &ResourceInfo) -> Selectors<'_> {
        if info.legacy_watch || !matches!(info.verb, Verb::List | Verb::Watch | Verb::DeleteCollection) {
            return Selectors::default();
        }
        let text = |name: &str| self.query.get(name).filter(|text| !text.is_empty());
        Selectors {
            labels: text("labelSelector").map_or(LabelTerms::None, LabelTerms::Text),
            fields: text("fieldSelector").map_or(FieldTerms::None, FieldTerms::Text),
        }
    }

    /// The verb for authorization.
    #[must_use]
    pub fn verb(&self) -> Cow<'static, str> {
        match &self.resource {
            Some(info) => Cow::Borrowed(info.verb.as_str()),
            None => match *self.method {
                Method::GET => Cow::Borrowed("get"),
                _ => Cow::Owned(self.method.as_str().to_ascii_lowercase()),
            },
        }
    }
}

impl ResourceInfo {
    #[must_use]
    pub fn attributes(&self) -> ResourceAttributes<'_> {
        ResourceAttributes {
            group: &self.group,
            version: &self.version,
            resource: &self.resource,
            subresource: &self.subresource,
            namespace: &self.namespace,
            name: if self.name.is_empty() { &self.selected_name } else { &self.name },
            selectors: Selectors::default(),
        }
    }
}

fn decode(path: &str) -> Result<Cow<'_, str>, Status> {
    if !path.contains('%') {
        return Ok(Cow::Borrowed(path));
    }
    // A broken escape is an error, as for the reference's URL parser.
    let bytes = path.as_bytes();
    for (index, _) in bytes.iter().enumerate().filter(|(_, byte)| **byte == b'%') {
        let whole = bytes.get(index + 1..index + 3).is_some_and(|hex| hex.iter().all(u8::is_ascii_hexdigit));
        if !whole {
            return Err(Status::bad_request("invalid URL escape in the path"));
        }
    }
    percent_decode_str(path).decode_utf8().map_err(|_| Status::bad_request("the path is not UTF-8"))
}

/// Segments of the path of most requests: `/apis/apps/v1/namespaces/n/deployments/d/status`.
const SEGMENTS_USUAL: usize = 8;

/// The segments of a path; slashes at either end are ignored.
#[must_use]
pub fn segments(path: &str) -> Vec<&str> {
    let trimmed = path.trim_matches('/');
    if trimmed.is_empty() {
        return Vec::new();
    }
    // Segments are short: byte by byte takes a third of the instructions of a search for each slash. Every request is split.
    let mut segments = Vec::with_capacity(SEGMENTS_USUAL);
    let mut start = 0;
    for (at, byte) in trimmed.bytes().enumerate() {
        if byte == b'/' {
            segments.push(&trimmed[start..at]);
            start = at + 1;
        }
    }
    segments.push(&trimmed[start..]);
    segments
}

fn resource(method: &Method, path: &str, query: &Query) -> Option<ResourceInfo> {
    let all = segments(path);
    let (group, mut rest) = match all.as_slice() {
        ["api", rest @ ..] => ("", rest),
        ["apis", group, rest @ ..] => (*group, rest),
        _ => return None,
    };
    let version = *rest.first()?;
    rest = &rest[1..];
    if rest.is_empty() {
        return None;
    }
    let mut verb = match *method {
        Method::POST => Verb::Create,
        Method::GET | Method::HEAD => Verb::Get,
        Method::PUT => Verb::Update,
        Method::PATCH => Verb::Patch,
        Method::DELETE => Verb::Delete,
        _ => Verb::None,
    };
    let legacy_watch = rest[0] == "watch";
    let by_path = match rest {
        ["watch", ..] => Some(Verb::Watch),
        ["proxy", _, ..] => Some(Verb::Proxy),
        _ => None,
    };
    if let Some(named) = by_path {
        verb = named;
        rest = &rest[1..];
    }
    let mut namespace = "";
    if let ["namespaces", in_namespace, more @ ..] = rest {
        namespace = in_namespace;
        match more {
            // The subresources of a Namespace; any other segment is a resource in the namespace.
            [] | ["status" | "finalize", ..] => {}
            _ => rest = more,
        }
    }
    let part = |index: usize| rest.get(index).copied().unwrap_or_default();
    let mut selected_name = String::new();
    if part(1).is_empty() {
        match verb {
            Verb::Get => {
                verb = if query.truth("watch").unwrap_or_default() { Verb::Watch } else { Verb::List };
                selected_name = name_in_query(query).unwrap_or_default();
            }
            Verb::Delete => verb = Verb::DeleteCollection,
            _ => {}
        }
    }
    Some(ResourceInfo {
        verb,
        group: group.to_owned(),
        version: version.to_owned(),
        namespace: namespace.to_owned(),
        resource: part(0).to_owned(),
        name: part(1).to_owned(),
        selected_name,
        subresource: if verb == Verb::Proxy { String::new() } else { part(2).to_owned() },
        more: rest.len().saturating_sub(3),
        legacy_watch,
    })
}

/// The name that the field selector of a list or watch requires, if it is valid in a path. The reference reads all options
/// together: if one of them cannot be read, there is no name.
fn name_in_query(query: &Query) -> Option<String> {
    let selector = fields::Selector::parse(query.get("fieldSelector")?).ok()?;
    let name = selector.equality("metadata.name")?;
    let legal = !name.is_empty() && name != "." && name != ".." && !name.contains(['/', '%']);
    (legal && ListOptions::from_query(query).is_ok()).then(|| name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn info(method: &str, url: &str) -> Option<String> {
        let method = Method::from_bytes(method.as_bytes()).unwrap();
        let (path, query) = url.split_once('?').unwrap_or((url, ""));
        let query = Query::parse(query);
        RequestInfo::new(&method, path, &query).unwrap().resource.map(|info| {
            let legacy = if info.legacy_watch { " legacy" } else { "" };
            let more = if info.more > 0 { format!(" +{}", info.more) } else { String::new() };
            format!(
                "{} {}/{} ns={} {}/{}/{}{more}{legacy}",
                info.verb.as_str(),
                info.group,
                info.version,
                info.namespace,
                info.resource,
                info.attributes().name,
                info.subresource
            )
        })
    }

    #[test]
    fn paths_are_split_at_their_slashes() {
        for path in ["", "/", "//", "/api", "api/", "/api/v1/pods", "/api//pods/", "/a/é/b", "///a///b///"] {
            let trimmed = path.trim_matches('/');
            let expected: Vec<&str> = if trimmed.is_empty() { Vec::new() } else { trimmed.split('/').collect() };
            assert_eq!(segments(path), expected, "{path}");
        }
    }

    #[test]
    fn az_15_16_17_18_19_20_verbs_and_parts() {
        for (method, url, expected) in [
            ("GET", "/api/v1/pods", "list /v1 ns= pods//"),
            ("GET", "/api/v1/pods?watch=1", "watch /v1 ns= pods//"),
            ("GET", "/api/v1/pods?watch", "watch /v1 ns= pods//"),
            ("GET", "/api/v1/pods?watch=no", "watch /v1 ns= pods//"),
            ("GET", "/api/v1/pods?watch=False", "list /v1 ns= pods//"),
            ("GET", "/api/v1/pods?watch=0&watch=1", "list /v1 ns= pods//"),
            ("HEAD", "/api/v1/pods/", "list /v1 ns= pods//"),
            ("GET", "/api/v1/namespaces/a/pods/p?watch=1", "get /v1 ns=a pods/p/"),
            ("GET", "/api/v1/namespaces/a/pods/p/status", "get /v1 ns=a pods/p/status"),
            ("GET", "/api/v1/namespaces/a/pods/p/proxy/x/y", "get /v1 ns=a pods/p/proxy +2"),
            ("GET", "/api/v1/namespaces/a", "get /v1 ns=a namespaces/a/"),
            ("PUT", "/api/v1/namespaces/a/finalize", "update /v1 ns=a namespaces/a/finalize"),
            ("GET", "/api/v1/namespaces/a/status", "get /v1 ns=a namespaces/a/status"),
            ("GET", "/api/v1/namespaces", "list /v1 ns= namespaces//"),
            ("POST", "/apis/apps/v1/namespaces/a/deployments", "create apps/v1 ns=a deployments//"),
            ("PATCH", "/apis/apps/v1/namespaces/a/deployments/d", "patch apps/v1 ns=a deployments/d/"),
            ("DELETE", "/apis/apps/v1/namespaces/a/deployments/d", "delete apps/v1 ns=a deployments/d/"),
            ("DELETE", "/apis/apps/v1/namespaces/a/deployments", "deletecollection apps/v1 ns=a deployments//"),
            ("GET", "/api/v1/watch/pods", "watch /v1 ns= pods// legacy"),
            ("GET", "/api/v1/watch/namespaces/a/pods/p", "watch /v1 ns=a pods/p/ legacy"),
            ("GET", "/api/v1/watch/namespaces/a", "watch /v1 ns=a namespaces/a/ legacy"),
            ("OPTIONS", "/api/v1/pods", " /v1 ns= pods//"),
            ("GET", "/api/v1/pods?fieldSelector=metadata.name%3Dp", "list /v1 ns= pods/p/"),
            ("GET", "/api/v1/pods?fieldSelector=metadata.name!%3Dp", "list /v1 ns= pods//"),
            ("GET", "/api/v1/pods?watch=1&fieldSelector=metadata.name%3Dp", "watch /v1 ns= pods/p/"),
            ("GET", "/api/v1/pods?fieldSelector=metadata.name%3Dp,spec.nodeName%3Dn", "list /v1 ns= pods/p/"),
            ("GET", "/api/v1/pods?fieldSelector=metadata.name%3Da/b", "list /v1 ns= pods//"),
            ("GET", "/api/v1/pods?fieldSelector=metadata.name%3Dp&limit=x", "list /v1 ns= pods//"),
            ("GET", "/api/v1/pods?fieldSelector=metadata.name%3Dp&labelSelector=(", "list /v1 ns= pods//"),
            ("DELETE", "/api/v1/namespaces/a/pods?fieldSelector=metadata.name%3Dp", "deletecollection /v1 ns=a pods//"),
            ("GET", "/api/v1/watch/pods?fieldSelector=metadata.name%3Dp", "watch /v1 ns= pods// legacy"),
            ("GET", "/api/v1/proxy/nodes/x", "proxy /v1 ns= nodes/x/"),
            ("GET", "/api/v1/proxy/namespaces/a/pods/x/y", "proxy /v1 ns=a pods/x/"),
            ("GET", "/api/v1//pods", "get /v1 ns= /pods/"),
            ("POST", "/api/v1/namespaces/a/pods/p/eviction", "create /v1 ns=a pods/p/eviction"),
            ("GET", "/api/v1/namespaces/a/pods/a%20b", "get /v1 ns=a pods/a b/"),
        ] {
            assert_eq!(info(method, url).as_deref(), Some(expected), "{method} {url}");
        }
    }

    #[test]
    fn az_18_az_21_selectors_are_attributes_of_lists_only() {
        let shown = |method: &str, url: &str| {
            let method = Method::from_bytes(method.as_bytes()).unwrap();
            let (path, query) = url.split_once('?').unwrap_or((url, ""));
            let query = Query::parse(query);
            let info = RequestInfo::new(&method, path, &query).unwrap();
            let What::Resource(about) = info.what() else { panic!("{url} is no resource") };
            let Selectors { labels, fields } = about.selectors;
            (labels.requirements().len(), fields.requirements().len())
        };
        let query = "labelSelector=a,b&fieldSelector=spec.nodeName%3Dn";
        assert_eq!(shown("GET", &format!("/api/v1/pods?{query}")), (2, 1));
        assert_eq!(shown("GET", &format!("/api/v1/pods?watch=1&{query}")), (2, 1));
        assert_eq!(shown("DELETE", &format!("/api/v1/namespaces/a/pods?{query}")), (2, 1));
        assert_eq!(shown("GET", &format!("/api/v1/watch/pods?{query}")), (0, 0));
        assert_eq!(shown("GET", &format!("/api/v1/namespaces/a/pods/p?{query}")), (0, 0));
        assert_eq!(shown("POST", &format!("/api/v1/namespaces/a/pods?{query}")), (0, 0));
        assert_eq!(shown("GET", "/api/v1/pods?labelSelector=(&fieldSelector=x"), (0, 0));
    }

    #[test]
    fn az_22_paths_other_than_resources() {
        for url in ["/", "/version", "/api", "/api/v1", "/apis", "/apis/apps", "/apis/apps/v1", "/healthz/a/b/c"] {
            assert_eq!(info("GET", url), None, "{url}");
        }
    }

    #[test]
    fn broken_escapes_are_refused() {
        for path in ["/api/v1/pods/%", "/api/%zz", "/%ff"] {
            assert_eq!(RequestInfo::new(&Method::GET, path, &Query::default()).unwrap_err().code, 400, "{path}");
        }
    }
}
