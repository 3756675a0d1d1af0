//! Parses method and path: verb, group, version, resource, namespace, name. Nothing is looked up.
//!
//! `GET /api/v1/namespaces/a/pods/p/status` is `get` of `pods` `p`, subresource `status`, in `a`;
//! `GET /apis/apps/v1/watch/deployments` is the deprecated form of `watch`;
//! `GET /apis/apps/v1` is not a resource: its verb is the lower-case method.

use std::borrow::Cow;

use http::Method;
use machinery::query::Query;
use machinery::{Status, fields};
use percent_encoding::percent_decode_str;

use access::authorizer::{ResourceAttributes, What};

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
            Verb::None => "other",
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
    /// The name that the field selector of a list or watch requires: rules that name objects apply to it too.
    pub selected_name: String,
    pub subresource: String,
    /// Segments after the subresource (`proxy/a/b`).
    pub more: usize,
    /// `/watch/` after the version.
    pub legacy_watch: bool,
}

impl<'r> RequestInfo<'r> {
    /// Parses a request. The only error is a path with a broken escape.
    pub fn new(method: &'r Method, path: &'r str, query: &Query) -> Result<Self, Status> {
        let path = decode(path)?;
        let resource = resource(method, &path, query);
        Ok(RequestInfo { path, method, resource })
    }

    /// The target for authorization.
    #[must_use]
    pub fn what(&self) -> What<'_> {
        match &self.resource {
            Some(info) => What::Resource(info.attributes()),
            None => What::Path(&self.path),
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

/// The segments of a path; slashes at either end are ignored.
#[must_use]
pub fn segments(path: &str) -> Vec<&str> {
    let trimmed = path.trim_matches('/');
    if trimmed.is_empty() { Vec::new() } else { trimmed.split('/').collect() }
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
    if legacy_watch {
        verb = Verb::Watch;
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
            Verb::Get if query.truth("watch").unwrap_or_default() => verb = Verb::Watch,
            Verb::Get => verb = Verb::List,
            Verb::Delete => verb = Verb::DeleteCollection,
            _ => {}
        }
        if matches!(verb, Verb::List | Verb::Watch | Verb::DeleteCollection) {
            selected_name = query.get("fieldSelector").and_then(name_in_selector).unwrap_or_default();
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
        subresource: part(2).to_owned(),
        more: rest.len().saturating_sub(3),
        legacy_watch,
    })
}

/// The name that a field selector requires, if it is valid in a path.
fn name_in_selector(selector: &str) -> Option<String> {
    let selector = fields::Selector::parse(selector).ok()?;
    let name = selector.equality("metadata.name")?;
    let legal = !name.is_empty() && name != "." && name != ".." && !name.contains(['/', '%']);
    legal.then(|| name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn info(method: &str, url: &str) -> Option<String> {
        let method = Method::from_bytes(method.as_bytes()).unwrap();
        let (path, query) = url.split_once('?').unwrap_or((url, ""));
        RequestInfo::new(&method, path, &Query::parse(query)).unwrap().resource.map(|info| {
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
    fn verbs_and_parts() {
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
            ("GET", "/api/v1/namespaces/a/pods/a%20b", "get /v1 ns=a pods/a b/"),
        ] {
            assert_eq!(info(method, url).as_deref(), Some(expected), "{method} {url}");
        }
    }

    #[test]
    fn paths_other_than_resources() {
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
