//! Subresources that only a node agent could serve: logs, and connections to containers. No agent runs here, so the answer is
//! a clear refusal; what is wrong with the request itself is refused first.

use machinery::Status;
use machinery::json::{Value, json};
use machinery::query::Query;

use crate::admission::plugin::{Attributes, Operation, Options};
use crate::read::view;
use crate::registry::Registry;
use crate::request::{Context, Target};
use crate::write::rights;

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
pub(crate) async fn connect(
    registry: &Registry,
    target: &Target,
    query: &Query,
    path: &str,
    ctx: &Context,
) -> Result<(), Status> {
    let request = NodeRequest { target, query };
    let attributes = Attributes::new(Operation::Connect, target, Options::None, ctx);
    if request.subresource() != "log" {
        if query.get("dryRun").is_some_and(|value| !value.is_empty()) {
            return Err(Status::bad_request("dryRun is not supported"));
        }
        registry.admission().admit_connect(&attributes, options_of(&request, path)).await?;
        rights::confirm_connect(registry, target, ctx).await?;
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
fn options_of(request: &NodeRequest<'_>, path: &str) -> Value {
    let subresource = match request.subresource() {
        "exec" => "Exec",
        "attach" => "Attach",
        "portforward" => "PortForward",
        _ => "Proxy",
    };
    let mut options =
        json!({"kind": format!("{}{subresource}Options", request.target.kind.gvk.kind), "apiVersion": "v1"});
    let query = request.query;
    let texts = |name: &str| query.all(name).map(str::to_owned).collect::<Vec<String>>();
    match request.subresource() {
        "proxy" => {
            if !path.is_empty() {
                options["path"] = json!(path);
            }
        }
        "portforward" => {
            let ports = query.all("ports").flat_map(|list| list.split(',')).filter_map(|port| port.trim().parse().ok());
            let ports: Vec<i32> = ports.collect();
            if !ports.is_empty() {
                options["ports"] = json!(ports);
            }
        }
        subresource => {
            for name in ["stdin", "stdout", "stderr", "tty"] {
                if query.truth(name).unwrap_or_default() {
                    options[name] = json!(true);
                }
            }
            if let Some(container) = query.get("container").filter(|container| !container.is_empty()) {
                options["container"] = json!(container);
            }
            if subresource == "exec" && query.get("command").is_some() {
                options["command"] = json!(texts("command"));
            }
        }
    }
    options
}
