//! The authorizers of a configuration, and their replacement when its file changes.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use access::authorizer::{AlwaysAllow, Attributes, Authorizer, Decision, RuleList, Verdict};
use access::identity::User;
use access::union::{AlwaysDeny, Member, Union};
use arc_swap::ArcSwap;
use outbound::Client;

use super::file;
use super::modes::{AuthorizerConfig, Mode};
use super::webhook::{CompileCondition, WebhookAuthorizer};

/// Time between two looks at the file.
const RELOAD: Duration = Duration::from_secs(10);

/// What authorizers are made of.
#[derive(Clone)]
pub struct Parts {
    pub rbac: Arc<dyn Authorizer>,
    /// None if the server was started without the mode Node.
    pub node: Option<Arc<dyn Authorizer>>,
    pub client: Client,
    pub compile: CompileCondition,
}

/// Builds the authorizers of a configuration. The error is one sentence.
pub fn build(authorizers: &[AuthorizerConfig], parts: &Parts) -> Result<Union, String> {
    let mut members = Vec::with_capacity(authorizers.len());
    for config in authorizers {
        let authorizer: Arc<dyn Authorizer> = match (config.mode, &config.webhook) {
            (Mode::Rbac, _) => Arc::clone(&parts.rbac),
            (Mode::Node, _) => Arc::clone(parts.node.as_ref().ok_or("the type Node may not be added later")?),
            (Mode::AlwaysAllow, _) => Arc::new(AlwaysAllow),
            (Mode::AlwaysDeny, _) => Arc::new(AlwaysDeny),
            (Mode::Webhook, Some(webhook)) => Arc::new(WebhookAuthorizer::new(&parts.client, webhook, &parts.compile)?),
            (Mode::Webhook, None) => return Err(format!("the webhook {:?} has no address", config.name)),
        };
        members.push(Member::new(config.mode.as_str(), config.name.as_str(), authorizer));
    }
    Ok(Union::new(members))
}

/// The authorizers of a file, replaced when it changes.
pub struct Reloading {
    current: ArcSwap<Union>,
    path: PathBuf,
    parts: Parts,
    /// Types that the file had at the start, webhooks aside. They may not disappear.
    required: BTreeSet<&'static str>,
}

impl Reloading {
    /// Builds the authorizers that were read from `path`.
    pub fn new(path: &Path, authorizers: &[AuthorizerConfig], parts: Parts) -> Result<Self, String> {
        let union = build(authorizers, &parts).map_err(|why| format!("{}: {why}", path.display()))?;
        let required = built_in(authorizers);
        Ok(Reloading { current: ArcSwap::from_pointee(union), path: path.to_owned(), parts, required })
    }

    /// The authorizers of this moment.
    #[must_use]
    pub fn union(&self) -> Arc<Union> {
        self.current.load_full()
    }

    /// Reads the file and uses it from now on. With an error, the authorizers stay as they were.
    pub fn reload(&self) -> Result<(), String> {
        let authorizers = file::read(&self.path)?;
        let wrong = |why: String| format!("{}: {why}", self.path.display());
        let missing: Vec<&str> = self.required.difference(&built_in(&authorizers)).copied().collect();
        if !missing.is_empty() {
            return Err(wrong(format!("the type {} may not be removed while the server runs", missing.join(", "))));
        }
        let union = build(&authorizers, &self.parts).map_err(wrong)?;
        self.current.store(Arc::new(union.following(&self.current.load())));
        Ok(())
    }

    /// Reloads the file whenever its bytes, or those of a kubeconfig that it names, differ. Runs until it is dropped.
    pub async fn follow(self: Arc<Self>) {
        let mut seen = self.bytes();
        loop {
            tokio::time::sleep(RELOAD).await;
            let now = self.bytes();
            if now == seen {
                continue;
            }
            seen = now;
            match self.reload() {
                Ok(()) => tracing::info!(file = %self.path.display(), "authorization configuration reloaded"),
                Err(why) => tracing::error!(why, "authorization configuration is wrong; the old one stays in use"),
            }
        }
    }

    /// The bytes of the file and of the kubeconfigs that it names.
    fn bytes(&self) -> Vec<Option<Vec<u8>>> {
        let text = std::fs::read(&self.path).ok();
        let named = text.as_deref().and_then(|text| file::parse(text).ok()).unwrap_or_default();
        let webhooks = named.into_iter().filter_map(|config| config.webhook);
        let files: Vec<Option<Vec<u8>>> = webhooks.map(|webhook| std::fs::read(webhook.kubeconfig).ok()).collect();
        [text].into_iter().chain(files).collect()
    }
}

fn built_in(authorizers: &[AuthorizerConfig]) -> BTreeSet<&'static str> {
    let modes = authorizers.iter().map(|config| config.mode).filter(|mode| *mode != Mode::Webhook);
    modes.map(Mode::as_str).collect()
}

impl Authorizer for Reloading {
    fn authorize<'a>(&'a self, attributes: &'a Attributes<'a>) -> Verdict<'a> {
        if attributes.user.is_master() {
            return Verdict::Now(Decision::allow(""));
        }
        if let Verdict::Now(decision) = self.current.load().authorize(attributes) {
            return Verdict::Now(decision);
        }
        // The future keeps the authorizers that it asks, also if they are replaced meanwhile.
        let union = self.current.load_full();
        Verdict::Later(Box::pin(async move { union.authorize(attributes).get().await }))
    }

    fn rules_for(&self, user: &User, namespace: &str) -> RuleList {
        self.current.load().rules_for(user, namespace)
    }
}

#[cfg(test)]
mod tests {
    use access::authorizer::What;
    use outbound::ClientLimits;

    use super::*;

    fn parts() -> Parts {
        Parts {
            rbac: Arc::new(AlwaysDeny),
            node: None,
            client: Client::new(ClientLimits::default()),
            compile: Arc::new(|_| Err("no conditions here".to_owned())),
        }
    }

    fn text(types: &[&str]) -> String {
        let mut text =
            "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthorizationConfiguration\nauthorizers:\n".to_owned();
        for name in types {
            text.push_str(&format!("- type: {name}\n  name: {}\n", name.to_lowercase()));
        }
        text
    }

    fn allows(chain: &Reloading) -> bool {
        let user = User { name: "alice".to_owned(), ..User::default() }.authenticated();
        let attributes = Attributes { user: &user, verb: "get", what: What::Path("/x") };
        matches!(chain.authorize(&attributes), Verdict::Now(Decision { allowed: true, .. }))
    }

    #[test]
    fn az_7_a_changed_file_is_used_and_a_bad_one_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("authorization.yaml");
        std::fs::write(&path, text(&["RBAC"])).unwrap();
        let chain = Reloading::new(&path, &file::read(&path).unwrap(), parts()).unwrap();
        assert!(!allows(&chain));
        std::fs::write(&path, text(&["RBAC", "AlwaysAllow"])).unwrap();
        assert_eq!(chain.reload(), Ok(()));
        assert!(allows(&chain));
        for (bad, expected) in [
            ("authorizers: [".to_owned(), "yaml: "),
            (text(&["AlwaysDeny"]), "the type RBAC may not be removed while the server runs"),
            (text(&["RBAC", "Node"]), "the type Node may not be added later"),
        ] {
            std::fs::write(&path, bad).unwrap();
            let refused = chain.reload().unwrap_err();
            assert!(refused.starts_with(&format!("{}: {expected}", path.display())), "{refused}");
            assert!(allows(&chain), "the old chain stays");
        }
        std::fs::remove_file(&path).unwrap();
        assert!(chain.reload().is_err());
        assert!(allows(&chain));
    }

    #[tokio::test(start_paused = true)]
    async fn az_7_a_changed_file_is_noticed_within_a_minute() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("authorization.yaml");
        std::fs::write(&path, text(&["RBAC"])).unwrap();
        let chain = Arc::new(Reloading::new(&path, &file::read(&path).unwrap(), parts()).unwrap());
        let following = tokio::spawn(Arc::clone(&chain).follow());
        tokio::time::sleep(Duration::from_secs(1)).await;
        std::fs::write(&path, text(&["RBAC", "AlwaysAllow"])).unwrap();
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert!(allows(&chain));
        following.abort();
    }
}
