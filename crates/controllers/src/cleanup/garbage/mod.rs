//! The garbage collector: deletes objects without an existing owner; owners deleted in the foreground wait for dependents.
//!
//! - `tracked`: the metadata that is kept of each object
//! - `graph`: owners and dependents, from watches
//! - `live`: objects as they are now, and the changes made to them
//! - `collect`: the decision about one object
//! - this file: a watch on every resource, and the workers
//!
//! ```text
//!   a watch a resource ──► graph ──► to delete ──► workers: live read, verdict
//!   (metadata only)              └─► to orphan ──►
//! ```

mod collect;
mod graph;
#[cfg(test)]
mod graph_tests;
mod live;
mod tracked;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use client::informer::{Event, HandlerHandle, InformerConfig, SharedInformer, SubscriptionOptions};
use client::list_watch::ApiListWatch;
use client::reflector::{Problem, log_problem};
use client::workqueue::{WorkQueue, default_limiter};
use kube::core::ApiResource;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use self::collect::{Attempt, Collector};
use self::graph::{Graph, Kind};
use self::live::Live;
use self::tracked::{Tracked, Uid};
use crate::context::Context;
use crate::discovery::{Resources, Served};

/// Objects processed at the same time, and as many owners that orphan their dependents.
const WORKERS: usize = 20;
/// The first decisions wait for the initial state of all watches, but not longer than this: one resource that
/// cannot be watched must not stop the collection of all others.
const FIRST_SYNC_MAX: Duration = Duration::from_secs(30);
/// A new kind is served a moment after its definition was written.
const NEW_KIND_DELAY: Duration = Duration::from_millis(200);
/// Pause after a failed discovery.
const RETRY: Duration = Duration::from_secs(1);

/// Runs the garbage collector until the context's stop.
#[expect(
    clippy::disallowed_methods,
    reason = "it reads again what the server serves, also while the clock of the world is stopped"
)]
pub(crate) async fn run(context: Context) {
    let stop = context.stop.clone();
    let collector = Arc::new(Collector {
        graph: Mutex::new(Graph::default()),
        to_delete: WorkQueue::with_limiter_and_clock(default_limiter(), context.clock.clone()),
        to_orphan: WorkQueue::with_limiter_and_clock(default_limiter(), context.clock.clone()),
        recorder: context.recorder("garbage-collector-controller"),
    });
    context.settings.queues.add("garbagecollector_to_delete", &collector.to_delete);
    context.settings.queues.add("garbagecollector_to_orphan", &collector.to_orphan);
    let mut watches = Watches {
        context: context.clone(),
        collector: collector.clone(),
        running: HashMap::new(),
        tasks: TaskTracker::new(),
        kinds_changed: Arc::default(),
    };
    let Some(resources) = first_resources(&context).await else { return };
    watches.follow(&resources);
    let resources = Arc::new(ArcSwap::from_pointee(resources));
    watches.wait_synced().await;
    let workers = TaskTracker::new();
    for _ in 0..WORKERS {
        workers.spawn(work(collector.clone(), Queue::Delete, context.client.clone(), resources.clone(), stop.clone()));
        workers.spawn(work(collector.clone(), Queue::Orphan, context.client.clone(), resources.clone(), stop.clone()));
    }
    let interval = context.settings.timing.gc_discovery;
    loop {
        let changed = watches.kinds_changed.clone();
        tokio::select! {
            () = stop.cancelled() => break,
            () = tokio::time::sleep(interval) => {}
            () = changed.notified() => tokio::time::sleep(NEW_KIND_DELAY).await,
        }
        match Resources::read(&context.client).await {
            Ok(read) => {
                watches.follow(&read);
                resources.store(Arc::new(read));
            }
            // The resources known before stay.
            Err(error) => tracing::debug!(%error, "discovery failed"),
        }
    }
    collector.to_delete.shut_down();
    collector.to_orphan.shut_down();
    workers.close();
    workers.wait().await;
    watches.tasks.close();
    watches.tasks.wait().await;
}

#[expect(
    clippy::disallowed_methods,
    reason = "it reads again what the server serves, also while the clock of the world is stopped"
)]
async fn first_resources(context: &Context) -> Option<Resources> {
    loop {
        match Resources::read(&context.client).await {
            Ok(resources) => return Some(resources),
            Err(error) => tracing::warn!(%error, "discovery failed"),
        }
        context.stop.run_until_cancelled(tokio::time::sleep(RETRY)).await?;
    }
}

/// A watch for each resource that is served.
struct Watches {
    context: Context,
    collector: Arc<Collector>,
    running: HashMap<ApiResource, Watch>,
    tasks: TaskTracker,
    /// A definition of a kind was created, changed or deleted.
    kinds_changed: Arc<Notify>,
}

struct Watch {
    handler: HandlerHandle<Tracked>,
    stop: CancellationToken,
}

impl Watches {
    /// Starts and stops watches until there is one for each resource.
    fn follow(&mut self, resources: &Resources) {
        let wanted: HashMap<&ApiResource, &Served> =
            resources.collectable().map(|served| (&served.resource, served)).collect();
        self.running.retain(|resource, watch| {
            let served = wanted.contains_key(resource);
            if !served {
                watch.stop.cancel();
            }
            served
        });
        for resource in wanted.into_keys() {
            if !self.running.contains_key(resource) {
                self.start(resource);
            }
        }
    }

    fn start(&mut self, resource: &ApiResource) {
        // Old kinds are collected as well.
        let source = ApiListWatch::new::<Tracked>(self.context.reader.clone(), resource, None).without_warnings();
        let informer = SharedInformer::<Tracked>::new(source, InformerConfig::default());
        let kind = Kind::new(&resource.api_version, &resource.kind);
        let defines_kinds = resource.plural == "customresourcedefinitions";
        let (unserved, plural) = (self.kinds_changed.clone(), resource.plural.clone());
        let on_problem = move |problem: &Problem| {
            if problem.error.is_not_found() {
                // Its definition was deleted: the next discovery ends this watch.
                tracing::debug!(resource = %plural, "a resource is no longer served");
                unserved.notify_one();
            } else {
                log_problem(problem);
            }
        };
        let (collector, kinds_changed) = (self.collector.clone(), self.kinds_changed.clone());
        let joined = informer.add_handler(SubscriptionOptions::default(), move |event| {
            if defines_kinds && !matches!(event, Event::Added { initial: true, .. }) {
                kinds_changed.notify_one();
            }
            let wake = {
                let mut graph = collector.graph.lock();
                match &event {
                    Event::Added { object, .. } => graph.observe(&kind, None, object),
                    Event::Updated { old, new } => graph.observe(&kind, Some(old), new),
                    Event::Deleted { object, .. } => graph.observe_deletion(&kind, object),
                    Event::Undecodable { .. } | Event::HistoryReset { .. } | Event::Lagged { .. } => return done(),
                }
            };
            collector.wake(wake);
            done()
        });
        let stop = self.context.stop.child_token();
        let prepared = informer.on_problem(Arc::new(on_problem));
        match (joined, prepared.and_then(|()| informer.start(stop.clone()))) {
            (Ok(handler), Ok(run)) => {
                self.tasks.spawn(run);
                self.running.insert(resource.clone(), Watch { handler, stop });
            }
            _ => tracing::error!(resource = %resource.plural, "cannot start an informer"),
        }
    }

    #[expect(clippy::disallowed_methods, reason = "a watch that does not begin is a failure of the network")]
    async fn wait_synced(&self) {
        let until = Instant::now() + FIRST_SYNC_MAX;
        for watch in self.running.values() {
            let _ = self.context.stop.run_until_cancelled(timeout_at(until, watch.handler.wait_synced())).await;
        }
    }
}

fn done() -> std::future::Ready<()> {
    std::future::ready(())
}

#[derive(Clone, Copy)]
enum Queue {
    Delete,
    Orphan,
}

async fn work(
    collector: Arc<Collector>,
    queue: Queue,
    client: kube::Client,
    resources: Arc<ArcSwap<Resources>>,
    stop: CancellationToken,
) {
    let items: WorkQueue<Uid> = match queue {
        Queue::Delete => collector.to_delete.clone(),
        Queue::Orphan => collector.to_orphan.clone(),
    };
    while let Some(Some(work)) = stop.run_until_cancelled(items.get()).await {
        let live = Live { client: client.clone(), resources: resources.load_full() };
        let attempt = match queue {
            Queue::Delete => collector.attempt_to_delete(&live, work.item()).await,
            Queue::Orphan => collector.attempt_to_orphan(&live, work.item()).await,
        };
        match attempt {
            Attempt::Done => work.succeed(),
            Attempt::Again => work.retry(),
        }
    }
}
