//! The condition `Dangling` of flow schemas: whether the priority level that they name is missing (APF-9).
//!
//! It is written before the write that changes it is answered. The schemas that every cluster has get it once it is not the
//! usual one, so that a first start writes each of them once.

use bytes::Bytes;
use machinery::json::json;
use machinery::media::PatchType;
use machinery::options::PatchOptions;

use super::{GROUP, Objects, bootstrap};
use crate::collections::{FLOW_SCHEMAS, PRIORITY_LEVELS};
use crate::meta;
use crate::registry::Registry;
use crate::request::{Context, PatchBody, Target, WriteRequest};

/// The manager of the status.
const MANAGER: &str = "api-priority-and-fairness-config-consumer-v1";

/// A schema whose condition is not that of the moment.
pub(super) struct Misreported {
    schema: String,
    level: String,
    is_dangling: bool,
}

/// Whether a write of this target may change conditions.
pub(crate) fn concerns(target: &Target) -> bool {
    matches!(target.kind.collection.as_str(), FLOW_SCHEMAS | PRIORITY_LEVELS)
}

impl Objects {
    pub(super) fn misreported(&self) -> Vec<Misreported> {
        let wrong = self.schemas.values().filter_map(|schema| {
            let is_dangling = !self.levels.contains_key(&schema.level);
            let is_wrong = match schema.reported_dangling {
                Some(reported) => reported != is_dangling,
                None => is_dangling || !bootstrap::is_kept(&schema.name),
            };
            is_wrong.then(|| Misreported { schema: schema.name.clone(), level: schema.level.clone(), is_dangling })
        });
        wrong.collect()
    }
}

/// Writes the conditions that are not right any more.
pub(crate) async fn publish(registry: &Registry) {
    let misreported = registry.flows().objects.lock().misreported();
    for Misreported { schema, level, is_dangling } in misreported {
        let kinds = registry.kinds();
        let Some(kind) = kinds.get(GROUP, "v1", "flowschemas") else { return };
        let (status, reason, so) = match is_dangling {
            true => ("True", "NotFound", "but there is no such object"),
            false => ("False", "Found", "and it exists"),
        };
        let level = machinery::go_text::quote(&level);
        let condition = json!({
            "type": "Dangling",
            "status": status,
            "lastTransitionTime": meta::timestamp(registry.now()),
            "reason": reason,
            "message": format!("This FlowSchema references the PriorityLevelConfiguration object named {level} {so}"),
        });
        let object = json!({
            "apiVersion": kind.group_version().to_string(),
            "kind": kind.gvk.kind,
            "metadata": {"name": schema},
            "status": {"conditions": [condition]},
        });
        let subresource = Some("status".to_owned());
        let target = Target { kind: kind.clone(), namespace: None, name: Some(schema.clone()), subresource };
        let body = PatchBody { bytes: Bytes::from(object.to_string()), kind: PatchType::Apply };
        let options = PatchOptions { field_manager: MANAGER.to_owned(), force: true, ..PatchOptions::default() };
        let request = WriteRequest { target: &target, options: &options, ctx: &Context::default() };
        // The object was written, whether or not this succeeds; the next write of a schema or level tries again.
        if let Err(status) = crate::write::apply::apply(registry, request, &body).await {
            tracing::debug!(schema, %status, "the condition of a flow schema is not stored");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::flows::table::{FlowSchema, PriorityLevel};
    use machinery::json::Value;

    fn schema(name: &str, level: &str, reported: Value) -> (String, Arc<FlowSchema>) {
        let object = json!({
            "metadata": {"name": name},
            "spec": {"priorityLevelConfiguration": {"name": level}},
            "status": {"conditions": reported},
        });
        (name.to_owned(), Arc::new(FlowSchema::read(&object)))
    }

    #[test]
    fn apf_9_conditions_that_are_not_right() {
        let level = json!({"metadata": {"name": "there"}, "spec": {"type": "Exempt"}});
        let dangling = |status: &str| json!([{"type": "Other"}, {"type": "Dangling", "status": status}]);
        let objects = Objects {
            levels: [("there".to_owned(), Arc::new(PriorityLevel::read(&level)))].into(),
            schemas: [
                schema("a", "there", dangling("False")),
                schema("b", "there", dangling("True")),
                schema("c", "gone", dangling("True")),
                schema("d", "gone", dangling("False")),
                schema("e", "there", json!([])),
                schema("f", "gone", json!(null)),
                schema("probes", "there", json!(null)),
                schema("exempt", "gone", json!(null)),
            ]
            .into(),
        };
        let wrong: Vec<(String, bool)> =
            objects.misreported().into_iter().map(|wrong| (wrong.schema, wrong.is_dangling)).collect();
        let expected = [("b", false), ("d", true), ("e", false), ("exempt", true), ("f", true)];
        assert_eq!(wrong, expected.map(|(name, is_dangling)| (name.to_owned(), is_dangling)));
    }
}
