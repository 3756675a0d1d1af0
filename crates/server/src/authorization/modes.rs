//! Authorization modes, as flags name them.

use std::path::PathBuf;
use std::time::Duration;

/// A kind of authorizer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mode {
    Node,
    Rbac,
    Webhook,
    AlwaysAllow,
    AlwaysDeny,
}

impl Mode {
    pub const ALL: [Mode; 5] = [Mode::AlwaysAllow, Mode::AlwaysDeny, Mode::Node, Mode::Rbac, Mode::Webhook];

    /// The word of flags, files and metrics.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Mode::Node => "Node",
            Mode::Rbac => "RBAC",
            Mode::Webhook => "Webhook",
            Mode::AlwaysAllow => "AlwaysAllow",
            Mode::AlwaysDeny => "AlwaysDeny",
        }
    }

    #[must_use]
    pub fn parse(word: &str) -> Option<Self> {
        Mode::ALL.into_iter().find(|mode| mode.as_str() == word)
    }

    /// The words of all modes, for messages.
    #[must_use]
    pub fn words() -> String {
        Mode::ALL.map(Mode::as_str).join(", ")
    }
}

/// One authorizer of a configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuthorizerConfig {
    pub mode: Mode,
    /// The name in metrics; the mode in lower case unless a file names it.
    pub name: String,
    /// Of a webhook, and of nothing else.
    pub webhook: Option<WebhookConfig>,
}

/// How a webhook is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WebhookConfig {
    /// The file with its address and the credentials for it.
    pub kubeconfig: PathBuf,
    pub version: ReviewVersion,
    pub timeout: Duration,
    /// How long an answer is kept; zero is not at all.
    pub allowed_ttl: Duration,
    pub refused_ttl: Duration,
    /// Whether a request is denied if the webhook cannot be asked.
    pub deny_on_failure: bool,
    /// CEL expressions over `request`. All must be true for the webhook to be asked.
    pub conditions: Vec<String>,
}

/// The version of the SubjectAccessReview that a webhook is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReviewVersion {
    V1,
    V1beta1,
}

impl ReviewVersion {
    #[must_use]
    pub fn parse(word: &str) -> Option<Self> {
        match word {
            "v1" => Some(ReviewVersion::V1),
            "v1beta1" => Some(ReviewVersion::V1beta1),
            _ => None,
        }
    }

    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            ReviewVersion::V1 => "v1",
            ReviewVersion::V1beta1 => "v1beta1",
        }
    }
}

/// Authorization flags.
#[derive(Clone, Debug)]
pub struct Flags {
    /// Modes in their order.
    pub modes: Vec<String>,
    pub webhook_kubeconfig: Option<PathBuf>,
    pub webhook_version: String,
    pub webhook_allowed_ttl: Duration,
    pub webhook_refused_ttl: Duration,
}

impl Default for Flags {
    fn default() -> Self {
        Flags {
            modes: vec!["RBAC".to_owned()],
            webhook_kubeconfig: None,
            webhook_version: "v1beta1".to_owned(),
            webhook_allowed_ttl: Duration::from_secs(300),
            webhook_refused_ttl: Duration::from_secs(30),
        }
    }
}

impl Flags {
    /// The authorizers of the flags; the error names the flag.
    pub fn authorizers(&self) -> Result<Vec<AuthorizerConfig>, String> {
        let mut found: Vec<AuthorizerConfig> = Vec::new();
        for word in &self.modes {
            let mode = Mode::parse(word)
                .ok_or_else(|| format!("--authorization-mode {word:?} is not a mode; modes are {}", Mode::words()))?;
            if found.iter().any(|held| held.mode == mode) {
                return Err(format!("--authorization-mode has {word} more than once"));
            }
            let webhook = (mode == Mode::Webhook).then(|| self.webhook()).transpose()?;
            found.push(AuthorizerConfig { mode, name: mode.as_str().to_lowercase(), webhook });
        }
        if found.is_empty() {
            return Err(format!("--authorization-mode needs at least one mode of {}", Mode::words()));
        }
        if self.webhook_kubeconfig.is_some() && found.iter().all(|held| held.mode != Mode::Webhook) {
            return Err("--authorization-webhook-config-file needs Webhook in --authorization-mode".to_owned());
        }
        Ok(found)
    }

    fn webhook(&self) -> Result<WebhookConfig, String> {
        let kubeconfig = self
            .webhook_kubeconfig
            .clone()
            .ok_or_else(|| "--authorization-mode Webhook needs --authorization-webhook-config-file".to_owned())?;
        let word = &self.webhook_version;
        let version = ReviewVersion::parse(word)
            .ok_or_else(|| format!("--authorization-webhook-version {word:?} must be v1 or v1beta1"))?;
        Ok(WebhookConfig {
            kubeconfig,
            version,
            timeout: Duration::from_secs(30),
            allowed_ttl: self.webhook_allowed_ttl,
            refused_ttl: self.webhook_refused_ttl,
            deny_on_failure: false,
            conditions: Vec::new(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn modes(words: &[&str]) -> Result<Vec<&'static str>, String> {
        let flags = Flags { modes: words.iter().map(|word| (*word).to_owned()).collect(), ..Flags::default() };
        Ok(flags.authorizers()?.into_iter().map(|authorizer| authorizer.mode.as_str()).collect())
    }

    #[test]
    fn az_3_rbac_is_the_default() {
        let default = Flags::default().authorizers().unwrap();
        assert_eq!(default, [AuthorizerConfig { mode: Mode::Rbac, name: "rbac".to_owned(), webhook: None }]);
    }

    #[test]
    fn az_6_unknown_and_repeated_modes_and_missing_files_are_refused() {
        assert_eq!(modes(&["Node", "RBAC"]), Ok(vec!["Node", "RBAC"]));
        assert_eq!(modes(&["AlwaysDeny"]), Ok(vec!["AlwaysDeny"]));
        for (words, expected) in [
            (&["rbac"][..], "--authorization-mode \"rbac\" is not a mode"),
            (&["ABAC"], "--authorization-mode \"ABAC\" is not a mode"),
            (&[""], "--authorization-mode \"\" is not a mode"),
            (&["RBAC", "RBAC"], "--authorization-mode has RBAC more than once"),
            (&["Webhook"], "--authorization-mode Webhook needs --authorization-webhook-config-file"),
            (&[], "--authorization-mode needs at least one mode"),
        ] {
            let refused = modes(words).unwrap_err();
            assert!(refused.starts_with(expected), "{refused}");
        }
        let flags = Flags { webhook_kubeconfig: Some("/x".into()), ..Flags::default() };
        assert!(flags.authorizers().unwrap_err().contains("needs Webhook"));
        let webhook = Flags { modes: vec!["Webhook".to_owned()], ..flags };
        assert_eq!(webhook.authorizers().unwrap()[0].webhook.as_ref().unwrap().version, ReviewVersion::V1beta1);
        let version = Flags { webhook_version: "v2".to_owned(), ..webhook };
        assert!(version.authorizers().unwrap_err().starts_with("--authorization-webhook-version \"v2\""));
    }
}
