//! The condition `Available` of an APIService.

use machinery::Status;
use machinery::json::{Value, json};

use super::local;
use crate::admission::plugin::{Attributes, Operation, Options};
use crate::meta;
use crate::registry::Registry;
use crate::request::Context;
use crate::write::update::{Author, rewrite};

const MANAGER: &str = "kube-apiserver";

/// Whether the server behind an APIService can be used, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Availability {
    pub available: bool,
    pub reason: &'static str,
    pub message: std::borrow::Cow<'static, str>,
}

/// The condition of an APIService that this server serves.
pub(super) const LOCAL: Availability = Availability {
    available: true,
    reason: "Local",
    message: std::borrow::Cow::Borrowed("Local APIServices are always available"),
};

/// Writes the condition; nothing if the object has it already, or is another one than that of the uid.
pub(crate) async fn write(
    registry: &Registry,
    name: &str,
    uid: Option<&str>,
    availability: &Availability,
) -> Result<(), Status> {
    let target = local::target(registry, name, Some("status"))?;
    let ctx = Context::default();
    let attributes = Attributes::new(Operation::Update, &target, Options::None, &ctx);
    let now = meta::timestamp(registry.now());
    let change = |old: &Value| {
        if uid.is_some_and(|uid| meta::uid(old) != uid) {
            return Err(Status::not_found(&target.gr(), name));
        }
        let mut new = old.clone();
        set(&mut new, availability, &now);
        Ok(new)
    };
    rewrite(registry, &attributes, &Author::through(MANAGER, Some("status")), change).await.map(|_| ())
}

/// Replaces the condition; its time stays if its status does.
fn set(object: &mut Value, availability: &Availability, now: &str) {
    let conditions = &mut object["status"]["conditions"];
    if !conditions.is_array() {
        *conditions = json!([]);
    }
    let Some(conditions) = conditions.as_array_mut() else { return };
    let status = if availability.available { "True" } else { "False" };
    let mut next = json!({
        "type": "Available", "status": status, "lastTransitionTime": now,
        "reason": availability.reason, "message": availability.message,
    });
    match conditions.iter_mut().find(|condition| condition["type"] == "Available") {
        Some(held) => {
            if held["status"] == status {
                next["lastTransitionTime"] = held["lastTransitionTime"].clone();
            }
            *held = next;
        }
        None => conditions.push(next),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agg_4_the_time_of_the_condition_changes_with_its_status() {
        let mut object = json!({});
        let failing = Availability {
            available: false,
            reason: "ServiceNotFound",
            message: "service/s in \"n\" is not present".into(),
        };
        set(&mut object, &failing, "t1");
        let other = Availability { reason: "MissingEndpoints", ..failing };
        set(&mut object, &other, "t2");
        let condition = &object["status"]["conditions"][0];
        assert_eq!(
            (&condition["reason"], &condition["lastTransitionTime"]),
            (&json!("MissingEndpoints"), &json!("t1"))
        );
        set(&mut object, &LOCAL, "t3");
        assert_eq!(object["status"]["conditions"].as_array().map(|all| all.len()), Some(1));
        assert_eq!(object["status"]["conditions"][0]["lastTransitionTime"], "t3");
        assert_eq!(object["status"]["conditions"][0]["status"], "True");
    }
}
