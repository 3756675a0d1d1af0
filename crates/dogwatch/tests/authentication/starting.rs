//! Flags and files that are refused: one sentence with the file, exit code 2, and nothing opened.

use std::process::Command;

use outbound::testing::{Authority, free_address};

use crate::world::{Files, new_pki};

/// Exit code and error of a server with these flags. Its data directory must not be made.
fn refused(files: &Files, words: &[&str]) -> String {
    let data = files.path().join("data");
    let output = Command::new(env!("CARGO_BIN_EXE_dogwatch"))
        .args(["up", "--listen", "127.0.0.1:0", "--no-controllers", "--data-dir"])
        .arg(&data)
        .args(words)
        .output()
        .unwrap();
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{words:?}: {error}");
    error
}

#[test]
fn au_18_a_token_file_with_two_columns() {
    let files = Files::new();
    let path = files.write("tokens.csv", "a,alice,1\nb,bob\n");
    let error = refused(&files, &["--token-file", &path]);
    assert!(
        error.contains(&format!("{path}, line 2: token, user name and uid are needed, and there are 2 columns")),
        "{error}"
    );
}

#[test]
fn au_64_68_configuration_files_that_are_wrong() {
    let files = Files::new();
    let head = "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthenticationConfiguration\n";
    let closed =
        files.write("closed", &format!("{head}anonymous: {{enabled: false, conditions: [{{path: /livez}}]}}\n"));
    let error = refused(&files, &["--authentication-config", &closed]);
    assert!(error.contains(&format!("--authentication-config {closed}: line 3: anonymous.conditions: ")), "{error}");
    let open = files.write("open", &format!("{head}anonymous: {{enabled: true}}\n"));
    let error = refused(&files, &["--authentication-config", &open, "--no-anonymous"]);
    assert!(error.contains("anonymous cannot be set beside --no-anonymous"), "{error}");
    let broken = files.write("broken", "a: [\n");
    let error = refused(&files, &["--authentication-config", &broken]);
    assert!(error.contains(&broken), "{error}");
    let error = refused(&files, &["--authentication-config", "/nope/file"]);
    assert!(error.contains("--authentication-config /nope/file: "), "{error}");
}

#[tokio::test]
async fn au_68_an_issuer_that_cannot_be_reached() {
    let files = Files::new();
    let url = format!("https://{}", free_address().await);
    let ca = files.write("ca.crt", &Authority::new().pem);
    let words = ["--oidc-issuer-url", &url, "--oidc-client-id", "x", "--oidc-ca-file", &ca];
    let error = refused(&files, &words);
    assert!(error.contains(&format!("the issuer {url} cannot be used: ")), "{error}");
    let error = refused(&files, &["--oidc-issuer-url", "http://a", "--oidc-client-id", "x"]);
    assert!(error.contains("--oidc-issuer-url http://a: URL scheme must be https"), "{error}");
}

#[test]
fn rot_2_3_keys_and_certificates_that_cannot_be_used() {
    let files = Files::new();
    let junk = files.write("junk", "junk");
    let (first, second) = (new_pki(), new_pki());
    let (certificate, key) =
        (files.write("a.crt", &first.serving.cert_pem), files.write("b.key", &second.serving.key_pem));
    for words in [
        &["--service-account-key-file", junk.as_str()][..],
        &["--service-account-signing-key-file", &junk],
        &["--client-ca-file", &junk],
        &["--requestheader-client-ca-file", &junk],
        &["--tls-cert-file", &junk, "--tls-private-key-file", &junk],
        &["--authentication-token-webhook-config-file", &junk],
    ] {
        let error = refused(&files, words);
        assert!(error.contains(&junk), "{words:?}: {error}");
    }
    let error = refused(&files, &["--tls-cert-file", &certificate, "--tls-private-key-file", &key]);
    assert!(error.contains(&format!("--tls-cert-file {certificate}: ")), "{error}");
}
