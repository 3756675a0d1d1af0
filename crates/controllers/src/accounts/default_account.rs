//! The service account `default`, which every namespace has (SA-1).

use client::Error;
use client::controller::{Action, Predicate, Run, RunError};
use client::informer::Event;
use k8s_openapi::api::core::v1::{Namespace, ServiceAccount};

use super::{is_active, namespace_key};
use crate::context::Context;
use crate::reconciling;
use crate::requests::Api;

const NAME: &str = "default";

/// Runs until the context's stop.
pub(crate) async fn run(context: Context) {
    let namespaces = context.informers.informer::<Namespace>();
    let accounts = context.informers.informer::<ServiceAccount>();
    let gone = Predicate::new(
        |event: &Event<ServiceAccount>| matches!(event, Event::Deleted { object, .. } if object.metadata.name.as_deref() == Some(NAME)),
    );
    let controller = context
        .controller("serviceaccount")
        .on(&namespaces, Predicate::new(|event| !matches!(event, Event::Deleted { .. })))
        .mapped(&accounts, |account: &ServiceAccount| namespace_key(account.metadata.namespace.as_deref()), gone);
    let (client, namespaces, accounts) = (context.client.clone(), namespaces.store(), accounts.store());
    let reconcile = move |run: Run| {
        let namespace = run.key.name().to_owned();
        let wanted = namespaces.get(&run.key).is_some_and(|namespace| is_active(&namespace))
            && accounts.get(&client::Key::new(Some(&namespace), NAME)).is_none();
        let client = client.clone();
        async move {
            if wanted {
                create(&Api::namespaced(&client, &namespace)).await?;
            }
            Ok::<_, RunError>(Action::done())
        }
    };
    reconciling::run(context, controller, 1, reconcile).await;
}

async fn create(api: &Api<ServiceAccount>) -> Result<(), Error> {
    let mut account = ServiceAccount::default();
    account.metadata.name = Some(NAME.to_owned());
    match api.create(&account).await {
        Err(error) if error.is_already_exists() || reconciling::is_namespace_terminating(&error) => Ok(()),
        other => other.map(|_| ()),
    }
}
