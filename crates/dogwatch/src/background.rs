//! The controllers of a server: started once it is ready, stopped before it.

use std::sync::Arc;
use std::time::Duration;

use controllers::{Settings, TokenSigner};
use tokio::task::JoinHandle;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::cluster::Cluster;
use crate::containers::SimulatedContainers;
use crate::identities;

/// Time that controllers have to finish their work and release their lease.
const STOP_TIMEOUT: Duration = Duration::from_secs(5);

/// Controllers that run until they are stopped or this value is dropped.
pub struct Controllers {
    stop: DropGuard,
    running: JoinHandle<()>,
}

impl Controllers {
    /// Starts the controllers in this process; they reach the server without a socket.
    #[must_use]
    pub fn start(cluster: &Cluster, mut settings: Settings) -> Self {
        let stop = CancellationToken::new();
        settings.clock = cluster.clock().clone();
        let server = cluster.server().clone();
        settings.token_signer.get_or_insert_with(|| {
            TokenSigner::new(move |order| match &server.authenticator().accounts {
                Some(tokens) => tokens.sign_legacy(order.namespace, order.account, order.account_uid, order.secret),
                None => Err("the server issues no tokens".to_owned()),
            })
        });
        if settings.selection.includes("nodes") {
            let containers = Arc::clone(&settings.containers);
            let simulated = SimulatedContainers { containers, clock: settings.clock.clone() };
            cluster.server().set_containers(Arc::new(simulated));
        }
        let clients = identities::clients(cluster.server());
        let running = tokio::spawn(controllers::manager::run(clients, settings, stop.clone()));
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
