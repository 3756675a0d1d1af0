//! The audit policy: which requests are recorded, at which level, in which stages.

use access::identity::User;
use registry::AuditLevel;

use crate::audit::stage::{Stage, Stages};
use access::authorizer::What;

/// Rules in order; the first that matches decides.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Policy {
    pub rules: Vec<Rule>,
    /// Stages without events, in addition to those of the rules.
    pub omit_stages: Stages,
    /// Whether managed fields are left out of objects, unless a rule has its own setting.
    pub omit_managed_fields: bool,
}

/// A rule matches when every part that it gives does. Empty lists are parts that it does not give.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rule {
    pub level: AuditLevel,
    pub users: Vec<String>,
    pub user_groups: Vec<String>,
    pub verbs: Vec<String>,
    pub namespaces: Vec<String>,
    pub resources: Vec<GroupResources>,
    pub non_resource_urls: Vec<String>,
    pub omit_stages: Stages,
    pub omit_managed_fields: Option<bool>,
}

/// Resources of one group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GroupResources {
    /// Empty is the core group, `*` any.
    pub group: String,
    /// `pods`, `pods/log`, `pods/*`, `*/status`, `*`; none is all of the group.
    pub resources: Vec<String>,
    pub resource_names: Vec<String>,
}

/// The decision of the policy on a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Coverage {
    pub level: AuditLevel,
    pub omit_stages: Stages,
    pub omit_managed_fields: bool,
}

impl Policy {
    /// Decides on a request. Without a user it is one whose authentication failed.
    #[must_use]
    pub fn coverage(&self, user: Option<&User>, verb: &str, what: &What<'_>) -> Coverage {
        match self.rules.iter().find(|rule| rule.matches(user, verb, what)) {
            Some(rule) => Coverage {
                level: rule.level,
                omit_stages: self.omit_stages.union(rule.omit_stages),
                omit_managed_fields: rule.omit_managed_fields.unwrap_or(self.omit_managed_fields),
            },
            None => Coverage::default(),
        }
    }

    /// The policy of `--audit`: metadata of everything, objects of writes, and never those of secrets and tokens.
    #[must_use]
    pub fn preset() -> Self {
        let resources = |group: &str, names: &[&str]| GroupResources {
            group: group.to_owned(),
            resources: names.iter().map(|name| (*name).to_owned()).collect(),
            resource_names: Vec::new(),
        };
        let secret = Rule {
            level: AuditLevel::Metadata,
            resources: vec![
                resources("", &["secrets", "secrets/*", "serviceaccounts/token"]),
                resources("authentication.k8s.io", &["tokenreviews"]),
                // The status of a world has a kubeconfig.
                resources("lab.dogwatch.dev", &["worlds"]),
            ],
            ..Rule::default()
        };
        let writes = Rule {
            level: AuditLevel::RequestResponse,
            verbs: ["create", "update", "patch", "delete", "deletecollection"].map(str::to_owned).into(),
            resources: vec![resources("*", &[])],
            ..Rule::default()
        };
        let rest = Rule { level: AuditLevel::Metadata, ..Rule::default() };
        Policy {
            rules: vec![secret, writes, rest],
            omit_stages: Stages::of(&[Stage::RequestReceived]),
            omit_managed_fields: false,
        }
    }
}

impl Rule {
    fn matches(&self, user: Option<&User>, verb: &str, what: &What<'_>) -> bool {
        let has = |list: &[String], text: &str| list.iter().any(|one| one == text);
        let by_user = self.users.is_empty() || user.is_some_and(|user| has(&self.users, &user.name));
        let by_group = self.user_groups.is_empty()
            || user.is_some_and(|user| user.groups.iter().any(|group| has(&self.user_groups, group)));
        if !by_user || !by_group || !(self.verbs.is_empty() || has(&self.verbs, verb)) {
            return false;
        }
        if !self.namespaces.is_empty() || !self.resources.is_empty() {
            let What::Resource(about) = what else { return false };
            if !self.namespaces.is_empty() && !has(&self.namespaces, about.namespace) {
                return false;
            }
            return self.resources.is_empty()
                || self
                    .resources
                    .iter()
                    .any(|one| one.matches(about.group, about.resource, about.subresource, about.name));
        }
        if self.non_resource_urls.is_empty() {
            return true;
        }
        let What::Path(path) = what else { return false };
        self.non_resource_urls.iter().any(|spec| path_matches(path, spec))
    }
}

fn path_matches(path: &str, spec: &str) -> bool {
    spec == "*" || spec == path || (spec.ends_with('*') && path.starts_with(spec.trim_end_matches('*')))
}

impl GroupResources {
    fn matches(&self, group: &str, resource: &str, subresource: &str, name: &str) -> bool {
        if self.group != group && self.group != "*" {
            return false;
        }
        if self.resources.is_empty() {
            return true;
        }
        if !self.resource_names.is_empty() && !self.resource_names.iter().any(|one| one == name) {
            return false;
        }
        self.resources.iter().any(|spec| match spec.split_once('/') {
            _ if spec == "*" => true,
            None => spec == resource && subresource.is_empty(),
            // `pods/*` is the resource too, as in the reference.
            Some((of, "*")) => of == resource,
            Some(("*", sub)) => !subresource.is_empty() && sub == subresource,
            Some((of, sub)) => of == resource && sub == subresource,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use access::authorizer::ResourceAttributes;

    fn alice() -> User {
        User { name: "alice".to_owned(), groups: vec!["dev".to_owned()], ..User::default() }
    }

    fn resource<'a>(group: &'a str, text: &'a str, namespace: &'a str, name: &'a str) -> What<'a> {
        let (resource, subresource) = text.split_once('/').unwrap_or((text, ""));
        What::Resource(ResourceAttributes {
            group,
            version: "v1",
            resource,
            subresource,
            namespace,
            name,
            ..ResourceAttributes::default()
        })
    }

    fn rule(text: &str) -> Rule {
        let policy = format!("apiVersion: audit.k8s.io/v1\nkind: Policy\nrules:\n- {}", text.replace('\n', "\n  "));
        crate::audit::policy_file::parse(policy.as_bytes()).unwrap().0.rules.remove(0)
    }

    fn matches(text: &str, verb: &str, what: &What<'_>) -> bool {
        rule(text).matches(Some(&alice()), verb, what)
    }

    #[test]
    fn aud_2_6_the_first_rule_decides_and_stages_are_united() {
        let text = "apiVersion: audit.k8s.io/v1\nkind: Policy\nomitStages: [Panic]\nomitManagedFields: true\nrules:\n\
                    - {level: Request, verbs: [get], omitStages: [RequestReceived], omitManagedFields: false}\n\
                    - {level: Metadata, verbs: [get, list]}";
        let policy = crate::audit::policy_file::parse(text.as_bytes()).unwrap().0;
        let pods = resource("", "pods", "n", "");
        let get = policy.coverage(Some(&alice()), "get", &pods);
        assert_eq!(get.level, AuditLevel::Request);
        assert_eq!(get.omit_stages, Stages::of(&[Stage::RequestReceived, Stage::Panic]));
        assert!(!get.omit_managed_fields);
        let list = policy.coverage(Some(&alice()), "list", &pods);
        assert_eq!((list.level, list.omit_managed_fields), (AuditLevel::Metadata, true));
        assert_eq!(list.omit_stages, Stages::of(&[Stage::Panic]));
        assert_eq!(policy.coverage(Some(&alice()), "watch", &pods).level, AuditLevel::None);
        assert!(AuditLevel::None < AuditLevel::Metadata && AuditLevel::Request < AuditLevel::RequestResponse);
    }

    #[test]
    fn aud_3_every_given_part_must_match() {
        let pods = resource("", "pods", "ns", "p");
        let nodes = resource("", "nodes", "", "p");
        for (text, verb, what, expected) in [
            ("level: Metadata", "get", &pods, true),
            ("level: Metadata\nusers: [alice]", "get", &pods, true),
            ("level: Metadata\nusers: [bob]", "get", &pods, false),
            ("level: Metadata\nuserGroups: [ops, dev]", "get", &pods, true),
            ("level: Metadata\nuserGroups: [ops]", "get", &pods, false),
            ("level: Metadata\nusers: [alice]\nverbs: [list]", "get", &pods, false),
            ("level: Metadata\nnamespaces: [ns]", "get", &pods, true),
            ("level: Metadata\nnamespaces: [\"\"]", "get", &pods, false),
            ("level: Metadata\nnamespaces: [\"\"]", "get", &nodes, true),
            ("level: Metadata\nnamespaces: [m]\nresources: [{group: \"\", resources: [pods]}]", "get", &pods, false),
            ("level: Metadata\nnonResourceURLs: [\"*\"]", "get", &pods, false),
            ("level: Metadata\nnonResourceURLs: [\"*\"]", "get", &What::Path("/x"), true),
            ("level: Metadata\nnonResourceURLs: [\"/health*\"]", "get", &What::Path("/healthz/ping"), true),
            ("level: Metadata\nnonResourceURLs: [\"/healthz\"]", "get", &What::Path("/healthz/ping"), false),
            ("level: Metadata\nresources: [{group: \"*\"}]", "get", &What::Path("/healthz"), false),
        ] {
            assert_eq!(matches(text, verb, what), expected, "{text}");
        }
        assert!(!rule("level: Metadata\nusers: [alice]").matches(None, "get", &pods), "no user is none of the named");
        assert!(rule("level: Metadata").matches(None, "get", &pods));
    }

    #[test]
    fn aud_4_resources_subresources_and_names() {
        let of = |list: &str| format!("level: Metadata\nresources: [{list}]");
        for (list, what, expected) in [
            ("{group: \"\", resources: [pods]}", resource("", "pods", "n", ""), true),
            ("{group: \"\", resources: [pods]}", resource("", "pods/log", "n", ""), false),
            ("{group: \"\", resources: [pods/log]}", resource("", "pods/log", "n", ""), true),
            ("{group: \"\", resources: [pods/*]}", resource("", "pods/log", "n", ""), true),
            ("{group: \"\", resources: [\"*/status\"]}", resource("", "pods/status", "n", ""), true),
            ("{group: \"\", resources: [\"*/status\"]}", resource("", "pods", "n", ""), false),
            ("{group: \"\", resources: [\"*\"]}", resource("", "pods/log", "n", ""), true),
            ("{group: \"\"}", resource("", "pods/log", "n", ""), true),
            ("{group: apps}", resource("", "pods", "n", ""), false),
            ("{group: \"*\", resources: [pods]}", resource("x.org", "pods", "n", ""), true),
            ("{group: \"\", resources: [pods], resourceNames: [p]}", resource("", "pods", "n", "p"), true),
            ("{group: \"\", resources: [pods], resourceNames: [p]}", resource("", "pods", "n", ""), false),
            ("{group: apps}, {group: \"\", resources: [pods]}", resource("", "pods", "n", ""), true),
        ] {
            assert_eq!(matches(&of(list), "get", &what), expected, "{list}");
        }
    }

    #[test]
    fn ba_7_the_preset_keeps_secrets_and_tokens_at_metadata() {
        let policy = Policy::preset();
        let level = |verb: &str, what: &What<'_>| policy.coverage(Some(&alice()), verb, what).level;
        assert_eq!(level("create", &resource("", "configmaps", "n", "")), AuditLevel::RequestResponse);
        assert_eq!(level("patch", &resource("apps", "deployments/status", "n", "d")), AuditLevel::RequestResponse);
        assert_eq!(level("get", &resource("", "configmaps", "n", "a")), AuditLevel::Metadata);
        assert_eq!(level("get", &What::Path("/version")), AuditLevel::Metadata);
        for (verb, what) in [
            ("create", resource("", "secrets", "n", "")),
            ("deletecollection", resource("", "secrets", "n", "")),
            ("create", resource("", "serviceaccounts/token", "n", "a")),
            ("create", resource("authentication.k8s.io", "tokenreviews", "", "")),
        ] {
            assert_eq!(level(verb, &what), AuditLevel::Metadata);
        }
    }
}
