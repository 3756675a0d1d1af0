//! Bodies that are decoded here and handled elsewhere: reviews, which are never stored, and options of a delete.

use machinery::json::{Value, json};
use machinery::options::CreateOptions;
use machinery::{GroupVersionKind, Status};
use schema::managed::{Subject, Writer, track_update};

use crate::admission::plugin::{Attributes, Operation, Options};
use crate::body;
use crate::meta;
use crate::registry::Registry;
use crate::request::{Body, WriteRequest};

/// Decodes the object of a POST to a kind that is not stored, and admits it. `check` validates what the mutating phase left.
pub(crate) async fn admit(
    registry: &Registry,
    request: WriteRequest<'_, CreateOptions>,
    body: &Body,
    check: impl FnOnce(&Value) -> Result<(), Status>,
) -> Result<Value, Status> {
    let WriteRequest { target, options, ctx } = request;
    let mut object = decode(registry, request, body)?;
    let name = meta::name(&object).to_owned();
    let attributes = Attributes::new(Operation::Create, target, Options::Create(options), ctx);
    let attributes = Attributes { name: &name, ..attributes };
    registry.admission().admit_unstored(&attributes, &mut object, check).await?;
    Ok(object)
}

/// Decodes the object of a POST to a kind that is not stored, as a create would have it before admission.
fn decode(registry: &Registry, request: WriteRequest<'_, CreateOptions>, body: &Body) -> Result<Value, Status> {
    let WriteRequest { target, options, ctx } = request;
    let kind = &target.kind;
    let mut object = body::object(kind, body, options.field_validation, ctx)?;
    body::check_namespace(target, &mut object)?;
    schema::defaults::apply(kind, &mut object, None);
    let manager = ctx.manager(&options.field_manager);
    let (ty, now) = (body::type_of(&kind.gvk)?, meta::timestamp(registry.now()));
    let writer = Writer { manager: &manager, subresource: "", time: &now };
    track_update(&Subject::new(kind, &ty), None, &mut object, &writer);
    Ok(object)
}

/// Parses YAML of no particular kind (options of a delete).
pub fn yaml(text: &[u8]) -> Result<Value, Status> {
    machinery::yaml::read(text).map(|document| document.value).map_err(Status::bad_request)
}

/// Decodes options of a delete in protobuf. They may name any group: every group has the same options.
pub fn protobuf_options(body: &[u8]) -> Result<Value, Status> {
    let gvk = GroupVersionKind::new("meta.k8s.io", "v1", "DeleteOptions");
    let opened = schema::protobuf::open(body).map_err(Status::bad_request)?;
    let mut options = match opened.kind {
        "" | "DeleteOptions" => {
            let ty = body::type_of(&gvk)?;
            let mut options = schema::protobuf::read(&ty, opened.raw).map_err(Status::bad_request)?;
            schema::decode::normalise(&ty, &mut options, None).map_err(Status::bad_request)?;
            options
        }
        _ => json!({}),
    };
    options["kind"] = json!(opened.kind);
    options["apiVersion"] = json!(opened.api_version);
    Ok(options)
}
