//! `SharedInformer`: a reflector, a queue, a store and mailboxes as one.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use thiserror::Error;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::Event;
use super::handler::{self, HandlerHandle, HandlerStats};
use super::hub::Hub;
use super::inline_handler::InlineHandler;
use super::mailbox::{Delivery, Mailbox, Synced, TakeResult, decided};
use crate::list_watch::ListerWatcher;
use crate::metrics::Durations;
use crate::queue::InOrderQueue;
use crate::reflector::{ProblemHandler, Reflector, ReflectorConfig, ReflectorMetrics, Transform};
use crate::store::{Index, IndexError, Lister, Scope, Store};
use crate::{Object, ResourceVersion};

/// The configuration of an informer.
#[derive(Debug, Clone, Default)]
pub struct InformerConfig {
    /// The configuration of its reflectors.
    pub reflector: ReflectorConfig,
    /// Interval at which handlers that want a resync are checked; `None`: never.
    pub resync_check: Option<Duration>,
}

/// The options of a subscription.
#[derive(Debug, Clone, Copy, Default)]
pub struct SubscriptionOptions {
    /// The form of its backlog.
    pub delivery: Delivery,
    /// Interval at which every object is delivered again (only if the informer has a check period).
    pub resync: Option<Duration>,
    /// Deliver also the objects that a relist found unchanged, as client-go does (SI-8).
    pub repeat_unchanged: bool,
}

/// An operation that is not possible in the current state of an informer.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum InformerError {
    /// The informer was started before. It never starts twice.
    #[error("the informer was started already")]
    Started,
    /// The informer has stopped.
    #[error("the informer has stopped")]
    Stopped,
    /// The index cannot be added.
    #[error(transparent)]
    Index(#[from] IndexError),
}

/// One watch of a kind, shared by many readers and handlers. Clones are the same informer.
///
/// ```no_run
/// use client::informer::{InformerConfig, SharedInformer, SubscriptionOptions};
/// use client::list_watch::ApiListWatch;
/// use k8s_openapi::api::core::v1::Pod;
/// use tokio_util::sync::CancellationToken;
///
/// # async fn run(client: kube::Client) -> Result<(), client::informer::InformerError> {
/// let source = ApiListWatch::namespaced::<Pod>(client, "default").labels("app=web");
/// let informer = SharedInformer::<Pod>::new(source, InformerConfig::default());
/// let stop = CancellationToken::new();
/// let running = tokio::spawn(informer.start(stop.clone())?);
///
/// // Read the current state …
/// informer.wait_synced().await;
/// for pod in informer.store().snapshot().iter() {
///     println!("{:?}", pod.metadata.name);
/// }
/// // … or follow the changes.
/// let mut events = informer.subscribe(SubscriptionOptions::default())?;
/// while let Some(event) = events.next().await {
///     println!("{event:?}");
/// }
/// # Ok(())
/// # }
/// ```
pub struct SharedInformer<K> {
    inner: Arc<Inner<K>>,
}

struct Inner<K> {
    hub: Arc<Hub<K>>,
    sources: Vec<(Scope, Arc<dyn ListerWatcher>)>,
    setup: Mutex<Setup<K>>,
    handlers: Mutex<JoinSet<()>>,
    /// One for each source, set by `start`.
    running: Mutex<Vec<Running<K>>>,
}

struct Setup<K> {
    config: InformerConfig,
    transform: Option<Transform<K>>,
    on_problem: Option<ProblemHandler>,
    started: bool,
}

struct Running<K> {
    metrics: Arc<ReflectorMetrics>,
    queue: Arc<InOrderQueue<K>>,
}

/// The figures of an informer at one moment.
#[derive(Clone)]
pub struct InformerReport {
    /// Number of objects in the store.
    pub objects: usize,
    /// The version of the store.
    pub version: ResourceVersion,
    /// Number of changes that wait to be applied.
    pub queued: usize,
    /// Number of events that wait, for each subscriber.
    pub backlogs: Vec<usize>,
    /// Time to apply and distribute a batch of changes.
    pub processing: Arc<Durations>,
    /// The counters of each reflector.
    pub reflectors: Vec<Arc<ReflectorMetrics>>,
}

impl<K> Clone for SharedInformer<K> {
    fn clone(&self) -> Self {
        Self { inner: self.inner.clone() }
    }
}

impl<K: Object> SharedInformer<K> {
    /// Creates an informer of one source.
    pub fn new(source: impl ListerWatcher, config: InformerConfig) -> Self {
        Self::of_sources(vec![(Scope::All, Arc::new(source))], config)
    }

    /// Creates an informer of several namespaces: one watch each, one store.
    pub fn of_sources(sources: Vec<(Scope, Arc<dyn ListerWatcher>)>, config: InformerConfig) -> Self {
        let scopes: Vec<Scope> = sources.iter().map(|(scope, _)| scope.clone()).collect();
        let inner = Inner {
            hub: Arc::new(Hub::new(&scopes, config.resync_check)),
            sources,
            setup: Mutex::new(Setup { config, transform: None, on_problem: None, started: false }),
            handlers: Mutex::new(JoinSet::new()),
            running: Mutex::new(Vec::new()),
        };
        Self { inner: Arc::new(inner) }
    }

    /// The store of the informer.
    pub fn store(&self) -> Store<K> {
        self.inner.hub.store().clone()
    }

    /// A lister over the store.
    pub fn lister(&self, dt: &K::DynamicType) -> Lister<K> {
        Lister::new(self.store(), dt)
    }

    /// Adds an index to the store, at any time until the informer has stopped.
    pub fn add_index<V: Ord + Clone + Send + Sync + 'static>(
        &self,
        name: &str,
        values: impl Fn(&K) -> Vec<V> + Send + Sync + 'static,
    ) -> Result<Index<K, V>, InformerError> {
        if self.inner.hub.is_stopped() {
            return Err(InformerError::Stopped);
        }
        Ok(self.store().add_index(name, values)?)
    }

    /// Changes every object before it is stored. Before the start only; the last setter wins.
    pub fn set_transform(
        &self,
        transform: impl Fn(K) -> Result<K, String> + Send + Sync + 'static,
    ) -> Result<(), InformerError> {
        self.set_up(|setup| setup.transform = Some(Arc::new(transform)))
    }

    /// Calls `handler` for every problem. Before the start only; the last setter wins.
    pub fn on_problem(&self, handler: ProblemHandler) -> Result<(), InformerError> {
        self.set_up(|setup| setup.on_problem = Some(handler))
    }

    fn set_up(&self, change: impl FnOnce(&mut Setup<K>)) -> Result<(), InformerError> {
        let mut setup = self.inner.setup.lock();
        if setup.started {
            return Err(InformerError::Started);
        }
        change(&mut setup);
        Ok(())
    }

    /// Subscribes to events: first the objects in the store, then every change.
    pub fn subscribe(&self, options: SubscriptionOptions) -> Result<Subscription<K>, InformerError> {
        let (id, mailbox) = self.inner.hub.join(&options)?;
        Ok(Subscription { id, hub: self.inner.hub.clone(), mailbox })
    }

    /// Subscribes with a function that is called for one event after the other, in a task of its own. While it keeps up and
    /// never runs long without waiting, the informer calls it inline: that saves a wake-up for each event.
    pub fn add_handler<H, F>(&self, options: SubscriptionOptions, handle: H) -> Result<HandlerHandle<K>, InformerError>
    where
        H: FnMut(Event<K>) -> F + Send + 'static,
        F: Future<Output = ()> + Send + 'static,
    {
        let subscription = self.subscribe(options)?;
        let stats = Arc::new(HandlerStats::default());
        let registered = HandlerHandle {
            id: subscription.id,
            hub: subscription.hub.clone(),
            mailbox: subscription.mailbox.clone(),
            synced: subscription.mailbox.synced(),
            stats: stats.clone(),
        };
        let mailbox = subscription.mailbox.clone();
        let inline = Arc::new(InlineHandler::new(handler::run(subscription, handle, stats)));
        mailbox.set_inline_handler(&inline);
        self.inner.handlers.lock().spawn(inline.run());
        Ok(registered)
    }

    /// True once the first set of every source is in the store.
    pub fn has_synced(&self) -> bool {
        *self.inner.hub.synced().borrow() == Synced::Yes
    }

    /// Waits for the first sets; false if the informer stops first.
    pub async fn wait_synced(&self) -> bool {
        decided(self.inner.hub.synced()).await
    }

    /// True after the start.
    pub fn is_started(&self) -> bool {
        self.inner.setup.lock().started
    }

    /// True after the stop.
    pub fn is_stopped(&self) -> bool {
        self.inner.hub.is_stopped()
    }

    /// The current figures.
    pub fn report(&self) -> InformerReport {
        let running = self.inner.running.lock();
        let store = self.inner.hub.store();
        InformerReport {
            objects: store.len(),
            version: store.version(),
            queued: running.iter().map(|r| r.queue.len()).sum(),
            backlogs: self.inner.hub.backlogs(),
            processing: self.inner.hub.processing(),
            reflectors: running.iter().map(|r| r.metrics.clone()).collect(),
        }
    }

    /// Runs until `stop`, then until every handler has returned from its current event. Once only.
    pub async fn run(&self, stop: CancellationToken) -> Result<(), InformerError> {
        self.start(stop)?.await;
        Ok(())
    }

    /// Marks the informer as started and returns the future that runs it.
    pub fn start(&self, stop: CancellationToken) -> Result<impl Future<Output = ()> + Send + use<K>, InformerError> {
        let mut setup = self.inner.setup.lock();
        if std::mem::replace(&mut setup.started, true) {
            return Err(InformerError::Started);
        }
        let mut feeds = Vec::new();
        for (scope, source) in &self.inner.sources {
            let queue = Arc::new(InOrderQueue::new(Arc::new(self.store())));
            let reflector = Reflector::new(source.clone(), queue.clone(), setup.config.reflector.clone())
                .transform(setup.transform.clone())
                .on_problem(setup.on_problem.clone());
            self.inner.running.lock().push(Running { metrics: reflector.metrics(), queue: queue.clone() });
            feeds.push(feed(reflector, queue, self.inner.hub.clone(), scope.clone(), stop.clone()));
        }
        Ok(run_feeds(self.inner.clone(), feeds, stop))
    }
}

async fn run_feeds<K: Object>(
    inner: Arc<Inner<K>>,
    feeds: Vec<impl Future<Output = ()> + Send + 'static>,
    stop: CancellationToken,
) {
    // If this future is dropped, the hub must still release its subscribers.
    let _stop_on_drop = StopOnDrop(inner.hub.clone());
    let mut tasks = JoinSet::new();
    for feed in feeds {
        tasks.spawn(feed);
    }
    if let Some(check) = inner.hub.start_resync() {
        let hub = inner.hub.clone();
        let stop = stop.clone();
        tasks.spawn(async move {
            while stop.run_until_cancelled(tokio::time::sleep(check)).await.is_some() {
                hub.resync();
            }
        });
    }
    while let Some(ended) = tasks.join_next().await {
        // An index function or a transform panicked. The set can no longer be trusted: fail loudly.
        if let Err(error) = ended
            && error.is_panic()
        {
            std::panic::resume_unwind(error.into_panic());
        }
    }
    stop.cancelled().await;
    inner.hub.stop();
    let mut handlers = std::mem::take(&mut *inner.handlers.lock());
    while handlers.join_next().await.is_some() {}
}

struct StopOnDrop<K: Object>(Arc<Hub<K>>);

impl<K: Object> Drop for StopOnDrop<K> {
    fn drop(&mut self) {
        self.0.stop();
    }
}

/// Runs one source: its reflector fills the queue, the hub empties it.
async fn feed<K: Object>(
    reflector: Reflector<K>,
    queue: Arc<InOrderQueue<K>>,
    hub: Arc<Hub<K>>,
    scope: Scope,
    stop: CancellationToken,
) {
    let mut fill = pin!(reflector.run(stop));
    // Both in one step: a consumer that waited on the queue would be woken by its own task; the runtime treats that as a task
    // that yields, and wakes another thread for it with every event.
    poll_fn(|cx| {
        let filled = fill.as_mut().poll(cx);
        while queue.pop_with(|batch| hub.process(&scope, batch)) {}
        filled
    })
    .await;
    queue.close();
}

/// A stream of the events of an informer. Dropping it ends the subscription.
pub struct Subscription<K: Object> {
    id: u64,
    hub: Arc<Hub<K>>,
    mailbox: Arc<Mailbox<K>>,
}

impl<K: Object> Subscription<K> {
    /// The next event; `None` once the informer has stopped. Dropping the future loses nothing.
    pub async fn next(&mut self) -> Option<Event<K>> {
        loop {
            match self.mailbox.take() {
                TakeResult::Event(event) => return Some(event),
                TakeResult::Closed => return None,
                TakeResult::NeedsSnapshot => {
                    let event = self.hub.with_snapshot(|snapshot| self.mailbox.start_over(snapshot));
                    if event.is_some() {
                        return event;
                    }
                }
                TakeResult::Nothing => self.mailbox.wait().await,
            }
        }
    }

    /// Takes events until one satisfies the condition. A relist may skip states in between; use a
    /// [`RetryWatcher`](crate::retry_watcher::RetryWatcher) to see each of them. `None` if the informer stops first.
    pub async fn until(&mut self, mut condition: impl FnMut(&Event<K>) -> bool) -> Option<Event<K>> {
        loop {
            let event = self.next().await?;
            if condition(&event) {
                return Some(event);
            }
        }
    }

    /// True once all initial objects were taken and the next event was requested.
    pub fn has_synced(&self) -> bool {
        *self.mailbox.synced().borrow() == Synced::Yes
    }

    /// Number of events that wait.
    pub fn backlog(&self) -> usize {
        self.mailbox.len()
    }

    pub(super) async fn closed(&self) {
        self.mailbox.wait_closed().await;
    }
}

impl<K: Object> Drop for Subscription<K> {
    fn drop(&mut self) {
        self.hub.leave(self.id);
    }
}
