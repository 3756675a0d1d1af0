//! A typed informer: pods in a store with an index, and a handler that prints what happens to them.
//!
//! `cargo run -p dogwatch-client --example typed` uses the cluster of the current kubeconfig.

use client::informer::{InformerConfig, SharedInformer, SubscriptionOptions};
use client::list_watch::ApiListWatch;
use client::{Error, connect, store};
use k8s_openapi::api::core::v1::Pod;
use kube::Client;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// Prints changes of pods until `stop`. Returns, once all pods are known, how many each node has, and the running task.
pub(crate) async fn pods_per_node(client: Client, stop: CancellationToken) -> (Vec<(String, usize)>, JoinHandle<()>) {
    let informer = SharedInformer::<Pod>::new(ApiListWatch::all::<Pod>(client), InformerConfig::default());
    let by_node = store::pods_by_node(&informer.store()).expect("a new store has no index");
    let handler = informer
        .add_handler(SubscriptionOptions::default(), |event| {
            println!("{event:?}");
            std::future::ready(())
        })
        .expect("a new informer has not stopped");
    let running = tokio::spawn(informer.start(stop).expect("a new informer was not started"));
    handler.wait_synced().await;
    println!("{} pods at version {}", informer.store().len(), informer.store().version());
    let counts = by_node.values().into_iter().map(|node| (node.clone(), by_node.get(&node).len())).collect();
    (counts, running)
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
    let (counts, running) = pods_per_node(connect::from_environment().await?, stop).await;
    for (node, pods) in counts {
        println!("{node}: {pods}");
    }
    let _ = running.await;
    Ok(())
}
