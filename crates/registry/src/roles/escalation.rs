//! Refuses a write that grants more than its user holds.
//!
//! A user may write a role if it holds all of its rules, and a binding if it holds those of the bound role. The verbs `escalate`
//! and `bind` are the exceptions that an administrator can grant.

use access::authorizer::{Attributes as Request, ResourceAttributes, RuleList, What};
use access::rbac::covering::{confirm_held, covers};
use access::rbac::objects::{self, Binding, Name, RoleRef};
use access::rbac::rule::Rule;
use machinery::Status;
use machinery::json::Value;

use super::GROUP;
use crate::admission::plugin::{Attributes, Options};
use crate::collections::{CLUSTER_ROLES, ROLES};
use crate::meta;
use crate::registry::Registry;

/// Checks the next state of a role or binding. `old` is the state before an update.
pub(crate) async fn check(
    registry: &Registry,
    attributes: &Attributes<'_>,
    new: &Value,
    old: Option<&Value>,
) -> Result<(), Status> {
    let user = &attributes.ctx.user;
    // A write without options is the server's own.
    if user.is_master() || matches!(attributes.options, Options::None) {
        return Ok(());
    }
    match attributes.target.kind.collection.as_str() {
        ROLES | CLUSTER_ROLES => check_role(registry, attributes, new, old).await,
        _ => check_binding(registry, attributes, new, old).await,
    }
}

async fn check_role(
    registry: &Registry,
    attributes: &Attributes<'_>,
    new: &Value,
    old: Option<&Value>,
) -> Result<(), Status> {
    let target = attributes.target;
    let about = ResourceAttributes {
        resource: &target.kind.plural,
        name: target.name(),
        namespace: namespace(attributes),
        ..rbac_resource()
    };
    if is_allowed(registry, attributes, "escalate", about).await || changes_nothing_that_counts(old, new) {
        return Ok(());
    }
    let held = held(registry, attributes);
    let refuse = |why: String| Status::forbidden(&target.gr(), meta::name(new), why);
    confirm_held(&attributes.ctx.user, &held, &objects::rules(new)).map_err(refuse)?;
    if [Some(new), old].into_iter().flatten().any(collects) && !covers(&held.rules, &everything()) {
        return Err(refuse("must have cluster-admin privileges to use the aggregationRule".to_owned()));
    }
    Ok(())
}

async fn check_binding(
    registry: &Registry,
    attributes: &Attributes<'_>,
    new: &Value,
    old: Option<&Value>,
) -> Result<(), Status> {
    if changes_nothing_that_counts(old, new) {
        return Ok(());
    }
    let binding = Binding::from_value(Name::new(namespace(attributes), meta::name(new)), new);
    let group = new["roleRef"]["apiGroup"].as_str().unwrap_or_default();
    let (resource, role) = match &binding.role {
        RoleRef::ClusterRole(name) => ("clusterroles", name),
        RoleRef::Role(name) => ("roles", name),
        RoleRef::Other { .. } => return Err(Status::unmapped(binding.missing_role())),
    };
    let about =
        ResourceAttributes { group, resource, name: role, namespace: &binding.name.namespace, ..rbac_resource() };
    if is_allowed(registry, attributes, "bind", about).await {
        return Ok(());
    }
    if matches!(binding.role, RoleRef::Role(_)) && binding.name.namespace.is_empty() {
        return Err(Status::bad_request("Namespace parameter required."));
    }
    let Some(granted) = registry.settings().roles.index().role_of(&binding) else {
        return Err(not_found(attributes, role));
    };
    let refuse = |why: String| Status::forbidden(&attributes.target.gr(), meta::name(new), why);
    confirm_held(&attributes.ctx.user, &held(registry, attributes), &granted.rules).map_err(refuse)
}

fn rbac_resource() -> ResourceAttributes<'static> {
    ResourceAttributes { group: GROUP, version: "*", ..ResourceAttributes::default() }
}

fn namespace<'a>(attributes: &Attributes<'a>) -> &'a str {
    attributes.target.namespace.as_deref().filter(|_| attributes.target.kind.namespaced).unwrap_or_default()
}

async fn is_allowed(
    registry: &Registry,
    attributes: &Attributes<'_>,
    verb: &str,
    about: ResourceAttributes<'_>,
) -> bool {
    let request = Request { user: &attributes.ctx.user, verb, what: What::Resource(about) };
    registry.settings().authorizer.authorize(&request).get().await.allowed
}

/// The rules that the user of a write holds where it writes, and the roles that are missing.
fn held(registry: &Registry, attributes: &Attributes<'_>) -> RuleList {
    let granted = registry.settings().roles.index().granted(&attributes.ctx.user, namespace(attributes));
    let mut held = RuleList::default();
    for granted in granted {
        match &granted.role {
            Some(role) => held.rules.extend(role.rules.iter().cloned()),
            None => held.errors.push(missing(attributes, &granted.binding)),
        }
    }
    held
}

fn missing(attributes: &Attributes<'_>, binding: &Binding) -> String {
    match &binding.role {
        RoleRef::ClusterRole(name) | RoleRef::Role(name) => not_found(attributes, name).message,
        RoleRef::Other { .. } => binding.missing_role(),
    }
}

/// A role that is not there. As in the reference, the text has the name of the role and the resource of the request.
fn not_found(attributes: &Attributes<'_>, role: &str) -> Status {
    Status::not_found(&attributes.target.gr(), role)
}

fn everything() -> [Rule; 2] {
    [Rule::every_resource(), Rule::every_path()]
}

/// Whether a ClusterRole collects the rules of others.
fn collects(role: &Value) -> bool {
    role["aggregationRule"]["clusterRoleSelectors"].as_array().is_some_and(|selectors| !selectors.is_empty())
}

/// Whether an update changes only what the garbage collector needs to.
fn changes_nothing_that_counts(old: Option<&Value>, new: &Value) -> bool {
    const IGNORED: [&str; 4] = ["ownerReferences", "finalizers", "managedFields", "selfLink"];
    let Some(old) = old else { return false };
    let compared = |object: &Value| {
        let mut object = object.clone();
        let metadata = meta::of_mut(&mut object);
        IGNORED.iter().for_each(|member| {
            metadata.shift_remove(member);
        });
        object
    };
    compared(old) == compared(new)
}
