//! kubectl certificate: requests that are approved, denied, or not accepted by their signer.

use std::process::Command;
use std::time::Instant;

use blackbox::process::DEADLINE;
use blackbox::{Server, run};

/// Makes a key and a request for a user with openssl, and creates the object of the same name.
fn ask(server: &Server, name: &str, signer: &str, usages: &str) {
    let script = format!(
        "openssl genpkey -algorithm RSA -pkeyopt rsa_keygen_bits:2048 -out {name}.key 2>/dev/null
         openssl req -new -key {name}.key -subj /CN={name}/O=dev/O=ops -out {name}.csr
         base64 < {name}.csr | tr -d '\\n'"
    );
    let mut command = Command::new("bash");
    command.args(["-e", "-c", &script]).current_dir(server.folder());
    let request = run(command, "").ok();
    let object = format!(
        "apiVersion: certificates.k8s.io/v1\nkind: CertificateSigningRequest\nmetadata: {{name: {name}}}\nspec:\n  \
         request: {request}\n  signerName: {signer}\n  usages: [{usages}]\n"
    );
    server.kubectl_with("create -f -", &object).ok();
}

/// The last column of the table.
fn condition(server: &Server, name: &str) -> String {
    let table = server.kubectl(&format!("get csr {name} --no-headers")).ok();
    table.split_whitespace().last().unwrap_or_default().to_owned()
}

fn wait_for(server: &Server, name: &str, wanted: &str) {
    let end = Instant::now() + DEADLINE;
    while condition(server, name) != wanted {
        assert!(Instant::now() < end, "{name} is {} and not {wanted}", condition(server, name));
    }
}

const CLIENT: &str = "kubernetes.io/kube-apiserver-client";

#[test]
fn csr_9_csr_22_ba_9_a_server_alone_signs_what_a_person_approves() {
    let server = Server::start();
    ask(&server, "jane", CLIENT, "client auth, digital signature, key encipherment");
    assert_eq!(condition(&server, "jane"), "Pending");
    let approved = server.kubectl("certificate approve jane").ok();
    assert_eq!(approved, "certificatesigningrequest.certificates.k8s.io/jane approved\n");
    wait_for(&server, "jane", "Approved,Issued");
    let reason = server.kubectl("get csr jane -o jsonpath={.status.conditions[0].reason}").ok();
    assert_eq!(reason, "KubectlApprove");
    let certificate = server.kubectl("get csr jane -o jsonpath={.status.certificate}").ok();
    std::fs::write(server.folder().join("jane.b64"), certificate).expect("the folder can be written");
    let mut decode = Command::new("bash");
    decode.args([
        "-e",
        "-c",
        "base64 -d < jane.b64 > jane.crt; openssl x509 -in jane.crt -noout -subject -ext extendedKeyUsage",
    ]);
    decode.current_dir(server.folder());
    let shown = run(decode, "").ok();
    assert!(
        shown.contains("CN = jane, O = dev, O = ops") && shown.contains("TLS Web Client Authentication"),
        "{shown}"
    );
    let flags = "--client-certificate jane.crt --client-key jane.key --embed-certs";
    server.kubectl(&format!("config set-credentials jane {flags}")).ok();
    server.kubectl("config set-context jane --cluster dogwatch --user jane").ok();
    let user = server.kubectl("--context jane auth whoami -o jsonpath={.status.userInfo}").ok();
    assert!(user.contains(r#""username":"jane""#), "{user}");
    assert!(user.contains(r#""groups":["dev","ops","system:authenticated"]"#), "{user}");
}

#[test]
fn csr_9_csr_15_csr_19_denied_failed_and_foreign_requests() {
    let server = Server::start();
    ask(&server, "denied", CLIENT, "client auth");
    server.kubectl("certificate deny denied").ok();
    assert_eq!(condition(&server, "denied"), "Denied");
    let again = server.kubectl("certificate approve denied");
    assert!(!again.success && again.stderr.contains("is already Denied"), "{}", again.stderr);
    ask(&server, "foreign", "example.com/s", "client auth");
    server.kubectl("certificate approve foreign").ok();
    ask(&server, "failed", CLIENT, "server auth");
    server.kubectl("certificate approve failed").ok();
    wait_for(&server, "failed", "Approved,Failed");
    let last = server.kubectl("get csr failed -o jsonpath={.status.conditions[1]}").ok();
    assert!(last.contains("SignerValidationFailure"), "{last}");
    assert!(last.contains("invalid usage for client certificate: server auth"), "{last}");
    assert_eq!(condition(&server, "foreign"), "Approved", "another program signs these");
}

#[test]
fn ba_9_a_server_approves_every_request_with_the_flag() {
    let server = Server::start_with(&["--approve-csrs"]);
    ask(&server, "jane", CLIENT, "client auth");
    wait_for(&server, "jane", "Approved,Issued");
    ask(&server, "foreign", "example.com/s", "client auth");
    wait_for(&server, "foreign", "Approved");
}
