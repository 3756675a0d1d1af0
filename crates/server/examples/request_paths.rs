//! The whole path of a request through the server, without sockets, run many times: `request_paths <path> <times>`.
//!
//! `cargo xtask counts` runs it under callgrind and compares the instructions with those on record. Everything happens in one
//! thread on a memory store, so that the same work is the same number of instructions. The paths are a get of one pod:
//!
//! - `request-get-open`: everything is allowed and nothing about users is recorded, as before there were roles
//! - `request-get-admin`: a member of `system:masters` on a server with roles
//! - `request-get-user`: a user with ten bindings, the last of which allows it

use std::sync::Arc;

use access::authorizer::{AlwaysAllow, Authorizer};
use access::identity::{AUTHENTICATED, User};
use access::union::{Member, Union};
use bytes::Bytes;
use http::{Method, Request};
use machinery::clock::Clock;
use machinery::json::{Value, json};
use registry::{Registry, Settings};
use server::authentication::Authenticator;
use server::authorization::Inspection;
use server::body::RequestBody;
use server::limits::Limits;
use server::metrics::Metrics;
use server::peer::{ClientCertificate, Peer};
use server::{Config, Server};
use store::Retention;
use store::memory::MemoryStore;

const PATHS: [&str; 3] = ["request-get-open", "request-get-admin", "request-get-user"];
const BINDINGS: usize = 10;
const POD: &str = "/api/v1/namespaces/default/pods/web";
const ROLES: &str = "/apis/rbac.authorization.k8s.io/v1/namespaces/default";

struct World {
    server: Server,
    admin: Arc<Peer>,
}

impl World {
    /// A server that decides by roles and records what users did, or one that allows everything.
    async fn new(has_roles: bool) -> Self {
        let roles: Arc<access::Rbac> = Arc::default();
        let (authorizer, inspection): (Arc<dyn Authorizer>, Inspection) = if has_roles {
            let rbac = Member::new("RBAC", "rbac", Arc::clone(&roles) as Arc<dyn Authorizer>);
            let inspection =
                Inspection { roles: Some(Arc::clone(&roles)), recorder: Some(Arc::default()), ..Inspection::default() };
            (Arc::new(Union::new(vec![rbac])), inspection)
        } else {
            (Arc::new(AlwaysAllow), Inspection::default())
        };
        let store = Arc::new(MemoryStore::new(Retention::default()));
        let settings = Settings { authorizer: Arc::clone(&authorizer), roles, ..Settings::default() };
        let registry = Registry::start(store, settings).await.expect("a memory store opens");
        let limits = Limits::default();
        let server_metrics = Arc::new(Metrics::new(&limits));
        let config = Config {
            limits,
            authenticator: Authenticator::default(),
            authorizer,
            inspection,
            traced_writes: 0,
            explain_refusals: false,
            metrics: prometheus_client::registry::Registry::default(),
            server_metrics,
            clock: Clock::system(),
            certificates_clock: Clock::system(),
        };
        World { server: Server::new(registry, config), admin: peer("admin", &["system:masters", AUTHENTICATED]) }
    }

    async fn send(&self, peer: &Arc<Peer>, method: Method, path: &str, body: Bytes) {
        let mut request = Request::new(RequestBody::from(body));
        *request.method_mut() = method;
        *request.uri_mut() = path.parse().expect("a path");
        let reply = self.server.call(request, Arc::clone(peer)).await;
        assert!(reply.status().is_success(), "{path}: {}", reply.status());
        std::hint::black_box(reply);
    }

    async fn create(&self, collection: &str, object: Value) {
        self.send(&self.admin, Method::POST, collection, object.to_string().into()).await;
    }

    async fn get(&self, peer: &Arc<Peer>) {
        self.send(peer, Method::GET, POD, Bytes::new()).await;
    }
}

/// A client on the network, so that its requests take seats like those of any other.
fn peer(name: &str, groups: &[&str]) -> Arc<Peer> {
    let groups = groups.iter().map(|group| (*group).to_owned()).collect();
    let user = User { name: name.to_owned(), groups, ..User::default() };
    Arc::new(Peer {
        address: Some(([127, 0, 0, 1], 40_000).into()),
        certificate: Some(ClientCertificate::InProcess(Arc::new(user))),
        ..Peer::default()
    })
}

/// The measured part: callgrind counts only below this function.
#[inline(never)]
fn measured(runtime: &tokio::runtime::Runtime, work: impl Future<Output = ()>) {
    runtime.block_on(work);
}

fn run(runtime: &tokio::runtime::Runtime, path: &str, times: usize) {
    let world = runtime.block_on(World::new(path != "request-get-open"));
    let user = peer("alice", &[AUTHENTICATED]);
    runtime.block_on(async {
        let containers = json!([{"name": "main", "image": "nginx:1.25"}]);
        let pod = json!({"metadata": {"name": "web"}, "spec": {"nodeName": "node-1", "containers": containers}});
        world.create("/api/v1/namespaces/default/pods", pod).await;
        for number in 0..BINDINGS {
            let resource = if number + 1 == BINDINGS { "pods" } else { "services" };
            let name = format!("role-{number}");
            let rule = json!({"apiGroups": [""], "resources": [resource], "verbs": ["get", "list", "watch"]});
            world.create(&format!("{ROLES}/roles"), json!({"metadata": {"name": name}, "rules": [rule]})).await;
            let role = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name});
            let subject = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "alice"});
            let binding = json!({"metadata": {"name": name}, "roleRef": role, "subjects": [subject]});
            world.create(&format!("{ROLES}/rolebindings"), binding).await;
        }
    });
    let peer = match path {
        "request-get-open" | "request-get-admin" => &world.admin,
        "request-get-user" => &user,
        other => panic!("no path is called {other}: {PATHS:?}"),
    };
    // The first request of a user fills what is kept for the others.
    runtime.block_on(world.get(peer));
    measured(runtime, async {
        for _ in 0..times {
            world.get(peer).await;
        }
    });
}

fn main() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime starts");
    let mut args = std::env::args().skip(1);
    let (Some(path), Some(times)) = (args.next(), args.next()) else {
        println!("{}", PATHS.join("\n"));
        return;
    };
    run(&runtime, &path, times.parse().expect("a number of times"));
}
