//! The config map `kube-root-ca.crt`, with which pods verify the server (CA-1).

use std::sync::Arc;

use client::controller::{Action, Predicate, Run, RunError};
use client::informer::{Event, InformerConfig, SharedInformer};
use client::list_watch::ApiListWatch;
use client::{Error, Key};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::Client;

use super::{is_active, namespace_key};
use crate::context::Context;
use crate::reconciling;
use crate::requests::Api;

const NAME: &str = "kube-root-ca.crt";
const DATUM: &str = "ca.crt";
const DESCRIPTION: (&str, &str) = (
    "kubernetes.io/description",
    "Contains a CA bundle that can be used to verify the kube-apiserver when using internal endpoints such as the internal \
     service IP or kubernetes.default.svc. No other usage is guaranteed across distributions of Kubernetes clusters.",
);

/// Runs until the context's stop.
pub(crate) async fn run(context: Context) {
    let namespaces = context.informers.informer::<Namespace>();
    // Only those of this name: a cluster may have many large config maps.
    let source = ApiListWatch::all::<ConfigMap>(context.reader.clone()).fields(format!("metadata.name={NAME}"));
    let maps = SharedInformer::<ConfigMap>::new(source, InformerConfig::default());
    let controller = context
        .controller("root-ca-cert-publisher")
        .on(&namespaces, Predicate::new(|event| !matches!(event, Event::Deleted { .. })))
        .mapped(
            &maps,
            |map: &ConfigMap| namespace_key(map.metadata.namespace.as_deref()),
            Predicate::new(|event| !matches!(event, Event::Added { .. })),
        );
    match maps.start(context.stop.clone()) {
        Ok(run) => context.tasks.spawn(run),
        Err(error) => return tracing::error!(%error, "cannot start an informer"),
    };
    let publisher =
        Arc::new(Publisher { client: context.client.clone(), certificate: context.settings.ca_pem.clone() });
    let (namespaces, maps) = (namespaces.store(), maps.store());
    let reconcile = move |run: Run| {
        let namespace = run.key.name().to_owned();
        let active = namespaces.get(&run.key).is_some_and(|namespace| is_active(&namespace));
        let known = maps.get(&Key::new(Some(&namespace), NAME));
        let publisher = publisher.clone();
        async move {
            if active {
                publisher.publish(&namespace, known.as_deref()).await?;
            }
            Ok::<_, RunError>(Action::done())
        }
    };
    reconciling::run(context, controller, 1, reconcile).await;
}

struct Publisher {
    client: Client,
    certificate: String,
}

impl Publisher {
    async fn publish(&self, namespace: &str, known: Option<&ConfigMap>) -> Result<(), Error> {
        let api = Api::<ConfigMap>::namespaced(&self.client, namespace);
        let written = match known {
            None => api.create(&self.restored(ConfigMap::default())).await,
            Some(known) => {
                let wanted = self.restored(known.clone());
                if wanted == *known {
                    return Ok(());
                }
                api.replace(&wanted).await
            }
        };
        match written {
            Err(error) if error.is_already_exists() || reconciling::is_namespace_terminating(&error) => Ok(()),
            other => other.map(|_| ()),
        }
    }

    /// The wanted map: labels and annotations of others stay, other data does not.
    fn restored(&self, mut map: ConfigMap) -> ConfigMap {
        map.metadata.name = Some(NAME.to_owned());
        let (name, text) = DESCRIPTION;
        map.metadata.annotations.get_or_insert_default().insert(name.to_owned(), text.to_owned());
        map.data = Some([(DATUM.to_owned(), self.certificate.clone())].into());
        map.binary_data = None;
        map
    }
}
