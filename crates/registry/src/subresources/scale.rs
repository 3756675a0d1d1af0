//! Scale: the replica count of a workload, as `autoscaling/v1` Scale.

use machinery::json::{Value, json};
use machinery::options::{GetOptions, PatchOptions, UpdateOptions};
use machinery::{GroupResource, GroupVersionKind, Status, labels};
use schema::kind::Kind;
use schema::managed::{self, Subject, Writer, track_update};

use crate::admission::plugin::{Attributes, Operation, Options};
use crate::body;
use crate::meta;
use crate::read::get::find;
use crate::read::view::{self, Outcome, View};
use crate::registry::Registry;
use crate::request::{Body, PatchBody, Target, WriteRequest};
use crate::versions;
use crate::write::apply::{refused, warn};
use crate::write::patch::patched;
use crate::write::update::{Author, Make, rewrite_with};

pub(crate) async fn get(registry: &Registry, target: &Target, options: &GetOptions) -> Result<View, Status> {
    let item = find(registry, target, options).await?;
    let workload = view::value(&target.kind, &item)?;
    let paths = ScalePaths::of(&target.kind);
    if target.kind.custom && paths.at(&workload, &paths.replicas).is_none() {
        let path = paths.replicas.join(".");
        return Err(Status::internal(format_args!("the spec replicas field \".{path}\" does not exist")));
    }
    Ok(View::Made { kind: None, value: scale_of(target, &workload) })
}

/// The paths of the numbers of a Scale in its workload.
struct ScalePaths<'a> {
    replicas: Vec<&'a str>,
    current: Vec<&'a str>,
    /// A text in a custom resource; built-in workloads have label selectors.
    selector: Option<Vec<&'a str>>,
}

impl<'a> ScalePaths<'a> {
    fn of(kind: &'a Kind) -> Self {
        let names = |path: &'a [String]| path.iter().map(String::as_str).collect();
        match kind.definition.as_ref().and_then(|definition| definition.scale.as_ref()) {
            Some(scale) => ScalePaths {
                replicas: names(&scale.spec_replicas),
                current: names(&scale.status_replicas),
                selector: scale.selector.as_deref().map(names),
            },
            None => ScalePaths { replicas: REPLICAS.to_vec(), current: vec!["status", "replicas"], selector: None },
        }
    }

    fn at<'v>(&self, workload: &'v Value, path: &[&str]) -> Option<&'v Value> {
        path.iter().try_fold(workload, |at, name| at.get(*name))
    }

    fn number(&self, workload: &Value, path: &[&str]) -> Option<i64> {
        self.at(workload, path).and_then(Value::as_i64)
    }

    /// Writes the number of replicas, and the objects on its path if they are missing.
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
pub(crate) fn scale_of(target: &Target, workload: &Value) -> Value {
    let from = &workload["metadata"];
    let mut metadata = json!({});
    for member in ["name", "namespace", "uid", "resourceVersion", "creationTimestamp"] {
        if let Some(value) = from.get(member) {
            metadata[member] = value.clone();
        }
    }
    let mut spec = json!({});
    let paths = ScalePaths::of(&target.kind);
    if let Some(replicas) = paths.number(workload, &paths.replicas).filter(|replicas| *replicas != 0) {
        spec["replicas"] = json!(replicas);
    }
    let mut status = json!({"replicas": paths.number(workload, &paths.current).unwrap_or_default()});
    if target.kind.custom {
        let selector = paths.selector.as_ref().and_then(|path| paths.at(workload, path)).and_then(Value::as_str);
        if let Some(selector) = selector.filter(|selector| !selector.is_empty()) {
            status["selector"] = json!(selector);
        }
        return scale(metadata, spec, status);
    }
    let selector = crate::kinds::behaviour(&target.kind).label_selector(workload);
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

/// The path of the replicas in every built-in workload that has a Scale.
const REPLICAS: [&str; 2] = ["spec", "replicas"];

/// The Scale with its managers: those of the workload that own its replicas.
fn with_managers(target: &Target, workload: &Value) -> Value {
    let mut scale = scale_of(target, workload);
    let version = target.kind.group_version().to_string();
    if let Some(managers) = managed::scale::of_parent(workload, &version, &ScalePaths::of(&target.kind).replicas) {
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

/// The reference cannot read the Scale that an apply to a custom resource creates: it looks for the version of the Scale
/// among those of the resource. It does not try to where the number stays the same.
fn unconverted(sent: &Value) -> Status {
    let named = format!("{}/{}", meta::text(sent, "namespace"), meta::text(sent, "name"));
    Status::unmapped(format!(
        "failed to convert new object ({named}; autoscaling/v1, Kind=Scale) to proper version: request to convert CR to \
         an invalid group/version: autoscaling/v1"
    ))
}

fn scale_kind() -> GroupVersionKind {
    GroupVersionKind::new("autoscaling", "v1", "Scale")
}

/// The writer of a Scale, and how it writes.
#[derive(Clone, Copy)]
enum Scaler<'a> {
    /// Owns what it changes.
    Updates(&'a str),
    /// Owns what it states, which is recorded already.
    Applies(&'a str),
}

pub(crate) async fn update(
    registry: &Registry,
    request: WriteRequest<'_, UpdateOptions>,
    body: &Body,
) -> Result<Outcome, Status> {
    let WriteRequest { target, options, ctx } = request;
    let scale = body::object_of(&scale_kind(), body, options.field_validation, ctx).map_err(|refused| {
        // The reference names no kind here.
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
    let attributes = Attributes::new(Operation::Update, target, Options::Update(options), ctx);
    write(registry, &attributes, Scaler::Updates(&manager), |_| Ok(scale.clone())).await
}

pub(crate) async fn patch(
    registry: &Registry,
    request: WriteRequest<'_, PatchOptions>,
    body: &PatchBody,
) -> Result<Outcome, Status> {
    let WriteRequest { target, options, ctx } = request;
    let manager = ctx.manager(&options.field_manager);
    let attributes = Attributes::new(Operation::Update, target, Options::Patch(options), ctx);
    write(registry, &attributes, Scaler::Updates(&manager), |live| {
        patched(&scale_kind(), None, live, body, options, ctx)
    })
    .await
}

/// Applies the number of replicas as one field of a manager.
pub(crate) async fn apply(
    registry: &Registry,
    request: WriteRequest<'_, PatchOptions>,
    body: &PatchBody,
) -> Result<Outcome, Status> {
    let WriteRequest { target, options, ctx } = request;
    let configuration = managed::apply::read(&body.bytes).map_err(refused)?;
    let manager = &options.field_manager;
    let (gvk, value) = (scale_kind(), &configuration.value);
    let stated = (value["apiVersion"].as_str().unwrap_or_default(), value["kind"].as_str().unwrap_or_default());
    if stated != ("autoscaling/v1", "Scale") {
        return Err(Status::bad_request(format!("invalid object type: {}, Kind={}", stated.0, stated.1)));
    }
    let ty = body::type_of(&gvk)?;
    let attributes = Attributes::new(Operation::Update, target, Options::Patch(options), ctx);
    let outcome = write(registry, &attributes, Scaler::Applies(manager), |live| {
        let now = meta::timestamp(registry.now());
        let writer = Writer { manager, subresource: "scale", time: &now };
        let subject = Subject { gvk: &gvk, ty: &ty, custom: false, has_status: true, convert: None };
        let scale = managed::apply::apply(&subject, Some(live), value, &writer, options.force).map_err(refused)?;
        if target.kind.custom && !same_but_managers(&scale, live) {
            return Err(unconverted(value));
        }
        Ok(scale)
    });
    let outcome = outcome.await?;
    warn(configuration, options, ctx)?;
    Ok(outcome)
}

/// The new state of a workload, made from that of its Scale.
struct ScaleChange<'a, F> {
    registry: &'a Registry,
    attributes: &'a Attributes<'a>,
    scaler: Scaler<'a>,
    wanted: F,
}

/// Writes the replicas of a Scale into its workload.
async fn write(
    registry: &Registry,
    attributes: &Attributes<'_>,
    scaler: Scaler<'_>,
    wanted: impl FnMut(&Value) -> Result<Value, Status> + Send,
) -> Result<Outcome, Status> {
    let target = attributes.target;
    let (Scaler::Applies(manager) | Scaler::Updates(manager)) = scaler;
    let parent = target.parent();
    let author = Author {
        manager,
        subresource: None,
        tracked_as: Some("scale"),
        applied: true,
        replaces: true,
        scale: Some(*attributes),
    };
    let change = ScaleChange { registry, attributes, scaler, wanted };
    let committed = rewrite_with(registry, &attributes.of(&parent), &author, change).await?;
    let view = registry.converter().prepare_view(committed.into_view(&parent)?).await?;
    let value = view.value()?;
    Ok(Outcome::new(200, View::Made { kind: None, value: scale_of(target, &value) }))
}

impl<F: FnMut(&Value) -> Result<Value, Status> + Send> Make for ScaleChange<'_, F> {
    async fn make(&mut self, old: &Value) -> Result<Value, Status> {
        let (registry, attributes, scaler) = (self.registry, self.attributes, self.scaler);
        let target = attributes.target;
        let (Scaler::Applies(manager) | Scaler::Updates(manager)) = scaler;
        let (gvk, version) = (scale_kind(), target.kind.group_version().to_string());
        let ty = body::type_of(&gvk)?;
        let mut shown = old.clone();
        versions::show(&target.kind, &mut shown)?;
        let paths = ScalePaths::of(&target.kind);
        let live = with_managers(target, &shown);
        let mut scale = (self.wanted)(&live)?;
        body::check_namespace(target, &mut scale)?;
        body::check_name(target, &scale)?;
        let applies = matches!(scaler, Scaler::Applies(_));
        if !applies {
            let now = meta::timestamp(registry.now());
            let writer = Writer { manager, subresource: "scale", time: &now };
            let subject = Subject { gvk: &gvk, ty: &ty, custom: false, has_status: true, convert: None };
            track_update(&subject, Some(&live), &mut scale, &writer);
        }
        registry.admission().mutate(attributes, &mut scale, Some(&live)).await?;
        let replicas = scale["spec"]["replicas"].as_i64().unwrap_or_default();
        // A custom resource validates its replicas itself.
        if !target.kind.custom {
            let errors = schema::validation::validate_scale(&scale);
            if !errors.is_empty() {
                let kind = GroupResource::new("autoscaling", "Scale");
                return Err(Status::invalid(&kind, target.name(), &errors));
            }
        }
        let mut new = shown.clone();
        let changed = paths.number(&shown, &paths.replicas) != Some(replicas);
        paths.set(&mut new, replicas);
        let metadata = meta::of_mut(&mut new);
        // A manager that applies the present number becomes one more owner of it.
        if changed || applies {
            match managed::scale::to_parent(&shown, &scale, &version, &paths.replicas) {
                Some(managers) => metadata.insert("managedFields", managers),
                None => metadata.shift_remove("managedFields"),
            };
        }
        for member in ["resourceVersion", "uid"] {
            match scale["metadata"].get(member) {
                Some(stated) => {
                    metadata.insert(member.to_owned(), stated.clone());
                }
                // A custom resource is never written without its revision and uid: those of this one.
                None if target.kind.custom => {}
                None => {
                    metadata.shift_remove(member);
                }
            }
        }
        Ok(new)
    }
}
