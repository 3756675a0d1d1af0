//! Server-side apply: an object brought to what a manager wants of it, field by field.

use machinery::json::Value;
use machinery::options::PatchOptions;
use machinery::{GroupResource, Status};
use schema::managed::apply::{self, ApplyError, Configuration};
use schema::managed::{Subject, Writer};

use crate::body;
use crate::create::{Sent, Tracking};
use crate::meta;
use crate::registry::Registry;
use crate::request::{Context, PatchBody, Target};
use crate::update::Author;
use crate::versions;
use crate::view::Outcome;

impl Registry {
    pub(crate) async fn apply(
        &self,
        target: &Target,
        body: &PatchBody,
        options: &PatchOptions,
        ctx: &Context,
    ) -> Result<Outcome, Status> {
        if target.subresource.as_deref() == Some("scale") {
            return self.apply_scale(target, body, options, ctx).await;
        }
        let configuration = apply::read(&body.bytes).map_err(refused)?;
        let key = self.key(target)?;
        if self.current(&key).await?.is_none() {
            return self.apply_to_nothing(target, configuration, options, ctx).await;
        }
        let author = Author {
            manager: &options.field_manager,
            subresource: target.subresource.as_deref(),
            tracked_as: target.subresource.as_deref(),
            applied: true,
            replaces: false,
        };
        let written = self
            .rewrite(target, options.dry_run, Some((&author, ctx)), |old| {
                let mut shown = old.clone();
                versions::show(&target.kind, &mut shown)?;
                let mut new = self.applied(target, Some(&shown), &configuration.value, options)?;
                body::agree_on_namespace(target, &mut new)?;
                body::agree_on_name(target, &new)?;
                schema::defaults::apply(&target.kind, &mut new);
                Ok(new)
            })
            .await?;
        warn(configuration, options, ctx)?;
        Ok(Outcome::new(200, self.converter().prepare_view(written.into_view(target)?).await?))
    }

    async fn apply_to_nothing(
        &self,
        target: &Target,
        configuration: Configuration,
        options: &PatchOptions,
        ctx: &Context,
    ) -> Result<Outcome, Status> {
        if target.subresource.is_some() {
            return Err(Status::not_found(&target.gr(), target.name()));
        }
        let uid = meta::uid(&configuration.value);
        if !uid.is_empty() {
            let why =
                format!("uid mismatch: the provided object specified uid {uid}, and no existing object was found");
            return Err(Status::conflict(
                &GroupResource::new(&*target.kind.gvk.group, &*target.kind.plural),
                target.name(),
                why,
            ));
        }
        let mut object = self.applied(target, None, &configuration.value, options)?;
        body::agree_on_namespace(target, &mut object)?;
        body::agree_on_name(target, &object)?;
        meta::of_mut(&mut object).shift_remove("resourceVersion");
        warn(configuration, options, ctx)?;
        self.create_object(target, object, Sent::default(), Tracking::Done, options.dry_run, ctx).await
    }

    fn applied(
        &self,
        target: &Target,
        live: Option<&Value>,
        configuration: &Value,
        options: &PatchOptions,
    ) -> Result<Value, Status> {
        let ty = body::type_of_kind(&target.kind)?;
        let now = meta::timestamp(self.now());
        let subresource = target.subresource.as_deref().unwrap_or_default();
        let writer = Writer { manager: &options.field_manager, subresource, time: &now };
        apply::apply(&Subject::new(&target.kind, &ty), live, configuration, &writer, options.force).map_err(refused)
    }
}

pub(crate) fn warn(configuration: Configuration, options: &PatchOptions, ctx: &Context) -> Result<(), Status> {
    let texts = configuration.warnings(body::strictness(options.field_validation)).map_err(refused)?;
    texts.into_iter().for_each(|text| ctx.warnings.push(text));
    Ok(())
}

pub(crate) fn refused(error: ApplyError) -> Status {
    error.to_status()
}
