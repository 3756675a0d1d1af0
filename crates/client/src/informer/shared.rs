//! `SharedInformer`: a reflector, a queue, a store and mailboxes as one.

use std::future::{Future, poll_fn};
use std::marker::PhantomData;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
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
use crate::queue::{InOrderQueue, KnownObjects};
use crate::reflector::{
    Decode, ProblemHandler, Reflector, ReflectorConfig, ReflectorMetrics, Transform, decode_erased,
};
use crate::store::{ErasedStore, ErasedWriter, Index, IndexError, Lister, Scope, Store};
use crate::{Object, ResourceVersion, Stored};

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
    store: Store<K>,
    transform: Mutex<Option<Transform<K>>>,
    core: Arc<Core>,
}

/// The part of an informer that does not depend on the kind.
struct Core {
    hub: Arc<Hub>,
    sources: Vec<(Scope, Arc<dyn ListerWatcher>)>,
    setup: Mutex<Setup>,
    handlers: Mutex<JoinSet<()>>,
    /// One for each source, set by `start`.
    running: Mutex<Vec<Running>>,
}

struct Setup {
    config: InformerConfig,
    on_problem: Option<ProblemHandler>,
    started: bool,
}

struct Running {
    metrics: Arc<ReflectorMetrics>,
    queue: Arc<InOrderQueue<dyn Stored>>,
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
        let (store, writer) = Store::of_scopes(scopes.iter().cloned());
        let core = Arc::new(Core::new(Box::new(writer), &scopes, sources, config));
        Self { inner: Arc::new(Inner { store, transform: Mutex::new(None), core }) }
    }

    /// The store of the informer.
    pub fn store(&self) -> Store<K> {
        self.inner.store.clone()
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
        if self.inner.core.hub.is_stopped() {
            return Err(InformerError::Stopped);
        }
        Ok(self.store().add_index(name, values)?)
    }

    /// Changes every object before it is stored. Before the start only; the last setter wins.
    pub fn set_transform(
        &self,
        transform: impl Fn(K) -> Result<K, String> + Send + Sync + 'static,
    ) -> Result<(), InformerError> {
        self.inner.core.set_up(|_| *self.inner.transform.lock() = Some(Arc::new(transform)))
    }

    /// Calls `handler` for every problem. Before the start only; the last setter wins.
    pub fn on_problem(&self, handler: ProblemHandler) -> Result<(), InformerError> {
        self.inner.core.set_up(|setup| setup.on_problem = Some(handler))
    }

    /// Subscribes to events: first the objects in the store, then every change.
    pub fn subscribe(&self, options: SubscriptionOptions) -> Result<Subscription<K>, InformerError> {
        Ok(Subscription { subscriber: self.inner.core.subscribe(&options)?, store: self.store() })
    }

    /// Subscribes with a function that is called for one event after the other, in a task of its own. While it keeps up and
    /// never runs long without waiting, the informer calls it inline: that saves a wake-up for each event.
    pub fn add_handler<H, F>(&self, options: SubscriptionOptions, handle: H) -> Result<HandlerHandle<K>, InformerError>
    where
        H: FnMut(Event<K>) -> F + Send + 'static,
        F: Future<Output = ()> + Send + 'static,
    {
        let subscriber = self.inner.core.subscribe(&options)?;
        let (hub, mailbox, store) = (subscriber.hub.clone(), subscriber.mailbox.clone(), self.store());
        let mut handle = handle;
        let notified = move |notice| {
            let handled = typed_event(notice, &hub, &mailbox, &store).map(&mut handle);
            async move {
                if let Some(handled) = handled {
                    handled.await;
                }
            }
        };
        let stats = Arc::new(HandlerStats::default());
        let registered = handler_handle(&subscriber, &stats);
        let mailbox = subscriber.mailbox.clone();
        self.inner.core.run_handler(&mailbox, handler::run(subscriber, notified, stats).boxed());
        Ok(registered)
    }

    /// Subscribes with a function that does not wait. Compiled once for all kinds but for the function itself.
    pub(crate) fn add_sync_handler(
        &self,
        mut handle: impl FnMut(Event<K>) + Send + 'static,
    ) -> Result<HandlerHandle<K>, InformerError> {
        let subscriber = self.inner.core.subscribe(&SubscriptionOptions::default())?;
        let stats = Arc::new(HandlerStats::default());
        let registered = handler_handle(&subscriber, &stats);
        self.inner.core.run_sync_handler(subscriber, Box::new(move |event| handle(event.typed())), stats);
        Ok(registered)
    }

    /// True once the first set of every source is in the store.
    pub fn has_synced(&self) -> bool {
        *self.inner.core.hub.synced().borrow() == Synced::Yes
    }

    /// Waits for the first sets; false if the informer stops first.
    pub async fn wait_synced(&self) -> bool {
        decided(self.inner.core.hub.synced()).await
    }

    /// True after the start.
    pub fn is_started(&self) -> bool {
        self.inner.core.setup.lock().started
    }

    /// True after the stop.
    pub fn is_stopped(&self) -> bool {
        self.inner.core.hub.is_stopped()
    }

    /// The current figures.
    pub fn report(&self) -> InformerReport {
        let running = self.inner.core.running.lock();
        let store = &self.inner.store;
        InformerReport {
            objects: store.len(),
            version: store.version(),
            queued: running.iter().map(|r| r.queue.len()).sum(),
            backlogs: self.inner.core.hub.backlogs(),
            processing: self.inner.core.hub.processing(),
            reflectors: running.iter().map(|r| r.metrics.clone()).collect(),
        }
    }

    /// Runs until `stop`, then until every handler has returned from its current event. Once only.
    pub async fn run(&self, stop: CancellationToken) -> Result<(), InformerError> {
        self.start(stop)?.await;
        Ok(())
    }

    /// Marks the informer as started and returns the future that runs it.
    pub fn start(&self, stop: CancellationToken) -> Result<BoxFuture<'static, ()>, InformerError> {
        let transform = self.inner.transform.lock().clone();
        self.inner.core.start(Arc::new(ErasedStore(self.store())), decode_erased(transform), stop)
    }
}

fn handler_handle<K>(subscriber: &Subscriber, stats: &Arc<HandlerStats>) -> HandlerHandle<K> {
    HandlerHandle {
        id: subscriber.id,
        hub: subscriber.hub.clone(),
        mailbox: subscriber.mailbox.clone(),
        synced: subscriber.mailbox.synced(),
        stats: stats.clone(),
        stored: PhantomData,
    }
}

impl Core {
    fn new(
        writer: Box<dyn ErasedWriter>,
        scopes: &[Scope],
        sources: Vec<(Scope, Arc<dyn ListerWatcher>)>,
        config: InformerConfig,
    ) -> Self {
        Self {
            hub: Arc::new(Hub::new(writer, scopes, config.resync_check)),
            sources,
            setup: Mutex::new(Setup { config, on_problem: None, started: false }),
            handlers: Mutex::new(JoinSet::new()),
            running: Mutex::new(Vec::new()),
        }
    }

    fn set_up(&self, change: impl FnOnce(&mut Setup)) -> Result<(), InformerError> {
        let mut setup = self.setup.lock();
        if setup.started {
            return Err(InformerError::Started);
        }
        change(&mut setup);
        Ok(())
    }

    fn subscribe(&self, options: &SubscriptionOptions) -> Result<Subscriber, InformerError> {
        let (id, mailbox) = self.hub.join(options)?;
        Ok(Subscriber { id, hub: self.hub.clone(), mailbox })
    }

    fn run_handler(&self, mailbox: &Mailbox, handler: BoxFuture<'static, ()>) {
        let inline = Arc::new(InlineHandler::new(handler));
        mailbox.set_inline_handler(&inline);
        self.handlers.lock().spawn(inline.run());
    }

    fn run_sync_handler(
        &self,
        subscriber: Subscriber,
        mut handle: Box<dyn FnMut(Event<dyn Stored>) + Send>,
        stats: Arc<HandlerStats>,
    ) {
        let mailbox = subscriber.mailbox.clone();
        let notified = move |notice| {
            // The other notice is of logs that overflow, and this mailbox has none.
            if let Notice::Event(event) = notice {
                handle(event);
            }
            std::future::ready(())
        };
        self.run_handler(&mailbox, handler::run(subscriber, notified, stats).boxed());
    }

    fn start(
        self: &Arc<Self>,
        known: Arc<dyn KnownObjects<dyn Stored>>,
        decode: Decode<dyn Stored>,
        stop: CancellationToken,
    ) -> Result<BoxFuture<'static, ()>, InformerError> {
        let mut setup = self.setup.lock();
        if std::mem::replace(&mut setup.started, true) {
            return Err(InformerError::Started);
        }
        let mut feeds = Vec::new();
        for (scope, source) in &self.sources {
            let queue = Arc::new(InOrderQueue::new(known.clone()));
            let (config, decode) = (setup.config.reflector.clone(), decode.clone());
            let reflector = Reflector::with_decode(source.clone(), queue.clone(), config, decode)
                .on_problem(setup.on_problem.clone());
            self.running.lock().push(Running { metrics: reflector.metrics(), queue: queue.clone() });
            feeds.push(feed(reflector, queue, self.hub.clone(), scope.clone(), stop.clone()));
        }
        Ok(run_feeds(self.clone(), feeds, stop).boxed())
    }
}

async fn run_feeds(inner: Arc<Core>, feeds: Vec<impl Future<Output = ()> + Send + 'static>, stop: CancellationToken) {
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

struct StopOnDrop(Arc<Hub>);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.stop();
    }
}

/// Runs one source: its reflector fills the queue, the hub empties it.
async fn feed(
    reflector: Reflector<dyn Stored>,
    queue: Arc<InOrderQueue<dyn Stored>>,
    hub: Arc<Hub>,
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
    subscriber: Subscriber,
    store: Store<K>,
}

/// A subscription that does not know the type of its objects. Dropping it ends the subscription.
pub(super) struct Subscriber {
    id: u64,
    hub: Arc<Hub>,
    mailbox: Arc<Mailbox>,
}

/// An event without its type, or the number of missed changes.
#[derive(Clone, Debug)]
pub(super) enum Notice {
    Event(Event<dyn Stored>),
    /// The log overflowed: the subscriber has to take a snapshot.
    Overflow,
}

impl Subscriber {
    pub(super) async fn next(&mut self) -> Option<Notice> {
        loop {
            match self.mailbox.take() {
                TakeResult::Event(event) => return Some(Notice::Event(event)),
                TakeResult::Closed => return None,
                TakeResult::NeedsSnapshot => return Some(Notice::Overflow),
                TakeResult::Nothing => self.mailbox.wait().await,
            }
        }
    }

    pub(super) async fn closed(&self) {
        self.mailbox.wait_closed().await;
    }
}

impl Drop for Subscriber {
    fn drop(&mut self) {
        self.hub.leave(self.id);
    }
}

fn typed_event<K: Object>(notice: Notice, hub: &Hub, mailbox: &Mailbox, store: &Store<K>) -> Option<Event<K>> {
    match notice {
        Notice::Event(event) => Some(event.typed()),
        Notice::Overflow => hub.locked(|| {
            let missed = mailbox.start_over()?;
            Some(Event::Lagged { missed, snapshot: store.snapshot() })
        }),
    }
}

impl<K: Object> Subscription<K> {
    /// The next event; `None` once the informer has stopped. Dropping the future loses nothing.
    pub async fn next(&mut self) -> Option<Event<K>> {
        loop {
            let notice = self.subscriber.next().await?;
            let event = typed_event(notice, &self.subscriber.hub, &self.subscriber.mailbox, &self.store);
            if event.is_some() {
                return event;
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
        *self.subscriber.mailbox.synced().borrow() == Synced::Yes
    }

    /// Number of events that wait.
    pub fn backlog(&self) -> usize {
        self.subscriber.mailbox.len()
    }
}
