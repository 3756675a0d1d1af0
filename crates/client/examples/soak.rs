//! Many informers on one server, through load and restarts: in the end every store must be the server's list, and every
//! handler must believe the same.
//!
//! `cargo run -p dogwatch-client --example soak -- INFORMERS OBJECTS CHANGES_PER_SECOND SECONDS`
//!
//! Uses the cluster of the current kubeconfig, in a namespace of its own. Kill and restart the server meanwhile as often
//! as you like; writes that fail are retried.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use client::informer::{Event, InformerConfig, SharedInformer, SubscriptionOptions};
use client::list_watch::ApiListWatch;
use client::queue::Certainty;
use client::{Error, Key, consistency};
use futures::StreamExt;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use kube::{Client, ResourceExt};
use parking_lot::Mutex;
use serde_json::json;
use tokio_util::sync::CancellationToken;

const NAMESPACE: &str = "soak";
const WRITERS: usize = 32;

type Belief = Arc<Mutex<BTreeMap<String, String>>>;

struct Watched {
    informer: SharedInformer<ConfigMap>,
    belief: Belief,
    events: Arc<AtomicU64>,
    inferred: Arc<AtomicU64>,
}

fn watch(client: &Client, stop: &CancellationToken, tasks: &mut tokio::task::JoinSet<()>) -> Watched {
    let source = ApiListWatch::namespaced::<ConfigMap>(client.clone(), NAMESPACE);
    let informer = SharedInformer::<ConfigMap>::new(source, InformerConfig::default());
    let (belief, events, inferred) = (Belief::default(), Arc::<AtomicU64>::default(), Arc::<AtomicU64>::default());
    let (mine, count, vanished) = (belief.clone(), events.clone(), inferred.clone());
    let handler = informer.add_handler(SubscriptionOptions::default(), move |event| {
        count.fetch_add(1, Ordering::Relaxed);
        if matches!(event, Event::Deleted { certainty: Certainty::Inferred, .. }) {
            vanished.fetch_add(1, Ordering::Relaxed);
        }
        if let (Some(key), Some(object)) = (event.key(), event.object()) {
            let gone = matches!(event, Event::Deleted { .. });
            let mut belief = mine.lock();
            match gone {
                true => belief.remove(key.as_str()),
                false => belief.insert(key.to_string(), object.resource_version().unwrap_or_default()),
            };
        }
        std::future::ready(())
    });
    handler.expect("a new informer has not stopped");
    tasks.spawn(informer.start(stop.clone()).expect("a new informer was not started"));
    Watched { informer, belief, events, inferred }
}

fn named(name: &str) -> ConfigMap {
    let mut map = ConfigMap::default();
    map.metadata.name = Some(name.to_owned());
    map.data = Some([("payload".to_owned(), "x".repeat(512))].into());
    map
}

/// One write that cannot be talked out of: a server that restarts is waited for.
async fn persist<T, F: Future<Output = kube::Result<T>>>(failed: &AtomicU64, mut write: impl FnMut() -> F) {
    loop {
        match write().await {
            Ok(_) => return,
            Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => return,
            Err(_) => {
                failed.fetch_add(1, Ordering::Relaxed);
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

async fn change(api: &Api<ConfigMap>, failed: &AtomicU64, n: u64, objects: u64) {
    let name = format!("o{}", n.wrapping_mul(2_654_435_761) % objects);
    match n % 10 {
        0 => persist(failed, || async { api.delete(&name, &DeleteParams::default()).await }).await,
        1 | 2 => persist(failed, || async { api.create(&PostParams::default(), &named(&name)).await }).await,
        _ => {
            let patch = json!({"data": {"n": n.to_string()}});
            persist(failed, || async { api.patch(&name, &PatchParams::default(), &Patch::Merge(&patch)).await }).await;
        }
    }
}

fn memory_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap_or_default();
    line.split_whitespace().nth(1).and_then(|n| n.parse().ok()).unwrap_or_default()
}

/// Tasks of this process; idle connections of the client have some of their own.
fn tasks_alive() -> usize {
    tokio::runtime::Handle::current().metrics().num_alive_tasks()
}

/// The size of a run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Load {
    pub(crate) informers: usize,
    pub(crate) objects: u64,
    /// Changes a second.
    pub(crate) rate: u64,
    pub(crate) seconds: u64,
}

/// The result of a run.
#[derive(Debug, Default)]
pub(crate) struct Toll {
    /// Tasks before the informers started, and after they ended.
    pub(crate) tasks: (usize, usize),
    /// Memory in use at the same moments, by `weigh`.
    pub(crate) memory: (u64, u64),
    /// Number of inferred deletions, over all informers.
    pub(crate) inferred: u64,
    /// Watches opened again, over all informers.
    pub(crate) restarts: u64,
    /// Number of changes made, of those requested.
    pub(crate) changes: u64,
}

/// Loads the server, changes objects while informers follow, and compares them with the server's list. `loaded` is called when
/// the changes begin; `weigh` returns the memory in use.
pub(crate) async fn soak(client: Client, load: Load, loaded: impl FnOnce(), weigh: fn() -> u64) -> Result<Toll, Error> {
    let Load { informers, objects, rate, seconds } = load;
    let mut toll = Toll::default();
    let failed = Arc::new(AtomicU64::new(0));
    let mut namespace = Namespace::default();
    namespace.metadata.name = Some(NAMESPACE.into());
    let namespaces: Api<Namespace> = Api::all(client.clone());
    persist(&failed, || async { namespaces.create(&PostParams::default(), &namespace).await }).await;
    let api: Api<ConfigMap> = Api::namespaced(client.clone(), NAMESPACE);
    futures::stream::iter(0..objects)
        .for_each_concurrent(WRITERS, |n| {
            let (api, failed) = (api.clone(), failed.clone());
            async move {
                let map = named(&format!("o{n}"));
                persist(&failed, || async { api.create(&PostParams::default(), &map).await }).await;
            }
        })
        .await;
    println!("{objects} objects are there; this process has {} KiB and {} tasks", memory_kib(), tasks_alive());
    (toll.tasks.0, toll.memory.0) = (tasks_alive(), weigh());

    let stop = CancellationToken::new();
    let mut tasks = tokio::task::JoinSet::new();
    let began = Instant::now();
    let watched: Vec<Watched> = (0..informers).map(|_| watch(&client, &stop, &mut tasks)).collect();
    for w in &watched {
        w.informer.wait_synced().await;
    }
    println!("{informers} informers synced in {:?}; {} KiB", began.elapsed(), memory_kib());

    loaded();
    let began = Instant::now();
    let changes = rate * seconds;
    toll.changes = changes;
    let ticks = futures::stream::unfold(0u64, |n| async move {
        let due = began + Duration::from_nanos(1_000_000_000 / rate.max(1) * n);
        tokio::time::sleep_until(due.into()).await;
        Some((n, n + 1))
    });
    ticks
        .take(usize::try_from(changes).unwrap_or(usize::MAX))
        .for_each_concurrent(WRITERS, |n| {
            let (api, failed) = (api.clone(), failed.clone());
            async move { change(&api, &failed, n, objects).await }
        })
        .await;
    let took = began.elapsed();
    println!("{changes} changes in {took:?}; {} writes had to be retried", failed.load(Ordering::Relaxed));

    let list = api.list(&kube::api::ListParams::default()).await?;
    let truth: BTreeMap<String, String> =
        list.items.iter().map(|map| (Key::of(map).to_string(), map.resource_version().unwrap_or_default())).collect();
    let version = list.metadata.resource_version.clone().unwrap_or_default().into();
    let source = ApiListWatch::namespaced::<ConfigMap>(client.clone(), NAMESPACE);
    for (at, w) in watched.iter().enumerate() {
        w.informer.store().wait_until(&version).await;
        consistency::check(&source, &w.informer.store().snapshot())
            .await
            .map_err(|error| Error::Config(format!("informer {at}: {error}")))?;
        let deadline = Instant::now() + Duration::from_secs(60);
        while *w.belief.lock() != truth {
            if Instant::now() > deadline {
                return Err(Error::Config(format!("the handler of informer {at} believes something else")));
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        let report = w.informer.report();
        let counters = &report.reflectors[0];
        toll.inferred += w.inferred.load(Ordering::Relaxed);
        toll.restarts += counters.restarts.get();
        println!(
            "informer {at}: {} objects at {}, {} events, {} inferred deletions, {} sets, {} restarts",
            report.objects,
            report.version,
            w.events.load(Ordering::Relaxed),
            w.inferred.load(Ordering::Relaxed),
            counters.replacements.get(),
            counters.restarts.get(),
        );
    }
    println!("all agree with the server: {} objects; {} KiB", truth.len(), memory_kib());
    stop.cancel();
    while tasks.join_next().await.is_some() {}
    drop((watched, list, truth));
    // Idle connections of the client end in their own time: its pool may keep them for a minute and a half.
    for _ in 0..1000 {
        (toll.tasks.1, toll.memory.1) = (tasks_alive(), weigh());
        if toll.tasks.1 <= toll.tasks.0 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    println!("stopped; {} KiB and {} tasks are left", memory_kib(), tasks_alive());
    Ok(toll)
}

#[tokio::main]
#[allow(dead_code, reason = "also compiled as a module of the tests")]
async fn main() -> Result<(), Error> {
    let numbers: Vec<u64> = std::env::args().skip(1).filter_map(|arg| arg.parse().ok()).collect();
    let [informers, objects, rate, seconds] = numbers[..] else {
        return Err(Error::Config("usage: soak INFORMERS OBJECTS CHANGES_PER_SECOND SECONDS".into()));
    };
    let client = client::connect::from_environment().await?;
    let load = Load { informers: usize::try_from(informers).unwrap_or(1), objects: objects.max(1), rate, seconds };
    let toll = soak(client, load, || (), memory_kib).await?;
    println!("{toll:?}");
    Ok(())
}
