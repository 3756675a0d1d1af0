//! Objects of a request in the version that a rule names.

use std::sync::Arc;

use machinery::Status;
use machinery::json::Value;
use schema::kind::Kind;

use super::matching::Matched;
use super::plugin::{Attributes, States};
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

    /// The old and the new object of a request as the rule that matched names them, in the form of the wire.
    pub(crate) async fn shown(
        &self,
        attributes: &Attributes<'_>,
        matched: &Matched,
        states: States<'_>,
    ) -> Result<(Option<Value>, Option<Value>), Status> {
        let kind = matched.kind(attributes);
        if kind == attributes.kind() && (states.is_wire || *kind == matched.resource(attributes).gvk) {
            let mut new = states.new.cloned();
            if let Some(new) = new.as_mut().filter(|_| !states.is_wire) {
                // What is stored is in that form, and so are the parts that a new state has in common with it.
                body::normalise(matched.resource(attributes), new, states.old)?;
            }
            return Ok((states.old.cloned(), new));
        }
        let one = async |object: Option<&Value>| match object {
            Some(object) => self.shown_one(attributes, matched, object).await.map(Some),
            None => Ok(None),
        };
        Ok((one(states.old).await?, one(states.new).await?))
    }

    async fn shown_one(&self, attributes: &Attributes<'_>, matched: &Matched, object: &Value) -> Result<Value, Status> {
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
