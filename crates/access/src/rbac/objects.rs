//! Roles and bindings, as the index holds them.

use machinery::go_text::quote;
use machinery::json::{Text, Value};

use super::rule::Rule;

const USER_PREFIX: &str = "system:serviceaccount:";

/// Names a role or a binding. An object of the cluster has an empty namespace.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name {
    pub namespace: Text,
    pub name: Text,
}

impl Name {
    pub fn new(namespace: impl Into<Text>, name: impl Into<Text>) -> Self {
        Name { namespace: namespace.into(), name: name.into() }
    }
}

/// A Role or ClusterRole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Role {
    pub name: Name,
    pub rules: Vec<Rule>,
}

impl Role {
    #[must_use]
    pub fn from_value(name: Name, role: &Value) -> Self {
        Role { name, rules: rules(role) }
    }
}

/// The rules of a role object.
#[must_use]
pub fn rules(role: &Value) -> Vec<Rule> {
    match &role["rules"] {
        Value::Array(rules) => rules.iter().map(Rule::from_value).collect(),
        _ => Vec::new(),
    }
}

/// A RoleBinding or ClusterRoleBinding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Binding {
    pub name: Name,
    pub role: RoleRef,
    pub subjects: Vec<Subject>,
}

/// The role of a binding, as it is referred to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RoleRef {
    ClusterRole(Text),
    /// A Role in the namespace of the binding.
    Role(Text),
    /// A kind that is no role.
    Other {
        kind: Text,
        name: Text,
    },
}

/// The kinds of subjects. A subject of another kind is no subject.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SubjectKind {
    User,
    Group,
    ServiceAccount,
}

/// A subject of a binding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subject {
    pub kind: SubjectKind,
    pub name: Text,
    /// Of a service account; empty for that of the binding.
    pub namespace: Text,
}

impl RoleRef {
    fn from_value(reference: &Value) -> Self {
        let text = |member: &str| reference[member].as_str().map(Text::new).unwrap_or_default();
        match reference["kind"].as_str() {
            Some("ClusterRole") => RoleRef::ClusterRole(text("name")),
            Some("Role") => RoleRef::Role(text("name")),
            _ => RoleRef::Other { kind: text("kind"), name: text("name") },
        }
    }

    #[must_use]
    pub fn kind(&self) -> &str {
        match self {
            RoleRef::ClusterRole(_) => "ClusterRole",
            RoleRef::Role(_) => "Role",
            RoleRef::Other { kind, .. } => kind,
        }
    }

    #[must_use]
    pub fn name(&self) -> &Text {
        match self {
            RoleRef::ClusterRole(name) | RoleRef::Role(name) | RoleRef::Other { name, .. } => name,
        }
    }
}

impl Binding {
    #[must_use]
    pub fn from_value(name: Name, binding: &Value) -> Self {
        let subjects = match &binding["subjects"] {
            Value::Array(subjects) => subjects.iter().filter_map(Subject::from_value).collect(),
            _ => Vec::new(),
        };
        Binding { name, role: RoleRef::from_value(&binding["roleRef"]), subjects }
    }

    /// The role that the binding grants; none if it refers to something else, or to a Role from outside of a namespace.
    #[must_use]
    pub fn role_name(&self) -> Option<Name> {
        match &self.role {
            RoleRef::ClusterRole(name) => Some(Name::new("", name.clone())),
            RoleRef::Role(_) if self.name.namespace.is_empty() => None,
            RoleRef::Role(name) => Some(Name::new(self.name.namespace.clone(), name.clone())),
            RoleRef::Other { .. } => None,
        }
    }

    /// Why the role of the binding gives nothing, if it is not there.
    #[must_use]
    pub fn missing_role(&self) -> String {
        let kind = match &self.role {
            RoleRef::ClusterRole(_) => "clusterrole",
            RoleRef::Role(_) => "role",
            RoleRef::Other { kind, .. } => return format!("unsupported role reference kind: {}", quote(kind)),
        };
        format!("{kind}.rbac.authorization.k8s.io {} not found", quote(self.role.name()))
    }

    /// The kind of the binding.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        if self.name.namespace.is_empty() { "ClusterRoleBinding" } else { "RoleBinding" }
    }

    /// What allows a request, as reviews and the audit log name it.
    #[must_use]
    pub fn reason(&self, subject: &Subject) -> String {
        let namespace = &self.name.namespace;
        let name = if namespace.is_empty() {
            quote(&self.name.name)
        } else {
            quote(&format!("{}/{namespace}", self.name.name))
        };
        let role = quote(self.role.name());
        let subject = subject.description(namespace);
        format!("RBAC: allowed by {} {name} of {} {role} to {subject}", self.kind(), self.role.kind())
    }
}

impl Subject {
    fn from_value(subject: &Value) -> Option<Self> {
        let text = |member: &str| subject[member].as_str().map(Text::new).unwrap_or_default();
        let kind = match subject["kind"].as_str()? {
            "User" => SubjectKind::User,
            "Group" => SubjectKind::Group,
            "ServiceAccount" => SubjectKind::ServiceAccount,
            _ => return None,
        };
        Some(Subject { kind, name: text("name"), namespace: text("namespace") })
    }

    /// The user that the subject is, in a binding of that namespace; none for a group.
    #[must_use]
    pub fn user(&self, binding_namespace: &str) -> Option<Text> {
        match self.kind {
            SubjectKind::User => Some(self.name.clone()),
            SubjectKind::Group => None,
            SubjectKind::ServiceAccount => {
                let namespace = if self.namespace.is_empty() { binding_namespace } else { self.namespace.as_str() };
                (!namespace.is_empty()).then(|| format!("{USER_PREFIX}{namespace}:{}", self.name).into())
            }
        }
    }

    pub(crate) fn description(&self, binding_namespace: &str) -> String {
        match self.kind {
            SubjectKind::User => format!("User {}", quote(&self.name)),
            SubjectKind::Group => format!("Group {}", quote(&self.name)),
            SubjectKind::ServiceAccount => {
                let namespace = if self.namespace.is_empty() { binding_namespace } else { self.namespace.as_str() };
                format!("ServiceAccount {}", quote(&format!("{}/{namespace}", self.name)))
            }
        }
    }
}
