//! Whether a requester may impersonate a user.
//!
//! The constrained modes need two rights: to impersonate the identity, and to make this request while doing so. They are
//! tried before the older form, which needs the first only. The mode that a requester used last is tried before all others,
//! and its refusal is the one that is shown.

use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;

use access::authorizer::{Attributes, Authorizer, Decision, ResourceAttributes, What, forbidden};
use access::identity::{ANONYMOUS, AUTHENTICATED, MASTERS, UNAUTHENTICATED, User};
use machinery::FieldError;
use machinery::go_text::quote;
use machinery::names;
use machinery::status::Status;
use parking_lot::Mutex;

use super::Wanted;

const AUTHENTICATION: &str = "authentication.k8s.io";
const NODE: &str = "system:node:";
const ACCOUNT: &str = "system:serviceaccount:";
const NODE_NAME: &str = "authentication.kubernetes.io/node-name";
const ASSOCIATED_KEYS: &str = "authentication.kubernetes.io/associated-node-keys";
/// With this many groups or values, the right to all of them is checked first, and each alone only if that is missing.
const MANY: usize = 4;
/// Requesters whose last mode is remembered; at the limit all are forgotten.
const REMEMBERED_MAX: usize = 10_000;

/// A form of impersonation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// A service account impersonates the node that its pod runs on.
    AssociatedNode,
    ArbitraryNode,
    ServiceAccount,
    /// Any other user.
    UserInfo,
    /// The form before constrained impersonation.
    Legacy,
}

const ALL: [Mode; 5] = [Mode::AssociatedNode, Mode::ArbitraryNode, Mode::ServiceAccount, Mode::UserInfo, Mode::Legacy];

impl Mode {
    /// The verb on the identity.
    #[must_use]
    pub fn verb(self) -> &'static str {
        match self {
            Mode::AssociatedNode => "impersonate:associated-node",
            Mode::ArbitraryNode => "impersonate:arbitrary-node",
            Mode::ServiceAccount => "impersonate:serviceaccount",
            Mode::UserInfo => "impersonate:user-info",
            Mode::Legacy => "impersonate",
        }
    }

    /// The constraint that the audit log names; none for the older form.
    #[must_use]
    pub fn constraint(self) -> Option<&'static str> {
        (self != Mode::Legacy).then(|| self.verb())
    }

    fn is_constrained(self) -> bool {
        self != Mode::Legacy
    }

    /// Whether a wish can be granted in this mode.
    fn applies(self, wanted: &Wanted, requester: &User) -> bool {
        let node = node_name(&wanted.name);
        match self {
            Mode::AssociatedNode => wanted.is_name_only() && node.is_some_and(|node| runs_on(requester, node)),
            Mode::ArbitraryNode => wanted.is_name_only() && node.is_some(),
            Mode::ServiceAccount => wanted.is_name_only() && account_name(&wanted.name).is_some(),
            Mode::UserInfo => node.is_none() && account_name(&wanted.name).is_none(),
            Mode::Legacy => true,
        }
    }
}

/// A granted impersonation.
#[derive(Clone, Debug)]
pub struct Impersonation {
    pub user: Arc<User>,
    pub mode: Mode,
}

/// Checks impersonations, and remembers the modes that requesters use.
#[derive(Debug, Default)]
pub struct Modes {
    /// By the hash of a requester's name: a collision changes only the order of the checks.
    last: Mutex<HashMap<u64, Mode>>,
    hasher: RandomState,
}

impl Modes {
    /// Returns the impersonated user, or the 403. `request` are the attributes of the request itself.
    pub async fn impersonate(
        &self,
        authorizer: &dyn Authorizer,
        wanted: &Wanted,
        request: &Attributes<'_>,
    ) -> Result<Impersonation, Status> {
        let requester = self.hasher.hash_one(&request.user.name);
        let last = self.last.lock().get(&requester).copied();
        let mut refusal = None;
        for mode in last.into_iter().chain(ALL.into_iter().filter(|mode| Some(*mode) != last)) {
            if !mode.applies(wanted, request.user) {
                continue;
            }
            match check(authorizer, mode, wanted, request).await {
                Ok(user) => {
                    if last != Some(mode) {
                        self.remember(requester, mode);
                    }
                    return Ok(Impersonation { user: Arc::new(user), mode });
                }
                Err(status) => refusal = refusal.or(Some(status)),
            }
        }
        Err(refusal.unwrap_or_else(|| Status::internal("all impersonation modes failed")))
    }

    fn remember(&self, requester: u64, mode: Mode) {
        let mut last = self.last.lock();
        if last.len() >= REMEMBERED_MAX {
            last.clear();
        }
        last.insert(requester, mode);
    }
}

/// Checks one mode.
async fn check(
    authorizer: &dyn Authorizer,
    mode: Mode,
    wanted: &Wanted,
    request: &Attributes<'_>,
) -> Result<User, Status> {
    // The right must hold for the account on every node: its own extra would make the decision depend on the node.
    let on_any_node = (mode == Mode::AssociatedNode).then(|| {
        let keys = request.user.extra.keys().cloned().collect();
        User { extra: BTreeMap::from([(ASSOCIATED_KEYS.to_owned(), keys)]), ..request.user.clone() }
    });
    let checks = Checks { authorizer, mode, user: on_any_node.as_ref().unwrap_or(request.user) };
    if mode.is_constrained() {
        let verb = format!("impersonate-on:{}:{}", mode.verb().trim_start_matches("impersonate:"), request.verb);
        checks.allowed(&verb, request.what).await?;
    }
    checks.identity(wanted).await
}

/// The checks of one mode.
struct Checks<'a> {
    authorizer: &'a dyn Authorizer,
    mode: Mode,
    user: &'a User,
}

impl Checks<'_> {
    async fn allowed(&self, verb: &str, what: What<'_>) -> Result<(), Status> {
        let attributes = Attributes { user: self.user, verb, what };
        let decision = self.authorizer.authorize(&attributes).get().await;
        if decision.allowed {
            return Ok(());
        }
        let reason = match (decision.error.is_empty(), decision.reason.is_empty()) {
            (true, _) => decision.reason,
            (false, true) => decision.error,
            (false, false) => format!("{}: {}", decision.error, decision.reason).into(),
        };
        Err(forbidden(&attributes, &Decision::no_opinion_because(reason)))
    }

    async fn part(&self, part: ResourceAttributes<'_>) -> Result<(), Status> {
        self.allowed(self.mode.verb(), What::Resource(part)).await
    }

    /// The refusal of a wish that no right allows.
    fn never(&self, part: ResourceAttributes<'_>, why: String) -> Status {
        let attributes = Attributes { user: self.user, verb: self.mode.verb(), what: What::Resource(part) };
        forbidden(&attributes, &Decision::no_opinion_because(why))
    }

    /// Checks each part of the identity; returns the user.
    async fn identity(&self, wanted: &Wanted) -> Result<User, Status> {
        let constrained = self.mode.is_constrained();
        let authentication =
            ResourceAttributes { group: AUTHENTICATION, version: "v1", ..ResourceAttributes::default() };
        let names = if constrained { authentication } else { ResourceAttributes { group: "", ..authentication } };
        let mut groups = wanted.groups.clone();
        let mut name = ResourceAttributes { resource: "users", name: &wanted.name, ..names };
        if constrained && let Some(node) = node_name(&wanted.name) {
            let node = if self.mode == Mode::AssociatedNode { "*" } else { node };
            name = ResourceAttributes { resource: "nodes", name: node, ..names };
            groups = vec!["system:nodes".to_owned()];
        }
        if let Some((namespace, account)) = account_name(&wanted.name) {
            name = ResourceAttributes { resource: "serviceaccounts", namespace, name: account, ..names };
            if groups.is_empty() {
                groups = vec!["system:serviceaccounts".to_owned(), format!("system:serviceaccounts:{namespace}")];
            }
        }
        self.part(name).await?;
        if !wanted.uid.is_empty() {
            self.part(ResourceAttributes { resource: "uids", name: &wanted.uid, ..authentication }).await?;
        }
        self.groups(&wanted.groups, ResourceAttributes { resource: "groups", ..names }).await?;
        self.extra(&wanted.extra, ResourceAttributes { resource: "userextras", ..authentication }).await?;
        let holds = |groups: &[String], group: &str| groups.iter().any(|held| held == group);
        let ensured = if wanted.name == ANONYMOUS { UNAUTHENTICATED } else { AUTHENTICATED };
        if !holds(&groups, ensured) && (wanted.name == ANONYMOUS || !holds(&groups, UNAUTHENTICATED)) {
            groups.push(ensured.to_owned());
        }
        Ok(User { name: wanted.name.clone(), uid: wanted.uid.clone(), groups, extra: wanted.extra.clone() })
    }

    async fn groups(&self, groups: &[String], part: ResourceAttributes<'_>) -> Result<(), Status> {
        if self.mode.is_constrained() {
            if groups.iter().any(String::is_empty) {
                return Err(self.never(part, "impersonating the empty string group is not allowed".to_owned()));
            }
            if groups.iter().any(|group| group == MASTERS) {
                let part = ResourceAttributes { name: MASTERS, ..part };
                return Err(self.never(part, "impersonating the system:masters group is not allowed".to_owned()));
            }
            if groups.len() >= MANY && self.part(ResourceAttributes { name: "*", ..part }).await.is_ok() {
                return Ok(());
            }
        }
        for name in groups {
            self.part(ResourceAttributes { name, ..part }).await?;
        }
        Ok(())
    }

    async fn extra(&self, extra: &BTreeMap<String, Vec<String>>, part: ResourceAttributes<'_>) -> Result<(), Status> {
        if self.mode.is_constrained() {
            if let Some(why) = extra.iter().find_map(|(key, values)| extra_objection(key, values)) {
                return Err(self.never(part, why));
            }
            let count: usize = extra.values().map(Vec::len).sum();
            let all = ResourceAttributes { subresource: "*", name: "*", ..part };
            if count.max(extra.len()) >= MANY && self.part(all).await.is_ok() {
                return Ok(());
            }
        }
        for (key, values) in extra {
            for name in values {
                self.part(ResourceAttributes { subresource: key, name, ..part }).await?;
            }
        }
        Ok(())
    }
}

/// The reason why no right allows an extra value, in the constrained modes.
fn extra_objection(key: &str, values: &[String]) -> Option<String> {
    if key.is_empty() {
        return Some("impersonating the empty string key in extra is not allowed".to_owned());
    }
    if let Some(why) = path_objection(key) {
        return Some(format!("impersonating an invalid key in extra is not allowed: {why}"));
    }
    if key.chars().any(char::is_uppercase) {
        return Some(format!("impersonating a non-lowercase key in extra is not allowed: {}", quote(key)));
    }
    if values.is_empty() {
        return Some("impersonating empty values in extra is not allowed".to_owned());
    }
    values
        .iter()
        .any(String::is_empty)
        .then(|| "impersonating the empty string value in extra is not allowed".to_owned())
}

/// What is wrong with a key that must be a domain and a path.
fn path_objection(key: &str) -> Option<String> {
    let Some((domain, path)) = key.split_once('/').filter(|(domain, path)| !domain.is_empty() && !path.is_empty())
    else {
        let why = "must be a domain-prefixed path (such as \"acme.io/foo\")";
        return Some(FieldError::invalid("extra.key", key, why).to_string());
    };
    let mut errors: Vec<FieldError> =
        names::dns1123_subdomain(domain).into_iter().map(|why| FieldError::invalid("extra.key", domain, why)).collect();
    if !path.chars().all(|c| c.is_ascii_alphanumeric() || "/:._~!$&'()*+,;=%-".contains(c)) {
        let why = names::regex_objection("Invalid path", r"[A-Za-z0-9/\-._~%!$&'()*+,;=:]+", &[]);
        errors.push(FieldError::invalid("extra.key", path, why));
    }
    match errors.as_slice() {
        [] => None,
        [one] => Some(one.to_string()),
        several => Some(format!("[{}]", several.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "))),
    }
}

/// The node of a well-formed node user.
fn node_name(user: &str) -> Option<&str> {
    user.strip_prefix(NODE).filter(|name| names::dns1123_subdomain(name).is_empty())
}

/// Namespace and name of a well-formed service account user.
fn account_name(user: &str) -> Option<(&str, &str)> {
    let (namespace, name) = user.strip_prefix(ACCOUNT)?.split_once(':')?;
    let well_formed = names::dns1123_label(namespace).is_empty() && names::dns1123_subdomain(name).is_empty();
    well_formed.then_some((namespace, name))
}

/// Whether a service account's token was issued on this node.
fn runs_on(requester: &User, node: &str) -> bool {
    account_name(&requester.name).is_some()
        && requester.extra.get(NODE_NAME).is_some_and(|values| values.as_slice() == [node.to_owned()])
}

#[cfg(test)]
#[path = "modes_tests.rs"]
mod tests;
