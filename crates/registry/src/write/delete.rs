//! DELETE: removes an object at once, after its grace period, or when its finalizers are gone.
//!
//! ```text
//!            ┌── grace period running, nothing shorter asked ──► kept (200)
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

use super::commit::{self, Change, Committed, LastState, Next};
use crate::admission::plugin::{Attributes, Operation, Options};
use crate::conversion_webhook;
use crate::meta;
use crate::read::view::{self, Outcome, View};
use crate::registry::Registry;
use crate::request::{Target, WriteRequest};
use crate::reserve::Reservation;
use crate::versions;

pub(crate) const ORPHAN: &str = "orphan";
pub(crate) const FOREGROUND: &str = "foregroundDeletion";

/// The step that a DELETE takes.
pub(crate) enum DeleteStep {
    /// None, and nothing to admit: the grace period of the object runs.
    Keep,
    /// None: its finalizers hold the object already.
    Held,
    Mark(Value),
    MarkThenRemove(Value),
    Remove,
}

/// How a deletion is admitted.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Admitted<'a> {
    /// Here, as a request with this name: an object of a deleted collection has none.
    Here { name: &'a str },
    /// As the request that causes the deletion.
    Before,
}

pub(crate) async fn delete(registry: &Registry, request: WriteRequest<'_, DeleteOptions>) -> Result<Outcome, Status> {
    delete_admitted(registry, request, Admitted::Here { name: request.target.name() }).await
}

pub(crate) async fn delete_admitted(
    registry: &Registry,
    request: WriteRequest<'_, DeleteOptions>,
    admitted: Admitted<'_>,
) -> Result<Outcome, Status> {
    let WriteRequest { target, options, ctx } = request;
    let mut attributes = Attributes::new(Operation::Delete, target, Options::Delete(options), ctx);
    if let Admitted::Here { name } = admitted {
        attributes.name = name;
    }
    if let Some(why) = attributes.behaviour.undeletable(target.name()) {
        return Err(Status::forbidden(&target.gr(), target.name(), why));
    }
    attributes.behaviour.warn_of_deletion(options, ctx);
    let mut deletion = Deletion { registry, attributes: &attributes, options, admitted };
    let committed = commit::change(registry, (target, ctx), options.dry_run, &mut deletion).await?;
    let outcome = outcome(target, committed, options)?;
    Ok(Outcome::new(outcome.code, registry.converter().prepare_view(outcome.view).await?))
}

struct Deletion<'a> {
    registry: &'a Registry,
    attributes: &'a Attributes<'a>,
    options: &'a DeleteOptions,
    admitted: Admitted<'a>,
}

impl Change for Deletion<'_> {
    async fn next(&mut self, item: &Arc<Item>, _: &mut Reservation<'_>) -> Result<Next, Status> {
        let attributes = self.attributes;
        let object = view::parse(item)?;
        check_preconditions(attributes, &object, self.options)?;
        let step = self.step(&object);
        if !matches!(step, DeleteStep::Keep) {
            self.admit(item, &object).await?;
        }
        let at_revision = |mut marked: Value| {
            meta::of_mut(&mut marked).insert("resourceVersion", json!(item.revision().to_string()));
            marked
        };
        Ok(match step {
            DeleteStep::Keep | DeleteStep::Held => Next::Keep,
            DeleteStep::Mark(marked) => Next::Write { old: None, new: at_revision(marked), shown: None },
            DeleteStep::MarkThenRemove(marked) => {
                // The removal is a deletion of its own, of the object that is marked.
                self.admit(item, &marked).await?;
                Next::WriteThenRemove(at_revision(marked))
            }
            DeleteStep::Remove => Next::Remove { last: object.clone(), old: object },
        })
    }
}

impl Deletion<'_> {
    /// Admits the deletion of an object, which admission sees in the version of the request.
    async fn admit(&self, item: &Arc<Item>, object: &Value) -> Result<(), Status> {
        if self.admitted == Admitted::Before {
            return Ok(());
        }
        let (attributes, chain) = (self.attributes, self.registry.admission());
        let kind = &attributes.target.kind;
        if versions::is_shown_as_stored(kind, item.revision()) || !chain.sees_deletes(attributes) {
            return chain.admit_delete(attributes, object).await;
        }
        let mut shown = match conversion_webhook::webhook(kind) {
            Some(_) => self.registry.converter().between(kind, object.clone()).await?,
            None => object.clone(),
        };
        versions::show(kind, &mut shown)?;
        chain.admit_delete(attributes, &shown).await
    }

    fn step(&self, object: &Value) -> DeleteStep {
        let (kind, now) = (&self.attributes.target.kind, self.registry.now());
        if let Some(step) = self.attributes.behaviour.delete_step(object, self.options, now) {
            return step;
        }
        let mut marked = object.clone();
        let graceful = if kind.rules.graceful { grace(&mut marked, self.options, now) } else { Grace::None };
        if matches!(graceful, Grace::Running) {
            return DeleteStep::Keep;
        }
        let finalizers = finalizers_for(kind, object, self.options);
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
            Grace::Marked { seconds: 0 } if finalizers.is_empty() => DeleteStep::MarkThenRemove(marked),
            Grace::Marked { .. } => DeleteStep::Mark(marked),
            _ if finalizers.is_empty() => DeleteStep::Remove,
            _ => {
                mark_as_deleting(&mut marked, now);
                if marked == *object { DeleteStep::Held } else { DeleteStep::Mark(marked) }
            }
        }
    }
}

/// The answer: the object, or of most kinds only a `Status` once it is gone.
fn outcome(target: &Target, committed: Committed, options: &DeleteOptions) -> Result<Outcome, Status> {
    let removed = committed.is_removed();
    if removed && !target.kind.rules.delete_returns_object {
        let uid = match &committed {
            Committed::Kept(item) | Committed::Removed(LastState::Written(item)) => {
                meta::uid(&view::parse(item)?).to_owned()
            }
            Committed::Removed(LastState::Known(value)) | Committed::DryRun { object: value, .. } => {
                meta::uid(value).to_owned()
            }
        };
        return Ok(Outcome::new(200, View::Status(Status::deleted(&target.gr(), target.name(), &uid))));
    }
    let code = if !removed && options.orphan_dependents == Some(false) { 202 } else { 200 };
    Ok(Outcome::new(code, committed.into_view(target)?))
}

fn check_preconditions(attributes: &Attributes<'_>, object: &Value, options: &DeleteOptions) -> Result<(), Status> {
    let Attributes { target, behaviour, .. } = *attributes;
    let (kind, as_update) = (&target.kind, behaviour.checks_preconditions_as_update());
    let group_kind: GroupResource = if as_update { kind.group_resource() } else { kind.group_kind() };
    if let Some(asked) = options.uid.as_deref().filter(|asked| *asked != meta::uid(object)) {
        let uid = meta::uid(object);
        let why = if as_update {
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
        let why = if as_update {
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
    /// The kind or the object has no grace period: delete now.
    None,
    /// A period is running and is not shortened.
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

/// The finalizers after the propagation that the client (or else the kind) requests.
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
