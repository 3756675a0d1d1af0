//! One rule: operations, groups, versions, resources, scope, and names.

use machinery::json::Value;
use schema::kind::Kind;

use super::super::plugin::{Attributes, Operation};

const ANY: &str = "*";

/// A rule of a webhook, or of the constraints of a policy.
#[derive(Clone, Debug)]
pub(crate) struct Rule {
    pub(super) operations: Operations,
    pub(super) groups: Names,
    versions: Names,
    pub(super) resources: Vec<Resource>,
    scope: Scope,
    /// Names of objects; empty for all. Only policies have them.
    names: Vec<Box<str>>,
}

/// A set of operations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Operations(u8);

/// A list of names, or all of them.
#[derive(Clone, Debug)]
pub(super) enum Names {
    Any,
    These(Vec<Box<str>>),
}

/// `pods`, `pods/status`, `pods/*`, `*`, `*/*` or `*/scale`. Without a slash no subresource is meant.
#[derive(Clone, Debug)]
pub(super) struct Resource {
    /// None for `*`.
    pub(super) plural: Option<Box<str>>,
    subresource: Subresource,
}

#[derive(Clone, Debug)]
enum Subresource {
    None,
    Any,
    This(Box<str>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scope {
    Any,
    Namespaced,
    Cluster,
}

/// The parts of a request that rules compare.
#[derive(Clone, Copy)]
pub(super) struct Asked<'a> {
    operation: Operation,
    group: &'a str,
    version: &'a str,
    plural: &'a str,
    pub(super) subresource: Option<&'a str>,
    has_namespace: bool,
    name: &'a str,
}

impl Operations {
    fn of(operation: Operation) -> Self {
        Operations(1 << operation as u8)
    }

    pub(super) fn all() -> Self {
        Operations(u8::MAX)
    }

    fn read(names: &Value) -> Self {
        let mut set = 0;
        for name in texts(names) {
            set |= match name {
                "CREATE" => Operations::of(Operation::Create).0,
                "UPDATE" => Operations::of(Operation::Update).0,
                "DELETE" => Operations::of(Operation::Delete).0,
                "CONNECT" => Operations::of(Operation::Connect).0,
                ANY => u8::MAX,
                _ => 0,
            };
        }
        Operations(set)
    }

    pub(super) fn has(self, operation: Operation) -> bool {
        self.0 & Operations::of(operation).0 != 0
    }

    pub(super) fn and(self, other: Operations) -> Self {
        Operations(self.0 | other.0)
    }
}

impl Names {
    fn read(names: &Value) -> Self {
        if texts(names).any(|name| name == ANY) {
            return Names::Any;
        }
        Names::These(texts(names).map(Into::into).collect())
    }

    fn has(&self, name: &str) -> bool {
        match self {
            Names::Any => true,
            Names::These(names) => names.iter().any(|known| **known == *name),
        }
    }
}

impl Resource {
    fn read(text: &str) -> Self {
        let (plural, subresource) = match text.split_once('/') {
            None => (text, Subresource::None),
            Some((plural, ANY)) => (plural, Subresource::Any),
            Some((plural, "")) => (plural, Subresource::None),
            Some((plural, name)) => (plural, Subresource::This(name.into())),
        };
        Resource { plural: (plural != ANY).then(|| plural.into()), subresource }
    }

    fn matches(&self, asked: &Asked<'_>) -> bool {
        self.plural.as_deref().is_none_or(|plural| plural == asked.plural)
            && match &self.subresource {
                Subresource::None => asked.subresource.is_none(),
                Subresource::Any => true,
                Subresource::This(name) => asked.subresource == Some(name),
            }
    }
}

impl<'a> Asked<'a> {
    pub(super) fn of(attributes: &Attributes<'a>) -> Self {
        let kind = &attributes.target.kind;
        Asked {
            operation: attributes.operation,
            group: &kind.gvk.group,
            version: &kind.gvk.version,
            plural: &kind.plural,
            subresource: attributes.subresource(),
            has_namespace: !attributes.namespace().is_empty(),
            name: attributes.name,
        }
    }

    /// The same request in another version of its resource.
    pub(super) fn in_version<'k>(&self, kind: &'k Kind) -> Asked<'k>
    where
        'a: 'k,
    {
        Asked { group: &kind.gvk.group, version: &kind.gvk.version, plural: &kind.plural, ..*self }
    }

    fn is_namespace(&self) -> bool {
        self.group.is_empty() && self.version == "v1" && self.plural == "namespaces"
    }
}

impl Rule {
    pub(super) fn read(rule: &Value) -> Self {
        Rule {
            operations: Operations::read(&rule["operations"]),
            groups: Names::read(&rule["apiGroups"]),
            versions: Names::read(&rule["apiVersions"]),
            resources: texts(&rule["resources"]).map(Resource::read).collect(),
            scope: match rule["scope"].as_str() {
                Some("Namespaced") => Scope::Namespaced,
                Some("Cluster") => Scope::Cluster,
                _ => Scope::Any,
            },
            names: texts(&rule["resourceNames"]).map(Into::into).collect(),
        }
    }

    pub(super) fn matches(&self, asked: &Asked<'_>) -> bool {
        self.matches_scope(asked)
            && self.operations.has(asked.operation)
            && self.groups.has(asked.group)
            && self.versions.has(asked.version)
            && self.resources.iter().any(|resource| resource.matches(asked))
            && (self.names.is_empty() || self.names.iter().any(|name| **name == *asked.name))
    }

    /// Whether it is worth comparing other versions of the resource. Cheap, and true if in doubt.
    pub(super) fn may_match_another_version(&self, asked: &Asked<'_>) -> bool {
        self.operations.has(asked.operation) && self.resources.iter().any(|resource| resource.matches(asked))
    }

    fn matches_scope(&self, asked: &Asked<'_>) -> bool {
        let cluster = asked.is_namespace() || !asked.has_namespace;
        match self.scope {
            Scope::Any => true,
            Scope::Namespaced => !cluster,
            Scope::Cluster => cluster,
        }
    }
}

fn texts(list: &Value) -> impl Iterator<Item = &str> {
    list.as_array().into_iter().flatten().filter_map(Value::as_str)
}

#[cfg(test)]
mod tests {
    use machinery::json::json;

    use super::*;

    const POD: Asked<'_> = Asked {
        operation: Operation::Create,
        group: "",
        version: "v1",
        plural: "pods",
        subresource: None,
        has_namespace: true,
        name: "p",
    };

    fn rule(resources: &[&str]) -> Rule {
        Rule::read(&json!({"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": resources}))
    }

    #[test]
    fn ad_31_25_resources_and_their_subresources() {
        let status = Asked { subresource: Some("status"), ..POD };
        let scale = Asked { plural: "deployments", subresource: Some("scale"), ..POD };
        for (resource, matches) in [
            ("pods", [true, false, false]),
            ("pods/status", [false, true, false]),
            ("pods/*", [true, true, false]),
            ("*", [true, false, false]),
            ("*/*", [true, true, true]),
            ("*/scale", [false, false, true]),
            ("services", [false, false, false]),
        ] {
            let rule = rule(&[resource]);
            assert_eq!([POD, status, scale].map(|asked| rule.matches(&asked)), matches, "{resource}");
        }
        assert!(rule(&["services", "pods"]).matches(&POD));
    }

    #[test]
    fn ad_31_every_part_of_a_rule_must_match() {
        let with = |member: &str, value: Value| {
            let mut rule =
                json!({"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]});
            rule[member] = value;
            Rule::read(&rule).matches(&POD)
        };
        for (member, matching, other) in [
            ("operations", json!(["UPDATE", "CREATE"]), json!(["UPDATE", "DELETE", "CONNECT"])),
            ("operations", json!(["*"]), json!([])),
            ("apiGroups", json!(["*"]), json!(["apps"])),
            ("apiVersions", json!(["*"]), json!(["v2"])),
            ("resources", json!(["*"]), json!([])),
            ("resourceNames", json!(["a", "p"]), json!(["a"])),
        ] {
            assert!(with(member, matching.clone()), "{member} {matching}");
            assert!(!with(member, other.clone()), "{member} {other}");
        }
    }

    #[test]
    fn ad_32_namespaces_are_of_the_cluster() {
        let namespace = Asked { plural: "namespaces", ..POD };
        let node = Asked { plural: "nodes", has_namespace: false, ..POD };
        for (scope, matches) in
            [("*", [true, true, true]), ("Namespaced", [true, false, false]), ("Cluster", [false, true, true])]
        {
            let rule = Rule::read(
                &json!({"operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*"], "scope": scope}),
            );
            assert_eq!([POD, namespace, node].map(|asked| rule.matches(&asked)), matches, "{scope}");
        }
    }
}
