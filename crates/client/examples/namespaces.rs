//! One informer over several namespaces: for users who may not list the whole cluster.
//!
//! `cargo run -p dogwatch-client --example namespaces -- team-a team-b`

use client::informer::InformerFactory;
use client::store::Labels;
use client::{Error, connect};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Client;
use tokio_util::sync::CancellationToken;

/// Returns the number of config maps in each of the namespaces.
pub(crate) async fn count(client: Client, namespaces: &[&str]) -> Vec<usize> {
    let stop = CancellationToken::new();
    let factory = InformerFactory::new(client).namespaces(namespaces.iter().copied());
    let informer = factory.informer::<ConfigMap>();
    factory.start(&stop);
    factory.wait_synced().await;
    let lister = informer.lister(&());
    let counts = namespaces.iter().map(|name| lister.list(Some(name), &Labels::Everything).len()).collect();
    stop.cancel();
    factory.shutdown().await;
    counts
}

#[tokio::main]
#[allow(dead_code, reason = "also compiled as a module of the tests")]
async fn main() -> Result<(), Error> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let names: Vec<&str> = args.iter().map(String::as_str).collect();
    let counts = count(connect::from_environment().await?, &names).await;
    for (name, count) in names.iter().zip(counts) {
        println!("{name}: {count}");
    }
    Ok(())
}
