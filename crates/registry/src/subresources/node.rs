//! Subresources that only a node agent could serve: logs, and connections to containers. No agent runs here, so the answer is
//! a clear refusal; what is wrong with the request itself is refused first.

use machinery::Status;
use machinery::json::{Value, json};
use machinery::query::Query;

use crate::admission::plugin::{Attributes, Operation, Options};
use crate::read::view;
use crate::registry::Registry;
use crate::request::{Context, Target};

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

/// Forwards a request to the node of the target. `Ok` is an empty log: that of a pod without a node.
pub(crate) async fn connect(registry: &Registry, target: &Target, query: &Query, ctx: &Context) -> Result<(), Status> {
    let request = NodeRequest { target, query };
    let attributes = Attributes::new(Operation::Connect, target, Options::None, ctx);
    if request.subresource() != "log" {
        registry.admission().admit_connect(&attributes, options_of(&request)).await?;
    }
    attributes.behaviour.check_node_request(&request)?;
    let item = registry.storage().current(&registry.key(target)?).await?;
    let item = item.ok_or_else(|| Status::not_found(&target.gr(), target.name()))?;
    attributes.behaviour.serve_node_request(&request, &view::parse(&item)?)
}

/// The refusal of everything that an agent would have to do.
pub(crate) fn needs_agent(request: &NodeRequest<'_>) -> Status {
    let (kind, name) = (&request.target.kind.singular, request.target.name());
    Status::not_implemented(format!("{} needs a node agent, and {kind} {name:?} has none", request.subresource()))
}

/// The options of a connection as the object that admission sees.
fn options_of(request: &NodeRequest<'_>) -> Value {
    let subresource = match request.subresource() {
        "exec" => "Exec",
        "attach" => "Attach",
        "portforward" => "PortForward",
        _ => "Proxy",
    };
    let mut options =
        json!({"kind": format!("{}{subresource}Options", request.target.kind.gvk.kind), "apiVersion": "v1"});
    for name in ["container", "path"] {
        if let Some(text) = request.query.get(name) {
            options[name] = json!(text);
        }
    }
    for name in ["stdin", "stdout", "stderr", "tty"] {
        if request.query.truth(name).unwrap_or_default() {
            options[name] = json!(true);
        }
    }
    options
}
