//! Objects and patches, through all steps before they are stored.
//!
//! The first bytes of an input choose a kind and how to read it; the rest is the body.

use std::sync::{Arc, OnceLock};

use certificates::{CertificateRequest, certificate, signers};
use machinery::json::Value;
use machinery::media::PatchType;
use machinery::options::DeleteOptions;
use machinery::yaml;
use schema::decode::{self, FieldValidation, MediaType};
use schema::facts::{Type, Types};
use schema::kind::Kind;
use schema::managed::{Subject, Writer, apply, track_update};
use schema::{columns, defaults, kinds, patch, protobuf, strategy, validation, warnings};

use crate::seeds;

const NOW: &str = "2026-01-02T03:04:05Z";
const WRITER: Writer<'static> = Writer { manager: "fuzz", subresource: "", time: NOW };
const MEDIA: [MediaType; 3] = [MediaType::Json, MediaType::Yaml, MediaType::Protobuf];
const VALIDATION: [FieldValidation; 3] = [FieldValidation::Warn, FieldValidation::Strict, FieldValidation::Ignore];
const PATCHES: [PatchType; 4] = [PatchType::Json, PatchType::Merge, PatchType::Strategic, PatchType::Apply];

/// The kinds that have a type, sorted by name.
fn all() -> &'static [(Arc<Kind>, Type)] {
    static ALL: OnceLock<Vec<(Arc<Kind>, Type)>> = OnceLock::new();
    ALL.get_or_init(|| {
        let typed = |kind: &Arc<Kind>| Some((Arc::clone(kind), Types::get().kind(&kind.gvk)?));
        let mut all: Vec<_> = kinds::builtin().iter().filter_map(typed).collect();
        all.sort_by_key(|(kind, _)| kind.gvk.to_string());
        all
    })
}

fn chosen<T>(from: &[T], byte: u8) -> &T {
    &from[usize::from(byte) % from.len()]
}

/// An input for [`body`].
///
/// # Panics
/// If there is no such built-in kind.
pub fn body_input(kind: &str, media: MediaType, body: &[u8]) -> Vec<u8> {
    let number = all().iter().position(|(known, _)| known.gvk.kind == kind).expect("a built-in kind");
    let media = MEDIA.iter().position(|known| *known == media).expect("all of them are there");
    let head = [u8::try_from(number).expect("fewer than 256 kinds"), u8::try_from(media).expect("one of three")];
    [&head, body].concat()
}

/// The body of a POST.
pub fn body(data: &[u8]) {
    let [number, how, body @ ..] = data else { return };
    let (kind, ty) = chosen(all(), *number);
    let validation = *chosen(&VALIDATION, how / 3);
    match decode::decode(ty, &kind.gvk, body, *chosen(&MEDIA, *how), validation, None) {
        Ok(mut decoded) => {
            // As set from the path of a request.
            if kind.namespaced
                && let Some(metadata) = decoded.value.get_mut("metadata").and_then(Value::as_object_mut)
            {
                metadata.insert("namespace".to_owned(), "d".into());
            }
            drop(create(kind, ty, decoded.value));
        }
        Err(error) => drop(error.to_status(&kind.gvk.kind, body)),
    }
}

/// Runs the steps of a create; returns the object that would be stored.
fn create(kind: &Kind, ty: &Type, mut object: Value) -> Option<Value> {
    // A decoded object is in normal form: decoding it again changes nothing.
    let text = object.to_string();
    let again = decode::decode(ty, &kind.gvk, text.as_bytes(), MediaType::Json, FieldValidation::Strict, None);
    let again = again.unwrap_or_else(|error| panic!("{error:?}: {text}"));
    assert_eq!(again.value, object, "{text}");
    defaults::apply(kind, &mut object, None);
    track_update(&Subject::new(kind, ty), None, &mut object, &WRITER);
    strategy::admit_create(kind, &mut object);
    strategy::prepare_for_create(kind, &mut object);
    let _ = warnings::on_write(kind, &object, None, false);
    if !validation::validate_create(kind, &object, false).is_empty() {
        return None;
    }
    stored(kind, ty, &object);
    Some(object)
}

/// Runs the steps on an object that passed validation.
fn stored(kind: &Kind, ty: &Type, object: &Value) {
    let _ = columns::row(kind, object, 1_800_000_000);
    if let Ok(message) = protobuf::write(ty, object) {
        protobuf::read(ty, &message).expect("an encoded message can be decoded");
    }
    let _ = yaml::to_yaml(object);
}

/// Objects to be patched: the seeds, as they would be stored.
fn patched_kinds() -> &'static [(Arc<Kind>, Type, Value)] {
    static STORED: OnceLock<Vec<(Arc<Kind>, Type, Value)>> = OnceLock::new();
    STORED.get_or_init(|| {
        let made = seeds::OBJECTS.iter().map(|(name, text)| {
            let (kind, ty) = all().iter().find(|(kind, _)| kind.gvk.kind == *name).expect("a built-in kind");
            let decoded =
                decode::decode(ty, &kind.gvk, text.as_bytes(), MediaType::Json, FieldValidation::Strict, None);
            let object = decoded.unwrap_or_else(|error| panic!("the seed {name}: {error:?}")).value;
            let object = create(kind, ty, object).unwrap_or_else(|| panic!("the seed {name} is valid"));
            (Arc::clone(kind), ty.clone(), object)
        });
        made.collect()
    })
}

/// An input for [`patch`].
///
/// # Panics
/// If no seed has that kind.
pub fn patch_input(kind: &str, form: PatchType, body: &[u8]) -> Vec<u8> {
    let number = patched_kinds().iter().position(|(known, ..)| known.gvk.kind == kind).expect("a kind with a seed");
    let form = PATCHES.iter().position(|known| *known == form).expect("all of them are there");
    let head = [u8::try_from(number).expect("few seeds"), u8::try_from(form).expect("one of four")];
    [&head, body].concat()
}

/// The body of a PATCH.
pub fn patch(data: &[u8]) {
    let [number, how, body @ ..] = data else { return };
    let (kind, ty, old) = chosen(patched_kinds(), *number);
    let validation = *chosen(&VALIDATION, how / 4);
    let target = patch::Target { ty, gvk: &kind.gvk, custom: false, version: None, validation };
    let patched = match chosen(&PATCHES, *how) {
        PatchType::Json => patch::json::apply(&target, old, body),
        PatchType::Merge => patch::merge::apply(&target, old, body),
        PatchType::Strategic => patch::strategic::apply(&target, old, body),
        PatchType::Apply => return apply_body(kind, ty, old, body),
    };
    match patched {
        Ok(patched) => update(kind, ty, patched.value, old),
        Err(error) => drop(error.to_status()),
    }
}

fn apply_body(kind: &Kind, ty: &Type, old: &Value, body: &[u8]) {
    let Ok(configuration) = apply::read(body) else { return };
    let subject = Subject::new(kind, ty);
    for live in [None, Some(old)] {
        for force in [false, true] {
            match apply::apply(&subject, live, &configuration.value, &WRITER, force) {
                Ok(applied) => update(kind, ty, applied, old),
                Err(error) => drop(error.to_status()),
            }
        }
    }
    let _ = configuration.warnings(FieldValidation::Strict);
}

/// Runs the steps of an update, of the object and of its status.
fn update(kind: &Kind, ty: &Type, mut new: Value, old: &Value) {
    defaults::apply(kind, &mut new, None);
    let mut status = new.clone();
    strategy::prepare_for_status_update(kind, &mut status, old, NOW);
    let _ = validation::validate_status_update(kind, &status, old, &mut Vec::new());
    strategy::admit_update(kind, &mut new, old);
    strategy::prepare_for_update(kind, &mut new, old);
    let _ = warnings::on_write(kind, &new, Some(old), false);
    if validation::validate_update(kind, &new, old, &mut Vec::new()).is_empty() {
        track_update(&Subject::new(kind, ty), Some(old), &mut new, &WRITER);
        stored(kind, ty, &new);
    }
}

/// The body of a DELETE.
pub fn delete_options(data: &[u8]) {
    let _ = DeleteOptions::from_json(data);
    if let Ok(document) = yaml::read(data) {
        let _ = DeleteOptions::from_value(&document.value);
    }
}

/// Parses a certificate request, and the content of a certificate, as PEM and as the DER inside.
pub fn certificate_request(input: &[u8]) {
    for request in
        [CertificateRequest::from_pem(input), CertificateRequest::from_der(input.to_vec())].into_iter().flatten()
    {
        let _ = request.check_signature();
        let _ = signers::check(signers::NODE_SERVING, &request, &["digital signature", "server auth"]);
    }
    let _ = certificate::check_content(input);
    let _ = certificate::end(input);
}
