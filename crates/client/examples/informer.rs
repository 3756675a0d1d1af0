//! An informer on all pods of a server that reports its cost on command; `cargo xtask informers` compares it with others.
//!
//! `informer encoded|in-place|decoded [one-thread]`: the store keeps the bytes and decodes on access, the same with relists
//! in place, or it keeps decoded objects; on as many threads as there are processors, or on one.

use std::sync::Arc;

use client::informer::{Event, InformerConfig, SharedInformer, SubscriptionOptions};
use client::list_watch::ApiListWatch;
use client::reflector::ReflectorConfig;
use client::{Encoded, Error, Object, connect};
use k8s_openapi::api::core::v1::Pod;
use testkit::gauge::{DUE, Gauge, due, runtime};
use tokio_util::sync::CancellationToken;

async fn follow<K: Object>(relist_in_place: bool, due_of: fn(&K) -> Option<&str>) -> Result<(), Error> {
    let gauge = Arc::new(Gauge::default());
    let source = ApiListWatch::all::<Pod>(connect::from_environment().await?);
    let reflector = ReflectorConfig { relist_in_place, ..ReflectorConfig::default() };
    let config = InformerConfig { reflector, ..InformerConfig::default() };
    let informer = SharedInformer::<K>::new(source, config);
    let seen = gauge.clone();
    let handler = informer.add_handler(SubscriptionOptions::default(), move |event| {
        if let Event::Added { object: state, initial: false } | Event::Updated { new: state, .. } = &event {
            seen.event(due_of(state));
        }
        std::future::ready(())
    });
    let handler = handler.expect("a new informer has not stopped");
    let stop = CancellationToken::new();
    let running = tokio::spawn(informer.start(stop.clone()).expect("a new informer was not started"));
    handler.wait_synced().await;
    let asked = informer.clone();
    let serving = tokio::task::spawn_blocking(move || {
        let sets = || Some(asked.report().reflectors.iter().map(|reflector| reflector.replacements.get()).sum());
        gauge.serve(|| asked.store().len(), sets);
    });
    let _ = serving.await;
    stop.cancel();
    let _ = running.await;
    Ok(())
}

async fn follow_as(form: Option<&str>) -> Result<(), Error> {
    match form {
        Some("encoded") => follow::<Encoded<Pod>>(false, |pod| due(pod.body())).await,
        Some("in-place") => follow::<Encoded<Pod>>(true, |pod| due(pod.body())).await,
        Some("decoded") => {
            follow::<Pod>(false, |pod| pod.metadata.annotations.as_ref()?.get(DUE).map(String::as_str)).await
        }
        _ => Err(Error::Config("usage: informer encoded|in-place|decoded [one-thread]".into())),
    }
}

fn main() -> Result<(), Error> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let arg = |at: usize| args.get(at).map(String::as_str);
    runtime(arg(1)).block_on(follow_as(arg(0)))
}
