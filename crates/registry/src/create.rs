//! A new object: admitted, named, defaulted, validated, stamped and stored.

use std::sync::Arc;

use machinery::json::{Value, json};
use machinery::media::MediaType;
use machinery::options::{CreateOptions, FieldValidation};
use machinery::{FieldError, Revision, Status, random_name};
use schema::kind::Kind;
use schema::managed::{Subject, Writer, track_create};
use store::{Entry, WriteError};

use crate::body;
use crate::failure;
use crate::meta;
use crate::registry::Registry;
use crate::request::{Body, Context, Target};
use crate::reserve::Reservation;
use crate::reserve::quota::QuotaUse;
use crate::storage;
use crate::templates::Origin;
use crate::update::{allocate, prepare_addresses};
use crate::versions;
use crate::view::{Outcome, View};

/// How often a generated name is tried before the client is asked to come again.
const NAME_ATTEMPTS: usize = 8;

/// Who is recorded as the owner of a new object's fields.
#[derive(Clone, Copy)]
pub(crate) enum Tracking<'a> {
    By(&'a str),
    /// The object carries its record already: it was applied.
    Done,
}

impl Registry {
    pub async fn create(
        &self,
        target: &Target,
        body: Body,
        options: &CreateOptions,
        ctx: &Context,
    ) -> Result<Outcome, Status> {
        if target.subresource.is_some() || !target.kind.stored() {
            return self.create_subresource(target, body, options, ctx).await;
        }
        let (object, origin) = self.sent(target, &body, options.field_validation, ctx)?;
        let manager = ctx.manager(&options.field_manager);
        let sent = Sent { decoded: Some(object.clone()), origin };
        self.create_object(target, object, sent, Tracking::By(&manager), options.dry_run, ctx).await
    }

    /// The object in a body, and what is known of it.
    fn sent(
        &self,
        target: &Target,
        body: &Body,
        validation: FieldValidation,
        ctx: &Context,
    ) -> Result<(Value, Origin), Status> {
        let kind = &target.kind;
        if kind.collection != "core/pods" || body.media != MediaType::Json {
            return Ok((body::object(kind, body, validation, ctx)?, Origin::New));
        }
        let (origin, place) = self.templates().recall(&body.bytes);
        let known = origin.template().map(|template| template.in_body(place));
        let (object, complaints) = body::beside(&kind.gvk, body, validation, known, ctx)?;
        // A text with something in it that no pod has is complained of each time it comes.
        let may_be_kept = complaints == 0 && validation != FieldValidation::Ignore;
        Ok((object, if may_be_kept || known.is_some() { origin } else { Origin::New }))
    }

    /// Creates an object that is decoded already, in the version of the endpoint.
    pub(crate) async fn create_object(
        &self,
        target: &Target,
        mut object: Value,
        sent: Sent,
        tracking: Tracking<'_>,
        dry_run: bool,
        ctx: &Context,
    ) -> Result<Outcome, Status> {
        let kind = &target.kind;
        if kind.definition.as_ref().is_some_and(|definition| definition.terminating) {
            let why = "create not allowed while custom resource definition is terminating";
            return Err(Status::forbidden(&target.gr(), meta::name(&object), why));
        }
        body::agree_on_namespace(target, &mut object)?;
        if !matches!(meta::resource_version(&object), "" | "0") {
            return Err(Status::unmapped("resourceVersion should not be set on objects to be created"));
        }
        let now = self.now();
        let metadata = meta::of_mut(&mut object);
        for owned in [
            "uid",
            "creationTimestamp",
            "deletionTimestamp",
            "deletionGracePeriodSeconds",
            "selfLink",
            "resourceVersion",
        ] {
            metadata.shift_remove(owned);
        }
        metadata.insert("uid", uuid::Uuid::new_v4().to_string().into());
        metadata.insert("creationTimestamp", meta::timestamp(now).into());
        if let Some(warning) = meta::dedupe_owners(&mut object, "") {
            ctx.warnings.push(warning);
        }

        let generated = meta::name(&object).is_empty() && !meta::text(&object, "generateName").is_empty();
        let mut attempts = if generated { NAME_ATTEMPTS } else { 1 };
        loop {
            let mut object = if generated { object.clone() } else { object.take() };
            if generated {
                let name = random_name::generate(meta::text(&object, "generateName"), rand::random());
                meta::of_mut(&mut object).insert("name", json!(name));
            }
            attempts -= 1;
            match self.create_once(target, object, &sent, tracking, dry_run, ctx).await {
                Err(Refused::Taken(name)) if generated && attempts == 0 => {
                    return Err(Status::generate_name_conflict(&target.gr(), &name));
                }
                Err(Refused::Taken(_)) if generated => {}
                Err(Refused::Taken(name)) => return Err(self.taken(target, &name)),
                Err(Refused::Otherwise(status)) => return Err(status),
                Ok(value) => {
                    let view = match value {
                        Created::Stored(item) => View::Stored { kind: Arc::clone(kind), item },
                        Created::Imagined(mut value) => {
                            versions::show(kind, &mut value)?;
                            View::Made { kind: Some(Arc::clone(kind)), value }
                        }
                    };
                    return Ok(Outcome::new(201, self.converter().prepare_view(view).await?));
                }
            }
        }
    }

    async fn create_once(
        &self,
        target: &Target,
        object: Value,
        sent: &Sent,
        tracking: Tracking<'_>,
        dry_run: bool,
        ctx: &Context,
    ) -> Result<Created, Refused> {
        let mut reservation = self.reservations().open();
        let created = self.create_reserving(target, object, sent, tracking, dry_run, &mut reservation, ctx).await;
        if created.is_err() {
            reservation.release().await;
        }
        created
    }

    async fn create_reserving(
        &self,
        target: &Target,
        mut object: Value,
        sent: &Sent,
        tracking: Tracking<'_>,
        dry_run: bool,
        reservation: &mut Reservation<'_>,
        ctx: &Context,
    ) -> Result<Created, Refused> {
        let kind = &target.kind;
        let template = sent.origin.template();
        match template {
            Some(template) => schema::defaults::apply_beside(kind, &mut object, template.wire()),
            None => schema::defaults::apply(kind, &mut object),
        }
        // A client owns what it sent and what followed from that, not what admission added.
        if let Tracking::By(manager) = tracking {
            let now = meta::timestamp(self.now());
            let ty = body::type_of_kind(kind)?;
            let writer = Writer { manager, subresource: "", time: &now };
            let lent = schema::strategy::lend_labels(kind, &mut object);
            let known = template.map(|template| template.owned());
            track_create(&Subject::new(kind, &ty), &mut object, &writer, known);
            if lent {
                meta::of_mut(&mut object).remove("labels");
            }
            if let Origin::Again { text, hash } = &sent.origin {
                self.templates().remember(text.clone(), *hash, &ty, &object);
            }
        }
        schema::strategy::admit_create(kind, &mut object);
        self.admit_create(target, &mut object, ctx).await?;
        schema::strategy::prepare_for_create(kind, &mut object);
        prepare_addresses(target, &mut object, None, reservation);
        let name = meta::name(&object).to_owned();
        let mut spec = match template {
            Some(template) if template.put_settled(&mut object) => Spec::Settled,
            Some(template) => template.unsettled(&object).map_or(Spec::Unknown, Spec::Admitted),
            None => Spec::Unknown,
        };
        let errors = validate(kind, &object, &spec);
        if !errors.is_empty() {
            return Err(Status::invalid(&body::blamed(kind), &name, &errors).into());
        }
        let warnings = warnings(kind, &object, &spec);
        if !warnings.is_empty() && matches!(spec, Spec::Admitted(_)) {
            spec = Spec::Unknown;
        }
        warnings.into_iter().for_each(|text| ctx.warnings.push(text));
        self.approve_create(target, &object, ctx)?;
        let wanted = QuotaUse { target, subresource: None, old: None, new: &object, dry_run };
        reservation.reserve_quota(&wanted).await?;
        self.commit_create(target, object, sent, spec, name, reservation, dry_run).await
    }

    /// Stores an object that nobody objects to.
    async fn commit_create(
        &self,
        target: &Target,
        mut object: Value,
        sent: &Sent,
        spec: Spec,
        name: String,
        reservation: &mut Reservation<'_>,
        dry_run: bool,
    ) -> Result<Created, Refused> {
        let kind = &target.kind;
        allocate(target, &mut object, None, reservation)?;
        match (spec, sent.origin.template()) {
            (Spec::Settled, _) => in_order_but_for_spec(kind, &mut object, sent.decoded.as_ref())?,
            (Spec::Admitted(admitted), Some(template)) => {
                body::in_order(kind, &mut object, sent.decoded.as_ref())?;
                template.settle(admitted, &object);
            }
            _ => body::in_order(kind, &mut object, sent.decoded.as_ref())?,
        }
        versions::to_storage(kind, &mut object)?;
        let Some(key) = self.collection(kind).key(target.namespace.as_deref().filter(|_| kind.namespaced), &name)
        else {
            return Err(Status::bad_request(format!("the name {name:?} is too long")).into());
        };
        if dry_run {
            if self.current(&key).await?.is_some() {
                return Err(Refused::Taken(name));
            }
            return Ok(Created::Imagined(object));
        }
        let object = self.converter().to_storage(kind, object).await?;
        let value = storage::encode(&object)?;
        let _foretold = self.cache().foretell(key.collection(), &value, &object, None);
        reservation.write_begins(&key, Revision::ZERO);
        let outcome = self.store().create(key.clone(), value.clone()).await;
        reservation.write_ended(&outcome);
        match outcome {
            Ok(revision) => Ok(Created::Stored(self.storage().committed(Entry { key, revision, value }).await?)),
            Err(WriteError::Exists(_)) => Err(Refused::Taken(name)),
            Err(error) => Err(failure::write(&error, &target.gr(), &name).into()),
        }
    }

    fn taken(&self, target: &Target, name: &str) -> Status {
        let key =
            self.collection(&target.kind).key(target.namespace.as_deref().filter(|_| target.kind.namespaced), name);
        let there = key.and_then(|key| self.collection(&target.kind).get(&key));
        let deleting =
            there.and_then(|item| crate::view::parse(&item).ok()).is_some_and(|value| meta::is_deleting(&value));
        if deleting {
            Status::object_being_deleted(&target.gr(), name)
        } else {
            Status::already_exists(&target.gr(), name)
        }
    }
}

/// What is known of an object from its body.
#[derive(Default)]
pub(crate) struct Sent {
    /// The object as it was decoded, in the form of the wire.
    decoded: Option<Value>,
    origin: Origin,
}

/// What is known of a new object's spec once it is admitted.
enum Spec {
    /// Nothing that would spare a look at it.
    Unknown,
    /// It is a template's, in this state; what becomes of it shall be noted.
    Admitted(Value),
    /// It is valid, there is nothing to warn about, and it is in the form of the store.
    Settled,
}

fn validate(kind: &Kind, object: &Value, spec: &Spec) -> Vec<FieldError> {
    if !matches!(spec, Spec::Settled) {
        return schema::validation::validate_create(kind, object);
    }
    let errors = schema::validation::validate_create_of_known_spec(kind, object);
    debug_assert_eq!(errors, schema::validation::validate_create(kind, object), "the spec was valid before");
    errors
}

fn warnings(kind: &Kind, object: &Value, spec: &Spec) -> Vec<String> {
    if !matches!(spec, Spec::Settled) {
        return schema::warnings::on_write(kind, object, None);
    }
    let warnings = schema::warnings::of_known_spec(object);
    debug_assert_eq!(warnings, schema::warnings::on_write(kind, object, None), "nothing was said of the spec before");
    warnings
}

/// Brings an object whose spec is in the form of the wire into that form.
fn in_order_but_for_spec(kind: &Kind, object: &mut Value, decoded: Option<&Value>) -> Result<(), Status> {
    let mut known = decoded.cloned().unwrap_or_default();
    known["spec"] = object["spec"].clone();
    body::in_order(kind, object, Some(&known))?;
    debug_assert!(
        {
            let mut whole: Value = machinery::json::from_str(&object.to_string()).unwrap_or_default();
            let made = body::in_order(kind, &mut whole, None);
            made.is_ok() && whole.is_identical(object)
        },
        "a settled spec is in the form of the wire: {object}"
    );
    Ok(())
}

enum Created {
    Stored(Arc<cache::Item>),
    Imagined(Value),
}

enum Refused {
    /// An object of that name is there.
    Taken(String),
    Otherwise(Status),
}

impl From<Status> for Refused {
    fn from(status: Status) -> Self {
        Refused::Otherwise(status)
    }
}
