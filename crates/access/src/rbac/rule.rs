//! A rule of a role, and which requests it allows.

use machinery::json::{Map, Text, Value};

use crate::authorizer::{ResourceAttributes, What};

const ALL: &str = "*";

/// One rule: verbs on resources, or verbs on paths.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Rule {
    pub verbs: Vec<Text>,
    pub groups: Vec<Text>,
    pub resources: Vec<Text>,
    /// Empty for objects of any name.
    pub names: Vec<Text>,
    pub paths: Vec<Text>,
}

impl Rule {
    /// The rule for everything that is a resource.
    #[must_use]
    pub fn every_resource() -> Self {
        let all = || vec![Text::new(ALL)];
        Rule { verbs: all(), groups: all(), resources: all(), ..Rule::default() }
    }

    /// The rule for everything that is not a resource.
    #[must_use]
    pub fn every_path() -> Self {
        let all = || vec![Text::new(ALL)];
        Rule { verbs: all(), paths: all(), ..Rule::default() }
    }

    /// Whether the rule allows a request. Selectors and versions do not matter.
    #[must_use]
    pub fn allows(&self, verb: &str, what: &What<'_>) -> bool {
        match what {
            What::Resource(resource) => self.allows_resource(verb, resource),
            What::Path(path) => self.allows_path(verb, path),
        }
    }

    #[must_use]
    pub fn allows_resource(&self, verb: &str, about: &ResourceAttributes<'_>) -> bool {
        self.has_verb(verb) && self.has_group(about.group) && self.has_resource(about) && self.has_name(about.name)
    }

    #[must_use]
    pub fn allows_path(&self, verb: &str, path: &str) -> bool {
        self.has_verb(verb) && self.has_path(path)
    }

    #[must_use]
    pub fn has_verb(&self, verb: &str) -> bool {
        has_or_all(&self.verbs, verb)
    }

    #[must_use]
    pub fn has_group(&self, group: &str) -> bool {
        has_or_all(&self.groups, group)
    }

    #[must_use]
    pub fn has_resource(&self, about: &ResourceAttributes<'_>) -> bool {
        self.resources.iter().any(|listed| {
            listed == ALL
                || is_joined(listed, about.resource, about.subresource)
                || (!about.subresource.is_empty() && listed.strip_prefix("*/") == Some(about.subresource))
        })
    }

    #[must_use]
    pub fn has_name(&self, name: &str) -> bool {
        self.names.is_empty() || has(&self.names, name)
    }

    #[must_use]
    pub fn has_path(&self, path: &str) -> bool {
        self.paths.iter().any(|listed| listed == path || is_prefix(listed, path))
    }

    /// Reads a rule of a role as it is stored.
    #[must_use]
    pub fn from_value(rule: &Value) -> Self {
        let texts = |member: &str| match &rule[member] {
            Value::Array(items) => items.iter().filter_map(Value::as_str).map(Text::new).collect(),
            _ => Vec::new(),
        };
        Rule {
            verbs: texts("verbs"),
            groups: texts("apiGroups"),
            resources: texts("resources"),
            names: texts("resourceNames"),
            paths: texts("nonResourceURLs"),
        }
    }

    /// The rule as a role states it.
    #[must_use]
    pub fn to_value(&self) -> Value {
        let mut rule = Map::new();
        let parts = [
            ("verbs", &self.verbs),
            ("apiGroups", &self.groups),
            ("resources", &self.resources),
            ("resourceNames", &self.names),
            ("nonResourceURLs", &self.paths),
        ];
        for (member, texts) in parts {
            if !texts.is_empty() || member == "verbs" {
                let texts: Vec<Value> = texts.iter().map(|text| Value::String(text.clone())).collect();
                rule.insert(member, texts.into());
            }
        }
        rule.into()
    }
}

pub(crate) fn has(texts: &[Text], wanted: &str) -> bool {
    texts.iter().any(|text| text == wanted)
}

pub(crate) fn has_or_all(texts: &[Text], wanted: &str) -> bool {
    texts.iter().any(|text| text == wanted || text == ALL)
}

/// Whether `listed` is `resource`, or `resource/subresource`.
fn is_joined(listed: &str, resource: &str, subresource: &str) -> bool {
    if subresource.is_empty() {
        return listed == resource;
    }
    listed.strip_prefix(resource).and_then(|rest| rest.strip_prefix('/')) == Some(subresource)
}

/// Whether `listed` ends in a star and the text before it begins `path`.
pub(crate) fn is_prefix(listed: &str, path: &str) -> bool {
    listed.ends_with('*') && path.starts_with(listed.trim_end_matches('*'))
}

#[cfg(test)]
mod tests {
    use machinery::json::json;

    use super::*;

    fn rule(value: Value) -> Rule {
        Rule::from_value(&value)
    }

    fn resource<'a>(group: &'a str, resource: &'a str, subresource: &'a str, name: &'a str) -> ResourceAttributes<'a> {
        ResourceAttributes { group, resource, subresource, name, ..ResourceAttributes::default() }
    }

    #[test]
    fn az_31_verbs_and_groups_are_equal_or_a_star() {
        let named = rule(json!({"verbs": ["get"], "apiGroups": ["", "apps"], "resources": ["*"]}));
        assert!(named.allows_resource("get", &resource("", "pods", "", "")));
        assert!(named.allows_resource("get", &resource("apps", "deployments", "", "")));
        assert!(!named.allows_resource("get", &resource("app", "deployments", "", "")));
        assert!(!named.allows_resource("list", &resource("", "pods", "", "")));
        assert!(!named.allows_resource("GET", &resource("", "pods", "", "")));
        assert!(!named.allows_resource("", &resource("", "pods", "", "")));
        let all = rule(json!({"verbs": ["get", "*"], "apiGroups": ["*"], "resources": ["pods"]}));
        assert!(all.allows_resource("anything", &resource("any.group", "pods", "", "")));
        let versions = ResourceAttributes { version: "v7", ..resource("", "pods", "", "") };
        assert!(named.allows_resource("get", &versions));
    }

    #[test]
    fn az_32_resources_and_subresources() {
        let of = |resources: Value| rule(json!({"verbs": ["*"], "apiGroups": ["*"], "resources": resources}));
        let log = resource("", "pods", "log", "");
        let pods = resource("", "pods", "", "");
        assert!(of(json!(["*"])).allows_resource("get", &log));
        assert!(of(json!(["pods"])).allows_resource("get", &pods));
        assert!(!of(json!(["pods"])).allows_resource("get", &log));
        assert!(of(json!(["pods/log"])).allows_resource("get", &log));
        assert!(!of(json!(["pods/log"])).allows_resource("get", &pods));
        assert!(!of(json!(["pods/*"])).allows_resource("get", &log));
        assert!(!of(json!(["pods/*"])).allows_resource("get", &pods));
        assert!(of(json!(["*/log"])).allows_resource("get", &log));
        assert!(!of(json!(["*/log"])).allows_resource("get", &pods));
        assert!(!of(json!(["*/"])).allows_resource("get", &pods));
        assert!(!of(json!(["podslog"])).allows_resource("get", &log));
        let scale = of(json!(["*/scale"]));
        assert!(scale.allows_resource("update", &resource("apps", "deployments", "scale", "d")));
        assert!(!scale.allows_resource("update", &resource("apps", "deployments", "", "d")));
    }

    #[test]
    fn az_33_names() {
        let named =
            rule(json!({"verbs": ["*"], "apiGroups": [""], "resources": ["pods"], "resourceNames": ["a", "*"]}));
        assert!(named.allows_resource("get", &resource("", "pods", "", "a")));
        assert!(named.allows_resource("get", &resource("", "pods", "", "*")));
        assert!(!named.allows_resource("get", &resource("", "pods", "", "b")));
        assert!(!named.allows_resource("list", &resource("", "pods", "", "")));
    }

    #[test]
    fn az_34_paths() {
        let of = |paths: Value| rule(json!({"verbs": ["get"], "nonResourceURLs": paths}));
        assert!(of(json!(["*"])).allows_path("get", "/anything"));
        assert!(of(json!(["/healthz"])).allows_path("get", "/healthz"));
        assert!(!of(json!(["/healthz"])).allows_path("get", "/healthz/"));
        assert!(!of(json!(["/healthz"])).allows_path("head", "/healthz"));
        assert!(of(json!(["/healthz/*"])).allows_path("get", "/healthz/ping"));
        assert!(!of(json!(["/healthz/*"])).allows_path("get", "/healthz"));
        assert!(of(json!(["/he**"])).allows_path("get", "/healthz"));
        assert!(!of(json!(["/a/*/b"])).allows_path("get", "/a/x/b"));
    }

    #[test]
    fn az_35_paths_and_resources_are_apart() {
        let paths = rule(json!({"verbs": ["*"], "nonResourceURLs": ["*"]}));
        assert!(!paths.allows("get", &What::Resource(resource("", "pods", "", ""))));
        let resources = rule(json!({"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}));
        assert!(!resources.allows("get", &What::Path("/metrics")));
    }

    #[test]
    fn a_rule_is_written_as_it_was_read() {
        let value = json!({"verbs": ["get"], "apiGroups": [""], "resources": ["pods"], "resourceNames": ["a"]});
        assert_eq!(rule(value.clone()).to_value(), value);
        assert_eq!(Rule::every_path().to_value(), json!({"verbs": ["*"], "nonResourceURLs": ["*"]}));
    }
}
