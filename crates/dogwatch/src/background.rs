//! The controllers of a server: started once it is ready, stopped before it.

use std::time::Duration;

use access::identity::{MASTERS, User};
use controllers::{Clients, Settings};
use tokio::task::JoinHandle;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::cluster::Cluster;

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
    pub fn start(cluster: &Cluster, settings: Settings) -> Self {
        let stop = CancellationToken::new();
        let running = tokio::spawn(controllers::manager::run(clients(cluster), settings, stop.clone()));
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

/// Clients under the users and program names of a genuine cluster, which managed fields show.
fn clients(cluster: &Cluster) -> Clients {
    let client = |user: &str, program: &'static str| {
        let user = User { name: user.to_owned(), groups: vec![MASTERS.to_owned()], ..User::default() };
        kube::Client::new(cluster.server().in_process(user.authenticated()).agent(program), "default")
    };
    Clients {
        controllers: client("system:kube-controller-manager", "kube-controller-manager"),
        scheduler: client("system:kube-scheduler", "kube-scheduler"),
        nodes: client("system:node", "kubelet"),
    }
}
