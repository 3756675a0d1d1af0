//! The configuration of PodSecurity: levels of namespaces without labels, and what is exempt.
//!
//! ```yaml
//! apiVersion: apiserver.config.k8s.io/v1
//! kind: AdmissionConfiguration
//! plugins:
//! - name: PodSecurity
//!   configuration:
//!     apiVersion: pod-security.admission.config.k8s.io/v1
//!     kind: PodSecurityConfiguration
//!     defaults: {enforce: baseline, enforce-version: latest}
//!     exemptions: {namespaces: [kube-system]}
//! ```

use std::path::Path;

use machinery::json::Value;
use machinery::names;

use super::policy::{Policy, Standard};

const PLUGIN: &str = "PodSecurity";

/// Levels of namespaces without labels, and users, namespaces and runtime classes that are exempt.
#[derive(Clone, Debug, Default)]
pub struct PodSecurityConfiguration {
    pub(super) defaults: Policy,
    users: Vec<String>,
    namespaces: Vec<String>,
    classes: Vec<String>,
}

impl PodSecurityConfiguration {
    /// Reads the part of an `AdmissionConfiguration` file that is about PodSecurity; the default if it has none. An error is
    /// one sentence with the name of the file.
    pub fn read(path: &Path) -> Result<Self, String> {
        let document = read_yaml(path)?;
        let plugins = document["plugins"].as_array().into_iter().flatten();
        let Some(plugin) = plugins.into_iter().find(|plugin| plugin["name"] == PLUGIN) else {
            return Ok(PodSecurityConfiguration::default());
        };
        match plugin["path"].as_str().filter(|own| !own.is_empty()) {
            Some(own) => {
                let own = path.parent().unwrap_or(Path::new(".")).join(own);
                Self::of(&read_yaml(&own)?).map_err(|why| format!("{}: {why}", own.display()))
            }
            None => {
                Self::of(&plugin["configuration"]).map_err(|why| format!("{}: plugin {PLUGIN}: {why}", path.display()))
            }
        }
    }

    /// Reads a `PodSecurityConfiguration`.
    fn of(document: &Value) -> Result<Self, String> {
        if document.is_null() {
            return Ok(PodSecurityConfiguration::default());
        }
        let versions = ["v1", "v1beta1", "v1alpha1"];
        let version = document["apiVersion"].as_str().unwrap_or_default();
        let known =
            version.strip_prefix("pod-security.admission.config.k8s.io/").is_some_and(|v| versions.contains(&v));
        if document["kind"] != "PodSecurityConfiguration" || !known {
            return Err("expected a PodSecurityConfiguration of pod-security.admission.config.k8s.io/v1".to_owned());
        }
        for (member, _) in document.as_object().into_iter().flatten() {
            if !["kind", "apiVersion", "defaults", "exemptions"].contains(&member.as_str()) {
                return Err(format!("unknown field {member:?}"));
            }
        }
        let defaults = &document["defaults"];
        let standard = |mode: &str| {
            let text = |member: String| defaults[member.as_str()].as_str().unwrap_or_default().to_owned();
            let (level, version) = (text(mode.to_owned()), text(format!("{mode}-version")));
            Standard::read(&level, &version).map_err(|why| format!("defaults.{mode}: {why}"))
        };
        let exemptions = &document["exemptions"];
        let list = |member: &str, objection: fn(&str) -> Option<String>| {
            let mut names: Vec<String> = Vec::new();
            for (at, name) in exemptions[member].as_array().into_iter().flatten().enumerate() {
                let name = name.as_str().unwrap_or_default().to_owned();
                let why = objection(&name).or_else(|| names.contains(&name).then(|| "is named twice".to_owned()));
                if let Some(why) = why {
                    return Err(format!("exemptions.{member}[{at}]: {name:?}: {why}"));
                }
                names.push(name);
            }
            Ok(names)
        };
        Ok(PodSecurityConfiguration {
            defaults: Policy { enforce: standard("enforce")?, audit: standard("audit")?, warn: standard("warn")? },
            users: list("usernames", |name| name.is_empty().then(|| "username must not be empty".to_owned()))?,
            namespaces: list("namespaces", |name| first(names::dns1123_label(name)))?,
            classes: list("runtimeClasses", |name| first(names::dns1123_subdomain(name)))?,
        })
    }

    /// Why pods of a user in a namespace are not looked at.
    pub(super) fn exemption(&self, namespace: &str, user: &str) -> Option<&'static str> {
        if self.is_exempt_namespace(namespace) {
            return Some("namespace");
        }
        self.users.iter().any(|exempt| exempt == user).then_some("user")
    }

    pub(super) fn is_exempt_namespace(&self, name: &str) -> bool {
        self.namespaces.iter().any(|exempt| exempt == name)
    }

    pub(super) fn is_exempt_class(&self, name: &str) -> bool {
        !name.is_empty() && self.classes.iter().any(|exempt| exempt == name)
    }
}

fn first(objections: impl IntoIterator<Item = impl Into<String>>) -> Option<String> {
    objections.into_iter().next().map(Into::into)
}

fn read_yaml(path: &Path) -> Result<Value, String> {
    let failed = |why: String| format!("{}: {why}", path.display());
    let text = std::fs::read(path).map_err(|error| failed(error.to_string()))?;
    machinery::yaml::read(&text).map(|document| document.value).map_err(|why| failed(why.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(configuration: &str) -> Result<PodSecurityConfiguration, String> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("admission.yaml");
        let indented = configuration.lines().map(|line| format!("    {line}\n")).collect::<String>();
        let text = format!(
            "kind: AdmissionConfiguration\nplugins:\n- name: PodSecurity\n  configuration:\n    kind: \
             PodSecurityConfiguration\n    apiVersion: pod-security.admission.config.k8s.io/v1\n{indented}"
        );
        std::fs::write(&path, text).unwrap();
        PodSecurityConfiguration::read(&path)
    }

    #[test]
    fn ps_4_a_file_has_defaults_and_exemptions() {
        let read = |text: &str| read(text).unwrap();
        let configuration = read(
            "defaults:\n  enforce: baseline\n  audit: restricted\n  audit-version: v1.30\nexemptions:\n  usernames: [bob]\n  namespaces: [kube-system]\n  runtimeClasses: [gvisor]",
        );
        assert_eq!(configuration.defaults.enforce.to_string(), "baseline:latest");
        assert_eq!(configuration.defaults.audit.to_string(), "restricted:v1.30");
        assert_eq!(configuration.exemption("default", "bob"), Some("user"));
        assert_eq!(configuration.exemption("kube-system", "bob"), Some("namespace"));
        assert_eq!(configuration.exemption("default", "alice"), None);
        assert!(configuration.is_exempt_class("gvisor") && !configuration.is_exempt_class(""));
    }

    #[test]
    fn ps_4_what_is_wrong_with_a_file_is_said() {
        for (text, why) in [
            ("defaults: {enforce: strict}", "defaults.enforce: must be one of privileged, baseline, restricted"),
            ("defaults: {warn-version: v2}", "defaults.warn: must be \"latest\" or \"v1.x\""),
            ("exemptions: {usernames: [\"\"]}", "exemptions.usernames[0]: \"\": username must not be empty"),
            ("exemptions: {namespaces: [a, a]}", "exemptions.namespaces[1]: \"a\": is named twice"),
            ("exemption: {}", "unknown field \"exemption\""),
        ] {
            let error = read(text).unwrap_err();
            assert!(error.contains("admission.yaml: plugin PodSecurity: ") && error.ends_with(why), "{error}");
        }
        assert!(PodSecurityConfiguration::read(Path::new("/none")).unwrap_err().starts_with("/none: "));
    }
}
