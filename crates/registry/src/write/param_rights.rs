//! Policies with parameters: their author must be able to read what they make the server read.

use std::fmt::Write as _;

use access::User;
use access::authorizer::{Attributes as Request, ResourceAttributes, What};
use machinery::json::Value;
use machinery::{FieldError, Status};

use crate::admission::plugin::{Attributes, Options};
use crate::body;
use crate::meta;
use crate::registry::Registry;

const GROUP: &str = "admissionregistration.k8s.io";

/// A kind of object with parameters.
#[derive(Clone, Copy)]
enum Subject {
    Policy,
    /// A binding, and the collection of its policies.
    Binding(&'static str),
}

/// Checks the next state of a policy or of its binding, once it is valid otherwise.
pub(crate) async fn check(
    registry: &Registry,
    attributes: &Attributes<'_>,
    new: &Value,
    old: Option<&Value>,
) -> Result<(), Status> {
    let kind = &attributes.target.kind;
    if kind.gvk.group != GROUP || attributes.subresource().is_some() {
        return Ok(());
    }
    let subject = match kind.plural.as_str() {
        "validatingadmissionpolicies" | "mutatingadmissionpolicies" => Subject::Policy,
        "validatingadmissionpolicybindings" => {
            Subject::Binding("admissionregistration.k8s.io/validatingadmissionpolicies")
        }
        "mutatingadmissionpolicybindings" => Subject::Binding("admissionregistration.k8s.io/mutatingadmissionpolicies"),
        _ => return Ok(()),
    };
    // A write without options is the server's own.
    if attributes.ctx.user.is_master() || matches!(attributes.options, Options::None) {
        return Ok(());
    }
    let (field, refused) = match subject {
        Subject::Policy => ("spec.paramKind", policy(registry, attributes, new, old).await),
        Subject::Binding(policies) => ("spec.paramRef", binding(registry, attributes, new, policies).await),
    };
    let Err(why) = refused else { return Ok(()) };
    Err(Status::invalid(&body::error_kind(kind), meta::name(new), &[FieldError::forbidden(field, why)]))
}

async fn policy(
    registry: &Registry,
    attributes: &Attributes<'_>,
    new: &Value,
    old: Option<&Value>,
) -> Result<(), String> {
    let param_kind = &new["spec"]["paramKind"];
    if param_kind.is_null() || old.is_some_and(|old| old["spec"]["paramKind"] == *param_kind) {
        return Ok(());
    }
    let resource = Resource::of(registry, param_kind);
    let about = ResourceAttributes { name: "*", namespace: "*", ..resource.attributes() };
    if is_allowed(registry, &attributes.ctx.user, "get", about).await? {
        return Ok(());
    }
    let (kind, version) = (text(param_kind, "kind"), text(param_kind, "apiVersion"));
    Err(format!(
        "user {} must have \"get\" permission on all objects of the referenced paramKind (kind={kind}, \
         apiVersion={version})",
        shown(&attributes.ctx.user),
    ))
}

async fn binding(registry: &Registry, attributes: &Attributes<'_>, new: &Value, policies: &str) -> Result<(), String> {
    let reference = &new["spec"]["paramRef"];
    if reference.is_null() {
        return Ok(());
    }
    let name = text(&new["spec"], "policyName");
    let policy = registry.cached_object(policies, None, name);
    let resource = match policy.as_ref().map(|policy| &policy["spec"]["paramKind"]) {
        Some(param_kind) if !param_kind.is_null() => Resource::of(registry, param_kind),
        _ => Resource::any(),
    };
    let verb = if text(reference, "name").is_empty() { "list" } else { "get" };
    let about = ResourceAttributes {
        name: text(reference, "name"),
        namespace: text(reference, "namespace"),
        ..resource.attributes()
    };
    let user = &attributes.ctx.user;
    if is_allowed(registry, user, verb, about).await.map_err(|why| format!("failed to authorize request: {why}"))? {
        return Ok(());
    }
    let lacks = format!("user {} does not have \"{verb}\" permission", shown(user));
    Err(match (policy.is_some(), resource.is_known) {
        (false, _) => format!(
            "unable to get policy {name} to determine minimum required permissions and {lacks} for all groups, versions \
             and resources"
        ),
        (true, false) => format!(
            "unable to resolve paramKind {} to determine minimum required permissions and {lacks} for all groups, \
             versions and resources",
            resource.shown,
        ),
        (true, true) => format!("{lacks} on the object referenced by paramRef"),
    })
}

/// The resource of parameters; stars for what is not known.
struct Resource {
    group: String,
    version: String,
    resource: String,
    is_known: bool,
    /// The kind as Go prints it.
    shown: String,
}

impl Resource {
    fn any() -> Self {
        let all = || "*".to_owned();
        Resource { group: all(), version: all(), resource: all(), is_known: true, shown: String::new() }
    }

    fn of(registry: &Registry, param_kind: &Value) -> Self {
        let (api_version, name) = (text(param_kind, "apiVersion"), text(param_kind, "kind"));
        let shown = format!("&ParamKind{{APIVersion:{api_version},Kind:{name},}}");
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        if version.contains('/') {
            return Resource { is_known: false, shown, ..Self::any() };
        }
        let kinds = registry.kinds();
        let found =
            kinds.iter().find(|kind| kind.gvk.group == group && kind.gvk.version == version && kind.gvk.kind == name);
        Resource {
            group: group.to_owned(),
            version: version.to_owned(),
            resource: found.map_or("*", |kind| &kind.plural).to_owned(),
            is_known: found.is_some(),
            shown,
        }
    }

    fn attributes(&self) -> ResourceAttributes<'_> {
        ResourceAttributes {
            group: &self.group,
            version: &self.version,
            resource: &self.resource,
            ..ResourceAttributes::default()
        }
    }
}

async fn is_allowed(
    registry: &Registry,
    user: &User,
    verb: &str,
    about: ResourceAttributes<'_>,
) -> Result<bool, String> {
    let request = Request { user, verb, what: What::Resource(about) };
    let decision = registry.settings().authorizer.authorize(&request).get().await;
    if decision.error.is_empty() { Ok(decision.allowed) } else { Err(decision.error.to_string()) }
}

fn text<'v>(value: &'v Value, member: &str) -> &'v str {
    value[member].as_str().unwrap_or_default()
}

/// A user as Go prints its fields.
fn shown(user: &User) -> String {
    let mut extra = String::new();
    for (key, values) in &user.extra {
        let separator = if extra.is_empty() { "" } else { " " };
        let _ = write!(extra, "{separator}{key}:[{}]", values.join(" "));
    }
    format!("&{{{} {} [{}] map[{extra}]}}", user.name, user.uid, user.groups.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn az_77_a_user_is_shown_with_its_groups() {
        let user = User { name: "alice".to_owned(), uid: "7".to_owned(), ..User::default() }.authenticated();
        assert_eq!(shown(&user), "&{alice 7 [system:authenticated] map[]}");
    }
}
