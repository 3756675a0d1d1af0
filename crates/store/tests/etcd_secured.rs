//! TLS, client certificates, users and passwords, against a real etcd that requires them.

use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use rcgen::{BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair};
use store::error::OpenError;
use store::etcd::testing::{EtcdServer, User, enable_users};
use store::etcd::{EtcdCredentials, EtcdIdentity, EtcdOptions, EtcdStore, EtcdTls};
use store::{Key, Prefix, Revision, Store};
use tempfile::TempDir;

/// An authority, and certificates it signed, as files for etcd.
struct Certificates {
    folder: TempDir,
    ca: String,
    client: EtcdIdentity,
}

impl Certificates {
    fn new() -> Certificates {
        let ca_key = KeyPair::generate().unwrap();
        let mut ca = CertificateParams::new([]).unwrap();
        ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        ca.distinguished_name.push(DnType::CommonName, "test authority");
        let ca_pem = ca.self_signed(&ca_key).unwrap().pem();
        let authority = Issuer::new(ca, ca_key);

        let sign = |name: &str| {
            let key = KeyPair::generate().unwrap();
            let mut params = CertificateParams::new(["127.0.0.1".to_owned(), "etcd.test".to_owned()]).unwrap();
            params.distinguished_name.push(DnType::CommonName, name);
            // etcd's gateway also uses the server certificate as a client certificate.
            params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
            (params.signed_by(&key, &authority).unwrap().pem(), key.serialize_pem())
        };
        let folder = tempfile::tempdir().unwrap();
        let (server_cert, server_key) = sign("server");
        let (cert, key) = sign("client");
        for (name, content) in [("ca.pem", &ca_pem), ("server.pem", &server_cert), ("server.key", &server_key)] {
            std::fs::write(folder.path().join(name), content).unwrap();
        }
        Certificates { folder, ca: ca_pem, client: EtcdIdentity { cert: cert.into(), key: key.into() } }
    }

    fn path(&self, name: &str) -> String {
        self.folder.path().join(name).display().to_string()
    }

    fn start(&self, more: &[&str]) -> EtcdServer {
        let (cert, key) = (self.path("server.pem"), self.path("server.key"));
        let mut arguments = vec!["--cert-file", &cert, "--key-file", &key];
        arguments.extend(more);
        EtcdServer::start_with("https", &arguments)
    }

    fn options(&self, server: &EtcdServer) -> EtcdOptions {
        let tls = EtcdTls { ca: self.ca.clone().into(), identity: None, domain: None };
        EtcdOptions { tls: Some(tls), compaction: false, ..EtcdOptions::new([&server.url]) }
    }
}

fn pod(name: &str) -> Key {
    Key::new(format!("core/pods/default/{name}")).unwrap()
}

async fn refusal(options: EtcdOptions) -> OpenError {
    // A member that cannot be reached is tried again until the time is up.
    match EtcdStore::connect(EtcdOptions { request_timeout: Duration::from_secs(1), ..options }).await {
        Ok(_) => panic!("etcd let us in"),
        Err(error) => error,
    }
}

#[tokio::test]
async fn a_client_certificate_opens_an_etcd_that_asks_for_one() {
    let certificates = Certificates::new();
    let ca = certificates.path("ca.pem");
    let server = certificates.start(&["--client-cert-auth", "--trusted-ca-file", &ca]);
    let plain = certificates.options(&server);
    let identity = Some(certificates.client.clone());
    let tls = |domain: Option<&str>| {
        let tls =
            EtcdTls { identity: identity.clone(), domain: domain.map(str::to_owned), ..plain.tls.clone().unwrap() };
        EtcdOptions { tls: Some(tls), ..plain.clone() }
    };

    let store = server.connect(tls(None)).await;
    let revision = store.create(pod("a"), Bytes::from_static(b"1")).await.unwrap();
    let mut changes = store.watch(Prefix::everything(), Revision(revision.0 - 1)).await.unwrap();
    assert_eq!(changes.next().await.unwrap().unwrap().changes[0].key, pod("a"));
    EtcdStore::connect(tls(Some("etcd.test"))).await.expect("the certificate carries that name");

    let other = refusal(tls(Some("other.test"))).await;
    assert!(matches!(&other, OpenError::Unreachable { .. }), "{other}");
    let anonymous = refusal(plain.clone()).await;
    assert!(matches!(&anonymous, OpenError::Unreachable { .. }), "{anonymous}");
    let stranger = EtcdTls { ca: Certificates::new().ca.into(), identity: identity.clone(), domain: None };
    let distrusted = refusal(EtcdOptions { tls: Some(stranger), ..plain.clone() }).await;
    assert!(distrusted.to_string().contains("certificate"), "{distrusted}");
    let rubbish = EtcdTls { ca: b"rubbish".to_vec(), identity: None, domain: None };
    let rubbish = refusal(EtcdOptions { tls: Some(rubbish), ..plain.clone() }).await;
    assert!(matches!(&rubbish, OpenError::Unreachable { .. } | OpenError::Inaccessible { .. }), "{rubbish}");
}

#[tokio::test]
async fn a_user_sees_a_prefix_and_stays_logged_in() {
    let certificates = Certificates::new();
    let mut server = certificates.start(&["--bcrypt-cost", "4"]);
    let options = certificates.options(&server);
    server.connect(options.clone()).await.close().await;
    let users = [
        User { name: "root", password: "root's", prefix: None },
        User { name: "dog", password: "watch", prefix: Some("/registry/") },
    ];
    enable_users(&options, &users).await;
    let as_user = |name: &str, password: &str| EtcdOptions {
        credentials: Some(EtcdCredentials { username: name.to_owned(), password: password.to_owned() }),
        ..options.clone()
    };

    let nobody = refusal(options.clone()).await;
    assert!(nobody.to_string().contains("asks for a user and a password"), "{nobody}");
    let wrong = refusal(as_user("dog", "cat")).await;
    assert!(matches!(&wrong, OpenError::Inaccessible { reason, .. } if reason.contains("password")), "{wrong}");
    let elsewhere = refusal(EtcdOptions { prefix: "/other/".to_owned(), ..as_user("dog", "watch") }).await;
    assert!(
        matches!(&elsewhere, OpenError::Inaccessible { reason, .. } if reason.contains("permission")),
        "{elsewhere}"
    );

    let store = EtcdStore::connect(as_user("dog", "watch")).await.expect("the password is right");
    let first = store.create(pod("a"), Bytes::from_static(b"1")).await.unwrap();
    let mut changes = store.watch(Prefix::everything(), Revision(first.0 - 1)).await.unwrap();
    assert_eq!(changes.next().await.unwrap().unwrap().changes[0].revision, first);

    // Tokens do not survive a restart of etcd: the store logs in again, and so does the watch.
    server.restart();
    server.connect(as_user("root", "root's")).await.close().await;
    let second = store.update(pod("a"), Bytes::from_static(b"2"), first).await.expect("logged in again");
    loop {
        let batch = changes.next().await.unwrap().expect("the watch is open");
        if let Some(change) = batch.changes.first() {
            assert_eq!((change.revision, batch.changes.len()), (second, 1));
            break;
        }
    }

    let folder = tempfile::tempdir().unwrap();
    backup_as(&store, &folder.path().join("dog.db")).await.expect_err("only root may take a snapshot");
    let root = EtcdStore::connect(as_user("root", "root's")).await.expect("the password is right");
    backup_as(&root, &folder.path().join("root.db")).await.expect("root may take a snapshot");
}

async fn backup_as(store: &EtcdStore, to: &Path) -> Result<(), String> {
    let outcome = store.backup(to).await.map_err(|error| error.to_string());
    assert_eq!(to.exists(), outcome.is_ok(), "a failed backup leaves no file");
    outcome
}
