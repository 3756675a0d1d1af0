//! The order of credentials, and what becomes of those that are not good.

use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use super::authorities::ClientAuthorities;
use super::*;
use crate::certs::{Pki, issue_client};
use crate::wire::peer::ClientCertificate;
use machinery::clock::Clock;

fn authenticator() -> Authenticator {
    let tokens = Tokens::parse("sesame,alice,7,\"devs,ops\"\n", Path::new("tokens")).unwrap();
    Authenticator {
        tokens,
        anonymous: Anonymous::allowed(true),
        audiences: vec!["api".to_owned()],
        ..Authenticator::default()
    }
}

fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, value) in pairs {
        headers.append(*name, value.parse().unwrap());
    }
    headers
}

/// The result of a request: the user's name, or the code and the reason of the refusal; and its warnings.
async fn ask(
    authenticator: &Authenticator,
    headers: &HeaderMap,
    peer: &Peer,
) -> (Result<Arc<User>, Status>, Vec<String>) {
    let (warnings, annotations) = (Warnings::default(), Annotations::default());
    let notes = Notes { warnings: &warnings, annotations: &annotations };
    let now = Clock::system().now();
    let request = Unauthenticated { headers, path: "/api", peer, now, machine: now, notes };
    let found = authenticator.authenticate(request).await.map_err(|refused| refused.status);
    (found, warnings.take())
}

async fn name(pairs: &[(&'static str, &str)]) -> Result<String, u16> {
    let (found, _) = ask(&authenticator(), &headers(pairs), &Peer::default()).await;
    found.map(|user| user.name.clone()).map_err(|status| status.code)
}

#[tokio::test]
async fn au_2_3_4_no_token_a_known_one_and_a_wrong_one() {
    assert_eq!(name(&[]).await, Ok("system:anonymous".to_owned()));
    assert_eq!(name(&[("authorization", "Bearer sesame")]).await, Ok("alice".to_owned()));
    assert_eq!(name(&[("authorization", "bEaRer sesame rest")]).await, Ok("alice".to_owned()));
    assert_eq!(name(&[("authorization", "Bearer nope")]).await, Err(401));
    for ignored in ["Basic eDp5", "Bearer", "Bearer ", "Nope x"] {
        assert_eq!(name(&[("authorization", ignored)]).await, Ok("system:anonymous".to_owned()), "{ignored}");
    }
    let closed = Authenticator { anonymous: Anonymous::allowed(false), ..authenticator() };
    assert_eq!(ask(&closed, &HeaderMap::new(), &Peer::default()).await.0.unwrap_err().code, 401);
}

#[tokio::test]
async fn au_5_two_blanks_are_a_warning() {
    let (found, warnings) =
        ask(&authenticator(), &headers(&[("authorization", "Bearer  sesame")]), &Peer::default()).await;
    assert_eq!(found.unwrap().name, "system:anonymous");
    assert_eq!(
        warnings,
        ["the provided Authorization header contains extra space before the bearer token, and is ignored"]
    );
}

fn peer(authorities: &Arc<ClientAuthorities>, leaf: &crate::certs::Leaf) -> Peer {
    let presented = authorities.present(&leaf.chain().unwrap()).unwrap();
    Peer { certificate: Some(ClientCertificate::Presented(presented)), ..Peer::default() }
}

#[tokio::test]
async fn au_1_a_good_certificate_comes_before_a_token_and_a_bad_one_is_wrong() {
    let now = Clock::system().now();
    let (pki, other) = (Pki::in_memory(&[], now).unwrap(), Pki::in_memory(&[], now).unwrap());
    let authorities = ClientAuthorities::new(&pki.ca_pem, None).unwrap();
    let bad_token = headers(&[("authorization", "Bearer nope")]);
    let good = peer(&authorities, &pki.admin);
    assert_eq!(ask(&authenticator(), &bad_token, &good).await.0.unwrap().name, "kubernetes-admin");
    let foreign = peer(&authorities, &other.admin);
    assert_eq!(ask(&authenticator(), &HeaderMap::new(), &foreign).await.0.unwrap_err().code, 401);
    let token = headers(&[("authorization", "Bearer sesame")]);
    assert_eq!(ask(&authenticator(), &token, &foreign).await.0.unwrap().name, "alice");
}

#[tokio::test]
async fn au_6_the_group_of_the_authenticated_is_added_once() {
    let user = User { name: "a".to_owned(), ..User::default() };
    assert_eq!(user.clone().authenticated().groups, ["system:authenticated"]);
    assert_eq!(user.clone().authenticated().authenticated().groups, ["system:authenticated"]);
    let outside = User { groups: vec!["system:unauthenticated".to_owned()], ..user };
    assert_eq!(outside.authenticated().groups, ["system:unauthenticated"]);
    assert_eq!(User::anonymous().authenticated().groups, ["system:unauthenticated"]);
}

#[tokio::test]
async fn au_8_a_token_of_the_file_is_for_this_server() {
    let (warnings, annotations) = (Warnings::default(), Annotations::default());
    let notes = Notes { warnings: &warnings, annotations: &annotations };
    let authenticator = authenticator();
    let ask = async |audiences: Option<&[String]>| {
        authenticator.token("sesame", audiences, Timestamp::UNIX_EPOCH, notes).await
    };
    assert_eq!(ask(None).await.unwrap().1, ["api"]);
    assert_eq!(ask(Some(&["x".to_owned(), "api".to_owned()])).await.unwrap().1, ["api"]);
    assert_eq!(ask(Some(&["x".to_owned()])).await.unwrap_err().joined(), "invalid bearer token");
}

#[tokio::test]
async fn au_67_a_websocket_carries_its_token_as_a_subprotocol_beside_another() {
    let token = format!("{WEBSOCKET_BEARER}{}", URL_SAFE_NO_PAD.encode("sesame"));
    let ask = async |protocols: &str| {
        name(&[("upgrade", "websocket"), ("connection", "Upgrade"), ("sec-websocket-protocol", protocols)]).await
    };
    assert_eq!(ask(&format!("{token}, v4.channel.k8s.io")).await, Ok("alice".to_owned()));
    assert_eq!(ask(&token).await, Err(401));
    assert_eq!(ask(&format!("{token}, {token}, x")).await, Err(401));
    assert_eq!(ask(&format!("{WEBSOCKET_BEARER}!!, x")).await, Err(401));
    assert_eq!(ask("x").await, Ok("system:anonymous".to_owned()));
    // Without an upgrade it is only a header.
    assert_eq!(name(&[("sec-websocket-protocol", &token)]).await, Ok("system:anonymous".to_owned()));
}

#[tokio::test]
async fn au_66_headers_count_only_with_the_certificate_of_a_front_proxy() {
    let now = Clock::system().now();
    let dir = tempfile::tempdir().unwrap();
    let proxies = Pki::open(dir.path(), &[], now).unwrap();
    let users = Pki::in_memory(&[], now).unwrap();
    let authorities = ClientAuthorities::new(&users.ca_pem, Some(&proxies.ca_pem)).unwrap();
    let front = issue_client(dir.path(), "front-proxy", &[], now).unwrap();
    let proxy = FrontProxy { allowed_names: vec!["front-proxy".to_owned()], ..FrontProxy::default() };
    let authenticator = Authenticator { front_proxy: Some(proxy), explains: true, ..authenticator() };
    let sent = headers(&[
        ("x-remote-user", "bob"),
        ("x-remote-uid", "9"),
        ("x-remote-group", "a"),
        ("x-remote-group", "b"),
        ("x-remote-extra-acme.com%2fproject", "p"),
    ]);
    let bob = ask(&authenticator, &sent, &peer(&authorities, &front)).await.0.unwrap();
    assert_eq!((bob.name.as_str(), bob.uid.as_str()), ("bob", "9"));
    assert_eq!(bob.groups, ["a", "b", "system:authenticated"]);
    assert_eq!(bob.extra["acme.com/project"], ["p"]);
    // Without the certificate of a proxy they mean nothing.
    let admin = ask(&authenticator, &sent, &peer(&authorities, &users.admin)).await.0.unwrap();
    assert_eq!(admin.name, "kubernetes-admin");
    assert!(admin.groups.iter().all(|group| group != "a"));
    let (found, _) = ask(&authenticator, &sent, &Peer::default()).await;
    assert_eq!(found.unwrap().name, "system:anonymous");
    // Another name of the same authority is refused.
    let other = issue_client(dir.path(), "other", &[], now).unwrap();
    let refused = ask(&authenticator, &sent, &peer(&authorities, &other)).await.0.unwrap_err();
    assert_eq!(refused.code, 401);
    let why = &refused.details.unwrap().causes[0].message;
    assert!(why.contains("x509: subject with cn=other is not in the allowed list"), "{why}");
}

#[tokio::test]
async fn au_75_ba_12_the_reason_is_shown_only_on_demand() {
    let wrong = headers(&[("authorization", "Bearer nope")]);
    let plain = ask(&authenticator(), &wrong, &Peer::default()).await.0.unwrap_err();
    assert_eq!((plain.code, plain.message.as_str(), plain.details), (401, "Unauthorized", None));
    let explaining = Authenticator { explains: true, ..authenticator() };
    let explained = ask(&explaining, &wrong, &Peer::default()).await.0.unwrap_err();
    assert_eq!((explained.code, explained.message.as_str()), (401, "Unauthorized"));
    assert_eq!(explained.details.unwrap().causes[0].message, "invalid bearer token");
}
