//! The credentials that admission webhooks are sent: users of a kubeconfig, found by the webhook's host and port.

use std::path::{Path, PathBuf};

use machinery::json::Value;
use outbound::Kubeconfig;
use outbound::kubeconfig::User;

/// Plugins whose configuration can name a kubeconfig.
const PLUGINS: [&str; 2] = ["MutatingAdmissionWebhook", "ValidatingAdmissionWebhook"];

/// Credentials by host and port. Without any, webhooks are called without.
#[derive(Clone, Debug, Default)]
pub struct HookCredentials(Option<Kubeconfig>);

impl HookCredentials {
    #[must_use]
    pub fn new(kubeconfig: Kubeconfig) -> Self {
        HookCredentials(Some(kubeconfig))
    }

    /// Reads the kubeconfig that an `AdmissionConfiguration` file names for webhooks.
    pub fn read(path: &Path) -> Result<Self, String> {
        let failed = |why: String| format!("{}: {why}", path.display());
        let text = std::fs::read(path).map_err(|error| failed(error.to_string()))?;
        let document = machinery::yaml::read(&text).map_err(failed)?.value;
        if document["kind"] != "AdmissionConfiguration" {
            return Err(failed("expected kind AdmissionConfiguration".to_owned()));
        }
        let folder = path.parent().unwrap_or(Path::new("."));
        let Some(kubeconfig) = kubeconfig_path(&document, folder).map_err(failed)? else {
            return Ok(HookCredentials::default());
        };
        Kubeconfig::read(&kubeconfig).map(HookCredentials::new).map_err(|error| error.to_string())
    }

    /// The user for `host:port`: by that name, by `*.` and the end of it, both again without port 443, then `*`, then that of
    /// the current context.
    #[must_use]
    pub fn find(&self, target: &str) -> Option<&User> {
        let kubeconfig = self.0.as_ref()?;
        let named = |target: &str| {
            kubeconfig.user(target).or_else(|| {
                target.match_indices('.').find_map(|(at, _)| kubeconfig.user(&format!("*{}", target.get(at..)?)))
            })
        };
        named(target)
            .or_else(|| target.strip_suffix(":443").and_then(named))
            .or_else(|| kubeconfig.user("*"))
            .or_else(|| kubeconfig.current_user())
    }
}

/// The kubeconfig in the configuration of the webhook plugins; both must agree.
fn kubeconfig_path(document: &Value, folder: &Path) -> Result<Option<PathBuf>, String> {
    let mut found: Option<PathBuf> = None;
    for plugin in document["plugins"].as_array().into_iter().flat_map(|plugins| plugins.iter()) {
        let name = plugin["name"].as_str().unwrap_or_default();
        if !PLUGINS.contains(&name) {
            continue;
        }
        let of_file;
        let (configuration, folder) = match plugin["path"].as_str() {
            Some(path) if !path.is_empty() => {
                let path = folder.join(path);
                let text = std::fs::read(&path).map_err(|error| format!("{}: {error}", path.display()))?;
                of_file = machinery::yaml::read(&text).map_err(|why| format!("{}: {why}", path.display()))?.value;
                (&of_file, path.parent().unwrap_or(folder).to_owned())
            }
            _ => (&plugin["configuration"], folder.to_owned()),
        };
        if configuration.is_null() {
            continue;
        }
        if !matches!(configuration["kind"].as_str(), Some("WebhookAdmissionConfiguration" | "WebhookAdmission")) {
            return Err(format!("plugin {name}: expected kind WebhookAdmissionConfiguration"));
        }
        let Some(path) = configuration["kubeConfigFile"].as_str().filter(|path| !path.is_empty()) else { continue };
        let path = folder.join(path);
        if found.as_ref().is_some_and(|other| *other != path) {
            return Err("both webhook plugins must have the same kubeConfigFile".to_owned());
        }
        found = Some(path);
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use outbound::Credential;

    use super::*;

    #[test]
    fn wh_7_users_are_found_by_host_and_port() {
        let text = "
current-context: c
contexts: [{name: c, context: {cluster: none, user: current}}]
users:
- {name: 'hook.shop.svc:8443', user: {token: exact}}
- {name: 'hook.shop.svc', user: {token: without-port}}
- {name: '*.shop.svc', user: {token: suffix}}
- {name: 'current', user: {token: current}}
";
        let parse = |text: &str| HookCredentials::new(Kubeconfig::parse(text.as_bytes(), Path::new(".")).unwrap());
        let credentials = parse(text);
        let token = |target: &str| credentials.find(target).and_then(|user| user.credential.clone());
        assert_eq!(token("hook.shop.svc:8443"), Credential::bearer("exact"));
        assert_eq!(token("hook.shop.svc:443"), Credential::bearer("without-port"));
        assert_eq!(token("other.shop.svc:443"), Credential::bearer("suffix"));
        assert_eq!(token("other.shop.svc:8443"), Credential::bearer("current"));
        assert_eq!(token("127.0.0.1:9443"), Credential::bearer("current"));
        let star = parse("users: [{name: '*', user: {token: star}}]");
        assert_eq!(star.find("a:1").and_then(|user| user.credential.clone()), Credential::bearer("star"));
        assert!(HookCredentials::default().find("a:1").is_none());
    }

    #[test]
    fn wh_7_the_kubeconfig_is_named_by_an_admission_configuration() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
        write("kubeconfig", "users: [{name: '*', user: {token: star}}]");
        write("hooks.yaml", "kind: WebhookAdmissionConfiguration\nkubeConfigFile: kubeconfig\n");
        write(
            "admission.yaml",
            "kind: AdmissionConfiguration\nplugins:\n- name: ValidatingAdmissionWebhook\n  path: hooks.yaml\n- name: \
             MutatingAdmissionWebhook\n  configuration: {kind: WebhookAdmission, kubeConfigFile: kubeconfig}\n",
        );
        let credentials = HookCredentials::read(&folder.path().join("admission.yaml")).unwrap();
        assert!(credentials.find("a:1").is_some());
        for (text, why) in [
            ("kind: Other", "expected kind AdmissionConfiguration"),
            ("a: [", "admission.yaml: yaml: "),
            (
                "kind: AdmissionConfiguration\nplugins: [{name: MutatingAdmissionWebhook, path: none}]",
                "none: No such file",
            ),
            (
                "kind: AdmissionConfiguration\nplugins: [{name: MutatingAdmissionWebhook, configuration: {kind: X}}]",
                "plugin MutatingAdmissionWebhook: expected kind WebhookAdmissionConfiguration",
            ),
        ] {
            write("admission.yaml", text);
            let error = HookCredentials::read(&folder.path().join("admission.yaml")).unwrap_err();
            assert!(error.contains(why), "{error}");
        }
    }
}
