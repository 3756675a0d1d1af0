//! Objects of a request in the version that a rule names.

use std::sync::Arc;

use machinery::Status;
use machinery::json::Value;
use schema::kind::Kind;

use super::matching::Matched;
use super::plugin::Attributes;
use crate::body;
use crate::conversion_webhook::{self, Converter};
use crate::versions;

/// Converts objects of a request between the versions of its resource.
#[derive(Clone)]
pub(crate) struct Versions {
    converter: Arc<Converter>,
}

impl Versions {
    pub(crate) fn new(converter: Arc<Converter>) -> Self {
        Versions { converter }
    }

    /// Converts an object from the version of one kind to that of another of the same resource.
    pub(crate) async fn convert(&self, from: &Kind, to: &Kind, mut object: Value) -> Result<Value, Status> {
        if from.gvk == to.gvk {
            return Ok(object);
        }
        if conversion_webhook::webhook(to).is_some() {
            return self.converter.between(to, object).await;
        }
        versions::to_storage(from, &mut object)?;
        versions::show(to, &mut object)?;
        Ok(object)
    }

    /// An object of a request as the rule that matched names it, in the form of the wire.
    pub(crate) async fn shown(
        &self,
        attributes: &Attributes<'_>,
        matched: &Matched,
        object: &Value,
    ) -> Result<Value, Status> {
        let mut object = match &matched.other {
            Some(other) if matched.kind(attributes) != attributes.kind() => {
                self.convert(&attributes.target.kind, other, object.clone()).await?
            }
            _ => object.clone(),
        };
        let kind = matched.resource(attributes);
        if matched.kind(attributes) == &kind.gvk {
            body::normalise(kind, &mut object, None)?;
        } else if let Ok(ty) = body::type_of(matched.kind(attributes)) {
            schema::decode::normalise(&ty, &mut object, None).map_err(Status::internal)?;
        }
        Ok(object)
    }

    /// The way back: an object that is in the matched version, in the version of the request.
    pub(crate) async fn restored(
        &self,
        attributes: &Attributes<'_>,
        matched: &Matched,
        object: Value,
    ) -> Result<Value, Status> {
        match &matched.other {
            Some(other) if matched.kind(attributes) != attributes.kind() => {
                self.convert(other, &attributes.target.kind, object).await
            }
            _ => Ok(object),
        }
    }
}
