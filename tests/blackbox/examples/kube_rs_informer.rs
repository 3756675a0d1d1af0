//! kube-rs' reflector on all pods of a server, as in its documentation, with a report of its costs on request.
//!
//! `kube_rs_informer [one-thread]`

use std::sync::Arc;

use futures::StreamExt;
use k8s_openapi::api::core::v1::Pod;
use kube::runtime::watcher::{self, Event};
use kube::runtime::{WatchStreamExt, reflector};
use kube::{Api, Client};
use testkit::gauge::{DUE, Gauge, runtime};

async fn follow() {
    let gauge = Arc::new(Gauge::default());
    let client = Client::try_default().await.expect("KUBECONFIG names a server");
    let (store, writer) = reflector::store::<Pod>();
    let seen = gauge.clone();
    let stream = watcher::watcher(Api::all(client), watcher::Config::default()).default_backoff().reflect(writer);
    let following = tokio::spawn(stream.for_each(move |event| {
        match event {
            Ok(Event::Apply(pod)) => {
                seen.event(pod.metadata.annotations.as_ref().and_then(|all| all.get(DUE)).map(String::as_str));
            }
            Ok(Event::InitDone) => seen.set(),
            _ => {}
        }
        std::future::ready(())
    }));
    store.wait_until_ready().await.expect("the reflector runs");
    let serving = tokio::task::spawn_blocking(move || gauge.serve(|| store.len(), || None));
    let _ = serving.await;
    following.abort();
}

fn main() {
    runtime(std::env::args().nth(1).as_deref()).block_on(follow());
}
