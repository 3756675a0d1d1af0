//! What each controller receives when it starts.

use std::sync::Arc;

use client::Object;
use client::controller::Writes;
use client::events::{ApiEvents, EventRecorder};
use client::informer::{InformerFactory, SharedInformer, Subscription, SubscriptionOptions};
use futures::FutureExt;
use kube::{Client, Resource};
use machinery::clock::Clock;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::settings::Settings;
use crate::writer::Writer;

/// One connection for each program that a cluster has, so that managed fields name the same writers.
#[derive(Clone)]
pub struct Clients {
    /// `kube-controller-manager`
    pub controllers: Client,
    /// `kube-scheduler`
    pub scheduler: Client,
    /// `kubelet`
    pub nodes: Client,
}

/// One connection for all of them.
impl From<Client> for Clients {
    fn from(client: Client) -> Self {
        Self { controllers: client.clone(), scheduler: client.clone(), nodes: client }
    }
}

/// The connections, the informers that all controllers share, the settings and the clock. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Context {
    pub(crate) client: Client,
    /// For those that do not write as `kube-controller-manager`.
    pub(crate) clients: Clients,
    /// One informer for each kind. A controller takes its informers, builds its `Controller` on them, and then calls
    /// `informers.start(&stop)`.
    pub(crate) informers: Arc<InformerFactory>,
    pub(crate) settings: Arc<Settings>,
    pub(crate) clock: Clock,
    /// Ends everything.
    pub(crate) stop: CancellationToken,
    /// Writers of events and informers that are not shared; awaited at the end.
    pub(crate) tasks: TaskTracker,
}

impl Context {
    /// A recorder of events whose source is this component.
    pub(crate) fn recorder(&self, component: &str) -> EventRecorder {
        self.recorder_as(&self.client, component)
    }

    /// A recorder of events that another client writes.
    pub(crate) fn recorder_as(&self, client: &Client, component: &str) -> EventRecorder {
        let sink = Arc::new(ApiEvents::new(client.clone()));
        let (recorder, writer) = EventRecorder::new(sink, component, "");
        self.tasks.spawn(writer.run(self.stop.clone()).boxed());
        recorder.with_clock(self.clock.clone())
    }

    /// The tools of a controller whose events have this component as their source.
    pub(crate) fn tools(&self, component: &str) -> Tools {
        Tools {
            client: self.client.clone(),
            recorder: self.recorder(component),
            clock: self.clock.clone(),
            writes: Arc::default(),
        }
    }

    /// Subscribes to two kinds, starts their informers and waits for the first set of each. None if everything stops first.
    pub(crate) async fn subscribe_to_both<A: Object, B: Object>(
        &self,
        first: &SharedInformer<A>,
        second: &SharedInformer<B>,
    ) -> Option<(Subscription<A>, Subscription<B>)> {
        let options = SubscriptionOptions::default();
        let subscriptions = (first.subscribe(options).ok()?, second.subscribe(options).ok()?);
        self.informers.start(&self.stop);
        let synced = async { first.wait_synced().await && second.wait_synced().await };
        (self.stop.run_until_cancelled(synced).await == Some(true)).then_some(subscriptions)
    }
}

/// What a controller that writes objects and records events works with.
#[derive(Clone)]
pub(crate) struct Tools {
    pub(crate) client: Client,
    pub(crate) recorder: EventRecorder,
    pub(crate) clock: Clock,
    /// The writes of earlier runs: the next run for the same object waits until the stores show them.
    pub(crate) writes: Arc<Writes>,
}

impl Tools {
    /// Registers a kind that the controller writes: its runs wait until this informer shows their writes.
    pub(crate) fn follow<K: Object + Resource<DynamicType = ()>>(self, informer: &SharedInformer<K>) -> Self {
        self.writes.follow(&K::plural(&()), informer.store());
        self
    }

    /// The writer for one run of this object.
    pub(crate) fn writer<O: Resource>(&self, object: &O) -> Writer {
        Writer::new(&self.client, &self.writes, object)
    }
}
