//! What writes of the lab's objects are checked for, and what they make happen.

use std::sync::Arc;

use machinery::json::Value;
use machinery::{FieldError, Status, glob};
use registry::orders::{Order, Orders};
use server::worlds::MAIN;

use crate::clocks::Clocks;
use crate::kinds::{CLOCKS, FAULTS};

/// The rules of one world's lab.
pub(crate) struct Rules {
    pub(crate) world: Arc<str>,
    pub(crate) clocks: Arc<Clocks>,
}

impl Orders for Rules {
    fn has(&self, collection: &str) -> bool {
        collection == CLOCKS
    }

    fn take(&self, old: &Value, new: &mut Value) -> Result<Option<Order>, Status> {
        self.clocks.take(old, new)
    }

    fn check(&self, collection: &str, new: &Value) -> Vec<FieldError> {
        if collection != FAULTS {
            return Vec::new();
        }
        let mut errors = foreign_worlds(&self.world, new);
        errors.extend(shared_connections(&self.world, new));
        errors
    }
}

/// An error if a fault of a world beside `main` is about other worlds.
fn foreign_worlds(world: &str, fault: &Value) -> Vec<FieldError> {
    let named = fault["spec"]["match"]["worlds"].as_array().map_or(&[][..], |named| named);
    let is_own = named.iter().filter_map(Value::as_str).any(|pattern| glob::fits(pattern, world));
    if world == MAIN || named.is_empty() || is_own {
        return Vec::new();
    }
    let why = format!("a fault of world {world} hits requests to {world}; make one in {MAIN} to hit others");
    vec![FieldError::invalid("spec.match.worlds", Value::Array(named.to_vec().into()), why)]
}

/// An error if a fault of a world beside `main` is about connections, which all worlds share.
fn shared_connections(world: &str, fault: &Value) -> Option<FieldError> {
    let is_about = !fault["spec"]["effect"]["refuseConnections"].is_null();
    let why = format!("all worlds share their connections; make the fault in {MAIN}");
    (world != MAIN && is_about).then(|| FieldError::forbidden("spec.effect.refuseConnections", why))
}

#[cfg(test)]
mod tests {
    use machinery::json::json;

    use super::*;

    #[test]
    fn flt_12_a_fault_of_a_world_may_not_refuse_connections() {
        let fault = json!({"spec": {"effect": {"refuseConnections": {"sources": ["127.0.0.1"]}}}});
        let error = shared_connections("a", &fault).expect("an error");
        assert_eq!(error.field, "spec.effect.refuseConnections");
        assert!(shared_connections("main", &fault).is_none());
        assert!(shared_connections("a", &json!({"spec": {"effect": {"delay": "1s"}}})).is_none());
    }

    #[test]
    fn wld_4_a_fault_of_a_world_may_not_name_others() {
        let errors =
            |world: &str, worlds: Value| foreign_worlds(world, &json!({"spec": {"match": {"worlds": worlds}}}));
        assert_eq!(errors("a", json!(["b", "main"]))[0].field, "spec.match.worlds");
        for (world, worlds) in [("a", json!(["a"])), ("a", json!([])), ("a", Value::Null), ("main", json!(["a"]))] {
            assert!(errors(world, worlds).is_empty());
        }
    }
}
