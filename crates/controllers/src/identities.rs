//! The users as which the controllers, the scheduler and the nodes meet the server.
//!
//! A cluster has one user for each controller, so that its role limits each of them. Reads are different: all controllers share
//! their informers, which read as the manager.

use std::fmt;
use std::sync::Arc;

use kube::Client;

/// A user of a program in this crate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Identity<'a> {
    /// `system:kube-controller-manager`: reads for all controllers, and holds their lease.
    Manager,
    /// `system:kube-scheduler`
    Scheduler,
    /// `system:apiserver`, which may do everything: for what no role of a controller covers.
    Server,
    /// A service account of this name in `kube-system`.
    Account(&'a str),
    /// All nodes through one client: each of their requests has an [`ActingNode`].
    Nodes,
}

/// The node that makes a request, as an extension of the request: a client for each of a thousand nodes would take more memory than
/// the nodes themselves.
#[derive(Debug, Clone)]
pub struct ActingNode(pub Arc<str>);

/// Makes the clients of the programs in this crate.
#[derive(Clone)]
pub struct Clients(Arc<dyn Fn(Identity<'_>) -> Client + Send + Sync>);

impl Clients {
    /// Clients that differ in their user.
    pub fn new(make: impl Fn(Identity<'_>) -> Client + Send + Sync + 'static) -> Self {
        Clients(Arc::new(make))
    }

    pub(crate) fn get(&self, identity: Identity<'_>) -> Client {
        (self.0)(identity)
    }
}

/// One client, and so one user, for all of them.
impl From<Client> for Clients {
    fn from(client: Client) -> Self {
        Clients::new(move |_| client.clone())
    }
}

impl fmt::Debug for Clients {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Clients").finish_non_exhaustive()
    }
}
