//! Mistakes of users: each error names the mistake and gives advice, and is retried where that can help.

use std::path::Path;

use client::list_watch::ListerWatcher;
use client::reflector::Phase;
use client::wire::Params;
use client::{Error, TransportKind};
use testkit::fake_server::*;

use super::*;

#[tokio::test]
async fn a_missing_kubeconfig() {
    let error = connect::from_kubeconfig(Path::new("/no/such/kubeconfig"), None).await.err().unwrap();
    assert!(matches!(error, Error::Config(_)));
    assert!(error.to_string().contains("/no/such/kubeconfig"), "{error}");
}

#[tokio::test]
async fn a_forbidden_list_is_reported_and_retried() {
    let server = FakeServer::start().await;
    server.answer(Answer::status(403, "Forbidden"));
    server.answer(Answer::json(403, &status(403, "Forbidden", "pods is forbidden: User \"eve\" cannot list")));
    server.answer(Answer::watch().line(bookmark_end(10)).hold());
    let rig = Rig::start(&server, quick());
    rig.reaches("10").await;
    let problem = rig.problems.lock().remove(0);
    let text = problem.error.to_string();
    assert_eq!(problem.phase, Phase::List);
    assert!(text.contains("User \"eve\" cannot list") && text.contains("needs a role"), "{text}");
}

#[tokio::test]
async fn a_kind_that_does_not_exist() {
    let server = FakeServer::start().await;
    server.answer(Answer::json(404, &serde_json::json!("404 page not found")));
    let source = ApiListWatch::all::<Pod>(client_of(&server));
    let error = source.list(Params::default()).await.err().unwrap();
    assert!(error.is_not_found());
    assert!(error.to_string().contains("does not serve this kind"), "{error}");
}

#[tokio::test]
async fn a_refused_connection() {
    let server = FakeServer::start().await;
    let source = ApiListWatch::all::<Pod>(client_of(&server));
    server.refuse();
    server.all_closed().await;
    let error = loop {
        match source.list(Params::default()).await {
            Err(error) if error.is_refused() => break error,
            _ => tokio::time::sleep(Duration::from_millis(5)).await,
        }
    };
    assert!(error.to_string().contains("is the server running"), "{error}");
}

#[tokio::test]
async fn a_certificate_of_another_authority() {
    let serving = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
    let other = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
    let key = rustls::pki_types::PrivateKeyDer::try_from(serving.signing_key.serialize_der()).unwrap();
    let tls = rustls::ServerConfig::builder_with_provider(Arc::new(rustls::crypto::aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![serving.cert.der().clone()], key)
        .unwrap();
    let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(tls));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("https://{}", listener.local_addr().unwrap());
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let _ = acceptor.accept(stream).await;
        }
    });
    let mut config = kube::Config::new(url.parse().unwrap());
    config.root_cert = Some(vec![other.cert.der().to_vec()]);
    let source = ApiListWatch::all::<Pod>(connect::from_config(config).unwrap());
    let error = source.list(Params::default()).await.err().unwrap();
    assert!(matches!(error, Error::Transport { kind: TransportKind::Tls, .. }), "{error:?}");
    assert!(error.to_string().contains("certificate-authority in the kubeconfig"), "{error}");
}
