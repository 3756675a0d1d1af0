//! `InformerFactory`: one informer for each kind, started and stopped together.

use std::any::{Any, TypeId};
use std::collections::BTreeMap;
use std::sync::Arc;

use futures::FutureExt;
use futures::future::BoxFuture;
use kube::{Client, Resource};
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::shared::{InformerConfig, SharedInformer};
use crate::Object;
use crate::list_watch::{ApiListWatch, ListerWatcher, Tweak};
use crate::store::Scope;
use crate::wire::Params;

/// Creates informers, one for each kind and form, and runs them together.
///
/// ```no_run
/// use client::informer::InformerFactory;
/// use k8s_openapi::api::apps::v1::ReplicaSet;
/// use k8s_openapi::api::core::v1::Pod;
/// use tokio_util::sync::CancellationToken;
///
/// # async fn run(client: kube::Client) {
/// let factory = InformerFactory::new(client).namespaces(["default"]);
/// let (pods, sets) = (factory.informer::<Pod>(), factory.informer::<ReplicaSet>());
/// let stop = CancellationToken::new();
/// factory.start(&stop);
/// assert!(factory.wait_synced().await.all());
/// println!("{} pods, {} replica sets", pods.store().len(), sets.store().len());
/// stop.cancel();
/// factory.shutdown().await;
/// # }
/// ```
///
/// The form counts: `Pod`, `Encoded<Pod>` and `PartialObjectMeta<Pod>` are three informers.
pub struct InformerFactory {
    client: Client,
    namespaces: Vec<String>,
    tweaks: Vec<Tweak>,
    config: InformerConfig,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    informers: BTreeMap<Identity, Box<dyn AnyInformer>>,
    tasks: TaskTracker,
    shut_down: bool,
}

/// The key of an informer: the resource and the stored type.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Identity {
    resource: String,
    stored: TypeId,
}

/// The sync state of each started informer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FactoryReport {
    /// Resource path, and true if synced.
    pub synced: Vec<(String, bool)>,
}

impl FactoryReport {
    /// True if all are synced.
    pub fn all(&self) -> bool {
        self.synced.iter().all(|(_, synced)| *synced)
    }
}

trait AnyInformer: Send + Sync {
    fn as_any(&self) -> &dyn Any;
    fn is_started(&self) -> bool;
    fn has_synced(&self) -> bool;
    fn start(&self, stop: CancellationToken) -> Option<BoxFuture<'static, ()>>;
    fn wait_synced(&self) -> BoxFuture<'static, bool>;
}

impl<K: Object> AnyInformer for SharedInformer<K> {
    fn as_any(&self) -> &dyn Any {
        self
    }
    fn is_started(&self) -> bool {
        SharedInformer::is_started(self)
    }
    fn has_synced(&self) -> bool {
        SharedInformer::has_synced(self)
    }
    fn start(&self, stop: CancellationToken) -> Option<BoxFuture<'static, ()>> {
        SharedInformer::start(self, stop).ok()
    }
    fn wait_synced(&self) -> BoxFuture<'static, bool> {
        let informer = self.clone();
        async move { SharedInformer::wait_synced(&informer).await }.boxed()
    }
}

impl InformerFactory {
    /// Creates a factory for all namespaces.
    pub fn new(client: Client) -> Self {
        Self {
            client,
            namespaces: Vec::new(),
            tweaks: Vec::new(),
            config: InformerConfig::default(),
            state: Mutex::default(),
        }
    }

    /// Restricts the informers to these namespaces, with one watch each. An empty list means all.
    pub fn namespaces<'a>(mut self, namespaces: impl IntoIterator<Item = &'a str>) -> Self {
        self.namespaces = namespaces.into_iter().map(str::to_owned).collect();
        self
    }

    /// Changes every request of every informer.
    pub fn tweak(mut self, tweak: impl Fn(&mut Params) + Send + Sync + 'static) -> Self {
        self.tweaks.push(Arc::new(tweak));
        self
    }

    /// Sets the configuration of new informers.
    pub fn config(mut self, config: InformerConfig) -> Self {
        self.config = config;
        self
    }

    /// The informer of a kind known at compile time.
    pub fn informer<K: Object + Resource<DynamicType = ()>>(&self) -> SharedInformer<K> {
        self.informer_of(&())
    }

    /// The informer of any kind. Dynamic kinds are distinguished by their resource.
    pub fn informer_of<K: Object>(&self, dt: &K::DynamicType) -> SharedInformer<K> {
        self.informer_with(dt, |config| config)
    }

    /// The same, with its own configuration if this call creates it.
    pub fn informer_with<K: Object>(
        &self,
        dt: &K::DynamicType,
        configure: impl FnOnce(InformerConfig) -> InformerConfig,
    ) -> SharedInformer<K> {
        let identity = Identity { resource: K::url_path(dt, None), stored: TypeId::of::<K>() };
        let mut state = self.state.lock();
        if let Some(known) = state.informers.get(&identity).and_then(|i| i.as_any().downcast_ref::<SharedInformer<K>>())
        {
            return known.clone();
        }
        let informer = SharedInformer::of_sources(self.sources::<K>(dt), configure(self.config.clone()));
        state.informers.insert(identity, Box::new(informer.clone()));
        informer
    }

    fn sources<K: Object>(&self, dt: &K::DynamicType) -> Vec<(Scope, Arc<dyn ListerWatcher>)> {
        let source = |namespace: Option<&str>| -> Arc<dyn ListerWatcher> {
            let source = ApiListWatch::new::<K>(self.client.clone(), dt, namespace);
            Arc::new(self.tweaks.iter().cloned().fold(source, ApiListWatch::tweak_with))
        };
        if self.namespaces.is_empty() {
            return vec![(Scope::All, source(None))];
        }
        self.namespaces.iter().map(|name| (Scope::namespace(name), source(Some(name)))).collect()
    }

    /// Starts the informers that were not started yet. Those requested later need another call. Does nothing after
    /// `shutdown`.
    pub fn start(&self, stop: &CancellationToken) {
        let state = self.state.lock();
        if state.shut_down {
            return;
        }
        for run in state.informers.values().filter_map(|informer| informer.start(stop.clone())) {
            state.tasks.spawn(run);
        }
    }

    /// Waits until every started informer has its first set. Handlers may still be working on it (FA-4).
    pub async fn wait_synced(&self) -> FactoryReport {
        let waits: Vec<_> = {
            let state = self.state.lock();
            let started = state.informers.iter().filter(|(_, informer)| informer.is_started());
            started.map(|(identity, informer)| (identity.resource.clone(), informer.wait_synced())).collect()
        };
        let mut synced = Vec::with_capacity(waits.len());
        for (resource, wait) in waits {
            synced.push((resource, wait.await));
        }
        FactoryReport { synced }
    }

    /// The sync state of all started informers, without waiting.
    pub fn report(&self) -> FactoryReport {
        let state = self.state.lock();
        let started = state.informers.iter().filter(|(_, informer)| informer.is_started());
        let synced = started.map(|(identity, informer)| (identity.resource.clone(), informer.has_synced())).collect();
        FactoryReport { synced }
    }

    /// Prevents further starts and waits until all informers have ended. The caller sends the stop signal. May be called
    /// several times, also concurrently.
    pub async fn shutdown(&self) {
        let tasks = {
            let mut state = self.state.lock();
            state.shut_down = true;
            state.tasks.clone()
        };
        tasks.close();
        tasks.wait().await;
    }
}
