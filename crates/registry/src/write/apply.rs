//! Server-side apply: an object brought to the state that a manager wants, field by field.

use machinery::json::Value;
use machinery::options::PatchOptions;
use machinery::{GroupResource, Status};
use schema::managed::apply::{self, ApplyError, Configuration};
use schema::managed::{Subject, Writer};

use super::create::{Tracking, create_draft};
use super::draft::Draft;
use super::managed_versions;
use super::update::{Author, answer, rewrite};
use crate::admission::plugin::{Attributes, Operation, Options};
use crate::body;
use crate::meta;
use crate::read::view::Outcome;
use crate::registry::Registry;
use crate::request::{Context, PatchBody, Target, WriteRequest};
use crate::versions;

pub(crate) async fn apply(
    registry: &Registry,
    request: WriteRequest<'_, PatchOptions>,
    body: &PatchBody,
) -> Result<Outcome, Status> {
    let WriteRequest { target, options, ctx } = request;
    let attributes = Attributes::new(Operation::Update, target, Options::Patch(options), ctx);
    let configuration = apply::read(&body.bytes).map_err(refused)?;
    if registry.storage().current(&registry.key(target)?).await?.is_none() {
        return apply_new(registry, &attributes, configuration, options).await;
    }
    let author = Author { applied: true, ..Author::through(&options.field_manager, target.subresource.as_deref()) };
    let committed = rewrite(registry, &attributes, &author, |old| {
        let mut shown = old.clone();
        versions::show(&target.kind, &mut shown)?;
        let mut new = applied(registry, target, Some(&shown), &configuration.value, options)?;
        body::check_namespace(target, &mut new)?;
        body::check_name(target, &new)?;
        schema::defaults::apply(&target.kind, &mut new, None);
        Ok(new)
    });
    let committed = committed.await?;
    warn(configuration, options, ctx)?;
    answer(registry, target, committed).await
}

/// Creates the object of a configuration.
async fn apply_new(
    registry: &Registry,
    attributes: &Attributes<'_>,
    configuration: Configuration,
    options: &PatchOptions,
) -> Result<Outcome, Status> {
    let target = attributes.target;
    if target.subresource.is_some() {
        return Err(Status::not_found(&target.gr(), target.name()));
    }
    let uid = meta::uid(&configuration.value);
    if !uid.is_empty() {
        let why = format!("uid mismatch: the provided object specified uid {uid}, and no existing object was found");
        let resource = GroupResource::new(&*target.kind.gvk.group, &*target.kind.plural);
        return Err(Status::conflict(&resource, target.name(), why));
    }
    let mut object = applied(registry, target, None, &configuration.value, options)?;
    body::check_namespace(target, &mut object)?;
    body::check_name(target, &object)?;
    meta::of_mut(&mut object).shift_remove("resourceVersion");
    warn(configuration, options, attributes.ctx)?;
    create_draft(registry, attributes, Draft::new(object), Tracking::Applied).await
}

pub(crate) fn applied(
    registry: &Registry,
    target: &Target,
    live: Option<&Value>,
    configuration: &Value,
    options: &PatchOptions,
) -> Result<Value, Status> {
    let ty = body::type_of_kind(&target.kind)?;
    let now = meta::timestamp(registry.now());
    let subresource = target.subresource.as_deref().unwrap_or_default();
    let writer = Writer { manager: &options.field_manager, subresource, time: &now };
    let applied = apply::apply(&Subject::new(&target.kind, &ty), live, configuration, &writer, options.force);
    // The versions of managers are looked at once the configuration is known to be readable, and before any conflict.
    if !matches!(applied, Err(ApplyError::Malformed(_) | ApplyError::Unmapped(_)))
        && let Some(version) = live.and_then(|live| managed_versions::unknown(&target.kind, live))
    {
        return Err(Status::unmapped(format!("request to convert CR to an invalid group/version: {version}")));
    }
    applied.map_err(refused)
}

pub(crate) fn warn(configuration: Configuration, options: &PatchOptions, ctx: &Context) -> Result<(), Status> {
    let texts = configuration.warnings(options.field_validation).map_err(refused)?;
    texts.into_iter().for_each(|text| ctx.warnings.push(text));
    Ok(())
}

pub(crate) fn refused(error: ApplyError) -> Status {
    error.to_status()
}
