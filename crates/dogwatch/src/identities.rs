//! The users as which built-in controllers, the scheduler and the simulated nodes call the server: those of a genuine cluster,
//! so that their roles limit them. None of them has a socket.

use server::body::Broken;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::task::{Context, Poll};

use access::identity::{MASTERS, User};
use controllers::{ActingNode, Clients, Identity};
use http::Request;
use kube::client::Body;
use parking_lot::Mutex;
use server::{InProcess, Server};
use tower_service::Service;

const MANAGER: &str = "system:kube-controller-manager";
const SCHEDULER: &str = "system:kube-scheduler";

/// Clients of a server under the users and program names of a genuine cluster. Managed fields show the programs.
pub(crate) fn clients(server: &Server) -> Clients {
    let server = server.clone();
    Clients::new(move |identity| {
        let client = |user: User, program| kube::Client::new(server.in_process(user).agent(program), "default");
        match identity {
            Identity::Manager => client(user(MANAGER, &[]), "kube-controller-manager"),
            Identity::Scheduler => client(user(SCHEDULER, &[]), "kube-scheduler"),
            Identity::Server => client(user("system:apiserver", &[MASTERS]), "dogwatch"),
            Identity::Account(name) => client(account(name), "kube-controller-manager"),
            Identity::Nodes => kube::Client::new(Nodes::new(server.clone()), "default"),
        }
    })
}

/// The names of all users that act for controllers, the scheduler and this number of nodes.
pub(crate) fn names(nodes: usize) -> BTreeSet<String> {
    let nodes = (1..=nodes).map(|number| node(&format!("node-{number}")).name);
    let programs = controllers::manager::identities().filter_map(|identity| match identity {
        Identity::Manager => Some(MANAGER.to_owned()),
        Identity::Scheduler => Some(SCHEDULER.to_owned()),
        Identity::Account(name) => Some(account(name).name),
        Identity::Nodes | Identity::Server => None,
    });
    nodes.chain(programs).collect()
}

fn user(name: &str, groups: &[&str]) -> User {
    let groups = groups.iter().map(|group| (*group).to_owned()).collect();
    User { name: name.to_owned(), groups, ..User::default() }.authenticated()
}

/// A service account of the controllers.
fn account(name: &str) -> User {
    user(
        &format!("system:serviceaccount:kube-system:{name}"),
        &["system:serviceaccounts", "system:serviceaccounts:kube-system"],
    )
}

/// The user of a node.
fn node(name: &str) -> User {
    user(&format!("system:node:{name}"), &["system:nodes"])
}

/// Sends each request as the node that makes it.
#[derive(Clone)]
struct Nodes {
    server: Server,
    /// One for each simulated node that has made a request.
    callers: Arc<Mutex<HashMap<Arc<str>, InProcess>>>,
}

impl Nodes {
    fn new(server: Server) -> Self {
        Nodes { server, callers: Arc::default() }
    }

    fn caller(&self, name: Arc<str>) -> InProcess {
        let mut callers = self.callers.lock();
        let new = || self.server.in_process(node(&name)).agent("kubelet");
        callers.entry(Arc::clone(&name)).or_insert_with(new).clone()
    }
}

impl Service<Request<Body>> for Nodes {
    type Response = http::Response<server::body::BytesBody>;
    type Error = Broken;
    type Future = <InProcess as Service<Request<Body>>>::Future;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Broken>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let acting = request.extensions().get::<ActingNode>().map(|acting| Arc::clone(&acting.0));
        // A request without a node would be refused: no node has an empty name.
        self.caller(acting.unwrap_or_default()).call(request)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::authorization::Authorization;

    #[test]
    fn users_are_those_of_a_genuine_cluster() {
        let account = account("deployment-controller");
        assert_eq!(account.name, "system:serviceaccount:kube-system:deployment-controller");
        let groups = ["system:serviceaccounts", "system:serviceaccounts:kube-system", "system:authenticated"];
        assert_eq!(account.groups, groups);
        let node = node("node-1");
        assert_eq!((node.name.as_str(), node.groups.len()), ("system:node:node-1", 2));
        assert!(node.in_group("system:nodes") && !node.is_master());
        let names = names(2);
        for name in ["system:node:node-2", "system:kube-scheduler", "system:serviceaccount:kube-system:job-controller"]
        {
            assert!(names.contains(name), "{name}");
        }
        assert!(!names.contains("system:apiserver"));
    }

    #[test]
    fn simulated_nodes_bring_their_mode_where_roles_decide() {
        let with_nodes = |modes: &[&str]| Authorization::of_modes(modes).unwrap().with_nodes();
        assert!(with_nodes(&["RBAC"]).restricts_nodes());
        assert!(with_nodes(&["Node", "RBAC"]).restricts_nodes());
        assert!(!with_nodes(&["AlwaysAllow"]).restricts_nodes());
    }
}
