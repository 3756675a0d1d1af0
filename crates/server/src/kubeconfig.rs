//! Kubeconfig files: server address and credentials for Kubernetes clients.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::certs::Leaf;

/// The credentials in a kubeconfig.
#[derive(Clone, Copy, Debug)]
pub enum Credential<'a> {
    Certificate(&'a Leaf),
    Token(&'a str),
    None,
}

/// Returns a kubeconfig with embedded certificates. `ca_pem` is none for plain HTTP.
#[must_use]
pub fn kubeconfig(server_url: &str, ca_pem: Option<&str>, credential: Credential<'_>) -> String {
    // A JSON string is also a YAML string.
    let quoted = |text: &str| machinery::json::Value::from(text).to_string();
    let mut text = String::from("apiVersion: v1\nkind: Config\nclusters:\n- name: dogwatch\n  cluster:\n");
    text.push_str(&format!("    server: {}\n", quoted(server_url)));
    if let Some(ca) = ca_pem {
        text.push_str(&format!("    certificate-authority-data: {}\n", STANDARD.encode(ca)));
    }
    text.push_str("users:\n- name: dogwatch\n  user:");
    match credential {
        Credential::Certificate(leaf) => {
            text.push_str(&format!("\n    client-certificate-data: {}\n", STANDARD.encode(&leaf.cert_pem)));
            text.push_str(&format!("    client-key-data: {}\n", STANDARD.encode(&leaf.key_pem)));
        }
        Credential::Token(token) => text.push_str(&format!("\n    token: {}\n", quoted(token))),
        Credential::None => text.push_str(" {}\n"),
    }
    text.push_str("contexts:\n- name: dogwatch\n  context:\n    cluster: dogwatch\n    user: dogwatch\n");
    text.push_str("current-context: dogwatch\n");
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holds_all_a_client_needs() {
        let leaf = Leaf { cert_pem: "CERT".to_owned(), key_pem: "KEY".to_owned() };
        let text = kubeconfig("https://127.0.0.1:6443", Some("CA"), Credential::Certificate(&leaf));
        for part in [
            "    server: \"https://127.0.0.1:6443\"\n",
            "    certificate-authority-data: Q0E=\n",
            "    client-certificate-data: Q0VSVA==\n",
            "    client-key-data: S0VZ\n",
            "current-context: dogwatch\n",
        ] {
            assert!(text.contains(part), "{part} is missing in\n{text}");
        }
        assert!(kubeconfig("http://x", None, Credential::Token("a\"b")).contains("token: \"a\\\"b\""));
        assert!(kubeconfig("http://x", None, Credential::None).contains("user: {}\n"));
    }
}
