//! The requests that each signer of Kubernetes accepts.

use crate::request::CertificateRequest;
use crate::usages::holds;

/// Issues certificates of users of the API server.
pub const CLIENT: &str = "kubernetes.io/kube-apiserver-client";
/// Issues certificates with which nodes are clients of the API server.
pub const NODE_CLIENT: &str = "kubernetes.io/kube-apiserver-client-kubelet";
/// Issues certificates with which nodes are servers.
pub const NODE_SERVING: &str = "kubernetes.io/kubelet-serving";
/// Of requests that name no signer, in an API version that is gone.
pub const LEGACY: &str = "kubernetes.io/legacy-unknown";

const NODES: &str = "system:nodes";
const NODE_PREFIX: &str = "system:node:";

/// Checks a request by the rules of its signer. None for a signer that is not one of Kubernetes.
#[must_use]
pub fn check<S: AsRef<str>>(signer: &str, request: &CertificateRequest, usages: &[S]) -> Option<Result<(), String>> {
    match signer {
        CLIENT => Some(check_client_usages(usages)),
        NODE_CLIENT => Some(check_node_client(request, usages)),
        NODE_SERVING => Some(check_node_serving(request, usages)),
        LEGACY => Some(Ok(())),
        _ => None,
    }
}

fn check_client_usages<S: AsRef<str>>(usages: &[S]) -> Result<(), String> {
    let foreign = usages
        .iter()
        .map(AsRef::as_ref)
        .find(|usage| !matches!(*usage, "digital signature" | "key encipherment" | "client auth"));
    match foreign {
        Some(usage) => Err(format!("invalid usage for client certificate: {usage}")),
        None if !holds(usages, "client auth") => {
            Err("missing required usage for client certificate: client auth".to_owned())
        }
        None => Ok(()),
    }
}

/// Checks the request of a node for a certificate as a client.
pub fn check_node_client<S: AsRef<str>>(request: &CertificateRequest, usages: &[S]) -> Result<(), String> {
    check_organization(request)?;
    let names = request.names();
    for (given, kind) in [(names.dns, "DNS"), (names.email, "Email"), (names.address, "IP"), (names.uri, "URI")] {
        if given {
            return Err(format!("{kind} subjectAltNames are not allowed"));
        }
    }
    check_common_name(request)?;
    check_usages(usages, "client auth")
}

fn check_node_serving<S: AsRef<str>>(request: &CertificateRequest, usages: &[S]) -> Result<(), String> {
    check_organization(request)?;
    let names = request.names();
    if !names.dns && !names.address {
        return Err("DNS or IP subjectAltName is required".to_owned());
    }
    for (given, kind) in [(names.email, "Email"), (names.uri, "URI")] {
        if given {
            return Err(format!("{kind} subjectAltNames are not allowed"));
        }
    }
    check_usages(usages, "server auth")?;
    check_common_name(request)
}

fn check_organization(request: &CertificateRequest) -> Result<(), String> {
    if request.organizations() == [NODES] { Ok(()) } else { Err(format!("subject organization is not {NODES}")) }
}

fn check_common_name(request: &CertificateRequest) -> Result<(), String> {
    let fits = request.common_name().starts_with(NODE_PREFIX);
    if fits { Ok(()) } else { Err(format!("subject common name does not begin with {NODE_PREFIX}")) }
}

/// The usages are those of a node: with key encipherment or without, since only RSA keys can encipher.
fn check_usages<S: AsRef<str>>(usages: &[S], purpose: &str) -> Result<(), String> {
    let mut wanted = [purpose, "digital signature", "key encipherment"];
    wanted.sort_unstable();
    let known = usages.iter().all(|usage| wanted.contains(&usage.as_ref()));
    if known && holds(usages, purpose) && holds(usages, "digital signature") {
        return Ok(());
    }
    Err(format!("usages did not match [{}]", wanted.join(" ")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::tests::request;

    #[test]
    fn csr_15_client_certificates_are_for_clients() {
        let any = request("jane", &["dev"], &[]);
        let check = |usages: &[&str]| super::check(CLIENT, &any, usages).unwrap();
        assert_eq!(check(&["client auth"]), Ok(()));
        assert_eq!(check(&["client auth", "digital signature", "key encipherment"]), Ok(()));
        assert_eq!(
            check(&["client auth", "server auth"]).unwrap_err(),
            "invalid usage for client certificate: server auth"
        );
        assert_eq!(
            check(&["digital signature"]).unwrap_err(),
            "missing required usage for client certificate: client auth"
        );
    }

    #[test]
    fn csr_16_nodes_are_clients_under_their_names() {
        let usages = ["digital signature", "client auth"];
        let check = |request: &CertificateRequest, usages: &[&str]| super::check(NODE_CLIENT, request, usages).unwrap();
        let node = request("system:node:n1", &["system:nodes"], &[]);
        assert_eq!(check(&node, &usages), Ok(()));
        assert_eq!(check(&node, &["digital signature", "client auth", "key encipherment"]), Ok(()));
        assert_eq!(
            check(&node, &["client auth"]).unwrap_err(),
            "usages did not match [client auth digital signature key encipherment]"
        );
        let other = request("system:node:n1", &["dev"], &[]);
        assert_eq!(check(&other, &usages).unwrap_err(), "subject organization is not system:nodes");
        let other = request("n1", &["system:nodes"], &[]);
        assert_eq!(check(&other, &usages).unwrap_err(), "subject common name does not begin with system:node:");
        for (name, text) in [("n1.example", "DNS"), ("10.0.0.1", "IP"), ("a@b", "Email"), ("urn:x", "URI")] {
            let named = request("system:node:n1", &["system:nodes"], &[name]);
            assert_eq!(check(&named, &usages).unwrap_err(), format!("{text} subjectAltNames are not allowed"));
        }
    }

    #[test]
    fn csr_17_nodes_serve_under_names_and_addresses() {
        let usages = ["digital signature", "server auth"];
        let check =
            |request: &CertificateRequest, usages: &[&str]| super::check(NODE_SERVING, request, usages).unwrap();
        let bare = request("system:node:n1", &["system:nodes"], &[]);
        assert_eq!(check(&bare, &usages).unwrap_err(), "DNS or IP subjectAltName is required");
        assert_eq!(check(&request("system:node:n1", &["system:nodes"], &["10.0.0.1"]), &usages), Ok(()));
        let named = request("system:node:n1", &["system:nodes"], &["n1.example"]);
        assert_eq!(check(&named, &usages), Ok(()));
        assert_eq!(
            check(&named, &["client auth"]).unwrap_err(),
            "usages did not match [digital signature key encipherment server auth]"
        );
        let mail = request("system:node:n1", &["system:nodes"], &["n1.example", "a@b"]);
        assert_eq!(check(&mail, &usages).unwrap_err(), "Email subjectAltNames are not allowed");
    }

    #[test]
    fn csr_18_19_old_requests_get_anything_and_foreign_signers_are_left_alone() {
        let any = request("jane", &[], &[]);
        assert_eq!(super::check(LEGACY, &any, &["crl sign"]), Some(Ok(())));
        assert_eq!(super::check("example.com/s", &any, &["client auth"]), None);
        assert_eq!(super::check("kubernetes.io/unknown", &any, &["client auth"]), None);
    }
}
