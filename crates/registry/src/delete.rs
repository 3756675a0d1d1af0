//! An object's way out: at once, after its grace period, or when its finalizers let go.
//!
//! ```text
//!            ┌── grace period running, nothing shorter asked ──► as it is (200)
//!   DELETE ──┼── grace period to start or shorten ─────────────► marked; if it is 0 and nothing holds it: removed
//!            ├── finalizers hold it (asked-for ones included) ─► marked
//!            └── nothing holds it ─────────────────────────────► removed
//! ```

use std::sync::Arc;

use cache::Item;
use jiff::{SignedDuration, Timestamp};
use machinery::json::{Value, json};
use machinery::options::{DeleteOptions, Propagation};
use machinery::{GroupResource, Status};
use schema::kind::{self, Kind};
use store::WriteError;

use crate::collections::DEFINITIONS;
use crate::definitions;
use crate::failure;
use crate::meta;
use crate::registry::Registry;
use crate::request::{Context, Target};
use crate::storage;
use crate::view::{self, Outcome, View};

const ORPHAN: &str = "orphan";
const FOREGROUND: &str = "foregroundDeletion";

/// What is to be done with the stored object.
enum Step {
    /// Nothing: it is on its way already.
    Leave,
    /// Write it so; with `then_remove` it goes right after.
    Mark {
        marked: Value,
        then_remove: bool,
    },
    Remove,
}

impl Registry {
    pub async fn delete(&self, target: &Target, options: DeleteOptions, ctx: &Context) -> Result<Outcome, Status> {
        if target.subresource.is_some() {
            return Err(Status::router_method_not_allowed());
        }
        self.admit_delete(target, ctx)?;
        let kind = &target.kind;
        if kind.gvk.kind == "Job"
            && kind.gvk.group == "batch"
            && options.propagation.is_none()
            && options.orphan_dependents.is_none()
        {
            ctx.warnings.push(
                "child pods are preserved by default when jobs are deleted; set propagationPolicy=Background to remove \
                 them or set propagationPolicy=Orphan to suppress this warning",
            );
        }
        let key = self.key(target)?;
        let missing = || Status::not_found(&target.gr(), target.name());
        let mut item = self.current(&key).await?.ok_or_else(missing)?;
        loop {
            let object = view::parse(&item)?;
            check_preconditions(kind, target, &object, &options)?;
            let (conflict, end) = match self.next_step(kind, &object, &options) {
                Step::Leave => (None, Some(self.outcome(target, Gone::No, End::Item(item.clone()), &options)?)),
                Step::Mark { marked, then_remove } => self.mark(target, &item, marked, then_remove, &options).await?,
                Step::Remove if options.dry_run => {
                    (None, Some(self.outcome(target, Gone::Yes, End::Value(object), &options)?))
                }
                Step::Remove => match self.store().delete(key.clone(), item.revision()).await {
                    Ok(revision) => {
                        self.storage().wait_until_visible(revision).await;
                        self.quota().shrink_usage(target, &object, None).await;
                        (None, Some(self.outcome(target, Gone::Yes, End::Value(object), &options)?))
                    }
                    Err(WriteError::Conflict { current, .. }) => (Some(current), None),
                    Err(error) => return Err(failure::write(&error, &target.gr(), target.name())),
                },
            };
            if let Some(outcome) = end {
                return Ok(Outcome::new(outcome.code, self.converter().prepare_view(outcome.view).await?));
            }
            let current = conflict.flatten().ok_or_else(missing)?;
            item = self.storage().item(&current)?;
        }
    }

    /// Writes the marked object and, if nothing holds it any longer, removes it. Gives what came in between, or the end.
    async fn mark(
        &self,
        target: &Target,
        item: &Arc<Item>,
        mut marked: Value,
        then_remove: bool,
        options: &DeleteOptions,
    ) -> Result<(Option<Option<store::Entry>>, Option<Outcome>), Status> {
        let gone = if then_remove { Gone::Yes } else { Gone::No };
        meta::of_mut(&mut marked).insert("resourceVersion", json!(item.revision().to_string()));
        if options.dry_run {
            return Ok((None, Some(self.outcome(target, gone, End::Value(marked), options)?)));
        }
        let key = item.key().clone();
        let value = storage::encode(&marked)?;
        let _foretold = self.cache().foretell(key.collection(), &value, &marked, None);
        let revision = match self.store().update(key.clone(), value.clone(), item.revision()).await {
            Ok(revision) => revision,
            Err(WriteError::Conflict { current, .. }) => return Ok((Some(current), None)),
            Err(error) => return Err(failure::write(&error, &target.gr(), target.name())),
        };
        let entry = store::Entry { key: key.clone(), revision, value };
        let written = if then_remove { self.storage().item(&entry)? } else { self.storage().committed(entry).await? };
        if then_remove {
            match self.store().delete(key, revision).await {
                Ok(revision) => {
                    self.storage().wait_until_visible(revision).await;
                    self.quota().shrink_usage(target, &marked, None).await;
                }
                // Somebody else removed it first: it is gone all the same.
                Err(WriteError::Conflict { current: None, .. }) => {}
                Err(WriteError::Conflict { current, .. }) => return Ok((Some(current), None)),
                Err(error) => return Err(failure::write(&error, &target.gr(), target.name())),
            }
        }
        Ok((None, Some(self.outcome(target, gone, End::Item(written), options)?)))
    }

    fn next_step(&self, kind: &Kind, object: &Value, options: &DeleteOptions) -> Step {
        let now = self.now();
        if kind.collection == "core/namespaces" {
            return namespace_step(object, options, now);
        }
        if kind.collection == DEFINITIONS && !meta::is_deleting(object) {
            return Step::Mark { marked: definitions::marked(object, &meta::timestamp(now)), then_remove: false };
        }
        let mut marked = object.clone();
        let graceful = if kind.rules.graceful { grace(&mut marked, options, now) } else { Grace::None };
        if matches!(graceful, Grace::Running) {
            return Step::Leave;
        }
        let finalizers = finalizers_for(kind, object, options);
        let changed = {
            let mut before = meta::finalizers(object);
            let mut after: Vec<&str> = finalizers.iter().map(String::as_str).collect();
            before.sort_unstable();
            after.sort_unstable();
            before != after
        };
        if changed {
            meta::set_finalizers(&mut marked, &finalizers);
        }
        match graceful {
            Grace::Marked { seconds } => Step::Mark { marked, then_remove: finalizers.is_empty() && seconds == 0 },
            _ if finalizers.is_empty() => Step::Remove,
            _ => {
                mark_as_deleting(&mut marked, now);
                if marked == *object { Step::Leave } else { Step::Mark { marked, then_remove: false } }
            }
        }
    }

    fn outcome(&self, target: &Target, gone: Gone, end: End, options: &DeleteOptions) -> Result<Outcome, Status> {
        let kind = &target.kind;
        if matches!(gone, Gone::Yes) && !kind.rules.delete_returns_object {
            let uid = match &end {
                End::Item(item) => meta::uid(&view::parse(item)?).to_owned(),
                End::Value(value) => meta::uid(value).to_owned(),
            };
            return Ok(Outcome::new(200, View::Status(Status::deleted(&target.gr(), target.name(), &uid))));
        }
        let code = if matches!(gone, Gone::No) && options.orphan_dependents == Some(false) { 202 } else { 200 };
        let view = match end {
            End::Item(item) => View::Stored { kind: Arc::clone(kind), item },
            End::Value(mut value) => {
                crate::versions::show(kind, &mut value)?;
                View::Made { kind: Some(Arc::clone(kind)), value }
            }
        };
        Ok(Outcome::new(code, view))
    }
}

#[derive(Clone, Copy)]
enum Gone {
    Yes,
    No,
}

enum End {
    Item(Arc<Item>),
    Value(Value),
}

fn check_preconditions(kind: &Kind, target: &Target, object: &Value, options: &DeleteOptions) -> Result<(), Status> {
    let namespace = kind.collection == "core/namespaces";
    let group_kind: GroupResource = if namespace { kind.group_resource() } else { kind.group_kind() };
    if let Some(asked) = options.uid.as_deref().filter(|asked| *asked != meta::uid(object)) {
        let uid = meta::uid(object);
        let why = if namespace {
            format!("Precondition failed: UID in precondition: {asked}, UID in object meta: {uid}")
        } else {
            format!(
                "the UID in the precondition ({asked}) does not match the UID in record ({uid}). The object might have been deleted and then recreated"
            )
        };
        return Err(Status::conflict(&group_kind, target.name(), why));
    }
    let revision = meta::resource_version(object);
    if let Some(asked) = options.resource_version.as_deref().filter(|asked| *asked != revision) {
        let why = if namespace {
            format!(
                "Precondition failed: ResourceVersion in precondition: {asked}, ResourceVersion in object meta: {revision}"
            )
        } else {
            format!(
                "the ResourceVersion in the precondition ({asked}) does not match the ResourceVersion in record ({revision}). The object might have been modified"
            )
        };
        return Err(Status::conflict(&group_kind, target.name(), why));
    }
    Ok(())
}

enum Grace {
    /// The kind or the object knows no grace period: delete now.
    None,
    /// A period is running and is not to be shortened.
    Running,
    /// A period was started or shortened.
    Marked { seconds: i64 },
}

/// Starts or shortens the grace period of a pod.
fn grace(object: &mut Value, options: &DeleteOptions, now: Timestamp) -> Grace {
    if let Some(until) = meta::deletion_timestamp(object) {
        let running = meta::grace_period(object).unwrap_or_default();
        if running == 0 {
            return Grace::None;
        }
        let Some(asked) = options.grace_period_seconds.filter(|asked| *asked < running) else { return Grace::Running };
        let mut seconds = asked.max(0);
        let started = until - SignedDuration::from_secs(running);
        let mut shortened = started + SignedDuration::from_secs(seconds);
        if shortened < now {
            shortened = now;
            if asked != 0 {
                seconds = 1;
            }
        }
        stamp(object, shortened, seconds);
        return Grace::Marked { seconds };
    }
    let spec_period = object["spec"]["terminationGracePeriodSeconds"].as_i64().unwrap_or_default();
    let mut seconds = options.grace_period_seconds.unwrap_or(spec_period);
    let unscheduled = object["spec"]["nodeName"].as_str().unwrap_or_default().is_empty();
    let finished = matches!(object["status"]["phase"].as_str(), Some("Succeeded" | "Failed"));
    if unscheduled || finished {
        seconds = 0;
    }
    if seconds < 0 {
        seconds = 1;
    }
    let until = now.checked_add(SignedDuration::from_secs(seconds)).unwrap_or(Timestamp::MAX);
    stamp(object, until, seconds);
    meta::bump_generation(object);
    Grace::Marked { seconds }
}

fn stamp(object: &mut Value, until: Timestamp, seconds: i64) {
    let metadata = meta::of_mut(object);
    metadata.insert("deletionTimestamp", json!(meta::timestamp(until)));
    metadata.insert("deletionGracePeriodSeconds", json!(seconds));
}

fn mark_as_deleting(object: &mut Value, now: Timestamp) {
    if !meta::is_deleting(object) {
        meta::bump_generation(object);
    }
    let until = meta::deletion_timestamp(object).filter(|until| *until <= now).unwrap_or(now);
    stamp(object, until, 0);
}

/// The finalizers after the client's wish for dependents (or the kind's habit) is respected.
fn finalizers_for(kind: &Kind, object: &Value, options: &DeleteOptions) -> Vec<String> {
    let before = meta::finalizers(object);
    if kind.rules.propagation == kind::Propagation::Unsupported {
        return before.into_iter().map(str::to_owned).collect();
    }
    let asked = match (options.orphan_dependents, options.propagation) {
        (Some(true), _) => Some(Propagation::Orphan),
        (Some(false), _) => Some(Propagation::Background),
        (None, asked) => asked,
    };
    let (orphan, foreground) = match asked {
        Some(Propagation::Orphan) => (true, false),
        Some(Propagation::Foreground) => (false, true),
        Some(Propagation::Background) => (false, false),
        None if before.contains(&ORPHAN) => (true, false),
        None if before.contains(&FOREGROUND) => (false, true),
        None => (kind.rules.propagation == kind::Propagation::Orphan, false),
    };
    let mut after: Vec<String> =
        before.into_iter().filter(|name| !matches!(*name, ORPHAN | FOREGROUND)).map(str::to_owned).collect();
    if orphan {
        after.push(ORPHAN.to_owned());
    }
    if foreground {
        after.push(FOREGROUND.to_owned());
    }
    after
}

/// A namespace is marked first and removed only once its own finalizers are gone too.
fn namespace_step(object: &Value, options: &DeleteOptions, now: Timestamp) -> Step {
    let terminating = object["status"]["phase"] == "Terminating";
    if !meta::is_deleting(object) || !terminating {
        let mut marked = object.clone();
        if !meta::is_deleting(object) {
            meta::of_mut(&mut marked).insert("deletionTimestamp", json!(meta::timestamp(now)));
        }
        marked["status"]["phase"] = json!("Terminating");
        let kept = meta::finalizers(object).into_iter().filter(|name| !matches!(*name, ORPHAN | FOREGROUND));
        let mut finalizers: Vec<String> = kept.map(str::to_owned).collect();
        let orphan = options.orphan_dependents == Some(true) || options.propagation == Some(Propagation::Orphan);
        if orphan {
            finalizers.push(ORPHAN.to_owned());
        } else if options.propagation == Some(Propagation::Foreground) {
            finalizers.push(FOREGROUND.to_owned());
        }
        meta::set_finalizers(&mut marked, &finalizers);
        return Step::Mark { marked, then_remove: false };
    }
    let held = object["spec"]["finalizers"].as_array().is_some_and(|held| !held.is_empty());
    if held || !meta::finalizers(object).is_empty() { Step::Leave } else { Step::Remove }
}
