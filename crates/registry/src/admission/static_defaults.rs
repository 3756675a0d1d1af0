//! Plugins that need nothing but the object: DefaultTolerationSeconds, TaintNodesByCondition, StorageObjectInUseProtection,
//! and of Priority what needs no lookup. The kinds they change are in `schema::strategy`.

use machinery::json::Value;

use super::plugin::{Attributes, Decision, Operation, Plugin};

pub(super) struct StaticDefaults;

impl Plugin for StaticDefaults {
    fn name(&self) -> &'static str {
        "DefaultTolerationSeconds"
    }

    fn concerns(&self, attributes: &Attributes<'_>) -> bool {
        attributes.subresource().is_none() && matches!(attributes.operation, Operation::Create | Operation::Update)
    }

    fn mutate<'a>(
        &'a self,
        attributes: &'a Attributes<'a>,
        object: &'a mut Value,
        old: Option<&'a Value>,
    ) -> Decision<'a> {
        match old {
            None => schema::strategy::admit_create(&attributes.target.kind, object),
            Some(old) => schema::strategy::admit_update(&attributes.target.kind, object, old),
        }
        Decision::ADMIT
    }
}
