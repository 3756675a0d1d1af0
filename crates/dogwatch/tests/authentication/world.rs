//! A server on a socket, started with flags, and its clients.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Parser as _;
use dogwatch::args::{Cli, Command};
use dogwatch::authentication::{self, Authentication, Reloading};
use dogwatch::authorization::Authorization;
use dogwatch::cluster::{Access, Cluster};
use dogwatch::failure::Failure;
use machinery::clock::Clock;
use machinery::json::{Value, json};
use outbound::{Client, ClientLimits, Credential, Endpoint, Identity, Request, Roots, TlsOptions};
use server::certs::{Leaf, Pki};
use server::limits::Limits;
use server::shutdown::{self, Trigger};
use store::Retention;
use store::memory::MemoryStore;
use tokio::net::TcpListener;

pub(crate) struct World {
    pub(crate) cluster: Cluster,
    pub(crate) reloading: Reloading,
    pub(crate) pki: Pki,
    pub(crate) dir: tempfile::TempDir,
    address: SocketAddr,
    client: Client,
    _trigger: Trigger,
}

/// A folder for the files of flags.
pub(crate) struct Files(pub(crate) tempfile::TempDir);

impl Files {
    pub(crate) fn new() -> Self {
        Files(tempfile::tempdir().unwrap())
    }

    pub(crate) fn write(&self, name: &str, text: &str) -> String {
        let path: PathBuf = self.0.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }
}

pub(crate) fn new_pki() -> Pki {
    Pki::in_memory(&[], Clock::system().now()).unwrap()
}

pub(crate) fn args(words: &[&str]) -> dogwatch::args::Up {
    match Cli::try_parse_from(["dogwatch", "up"].iter().chain(words)).unwrap().command {
        Command::Up(args) => args,
        other => panic!("not a server: {other:?}"),
    }
}

impl World {
    pub(crate) async fn start(files: Files, words: &[&str]) -> Self {
        Self::try_start(files, words).await.unwrap_or_else(|failure| panic!("{failure}"))
    }

    pub(crate) async fn try_start(files: Files, words: &[&str]) -> Result<Self, Failure> {
        let (args, pki) = (args(words), new_pki());
        let authentication = Authentication::from_args(&args.authentication, args.no_anonymous).await?;
        let access = Access {
            anonymous: !args.no_anonymous,
            accounts_key_pem: Some(pki.accounts_key_pem.clone()),
            authentication,
            authorization: Authorization::from_args(&args.authorization)?,
            ..Access::default()
        };
        let store = Arc::new(MemoryStore::new(Retention::default()));
        let settings = registry::Settings::default();
        let cluster = Cluster::start(store, &access, Limits::default(), settings).await?;
        let tls = authentication::tls(&args.authentication, &pki)?;
        let reloading = Reloading::new(&args.authentication, &pki, &cluster, &tls);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (trigger, stop) = shutdown::channel();
        tokio::spawn(cluster.server().serve(listener, Some(tls), stop));
        let client = Client::new(ClientLimits::default());
        Ok(World { cluster, reloading, pki, dir: files.0, address, client, _trigger: trigger })
    }

    /// Code and body of a request, with any client certificate and token, by a client that trusts `roots_pem`.
    pub(crate) async fn ask(
        &self,
        request: Request,
        path: &str,
        roots_pem: &str,
        leaf: Option<&Leaf>,
        token: Option<&str>,
    ) -> Result<(u16, Value), String> {
        let identity = leaf.map(|leaf| Identity {
            certificate_pem: leaf.cert_pem.clone().into_bytes(),
            key_pem: leaf.key_pem.clone().into_bytes(),
        });
        let options = TlsOptions { roots: Roots::bundle(roots_pem), identity, ..TlsOptions::default() };
        let tls = self.client.tls(&options).map_err(|error| error.to_string())?;
        let endpoint =
            Endpoint::new(&format!("https://{}{path}", self.address), tls).map_err(|error| error.to_string())?;
        let endpoint = endpoint.with_credential(token.and_then(Credential::bearer));
        let answer = self.client.send(&endpoint, request).await.map_err(|error| error.to_string())?;
        let body = serde_json::from_slice(&answer.body).unwrap_or(Value::Null);
        Ok((answer.status.as_u16(), body))
    }

    /// The code of a GET with a client certificate.
    pub(crate) async fn code(&self, leaf: &Leaf) -> u16 {
        self.ask(Request::get(), "/api", &self.pki.ca_pem, Some(leaf), None).await.unwrap().0
    }

    /// The user of a token, or the code of the refusal and its reason.
    pub(crate) async fn who(&self, token: &str) -> Result<Value, (u16, String)> {
        let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
        let path = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
        let request = Request::post_json(review.to_string());
        let (code, body) = self.ask(request, path, &self.pki.ca_pem, None, Some(token)).await.unwrap();
        if code == 201 {
            return Ok(body["status"]["userInfo"].clone());
        }
        Err((code, body["details"]["causes"][0]["message"].as_str().unwrap_or_default().to_owned()))
    }

    /// A POST by the administrator.
    pub(crate) async fn post(&self, path: &str, object: &Value) -> Value {
        let request = Request::post_json(object.to_string());
        let (code, body) = self.ask(request, path, &self.pki.ca_pem, Some(&self.pki.admin), None).await.unwrap();
        assert_eq!(code, 201, "{body}");
        body
    }

    /// A token of the service account `sa`, which is created at the first call.
    pub(crate) async fn account_token(&self) -> String {
        let accounts = "/api/v1/namespaces/default/serviceaccounts";
        if self.cluster.registry().cached_object("core/serviceaccounts", Some("default"), "sa").is_none() {
            self.post(accounts, &json!({"metadata": {"name": "sa"}})).await;
        }
        let request = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}});
        let answer = self.post(&format!("{accounts}/sa/token"), &request).await;
        answer["status"]["token"].as_str().unwrap().to_owned()
    }

    pub(crate) fn write(&self, name: &str, text: &str) {
        std::fs::write(self.dir.path().join(name), text).unwrap();
    }
}
