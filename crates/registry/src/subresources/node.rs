//! What only the node of a pod could answer. No node agent runs here, so a clear refusal is the answer; what is wrong
//! with the question itself is said first.

use cache::Item;
use machinery::Status;
use serde_json::Value;

use crate::request::Target;
use crate::view::{self, View};

pub(super) fn show(target: &Target, what: &str, item: &Item) -> Result<View, Status> {
    let pod = view::parse(item)?;
    let unscheduled = pod["spec"]["nodeName"].as_str().unwrap_or_default().is_empty();
    if target.kind.collection == "core/pods" && unscheduled {
        if what == "log" {
            // Nothing has been said yet.
            return Ok(View::Made { kind: None, value: Value::Null });
        }
        return Err(Status::bad_request(format!("pod {} does not have a host assigned", target.name())));
    }
    Err(Status::not_implemented(format!(
        "{what} needs a node agent, and {} {:?} has none",
        target.kind.singular,
        target.name()
    )))
}
