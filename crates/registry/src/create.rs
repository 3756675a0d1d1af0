//! A new object: admitted, named, defaulted, validated, stamped and stored.

use std::sync::Arc;

use machinery::json::{Value, json};
use machinery::options::CreateOptions;
use machinery::{Status, random_name};
use schema::managed::{Subject, Writer, track_update};
use store::{Entry, WriteError};

use crate::body;
use crate::conversion;
use crate::failure;
use crate::meta;
use crate::registry::Registry;
use crate::request::{Body, Context, Target};
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
        let object = body::object(&target.kind, &body, options.field_validation, ctx)?;
        let manager = ctx.manager(&options.field_manager);
        let decoded = object.clone();
        self.create_object(target, object, Some(&decoded), Tracking::By(&manager), options.dry_run, ctx).await
    }

    /// Creates an object that is decoded already, in the version of the endpoint. `known` is a state of it in the form of the
    /// wire, if there was one.
    pub(crate) async fn create_object(
        &self,
        target: &Target,
        mut object: Value,
        known: Option<&Value>,
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
            match self.create_once(target, object, known, tracking, dry_run, ctx).await {
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
                            conversion::show(kind, &mut value)?;
                            View::Made { kind: Some(Arc::clone(kind)), value }
                        }
                    };
                    return Ok(Outcome::new(201, self.shown(view).await?));
                }
            }
        }
    }

    async fn create_once(
        &self,
        target: &Target,
        mut object: Value,
        known: Option<&Value>,
        tracking: Tracking<'_>,
        dry_run: bool,
        ctx: &Context,
    ) -> Result<Created, Refused> {
        let kind = &target.kind;
        schema::defaults::apply(kind, &mut object);
        // A client owns what it sent and what followed from that, not what admission added.
        if let Tracking::By(manager) = tracking {
            let now = meta::timestamp(self.now());
            let ty = body::type_of_kind(kind)?;
            let writer = Writer { manager, subresource: "", time: &now };
            let lent = schema::strategy::lend_labels(kind, &mut object);
            track_update(&Subject::new(kind, &ty), None, &mut object, &writer);
            if lent {
                meta::of_mut(&mut object).remove("labels");
            }
        }
        schema::strategy::admit_create(kind, &mut object);
        self.admit_create(target, &mut object, ctx).await?;
        schema::strategy::prepare_for_create(kind, &mut object);
        self.prepare_addresses(target, &mut object, None);
        let name = meta::name(&object).to_owned();
        let errors = schema::validation::validate_create(kind, &object);
        if !errors.is_empty() {
            self.release(target, &object);
            return Err(Status::invalid(&body::blamed(kind), &name, &errors).into());
        }
        schema::warnings::on_write(kind, &object, None).into_iter().for_each(|text| ctx.warnings.push(text));
        self.approve_create(target, &object, ctx)?;
        let share = self.take_share(target, None, None, &object, dry_run).await?;
        let created = self.commit_create(target, object, known, name, dry_run).await;
        if let Err(refused) = &created
            && !refused.may_have_happened()
        {
            self.give_back(share).await;
        }
        created
    }

    /// Stores an object that nobody objects to.
    async fn commit_create(
        &self,
        target: &Target,
        mut object: Value,
        known: Option<&Value>,
        name: String,
        dry_run: bool,
    ) -> Result<Created, Refused> {
        let kind = &target.kind;
        self.allocate(target, &mut object, None)?;
        body::in_order(kind, &mut object, known)?;
        conversion::to_storage(kind, &mut object)?;
        let Some(key) = self.collection(kind).key(target.namespace.as_deref().filter(|_| kind.namespaced), &name)
        else {
            return Err(Status::bad_request(format!("the name {name:?} is too long")).into());
        };
        if dry_run {
            self.release(target, &object);
            if self.current(kind, &key).await?.is_some() {
                return Err(Refused::Taken(name));
            }
            return Ok(Created::Imagined(object));
        }
        let object = self.to_be_stored(kind, object).await?;
        let value = self.stored(&object)?;
        let _foretold = self.cache.foretell(key.collection(), &value, &object, None);
        match self.store.create(key.clone(), value.clone()).await {
            Ok(revision) => Ok(Created::Stored(self.committed(Entry { key, revision, value }).await?)),
            Err(error) => {
                self.release(target, &object);
                match error {
                    WriteError::Exists(_) => Err(Refused::Taken(name)),
                    error => Err(failure::write(&error, &target.gr(), &name).into()),
                }
            }
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

enum Created {
    Stored(Arc<cache::Item>),
    Imagined(Value),
}

enum Refused {
    /// An object of that name is there.
    Taken(String),
    Otherwise(Status),
}

impl Refused {
    /// A write whose answer was lost may have been made all the same.
    fn may_have_happened(&self) -> bool {
        matches!(self, Refused::Otherwise(status) if status.code == 504)
    }
}

impl From<Status> for Refused {
    fn from(status: Status) -> Self {
        Refused::Otherwise(status)
    }
}
