//! A dynamic informer: any kind, named at run time, as whole objects or as metadata only.
//!
//! `cargo run -p dogwatch-client --example dynamic -- apps v1 Deployment deployments`

use client::informer::InformerFactory;
use client::{Error, connect};
use kube::Client;
use kube::core::{ApiResource, DynamicObject, GroupVersionKind, PartialObjectMeta};
use tokio_util::sync::CancellationToken;

/// The names of all objects of a kind, once from whole objects and once from metadata only.
pub(crate) async fn names(client: Client, resource: &ApiResource) -> (Vec<String>, Vec<String>) {
    let stop = CancellationToken::new();
    let factory = InformerFactory::new(client);
    let whole = factory.informer_of::<DynamicObject>(resource);
    let metadata = factory.informer_of::<PartialObjectMeta<DynamicObject>>(resource);
    factory.start(&stop);
    let synced = factory.wait_synced().await;
    assert!(synced.all(), "{synced:?}");
    let names = (
        whole.store().snapshot().keys().map(ToString::to_string).collect(),
        metadata.store().snapshot().keys().map(ToString::to_string).collect(),
    );
    stop.cancel();
    factory.shutdown().await;
    names
}

#[tokio::main]
#[allow(dead_code, reason = "also compiled as a module of the tests")]
async fn main() -> Result<(), Error> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [group, version, kind, plural] = args.as_slice() else {
        return Err(Error::Config("usage: dynamic GROUP VERSION KIND PLURAL (GROUP may be empty)".into()));
    };
    let resource = ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, version, kind), plural);
    let (whole, _) = names(connect::from_environment().await?, &resource).await;
    println!("{}", whole.join("\n"));
    Ok(())
}
