//! Objects of the lab, as its powers read and write them.

use std::sync::Arc;

use bytes::Bytes;
use machinery::field_error::FieldError;
use machinery::json::{Value, json};
use machinery::media::PatchType;
use machinery::options::{DeleteOptions, PatchOptions};
use machinery::{GroupResource, Revision, Status};
use registry::{Context, Outcome, PatchBody, Registry, Target, WriteRequest};

use crate::kinds::GROUP;

/// Replaces members of the status of an object.
pub(crate) async fn write_status(
    registry: &Registry,
    plural: &str,
    name: &str,
    status: Value,
) -> Result<Outcome, Status> {
    let target = target(registry, plural, name, Some("status"))?;
    let (options, ctx) = (PatchOptions::default(), Context { user_agent: "dogwatch".to_owned(), ..Context::default() });
    let body = PatchBody { bytes: Bytes::from(json!({"status": status}).to_string()), kind: PatchType::Merge };
    registry.patch(WriteRequest { target: &target, options: &options, ctx: &ctx }, &body).await
}

/// Removes an object that came to nothing.
pub(crate) async fn remove(registry: &Registry, plural: &str, name: &str) {
    let Ok(target) = target(registry, plural, name, None) else { return };
    let (options, ctx) = (DeleteOptions::default(), Context::default());
    if let Err(error) = registry.delete(WriteRequest { target: &target, options: &options, ctx: &ctx }).await {
        tracing::warn!(plural, name, %error, "an object of the lab could not be removed");
    }
}

fn target(registry: &Registry, plural: &str, name: &str, subresource: Option<&str>) -> Result<Target, Status> {
    let kinds = registry.kinds();
    let kind =
        kinds.get(GROUP, "v1", plural).ok_or_else(|| Status::internal(format_args!("{plural} are not served")))?;
    Ok(Target {
        kind: Arc::clone(kind),
        namespace: None,
        name: Some(name.to_owned()),
        subresource: subresource.map(str::to_owned),
    })
}

/// A revision as objects have it: a number or a text.
pub(crate) fn revision(value: &Value, of: &Named<'_>, field: &str) -> Result<Option<Revision>, Status> {
    let number = match (value.as_u64(), value.as_str()) {
        _ if value.is_null() => return Ok(None),
        (Some(number), _) => Some(number),
        (None, Some(text)) => text.parse().ok(),
        (None, None) => None,
    };
    match number.filter(|number| *number > 0) {
        Some(number) => Ok(Some(Revision(number))),
        None => {
            let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            Err(of.invalid(FieldError::invalid(field, text, "must be a resourceVersion")))
        }
    }
}

/// An object of the lab in errors.
pub(crate) struct Named<'a> {
    pub(crate) kind: &'a str,
    pub(crate) plural: &'a str,
    pub(crate) name: &'a str,
}

impl Named<'_> {
    pub(crate) fn invalid(&self, error: FieldError) -> Status {
        Status::invalid(&GroupResource::new(GROUP, self.kind), self.name, &[error])
    }

    pub(crate) fn conflict(&self, why: impl std::fmt::Display) -> Status {
        Status::conflict(&GroupResource::new(GROUP, self.plural), self.name, why)
    }
}
