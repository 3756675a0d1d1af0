//! PATCH: an object changed by a description of the change.

use machinery::json::Value;
use machinery::media::PatchType;
use machinery::options::PatchOptions;
use machinery::{GroupVersionKind, Status};
use schema::kind::Kind;

use super::update::{Author, answer, rewrite};
use crate::admission::plugin::{Attributes, Operation, Options};
use crate::body;
use crate::read::view::Outcome;
use crate::registry::Registry;
use crate::request::{Context, PatchBody, WriteRequest};
use crate::versions;

pub(crate) async fn patch(
    registry: &Registry,
    request: WriteRequest<'_, PatchOptions>,
    body: &PatchBody,
) -> Result<Outcome, Status> {
    let WriteRequest { target, options, ctx } = request;
    let kind = &target.kind;
    let attributes = Attributes::new(Operation::Update, target, Options::Patch(options), ctx);
    let manager = ctx.manager(&options.field_manager);
    let author = Author::through(&manager, target.subresource.as_deref());
    // An escape may hide the word.
    let mentions_managers =
        body.bytes.contains(&b'\\') || memchr::memmem::find(&body.bytes, b"managedFields").is_some();
    let committed = rewrite(registry, &attributes, &author, |old| {
        let mut shown = old.clone();
        if mentions_managers {
            shown.parse_raw();
        }
        versions::show(kind, &mut shown)?;
        let mut new = patched(&kind.gvk, Some(kind), &shown, body, options, ctx)?;
        body::check_namespace(target, &mut new)?;
        body::check_name(target, &new)?;
        if kind.custom {
            body::check_kind(kind, &new)?;
        }
        schema::defaults::apply(kind, &mut new, Some(old));
        new.share_members(old);
        Ok(new)
    });
    answer(registry, target, committed.await?).await
}

/// The object after the patch, decoded again as its kind.
pub(crate) fn patched(
    gvk: &GroupVersionKind,
    kind: Option<&Kind>,
    current: &Value,
    body: &PatchBody,
    options: &PatchOptions,
    ctx: &Context,
) -> Result<Value, Status> {
    let ty = kind.map_or_else(|| body::type_of(gvk), body::type_of_kind)?;
    let version = kind.and_then(|kind| kind.definition.as_ref()).map(|definition| definition.version());
    let custom = kind.is_some_and(|kind| kind.custom);
    let target = schema::patch::Target { ty: &ty, gvk, custom, version, validation: options.field_validation };
    let patched = match body.kind {
        PatchType::Json => schema::patch::json::apply(&target, current, &body.bytes),
        PatchType::Merge => schema::patch::merge::apply(&target, current, &body.bytes),
        PatchType::Strategic => schema::patch::strategic::apply(&target, current, &body.bytes),
        PatchType::Apply => return Err(Status::internal("an apply is not a patch of a stored object")),
    };
    let patched = patched.map_err(|error| error.to_status())?;
    for warning in patched.warnings {
        ctx.warnings.push(warning);
    }
    Ok(patched.value)
}
