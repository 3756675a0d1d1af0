//! The objects with which pods of a namespace reach the server: an account, its tokens, the root certificate.
//!
//! - `default_account`: the service account `default`
//! - `token_secrets`: secrets with a token
//! - `root_certificate`: the config map `kube-root-ca.crt`

pub(crate) mod default_account;
pub(crate) mod root_certificate;
pub(crate) mod token_secrets;

use client::Key;
use k8s_openapi::api::core::v1::Namespace;

/// True if objects can be created in a namespace.
fn is_active(namespace: &Namespace) -> bool {
    namespace.metadata.deletion_timestamp.is_none()
        && namespace.status.as_ref().and_then(|status| status.phase.as_deref()) != Some("Terminating")
}

/// The key of an object's namespace.
fn namespace_key(namespace: Option<&str>) -> Vec<Key> {
    namespace.map(|name| Key::new(None, name)).into_iter().collect()
}
