//! Bodies that are read here and answered elsewhere: reviews, which say something about who asks and are never stored.

use machinery::json::{Value, json};
use machinery::options::CreateOptions;
use machinery::{GroupVersionKind, Status};
use schema::managed::{Subject, Writer, track_update};

use crate::body;
use crate::meta;
use crate::registry::Registry;
use crate::request::{Body, Context, Target};

impl Registry {
    /// The object of a POST to a kind that is not stored, as a create would have it before admission.
    pub fn unstored(
        &self,
        target: &Target,
        body: &Body,
        options: &CreateOptions,
        ctx: &Context,
    ) -> Result<Value, Status> {
        let kind = &target.kind;
        let mut object = body::object(kind, body, options.field_validation, ctx)?;
        body::agree_on_namespace(target, &mut object)?;
        schema::defaults::apply(kind, &mut object);
        let manager = ctx.manager(&options.field_manager);
        let (ty, now) = (body::type_of(&kind.gvk)?, meta::timestamp(self.now()));
        let writer = Writer { manager: &manager, subresource: "", time: &now };
        track_update(&Subject::new(kind, &ty), None, &mut object, &writer);
        Ok(object)
    }
}

/// YAML that is no object of a kind (options of a delete).
pub fn yaml(text: &[u8]) -> Result<Value, Status> {
    machinery::yaml::read(text).map(|document| document.value).map_err(Status::bad_request)
}

/// Options of a delete in protobuf. They may name any group: every group knows the same options.
pub fn protobuf_options(body: &[u8]) -> Result<Value, Status> {
    let gvk = GroupVersionKind::new("meta.k8s.io", "v1", "DeleteOptions");
    let opened = schema::protobuf::open(body).map_err(Status::bad_request)?;
    let mut options = match opened.kind {
        "" | "DeleteOptions" => {
            let ty = body::type_of(&gvk)?;
            let mut options = schema::protobuf::read(&ty, opened.raw).map_err(Status::bad_request)?;
            schema::decode::normalise(&ty, &mut options).map_err(Status::bad_request)?;
            options
        }
        _ => json!({}),
    };
    options["kind"] = json!(opened.kind);
    options["apiVersion"] = json!(opened.api_version);
    Ok(options)
}
