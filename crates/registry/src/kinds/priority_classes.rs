//! PriorityClasses: those of the system cannot be deleted.

use super::KindBehaviour;

const SYSTEM_CLASSES: [&str; 2] = ["system-node-critical", "system-cluster-critical"];

pub(super) struct PriorityClasses;

impl KindBehaviour for PriorityClasses {
    fn undeletable(&self, name: &str) -> Option<&'static str> {
        SYSTEM_CLASSES.contains(&name).then_some("this is a system priority class and cannot be deleted")
    }
}
