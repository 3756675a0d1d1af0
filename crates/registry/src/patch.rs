//! An object changed by a description of the change.

use machinery::json::Value;
use machinery::media::PatchType;
use machinery::options::PatchOptions;
use machinery::{GroupVersionKind, Status};
use schema::kind::Kind;

use crate::body;
use crate::registry::Registry;
use crate::request::{Context, PatchBody, Target};
use crate::update::Author;
use crate::versions;
use crate::view::Outcome;

impl Registry {
    pub async fn patch(
        &self,
        target: &Target,
        body: PatchBody,
        options: &PatchOptions,
        ctx: &Context,
    ) -> Result<Outcome, Status> {
        if body.kind == PatchType::Apply {
            return self.apply(target, &body, options, ctx).await;
        }
        if let Some(outcome) = self.patch_subresource(target, &body, options, ctx).await? {
            return Ok(outcome);
        }
        let kind = &target.kind;
        let manager = ctx.manager(&options.field_manager);
        let author = Author::through(&manager, target.subresource.as_deref());
        // An escape may hide the word.
        let mentions_managers =
            body.bytes.contains(&b'\\') || memchr::memmem::find(&body.bytes, b"managedFields").is_some();
        let written = self
            .rewrite(target, options.dry_run, Some((&author, ctx)), |old| {
                let mut shown = old.clone();
                if mentions_managers {
                    shown.tell();
                }
                versions::show(kind, &mut shown)?;
                let mut new = patched(&kind.gvk, Some(kind), &shown, &body, options, ctx)?;
                body::agree_on_namespace(target, &mut new)?;
                body::agree_on_name(target, &new)?;
                if kind.custom {
                    body::is_of_kind(kind, &new)?;
                }
                schema::defaults::apply_beside(kind, &mut new, old);
                new.share_members(old);
                Ok(new)
            })
            .await?;
        Ok(Outcome::new(200, self.converter().prepare_view(written.into_view(target)?).await?))
    }
}

/// The object after the patch, read again as its kind.
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
    let validation = body::strictness(options.field_validation);
    let target = schema::patch::Target { ty: &ty, gvk, custom, version, validation };
    let patched = match body.kind {
        PatchType::Json => schema::patch::json::apply(&target, current, &body.bytes),
        PatchType::Merge => schema::patch::merge::apply(&target, current, &body.bytes),
        PatchType::Strategic => schema::patch::strategic::apply(&target, current, &body.bytes),
        PatchType::Apply => return Err(Status::internal("an apply is not a patch of what is there")),
    };
    let patched = patched.map_err(|error| error.to_status())?;
    for warning in patched.warnings {
        ctx.warnings.push(warning);
    }
    Ok(patched.value)
}
