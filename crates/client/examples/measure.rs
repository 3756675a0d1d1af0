//! The cost of an informer without a network: time to sync, memory at rest and through a relist, CPU for each event.
//!
//! `cargo run --release -p dogwatch-client --example measure -- decoded|encoded|encoded-slim [PODS [EVENTS]]`
//!
//! The source makes the bytes of pods of about 3.5 KB as a server would send them, one at a time, so what is measured is
//! decoding, queue, store and one handler.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use bytes::Bytes;
use client::informer::{InformerConfig, SharedInformer, SubscriptionOptions};
use client::list_watch::{Bookmark, ListStream, ListerWatcher, WatchItem, WatchStream};
use client::reflector::ReflectorConfig;
use client::wire::Params;
use client::{Encoded, Error, Object, RawObject, ResourceVersion};
use futures::future::{BoxFuture, FutureExt};
use futures::stream::{self, StreamExt};
use k8s_openapi::api::core::v1::Pod;
use parking_lot::Mutex;
use serde_json::json;
use testkit::gauge::{cpu, kib, reset_peak};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

/// The bytes of a pod as a server sends them.
fn pod(n: u64, version: u64) -> Bytes {
    let env: Vec<_> =
        (0..12).map(|i| json!({"name": format!("VARIABLE_{i}"), "value": format!("value-{n}-{i}")})).collect();
    let fields = json!({"f:metadata": {"f:labels": {".": {}, "f:app": {}, "f:tier": {}}, "f:generateName": {}},
        "f:spec": {"f:containers": {"k:{\"name\":\"main\"}": {".": {}, "f:env": {}, "f:image": {}, "f:name": {}, "f:resources": {"f:limits": {}, "f:requests": {}}}}}});
    let object = json!({"kind": "Pod", "apiVersion": "v1",
        "metadata": {"name": format!("web-{n:06}"), "generateName": "web-", "namespace": format!("ns-{}", n % 50), "uid": format!("00000000-0000-4000-8000-{n:012}"),
            "resourceVersion": version.to_string(), "creationTimestamp": "2026-01-01T00:00:00Z",
            "labels": {"app": "web", "tier": "front", "pod-template-hash": "7c9f8b6d5"}, "annotations": {"example.com/note": "x".repeat(680)},
            "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "11111111-0000-4000-8000-000000000000", "controller": true}],
            "managedFields": [{"manager": "controller", "operation": "Update", "apiVersion": "v1", "time": "2026-01-01T00:00:00Z", "fieldsType": "FieldsV1", "fieldsV1": fields.clone()},
                {"manager": "kubelet", "operation": "Update", "apiVersion": "v1", "time": "2026-01-01T00:00:00Z", "fieldsType": "FieldsV1", "fieldsV1": fields, "subresource": "status"}]},
        "spec": {"nodeName": format!("node-{}", n % 100), "restartPolicy": "Always", "terminationGracePeriodSeconds": 30, "dnsPolicy": "ClusterFirst", "schedulerName": "default-scheduler",
            "containers": [{"name": "main", "image": "registry.example.com/team/web:1.2.3", "env": env, "ports": [{"containerPort": 8080, "protocol": "TCP"}],
                "resources": {"limits": {"cpu": "500m", "memory": "128Mi"}, "requests": {"cpu": "250m", "memory": "64Mi"}},
                "volumeMounts": [{"name": "token", "readOnly": true, "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount"}]}],
            "volumes": [{"name": "token", "projected": {"defaultMode": 420, "sources": [{"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}}]}}]},
        "status": {"phase": "Running", "podIP": format!("10.0.{}.{}", n / 250 % 250, n % 250), "startTime": "2026-01-01T00:00:00Z", "qosClass": "Burstable",
            "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}, {"type": "Initialized", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}],
            "containerStatuses": [{"name": "main", "ready": true, "restartCount": 0, "image": "registry.example.com/team/web:1.2.3", "imageID": "sha256:abc", "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}}}]}});
    Bytes::from(object.to_string().into_bytes())
}

fn raw(n: u64, version: u64) -> RawObject {
    RawObject::from_json(pod(n, version)).expect("a pod has metadata")
}

/// A source of `pods` pods, with changes from a channel.
struct Pods {
    pods: u64,
    changes: Mutex<Option<mpsc::Receiver<WatchItem>>>,
    again: Mutex<Vec<mpsc::Receiver<WatchItem>>>,
    version: Arc<AtomicU64>,
}

impl ListerWatcher for Pods {
    fn list(&self, _: Params) -> BoxFuture<'_, Result<ListStream, Error>> {
        futures::future::ready(Err(Error::Config("this source streams".into()))).boxed()
    }

    fn watch(&self, _: Params) -> BoxFuture<'_, Result<WatchStream, Error>> {
        let changes = self.changes.lock().take().or_else(|| self.again.lock().pop());
        let version = self.version.load(Ordering::SeqCst);
        let initial = stream::iter(0..self.pods).map(|n| Ok(WatchItem::Added(raw(n, n + 1))));
        let end = Bookmark { version: ResourceVersion::from(version.to_string()), initial_events_end: true };
        let live = stream::unfold(changes, |changes| async move {
            let mut changes = changes?;
            let item = changes.recv().await?;
            Some((Ok(item), Some(changes)))
        });
        let all = initial.chain(stream::iter([Ok(WatchItem::Bookmark(end))])).chain(live).chain(stream::pending());
        futures::future::ready(Ok(all.boxed())).boxed()
    }
}

async fn measure<K: Object>(pods: u64, events: u64, without_managed_fields: bool) {
    let (sender, receiver) = mpsc::channel(64);
    let (_quiet, second) = mpsc::channel(1);
    let version = Arc::new(AtomicU64::new(pods + 1));
    let source =
        Pods { pods, changes: Mutex::new(Some(receiver)), again: Mutex::new(vec![second]), version: version.clone() };
    println!("{pods} pods of {} bytes; {} KiB before", pod(1, 1).len(), kib("VmRSS:"));
    let generate_cpu = {
        let before = cpu();
        for n in 0..pods {
            std::hint::black_box(pod(n, n + 1));
        }
        (cpu() - before) / u32::try_from(pods).unwrap_or(1)
    };
    let reflector = ReflectorConfig { without_managed_fields, ..ReflectorConfig::default() };
    let informer = SharedInformer::<K>::new(source, InformerConfig { reflector, ..InformerConfig::default() });
    let handled = Arc::new(AtomicU64::new(0));
    let count = handled.clone();
    let counting = informer.add_handler(SubscriptionOptions::default(), move |_| {
        count.fetch_add(1, Ordering::Relaxed);
        std::future::ready(())
    });
    let handle = counting.expect("a new informer has not stopped");
    let stop = CancellationToken::new();
    let (began, cpu_before) = (Instant::now(), cpu());
    let running = tokio::spawn(informer.start(stop.clone()).expect("a new informer was not started"));
    handle.wait_synced().await;
    let making = generate_cpu * u32::try_from(pods).unwrap_or(1);
    println!(
        "synced in {:?} ({:?} CPU, of which {making:?} made the pods); {} KiB at rest",
        began.elapsed(),
        cpu() - cpu_before,
        kib("VmRSS:")
    );

    let prepared: Vec<WatchItem> =
        (0..events.min(2000)).map(|n| WatchItem::Modified(raw(n % pods, pods + 2 + n))).collect();
    let rounds = events / events.clamp(1, 2000);
    let cpu_before = cpu();
    let mut last = pods + 1;
    for round in 0..rounds {
        for (at, item) in (0u64..).zip(&prepared) {
            last = pods + 2 + round * 2000 + at;
            let WatchItem::Modified(state) = item else { continue };
            let mut state = state.clone();
            state.version = last.to_string().into();
            if sender.send(WatchItem::Modified(state)).await.is_err() {
                return;
            }
        }
    }
    let bookmark = Bookmark { version: last.to_string().into(), initial_events_end: false };
    let _ = sender.send(WatchItem::Bookmark(bookmark)).await;
    informer.store().wait_until(&last.to_string().into()).await;
    let spent = cpu() - cpu_before;
    let each = spent / u32::try_from(events.max(1)).unwrap_or(1);
    println!("{events} events: {each:?} CPU each; {} KiB", kib("VmRSS:"));
    reset_peak();
    version.store(last + 1, Ordering::SeqCst);
    let rest = kib("VmRSS:");
    let gone = json!({"code": 410, "reason": "Expired", "message": "too old"});
    let gone = Error::from_event(serde_json::from_value(gone).expect("a status"));
    let _ = sender.send(WatchItem::Error(gone)).await;
    informer.store().wait_until(&(last + 1).to_string().into()).await;
    let kept = informer.report().reflectors[0].kept.get();
    let peak = kib("VmHWM:");
    println!("relist: {kept} objects kept; peak {peak} KiB, {:.2} of {rest} KiB", peak as f64 / rest.max(1) as f64);
    stop.cancel();
    let _ = running.await;
}

#[tokio::main]
async fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let number = |at: usize, or: u64| args.get(at).and_then(|text| text.parse().ok()).unwrap_or(or);
    let (pods, events) = (number(1, 10_000), number(2, 20_000));
    match args.first().map(String::as_str) {
        Some("encoded") => measure::<Encoded<Pod>>(pods, events, false).await,
        Some("encoded-slim") => measure::<Encoded<Pod>>(pods, events, true).await,
        _ => measure::<Pod>(pods, events, false).await,
    }
}
