//! The context that each controller receives when it starts.

use std::sync::Arc;

use client::Object;
use client::controller::{Controller, Writes};
use client::events::{ApiEvents, EventRecorder, EventSink};
use client::informer::{InformerFactory, SharedInformer, Subscription, SubscriptionOptions};
use clock::WorldClock;
use futures::FutureExt;
use k8s_openapi::api::core::v1::Event;
use kube::{Client, Resource};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::identities::Clients;
use crate::settings::Settings;
use crate::writer::Writer;

/// The clients, the informers that all controllers share, the settings and the clock. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Context {
    /// The name of the controller that has this context, as `--controllers` selects it by.
    pub(crate) name: &'static str,
    /// Writes as the controller that has this context.
    pub(crate) client: Client,
    /// Reads what informers follow, for all controllers.
    pub(crate) reader: Client,
    /// Makes more clients, for a program that acts as several users.
    pub(crate) clients: Clients,
    /// One informer for each kind. A controller takes its informers, builds its `Controller` on them, and then calls
    /// `informers.start(&stop)`.
    pub(crate) informers: Arc<InformerFactory>,
    pub(crate) settings: Arc<Settings>,
    pub(crate) clock: WorldClock,
    /// Ends everything.
    pub(crate) stop: CancellationToken,
    /// Writers of events and informers that are not shared; awaited at the end.
    pub(crate) tasks: TaskTracker,
}

impl Context {
    /// A controller of this name, whose delays follow the clock.
    pub(crate) fn controller(&self, name: &str) -> Controller {
        Controller::on_clock(name, self.clock.clone())
    }

    /// A recorder of events whose source is this component.
    pub(crate) fn recorder(&self, component: &str) -> EventRecorder {
        self.recorder_through(Arc::new(ApiEvents::new(self.client.clone())), component)
    }

    /// A recorder of events that are written by a sink.
    pub(crate) fn recorder_through(&self, sink: Arc<dyn EventSink<Event>>, component: &str) -> EventRecorder {
        let (recorder, writer) = EventRecorder::new(sink, component, "");
        self.tasks.spawn(writer.run(self.stop.clone()).boxed());
        recorder.with_clock(self.clock.reading())
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

/// The tools of a controller that writes objects and records events.
#[derive(Clone)]
pub(crate) struct Tools {
    pub(crate) client: Client,
    pub(crate) recorder: EventRecorder,
    pub(crate) clock: WorldClock,
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
