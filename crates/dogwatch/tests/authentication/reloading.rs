//! Files that change while the server runs.

use machinery::json::json;
use outbound::Request;
use server::certs::make_key;

use crate::sources::TestIssuer;
use crate::world::{Files, World, new_pki};

#[tokio::test]
async fn au_17_rot_2_client_authorities_change_under_open_connections() {
    let (first, second) = (new_pki(), new_pki());
    let files = Files::new();
    let ca = files.write("client-ca.crt", &first.ca_pem);
    let mut world = World::start(files, &["--client-ca-file", &ca]).await;
    assert_eq!(world.code(&first.admin).await, 200);
    assert_eq!(world.code(&second.admin).await, 401);
    world.write("client-ca.crt", &second.ca_pem);
    world.reloading.reload().await;
    assert_eq!(world.code(&first.admin).await, 401, "on the same connection");
    assert_eq!(world.code(&second.admin).await, 200);
    assert_eq!(world.code(&world.pki.admin).await, 200, "the server's own authority stays");
    // What cannot be used changes nothing.
    world.write("client-ca.crt", "junk");
    world.reloading.reload().await;
    assert_eq!(world.code(&second.admin).await, 200);
}

#[tokio::test]
async fn rot_5_authorities_are_published_and_kept_current() {
    let (first, second, proxies) = (new_pki(), new_pki(), new_pki());
    let files = Files::new();
    let ca = files.write("client-ca.crt", &first.ca_pem);
    let proxy_ca = files.write("proxy-ca.crt", &proxies.ca_pem);
    let mut world = World::start(files, &["--client-ca-file", &ca, "--requestheader-client-ca-file", &proxy_ca]).await;
    let published = |world: &World| {
        let registry = world.cluster.registry();
        registry.cached_object("core/configmaps", Some("kube-system"), "extension-apiserver-authentication")
    };
    world.reloading.publish().await;
    let data = published(&world).unwrap()["data"].clone();
    assert_eq!(data["client-ca-file"], format!("{}{}", world.pki.ca_pem, first.ca_pem));
    let both = format!("{}{}", proxies.ca_pem, world.cluster.front_proxy_ca_pem());
    assert_eq!(data["requestheader-client-ca-file"], both);
    assert_eq!(data["requestheader-username-headers"], "[\"X-Remote-User\"]");
    assert_eq!(data["requestheader-uid-headers"], "[\"X-Remote-Uid\"]");
    assert_eq!(data["requestheader-group-headers"], "[\"X-Remote-Group\"]");
    assert_eq!(data["requestheader-extra-headers-prefix"], "[\"X-Remote-Extra-\"]");
    assert_eq!(data["requestheader-allowed-names"], "[]");
    world.write("client-ca.crt", &second.ca_pem);
    world.reloading.reload().await;
    let data = published(&world).unwrap()["data"].clone();
    assert_eq!(data["client-ca-file"], format!("{}{}", world.pki.ca_pem, second.ca_pem));
}

#[tokio::test]
async fn rot_5_aggregated_servers_learn_whom_to_trust() {
    let world = World::start(Files::new(), &[]).await;
    world.reloading.publish().await;
    let registry = world.cluster.registry();
    let map = registry.cached_object("core/configmaps", Some("kube-system"), "extension-apiserver-authentication");
    let data = &map.unwrap()["data"];
    assert_eq!(data["client-ca-file"], world.pki.ca_pem);
    assert_eq!(data["requestheader-client-ca-file"], world.cluster.front_proxy_ca_pem());
    assert_eq!(data["requestheader-allowed-names"], "[\"front-proxy-client\"]");
}

#[tokio::test]
async fn rot_2_the_serving_certificate_changes_for_new_connections() {
    let (first, second) = (new_pki(), new_pki());
    let files = Files::new();
    let certificate = files.write("server.crt", &first.serving.cert_pem);
    let key = files.write("server.key", &first.serving.key_pem);
    let mut world = World::start(files, &["--tls-cert-file", &certificate, "--tls-private-key-file", &key]).await;
    let healthy = async |world: &World, roots: &str| {
        world.ask(Request::get(), "/livez", roots, None, None).await.is_ok_and(|answer| answer.0 == 200)
    };
    assert!(healthy(&world, &first.ca_pem).await);
    assert!(!healthy(&world, &second.ca_pem).await);
    world.write("server.crt", &second.serving.cert_pem);
    world.reloading.reload().await;
    assert!(!healthy(&world, &second.ca_pem).await, "the key does not fit yet");
    world.write("server.key", &second.serving.key_pem);
    world.reloading.reload().await;
    assert!(healthy(&world, &second.ca_pem).await);
    assert!(healthy(&world, &first.ca_pem).await, "its connection is still open");
}

#[tokio::test]
async fn rot_2_3_keys_of_service_accounts_are_rotated() {
    let (first, second) = (make_key().unwrap(), make_key().unwrap());
    let files = Files::new();
    let signing = files.write("signing.key", &first);
    let others = files.write("others.pem", &first);
    let words = ["--service-account-signing-key-file", &signing, "--service-account-key-file", &others];
    let mut world = World::start(files, &words).await;
    let old = world.account_token().await;
    world.who(&old).await.unwrap();
    world.write("signing.key", &second);
    world.reloading.reload().await;
    world.who(&old).await.unwrap();
    let new = world.account_token().await;
    world.who(&new).await.unwrap();
    world.write("others.pem", &second);
    world.reloading.reload().await;
    assert_eq!(world.who(&old).await.unwrap_err().0, 401);
    world.who(&new).await.unwrap();
}

#[tokio::test]
async fn au_70_issuers_change_with_their_file() {
    let (first, second) = (TestIssuer::start().await, TestIssuer::start().await);
    let files = Files::new();
    let by_sub = json!({"claim": "sub", "prefix": "x:"});
    let config = files.write("config", &first.file(&by_sub));
    let mut world = World::start(files, &["--authentication-config", &config]).await;
    assert_eq!(world.who(&first.sign(&json!({}))).await.unwrap()["username"], "x:42");
    assert!(world.who(&second.sign(&json!({}))).await.is_err());
    world.write("config", "kind: Junk\n");
    world.reloading.reload().await;
    assert!(world.who(&first.sign(&json!({}))).await.is_ok(), "a wrong file changes nothing");
    world.write("config", &second.file(&by_sub));
    world.reloading.reload().await;
    assert!(world.who(&first.sign(&json!({}))).await.is_err());
    assert_eq!(world.who(&second.sign(&json!({}))).await.unwrap()["username"], "x:42");
}

#[tokio::test]
async fn au_64_70_rules_of_anonymous_requests_change_with_their_file() {
    let head = "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthenticationConfiguration\n";
    let files = Files::new();
    let config = files.write("config", head);
    let mut world = World::start(files, &["--authentication-config", &config]).await;
    for (rest, livez, readyz) in [
        ("", 200, 200),
        ("anonymous: {enabled: true, conditions: [{path: /livez}]}\n", 200, 401),
        ("anonymous: {enabled: maybe}\n", 200, 401),
        ("anonymous: {enabled: false}\n", 401, 401),
        ("jwt: []\n", 200, 200),
    ] {
        world.write("config", &format!("{head}{rest}"));
        world.reloading.reload().await;
        let code = async |path: &str| world.ask(Request::get(), path, &world.pki.ca_pem, None, None).await.unwrap().0;
        assert_eq!((code("/livez").await, code("/readyz").await), (livez, readyz), "{rest}");
    }
}

#[tokio::test]
async fn au_65_70_a_file_cannot_open_a_server_where_everything_is_allowed() {
    let head = "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthenticationConfiguration\n";
    let files = Files::new();
    let config = files.write("config", head);
    let words = ["--authentication-config", &config, "--authorization-mode", "AlwaysAllow"];
    let mut world = World::start(files, &words).await;
    world.write("config", &format!("{head}anonymous: {{enabled: true}}\n"));
    world.reloading.reload().await;
    assert_eq!(world.ask(Request::get(), "/livez", &world.pki.ca_pem, None, None).await.unwrap().0, 401);
}
