//! POST: a new object, admitted, named, defaulted, validated and stored.

use std::sync::Arc;

use machinery::json::json;
use machinery::options::CreateOptions;
use machinery::{Status, random_name};
use schema::managed::Writer;

use super::commit::{self, CreateFailed};
use super::draft::Draft;
use super::{param_rights, rights};
use crate::admission::changes::Changes;
use crate::admission::plugin::{Attributes, Operation, Options, States};
use crate::body;
use crate::meta;
use crate::read::view::{self, Outcome, View};
use crate::registry::Registry;
use crate::request::{Body, Target, WriteRequest};
use crate::reserve::Reservation;
use crate::roles::escalation;
use crate::versions;

/// How often a generated name is tried before the client has to try again.
const NAME_ATTEMPTS: usize = 8;

/// Members of the metadata that only the server sets.
const SERVER_MEMBERS: [&str; 5] =
    ["uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "selfLink"];

/// How the owner of a new object's fields is recorded.
#[derive(Clone, Copy)]
pub(crate) enum Tracking<'a> {
    Creator(&'a str),
    /// The object has its managed fields already: it was applied.
    Applied,
}

pub(crate) async fn create(
    registry: &Registry,
    request: WriteRequest<'_, CreateOptions>,
    body: &Body,
) -> Result<Outcome, Status> {
    let WriteRequest { target, options, ctx } = request;
    let attributes = Attributes::new(Operation::Create, target, Options::Create(options), ctx);
    let templates = attributes.behaviour.repeats_specs().then(|| registry.templates());
    let draft = Draft::decode(&target.kind, body, options.field_validation, templates, ctx)?;
    let manager = ctx.manager(&options.field_manager);
    create_draft(registry, &attributes, draft, Tracking::Creator(&manager)).await
}

/// Creates an object in the version of the endpoint.
pub(crate) async fn create_draft(
    registry: &Registry,
    attributes: &Attributes<'_>,
    mut draft: Draft,
    tracking: Tracking<'_>,
) -> Result<Outcome, Status> {
    let target = attributes.target;
    let sent_name = meta::name(&draft.object).to_owned();
    let name = target.name.as_deref().unwrap_or(&sent_name);
    // An update or an apply of a missing object is a create too.
    let attributes = &Attributes { operation: Operation::Create, name, ..*attributes };
    let changes = admit_mutating(registry, attributes, &mut draft, tracking).await?;
    let prefix = meta::text(&draft.object, "generateName").to_owned();
    if !meta::name(&draft.object).is_empty() || prefix.is_empty() {
        let name = meta::name(&draft.object).to_owned();
        return match create_named(registry, attributes, draft, &changes).await {
            Ok(view) => Ok(Outcome::new(201, registry.converter().prepare_view(view).await?)),
            Err(CreateFailed::NameTaken) => Err(name_taken(registry, target, &name)),
            Err(CreateFailed::Refused(status)) => Err(status),
        };
    }
    let mut name = String::new();
    for _ in 0..NAME_ATTEMPTS {
        let mut named = draft.clone();
        name = random_name::generate(&prefix, rand::random());
        meta::of_mut(&mut named.object).insert("name", json!(name));
        match create_named(registry, &Attributes { name: &name, ..*attributes }, named, &changes).await {
            Ok(view) => return Ok(Outcome::new(201, registry.converter().prepare_view(view).await?)),
            Err(CreateFailed::NameTaken) => {}
            Err(CreateFailed::Refused(status)) => return Err(status),
        }
    }
    Err(Status::generate_name_conflict(&target.gr(), &name))
}

/// The steps before the object has its name and uid: checks and defaults of what was sent, its owner, and the mutating phase
/// of admission.
async fn admit_mutating(
    registry: &Registry,
    attributes: &Attributes<'_>,
    draft: &mut Draft,
    tracking: Tracking<'_>,
) -> Result<Changes, Status> {
    let Attributes { target, ctx, .. } = *attributes;
    let kind = &target.kind;
    wipe(attributes, draft)?;
    draft.apply_defaults(kind);
    // A client owns what it sent and what followed from that, not what admission adds.
    if let Tracking::Creator(manager) = tracking {
        let now = meta::timestamp(registry.now());
        let writer = Writer { manager, subresource: "", time: &now };
        draft.track_creator(kind, &body::type_of_kind(kind)?, &writer, registry.templates());
    }
    let changes = registry.admission().mutate(attributes, &mut draft.object, None).await?;
    if let Some(warning) = meta::dedupe_owners(&mut draft.object, " after mutating admission happens") {
        ctx.warnings.push(warning);
    }
    if attributes.behaviour.grants_rights() {
        escalation::check(registry, attributes, &draft.object, None).await?;
    }
    Ok(changes)
}

/// Checks the metadata that was sent and removes the server's part of it.
fn wipe(attributes: &Attributes<'_>, draft: &mut Draft) -> Result<(), Status> {
    let (target, object) = (attributes.target, &mut draft.object);
    if target.kind.definition.as_ref().is_some_and(|definition| definition.terminating) {
        let why = "create not allowed while custom resource definition is terminating";
        return Err(attributes.forbidden(object, why));
    }
    body::check_namespace(target, object)?;
    let metadata = meta::of_mut(object);
    for member in SERVER_MEMBERS {
        metadata.shift_remove(member);
    }
    if let Some(warning) = meta::dedupe_owners(object, "") {
        attributes.ctx.warnings.push(warning);
    }
    Ok(())
}

/// Tries to create an object under the name it has. A refusal is returned once everything reserved is released.
async fn create_named(
    registry: &Registry,
    attributes: &Attributes<'_>,
    draft: Draft,
    changes: &Changes,
) -> Result<View, CreateFailed> {
    let mut reservation = registry.reservations().open();
    let created = create_reserving(registry, attributes, draft, changes, &mut reservation).await;
    if created.is_err() {
        reservation.release().await;
    }
    created
}

async fn create_reserving(
    registry: &Registry,
    attributes: &Attributes<'_>,
    mut draft: Draft,
    changes: &Changes,
    reservation: &mut Reservation<'_>,
) -> Result<View, CreateFailed> {
    let Attributes { target, ctx, behaviour, .. } = *attributes;
    let (kind, chain) = (&target.kind, registry.admission());
    let metadata = meta::of_mut(&mut draft.object);
    metadata.insert("uid", uuid::Uuid::new_v4().to_string().into());
    metadata.insert("creationTimestamp", meta::timestamp(registry.now()).into());
    // A webhook may have changed it.
    body::check_namespace(target, &mut draft.object)?;
    schema::strategy::prepare_for_create(kind, &mut draft.object);
    behaviour.complete_new(&mut draft.object, &ctx.user);
    behaviour.prepare(reservation, &mut draft.object, None);
    draft.recognise_admitted();
    // Addresses and ports come before validation, so a refusal to give them is the only one.
    behaviour.reserve(reservation, kind, &mut draft.object, None)?;
    let mut errors = draft.validate_new(kind);
    if let Some(orders) = &registry.settings().orders {
        errors.extend(orders.check(&kind.collection, &draft.object));
    }
    if !errors.is_empty() {
        let refusal = Status::invalid(&body::error_kind(kind), meta::name(&draft.object), &errors);
        return Err(if attributes.explains() { changes.explain(refusal) } else { refusal }.into());
    }
    draft.warnings_of_new(kind).into_iter().for_each(|text| ctx.warnings.push(text));
    param_rights::check(registry, attributes, &draft.object, None).await?;
    rights::confirm_create(registry, attributes).await?;
    draft.normalise(kind)?;
    let mut object = draft.object;
    chain.validate(attributes, States::shown(None, &object)).await?;
    chain.reserve_quota(attributes, (None, &object), reservation).await?;
    let revision_sent = !matches!(meta::resource_version(&object), "" | "0");
    if revision_sent && !attributes.dry_run {
        return Err(Status::unmapped("resourceVersion should not be set on objects to be created").into());
    }
    versions::to_storage(kind, &mut object)?;
    let name = meta::name(&object);
    let namespace = target.namespace.as_deref().filter(|_| kind.namespaced);
    let Some(key) = registry.collection(kind).key(namespace, name) else {
        return Err(Status::bad_request(format!("the name {name:?} is too long")).into());
    };
    if attributes.dry_run {
        if registry.storage().current(&key).await?.is_some() {
            return Err(CreateFailed::NameTaken);
        }
        versions::show(kind, &mut object)?;
        return Ok(View::Made { kind: Some(Arc::clone(kind)), value: object });
    }
    // "0" is the revision of an object that is not stored yet.
    if object["metadata"].get("resourceVersion").is_some() {
        meta::of_mut(&mut object).shift_remove("resourceVersion");
    }
    let object = registry.converter().to_storage(kind, object).await?;
    let item = commit::create(registry, (target, attributes.ctx), key, &object, reservation).await?;
    Ok(View::Stored { kind: Arc::clone(kind), item })
}

fn name_taken(registry: &Registry, target: &Target, name: &str) -> Status {
    let namespace = target.namespace.as_deref().filter(|_| target.kind.namespaced);
    let existing = registry.storage().cached(&target.kind.collection, namespace, name);
    let deleting = existing.and_then(|item| view::parse(&item).ok()).is_some_and(|value| meta::is_deleting(&value));
    if deleting { Status::object_being_deleted(&target.gr(), name) } else { Status::already_exists(&target.gr(), name) }
}
