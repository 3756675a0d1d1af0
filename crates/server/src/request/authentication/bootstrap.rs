//! Bootstrap tokens: `id.secret`, which a Secret in `kube-system` holds, for nodes that join a cluster.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use access::identity::User;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use machinery::json::Value;
use registry::Registry;
use sha2::{Digest as _, Sha256};

const NAMESPACE: &str = "kube-system";
const TYPE: &str = "bootstrap.kubernetes.io/token";
const GROUP: &str = "system:bootstrappers";
const ID_LENGTH: usize = 6;
const SECRET_LENGTH: usize = 16;
/// Longest group beyond its prefix.
const GROUP_SUFFIX_MAX: usize = 256;

/// Authenticates bootstrap tokens.
pub struct BootstrapTokens {
    registry: Arc<Registry>,
}

impl fmt::Debug for BootstrapTokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("BootstrapTokens")
    }
}

impl BootstrapTokens {
    #[must_use]
    pub fn new(registry: Arc<Registry>) -> Self {
        BootstrapTokens { registry }
    }

    /// The user of a token. A token with any flaw is unknown.
    pub(crate) fn user(&self, token: &str, now: Timestamp) -> Option<Arc<User>> {
        let (id, secret) = token.split_once('.')?;
        if !is_word(id, ID_LENGTH) || !is_word(secret, SECRET_LENGTH) {
            return None;
        }
        let stored = self.registry.cached_object("core/secrets", Some(NAMESPACE), &format!("bootstrap-token-{id}"))?;
        user(&stored, id, secret, now).map(Arc::new)
    }
}

fn user(stored: &Value, id: &str, secret: &str, now: Timestamp) -> Option<User> {
    if stored["type"].as_str() != Some(TYPE) || stored["metadata"].get("deletionTimestamp").is_some() {
        return None;
    }
    let datum = |name: &str| {
        let bytes = STANDARD.decode(stored["data"][name].as_str()?).ok()?;
        String::from_utf8(bytes).ok()
    };
    // Digests, so that the time of the comparison reveals nothing.
    let same = |name: &str, given: &str| {
        datum(name).is_some_and(|held| Sha256::digest(held.as_bytes()) == Sha256::digest(given.as_bytes()))
    };
    if !same("token-secret", secret) || !same("token-id", id) {
        return None;
    }
    if let Some(until) = datum("expiration").filter(|until| !until.is_empty())
        && until.parse::<Timestamp>().ok()? <= now
    {
        return None;
    }
    if datum("usage-bootstrap-authentication")? != "true" {
        return None;
    }
    let mut groups: BTreeSet<String> = [GROUP.to_owned()].into();
    for group in datum("auth-extra-groups").unwrap_or_default().split(',').filter(|group| !group.is_empty()) {
        if !is_group(group) {
            return None;
        }
        groups.insert(group.to_owned());
    }
    let name = format!("system:bootstrap:{id}");
    Some(User { name, groups: groups.into_iter().collect(), ..User::default() }.authenticated())
}

fn is_word(text: &str, length: usize) -> bool {
    text.len() == length && text.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit())
}

/// `system:bootstrappers:` and a word that does not end in a dash or colon.
fn is_group(group: &str) -> bool {
    let word = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let Some(rest) = group.strip_prefix("system:bootstrappers:") else { return false };
    rest.len() <= GROUP_SUFFIX_MAX
        && rest.bytes().all(|byte| word(byte) || byte == b':' || byte == b'-')
        && rest.bytes().last().is_some_and(word)
}

#[cfg(test)]
mod tests {
    use super::*;
    use machinery::json::json;

    fn stored(changes: &[(&str, &str)]) -> Value {
        let mut secret = json!({"type": TYPE, "metadata": {}, "data": {}});
        for (name, value) in [
            ("token-id", "abcdef"),
            ("token-secret", "0123456789abcdef"),
            ("usage-bootstrap-authentication", "true"),
            ("expiration", "2030-01-01T00:00:00Z"),
            ("auth-extra-groups", "system:bootstrappers:kubeadm:default-node-token"),
        ]
        .iter()
        .chain(changes)
        {
            secret["data"][*name] = json!(STANDARD.encode(value));
        }
        secret
    }

    fn found(stored: &Value) -> Option<User> {
        user(stored, "abcdef", "0123456789abcdef", "2029-12-31T23:59:59Z".parse().unwrap())
    }

    #[test]
    fn au_63_a_secret_names_user_and_groups() {
        let user = found(&stored(&[])).unwrap();
        assert_eq!(user.name, "system:bootstrap:abcdef");
        assert_eq!(
            user.groups,
            ["system:bootstrappers", "system:bootstrappers:kubeadm:default-node-token", "system:authenticated"]
        );
    }

    #[test]
    fn au_63_any_flaw_makes_a_token_unknown() {
        for change in [
            ("token-id", "abcdeg"),
            ("token-secret", "0123456789abcdeg"),
            ("usage-bootstrap-authentication", "yes"),
            ("expiration", "2029-12-31T23:59:59Z"),
            ("expiration", "soon"),
            ("auth-extra-groups", "system:masters"),
            ("auth-extra-groups", "system:bootstrappers:a,system:bootstrappers:"),
            ("auth-extra-groups", "system:bootstrappers:a-"),
        ] {
            assert_eq!(found(&stored(&[change])), None, "{change:?}");
        }
        let mut other = stored(&[]);
        other["type"] = json!("Opaque");
        assert_eq!(found(&other), None);
        let mut deleting = stored(&[]);
        deleting["metadata"]["deletionTimestamp"] = json!("2029-01-01T00:00:00Z");
        assert_eq!(found(&deleting), None);
        assert!(found(&stored(&[("expiration", "")])).is_some());
        assert!(!is_word("abcdeF", 6) && !is_word("abcde", 6) && is_word("a1b2c3", 6));
    }
}
