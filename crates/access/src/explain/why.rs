//! Why a request is allowed or refused: every binding of the user with its nearest rule.

use machinery::go_text::quote;
use machinery::json::{Map, Value};

use super::manifest;
use crate::authorizer::{Attributes, Decision, What};
use crate::rbac::decision::Granted;
use crate::rbac::index::Index;
use crate::rbac::rule::Rule;

/// Bindings of an explanation; the nearest are kept.
const BINDINGS_MAX: usize = 100;

/// Why a request is allowed or refused.
#[derive(Clone, Debug)]
pub struct Explanation {
    pub decision: Decision,
    /// The nearest first. For an allowed request, only those that allow it.
    pub bindings: Vec<NearMiss>,
    /// Bindings that are left out because there are too many.
    pub left_out: usize,
    /// A role and a binding that allow the request, for a refused one.
    pub remedy: Vec<Value>,
}

/// How near a binding of the user comes to a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NearMiss {
    /// `RoleBinding "b" in namespace "n"`.
    pub binding: String,
    /// `ClusterRole "r"`.
    pub role: String,
    /// Through which the user has it: `Group "devs"`.
    pub subject: String,
    /// The rule with the fewest parts that fail; none if the role does not exist or is empty.
    pub rule: Option<Rule>,
    pub failed: Vec<Failed>,
}

/// A part of a binding that does not fit a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failed {
    /// The role does not exist.
    Role,
    /// The role has no rules.
    Rules,
    /// The binding holds in another namespace.
    Namespace,
    Verb,
    Group,
    Resource,
    Name,
    Path,
}

impl Failed {
    /// The field of a role or binding.
    #[must_use]
    pub const fn field(self) -> &'static str {
        match self {
            Failed::Role => "roleRef",
            Failed::Rules => "rules",
            Failed::Namespace => "metadata.namespace",
            Failed::Verb => "verbs",
            Failed::Group => "apiGroups",
            Failed::Resource => "resources",
            Failed::Name => "resourceNames",
            Failed::Path => "nonResourceURLs",
        }
    }
}

impl Explanation {
    /// Explains a request by the roles and bindings of an index. The decision may be that of other authorizers.
    #[must_use]
    pub fn new(index: &Index, attributes: &Attributes<'_>, decision: Decision) -> Self {
        let mut bindings: Vec<NearMiss> =
            index.granted_anywhere(attributes.user).iter().map(|granted| near(granted, attributes)).collect();
        if decision.allowed {
            bindings.retain(|binding| binding.failed.is_empty());
        }
        bindings.sort_by_key(|binding| (binding.failed.len(), binding.rule.is_none()));
        let left_out = bindings.len().saturating_sub(BINDINGS_MAX);
        bindings.truncate(BINDINGS_MAX);
        let remedy = if decision.allowed { Vec::new() } else { manifest::remedy(attributes) };
        Explanation { decision, bindings, left_out, remedy }
    }

    /// The bindings that only one part keeps from allowing the request.
    pub fn near_misses(&self) -> impl Iterator<Item = &NearMiss> {
        self.bindings.iter().filter(|binding| binding.failed.len() == 1)
    }

    #[must_use]
    pub fn to_value(&self) -> Value {
        let mut value = Map::new();
        value.insert("allowed", self.decision.allowed.into());
        if self.decision.denied {
            value.insert("denied", true.into());
        }
        for (member, text) in [("reason", &self.decision.reason), ("error", &self.decision.error)] {
            if !text.is_empty() {
                value.insert(member, Value::String(text.clone()));
            }
        }
        value.insert("bindings", self.bindings.iter().map(NearMiss::to_value).collect::<Vec<Value>>().into());
        if self.left_out > 0 {
            value.insert("leftOut", (self.left_out as u64).into());
        }
        if !self.remedy.is_empty() {
            value.insert("remedy", self.remedy.clone().into());
        }
        value.into()
    }
}

impl NearMiss {
    /// One sentence: the binding, its role, and the part that fails.
    #[must_use]
    pub fn sentence(&self, attributes: &Attributes<'_>) -> String {
        let NearMiss { binding, role, .. } = self;
        let other_kind = self.rule.as_ref().and_then(|rule| match &attributes.what {
            What::Resource(_) if rule.resources.is_empty() => Some("its rules are for paths"),
            What::Path(_) if rule.paths.is_empty() => Some("its rules are for resources"),
            _ => None,
        });
        let parts: Vec<String> = match other_kind {
            Some(why) => vec![why.to_owned()],
            None => self.failed.iter().map(|part| self.part(*part, attributes)).collect(),
        };
        format!("{binding} of {role}: {}", parts.join(", "))
    }

    fn part(&self, part: Failed, attributes: &Attributes<'_>) -> String {
        let (about, path) = match &attributes.what {
            What::Resource(about) => (*about, ""),
            What::Path(path) => (crate::ResourceAttributes::default(), *path),
        };
        let listed = |of: fn(&Rule) -> &Vec<machinery::json::Text>| {
            let texts = self.rule.as_ref().map(of).into_iter().flatten();
            texts.map(|text| quote(text)).collect::<Vec<String>>().join(" ")
        };
        match part {
            Failed::Role => "the role does not exist".to_owned(),
            Failed::Rules => "the role has no rules".to_owned(),
            Failed::Namespace if about.namespace.is_empty() => "holds in its namespace only".to_owned(),
            Failed::Namespace => format!("does not hold in namespace {}", quote(about.namespace)),
            Failed::Verb => format!("verb {} is not among {}", quote(attributes.verb), listed(|rule| &rule.verbs)),
            Failed::Group => format!("API group {} is not among {}", quote(about.group), listed(|rule| &rule.groups)),
            Failed::Resource => {
                format!("resource {} is not among {}", quote(&manifest::full(&about)), listed(|rule| &rule.resources))
            }
            Failed::Name if about.name.is_empty() => {
                format!("the request has no name, and the rule is for {}", listed(|rule| &rule.names))
            }
            Failed::Name => format!("name {} is not among {}", quote(about.name), listed(|rule| &rule.names)),
            Failed::Path => format!("path {} is not among {}", quote(path), listed(|rule| &rule.paths)),
        }
    }

    fn to_value(&self) -> Value {
        let mut value = Map::new();
        for (member, text) in [("binding", &self.binding), ("role", &self.role), ("subject", &self.subject)] {
            value.insert(member, text.as_str().into());
        }
        if let Some(rule) = &self.rule {
            value.insert("rule", rule.to_value());
        }
        if !self.failed.is_empty() {
            let failed: Vec<String> = self.failed.iter().map(|part| part.field().to_owned()).collect();
            value.insert("failed", failed.into());
        }
        value.into()
    }
}

fn near(granted: &Granted, attributes: &Attributes<'_>) -> NearMiss {
    let binding = &granted.binding;
    let namespace = &binding.name.namespace;
    let place = if namespace.is_empty() { String::new() } else { format!(" in namespace {}", quote(namespace)) };
    let (rule, mut failed) = match &granted.role {
        None => (None, vec![Failed::Role]),
        Some(role) => {
            match role.rules.iter().map(|rule| (rule, failing(rule, attributes))).min_by_key(|(_, f)| f.len()) {
                None => (None, vec![Failed::Rules]),
                Some((rule, failed)) => (Some(rule.clone()), failed),
            }
        }
    };
    let holds = match &attributes.what {
        What::Resource(about) => namespace.is_empty() || namespace == about.namespace,
        What::Path(_) => namespace.is_empty(),
    };
    if !holds {
        failed.insert(0, Failed::Namespace);
    }
    NearMiss {
        binding: format!("{} {}{place}", binding.kind(), quote(&binding.name.name)),
        role: format!("{} {}", binding.role.kind(), quote(binding.role.name())),
        subject: binding
            .subjects
            .get(granted.subject)
            .map(|subject| subject.description(namespace))
            .unwrap_or_default(),
        rule,
        failed,
    }
}

/// The parts of a rule that do not fit a request; none if it allows it.
fn failing(rule: &Rule, attributes: &Attributes<'_>) -> Vec<Failed> {
    let checks = match &attributes.what {
        What::Path(path) => vec![(rule.has_path(path), Failed::Path), (rule.has_verb(attributes.verb), Failed::Verb)],
        What::Resource(about) => vec![
            (rule.has_group(about.group), Failed::Group),
            (rule.has_resource(about), Failed::Resource),
            (rule.has_verb(attributes.verb), Failed::Verb),
            (rule.has_name(about.name), Failed::Name),
        ],
    };
    checks.into_iter().filter(|(fits, _)| !fits).map(|(_, part)| part).collect()
}

#[cfg(test)]
mod tests {
    use machinery::json::json;

    use super::*;
    use crate::authorizer::ResourceAttributes;
    use crate::identity::User;
    use crate::rbac::objects::{Binding, Name, Role};

    fn index() -> Index {
        let mut index = Index::default();
        let rules = json!({"rules": [
            {"verbs": ["get", "watch"], "apiGroups": [""], "resources": ["pods"]},
            {"verbs": ["get"], "apiGroups": ["apps"], "resources": ["deployments"], "resourceNames": ["web"]},
        ]});
        index.set_role(Role::from_value(Name::new("shop", "reader"), &rules));
        let bind = |role: &str| {
            json!({
                "roleRef": {"kind": "Role", "name": role},
                "subjects": [{"kind": "User", "name": "alice"}],
            })
        };
        index.set_binding(Binding::from_value(Name::new("shop", "b"), &bind("reader")));
        index.set_binding(Binding::from_value(Name::new("shop", "dangling"), &bind("gone")));
        index
    }

    fn explain(verb: &str, about: ResourceAttributes<'_>) -> (Explanation, Vec<String>) {
        let user = User { name: "alice".to_owned(), ..User::default() }.authenticated();
        let attributes = Attributes { user: &user, verb, what: What::Resource(about) };
        let index = index();
        let explanation = Explanation::new(&index, &attributes, index.decide(&attributes));
        let sentences = explanation.bindings.iter().map(|binding| binding.sentence(&attributes)).collect();
        (explanation, sentences)
    }

    const PODS: ResourceAttributes<'static> = ResourceAttributes {
        group: "",
        version: "v1",
        resource: "pods",
        subresource: "",
        namespace: "shop",
        name: "",
        selectors: crate::Selectors { labels: crate::LabelTerms::None, fields: crate::FieldTerms::None },
    };

    #[test]
    fn ba_1_a_refusal_names_every_binding_with_the_part_that_fails() {
        let (explanation, sentences) = explain("list", PODS);
        assert!(!explanation.decision.allowed);
        assert_eq!(
            sentences,
            [
                "RoleBinding \"b\" in namespace \"shop\" of Role \"reader\": verb \"list\" is not among \"get\" \"watch\"",
                "RoleBinding \"dangling\" in namespace \"shop\" of Role \"gone\": the role does not exist",
            ]
        );
        let value = explanation.to_value();
        assert_eq!(value["bindings"][0]["failed"], json!(["verbs"]));
        assert_eq!(value["bindings"][0]["subject"], "User \"alice\"");
        assert_eq!(value["remedy"][0]["rules"], json!([{"verbs": ["list"], "apiGroups": [""], "resources": ["pods"]}]));
    }

    #[test]
    fn ba_1_rules_for_paths_are_not_compared_with_resources() {
        let mut index = Index::default();
        let rules = json!({"rules": [{"verbs": ["get"], "nonResourceURLs": ["/healthz"]}]});
        index.set_role(Role::from_value(Name::new("", "paths"), &rules));
        let binding = json!({
            "roleRef": {"kind": "ClusterRole", "name": "paths"},
            "subjects": [{"kind": "Group", "name": "system:authenticated"}],
        });
        index.set_binding(Binding::from_value(Name::new("", "paths"), &binding));
        let user = User { name: "alice".to_owned(), ..User::default() }.authenticated();
        let attributes = Attributes { user: &user, verb: "get", what: What::Resource(PODS) };
        let explanation = Explanation::new(&index, &attributes, index.decide(&attributes));
        let sentence = explanation.bindings[0].sentence(&attributes);
        assert_eq!(sentence, "ClusterRoleBinding \"paths\" of ClusterRole \"paths\": its rules are for paths");
    }

    #[test]
    fn ba_1_every_part_can_fail() {
        let deployment = ResourceAttributes { group: "apps", resource: "deployments", name: "web", ..PODS };
        for (verb, about, failed) in [
            ("get", ResourceAttributes { namespace: "other", ..PODS }, vec![Failed::Namespace]),
            ("get", ResourceAttributes { namespace: "", ..PODS }, vec![Failed::Namespace]),
            ("get", ResourceAttributes { subresource: "log", ..PODS }, vec![Failed::Resource]),
            ("get", ResourceAttributes { group: "x", ..PODS }, vec![Failed::Group]),
            ("get", ResourceAttributes { name: "api", ..deployment }, vec![Failed::Name]),
            ("delete", ResourceAttributes { namespace: "other", ..deployment }, vec![Failed::Namespace, Failed::Verb]),
        ] {
            let (explanation, _) = explain(verb, about);
            let of_reader = explanation.bindings.iter().find(|binding| binding.role.contains("reader")).unwrap();
            assert_eq!(of_reader.failed, failed, "{verb} {about:?}");
        }
    }

    #[test]
    fn ba_1_an_allowed_request_names_what_allows_it() {
        let (explanation, _) = explain("watch", PODS);
        assert!(explanation.decision.allowed);
        assert_eq!(explanation.bindings.len(), 1);
        assert_eq!(explanation.bindings[0].failed, []);
        assert!(explanation.remedy.is_empty());
        let rule = json!({"verbs": ["get", "watch"], "apiGroups": [""], "resources": ["pods"]});
        assert_eq!(explanation.to_value()["bindings"][0]["rule"], rule);
    }

    #[test]
    fn ba_2_near_misses_fail_in_one_part() {
        let (explanation, _) = explain("delete", ResourceAttributes { namespace: "other", ..PODS });
        assert_eq!(explanation.near_misses().count(), 0);
        let (explanation, _) = explain("list", PODS);
        assert_eq!(explanation.near_misses().count(), 2);
    }
}
