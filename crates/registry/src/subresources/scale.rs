//! The replica count of a workload, as `autoscaling/v1` Scale.

use cache::Item;
use machinery::json::{Value, json};
use machinery::options::{PatchOptions, UpdateOptions};
use machinery::{GroupResource, GroupVersionKind, Status, labels};
use schema::kind::Kind;
use schema::managed::apply;
use schema::managed::{self, Subject, Writer, track_update};

use crate::apply::{refused, warn};
use crate::body;
use crate::meta;
use crate::patch;
use crate::registry::Registry;
use crate::request::{Body, Context, PatchBody, Target};
use crate::update::Author;
use crate::view::{self, Outcome, View};
use crate::write::Written;

pub(super) fn show(target: &Target, item: &Item) -> Result<View, Status> {
    let workload = view::value(&target.kind, item)?;
    let places = Places::of(&target.kind);
    if target.kind.custom && places.at(&workload, &places.replicas).is_none() {
        let path = places.replicas.join(".");
        return Err(Status::internal(format_args!("the spec replicas field \".{path}\" does not exist")));
    }
    Ok(View::Made { kind: None, value: of(target, &workload) })
}

/// Where the numbers of a Scale stand in its workload.
struct Places<'a> {
    replicas: Vec<&'a str>,
    current: Vec<&'a str>,
    /// A text in a custom resource; built-in workloads have label selectors.
    selector: Option<Vec<&'a str>>,
}

impl<'a> Places<'a> {
    fn of(kind: &'a Kind) -> Self {
        let names = |path: &'a [String]| path.iter().map(String::as_str).collect();
        match kind.definition.as_ref().and_then(|definition| definition.scale.as_ref()) {
            Some(scale) => Places {
                replicas: names(&scale.spec_replicas),
                current: names(&scale.status_replicas),
                selector: scale.selector.as_deref().map(names),
            },
            None => Places { replicas: REPLICAS.to_vec(), current: vec!["status", "replicas"], selector: None },
        }
    }

    fn at<'v>(&self, workload: &'v Value, path: &[&str]) -> Option<&'v Value> {
        path.iter().try_fold(workload, |at, name| at.get(*name))
    }

    fn number(&self, workload: &Value, path: &[&str]) -> Option<i64> {
        self.at(workload, path).and_then(Value::as_i64)
    }

    /// Writes the number of replicas, with the maps it stands in.
    fn set(&self, workload: &mut Value, replicas: i64) {
        let mut at = workload;
        for name in &self.replicas {
            if !at.is_object() {
                *at = json!({});
            }
            at = &mut at[*name];
        }
        *at = json!(replicas);
    }
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
    let places = Places::of(&target.kind);
    if let Some(replicas) = places.number(workload, &places.replicas).filter(|replicas| *replicas != 0) {
        spec["replicas"] = json!(replicas);
    }
    let mut status = json!({"replicas": places.number(workload, &places.current).unwrap_or_default()});
    if target.kind.custom {
        let selector = places.selector.as_ref().and_then(|path| places.at(workload, path)).and_then(Value::as_str);
        if let Some(selector) = selector.filter(|selector| !selector.is_empty()) {
            status["selector"] = json!(selector);
        }
        return scale(metadata, spec, status);
    }
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
    scale(metadata, spec, status)
}

fn scale(metadata: Value, spec: Value, status: Value) -> Value {
    json!({"kind": "Scale", "apiVersion": "autoscaling/v1", "metadata": metadata, "spec": spec, "status": status})
}

/// Where the replicas stand in every built-in workload that has a Scale.
const REPLICAS: [&str; 2] = ["spec", "replicas"];

/// The Scale with its managers: those of the workload that own its replicas.
fn with_managers(target: &Target, workload: &Value) -> Value {
    let mut scale = of(target, workload);
    let version = target.kind.group_version().to_string();
    if let Some(managers) = managed::scale::of_parent(workload, &version, &Places::of(&target.kind).replicas) {
        scale["metadata"]["managedFields"] = managers;
    }
    scale
}

/// Whether two states of a Scale differ at most in who manages them.
fn same_but_managers(a: &Value, b: &Value) -> bool {
    let bare = |scale: &Value| {
        let mut scale = scale.clone();
        meta::of_mut(&mut scale).shift_remove("managedFields");
        scale
    };
    bare(a) == bare(b)
}

/// The reference cannot read the Scale that an apply to a custom resource makes: it looks for the version of the Scale
/// among those of the resource. Only where the number is there already it does not come to that.
fn unconverted(sent: &Value) -> Status {
    let named = format!("{}/{}", meta::text(sent, "namespace"), meta::text(sent, "name"));
    Status::unmapped(format!(
        "failed to convert new object ({named}; autoscaling/v1, Kind=Scale) to proper version: request to convert CR to \
         an invalid group/version: autoscaling/v1"
    ))
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
        let scale = body::of_kind(&kind(), body, options.field_validation, ctx).map_err(|refused| {
            // The reference does not know what else it could have been.
            let other = target.kind.custom && refused.message.contains("cannot be handled as a Scale: ");
            let foreign = other && !refused.message.starts_with("Scale ");
            if !foreign {
                return refused;
            }
            Status::bad_request(
                "no kind is registered for the type v1.Scale in scheme \
                 \"k8s.io/apiextensions-apiserver/pkg/apiserver/customresource_handler.go:781\"",
            )
        })?;
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
            patch::patched(&kind(), None, live, body, options, ctx)
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
        let configuration = apply::read(&body.bytes).map_err(refused)?;
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
            let scale = apply::apply(&subject, Some(live), value, &writer, options.force).map_err(refused)?;
            if target.kind.custom && !same_but_managers(&scale, live) {
                return Err(unconverted(value));
            }
            Ok(scale)
        });
        let outcome = outcome.await?;
        warn(configuration, options, ctx)?;
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
        let author = Author { manager, subresource: None, tracked_as: Some("scale"), applied: true, replaces: true };
        let (gvk, version) = (kind(), target.kind.group_version().to_string());
        let ty = body::type_of(&gvk)?;
        let written = self
            .rewrite(&parent, dry_run, Some((&author, ctx)), |old| {
                let mut shown = old.clone();
                crate::versions::show(&target.kind, &mut shown)?;
                let places = Places::of(&target.kind);
                let live = with_managers(target, &shown);
                let mut scale = wanted(&live)?;
                body::agree_on_namespace(target, &mut scale)?;
                body::agree_on_name(target, &scale)?;
                let replicas = scale["spec"]["replicas"].as_i64().unwrap_or_default();
                // That of a custom resource is for its own validation to refuse.
                if !target.kind.custom {
                    let errors = schema::validation::validate_scale(&scale);
                    if !errors.is_empty() {
                        let blamed = GroupResource::new("autoscaling", "Scale");
                        return Err(Status::invalid(&blamed, target.name(), &errors));
                    }
                }
                let applies = matches!(scaler, Scaler::Applies(_));
                if !applies {
                    let now = meta::timestamp(self.now());
                    let writer = Writer { manager, subresource: "scale", time: &now };
                    let subject = Subject { gvk: &gvk, ty: &ty, custom: false, has_status: true, convert: None };
                    track_update(&subject, Some(&live), &mut scale, &writer);
                }
                let mut new = shown.clone();
                let changed = places.number(&shown, &places.replicas) != Some(replicas);
                places.set(&mut new, replicas);
                let metadata = meta::of_mut(&mut new);
                // Who applies the number that is there becomes one more owner of it.
                if changed || applies {
                    match managed::scale::to_parent(&shown, &scale, &version, &places.replicas) {
                        Some(managers) => metadata.insert("managedFields", managers),
                        None => metadata.shift_remove("managedFields"),
                    };
                }
                for member in ["resourceVersion", "uid"] {
                    match scale["metadata"].get(member) {
                        Some(said) => {
                            metadata.insert(member.to_owned(), said.clone());
                        }
                        // A custom resource is never written without saying which one: this one.
                        None if target.kind.custom => {}
                        None => {
                            metadata.shift_remove(member);
                        }
                    }
                }
                Ok(new)
            })
            .await?;
        let value = match &written {
            Written::Kept(item) => view::value(&target.kind, item)?,
            Written::Removed(value) | Written::Imagined(value) => {
                let mut value = value.clone();
                crate::versions::show(&target.kind, &mut value)?;
                value
            }
        };
        Ok(Outcome::new(200, View::Made { kind: None, value: of(target, &value) }))
    }
}
