//! The controllers of a server: started once it is ready, stopped before it.

use std::sync::Arc;
use std::time::Duration;

use clock::WorldClock;
use controllers::{Clients, Settings, TokenSigner};
use registry::kinds::Kinds;
use server::Server;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::containers::SimulatedContainers;
use crate::identities;
use crate::queues::ControllerQueues;
use crate::usage::SimulatedUsage;

/// Time that controllers have to finish their work and release their lease.
const STOP_TIMEOUT: Duration = Duration::from_secs(5);

/// The kinds of a server with these controllers: what simulated nodes use can be read.
#[must_use]
pub fn kinds(settings: &Settings) -> Kinds {
    let kinds = registry::kinds::builtin();
    if settings.simulates_nodes() { registry::kinds::usage::beside(kinds) } else { kinds.clone() }
}

/// Controllers that run until they are stopped or this value is dropped.
pub struct Controllers {
    stop: DropGuard,
    running: JoinHandle<()>,
}

impl Controllers {
    /// Starts the controllers in this process; they reach the server without a socket. They begin again after a rewind, since what
    /// they remember is then of objects that are not there.
    #[must_use]
    pub fn start(server: &Server, clock: &WorldClock, mut settings: Settings) -> Self {
        let stop = CancellationToken::new();
        settings.clock = clock.clone();
        let queues = ControllerQueues { queues: settings.queues.clone(), clock: clock.clone() };
        server.set_queues(Arc::new(queues));
        let (signing, clients) = (server.clone(), identities::clients(server));
        settings.token_signer.get_or_insert_with(|| {
            TokenSigner::new(move |order| match &signing.authenticator().accounts {
                Some(tokens) => tokens.sign_legacy(order.namespace, order.account, order.account_uid, order.secret),
                None => Err("the server issues no tokens".to_owned()),
            })
        });
        if settings.simulates_nodes() {
            let containers = Arc::clone(&settings.containers);
            let simulated = SimulatedContainers { containers, clock: settings.clock.clone() };
            server.set_containers(Arc::new(simulated));
            let usages = Arc::clone(&settings.usages);
            let simulated = SimulatedUsage { usages, clock: settings.clock.clone() };
            server.set_usage(Arc::new(simulated));
        }
        let running = tokio::spawn(run(clients, settings, server.rewinds(), stop.clone()));
        Controllers { stop: stop.drop_guard(), running }
    }

    /// Stops the controllers and waits until they have ended; aborts those that take too long.
    pub async fn stop(mut self) {
        drop(self.stop);
        if tokio::time::timeout(STOP_TIMEOUT, &mut self.running).await.is_err() {
            self.running.abort();
        }
    }
}

/// Runs the controllers until they are stopped, from their informers on after each rewind.
async fn run(clients: Clients, settings: Settings, mut rewinds: watch::Receiver<u64>, stop: CancellationToken) {
    while !stop.is_cancelled() {
        let turn = stop.child_token();
        let running = controllers::manager::run(clients.clone(), settings.clone(), turn.clone());
        tokio::pin!(running);
        tokio::select! {
            () = &mut running => return,
            changed = rewinds.changed() => if changed.is_err() { return running.await },
        }
        turn.cancel();
        running.await;
    }
}
