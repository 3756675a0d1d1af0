//! What each controller is given when it starts.

use std::sync::Arc;

use client::events::{ApiEvents, EventRecorder};
use client::informer::InformerFactory;
use kube::Client;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::settings::Settings;

/// A connection for each program that a cluster has, so that managed fields name the writers as they do there.
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

/// The connection, the informers that all controllers share, and the choices. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Context {
    pub(crate) client: Client,
    /// Those who do not write as `kube-controller-manager` find theirs here.
    pub(crate) clients: Clients,
    /// One informer a kind, whoever asks. A controller asks for its informers, builds its `Controller` on them, and then
    /// calls `informers.start(&stop)`.
    pub(crate) informers: Arc<InformerFactory>,
    pub(crate) settings: Arc<Settings>,
    /// Ends everything.
    pub(crate) stop: CancellationToken,
    /// What writes events; waited for at the end.
    pub(crate) tasks: TaskTracker,
}

impl Context {
    /// A recorder of events that come from this component.
    pub(crate) fn recorder(&self, component: &str) -> EventRecorder {
        let sink = Arc::new(ApiEvents::new(self.client.clone()));
        let (recorder, writer) = EventRecorder::new(sink, component, "");
        self.tasks.spawn(writer.run(self.stop.clone()));
        recorder
    }
}
