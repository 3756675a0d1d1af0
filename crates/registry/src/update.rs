//! An object replaced by another state of itself.

use machinery::json::{Value, json};
use machinery::options::UpdateOptions;
use machinery::{FieldError, Status};
use schema::kind::Kind;
use schema::managed::{Subject, Writer, keep_times_if_unchanged, track_update};

use crate::body;
use crate::collections::SERVICES;
use crate::create::{Sent, Tracking};
use crate::meta;
use crate::registry::Registry;
use crate::request::{Body, Context, Target};
use crate::reserve::Reservation;
use crate::reserve::addresses::AllocationError;
use crate::versions;
use crate::view::Outcome;

/// Who changes an object, and through which subresource.
pub(crate) struct Author<'a> {
    pub(crate) manager: &'a str,
    /// The subresource that limits which part may change.
    pub(crate) subresource: Option<&'a str>,
    /// The subresource under which the change is recorded.
    pub(crate) tracked_as: Option<&'a str>,
    /// The object carries its record already: it was applied.
    pub(crate) applied: bool,
    /// The whole object was sent, so that its uid says which object is meant.
    pub(crate) replaces: bool,
}

impl<'a> Author<'a> {
    pub(crate) fn through(manager: &'a str, subresource: Option<&'a str>) -> Self {
        Author { manager, subresource, tracked_as: subresource, applied: false, replaces: false }
    }
}

impl Registry {
    pub async fn update(
        &self,
        target: &Target,
        body: Body,
        options: &UpdateOptions,
        ctx: &Context,
    ) -> Result<Outcome, Status> {
        if let Some(outcome) = self.update_subresource(target, &body, options, ctx).await? {
            return Ok(outcome);
        }
        let kind = &target.kind;
        let mut object = body::object(kind, &body, options.field_validation, ctx)?;
        body::agree_on_namespace(target, &mut object)?;
        body::agree_on_name(target, &object)?;
        schema::defaults::apply(kind, &mut object);
        let manager = ctx.manager(&options.field_manager);
        let key = self.key(target)?;
        let creates = kind.rules.create_on_update && target.subresource.is_none();
        if creates && self.current(&key).await?.is_none() {
            return self
                .create_object(target, object, Sent::default(), Tracking::By(&manager), options.dry_run, ctx)
                .await;
        }
        let author = Author { replaces: true, ..Author::through(&manager, target.subresource.as_deref()) };
        let written = self.rewrite(target, options.dry_run, Some((&author, ctx)), |_| Ok(object.clone())).await?;
        Ok(Outcome::new(200, self.converter().prepare_view(written.into_view(target)?).await?))
    }

    /// The next state of an object: `new` (in the endpoint's version, defaulted) put on top of `old` (as stored), with
    /// what the client may not change kept, validated and its managed fields brought up to date. In storage version.
    pub(crate) fn revise(
        &self,
        target: &Target,
        old: &Value,
        mut new: Value,
        author: &Author<'_>,
        reservation: &mut Reservation<'_>,
        ctx: &Context,
    ) -> Result<Value, Status> {
        let kind = &target.kind;
        precondition(target, old, &new, author)?;
        let mut shown_old = old.clone();
        versions::show(kind, &mut shown_old)?;
        keep_metadata(&shown_old, &mut new);
        meta::of_mut(&mut new).insert("resourceVersion", shown_old["metadata"]["resourceVersion"].clone());
        if let Some(warning) = meta::dedupe_owners(&mut new, " after mutating admission happens") {
            ctx.warnings.push(warning);
        }
        let now = meta::timestamp(self.now());
        let ty = body::type_of_kind(kind)?;
        let writer = Writer { manager: author.manager, subresource: author.tracked_as.unwrap_or_default(), time: &now };
        if !author.applied {
            track_update(&Subject::new(kind, &ty), Some(&shown_old), &mut new, &writer);
        }
        match author.subresource {
            Some(subresource) => {
                schema::strategy::prepare_for_subresource_update(kind, subresource, &mut new, &shown_old, &now)
            }
            None => {
                schema::strategy::admit_update(kind, &mut new, &shown_old);
                schema::strategy::prepare_for_update(kind, &mut new, &shown_old);
                prepare_addresses(target, &mut new, Some(&shown_old), reservation);
            }
        }
        // What the steps before have looked at and left alone is what it was, and need not be looked at again.
        new.share_members(&shown_old);
        let mut warnings = Vec::new();
        let mut errors = match author.subresource {
            Some(subresource) => {
                schema::validation::validate_subresource_update(kind, subresource, &new, &shown_old, &mut warnings)
            }
            None => schema::validation::validate_update(kind, &new, &shown_old, &mut warnings),
        };
        // Sent whether or not the write is accepted.
        warnings.into_iter().for_each(|text| ctx.warnings.push(text));
        if !author.replaces {
            errors.extend(schema::validation::validate_patched(kind, &new, &shown_old));
        }
        if !errors.is_empty() {
            return Err(Status::invalid(&body::blamed(kind), target.name(), &errors));
        }
        self.approve_update(target, author.subresource, &shown_old, &new, ctx)?;
        if author.subresource.is_none() {
            let warnings = schema::warnings::on_write(kind, &new, Some(&shown_old));
            warnings.into_iter().for_each(|text| ctx.warnings.push(text));
            allocate(target, &mut new, Some(&shown_old), reservation)?;
        }
        body::in_order(kind, &mut new, Some(&shown_old))?;
        keep_times_if_unchanged(&shown_old, &mut new);
        versions::to_storage(kind, &mut new)?;
        Ok(new)
    }
}

/// Fills in what a service needs to be validated.
pub(crate) fn prepare_addresses(
    target: &Target,
    service: &mut Value,
    old: Option<&Value>,
    reservation: &mut Reservation<'_>,
) {
    if target.kind.collection == SERVICES {
        reservation.prepare_service(service, old);
    }
}

/// Reserves the addresses and ports of a service.
pub(crate) fn allocate(
    target: &Target,
    service: &mut Value,
    old: Option<&Value>,
    reservation: &mut Reservation<'_>,
) -> Result<(), Status> {
    if target.kind.collection != SERVICES {
        return Ok(());
    }
    reservation.allocate_service(service, old).map_err(|error| match error {
        AllocationError::Invalid(error) => Status::invalid(&target.kind.group_kind(), meta::name(service), &[error]),
        AllocationError::Full(why) => Status::internal(why),
    })
}

/// The revision and identity a client says it changes.
fn precondition(target: &Target, old: &Value, new: &Value, author: &Author<'_>) -> Result<(), Status> {
    let kind = &target.kind;
    let (said_uid, uid) = (meta::uid(new), meta::uid(old));
    if author.replaces && !said_uid.is_empty() && said_uid != uid {
        let mut why = format!("Precondition failed: UID in precondition: {said_uid}, UID in object meta: {uid}");
        if kind.custom {
            let namespace = target.namespace.as_deref().map(|namespace| format!("/{namespace}")).unwrap_or_default();
            let key = format!("/registry/{}/{}{namespace}/{}", kind.gvk.group, kind.plural, target.name());
            why = format!(
                "StorageError: invalid object, Code: 4, Key: {key}, ResourceVersion: 0, AdditionalErrorMsg: {why}"
            );
        }
        return Err(Status::conflict(&target.gr(), target.name(), why));
    }
    let said = meta::resource_version(new);
    if said.is_empty() || said == "0" {
        return if kind.rules.unconditional_update { Ok(()) } else { Err(revision_needed(kind, target)) };
    }
    if said.parse::<u64>().is_err() {
        let said = machinery::go_text::quote(said);
        return Err(Status::unmapped(format!("strconv.ParseUint: parsing {said}: invalid syntax")));
    }
    if said == meta::resource_version(old) { Ok(()) } else { Err(Status::modified(&target.gr(), target.name())) }
}

fn revision_needed(kind: &Kind, target: &Target) -> Status {
    let error = FieldError::invalid("metadata.resourceVersion", json!(0), "must be specified for an update");
    Status::invalid(&kind.group_resource(), target.name(), &[error])
}

/// What stays as it was: some of it whatever the client sends, some only if it sends nothing. What it sends otherwise is
/// for validation to refuse.
fn keep_metadata(old: &Value, new: &mut Value) {
    const ALWAYS: [&str; 3] = ["creationTimestamp", "generation", "selfLink"];
    const UNLESS_SAID: [&str; 3] = ["uid", "deletionTimestamp", "deletionGracePeriodSeconds"];
    let metadata = meta::of_mut(new);
    for member in ALWAYS.into_iter().chain(UNLESS_SAID) {
        let said = metadata.get(member).is_some_and(|said| !said.is_null() && said != "");
        if said && UNLESS_SAID.contains(&member) {
            continue;
        }
        match old["metadata"].get(member) {
            Some(kept) => {
                metadata.insert(member.to_owned(), kept.clone());
            }
            None => {
                metadata.shift_remove(member);
            }
        }
    }
}
