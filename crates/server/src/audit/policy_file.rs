//! Reads a policy file: `audit.k8s.io/v1` Policy, YAML or JSON. Unknown fields are warnings, invalid values are errors.

use std::path::Path;

use machinery::go_text::quote;
use machinery::json::{Map, Value};
use machinery::yaml::with_line;
use registry::AuditLevel;

use crate::audit::policy::{GroupResources, Policy, Rule};
use crate::audit::stage::{Stage, Stages};

const LEVELS: [AuditLevel; 4] =
    [AuditLevel::Metadata, AuditLevel::None, AuditLevel::Request, AuditLevel::RequestResponse];

/// Reads a file. Returns also one sentence for each field that is not known. An error is one sentence that names the file and the line.
pub fn read(path: &Path) -> Result<(Policy, Vec<String>), String> {
    let text =
        std::fs::read(path).map_err(|error| format!("cannot read the audit policy {}: {error}", path.display()))?;
    parse(&text).map_err(|errors| {
        let errors: Vec<String> = errors.iter().map(|why| with_line(&text, why)).collect();
        format!("the audit policy {} is invalid: {}", path.display(), errors.join(", "))
    })
}

/// Parses the text of a policy. Errors begin with the field, where there is one.
pub fn parse(text: &[u8]) -> Result<(Policy, Vec<String>), Vec<String>> {
    let document = machinery::yaml::read(text).map_err(|why| vec![why])?;
    let mut unknown = document.duplicates;
    let Value::Object(members) = &document.value else { return Err(vec!["it is not an object".to_owned()]) };
    let (kind, version) =
        (members.get("kind").and_then(Value::as_str), members.get("apiVersion").and_then(Value::as_str));
    if (kind, version) != (Some("Policy"), Some("audit.k8s.io/v1")) {
        return Err(vec![format!(
            "kind and apiVersion are {} and {}, not \"Policy\" and \"audit.k8s.io/v1\"",
            quote(kind.unwrap_or_default()),
            quote(version.unwrap_or_default())
        )]);
    }
    let mut fields = Fields { path: String::new(), members, errors: Vec::new() };
    fields.known(&["kind", "apiVersion", "metadata", "rules", "omitStages", "omitManagedFields"], &mut unknown);
    let mut policy = Policy {
        omit_stages: fields.stages("omitStages"),
        omit_managed_fields: fields.flag("omitManagedFields").unwrap_or_default(),
        rules: Vec::new(),
    };
    let mut errors = fields.errors;
    match members.get("rules") {
        None | Some(Value::Null) => {}
        Some(Value::Array(rules)) => {
            for (at, value) in rules.iter().enumerate() {
                let path = format!("rules[{at}]");
                match value {
                    Value::Object(members) => policy.rules.push(rule(path, members, &mut errors, &mut unknown)),
                    _ => errors.push(format!("{path}: Invalid value: must be an object")),
                }
            }
        }
        Some(_) => errors.push("rules: Invalid value: must be a list".to_owned()),
    }
    match errors.as_slice() {
        [] if policy.rules.is_empty() => Err(vec!["loaded illegal policy with 0 rules".to_owned()]),
        [] => Ok((policy, unknown)),
        _ => Err(errors),
    }
}

fn rule(path: String, members: &Map, errors: &mut Vec<String>, unknown: &mut Vec<String>) -> Rule {
    let mut fields = Fields { path, members, errors: Vec::new() };
    fields.known(
        &[
            "level",
            "users",
            "userGroups",
            "verbs",
            "resources",
            "namespaces",
            "nonResourceURLs",
            "omitStages",
            "omitManagedFields",
        ],
        unknown,
    );
    let level = fields.level();
    let non_resource_urls = fields.texts("nonResourceURLs");
    fields.check_urls(&non_resource_urls);
    let resources = fields.group_resources(unknown);
    let rule = Rule {
        level,
        users: fields.texts("users"),
        user_groups: fields.texts("userGroups"),
        verbs: fields.texts("verbs"),
        namespaces: fields.texts("namespaces"),
        resources,
        omit_stages: fields.stages("omitStages"),
        omit_managed_fields: fields.flag("omitManagedFields"),
        non_resource_urls,
    };
    let has_resources = !rule.resources.is_empty() || !rule.namespaces.is_empty();
    if has_resources && !rule.non_resource_urls.is_empty() {
        let urls: Vec<String> = rule.non_resource_urls.iter().map(|url| quote(url)).collect();
        let why = "rules cannot apply to both regular resources and non-resource URLs";
        fields.invalid("nonResourceURLs", &format!("[{}]", urls.join(",")), why);
    }
    errors.append(&mut fields.errors);
    rule
}

/// The members of one object of the file, and what is wrong with them.
struct Fields<'a> {
    path: String,
    members: &'a Map,
    errors: Vec<String>,
}

impl Fields<'_> {
    fn at(&self, name: &str) -> String {
        if self.path.is_empty() { name.to_owned() } else { format!("{}.{name}", self.path) }
    }

    fn invalid(&mut self, name: &str, value: &str, why: &str) {
        self.errors.push(format!("{}: Invalid value: {value}: {why}", self.at(name)));
    }

    fn known(&self, names: &[&str], unknown: &mut Vec<String>) {
        let strange = self.members.keys().filter(|name| !names.contains(&name.as_str()));
        unknown.extend(strange.map(|name| format!("unknown field {}", quote(&self.at(name)))));
    }

    fn texts(&mut self, name: &str) -> Vec<String> {
        let wrong = match self.members.get(name) {
            None | Some(Value::Null) => return Vec::new(),
            Some(Value::Array(values)) => {
                let texts: Option<Vec<String>> = values.iter().map(|value| value.as_str().map(str::to_owned)).collect();
                match texts {
                    Some(texts) => return texts,
                    None => machinery::json::to_string(&Value::Array(values.clone())),
                }
            }
            Some(other) => machinery::json::to_string(other),
        };
        self.invalid(name, &wrong, "must be a list of strings");
        Vec::new()
    }

    fn flag(&mut self, name: &str) -> Option<bool> {
        match self.members.get(name) {
            None | Some(Value::Null) => None,
            Some(Value::Bool(flag)) => Some(*flag),
            Some(other) => {
                let text = machinery::json::to_string(other);
                self.invalid(name, &text, "must be true or false");
                None
            }
        }
    }

    fn level(&mut self) -> AuditLevel {
        let at = self.at("level");
        match self.members.get("level").unwrap_or(&Value::Null) {
            Value::Null => self.errors.push(format!("{at}: Required value")),
            Value::String(text) if text.is_empty() => self.errors.push(format!("{at}: Required value")),
            value => {
                let found = LEVELS.into_iter().find(|level| value.as_str() == Some(level.as_str()));
                if let Some(level) = found {
                    return level;
                }
                let shown = value.as_str().map_or_else(|| machinery::json::to_string(value), quote);
                let supported: Vec<String> = LEVELS.iter().map(|level| quote(level.as_str())).collect();
                self.errors
                    .push(format!("{at}: Unsupported value: {shown}: supported values: {}", supported.join(", ")));
            }
        }
        AuditLevel::None
    }

    fn stages(&mut self, name: &str) -> Stages {
        let mut stages = Vec::new();
        for (at, text) in self.texts(name).iter().enumerate() {
            match Stage::ALL.into_iter().find(|stage| stage.as_str() == text) {
                Some(stage) => stages.push(stage),
                None => {
                    let known = Stage::ALL.map(Stage::as_str).join(",");
                    self.invalid(&format!("{name}[{at}]"), &quote(text), &format!("allowed stages are {known}"));
                }
            }
        }
        Stages::of(&stages)
    }

    fn check_urls(&mut self, urls: &[String]) {
        for (at, url) in urls.iter().enumerate().filter(|(_, url)| *url != "*") {
            let name = format!("nonResourceURLs[{at}]");
            if !url.starts_with('/') {
                self.invalid(&name, &quote(url), "non-resource URL rules must begin with a '/' character");
            }
            if url.find('*').is_some_and(|star| star + 1 < url.len()) {
                let why = "non-resource URL wildcards '*' must be the final character of the rule";
                self.invalid(&name, &quote(url), why);
            }
        }
    }

    fn group_resources(&mut self, unknown: &mut Vec<String>) -> Vec<GroupResources> {
        let list = match self.members.get("resources") {
            None | Some(Value::Null) => return Vec::new(),
            Some(Value::Array(list)) => list,
            Some(other) => {
                let text = machinery::json::to_string(other);
                self.invalid("resources", &text, "must be a list of objects");
                return Vec::new();
            }
        };
        let mut all = Vec::with_capacity(list.len());
        for (at, value) in list.iter().enumerate() {
            let path = self.at(&format!("resources[{at}]"));
            let Value::Object(members) = value else {
                self.errors.push(format!("{path}: Invalid value: must be an object"));
                continue;
            };
            let mut fields = Fields { path, members, errors: Vec::new() };
            fields.known(&["group", "resources", "resourceNames"], unknown);
            let group = match members.get("group").unwrap_or(&Value::Null) {
                Value::Null => String::new(),
                Value::String(text) => text.to_string(),
                other => {
                    let text = machinery::json::to_string(other);
                    fields.invalid("group", &text, "must be a string");
                    String::new()
                }
            };
            if !group.is_empty() && group != "*" {
                for why in machinery::names::dns1123_subdomain(&group) {
                    fields.invalid("group", &quote(&group), &why);
                }
            }
            let (resources, resource_names) = (fields.texts("resources"), fields.texts("resourceNames"));
            if !resource_names.is_empty() && resources.is_empty() {
                let names: Vec<String> = resource_names.iter().map(|name| quote(name)).collect();
                let why = "using resourceNames requires at least one resource";
                fields.invalid("resourceNames", &format!("[{}]", names.join(",")), why);
            }
            self.errors.append(&mut fields.errors);
            all.push(GroupResources { group, resources, resource_names });
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(rest: &str) -> String {
        parse(format!("apiVersion: audit.k8s.io/v1\nkind: Policy\n{rest}").as_bytes()).unwrap_err().join(", ")
    }

    #[test]
    fn aud_1_a_policy_without_rules_is_refused_and_unknown_fields_are_warnings() {
        assert_eq!(error(""), "loaded illegal policy with 0 rules");
        assert_eq!(error("rules: []"), "loaded illegal policy with 0 rules");
        let text = "apiVersion: audit.k8s.io/v1\nkind: Policy\nx: 1\nrules:\n- level: None\n  z: 2\n";
        let (policy, unknown) = parse(text.as_bytes()).unwrap();
        assert_eq!(policy.rules.len(), 1);
        assert_eq!(unknown, ["unknown field \"x\"", "unknown field \"rules[0].z\""]);
        assert!(parse(b"kind: Policy\napiVersion: audit.k8s.io/v1beta1\nrules: [{level: None}]").is_err());
        assert!(parse(b"[1").is_err());
        assert!(parse(b"").is_err());
    }

    #[test]
    fn aud_7_invalid_values_are_field_errors() {
        assert_eq!(error("rules: [{}]"), "rules[0].level: Required value");
        assert_eq!(
            error("rules: [{level: All}]"),
            "rules[0].level: Unsupported value: \"All\": supported values: \"Metadata\", \"None\", \"Request\", \
             \"RequestResponse\""
        );
        assert_eq!(
            error("rules: [{level: None, omitStages: [Begin]}]"),
            "rules[0].omitStages[0]: Invalid value: \"Begin\": allowed stages are \
             RequestReceived,ResponseStarted,ResponseComplete,Panic"
        );
        assert_eq!(
            error("omitStages: [x]\nrules: [{level: None, nonResourceURLs: [healthz, \"/a*b\"]}]"),
            "omitStages[0]: Invalid value: \"x\": allowed stages are \
             RequestReceived,ResponseStarted,ResponseComplete,Panic, rules[0].nonResourceURLs[0]: Invalid value: \
             \"healthz\": non-resource URL rules must begin with a '/' character, rules[0].nonResourceURLs[1]: Invalid \
             value: \"/a*b\": non-resource URL wildcards '*' must be the final character of the rule"
        );
        assert_eq!(
            error("rules: [{level: None, nonResourceURLs: [/x], namespaces: [ns]}]"),
            "rules[0].nonResourceURLs: Invalid value: [\"/x\"]: rules cannot apply to both regular resources and \
             non-resource URLs"
        );
        assert!(error("rules: [{level: None, resources: [{group: Apps/v1}]}]").contains("resources[0].group"));
        assert!(error("rules: [{level: None, resources: [{resourceNames: [a]}]}]").contains("at least one resource"));
        assert!(error("rules: [{level: None, users: alice}]").contains("must be a list of strings"));
        assert!(error("rules: {level: None}").contains("must be a list"));
    }
    #[test]
    fn an_error_names_the_file_and_the_line() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("policy.yaml");
        let text = "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules:\n- level: None\n- level: All\n- users: [x]\n";
        std::fs::write(&file, text).unwrap();
        let refused = read(&file).unwrap_err();
        let file = file.display();
        assert_eq!(
            refused,
            format!(
                "the audit policy {file} is invalid: line 5: rules[1].level: Unsupported value: \"All\": supported \
                 values: \"Metadata\", \"None\", \"Request\", \"RequestResponse\", line 6: rules[2].level: Required value"
            )
        );
    }
}
