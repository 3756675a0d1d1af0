//! Decodes bodies as the objects they must be, and checks them against the path they were sent to.

use machinery::json::{Value, json};
use machinery::media::MediaType;
use machinery::options::FieldValidation;
use machinery::{FieldError, GroupResource, GroupVersionKind, Status};
use schema::custom::Definition;
use schema::decode::KnownMember;
use schema::facts::{Type, Types};
use schema::kind::Kind;

use crate::meta;
use crate::request::{Body, Context, Target};

/// Decodes the object in a body, in the version of the endpoint.
pub(crate) fn object(kind: &Kind, body: &Body, validation: FieldValidation, ctx: &Context) -> Result<Value, Status> {
    let object = match &kind.definition {
        Some(definition) => custom_object(kind, definition, body, validation, ctx),
        None => decode(&kind.gvk, body, validation, None, ctx).map(|(object, _)| object),
    }?;
    ctx.annotations.keep_sent(Some(kind), &object);
    Ok(object)
}

/// As [`object`], for a kind that a definition describes.
fn custom_object(
    kind: &Kind,
    definition: &Definition,
    body: &Body,
    validation: FieldValidation,
    ctx: &Context,
) -> Result<Value, Status> {
    if body.media == MediaType::Protobuf {
        return Err(Status::unsupported_media_type(&machinery::media::PLAIN[..2]));
    }
    let decoded = schema::custom::decode::decode(definition.version(), &kind.gvk, &body.bytes, body.media, validation)
        .map_err(|error| error.to_status(&kind.gvk.kind, &body.bytes))?;
    for warning in decoded.warnings {
        ctx.warnings.push(warning);
    }
    check_kind(kind, &decoded.value)?;
    Ok(decoded.value)
}

/// Refuses an object of another kind of the same version.
pub(crate) fn check_kind(kind: &Kind, object: &Value) -> Result<(), Status> {
    let found = object["kind"].as_str().unwrap_or_default();
    if found == kind.gvk.kind {
        return Ok(());
    }
    let error = FieldError::invalid("kind", found, format!("must be {}", kind.gvk.kind));
    let found_kind = GroupResource::new(&*kind.gvk.group, found);
    Err(Status::invalid(&found_kind, meta::name(object), &[error]))
}

/// As [`object`], for a built-in kind or that of a subresource.
pub(crate) fn object_of(
    gvk: &GroupVersionKind,
    body: &Body,
    validation: FieldValidation,
    ctx: &Context,
) -> Result<Value, Status> {
    let (object, _) = decode(gvk, body, validation, None, ctx)?;
    ctx.annotations.keep_sent(None, &object);
    Ok(object)
}

/// As [`object_of`]; also returns the number of complaints. `known` is a member that was decoded before.
pub(crate) fn decode(
    gvk: &GroupVersionKind,
    body: &Body,
    validation: FieldValidation,
    known: Option<KnownMember<'_>>,
    ctx: &Context,
) -> Result<(Value, usize), Status> {
    // Custom resources have no protobuf messages.
    if body.media == MediaType::Protobuf && Types::get().kind(gvk).is_none() {
        return Err(Status::unsupported_media_type(&machinery::media::PLAIN[..2]));
    }
    let ty = type_of(gvk)?;
    let decoded = schema::decode::decode(&ty, gvk, &body.bytes, body.media, validation, known)
        .map_err(|error| error.to_status(&gvk.kind, &body.bytes))?;
    let complaints = decoded.warnings.len();
    for warning in decoded.warnings {
        ctx.warnings.push(warning);
    }
    Ok((decoded.value, complaints))
}

/// The kind that refusals of an object name: in the group it is stored in.
pub(crate) fn error_kind(kind: &Kind) -> GroupResource {
    GroupResource::new(&*kind.storage.group, &*kind.gvk.kind)
}

/// The fields of a kind, built-in or custom.
pub(crate) fn type_of_kind(kind: &Kind) -> Result<Type, Status> {
    match &kind.definition {
        Some(definition) => Ok(definition.version().ty.clone()),
        None => type_of(&kind.gvk),
    }
}

/// The fields of a built-in kind.
pub(crate) fn type_of(gvk: &GroupVersionKind) -> Result<Type, Status> {
    Types::get().kind(gvk).ok_or_else(|| Status::internal(format_args!("the fields of {gvk} are not known")))
}

/// Brings an object that the server changed itself into the order and form of the wire.
///
/// `known` is in that form already: parts that `object` has in common with it are left alone.
pub(crate) fn normalise(kind: &Kind, object: &mut Value, known: Option<&Value>) -> Result<(), Status> {
    if kind.custom {
        return schema::custom::decode::normalise_metadata(object).map_err(Status::internal);
    }
    let ty = type_of(&kind.gvk)?;
    schema::decode::normalise(&ty, object, known).map(|_| ()).map_err(Status::internal)
}

/// Checks that the namespace of an object is that of its path; fills in an absent one.
pub(crate) fn check_namespace(target: &Target, object: &mut Value) -> Result<(), Status> {
    let stated = meta::text(object, "namespace").to_owned();
    match target.namespace.as_deref().filter(|_| target.kind.namespaced) {
        Some(namespace) if stated.is_empty() => {
            meta::of_mut(object).insert("namespace", json!(namespace));
            Ok(())
        }
        Some(namespace) if stated != namespace => Err(Status::bad_request(
            "the namespace of the provided object does not match the namespace sent on the request",
        )),
        Some(_) => Ok(()),
        None => {
            if !stated.is_empty() {
                meta::of_mut(object).shift_remove("namespace");
            }
            Ok(())
        }
    }
}

/// Checks that the name of an object is that of its path.
pub(crate) fn check_name(target: &Target, object: &Value) -> Result<(), Status> {
    let (stated, path) = (meta::name(object), target.name());
    if stated.is_empty() {
        return Err(Status::bad_request(format!(
            "the name of the object ({path} based on URL) was undeterminable: name must be provided"
        )));
    }
    if stated != path {
        return Err(Status::bad_request(format!(
            "the name of the object ({stated}) does not match the name on the URL ({path})"
        )));
    }
    Ok(())
}
