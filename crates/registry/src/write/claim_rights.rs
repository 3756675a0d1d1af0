//! Rights to parts of the status of a ResourceClaim, beyond the one to the status itself.
//!
//! | changed | right |
//! |---|---|
//! | `allocation`, `reservedFor` | the request's verb on `resourceclaims/binding`, in the whole cluster |
//! | `devices` of a driver | `arbitrary-node:<verb>` on `resourceclaims/driver` with the driver's name; an account that runs on the node of the claim may have `associated-node:<verb>` instead |

use std::collections::{BTreeMap, BTreeSet};

use access::User;
use access::authorizer::{Attributes as Request, ResourceAttributes, What, forbidden};
use machinery::FieldError;
use machinery::json::Value;

use crate::admission::plugin::{Attributes, Options};
use crate::collections::RESOURCE_CLAIMS;
use crate::registry::Registry;

const ACCOUNT: &str = "system:serviceaccount:";
const NODE_NAME: &str = "authentication.kubernetes.io/node-name";

/// Refuses changes of a claim's status that the user has no right to. Nothing for any other write.
pub(crate) async fn check(
    registry: &Registry,
    attributes: &Attributes<'_>,
    new: &Value,
    old: &Value,
) -> Vec<FieldError> {
    if attributes.subresource() != Some("status") || attributes.target.kind.collection != RESOURCE_CLAIMS {
        return Vec::new();
    }
    let verb = match attributes.options {
        Options::Update(_) => "update",
        Options::Patch(_) => "patch",
        // A write of the server's own.
        Options::Create(_) | Options::Delete(_) | Options::None => return Vec::new(),
    };
    let (new, old) = (&new["status"], &old["status"]);
    let mut errors = Vec::new();
    if !is_same(&new["allocation"], &old["allocation"]) || !is_same(&new["reservedFor"], &old["reservedFor"]) {
        let about = ResourceAttributes { subresource: "binding", ..resource(attributes) };
        if let Err(why) = confirm(registry, attributes, verb, about).await {
            let right = format!("resource=\"resourceclaims/binding\", verb=\"{verb}\" permission: {why}");
            let why = format!("changing status.allocation or status.reservedFor requires {right}");
            errors.push(FieldError::forbidden("status.allocation", why));
        }
    }
    // Devices go with the allocation, whatever the rights of the user that removes it.
    if new["allocation"].is_null() {
        return errors;
    }
    let mut verbs = vec![format!("arbitrary-node:{verb}")];
    if allocated_node(&new["allocation"]).is_some_and(|node| runs_on(&attributes.ctx.user, node)) {
        verbs.insert(0, format!("associated-node:{verb}"));
    }
    for driver in changed_drivers(new, old) {
        if let Err(why) = confirm_driver(registry, attributes, &verbs, driver).await {
            let verbs = verbs.join(" ");
            let right = format!("resource=\"resourceclaims/driver\", verb=\"[{verbs}]\" permission: {why}");
            errors.push(FieldError::forbidden("status.devices", format!("changing status.devices requires {right}")));
        }
    }
    errors
}

fn resource<'a>(attributes: &Attributes<'a>) -> ResourceAttributes<'a> {
    let kind = &attributes.target.kind;
    ResourceAttributes {
        group: &kind.gvk.group,
        version: &kind.gvk.version,
        resource: &kind.plural,
        ..ResourceAttributes::default()
    }
}

/// Any of the verbs is enough. The error is the refusal of the first.
async fn confirm_driver(
    registry: &Registry,
    attributes: &Attributes<'_>,
    verbs: &[String],
    driver: &str,
) -> Result<(), String> {
    let namespace = attributes.target.namespace.as_deref().unwrap_or_default();
    let about = ResourceAttributes { subresource: "driver", namespace, name: driver, ..resource(attributes) };
    let mut refused = None;
    for verb in verbs {
        match confirm(registry, attributes, verb, about).await {
            Ok(()) => return Ok(()),
            Err(why) => refused = refused.or(Some(why)),
        }
    }
    Err(refused.unwrap_or_default())
}

async fn confirm(
    registry: &Registry,
    attributes: &Attributes<'_>,
    verb: &str,
    about: ResourceAttributes<'_>,
) -> Result<(), String> {
    let request = Request { user: &attributes.ctx.user, verb, what: What::Resource(about) };
    let mut decision = registry.settings().authorizer.authorize(&request).get().await;
    if decision.allowed {
        return Ok(());
    }
    decision.reason = match (decision.error.is_empty(), decision.reason.is_empty()) {
        (true, _) => decision.reason,
        (false, true) => decision.error.clone(),
        (false, false) => format!("{}: {}", decision.error, decision.reason).into(),
    };
    Err(forbidden(&request, &decision).message)
}

/// Whether two values are the same; an empty list is the same as none.
fn is_same(one: &Value, other: &Value) -> bool {
    let is_empty = |value: &Value| value.is_null() || value.as_array().is_some_and(|items| items.is_empty());
    one == other || (is_empty(one) && is_empty(other))
}

/// The drivers of devices whose status is new, changed or gone.
fn changed_drivers<'v>(new: &'v Value, old: &'v Value) -> BTreeSet<&'v str> {
    let devices = |status: &'v Value| status["devices"].as_array().into_iter().flat_map(|devices| devices.iter());
    let key = |device: &'v Value| ["driver", "pool", "device", "shareID"].map(|part| device[part].as_str());
    let driver = |device: &'v Value| device["driver"].as_str().unwrap_or_default();
    let mut before: BTreeMap<_, _> = devices(old).map(|device| (key(device), device)).collect();
    let mut drivers = BTreeSet::new();
    for device in devices(new) {
        if before.remove(&key(device)) != Some(device) {
            drivers.insert(driver(device));
        }
    }
    drivers.extend(before.into_values().map(driver));
    drivers
}

/// The one node that an allocation is for.
fn allocated_node(allocation: &Value) -> Option<&str> {
    let only = |list: &Value| list.as_array().is_some_and(|items| items.len() == 1);
    let terms = &allocation["nodeSelector"]["nodeSelectorTerms"];
    let (expressions, fields) = (&terms[0]["matchExpressions"], &terms[0]["matchFields"]);
    let (field, values) = (&fields[0], &fields[0]["values"]);
    let is_exact = only(terms)
        && is_same(expressions, &Value::Null)
        && only(fields)
        && field["key"] == "metadata.name"
        && field["operator"] == "In"
        && only(values);
    values[0].as_str().filter(|node| is_exact && !node.is_empty())
}

/// Whether a user is a service account of a pod on this node.
fn runs_on(user: &User, node: &str) -> bool {
    let is_account = user.name.strip_prefix(ACCOUNT).is_some_and(|rest| rest.contains(':'));
    is_account && user.extra.get(NODE_NAME).is_some_and(|nodes| matches!(nodes.as_slice(), [only] if only == node))
}

#[cfg(test)]
mod tests {
    use super::*;
    use machinery::json::json;

    #[test]
    fn az_76_drivers_whose_devices_changed() {
        let device = |driver: &str, name: &str, data: u8| json!({"driver": driver, "pool": "p", "device": name, "data": {"n": data}});
        let status = |devices: &[Value]| json!({"devices": devices});
        let old = status(&[device("a", "x", 1), device("b", "x", 1), device("c", "x", 1)]);
        let new = status(&[device("c", "x", 1), device("b", "x", 2), device("d", "x", 1)]);
        assert_eq!(changed_drivers(&new, &old).into_iter().collect::<Vec<_>>(), ["a", "b", "d"]);
        assert!(changed_drivers(&old, &old).is_empty());
    }

    #[test]
    fn az_76_an_account_on_the_node_of_the_claim() {
        let allocation = |fields: Value| json!({"nodeSelector": {"nodeSelectorTerms": [{"matchFields": fields}]}});
        let one = json!([{"key": "metadata.name", "operator": "In", "values": ["n1"]}]);
        assert_eq!(allocated_node(&allocation(one)), Some("n1"));
        let two = json!([{"key": "metadata.name", "operator": "In", "values": ["n1", "n2"]}]);
        assert_eq!(allocated_node(&allocation(two)), None);
        assert_eq!(allocated_node(&json!({})), None);
        let mut user = User { name: "system:serviceaccount:n:driver".to_owned(), ..User::default() };
        assert!(!runs_on(&user, "n1"));
        user.extra.insert(NODE_NAME.to_owned(), vec!["n1".to_owned()]);
        assert!(runs_on(&user, "n1") && !runs_on(&user, "n2"));
        user.name = "alice".to_owned();
        assert!(!runs_on(&user, "n1"));
    }
}
