//! Reads what a client sent as the object it must be, and holds it against the path it was sent to.

use machinery::json::{Value, json};
use machinery::media::MediaType;
use machinery::options::FieldValidation;
use machinery::{FieldError, Status};
use schema::custom::Definition;
use schema::decode::{KnownMember, Media};
use schema::facts::{Type, Types};
use schema::kind::Kind;

use crate::meta;
use crate::request::{Body, Context, Target};

/// The object in a body, in the version of the endpoint.
pub(crate) fn object(kind: &Kind, body: &Body, validation: FieldValidation, ctx: &Context) -> Result<Value, Status> {
    match &kind.definition {
        Some(definition) => custom(kind, definition, body, validation, ctx),
        None => of_kind(&kind.gvk, body, validation, ctx),
    }
}

/// As [`object`], for a kind that a definition describes.
fn custom(
    kind: &Kind,
    definition: &Definition,
    body: &Body,
    validation: FieldValidation,
    ctx: &Context,
) -> Result<Value, Status> {
    let media = match body.media {
        MediaType::Json => Media::Json,
        MediaType::Yaml => Media::Yaml,
        MediaType::Protobuf => return Err(Status::unsupported_media_type(&machinery::media::PLAIN[..2])),
    };
    let decoded =
        schema::custom::decode::decode(definition.version(), &kind.gvk, &body.bytes, media, strictness(validation))
            .map_err(|error| error.to_status(&kind.gvk.kind, &body.bytes))?;
    for warning in decoded.warnings {
        ctx.warnings.push(warning);
    }
    is_of_kind(kind, &decoded.value)?;
    Ok(decoded.value)
}

/// An object of another kind of the same version is refused by its name.
pub(crate) fn is_of_kind(kind: &Kind, object: &Value) -> Result<(), Status> {
    let found = object["kind"].as_str().unwrap_or_default();
    if found == kind.gvk.kind {
        return Ok(());
    }
    let error = FieldError::invalid("kind", found, format!("must be {}", kind.gvk.kind));
    let blamed = machinery::GroupResource::new(&*kind.gvk.group, found);
    Err(Status::invalid(&blamed, meta::name(object), &[error]))
}

/// As [`object`], for a kind that a subresource speaks.
pub(crate) fn of_kind(
    gvk: &machinery::GroupVersionKind,
    body: &Body,
    validation: FieldValidation,
    ctx: &Context,
) -> Result<Value, Status> {
    beside(gvk, body, validation, None, ctx).map(|(object, _)| object)
}

/// As [`of_kind`], of a body that has a member in common with another object; and how much in it was complained of.
pub(crate) fn beside(
    gvk: &machinery::GroupVersionKind,
    body: &Body,
    validation: FieldValidation,
    known: Option<KnownMember<'_>>,
    ctx: &Context,
) -> Result<(Value, usize), Status> {
    let media = match body.media {
        MediaType::Json => Media::Json,
        MediaType::Yaml => Media::Yaml,
        // Custom resources have no messages.
        MediaType::Protobuf if Types::get().kind(gvk).is_none() => {
            return Err(Status::unsupported_media_type(&machinery::media::PLAIN[..2]));
        }
        MediaType::Protobuf => Media::Protobuf,
    };
    let ty = type_of(gvk)?;
    let decoded = schema::decode::decode_beside(&ty, gvk, &body.bytes, media, strictness(validation), known)
        .map_err(|error| error.to_status(&gvk.kind, &body.bytes))?;
    let complaints = decoded.warnings.len();
    for warning in decoded.warnings {
        ctx.warnings.push(warning);
    }
    Ok((decoded.value, complaints))
}

/// The kind that refusals of an object name: that of the version it is stored in.
pub(crate) fn blamed(kind: &Kind) -> machinery::GroupResource {
    machinery::GroupResource::new(&*kind.storage.group, &*kind.gvk.kind)
}

/// The fields of a kind, built-in or custom.
pub(crate) fn type_of_kind(kind: &Kind) -> Result<Type, Status> {
    match &kind.definition {
        Some(definition) => Ok(definition.version().ty.clone()),
        None => type_of(&kind.gvk),
    }
}

/// The fields of a built-in kind.
pub(crate) fn type_of(gvk: &machinery::GroupVersionKind) -> Result<Type, Status> {
    Types::get().kind(gvk).ok_or_else(|| Status::internal(format_args!("the fields of {gvk} are not known")))
}

/// Brings an object that the server changed itself into the order and form of the wire.
///
/// `known` is in that form already: parts that `object` has in common with it are fine.
pub(crate) fn in_order(kind: &Kind, object: &mut Value, known: Option<&Value>) -> Result<(), Status> {
    if kind.custom {
        return schema::custom::decode::normalise_metadata(object).map_err(Status::internal);
    }
    let ty = type_of(&kind.gvk)?;
    let normalised = match known {
        Some(known) => schema::decode::normalise_beside(&ty, object, known),
        None => schema::decode::normalise(&ty, object),
    };
    normalised.map(|_| ()).map_err(Status::internal)
}

pub(crate) fn strictness(validation: FieldValidation) -> schema::decode::FieldValidation {
    match validation {
        FieldValidation::Ignore => schema::decode::FieldValidation::Ignore,
        FieldValidation::Warn => schema::decode::FieldValidation::Warn,
        FieldValidation::Strict => schema::decode::FieldValidation::Strict,
    }
}

/// The namespace of an object must be that of its path; an absent one is filled in.
pub(crate) fn agree_on_namespace(target: &Target, object: &mut Value) -> Result<(), Status> {
    let said = meta::text(object, "namespace").to_owned();
    match target.namespace.as_deref().filter(|_| target.kind.namespaced) {
        Some(namespace) if said.is_empty() => {
            meta::of_mut(object).insert("namespace", json!(namespace));
            Ok(())
        }
        Some(namespace) if said != namespace => Err(Status::bad_request(
            "the namespace of the provided object does not match the namespace sent on the request",
        )),
        Some(_) => Ok(()),
        None => {
            if !said.is_empty() {
                meta::of_mut(object).shift_remove("namespace");
            }
            Ok(())
        }
    }
}

/// The name of an object must be that of its path.
pub(crate) fn agree_on_name(target: &Target, object: &Value) -> Result<(), Status> {
    let (said, path) = (meta::name(object), target.name());
    if said.is_empty() {
        return Err(Status::bad_request(format!(
            "the name of the object ({path} based on URL) was undeterminable: name must be provided"
        )));
    }
    if said != path {
        return Err(Status::bad_request(format!(
            "the name of the object ({said}) does not match the name on the URL ({path})"
        )));
    }
    Ok(())
}
