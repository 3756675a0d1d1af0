//! Routing: chooses the handler of a request by path and method, or its refusal.
//!
//! The order is: fixed paths (`/version`, …), discovery, resources. A request without a route gets the reference's
//! response: plain text outside the served groups, a `Status` inside.

use std::sync::Arc;

use http::Method;
use machinery::Status;
use machinery::json::Value;
use registry::Target;
use registry::kind::Kind;
use registry::kinds::Kinds;

use crate::request::operation::Operation;
use crate::request::request_info::{RequestInfo, ResourceInfo, Verb, segments};

/// The route of a request.
#[derive(Debug)]
pub enum Route {
    /// `/`
    Index,
    Version,
    /// The discovery document of the issuer of service account tokens.
    Issuer,
    /// The keys of that issuer.
    IssuerKeys,
    Metrics,
    /// Explains a decision.
    Access,
    /// The roles for what a user did.
    AccessRoles,
    /// `/debug/api_priority_and_fairness/…`: levels, queues and waiting requests.
    Fairness(String),
    /// `/debug/admission`: the Audit-Ids of traced writes.
    AdmissionTraces,
    /// `/debug/admission/faults/WEBHOOK`: faults of webhooks, for tests.
    AdmissionFaults(Option<String>),
    /// `/debug/admission/ID`: what each step of admission did with a write.
    AdmissionTrace(String),
    /// `healthz`, `livez` or `readyz`, and a single check.
    Health(&'static str, Option<String>),
    OpenApiV2,
    /// The index, or one group version (`apis/apps/v1`).
    OpenApiV3(Option<String>),
    /// `/api`
    CoreVersions,
    /// `/apis`
    Groups,
    /// `/apis/apps`
    Group(String),
    /// The same for a group that other servers have a part in.
    AggregatedGroup(Value),
    /// `/api/v1`, `/apis/apps/v1`
    Resources(String, String),
    Resource(ResourceRoute),
    /// `404 page not found` in plain text.
    PageNotFound,
    Refused(Status),
}

/// A verb on a resource.
#[derive(Debug)]
pub struct ResourceRoute {
    pub verb: Verb,
    pub operation: Operation,
    pub target: Target,
    pub legacy_watch: bool,
    /// A GET that may be a list or a watch.
    pub is_collection: bool,
}

/// Finds the route.
#[must_use]
pub fn route(info: &RequestInfo<'_>, kinds: &Kinds) -> Route {
    // Slashes at the end are ignored, those at the start are not.
    if info.path.starts_with("//") {
        return Route::PageNotFound;
    }
    if let Some(resource) = &info.resource {
        return match resource_route(resource, info.method, kinds) {
            Ok(route) => Route::Resource(route),
            Err(Missed::Status(status)) => Route::Refused(status),
            Err(Missed::Group) => Route::PageNotFound,
        };
    }
    let parts = segments(&info.path);
    let read = matches!(*info.method, Method::GET);
    let only_read = |route: Route| if read { route } else { Route::Refused(Status::router_method_not_allowed()) };
    match parts.as_slice() {
        [] => Route::Index,
        ["version"] => only_read(Route::Version),
        [".well-known", "openid-configuration"] => only_read(Route::Issuer),
        ["openid", "v1", "jwks"] => only_read(Route::IssuerKeys),
        ["metrics"] => Route::Metrics,
        ["debug", "access"] => only_read(Route::Access),
        ["debug", "admission"] => only_read(Route::AdmissionTraces),
        ["debug", "admission", "faults"] => Route::AdmissionFaults(None),
        ["debug", "admission", "faults", name] => Route::AdmissionFaults(Some((*name).to_owned())),
        ["debug", "admission", id] => only_read(Route::AdmissionTrace((*id).to_owned())),
        ["debug", "access", "roles"] => only_read(Route::AccessRoles),
        ["debug", "api_priority_and_fairness", name] => only_read(Route::Fairness((*name).to_owned())),
        ["healthz"] => Route::Health("healthz", None),
        ["livez"] => Route::Health("livez", None),
        ["readyz"] => Route::Health("readyz", None),
        ["healthz", rest @ ..] => Route::Health("healthz", Some(rest.join("/"))),
        ["livez", rest @ ..] => Route::Health("livez", Some(rest.join("/"))),
        ["readyz", rest @ ..] => Route::Health("readyz", Some(rest.join("/"))),
        ["openapi", "v2"] => Route::OpenApiV2,
        ["openapi", "v3"] => Route::OpenApiV3(None),
        ["openapi", "v3", rest @ ..] => Route::OpenApiV3(Some(rest.join("/"))),
        ["api"] => only_read(Route::CoreVersions),
        // The reference serves its list of groups for every method.
        ["apis"] => Route::Groups,
        ["api", "v1"] => only_read(Route::Resources(String::new(), "v1".to_owned())),
        ["api", ..] => Route::Refused(Status::router_not_found()),
        ["apis", group, rest @ ..] => match (kinds.group(group), rest) {
            (None, _) => Route::PageNotFound,
            (Some(_), []) => only_read(Route::Group((*group).to_owned())),
            (Some(served), [version]) if served.version(version).is_some() => {
                only_read(Route::Resources((*group).to_owned(), (*version).to_owned()))
            }
            (Some(served), _) if !served.is_builtin() => Route::PageNotFound,
            _ => Route::Refused(Status::router_not_found()),
        },
        _ => Route::PageNotFound,
    }
}

enum Missed {
    /// No such group: the response is plain text.
    Group,
    Status(Status),
}

fn not_found() -> Missed {
    Missed::Status(Status::router_not_found())
}

fn resource_route(info: &ResourceInfo, method: &Method, kinds: &Kinds) -> Result<ResourceRoute, Missed> {
    let group = match (kinds.group(&info.group), info.group.is_empty()) {
        (Some(group), _) => group,
        (None, true) => return Err(not_found()),
        (None, false) => return Err(Missed::Group),
    };
    // A missing resource of a custom group is treated as a missing group.
    let missing = || if group.is_builtin() { not_found() } else { Missed::Group };
    if info.verb == Verb::Proxy {
        return Err(missing());
    }
    let kind = group.version(&info.version).and_then(|version| version.get(&info.resource)).ok_or_else(missing)?;
    if kind.custom && !info.name.is_empty() && !info.subresource.is_empty() {
        kind.subresource(&info.subresource)
            .ok_or_else(|| Missed::Status(Status::not_found(&kind.group_resource(), &info.name)))?;
    }
    let place = Place::of(info, kind).ok_or_else(|| if kind.custom { Missed::Group } else { not_found() })?;
    let verb = if kind.custom { custom_verb(info, method, kind, &place) } else { verb(info, method, kind, &place) }?;
    let some = |text: &String| Some(text.clone()).filter(|text| !text.is_empty());
    let target = Target {
        kind: Arc::clone(kind),
        namespace: some(&info.namespace).filter(|_| kind.namespaced),
        name: some(&info.name),
        subresource: some(&info.subresource),
    };
    let is_collection = matches!(place, Place::Collection | Place::AllNamespaces) && *method == Method::GET;
    let operation =
        Operation::decide(verb, &target).ok_or_else(|| Missed::Status(Status::router_method_not_allowed()))?;
    Ok(ResourceRoute { verb, operation, target, legacy_watch: info.legacy_watch, is_collection })
}

/// The part of a resource that a path names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Collection,
    /// The collection of a namespaced kind, without a namespace.
    AllNamespaces,
    Item,
    Subresource,
}

impl Place {
    /// None when the kind has no such path.
    fn of(info: &ResourceInfo, kind: &Kind) -> Option<Place> {
        // The path of a Namespace has its name in the position of the namespace.
        let is_namespace = kind.gvk.group.is_empty() && kind.plural == "namespaces";
        let scoped = !info.namespace.is_empty() && !is_namespace;
        if scoped && !kind.namespaced {
            return None;
        }
        let unscoped = kind.namespaced && !scoped;
        Some(match (info.name.is_empty(), info.subresource.is_empty()) {
            (true, _) if unscoped => Place::AllNamespaces,
            (true, _) => Place::Collection,
            _ if unscoped => return None,
            (false, true) => Place::Item,
            (false, false) => {
                kind.subresource(&info.subresource)?;
                if info.more > 0 && info.subresource != "proxy" {
                    return None;
                }
                Place::Subresource
            }
        })
    }

    /// The verbs of a kind at this path, with their methods.
    fn verbs<'k>(self, info: &ResourceInfo, kind: &'k Kind) -> Vec<(Method, Verb, &'k str)> {
        const COLLECTION: [(Method, Verb, &str); 3] = [
            (Method::GET, Verb::List, "list"),
            (Method::POST, Verb::Create, "create"),
            (Method::DELETE, Verb::DeleteCollection, "deletecollection"),
        ];
        const ITEM: [(Method, Verb, &str); 4] = [
            (Method::GET, Verb::Get, "get"),
            (Method::PUT, Verb::Update, "update"),
            (Method::PATCH, Verb::Patch, "patch"),
            (Method::DELETE, Verb::Delete, "delete"),
        ];
        let all: &[(Method, Verb, &str)] = match self {
            Place::AllNamespaces => &COLLECTION[..1],
            Place::Collection => &COLLECTION,
            Place::Item => &ITEM,
            Place::Subresource => {
                let held = kind.subresource(&info.subresource).map(|sub| sub.verbs.as_slice()).unwrap_or_default();
                let create = (Method::POST, Verb::Create, "create");
                return ITEM
                    .into_iter()
                    .chain([create])
                    .filter(|(_, _, verb)| held.iter().any(|v| v == verb))
                    .collect();
            }
        };
        all.iter().filter(|(_, _, verb)| kind.allows(verb)).cloned().collect()
    }
}

/// The verb of a request for a built-in kind, which has exactly the routes of its verbs.
fn verb(info: &ResourceInfo, method: &Method, kind: &Kind, place: &Place) -> Result<Verb, Missed> {
    let refused = || Missed::Status(Status::router_method_not_allowed());
    if info.legacy_watch {
        let watchable = kind.allows("watch") && *place != Place::Subresource;
        return match (watchable, method == Method::GET) {
            (false, _) => Err(not_found()),
            (true, false) => Err(refused()),
            (true, true) => Ok(Verb::Watch),
        };
    }
    let verbs = place.verbs(info, kind);
    if verbs.is_empty() {
        return Err(not_found());
    }
    let (_, verb, _) = verbs.into_iter().find(|(routed, ..)| routed == method).ok_or_else(refused)?;
    match info.verb {
        Verb::Watch if kind.allows("watch") => Ok(Verb::Watch),
        Verb::Watch => Err(Missed::Status(Status::method_not_supported(&kind.group_resource(), "watch"))),
        _ => Ok(verb),
    }
}

/// The verb of a request for a custom resource, which has every route; refusals depend on the verb, as in the reference.
fn custom_verb(info: &ResourceInfo, method: &Method, kind: &Kind, place: &Place) -> Result<Verb, Missed> {
    let refused = |verb: &str| Missed::Status(Status::method_not_supported(&kind.group_resource(), verb));
    if *place == Place::Subresource {
        let verbs = place.verbs(info, kind);
        let found = verbs
            .into_iter()
            .find(|(routed, ..)| routed == method || (*method == Method::HEAD && *routed == Method::GET));
        return found.map(|(_, verb, _)| verb).ok_or_else(|| refused(info.verb.as_str()));
    }
    if *place == Place::AllNamespaces && !matches!(info.verb, Verb::List | Verb::Watch) {
        return Err(Missed::Group);
    }
    if info.verb == Verb::None || !kind.allows(info.verb.as_str()) {
        let said = if info.verb == Verb::None { method.as_str().to_owned() } else { info.verb.as_str().to_owned() };
        return Err(refused(&said));
    }
    if *place != Place::Item && matches!(info.verb, Verb::Update | Verb::Patch) {
        return Err(Missed::Status(Status::bad_request("name must be provided")));
    }
    Ok(info.verb)
}

/// The paths `/` lists.
#[must_use]
pub fn index(kinds: &Kinds) -> Vec<String> {
    let mut paths: Vec<String> = [
        "/healthz",
        "/livez",
        "/metrics",
        "/openapi/v2",
        "/openapi/v3",
        "/readyz",
        "/version",
        "/api",
        "/api/v1",
        "/apis",
    ]
    .map(str::to_owned)
    .to_vec();
    for group in kinds.groups().filter(|group| !group.name.is_empty()) {
        paths.push(format!("/apis/{}", group.name));
        paths.extend(group.versions.iter().map(|version| format!("/apis/{}/{}", group.name, version.name)));
    }
    paths.sort();
    paths
}

#[cfg(test)]
mod tests {
    use super::*;
    use machinery::query::Query;

    fn ask(method: &str, url: &str) -> String {
        let method = Method::from_bytes(method.as_bytes()).unwrap();
        let (path, query) = url.split_once('?').unwrap_or((url, ""));
        let query = Query::parse(query);
        let info = RequestInfo::new(&method, path, &query).unwrap();
        match route(&info, registry::kinds::builtin()) {
            Route::Resource(route) => {
                let target = route.target;
                let part = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
                let legacy = if route.legacy_watch { " legacy" } else { "" };
                format!(
                    "{} {} {} {} {}{legacy}",
                    route.verb.as_str(),
                    target.kind.gvk.kind,
                    part(target.namespace),
                    part(target.name),
                    part(target.subresource)
                )
            }
            Route::Refused(status) => format!("{} {}", status.code, status.message),
            other => format!("{other:?}"),
        }
    }

    const NOT_FOUND: &str = "404 the server could not find the requested resource";
    const NOT_ALLOWED: &str = "405 the server does not allow this method on the requested resource";

    #[test]
    fn routes_of_built_in_kinds() {
        for (method, url, expected) in [
            ("GET", "/api/v1/pods", "list Pod - - -"),
            ("GET", "/api/v1/pods?watch=1", "watch Pod - - -"),
            ("GET", "/api/v1/namespaces/a/pods", "list Pod a - -"),
            ("GET", "/api/v1/namespaces/a/pods/p", "get Pod a p -"),
            ("GET", "/api/v1/namespaces/a", "get Namespace - a -"),
            ("PUT", "/api/v1/namespaces/a/finalize", "update Namespace - a finalize"),
            ("GET", "/api/v1/nodes/n", "get Node - n -"),
            ("POST", "/api/v1/namespaces/a/pods/p/binding", "create Pod a p binding"),
            ("PATCH", "/apis/apps/v1/namespaces/a/deployments/d/scale", "patch Deployment a d scale"),
            ("DELETE", "/api/v1/namespaces/a/pods", "deletecollection Pod a - -"),
            ("GET", "/api/v1/watch/pods", "watch Pod - - - legacy"),
            ("GET", "/api/v1/watch/namespaces/a/pods/p", "watch Pod a p - legacy"),
            ("GET", "/api/v1/watch/namespaces/a", "watch Namespace - a - legacy"),
            ("POST", "/api/v1/watch/pods", NOT_ALLOWED),
            ("POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", "create SelfSubjectAccessReview - - -"),
            ("GET", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", NOT_ALLOWED),
            ("DELETE", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews/x", NOT_FOUND),
            ("GET", "/api/v1/namespaces/a/bindings", NOT_ALLOWED),
            ("POST", "/api/v1/configmaps", NOT_ALLOWED),
            ("DELETE", "/api/v1/configmaps", NOT_ALLOWED),
            ("GET", "/api/v1/configmaps/a", NOT_FOUND),
            ("GET", "/api/v1/namespaces/a/nodes", NOT_FOUND),
            ("POST", "/api/v1/namespaces/a/nodes", NOT_FOUND),
            ("DELETE", "/api/v1/namespaces", NOT_ALLOWED),
            ("PUT", "/api/v1/namespaces/a/pods", NOT_ALLOWED),
            ("POST", "/api/v1/namespaces/a/pods/p", NOT_ALLOWED),
            ("HEAD", "/api/v1/namespaces/a/pods", NOT_ALLOWED),
            ("HEAD", "/api/v1/namespaces/a/pods/p", NOT_ALLOWED),
            ("OPTIONS", "/api/v1/namespaces/a/pods", NOT_ALLOWED),
            ("TRACE", "/api/v1/namespaces/a/pods", NOT_ALLOWED),
            ("FROB", "/api/v1/namespaces/a/pods/p", NOT_ALLOWED),
            ("GET", "/api/v1/namespaces/a/configmaps/c/status", NOT_FOUND),
            ("GET", "/api/v1/namespaces/a/pods/p/status/more", NOT_FOUND),
            ("GET", "/api/v1/nope", NOT_FOUND),
            ("GET", "/api/v1/nope/x/y", NOT_FOUND),
            ("GET", "/api/v2", NOT_FOUND),
            ("GET", "/api/v2/pods", NOT_FOUND),
            ("GET", "/apis/apps/v9", NOT_FOUND),
            ("GET", "/apis/apps/v9/deployments", NOT_FOUND),
            ("GET", "/apis/apps/v1/nope", NOT_FOUND),
            ("GET", "/apis/nope", "PageNotFound"),
            ("GET", "/apis/nope.example.com/v1/things?watch=1", "PageNotFound"),
            ("GET", "/nope", "PageNotFound"),
            ("GET", "/api", "CoreVersions"),
            ("POST", "/api", NOT_ALLOWED),
            ("DELETE", "/apis", "Groups"),
            ("POST", "/api/v1", NOT_ALLOWED),
            ("POST", "/healthz", "Health(\"healthz\", None)"),
            ("GET", "/livez/ping", "Health(\"livez\", Some(\"ping\"))"),
            ("GET", "/apis/apps/v1", "Resources(\"apps\", \"v1\")"),
            ("GET", "/openapi/v3/apis/apps/v1", "OpenApiV3(Some(\"apis/apps/v1\"))"),
        ] {
            assert_eq!(ask(method, url), expected, "{method} {url}");
        }
    }

    #[test]
    fn the_index_lists_what_is_served() {
        let paths = index(registry::kinds::builtin());
        for path in ["/api/v1", "/apis/apps/v1", "/readyz", "/openapi/v3"] {
            assert!(paths.iter().any(|held| held == path), "{path}");
        }
        assert!(paths.is_sorted());
    }
}
