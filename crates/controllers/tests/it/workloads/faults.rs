//! Rolling updates while servers restart and controllers are killed in the middle of whatever they do.
//!
//! Controllers run on a runtime of their own: a kill ends that runtime, so that every task of theirs stops where it waits, as a
//! process does. A restart also drops the server; the next one opens the same store. Updates begin while others are on their
//! way, and some return to an earlier template. In the end everything is as if nothing had been killed, and at no moment were
//! fewer pods available than the workload allows.
//!
//! `FAULTS_SEED=7 cargo test … whatever_is_killed` plays other moments.

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use controllers::Settings;
use controllers::Stages;
use controllers::settings::Timing;
use dogwatch::testing::{Controllers, Server};
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::apps::v1::{DaemonSet, Deployment, ReplicaSet, StatefulSet};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, ListParams, Patch, PatchParams, PostParams};
use kube::{Resource, ResourceExt};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use store::memory::MemoryStore;
use store::{Retention, Store};
use tokio::runtime::Runtime;

use super::history::{Beginning, History, is_available};
use super::stage::settings;
use crate::world::until;

/// The nodes of the test, for pods of all owners.
const NODES: &str = "scheduler,nodes,nodelifecycle,podgc,garbagecollector";

/// A kind that has pods and rolls them from template to template.
trait Workload:
    Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + Debug + Serialize + DeserializeOwned + 'static
{
    /// True if everything is as the spec says.
    fn is_complete(&self) -> bool;
}

impl Workload for Deployment {
    fn is_complete(&self) -> bool {
        let (Some(spec), Some(status)) = (&self.spec, &self.status) else { return false };
        [status.replicas, status.updated_replicas, status.available_replicas] == [spec.replicas; 3]
            && status.observed_generation == self.metadata.generation
    }
}

impl Workload for StatefulSet {
    fn is_complete(&self) -> bool {
        let (Some(spec), Some(status)) = (&self.spec, &self.status) else { return false };
        let all = spec.replicas;
        [Some(status.replicas), status.updated_replicas, status.available_replicas] == [all; 3]
            && status.current_revision == status.update_revision
            && status.observed_generation == self.metadata.generation
    }
}

impl Workload for DaemonSet {
    fn is_complete(&self) -> bool {
        let Some(status) = &self.status else { return false };
        let all = Some(status.desired_number_scheduled);
        all > Some(0)
            && [status.updated_number_scheduled, status.number_available] == [all; 2]
            && status.observed_generation == self.metadata.generation
    }
}

/// A server with controllers that can be killed.
struct World {
    settings: Settings,
    store: Arc<dyn Store>,
    server: Server,
    running: Option<(Runtime, Controllers)>,
}

impl World {
    /// With these controllers, and so many nodes.
    async fn start(controllers: &str, nodes: usize) -> Self {
        let timing = Timing { node_check: Duration::from_millis(100), ..Timing::default() };
        let stages = Stages { events: false, ..Stages::immediate() };
        let settings = Settings { nodes, stages, timing, ..settings(&format!("{controllers},{NODES}")) };
        let store: Arc<dyn Store> = Arc::new(MemoryStore::new(Retention::default()));
        let server = Server::start_on(store.clone()).await;
        let mut world = World { settings, store, server, running: None };
        world.run_controllers();
        world
    }

    fn run_controllers(&mut self) {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = runtime.expect("a runtime");
        let controllers = {
            let _inside = runtime.enter();
            self.server.run_controllers(self.settings.clone())
        };
        self.running = Some((runtime, controllers));
    }

    fn kill_controllers(&mut self) {
        if let Some((runtime, controllers)) = self.running.take() {
            runtime.shutdown_background();
            drop(controllers);
        }
    }

    async fn restart(&mut self) {
        self.kill_controllers();
        self.server = Server::start_on(self.store.clone()).await;
    }

    fn api<K: Resource<DynamicType = (), Scope = NamespaceResourceScope>>(&self) -> Api<K> {
        Api::namespaced(self.server.client(), "default")
    }

    async fn all<K>(&self) -> Vec<K>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + Debug + DeserializeOwned,
    {
        self.api::<K>().list(&ListParams::default()).await.expect("the server answers").items
    }

    async fn until_complete<W: Workload>(&self) -> W {
        until(&self.api::<W>(), "web", "complete", W::is_complete).await
    }

    /// Makes a workload called web, and once it is complete rolls it through `updates` templates while things are killed.
    /// Returns what happened to its pods meanwhile and the image of the last template.
    async fn roll<W: Workload>(&mut self, spec: Value, updates: usize) -> (History, String) {
        let mut random = StdRng::seed_from_u64(seed());
        let mut spec = spec;
        spec["selector"] = json!({"matchLabels": {"app": "web"}});
        spec["template"] = json!({
            "metadata": {"labels": {"app": "web"}},
            "spec": {"containers": [{"name": "c", "image": "i:0"}]},
        });
        let wanted = serde_json::from_value(json!({"metadata": {"name": "web"}, "spec": spec}));
        let wanted: W = wanted.expect("a workload of its kind");
        self.api::<W>().create(&PostParams::default(), &wanted).await.expect("the workload is taken");
        self.until_complete::<W>().await;
        let begin = Beginning::now(&self.server.client()).await;

        let mut image = String::new();
        for update in 1..=updates {
            // Every fifth update returns to the template before the last one.
            image = format!("i:{}", if update % 5 == 0 { update - 2 } else { update });
            let patch = json!({"spec": {"template": {"spec": {"containers": [{"name": "c", "image": image}]}}}});
            let patched = self.api::<W>().patch("web", &PatchParams::default(), &Patch::Strategic(patch)).await;
            patched.expect("the update is taken");
            for _ in 0..random.random_range(0..3) {
                tokio::time::sleep(Duration::from_millis(random.random_range(0..150))).await;
                if random.random_bool(0.3) {
                    self.restart().await;
                } else {
                    self.kill_controllers();
                }
                self.run_controllers();
            }
            // Every third update is followed by the next while it is on its way, and so is the one that is taken back.
            if !(update % 3 == 0 || update % 5 == 4) || update == updates {
                self.until_complete::<W>().await;
            }
        }
        (begin.until_now(&self.server.client()).await, image)
    }

    /// Waits until there are so many pods, and checks that all of them run this image.
    async fn until_pods(&self, count: usize, image: &str) -> Vec<Pod> {
        let deadline = tokio::time::Instant::now() + crate::world::PATIENCE;
        let left = loop {
            let left = self.all::<Pod>().await;
            if left.len() == count {
                break left;
            }
            assert!(tokio::time::Instant::now() < deadline, "{} pods are left", left.len());
            tokio::time::sleep(Duration::from_millis(20)).await;
        };
        for pod in &left {
            assert_eq!(pod.spec.as_ref().expect("a spec").containers[0].image.as_deref(), Some(image));
            assert!(is_available(pod));
        }
        left
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.kill_controllers();
    }
}

/// The seed of the moments of kills: fixed, unless the environment sets another.
fn seed() -> u64 {
    std::env::var("FAULTS_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(20)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deployments_keep_enough_available_whatever_is_killed() {
    let mut world = World::start("deployment,replicaset", 3).await;
    let (history, image) = world.roll::<Deployment>(json!({"replicas": 20}), 20).await;
    let left = world.until_pods(20, &image).await;
    let deployment: Deployment = world.api().get("web").await.expect("it is there");
    // Ten old templates are kept.
    let known = super::stage::until("ten old replica sets", async || {
        let known = world.all::<ReplicaSet>().await;
        (known.len() <= 11).then_some(known)
    })
    .await;
    let current: Vec<&ReplicaSet> =
        known.iter().filter(|set| set.spec.as_ref().is_some_and(|spec| spec.replicas != Some(0))).collect();
    assert_eq!(current.len(), 1, "one replica set has replicas");
    assert!(known.iter().all(|set| set.owner_references()[0].uid == deployment.uid().expect("a UID")));
    for pod in &left {
        assert_eq!(pod.owner_references()[0].uid, current[0].uid().expect("a UID"), "nothing is orphaned");
    }
    // A quarter may be unavailable.
    history.assert_available(15);
    assert!(history.made >= 20, "the history was read: {} pods were made", history.made);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn daemon_sets_keep_enough_available_whatever_is_killed() {
    let mut world = World::start("daemonset", 12).await;
    let spec = json!({"updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 3}}});
    let (history, image) = world.roll::<DaemonSet>(spec, 10).await;
    let left = world.until_pods(12, &image).await;
    let nodes: BTreeSet<_> = left.iter().filter_map(|pod| pod.spec.as_ref()?.node_name.clone()).collect();
    assert_eq!(nodes.len(), 12, "one pod a node");
    history.assert_available(9);
    assert!(history.made >= 12, "the history was read: {} pods were made", history.made);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stateful_sets_keep_enough_available_whatever_is_killed() {
    for policy in ["OrderedReady", "Parallel"] {
        let mut world = World::start("statefulset", 3).await;
        let spec = json!({"replicas": 5, "serviceName": "web", "podManagementPolicy": policy});
        let (history, image) = world.roll::<StatefulSet>(spec, 7).await;
        world.until_pods(5, &image).await;
        // One at a time.
        history.assert_available(4);
        assert!(history.made >= 5, "the history was read: {} pods were made", history.made);
    }
}
