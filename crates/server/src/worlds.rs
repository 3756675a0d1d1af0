//! Worlds: control planes beside the one of this server, reached below `/worlds/NAME/` by the same listeners.
//!
//! The server knows how a request finds its world. What a world is made of, and when, is decided elsewhere.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, OnceLock, Weak};
use std::task::Poll;

use access::authorizer::Authorizer;
use http::Request;
use http::uri::{PathAndQuery, Uri};
use machinery::options::CreateOptions;
use machinery::{Clock, Status};
use registry::{Body, Outcome, Registry, WriteRequest};
use tokio::sync::watch;

use crate::authentication::Authenticator;
use crate::authorization::Inspection;
use crate::body::RequestBody;
use crate::fairness::Fairness;
use crate::request::costly::CostlyKinds;
use crate::service::{Inner, Lab, Server};

/// The name of the world that has no prefix.
pub const MAIN: &str = "main";
const PREFIX: &str = "/worlds/";

/// The answer of a write that worlds handle themselves.
pub type WriteFuture<'a> = Pin<Box<dyn Future<Output = Result<Outcome, Status>> + Send + 'a>>;

/// The worlds of a server.
pub trait Worlds: Send + Sync {
    /// The server of a world; none if there is no such world.
    fn find(&self, name: &str) -> Option<Server>;

    /// Answers a create of an object that stands for a world, or of something done to one; none leaves it to the registry.
    fn create<'a>(
        &'a self,
        registry: &'a Arc<Registry>,
        request: WriteRequest<'a, CreateOptions>,
        body: &'a Body,
    ) -> Option<WriteFuture<'a>>;
}

/// A server that may have been stopped.
#[derive(Clone)]
pub struct WeakServer(Weak<Inner>);

impl WeakServer {
    #[must_use]
    pub fn upgrade(&self) -> Option<Server> {
        self.0.upgrade().map(Server)
    }

    /// Whether this is that server.
    #[must_use]
    pub fn is(&self, server: &Server) -> bool {
        std::ptr::eq(self.0.as_ptr(), Arc::as_ptr(&server.0))
    }
}

/// The parts of a world's server that are not those of its origin.
pub struct WorldParts {
    pub name: Arc<str>,
    pub registry: Arc<Registry>,
    pub authenticator: Authenticator,
    pub authorizer: Arc<dyn Authorizer>,
    pub inspection: Inspection,
    /// The time that the world believes in.
    pub clock: Clock,
    /// None for a world that is only forked.
    pub lab: Option<Lab>,
}

impl Server {
    /// A server for another world. It shares limits, metrics, documents, the audit log and the pool for heavy requests with this one.
    #[must_use]
    pub fn beside(&self, parts: WorldParts) -> Server {
        let inner = &*self.0;
        let fairness = Arc::new(Fairness::new(&inner.limits));
        Server(Arc::new(Inner {
            world: parts.name,
            registry: parts.registry,
            limits: Arc::clone(&inner.limits),
            metrics: Arc::clone(&inner.metrics),
            metrics_registry: Arc::clone(&inner.metrics_registry),
            clock: parts.clock,
            certificates_clock: inner.certificates_clock.clone(),
            authenticator: parts.authenticator,
            authorizer: parts.authorizer,
            inspection: parts.inspection,
            traces: inner.traces.beside(),
            impersonations: crate::impersonation::Modes::default(),
            drain: Arc::default(),
            discovery: crate::discovery::DiscoveryBodies::default(),
            openapi: Arc::clone(&inner.openapi),
            heavy: Arc::clone(&inner.heavy),
            costly: CostlyKinds::default(),
            fairness,
            auditor: inner.auditor.clone(),
            aggregator: OnceLock::new(),
            lab: parts.lab.map(OnceLock::from).unwrap_or_default(),
            rewinds: watch::Sender::new(0),
            worlds: OnceLock::new(),
            containers: OnceLock::new(),
            usage: OnceLock::new(),
            queues: OnceLock::new(),
        }))
    }

    /// A reference that does not keep the server.
    #[must_use]
    pub fn downgrade(&self) -> WeakServer {
        WeakServer(Arc::downgrade(&self.0))
    }

    /// Counts the times that the objects of this world were made equal to those of the past.
    #[must_use]
    pub fn rewinds(&self) -> watch::Receiver<u64> {
        self.0.rewinds.subscribe()
    }

    /// Tells those who remember what they have done that the objects are those of the past.
    pub fn note_rewind(&self) {
        self.0.rewinds.send_modify(|count| *count += 1);
    }

    /// Serves these worlds from now on. Only the first ones are used.
    pub fn set_worlds(&self, worlds: Arc<dyn Worlds>) {
        let _ = self.0.worlds.set(worlds);
    }

    /// Completes when the server begins to stop.
    pub fn stopping(&self) -> impl Future<Output = ()> + Send + use<> {
        let mut ticket = self.0.drain.ticket();
        std::future::poll_fn(move |cx| if ticket.poll_begun(cx) { Poll::Ready(()) } else { Poll::Pending })
    }

    /// Ends every watch of this server cleanly, also those that are opened later.
    pub fn end_watches(&self) {
        self.0.drain.begin();
        self.0.registry.cache().end_watches();
    }

    /// The name of the world that this server serves.
    #[must_use]
    pub fn world(&self) -> &Arc<str> {
        &self.0.world
    }

    /// The server that a request is for, with the path as that server knows it.
    pub(crate) fn world_of(&self, request: &mut Request<RequestBody>) -> Option<Server> {
        let worlds = self.0.worlds.get()?;
        let rest = request.uri().path().strip_prefix(PREFIX)?;
        let name = rest.split('/').next().unwrap_or_default();
        let server = worlds.find(name)?;
        *request.uri_mut() = without_prefix(request.uri(), PREFIX.len() + name.len())?;
        Some(server)
    }
}

/// The same URI without the first bytes of its path.
fn without_prefix(uri: &Uri, bytes: usize) -> Option<Uri> {
    let rest = uri.path_and_query()?.as_str().get(bytes..)?;
    let path: PathAndQuery = if rest.starts_with('/') { rest.parse() } else { format!("/{rest}").parse() }.ok()?;
    let mut parts = uri.clone().into_parts();
    parts.path_and_query = Some(path);
    Uri::from_parts(parts).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wld_1_a_world_sees_the_path_below_its_prefix() {
        for (uri, bytes, expected) in [
            ("/worlds/a/api/v1/pods?watch=1", 9, "/api/v1/pods?watch=1"),
            ("/worlds/a", 9, "/"),
            ("/worlds/a?x=1", 9, "/?x=1"),
            ("https://host:1/worlds/a/version", 9, "https://host:1/version"),
        ] {
            assert_eq!(without_prefix(&uri.parse().unwrap(), bytes).unwrap().to_string(), expected, "{uri}");
        }
    }
}
