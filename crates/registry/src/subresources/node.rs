//! Subresources that the node of a pod serves: logs, and connections to containers. What is wrong with the request is refused
//! here; the caller, which knows the nodes, decides who serves it.

use machinery::json::Value;
use machinery::query::Query;
use machinery::{GroupResource, Status};

use super::connection;
use crate::admission::plugin::{Attributes, Operation, Options};
use crate::read::view;
use crate::registry::Registry;
use crate::request::{Context, Target};
use crate::write::rights;

/// The collection of nodes.
const NODES: &str = "core/nodes";

/// The subresources that a node serves.
pub const NODE_SUBRESOURCES: [&str; 5] = ["log", "exec", "attach", "portforward", "proxy"];

/// A request for a subresource that a node serves.
pub(crate) struct NodeRequest<'a> {
    pub(crate) target: &'a Target,
    pub(crate) query: &'a Query,
}

impl NodeRequest<'_> {
    pub(crate) fn subresource(&self) -> &str {
        self.target.subresource.as_deref().unwrap_or_default()
    }
}

/// A request that its node can serve.
#[derive(Debug)]
pub struct NodeConnection {
    /// The object, and the node that it runs on, if there is one.
    pub object: Value,
    pub node: Option<Value>,
    /// The name of the container; empty for requests that are about the whole pod.
    pub container: String,
    /// The parameters as admission changed them; none if it left them alone.
    pub query: Option<Query>,
    /// The refusal if the node is not served.
    pub unserved: Status,
}

/// What a kind knows of a request to a node.
pub(crate) enum NodeAnswer {
    /// The log of a pod that runs nowhere is empty.
    EmptyLog,
    /// The node of this name, and a container.
    At { node: String, container: String },
    /// Another program at an address of the object.
    Address,
}

/// Checks a request to the node of the target. None is an empty log: that of a pod without a node.
pub(crate) async fn connect(
    registry: &Registry,
    target: &Target,
    query: &Query,
    path: &str,
    ctx: &Context,
) -> Result<Option<NodeConnection>, Status> {
    let mut changed = None;
    let attributes = Attributes::new(Operation::Connect, target, Options::None, ctx);
    if attributes.subresource() != Some("log") {
        if query.get("dryRun").is_some_and(|value| !value.is_empty()) {
            return Err(Status::bad_request("dryRun is not supported"));
        }
        let sent = connection::options_of(&NodeRequest { target, query }, path);
        let options = registry.admission().admit_connect(&attributes, sent.clone()).await?;
        changed = (options != sent).then(|| connection::query_of(&options, query));
        rights::confirm_connect(registry, target, ctx).await?;
    }
    let request = NodeRequest { target, query: changed.as_ref().unwrap_or(query) };
    attributes.behaviour.check_node_request(&request)?;
    let item = registry.storage().current(&registry.key(target)?).await?;
    let item = item.ok_or_else(|| Status::not_found(&target.gr(), target.name()))?;
    let object = view::parse(&item)?;
    let (node, container) = match attributes.behaviour.locate_node_request(&request, &object)? {
        NodeAnswer::EmptyLog => return Ok(None),
        NodeAnswer::Address => (None, String::new()),
        NodeAnswer::At { node, container } => {
            let found = registry.cached_object(NODES, None, &node);
            let missing = || Status::not_found(&GroupResource::new("", "nodes"), &node);
            (Some(found.ok_or_else(missing)?), container)
        }
    };
    let unserved = needs_agent(&request);
    Ok(Some(NodeConnection { object, node, container, query: changed, unserved }))
}

/// The refusal of everything that an agent would have to do.
fn needs_agent(request: &NodeRequest<'_>) -> Status {
    let (kind, name) = (&request.target.kind.singular, request.target.name());
    Status::not_implemented(format!("{} needs a node agent, and {kind} {name:?} has none", request.subresource()))
}
