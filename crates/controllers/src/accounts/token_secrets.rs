//! Secrets of type service-account-token, which receive the token of a service account (SA-2).
//!
//! The token has no expiry and is valid as long as the secret holds it. The program that runs the controllers signs it, as it
//! has the key; without one the server signs a token that is bound to the secret.

use std::sync::Arc;

use client::controller::{Action, Predicate, Run, RunError};
use client::informer::{Event, InformerConfig, SharedInformer};
use client::list_watch::ApiListWatch;
use client::store::Store;
use client::{Error, Key};
use k8s_openapi::ByteString;
use k8s_openapi::api::authentication::v1::TokenRequest;
use k8s_openapi::api::core::v1::{Secret, ServiceAccount};
use kube::api::{DeleteParams, Preconditions};
use kube::{Client, ResourceExt as _};
use serde_json::json;

use crate::context::Context;
use crate::reconciling;
use crate::requests::{Api, Form, request};

const TYPE: &str = "kubernetes.io/service-account-token";
const ACCOUNT_NAME: &str = "kubernetes.io/service-account.name";
const ACCOUNT_UID: &str = "kubernetes.io/service-account.uid";
/// The longest lifetime that can be requested: these tokens are not meant to expire.
const LIFETIME_SECONDS: i64 = 1 << 32;
const WORKERS: usize = 5;

/// Signs the tokens of secrets.
#[derive(Clone)]
pub struct TokenSigner(Arc<Sign>);

type Sign = dyn Fn(&TokenOrder<'_>) -> Result<String, String> + Send + Sync;

/// A token to be signed.
#[derive(Debug)]
pub struct TokenOrder<'a> {
    pub namespace: &'a str,
    pub account: &'a str,
    pub account_uid: &'a str,
    pub secret: &'a str,
}

impl TokenSigner {
    pub fn new(sign: impl Fn(&TokenOrder<'_>) -> Result<String, String> + Send + Sync + 'static) -> Self {
        TokenSigner(Arc::new(sign))
    }
}

impl std::fmt::Debug for TokenSigner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("TokenSigner")
    }
}

/// Runs until the context's stop.
pub(crate) async fn run(context: Context) {
    let accounts = context.informers.informer::<ServiceAccount>();
    let source = ApiListWatch::all::<Secret>(context.reader.clone()).fields(format!("type={TYPE}"));
    let secrets = SharedInformer::<Secret>::new(source, InformerConfig::default());
    let asking = secrets.store();
    let controller = context
        .controller("serviceaccount-token")
        .on(&secrets, Predicate::new(|event| !matches!(event, Event::Deleted { .. })))
        .mapped(&accounts, move |account: &ServiceAccount| secrets_of(&asking, account), Predicate::any());
    match secrets.start(context.stop.clone()) {
        Ok(run) => context.tasks.spawn(run),
        Err(error) => return tracing::error!(%error, "cannot start an informer"),
    };
    let issuer = Arc::new(Issuer {
        client: context.client.clone(),
        certificate: context.settings.ca_pem.clone(),
        signer: context.settings.token_signer.clone(),
    });
    let secrets = secrets.store();
    let reconcile = move |run: Run| {
        let (secret, issuer) = (secrets.get(&run.key), issuer.clone());
        async move {
            if let Some(secret) = secret.filter(|secret| secret.metadata.deletion_timestamp.is_none()) {
                issuer.issue(&secret).await?;
            }
            Ok::<_, RunError>(Action::done())
        }
    };
    reconciling::run(context, controller, WORKERS, reconcile).await;
}

/// The secrets that name an account.
fn secrets_of(secrets: &Store<Secret>, account: &ServiceAccount) -> Vec<Key> {
    let (namespace, name) = (account.namespace().unwrap_or_default(), account.name_any());
    let snapshot = secrets.snapshot();
    let asking =
        snapshot.in_namespace(&namespace).filter(|secret| secret.annotations().get(ACCOUNT_NAME) == Some(&name));
    asking.map(|secret| Key::of(&**secret)).collect()
}

struct Issuer {
    client: Client,
    certificate: String,
    signer: Option<TokenSigner>,
}

impl Issuer {
    async fn issue(&self, secret: &Secret) -> Result<(), Error> {
        let namespace = secret.namespace().unwrap_or_default();
        let secrets = Api::<Secret>::namespaced(&self.client, &namespace);
        let name = secret.annotations().get(ACCOUNT_NAME).cloned().unwrap_or_default();
        let accounts = Api::<ServiceAccount>::namespaced(&self.client, &namespace);
        let account = if name.is_empty() { None } else { accounts.get(&name).await? };
        let said = secret.annotations().get(ACCOUNT_UID);
        let Some(uid) = account.and_then(|account| account.uid()).filter(|uid| said.is_none_or(|said| said == uid))
        else {
            return delete(&secrets, secret).await;
        };
        let mut wanted = secret.clone();
        wanted.annotations_mut().insert(ACCOUNT_UID.to_owned(), uid.clone());
        let data = wanted.data.get_or_insert_default();
        data.insert("ca.crt".to_owned(), ByteString(self.certificate.clone().into_bytes()));
        data.insert("namespace".to_owned(), ByteString(namespace.into_bytes()));
        if data.get("token").is_none_or(|token| token.0.is_empty()) {
            let token = self.token(&name, &uid, secret).await?;
            data.insert("token".to_owned(), ByteString(token.into_bytes()));
        }
        if wanted == *secret {
            return Ok(());
        }
        match secrets.replace(&wanted).await {
            Err(error) if error.is_not_found() => Ok(()),
            other => other.map(|_| ()),
        }
    }

    async fn token(&self, name: &str, uid: &str, secret: &Secret) -> Result<String, Error> {
        if let Some(TokenSigner(sign)) = &self.signer {
            let (namespace, secret) = (secret.namespace().unwrap_or_default(), secret.name_any());
            let order = TokenOrder { namespace: &namespace, account: name, account_uid: uid, secret: &secret };
            return sign(&order).map_err(|message| Error::Decode { what: "a key that signs tokens", message });
        }
        let body = json!({
            "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "metadata": {},
            "spec": {
                "audiences": [],
                "expirationSeconds": LIFETIME_SECONDS,
                "boundObjectRef": {
                    "apiVersion": "v1", "kind": "Secret", "name": secret.metadata.name, "uid": secret.metadata.uid,
                },
            },
        });
        let namespace = secret.namespace().unwrap_or_default();
        let path = format!("/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token");
        let answer: TokenRequest = request(&self.client, "POST", &path, Form::Json, &body).await?;
        let missing = || Error::Decode { what: "the answer to a token request", message: "it has no token".to_owned() };
        answer.status.and_then(|status| status.token).filter(|token| !token.is_empty()).ok_or_else(missing)
    }
}

/// Deletes the secret of an account that does not exist.
async fn delete(secrets: &Api<Secret>, secret: &Secret) -> Result<(), Error> {
    let preconditions = Some(Preconditions { uid: secret.uid(), resource_version: secret.resource_version() });
    let params = DeleteParams { preconditions, ..DeleteParams::default() };
    match secrets.delete(&secret.name_any(), &params).await {
        Err(error) if error.is_not_found() => Ok(()),
        other => other.map(|_| ()),
    }
}
