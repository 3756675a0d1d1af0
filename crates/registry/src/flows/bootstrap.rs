//! The priority levels and flow schemas that every cluster has: created at the start, and restored when they are changed.
//!
//! The specs of the mandatory ones (`exempt`, `catch-all`) are always restored; those of the others while they carry the
//! annotation `apf.kubernetes.io/autoupdate-spec: "true"`.

use std::sync::{Arc, Weak};
use std::time::Duration;

use machinery::Status;
use machinery::json::{Value, json};
use tokio::task::JoinSet;

use super::GROUP;
use crate::admission::plugin::{Attributes, Operation, Options};
use crate::read::view;
use crate::registry::Registry;
use crate::request::{Context, Target};
use crate::write::create::{Tracking, create_draft};
use crate::write::draft::Draft;
use crate::write::update::{Author, rewrite};

/// One object a line: kind, name, spec.
const OBJECTS: &str = include_str!("objects.jsonl");
const MANAGER: &str = "api-priority-and-fairness-config-producer-v1";
const MANDATORY: [&str; 2] = ["exempt", "catch-all"];
const AUTO_UPDATE: &str = "apf.kubernetes.io/autoupdate-spec";
/// Wait before objects are looked at again, after a failure.
const RETRY: Duration = Duration::from_secs(1);

/// An object that every cluster has.
pub(super) struct Object {
    kind: String,
    name: String,
    spec: Value,
}

impl Object {
    pub(super) fn value(&self) -> Value {
        json!({
            "kind": self.kind,
            "apiVersion": "flowcontrol.apiserver.k8s.io/v1",
            "metadata": {"name": self.name, "annotations": {AUTO_UPDATE: "true"}},
            "spec": self.spec,
        })
    }

    fn plural(&self) -> &'static str {
        if self.kind == "FlowSchema" { "flowschemas" } else { "prioritylevelconfigurations" }
    }

    /// The object with its spec restored; none if it may stay as it is.
    fn restored(&self, existing: &Value) -> Option<Value> {
        let annotation = existing["metadata"]["annotations"][AUTO_UPDATE].as_str();
        let is_mandatory = MANDATORY.contains(&self.name.as_str());
        let wants_spec = is_mandatory || annotation.is_some_and(|text| text == "true");
        let mut next = existing.clone();
        if wants_spec && !includes(&existing["spec"], &self.spec) {
            next["spec"] = self.spec.clone();
        }
        if is_mandatory && annotation != Some("true") {
            next["metadata"]["annotations"][AUTO_UPDATE] = json!("true");
        }
        (next != *existing).then_some(next)
    }
}

/// Whether a value has everything of another. The stored form may have defaults beyond that.
fn includes(stored: &Value, wanted: &Value) -> bool {
    match (stored, wanted) {
        (Value::Object(stored), Value::Object(wanted)) => {
            wanted.iter().all(|(name, wanted)| stored.get(name).is_some_and(|stored| includes(stored, wanted)))
        }
        (Value::Array(stored), Value::Array(wanted)) => {
            stored.len() == wanted.len() && stored.iter().zip(wanted.iter()).all(|(a, b)| includes(a, b))
        }
        (stored, wanted) => stored == wanted,
    }
}

/// The objects of the table.
pub(super) fn objects() -> impl Iterator<Item = Object> {
    OBJECTS.lines().filter_map(|line| {
        let mut line = machinery::json::from_str(line).ok()?;
        let text = |value: &Value| value.as_str().map(str::to_owned);
        Some(Object { kind: text(&line["kind"])?, name: text(&line["name"])?, spec: line["spec"].take() })
    })
}

/// Whether a change of this object is one to look at.
pub(super) fn is_kept(name: &str) -> bool {
    static NAMES: std::sync::LazyLock<Vec<String>> =
        std::sync::LazyLock::new(|| objects().map(|object| object.name).collect());
    NAMES.iter().any(|kept| kept == name)
}

/// Creates and restores the objects. What fails is tried again in the background.
pub(crate) async fn restore(registry: &Arc<Registry>) {
    if let Err(why) = restore_all(registry).await {
        tracing::warn!(why, "priority levels and flow schemas are not complete; another attempt follows");
        registry.flows().changes.notify_one();
    }
}

/// Restores objects when they were changed or deleted.
pub(crate) async fn follow(registry: Weak<Registry>) {
    loop {
        let Some(changes) = registry.upgrade().map(|registry| Arc::clone(&registry.flows().changes)) else { return };
        changes.notified().await;
        let Some(registry) = registry.upgrade() else { return };
        if let Err(why) = restore_all(&registry).await {
            tracing::warn!(why, "priority levels and flow schemas are not complete; another attempt follows");
            tokio::time::sleep(RETRY).await;
            changes.notify_one();
        }
    }
}

async fn restore_all(registry: &Arc<Registry>) -> Result<(), String> {
    registry.storage().fresh().await.map_err(|status| status.message)?;
    // Together, so that a first start waits for few syncs and not for nineteen.
    let mut tasks = JoinSet::new();
    for object in objects() {
        let registry = Arc::clone(registry);
        tasks.spawn(async move {
            restore_one(&registry, &object).await.map_err(|status| format!("{}: {}", object.name, status.message))
        });
    }
    let mut failed: Vec<String> = Vec::new();
    while let Some(done) = tasks.join_next().await {
        failed.extend(done.unwrap_or_else(|panic| Err(panic.to_string())).err());
    }
    if failed.is_empty() { Ok(()) } else { Err(failed.join("; ")) }
}

async fn restore_one(registry: &Registry, object: &Object) -> Result<(), Status> {
    let kinds = registry.kinds();
    let Some(kind) = kinds.get(GROUP, "v1", object.plural()) else {
        return Err(Status::internal(format_args!("{} are not served", object.plural())));
    };
    let target = Target { kind: Arc::clone(kind), namespace: None, name: Some(object.name.clone()), subresource: None };
    let key = registry.key(&target)?;
    // An object that cannot be read is reported by the cache.
    if registry.collection(kind).damaged(&key).is_some() {
        return Ok(());
    }
    let ctx = Context::default();
    let existing = registry.storage().visible(&key)?.map(|item| view::parse(&item)).transpose()?;
    let done = match existing {
        None => {
            let attributes = Attributes::new(Operation::Create, &target, Options::None, &ctx);
            let draft = Draft::new(object.value());
            create_draft(registry, &attributes, draft, Tracking::Creator(MANAGER)).await.map(|_| ())
        }
        Some(existing) if object.restored(&existing).is_none() => return Ok(()),
        Some(_) => {
            let attributes = Attributes::new(Operation::Update, &target, Options::None, &ctx);
            let change = |existing: &Value| Ok(object.restored(existing).unwrap_or_else(|| existing.clone()));
            rewrite(registry, &attributes, &Author::through(MANAGER, None), change).await.map(|_| ())
        }
    };
    match done {
        // Another server on the same store was first, or the object was deleted meanwhile and is looked at again.
        Err(status) if status.is_already_exists() || status.is_not_found() => Ok(()),
        done => done,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn apf_4_the_table_has_all_objects_and_they_are_valid() {
        let all: Vec<Object> = objects().collect();
        assert_eq!(all.len(), OBJECTS.lines().count());
        let names = |kind: &str| all.iter().filter(|object| object.kind == kind).count();
        assert_eq!((names("PriorityLevelConfiguration"), names("FlowSchema")), (8, 11));
        for object in &all {
            let kind = crate::kinds::builtin().get(GROUP, "v1", object.plural()).expect("a built-in kind");
            let mut value = object.value();
            schema::defaults::apply(kind, &mut value, None);
            assert!(includes(&value["spec"], &object.spec));
            assert_eq!(schema::validation::validate_create(kind, &value, false), [], "{}", object.name);
        }
    }

    #[test]
    fn apf_4_mandatory_specs_are_always_restored_and_others_while_they_are_ours() {
        let find = |name: &str, kind: &str| objects().find(|one| one.name == name && one.kind == kind).expect("known");
        let (mandatory, suggested) = (find("catch-all", "FlowSchema"), find("probes", "FlowSchema"));
        for (object, annotation, is_restored) in [
            (&mandatory, "false", true),
            (&mandatory, "true", true),
            (&suggested, "true", true),
            (&suggested, "false", false),
        ] {
            let mut changed = object.value();
            assert_eq!(object.restored(&changed), None);
            changed["spec"]["matchingPrecedence"] = json!(77);
            changed["metadata"]["annotations"][AUTO_UPDATE] = json!(annotation);
            let restored = object.restored(&changed).map(|object| object["spec"]["matchingPrecedence"].clone());
            assert_eq!(restored, is_restored.then(|| object.spec["matchingPrecedence"].clone()), "{annotation}");
        }
    }
}
