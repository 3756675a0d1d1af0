//! A controller of a custom kind: every Greeting gets a ConfigMap with its text.
//!
//! Only the leader acts; caches are warm before. Needs a CRD `greetings.example.com` with `spec.text`.

use std::sync::Arc;

use client::controller::{Action, Controller, OwnerMatch, Predicate, Run, RunError, Writes, create_or_patch};
use client::informer::InformerFactory;
use client::leader::{ApiLease, ElectionConfig, Elector, Outcome};
use client::{Error, ResourceVersion, connect};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use kube::{Api, Client, Resource, ResourceExt};
use tokio_util::sync::CancellationToken;

/// Runs the controller until `stop`.
pub(crate) async fn run(client: Client, identity: &str, stop: CancellationToken) -> Outcome {
    let kind = ApiResource::from_gvk(&GroupVersionKind::gvk("example.com", "v1", "Greeting"));
    let factory = InformerFactory::new(client.clone());
    let greetings = factory.informer_of::<DynamicObject>(&kind);
    let maps = factory.informer::<ConfigMap>();
    let writes = Arc::new(Writes::new());
    writes.follow("configmaps", maps.store());
    let controller = Controller::new("greetings")
        .on(&greetings, Predicate::generation_changed())
        .owned(&maps, OwnerMatch::of::<DynamicObject>(&kind), Predicate::version_changed())
        .read_your_writes(writes.clone())
        .warm_up()
        .expect("new informers have not stopped");
    factory.start(&stop);

    let store = greetings.store();
    let lease = ApiLease::new(client.clone(), "default", "greetings-controller");
    let elector = Elector::new(Arc::new(lease), ElectionConfig::new(identity)).expect("the defaults are valid");
    let lead = |guard: client::leader::LeaderGuard| async move {
        let reconcile = move |run: Run| {
            let (client, kind, writes) = (client.clone(), kind.clone(), writes.clone());
            let greeting = store.get(&run.key);
            async move {
                let Some(greeting) = greeting else {
                    writes.forget(&run.key);
                    return Ok(Action::done()); // deleted, and its ConfigMap with it
                };
                let map = write_map(client, &greeting, &kind).await?;
                let version: ResourceVersion = map.resource_version().unwrap_or_default().into();
                writes.record(&run.key, &greeting.uid().unwrap_or_default(), "configmaps", version);
                Ok(Action::done())
            }
        };
        if let Err(error) = controller.run(reconcile, guard.token()).await {
            eprintln!("{error}");
        }
    };
    let outcome = elector.run(lead, stop).await;
    factory.shutdown().await;
    outcome
}

async fn write_map(client: Client, greeting: &DynamicObject, kind: &ApiResource) -> Result<ConfigMap, RunError> {
    let namespace = greeting.namespace().unwrap_or_default();
    let text = greeting.data["spec"]["text"].as_str().ok_or_else(|| RunError::terminal("spec.text is missing"))?;
    let api: Api<ConfigMap> = Api::namespaced(client, &namespace);
    let mut template = ConfigMap::default();
    template.metadata.name = Some(greeting.name_any());
    template.metadata.owner_references = greeting.controller_owner_ref(kind).map(|owner| vec![owner]);
    let map = create_or_patch(&api, template, |map| {
        map.data = Some([("text".to_owned(), text.to_owned())].into());
    });
    Ok(map.await?)
}

#[tokio::main]
#[allow(dead_code, reason = "also compiled as a module of the tests")]
async fn main() -> Result<(), Error> {
    let stop = CancellationToken::new();
    let interrupted = stop.clone();
    tokio::spawn(async move {
        let _ = tokio::signal::ctrl_c().await;
        interrupted.cancel();
    });
    let identity = format!("greetings-{}", std::process::id());
    println!("{:?}", run(connect::from_environment().await?, &identity, stop).await);
    Ok(())
}
