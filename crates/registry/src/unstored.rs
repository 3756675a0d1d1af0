//! Bodies that are read here and answered elsewhere: reviews, which say something about who asks and are never stored.

use machinery::Status;
use machinery::options::CreateOptions;
use schema::managed::{Subject, Writer, track_update};
use serde_json::Value;

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
    schema::decode::yaml::parse(text).map(|document| document.value).map_err(Status::bad_request)
}
