//! Plugins that need nothing but the object: TaintNodesByCondition, DefaultTolerationSeconds and StorageObjectInUseProtection.
//! What they change is in `schema::strategy`.

use machinery::json::Value;

use super::plugin::{Attributes, Decision, Operation, Plugin};
use crate::collections::{NODES, PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES, PODS, VOLUME_ATTRIBUTES_CLASSES};

pub(super) struct TaintNodesByCondition;

impl Plugin for TaintNodesByCondition {
    fn name(&self) -> &'static str {
        "TaintNodesByCondition"
    }

    fn concerns(&self, attributes: &Attributes<'_>) -> bool {
        attributes.writes(Operation::Create, NODES)
    }

    fn mutate<'a>(&'a self, _: &'a Attributes<'a>, node: &'a mut Value, _: Option<&'a Value>) -> Decision<'a> {
        schema::strategy::taint_new_node(node);
        Decision::ADMIT
    }
}

pub(super) struct DefaultTolerationSeconds;

impl Plugin for DefaultTolerationSeconds {
    fn name(&self) -> &'static str {
        "DefaultTolerationSeconds"
    }

    fn concerns(&self, attributes: &Attributes<'_>) -> bool {
        attributes.writes(Operation::Create, PODS) || attributes.writes(Operation::Update, PODS)
    }

    fn mutate<'a>(&'a self, _: &'a Attributes<'a>, pod: &'a mut Value, old: Option<&'a Value>) -> Decision<'a> {
        schema::strategy::tolerate_lost(pod, old);
        Decision::ADMIT
    }
}

pub(super) struct StorageObjectInUseProtection;

impl Plugin for StorageObjectInUseProtection {
    fn name(&self) -> &'static str {
        "StorageObjectInUseProtection"
    }

    fn concerns(&self, attributes: &Attributes<'_>) -> bool {
        let collections = [PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES, VOLUME_ATTRIBUTES_CLASSES];
        attributes.operation == Operation::Create
            && attributes.subresource().is_none()
            && collections.contains(&attributes.target.kind.collection.as_str())
    }

    fn mutate<'a>(
        &'a self,
        attributes: &'a Attributes<'a>,
        object: &'a mut Value,
        _: Option<&'a Value>,
    ) -> Decision<'a> {
        schema::strategy::protect_in_use(&attributes.target.kind, object);
        Decision::ADMIT
    }
}
