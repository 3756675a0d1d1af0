//! Files that are read again when they change, without a restart and without an effect on open connections: the serving
//! certificate, client authorities, keys of service accounts, issuers of tokens, paths without credentials.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use access::identity::{MASTERS, User};
use machinery::json::{Value, json};
use machinery::media::MediaType;
use machinery::options::{CreateOptions, UpdateOptions};
use outbound::{Client, ClientLimits};
use registry::{Body, Context, Registry, Target, WriteRequest};
use server::authentication::accounts::TokenKeys;
use server::authentication::anonymous::Anonymous;
use server::certs::front_proxy::CLIENT_NAME;
use server::certs::{Leaf, Pki};
use server::service::Server;
use server::tls::Tls;

use super::{account_keys, authorities_pem, beside_no_anonymous, read_config, serving};
use crate::args;
use crate::cluster::Cluster;
use crate::failure::Failure;

/// Time between two looks at the files.
const INTERVAL: Duration = Duration::from_secs(5);
const NAMESPACE: &str = "kube-system";
const NAME: &str = "extension-apiserver-authentication";

/// Follows the files of a server.
pub struct Reloading {
    args: args::Authentication,
    own_ca_pem: String,
    own_serving: Leaf,
    own_key_pem: String,
    /// The authority of this server's calls to aggregated servers.
    front_proxy_ca_pem: String,
    /// Whether requests without credentials are allowed where the file does not say. None if they never are.
    anonymous: Option<bool>,
    server: Server,
    tls: Tls,
    seen: Seen,
}

/// What was read last.
#[derive(Default, PartialEq, Eq)]
struct Seen {
    serving: Option<(String, String)>,
    authorities: Option<(String, Option<String>)>,
    keys: Option<(Option<String>, Vec<String>)>,
    config: Option<Vec<u8>>,
}

impl Reloading {
    #[must_use]
    pub fn new(args: &args::Authentication, pki: &Pki, cluster: &Cluster, tls: &Tls) -> Self {
        let mut reloading = Reloading {
            args: args.clone(),
            own_ca_pem: pki.ca_pem.clone(),
            own_serving: pki.serving.clone(),
            own_key_pem: pki.accounts_key_pem.clone(),
            front_proxy_ca_pem: cluster.front_proxy_ca_pem().to_owned(),
            anonymous: cluster.anonymous(),
            server: cluster.server().clone(),
            tls: tls.clone(),
            seen: Seen::default(),
        };
        reloading.seen = reloading.look();
        reloading
    }

    /// Publishes the authorities for extension servers, then follows the files if there are any.
    pub async fn run(mut self) {
        self.publish().await;
        if self.files().is_empty() {
            return;
        }
        loop {
            tokio::time::sleep(INTERVAL).await;
            self.reload().await;
        }
    }

    fn files(&self) -> Vec<&PathBuf> {
        let args = &self.args;
        [
            &args.tls_cert_file,
            &args.tls_private_key_file,
            &args.client_ca_file,
            &args.requestheader_client_ca_file,
            &args.service_account_signing_key_file,
            &args.authentication_config,
        ]
        .into_iter()
        .flatten()
        .chain(&args.service_account_key_file)
        .collect()
    }

    /// The files as they are now; a file that cannot be read counts as unchanged.
    fn look(&self) -> Seen {
        Seen {
            serving: serving(&self.args, &self.own_serving).ok().map(|leaf| (leaf.cert_pem, leaf.key_pem)),
            authorities: authorities_pem(&self.args, &self.own_ca_pem).ok(),
            keys: account_keys(&self.args).ok(),
            config: self.args.authentication_config.as_ref().and_then(|path| std::fs::read(path).ok()),
        }
    }

    /// Applies what changed. What cannot be used is reported, and tried again at the next look.
    pub async fn reload(&mut self) {
        let found = self.look();
        let mut republish = false;
        if let (Some(new), true) = (&found.authorities, found.authorities != self.seen.authorities) {
            let replaced = self.tls.authorities().replace(&new.0, new.1.as_deref());
            if report("client authorities", replaced.map_err(|error| error.to_string())) {
                self.seen.authorities.clone_from(&found.authorities);
                // The handshake names the authorities.
                self.seen.serving = None;
                republish = true;
            }
        }
        if let (Some((cert_pem, key_pem)), true) = (&found.serving, found.serving != self.seen.serving) {
            let leaf = Leaf { cert_pem: cert_pem.clone(), key_pem: key_pem.clone() };
            if report("the serving certificate", self.tls.replace(&leaf).map_err(|error| error.to_string())) {
                self.seen.serving.clone_from(&found.serving);
            }
        }
        if let (Some((signing, others)), true) = (&found.keys, found.keys != self.seen.keys) {
            let keys = TokenKeys::new(signing.as_deref().unwrap_or(&self.own_key_pem), others);
            let replaced = keys.map_err(|error| error.to_string()).map(|keys| {
                if let Some(accounts) = &self.server.authenticator().accounts {
                    accounts.replace_keys(keys);
                }
            });
            if report("keys of service accounts", replaced) {
                self.seen.keys.clone_from(&found.keys);
            }
        }
        if found.config.is_some() && found.config != self.seen.config {
            let replaced = self.replace_config().await;
            if report("issuers of tokens and rules of anonymous requests", replaced) {
                self.seen.config = found.config;
            }
        }
        if republish {
            self.publish().await;
        }
    }

    /// Applies the file of authentication, all of it or nothing.
    async fn replace_config(&self) -> Result<(), String> {
        let authenticator = self.server.authenticator();
        let (Some(path), Some(issuers)) = (&self.args.authentication_config, &authenticator.issuers) else {
            return Ok(());
        };
        let Some(accounts) = &authenticator.accounts else { return Ok(()) };
        let read = read_config(path, accounts.settings())?;
        if read.anonymous.is_some() && self.anonymous == Some(false) {
            return Err(beside_no_anonymous(path));
        }
        issuers.replace(&Client::new(ClientLimits::default()), read.issuers).await?;
        if let Some(allowed) = self.anonymous {
            authenticator.anonymous.replace(&read.anonymous.unwrap_or_else(|| Anonymous::allowed(allowed)));
        }
        Ok(())
    }

    /// Keeps the config map up to date in which extension servers find the authorities.
    pub async fn publish(&self) {
        let Ok((users, proxies)) = authorities_pem(&self.args, &self.own_ca_pem) else { return };
        // This server calls aggregated servers as a front proxy of its own, beside those that call this server.
        let mut names = self.args.requestheader_allowed_names.clone();
        if !names.is_empty() || proxies.is_none() {
            names.push(CLIENT_NAME.to_owned());
        }
        let proxies = format!("{}{}", proxies.unwrap_or_default(), self.front_proxy_ca_pem);
        let mut data = json!({"client-ca-file": users, "requestheader-client-ca-file": proxies});
        for (key, names) in [
            ("allowed-names", &names),
            ("username-headers", &self.args.requestheader_username_headers),
            ("uid-headers", &self.args.requestheader_uid_headers),
            ("group-headers", &self.args.requestheader_group_headers),
            ("extra-headers-prefix", &self.args.requestheader_extra_headers_prefix),
        ] {
            data[format!("requestheader-{key}").as_str()] = json!(json!(names).to_string());
        }
        if let Err(failure) = publish(self.server.registry(), &data).await {
            tracing::warn!(why = failure.sentence, "the authorities for extension servers could not be published");
        }
    }
}

/// Reports the outcome of a change; returns whether it was made.
fn report(what: &str, outcome: Result<(), String>) -> bool {
    match outcome {
        Ok(()) => {
            tracing::info!("{what} were replaced");
            true
        }
        Err(why) => {
            tracing::warn!(why, "{what} could not be replaced; the old ones stay");
            false
        }
    }
}

async fn publish(registry: &Arc<Registry>, data: &Value) -> Result<(), Failure> {
    let kinds = registry.kinds();
    let Some(kind) = kinds.get("", "v1", "configmaps").cloned() else { return Ok(()) };
    let known = registry.cached_object("core/configmaps", Some(NAMESPACE), NAME);
    if known.as_ref().is_some_and(|known| known["data"] == *data) {
        return Ok(());
    }
    let user = User { name: "system:apiserver".to_owned(), groups: vec![MASTERS.to_owned()], ..User::default() };
    let ctx = Context { user: Arc::new(user.authenticated()), user_agent: "dogwatch".to_owned(), ..Context::default() };
    let mut object = known.clone().unwrap_or_else(
        || json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": NAME, "namespace": NAMESPACE}}),
    );
    object["apiVersion"] = json!("v1");
    object["kind"] = json!("ConfigMap");
    object["data"] = data.clone();
    let body = Body { bytes: object.to_string().into(), media: MediaType::Json };
    let name = known.is_some().then(|| NAME.to_owned());
    let target = Target { kind, namespace: Some(NAMESPACE.to_owned()), name, subresource: None };
    let written = if known.is_some() {
        let options = UpdateOptions::default();
        registry.update(WriteRequest { target: &target, options: &options, ctx: &ctx }, &body).await
    } else {
        let options = CreateOptions::default();
        registry.create(WriteRequest { target: &target, options: &options, ctx: &ctx }, &body).await
    };
    written.map(|_| ()).map_err(|status| Failure::new(status.message))
}
