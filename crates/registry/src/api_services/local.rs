//! The APIServices of the group versions that this server serves: those of built-in groups are created at the start, those of
//! definitions follow them.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use machinery::Status;
use machinery::json::{Value, json};
use machinery::options::DeleteOptions;
use tokio::task::JoinSet;

use super::priorities::{self, CUSTOM, METRICS, Priority};
use super::{AUTOMANAGED, Entry, GROUP, METRICS_GROUP, availability};
use crate::admission::plugin::{Attributes, Operation, Options};
use crate::registry::Registry;
use crate::request::{Context, Target, WriteRequest};
use crate::write::create::{Tracking, create_draft};
use crate::write::draft::Draft;
use crate::write::update::{Author, rewrite};

const MANAGER: &str = "kube-apiserver";
/// Wait before objects are looked at again, after a failure.
const RETRY: Duration = Duration::from_secs(1);
/// Objects that are written at the same time.
const WRITES_MAX: usize = 32;

/// An APIService that should exist.
#[derive(Clone, Debug)]
struct Wanted {
    group: String,
    version: String,
    priority: Priority,
    /// `onstart` or `true`.
    automanaged: &'static str,
}

impl Wanted {
    fn name(&self) -> String {
        format!("{}.{}", self.version, self.group)
    }

    fn spec(&self) -> Value {
        let mut spec = json!({
            "version": self.version,
            "groupPriorityMinimum": self.priority.group,
            "versionPriority": self.priority.version,
        });
        if !self.group.is_empty() {
            spec["group"] = self.group.as_str().into();
        }
        spec
    }

    fn object(&self) -> Value {
        json!({
            "kind": "APIService",
            "apiVersion": format!("{GROUP}/v1"),
            "metadata": {"name": self.name(), "labels": {AUTOMANAGED: self.automanaged}},
            "spec": self.spec(),
        })
    }

    /// Whether an object that the server keeps has to be written again.
    fn differs(&self, entry: &Entry) -> bool {
        let is_replaced = entry.remote.is_some();
        let may_be_replaced = self.group == METRICS_GROUP;
        entry.automanaged.is_some() && if is_replaced { !may_be_replaced } else { entry.priority != self.priority }
    }
}

/// What to do about one APIService.
enum Step {
    Create(Wanted),
    Restore(Wanted),
    /// The server keeps it, and serves no such group version any more.
    Delete {
        name: String,
        uid: String,
    },
    /// It became local, which its condition does not show yet.
    MarkLocal(String),
}

/// Creates the objects of built-in groups. What fails is tried again in the background.
pub(crate) async fn restore(registry: &Arc<Registry>) {
    let wanted = builtin(registry);
    if let Err(why) = run(registry, steps(registry, &wanted)).await {
        tracing::warn!(why, "APIServices are not complete; another attempt follows");
        registry.api_services().local_changes.send_modify(|count| *count += 1);
    }
}

/// Keeps the objects of definitions, and the conditions of objects that became local.
pub(crate) async fn follow(registry: Weak<Registry>) {
    let Some(mut changes) = registry.upgrade().map(|registry| registry.api_services().local_changes.subscribe()) else {
        return;
    };
    // What changed before this task began is looked at too.
    changes.mark_changed();
    while changes.changed().await.is_ok() {
        let Some(registry) = registry.upgrade() else { return };
        // Those of built-in groups are created again only at a start, as the reference does.
        if let Err(why) = run(&registry, steps(&registry, &custom(&registry))).await {
            tracing::warn!(why, "APIServices are not complete; another attempt follows");
            tokio::time::sleep(RETRY).await;
            changes.mark_changed();
        }
    }
}

fn builtin(registry: &Registry) -> BTreeMap<String, Wanted> {
    let kinds = registry.kinds();
    let mut wanted = BTreeMap::new();
    for group in kinds.groups() {
        for version in &group.versions {
            let Some(priority) = priorities::builtin(&group.name, &version.name) else { continue };
            let one =
                Wanted { group: group.name.clone(), version: version.name.clone(), priority, automanaged: "onstart" };
            wanted.insert(one.name(), one);
        }
    }
    wanted.extend(custom(registry));
    wanted
}

/// The group versions that come from definitions alone.
fn custom(registry: &Registry) -> BTreeMap<String, Wanted> {
    let kinds = registry.kinds();
    let mut wanted = BTreeMap::new();
    for group in kinds.groups().filter(|group| group.name != GROUP) {
        for version in &group.versions {
            if priorities::builtin(&group.name, &version.name).is_some() {
                continue;
            }
            let one = Wanted {
                group: group.name.clone(),
                version: version.name.clone(),
                priority: if group.name == METRICS_GROUP { METRICS } else { CUSTOM },
                automanaged: "true",
            };
            wanted.insert(one.name(), one);
        }
    }
    wanted
}

fn steps(registry: &Registry, wanted: &BTreeMap<String, Wanted>) -> Vec<Step> {
    let entries = registry.api_services().entries.lock();
    let mut steps = Vec::new();
    for (name, wanted) in wanted {
        match entries.get(name) {
            None => steps.push(Step::Create(wanted.clone())),
            Some(entry) if wanted.differs(entry) => steps.push(Step::Restore(wanted.clone())),
            Some(_) => {}
        }
    }
    for (name, entry) in entries.iter() {
        let is_kept = entry.remote.as_ref().is_some_and(|remote| remote.group == METRICS_GROUP);
        if entry.automanaged.as_deref() == Some("true") && !wanted.contains_key(name) && !is_kept {
            steps.push(Step::Delete { name: name.clone(), uid: entry.uid.clone() });
        } else if entry.remote.is_none() && !entry.is_local {
            steps.push(Step::MarkLocal(name.clone()));
        }
    }
    steps
}

async fn run(registry: &Arc<Registry>, steps: Vec<Step>) -> Result<(), String> {
    // Together, so that a first start waits for few syncs.
    let mut tasks = JoinSet::new();
    let mut failed: Vec<String> = Vec::new();
    for step in steps {
        if tasks.len() >= WRITES_MAX {
            failed.extend(tasks.join_next().await.and_then(outcome));
        }
        let registry = Arc::clone(registry);
        tasks.spawn(async move { take(&registry, step).await.map_err(|status| status.message) });
    }
    while let Some(done) = tasks.join_next().await {
        failed.extend(outcome(done));
    }
    if failed.is_empty() { Ok(()) } else { Err(failed.join("; ")) }
}

fn outcome(done: Result<Result<(), String>, tokio::task::JoinError>) -> Option<String> {
    done.unwrap_or_else(|panic| Err(panic.to_string())).err()
}

async fn take(registry: &Registry, step: Step) -> Result<(), Status> {
    let ctx = Context::default();
    let done = match step {
        Step::Create(wanted) => {
            let target = target(registry, &wanted.name(), None)?;
            let attributes = Attributes::new(Operation::Create, &target, Options::None, &ctx);
            let draft = Draft::new(wanted.object());
            create_draft(registry, &attributes, draft, Tracking::Creator(MANAGER)).await.map(|_| ())
        }
        Step::Restore(wanted) => {
            let target = target(registry, &wanted.name(), None)?;
            let attributes = Attributes::new(Operation::Update, &target, Options::None, &ctx);
            let change = |existing: &Value| {
                let mut next = existing.clone();
                next["spec"] = wanted.spec();
                Ok(next)
            };
            rewrite(registry, &attributes, &Author::through(MANAGER, None), change).await.map(|_| ())
        }
        Step::Delete { name, uid } => {
            let target = target(registry, &name, None)?;
            let options = DeleteOptions { uid: Some(uid), ..DeleteOptions::default() };
            registry.delete(WriteRequest { target: &target, options: &options, ctx: &ctx }).await.map(|_| ())
        }
        Step::MarkLocal(name) => availability::write(registry, &name, None, &availability::LOCAL).await,
    };
    match done {
        // Another server on the same store was first, or a user changed it; it is looked at again.
        Err(status) if status.is_already_exists() || status.is_not_found() || status.code == 409 => Ok(()),
        done => done,
    }
}

pub(super) fn target(registry: &Registry, name: &str, subresource: Option<&str>) -> Result<Target, Status> {
    let kinds = registry.kinds();
    let kind = kinds.get(GROUP, "v1", "apiservices");
    let kind = kind.ok_or_else(|| Status::internal("apiservices are not served"))?;
    Ok(Target {
        kind: Arc::clone(kind),
        namespace: None,
        name: Some(name.to_owned()),
        subresource: subresource.map(str::to_owned),
    })
}
