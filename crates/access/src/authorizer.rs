//! The [`Authorizer`] trait, the request it decides on, and the texts of a refusal.

use std::future::Future;
use std::pin::Pin;

use machinery::GroupResource;
use machinery::go_text::quote;
use machinery::json::Text;
use machinery::status::Status;

use crate::identity::{AUTHENTICATED, UNAUTHENTICATED, User};
use crate::rbac::rule::Rule;
use crate::selectors::Selectors;

/// A request to authorize.
#[derive(Clone, Copy, Debug)]
pub struct Attributes<'a> {
    pub user: &'a User,
    /// `get`, `list`, …; the lower-case method for other paths than resources; empty for methods without a verb.
    pub verb: &'a str,
    pub what: What<'a>,
}

/// The target of a request.
#[derive(Clone, Copy, Debug)]
pub enum What<'a> {
    Resource(ResourceAttributes<'a>),
    Path(&'a str),
}

/// A resource, in the parts that rules name. Absent parts are empty.
#[derive(Clone, Copy, Debug, Default)]
pub struct ResourceAttributes<'a> {
    pub group: &'a str,
    pub version: &'a str,
    pub resource: &'a str,
    pub subresource: &'a str,
    pub namespace: &'a str,
    pub name: &'a str,
    /// The selectors of a list, watch or deletecollection.
    pub selectors: Selectors<'a>,
}

/// The decision of an authorizer. A request without an opinion is refused, like a denied one; only reviews show the
/// difference.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    pub allowed: bool,
    pub denied: bool,
    /// Shown in reviews, in the audit log and at the end of a refusal; may be empty. An index keeps the texts of its
    /// grants, so that a decision only shares them.
    pub reason: Text,
    /// The failure of an authorizer that could not decide; usually empty. A request that is not allowed because of it is
    /// answered with 500 instead of 403.
    pub error: Text,
}

impl Decision {
    #[must_use]
    pub fn allow(reason: impl Into<Text>) -> Self {
        Decision { allowed: true, denied: false, reason: reason.into(), error: Text::default() }
    }

    #[must_use]
    pub fn no_opinion() -> Self {
        Self::no_opinion_because(Text::default())
    }

    /// No opinion, with a reason that the refusal shows.
    #[must_use]
    pub fn no_opinion_because(reason: impl Into<Text>) -> Self {
        Decision { allowed: false, denied: false, reason: reason.into(), error: Text::default() }
    }

    #[must_use]
    pub fn deny(reason: impl Into<Text>) -> Self {
        Decision { allowed: false, denied: true, reason: reason.into(), error: Text::default() }
    }

    /// No opinion, because the authorizer failed.
    #[must_use]
    pub fn failed(error: impl Into<Text>) -> Self {
        Decision { error: error.into(), ..Self::no_opinion() }
    }
}

/// A decision, or a future of one. Most decisions are immediate and need no allocation.
pub enum Verdict<'a> {
    Now(Decision),
    Later(Pin<Box<dyn Future<Output = Decision> + Send + 'a>>),
}

impl Verdict<'_> {
    pub async fn get(self) -> Decision {
        match self {
            Verdict::Now(decision) => decision,
            Verdict::Later(decision) => decision.await,
        }
    }
}

/// The rules of a user in a namespace, as far as an authorizer can list them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RuleList {
    pub rules: Vec<Rule>,
    /// Whether the user may have more rights than these.
    pub incomplete: bool,
    pub errors: Vec<String>,
}

impl RuleList {
    /// The list of an authorizer that decides on requests one by one.
    #[must_use]
    pub fn unsupported(authorizer: &str) -> Self {
        let error = format!("{authorizer} authorizer does not support user rule resolution");
        RuleList { rules: Vec::new(), incomplete: true, errors: vec![error] }
    }

    /// The rules of a user that may do everything.
    #[must_use]
    pub fn everything() -> Self {
        RuleList { rules: vec![Rule::every_resource(), Rule::every_path()], ..RuleList::default() }
    }

    /// Adds the list of the next authorizer.
    pub fn append(&mut self, other: RuleList) {
        self.rules.extend(other.rules);
        self.incomplete |= other.incomplete;
        self.errors.extend(other.errors);
    }
}

/// Authorizes requests. Called for each request before the named objects are looked up.
pub trait Authorizer: Send + Sync + 'static {
    fn authorize<'a>(&'a self, attributes: &'a Attributes<'a>) -> Verdict<'a>;

    /// Lists the rules of a user, for reviews. The default knows none.
    fn rules_for(&self, _user: &User, _namespace: &str) -> RuleList {
        RuleList { incomplete: true, ..RuleList::default() }
    }
}

/// Allows everything to everyone who has credentials.
#[derive(Debug, Default)]
pub struct AlwaysAllow;

impl Authorizer for AlwaysAllow {
    fn authorize<'a>(&'a self, attributes: &'a Attributes<'a>) -> Verdict<'a> {
        // The mode may come with a file that is read again, when requests without credentials are served already.
        let is_known = !attributes.user.in_group(UNAUTHENTICATED);
        Verdict::Now(if is_known { Decision::allow("") } else { Decision::no_opinion() })
    }

    fn rules_for(&self, _: &User, _: &str) -> RuleList {
        RuleList::everything()
    }
}

/// Allows everything to authenticated users, and only health and version to others.
#[derive(Debug, Default)]
pub struct AuthenticatedOnly;

const OPEN_PATHS: [&str; 4] = ["/healthz", "/livez", "/readyz", "/version"];

impl Authorizer for AuthenticatedOnly {
    fn authorize<'a>(&'a self, attributes: &'a Attributes<'a>) -> Verdict<'a> {
        let user = attributes.user;
        let open = match attributes.what {
            What::Path(path) => is_open(path) && matches!(attributes.verb, "get" | "head"),
            What::Resource(_) => false,
        };
        let allowed = open || user.is_master() || user.in_group(AUTHENTICATED);
        Verdict::Now(if allowed { Decision::allow("") } else { Decision::no_opinion() })
    }

    fn rules_for(&self, user: &User, _: &str) -> RuleList {
        if user.is_master() || user.in_group(AUTHENTICATED) {
            return RuleList::everything();
        }
        RuleList { incomplete: true, ..RuleList::default() }
    }
}

fn is_open(path: &str) -> bool {
    OPEN_PATHS.iter().any(|open| path.strip_prefix(open).is_some_and(|rest| rest.is_empty() || rest.starts_with('/')))
}

/// The 403 of a refused request, in the reference's words.
#[must_use]
pub fn forbidden(attributes: &Attributes<'_>, decision: &Decision) -> Status {
    let user = quote(&attributes.user.name);
    let (gr, name, mut why) = match attributes.what {
        What::Path(path) => {
            (GroupResource::default(), "", format!("User {user} cannot {} path {}", attributes.verb, quote(path)))
        }
        What::Resource(about) => {
            let full = if about.subresource.is_empty() {
                about.resource.to_owned()
            } else {
                format!("{}/{}", about.resource, about.subresource)
            };
            let place = if about.namespace.is_empty() {
                "at the cluster scope".to_owned()
            } else {
                format!("in the namespace {}", quote(about.namespace))
            };
            let why = format!(
                "User {user} cannot {} resource {} in API group {} {place}",
                attributes.verb,
                quote(&full),
                quote(about.group),
            );
            (GroupResource::new(about.group, about.resource), about.name, why)
        }
    };
    // A browser may render this text: escape the markup of what the client sent. The reason is the server's own text.
    why = why.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    if !decision.reason.is_empty() {
        why = format!("{why}: {}", decision.reason);
    }
    Status::forbidden(&gr, name, why)
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn authorize_text(user: &User, verb: &str, what: What<'_>) -> Result<(), String> {
        let attributes = Attributes { user, verb, what };
        let decision = AuthenticatedOnly.authorize(&attributes).get().await;
        if decision.allowed { Ok(()) } else { Err(forbidden(&attributes, &decision).message) }
    }

    #[tokio::test]
    async fn everything_is_allowed_only_with_credentials() {
        let what = What::Path("/metrics");
        let allowed =
            async |user: &User| AlwaysAllow.authorize(&Attributes { user, verb: "get", what }).get().await.allowed;
        assert!(allowed(&User { name: "alice".to_owned(), ..User::default() }).await);
        assert!(!allowed(&User::anonymous()).await);
    }

    #[tokio::test]
    async fn health_and_version_are_open_to_all() {
        let anonymous = User::anonymous();
        for path in ["/healthz", "/livez/ping", "/readyz", "/version"] {
            assert_eq!(authorize_text(&anonymous, "get", What::Path(path)).await, Ok(()), "{path}");
        }
        assert_eq!(
            authorize_text(&anonymous, "get", What::Path("/healthzz")).await,
            Err("forbidden: User \"system:anonymous\" cannot get path \"/healthzz\"".to_owned())
        );
        assert!(authorize_text(&anonymous, "post", What::Path("/healthz")).await.is_err());
        assert_eq!(
            authorize_text(&anonymous, "get", What::Path("/<b>&")).await,
            Err("forbidden: User \"system:anonymous\" cannot get path \"/&lt;b&gt;&amp;\"".to_owned())
        );
    }

    #[tokio::test]
    async fn resources_are_for_the_known() {
        let anonymous = User::anonymous();
        let nodes = What::Resource(ResourceAttributes { resource: "nodes", ..ResourceAttributes::default() });
        assert_eq!(
            authorize_text(&anonymous, "list", nodes).await.unwrap_err(),
            "nodes is forbidden: User \"system:anonymous\" cannot list resource \"nodes\" in API group \"\" at the \
             cluster scope"
        );
        let status = What::Resource(ResourceAttributes {
            group: "apps",
            resource: "deployments",
            subresource: "status",
            namespace: "ns",
            name: "d",
            ..ResourceAttributes::default()
        });
        assert_eq!(
            authorize_text(&anonymous, "get", status).await.unwrap_err(),
            "deployments.apps \"d\" is forbidden: User \"system:anonymous\" cannot get resource \
             \"deployments/status\" in API group \"apps\" in the namespace \"ns\""
        );
        let alice = User { name: "alice".to_owned(), ..User::default() };
        assert!(authorize_text(&alice, "list", nodes).await.is_err());
        assert_eq!(authorize_text(&alice.authenticated(), "list", nodes).await, Ok(()));
        let master = User { name: "m".to_owned(), groups: vec!["system:masters".to_owned()], ..User::default() };
        assert_eq!(authorize_text(&master, "list", nodes).await, Ok(()));
    }

    fn refusal(user: &str, verb: &str, what: What<'_>, reason: &str) -> Status {
        let user = User { name: user.to_owned(), ..User::default() };
        forbidden(&Attributes { user: &user, verb, what }, &Decision::no_opinion_because(reason))
    }

    #[test]
    fn az_50_the_sentence_is_escaped_and_the_reason_is_not() {
        let about = ResourceAttributes { group: "a&b", resource: "<pods>", name: "p", ..ResourceAttributes::default() };
        let status = refusal("al<i>ce", "get", What::Resource(about), "RBAC: role \"<x>&\" not found");
        assert_eq!(
            status.message,
            "<pods>.a&b \"p\" is forbidden: User \"al&lt;i&gt;ce\" cannot get resource \"&lt;pods&gt;\" in API group \
             \"a&amp;b\" at the cluster scope: RBAC: role \"<x>&\" not found"
        );
        let details = status.to_value()["details"].clone();
        assert_eq!(details, machinery::json::json!({"name": "p", "group": "a&b", "kind": "<pods>"}));
        assert_eq!((status.http_code(), status.reason()), (403, "Forbidden"));
    }

    #[test]
    fn az_51_52_namespaced_and_cluster_wide_refusals() {
        let scale = ResourceAttributes {
            group: "apps",
            resource: "deployments",
            subresource: "scale",
            namespace: "N",
            name: "d",
            ..ResourceAttributes::default()
        };
        assert_eq!(
            refusal("alice", "get", What::Resource(scale), "").message,
            "deployments.apps \"d\" is forbidden: User \"alice\" cannot get resource \"deployments/scale\" in API group \
             \"apps\" in the namespace \"N\""
        );
        let nodes = ResourceAttributes { resource: "nodes", ..ResourceAttributes::default() };
        assert_eq!(
            refusal("alice", "list", What::Resource(nodes), "").message,
            "nodes is forbidden: User \"alice\" cannot list resource \"nodes\" in API group \"\" at the cluster scope"
        );
    }

    #[test]
    fn az_53_54_55_paths_empty_verbs_and_quoted_names() {
        let status = refusal("alice", "get", What::Path("/metrics"), "");
        assert_eq!(status.message, "forbidden: User \"alice\" cannot get path \"/metrics\"");
        assert_eq!(status.to_value()["details"], machinery::json::json!({}));
        let pods = ResourceAttributes { resource: "pods", ..ResourceAttributes::default() };
        assert_eq!(
            refusal("a\"b\u{7f}", "", What::Resource(pods), "why").message,
            "pods is forbidden: User \"a\\\"b\\x7f\" cannot  resource \"pods\" in API group \"\" at the cluster scope: why"
        );
    }
}
