//! Creates and restores the roles and bindings that every cluster has, at each start.

use std::sync::{Arc, Weak};
use std::time::Duration;

use access::rbac::bootstrap::{self, Object, Step, reconcile};
use machinery::Status;
use machinery::json::{Value, json};
use machinery::options::DeleteOptions;
use tokio::task::JoinSet;

use super::{GROUP, MANAGER, aggregation};
use crate::admission::plugin::{Attributes, Operation, Options};
use crate::api_services::METRICS_GROUP;
use crate::meta;
use crate::read::view;
use crate::registry::Registry;
use crate::request::{Context, Target, WriteRequest};
use crate::write::create::{Tracking, create_draft};
use crate::write::delete;
use crate::write::draft::Draft;
use crate::write::update::{Author, rewrite};

/// Wait after a failure, before the objects are looked at again.
const RETRY: Duration = Duration::from_secs(1);
/// How often an object is looked at again because another server has changed it.
const ATTEMPTS: usize = 3;

/// Restores the objects. What fails is tried again in the background; until then the server is not ready.
pub(crate) async fn restore(registry: &Arc<Registry>) {
    if !attempt(registry).await {
        tokio::spawn(retry(Arc::downgrade(registry)));
    }
}

async fn retry(registry: Weak<Registry>) {
    loop {
        tokio::time::sleep(RETRY).await;
        let Some(registry) = registry.upgrade() else { return };
        if attempt(&registry).await {
            return;
        }
    }
}

async fn attempt(registry: &Arc<Registry>) -> bool {
    let failure = restore_all(registry).await.err();
    if let Some(why) = &failure {
        tracing::warn!(why, "the roles of every cluster are not complete; another attempt follows");
    }
    let is_complete = failure.is_none();
    *registry.roles().unrestored.lock() = failure;
    is_complete
}

async fn restore_all(registry: &Arc<Registry>) -> Result<(), String> {
    let mut objects = bootstrap::objects().map_err(|bad| bad.to_string())?;
    objects.extend(registry.kinds().group(METRICS_GROUP).map(|_| readers_of_usage()));
    registry.storage().fresh().await.map_err(|status| status.message)?;
    // Together, so that the store syncs them in a few groups. None depends on another.
    let mut tasks = JoinSet::new();
    for object in objects {
        let registry = Arc::clone(registry);
        tasks.spawn(async move { restore_one(&registry, &object).await.map_err(|status| (object.name, status)) });
    }
    let mut failed = Vec::new();
    while let Some(done) = tasks.join_next().await {
        match done {
            Ok(Ok(())) => {}
            Ok(Err((name, status))) => failed.push(format!("{name}: {}", status.message)),
            Err(panic) => failed.push(panic.to_string()),
        }
    }
    failed.sort_unstable();
    if let Err(status) = aggregation::write_outdated(registry).await {
        failed.push(status.message);
    }
    if failed.is_empty() { Ok(()) } else { Err(failed.join("; ")) }
}

/// The role that lets viewers read what nodes and pods use, as metrics-server brings it.
fn readers_of_usage() -> Object {
    const NAME: &str = "system:aggregated-metrics-reader";
    let label = |role: &str| format!("rbac.authorization.k8s.io/aggregate-to-{role}");
    let labels = json!({label("admin"): "true", label("edit"): "true", label("view"): "true"});
    let rule = json!({"apiGroups": [METRICS_GROUP], "resources": ["pods", "nodes"], "verbs": ["get", "list", "watch"]});
    let value = json!({
        "kind": "ClusterRole",
        "apiVersion": format!("{GROUP}/v1"),
        "metadata": {"name": NAME, "labels": labels, "annotations": {"rbac.authorization.kubernetes.io/autoupdate": "true"}},
        "rules": [rule],
    });
    Object { resource: "clusterroles", namespace: None, name: NAME, value }
}

async fn restore_one(registry: &Registry, object: &Object) -> Result<(), Status> {
    let kinds = registry.kinds();
    let Some(kind) = kinds.get(GROUP, "v1", object.resource) else {
        return Err(Status::internal(format_args!("{} are not served", object.resource)));
    };
    let target = Target {
        kind: Arc::clone(kind),
        namespace: object.namespace.map(str::to_owned),
        name: Some(object.name.to_owned()),
        subresource: None,
    };
    let key = registry.key(&target)?;
    // An object that cannot be read is reported by the cache.
    if registry.collection(kind).damaged(&key).is_some() {
        return Ok(());
    }
    let ctx = Context::default();
    let attributes = |operation| Attributes::new(operation, &target, Options::None, &ctx);
    for _ in 0..ATTEMPTS {
        let existing = registry.storage().visible(&key)?.map(|item| view::parse(&item)).transpose()?;
        let step = existing.as_ref().map(|existing| reconcile(existing, &object.value));
        let done = match (step, &existing) {
            (Some(Step::Keep), _) => return Ok(()),
            (Some(Step::Update(_)), _) => update(registry, &attributes(Operation::Update), &object.value).await,
            (Some(Step::Recreate), Some(existing)) => {
                remove(registry, &target, existing, &ctx).await?;
                create(registry, &attributes(Operation::Create), &object.value).await
            }
            _ => create(registry, &attributes(Operation::Create), &object.value).await,
        };
        match done {
            // Another server on the same store was first.
            Err(status) if status.is_already_exists() || status.is_not_found() || status.is_conflict() => {
                registry.storage().fresh().await?;
            }
            done => return done,
        }
    }
    Err(Status::internal(format_args!("{} changes all the time", object.name)))
}

async fn create(registry: &Registry, attributes: &Attributes<'_>, wanted: &Value) -> Result<(), Status> {
    create_draft(registry, attributes, Draft::new(wanted.clone()), Tracking::Creator(MANAGER)).await.map(|_| ())
}

async fn update(registry: &Registry, attributes: &Attributes<'_>, wanted: &Value) -> Result<(), Status> {
    let author = Author::through(MANAGER, None);
    let change = |existing: &Value| match reconcile(existing, wanted) {
        Step::Update(next) => Ok(next),
        Step::Keep | Step::Recreate => Ok(existing.clone()),
    };
    rewrite(registry, attributes, &author, change).await.map(|_| ())
}

async fn remove(registry: &Registry, target: &Target, existing: &Value, ctx: &Context) -> Result<(), Status> {
    let options = DeleteOptions { uid: Some(meta::uid(existing).to_owned()), ..DeleteOptions::default() };
    match delete::delete(registry, WriteRequest { target, options: &options, ctx }).await {
        Err(status) if !status.is_not_found() => Err(status),
        _ => Ok(()),
    }
}
