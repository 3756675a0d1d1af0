//! The replica count of a workload, as `autoscaling/v1` Scale.

use cache::Item;
use machinery::json::{Value, json};
use machinery::options::{PatchOptions, UpdateOptions};
use machinery::{FieldError, GroupResource, GroupVersionKind, Status, labels};
use schema::managed::apply::{self, ApplyError};
use schema::managed::{self, Subject, Writer, track_update};

use crate::body;
use crate::meta;
use crate::patch;
use crate::registry::Registry;
use crate::request::{Body, Context, PatchBody, Target};
use crate::update::Author;
use crate::view::{self, Outcome, View};
use crate::write::Written;

pub(super) fn show(target: &Target, item: &Item) -> Result<View, Status> {
    Ok(View::Made { kind: None, value: of(target, &view::parse(item)?) })
}

/// The Scale of a workload.
fn of(target: &Target, workload: &Value) -> Value {
    let from = &workload["metadata"];
    let mut metadata = json!({});
    for member in ["name", "namespace", "uid", "resourceVersion", "creationTimestamp"] {
        if let Some(value) = from.get(member) {
            metadata[member] = value.clone();
        }
    }
    let mut spec = json!({});
    if let Some(replicas) = workload["spec"]["replicas"].as_i64().filter(|replicas| *replicas != 0) {
        spec["replicas"] = json!(replicas);
    }
    let mut status = json!({"replicas": workload["status"]["replicas"].as_i64().unwrap_or_default()});
    let selector = &workload["spec"]["selector"];
    let selector = if target.kind.collection == "core/replicationcontrollers" {
        json!({"matchLabels": selector})
    } else {
        selector.clone()
    };
    if let Ok(selector) = labels::Selector::from_label_selector(&selector) {
        let text = selector.to_string();
        if !text.is_empty() {
            status["selector"] = json!(text);
        }
    }
    json!({"kind": "Scale", "apiVersion": "autoscaling/v1", "metadata": metadata, "spec": spec, "status": status})
}

/// Where the replicas stand in every workload that has a Scale.
const REPLICAS: [&str; 2] = ["spec", "replicas"];

/// The Scale with its managers: those of the workload that own its replicas.
fn with_managers(target: &Target, workload: &Value) -> Value {
    let mut scale = of(target, workload);
    let version = target.kind.group_version().to_string();
    if let Some(managers) = managed::scale::of_parent(workload, &version, &REPLICAS) {
        scale["metadata"]["managedFields"] = managers;
    }
    scale
}

fn kind() -> GroupVersionKind {
    GroupVersionKind::new("autoscaling", "v1", "Scale")
}

/// Who writes a Scale, and how.
#[derive(Clone, Copy)]
enum Scaler<'a> {
    /// What it changed is recorded as its own.
    Updates(&'a str),
    /// What it stated is recorded already.
    Applies(&'a str),
}

impl Registry {
    pub(super) async fn put_scale(
        &self,
        target: &Target,
        body: &Body,
        options: &UpdateOptions,
        ctx: &Context,
    ) -> Result<Outcome, Status> {
        let scale = body::of_kind(&kind(), body, options.field_validation, ctx)?;
        let manager = ctx.manager(&options.field_manager);
        self.write_scale(target, options.dry_run, Scaler::Updates(&manager), ctx, |_| Ok(scale.clone())).await
    }

    pub(super) async fn patch_scale(
        &self,
        target: &Target,
        body: &PatchBody,
        options: &PatchOptions,
        ctx: &Context,
    ) -> Result<Outcome, Status> {
        let manager = ctx.manager(&options.field_manager);
        self.write_scale(target, options.dry_run, Scaler::Updates(&manager), ctx, |live| {
            patch::patched(&kind(), false, live, body, options, ctx)
        })
        .await
    }

    /// The number of replicas as one field that a manager applies.
    pub(crate) async fn apply_scale(
        &self,
        target: &Target,
        body: &PatchBody,
        options: &PatchOptions,
        ctx: &Context,
    ) -> Result<Outcome, Status> {
        let configuration = apply::read(&body.bytes).map_err(|error: ApplyError| error.to_status())?;
        let manager = &options.field_manager;
        let (gvk, value) = (kind(), &configuration.value);
        let said = (value["apiVersion"].as_str().unwrap_or_default(), value["kind"].as_str().unwrap_or_default());
        if said != ("autoscaling/v1", "Scale") {
            return Err(Status::bad_request(format!("invalid object type: {}, Kind={}", said.0, said.1)));
        }
        let ty = body::type_of(&gvk)?;
        let outcome = self.write_scale(target, options.dry_run, Scaler::Applies(manager), ctx, |live| {
            let now = meta::timestamp(self.now());
            let writer = Writer { manager, subresource: "scale", time: &now };
            let subject = Subject { gvk: &gvk, ty: &ty, custom: false, has_status: true, convert: None };
            apply::apply(&subject, Some(live), value, &writer, options.force).map_err(|error| error.to_status())
        });
        let outcome = outcome.await?;
        crate::apply::warn(configuration, options, ctx)?;
        Ok(outcome)
    }

    async fn write_scale(
        &self,
        target: &Target,
        dry_run: bool,
        scaler: Scaler<'_>,
        ctx: &Context,
        mut wanted: impl FnMut(&Value) -> Result<Value, Status>,
    ) -> Result<Outcome, Status> {
        let (Scaler::Applies(manager) | Scaler::Updates(manager)) = scaler;
        let parent = target.parent();
        let author = Author { manager, door: None, tracked_as: Some("scale"), applied: true, replaces: true };
        let (gvk, version) = (kind(), target.kind.group_version().to_string());
        let ty = body::type_of(&gvk)?;
        let written = self
            .rewrite(&parent, dry_run, |old| {
                let live = with_managers(target, old);
                let mut scale = wanted(&live)?;
                body::agree_on_namespace(target, &mut scale)?;
                body::agree_on_name(target, &scale)?;
                let replicas = scale["spec"]["replicas"].as_i64().unwrap_or_default();
                if replicas < 0 {
                    let error =
                        FieldError::invalid("spec.replicas", json!(replicas), "must be greater than or equal to 0");
                    return Err(Status::invalid(&GroupResource::new("autoscaling", "Scale"), target.name(), &[error]));
                }
                let applies = matches!(scaler, Scaler::Applies(_));
                if !applies {
                    let now = meta::timestamp(self.now());
                    let writer = Writer { manager, subresource: "scale", time: &now };
                    let subject = Subject { gvk: &gvk, ty: &ty, custom: false, has_status: true, convert: None };
                    track_update(&subject, Some(&live), &mut scale, &writer);
                }
                let mut new = old.clone();
                let changed = old["spec"]["replicas"].as_i64() != Some(replicas);
                new["spec"]["replicas"] = json!(replicas);
                let metadata = meta::of_mut(&mut new);
                // Who applies the number that is there becomes one more owner of it.
                if changed || applies {
                    match managed::scale::to_parent(old, &scale, &version, &REPLICAS) {
                        Some(managers) => metadata.insert("managedFields", managers),
                        None => metadata.shift_remove("managedFields"),
                    };
                }
                for member in ["resourceVersion", "uid"] {
                    match scale["metadata"].get(member) {
                        Some(said) => {
                            metadata.insert(member.to_owned(), said.clone());
                        }
                        None => {
                            metadata.shift_remove(member);
                        }
                    }
                }
                self.revise(&parent, old, new, &author, ctx)
            })
            .await?;
        let value = match &written {
            Written::Kept(item) => view::parse(item)?,
            Written::Removed(value) | Written::Imagined(value) => value.clone(),
        };
        Ok(Outcome::new(200, View::Made { kind: None, value: of(target, &value) }))
    }
}
