//! Encoding and decoding, and errors.

use machinery::GroupVersionKind;
use machinery::json::{Value, json};

use super::{envelope, read, write};
use crate::decode::{FieldValidation, MediaType, decode};
use crate::facts::{Type, Types};

fn kind(group: &str, kind: &str) -> (GroupVersionKind, Type) {
    let gvk = GroupVersionKind::new(group, "v1", kind);
    let ty = Types::get().kind(&gvk).unwrap();
    (gvk, ty)
}

fn body(group: &str, name: &str, bytes: &[u8]) -> Result<Value, String> {
    let (gvk, ty) = kind(group, name);
    decode(&ty, &gvk, bytes, MediaType::Protobuf, FieldValidation::Strict, None)
        .map(|decoded| decoded.value)
        .map_err(|error| error.to_status(name, bytes).message)
}

#[test]
fn an_object_comes_back_as_it_went() {
    let (_, ty) = kind("", "ConfigMap");
    let value = json!({"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "a"}, "data": {"x": "y"}});
    let sent = envelope::seal("v1", "ConfigMap", &write(&ty, &value).unwrap());
    assert_eq!(body("", "ConfigMap", &sent), Ok(value));
}

#[test]
fn bodies_that_are_refused() {
    let refused = |bytes: &[u8]| body("", "ConfigMap", bytes).unwrap_err();
    assert_eq!(
        refused(b"{}"),
        "the object provided is unrecognized (must be of type ConfigMap): provided data does not appear to be a protobuf message, expected prefix [107 56 115 0] ({})"
    );
    assert!(refused(b"").contains(": empty data (<empty>)"));
    assert!(refused(b"k8s\0").contains(": empty body ("));
    assert!(refused(b"k8s\0\x0a\x7f").contains(": unexpected EOF ("));
    let of = |message: &[u8]| refused(&envelope::seal("v1", "ConfigMap", message));
    let cannot = "ConfigMap in version \"v1\" cannot be handled as a ConfigMap: ";
    assert_eq!(of(&[0x0a, 5, 0]), format!("{cannot}unexpected EOF"));
    assert_eq!(of(&[0x08, 5]), format!("{cannot}proto: wrong wireType = 0 for field Metadata"));
    assert_eq!(of(&[0x0c]), format!("{cannot}proto: ConfigMap: wiretype end group for non-group"));
    assert_eq!(of(&[0x00]), format!("{cannot}proto: ConfigMap: illegal tag 0 (wire type 0)"));
    assert_eq!(of(&[0x0f]), format!("{cannot}proto: illegal wireType 7"));
    assert_eq!(of(&[0xff; 12]), format!("{cannot}proto: integer overflow"));
    let other = refused(&envelope::seal("v1", "Pod", b""));
    assert_eq!(
        other,
        "Pod in version \"v1\" cannot be handled as a ConfigMap: converting (v1.Pod) to (core.ConfigMap): unknown conversion"
    );
    let version = refused(&envelope::seal("v2", "ConfigMap", b""));
    assert_eq!(
        version,
        "ConfigMap in version \"v2\" cannot be handled as a ConfigMap: no kind \"ConfigMap\" is registered for version \"v2\" \
         in scheme \"pkg/api/legacyscheme/scheme.go:30\""
    );
}

#[test]
fn unknown_fields_are_passed_over() {
    let (_, ty) = kind("", "ConfigMap");
    // A varint, a string, eight and four bytes, a group with a varint; then `immutable`.
    let message = b"\xf8\x01\x05\xfa\x01\x01x\xf9\x0112345678\xfd\x011234\xfb\x01\x08\x01\xfc\x01\x20\x01";
    assert_eq!(read(&ty, message), Ok(json!({"immutable": true})));
}

#[test]
fn numbers_may_be_packed() {
    let (_, ty) = kind("", "Pod");
    let of = |context: &[u8]| {
        let spec = [&[0x72, context.len() as u8], context].concat();
        let message = [&[0x12, spec.len() as u8], &*spec].concat();
        read(&ty, &message).map(|value| value["spec"]["securityContext"]["supplementalGroups"].clone())
    };
    assert_eq!(of(&[0x20, 1, 0x20, 2]), Ok(json!([1, 2])));
    assert_eq!(of(&[0x22, 3, 1, 2, 3]), Ok(json!([1, 2, 3])));
}

/// Reads `vectors.tsv`: objects encoded by the Go types of Kubernetes, in JSON and in protobuf.
fn vectors() -> impl Iterator<Item = (&'static str, Value, Vec<u8>)> {
    include_str!("vectors.tsv").lines().map(|line| {
        let [name, json, hex] = line.split('\t').collect::<Vec<_>>()[..] else { panic!("three columns: {line}") };
        let byte = |at: usize| u8::from_str_radix(&hex[at..at + 2], 16).unwrap();
        (name, serde_json::from_str(json).unwrap(), (0..hex.len()).step_by(2).map(byte).collect())
    })
}

fn kind_of(name: &str) -> Option<(GroupVersionKind, Type)> {
    let [group, version, kind] = name.split('/').collect::<Vec<_>>()[..] else { return None };
    let gvk = GroupVersionKind::new(group, version, kind);
    let ty = Types::get().kind(&gvk).unwrap();
    Some((gvk, ty))
}

/// Describes the first difference between two encodings.
fn first_difference(ours: &[u8], theirs: &[u8]) -> String {
    let at = ours.iter().zip(theirs).take_while(|(a, b)| a == b).count();
    let near =
        |bytes: &[u8]| String::from_utf8_lossy(&bytes[at.saturating_sub(30)..(at + 30).min(bytes.len())]).into_owned();
    format!("at {at} of {} and {}: {:?}, {:?}", ours.len(), theirs.len(), near(ours), near(theirs))
}

#[test]
fn every_kind_is_written_as_go_writes_it() {
    let mut count = 0;
    for (name, json, binary) in vectors() {
        let Some((gvk, ty)) = kind_of(name) else { continue };
        let ours = envelope::seal(&gvk.group_version().to_string(), &gvk.kind, &write(&ty, &json).unwrap());
        assert!(ours == binary, "{name}: {}", first_difference(&ours, &binary));
        // Normalised, as it is stored.
        let mut normal = json.clone();
        crate::decode::normalise(&ty, &mut normal, None).unwrap();
        let ours = envelope::seal(&gvk.group_version().to_string(), &gvk.kind, &write(&ty, &normal).unwrap());
        assert!(ours == binary, "{name} in its normal form: {}", first_difference(&ours, &binary));
        count += 1;
    }
    assert_eq!(count, 2 * (Types::get().kinds().count() - 1), "all kinds but Table, empty and filled");
}

#[test]
fn every_kind_is_read_as_go_writes_it() {
    for (name, json, binary) in vectors() {
        let Some((gvk, ty)) = kind_of(name) else { continue };
        let read = decode(&ty, &gvk, &binary, MediaType::Protobuf, FieldValidation::Strict, None).unwrap().value;
        let mut normal = json;
        crate::decode::normalise(&ty, &mut normal, None).unwrap();
        assert_eq!(read.to_string(), normal.to_string(), "{name}");
    }
}

#[test]
fn a_watch_event_is_framed_as_go_frames_it() {
    let (_, json, binary) = vectors().find(|(name, ..)| *name == "ADDED").unwrap();
    let (_, ty) = kind("meta.k8s.io", "PartialObjectMetadata");
    let message = write(&ty, &json).unwrap();
    let frame = |with_length| {
        let head = envelope::event_head("ADDED", "meta.k8s.io/v1", "PartialObjectMetadata", message.len(), with_length);
        [&*head, &*message, envelope::TAIL].concat()
    };
    assert!(frame(true) == binary, "{}", first_difference(&frame(true), &binary));
    assert!(frame(false) == binary[4..]);
}

#[test]
fn what_would_fill_memory_or_the_stack_is_refused() {
    let (_, ty) = kind("apiextensions.k8s.io", "CustomResourceDefinition");
    // spec.versions[].schema.openAPIV3Schema, and then `not` in `not` in `not`.
    let mut message = Vec::new();
    let wrap = |number: u32, message: &mut Vec<u8>| {
        let inner = std::mem::take(message);
        super::wire::put_bytes(message, number, &inner);
    };
    for _ in 0..10_000 {
        wrap(28, &mut message);
    }
    for number in [1, 4, 7, 2] {
        wrap(number, &mut message);
    }
    assert_eq!(read(&ty, &message), Err("exceeded max depth".to_owned()));
    // A list of empty objects: two bytes each.
    let (_, ty) = kind("", "PodList");
    assert_eq!(read(&ty, &[0x12, 0].repeat(1_500_000)), Err("the message has too many values".to_owned()));
    // A length beyond the end.
    assert_eq!(read(&ty, &[0x12, 0xff, 0xff, 0xff, 0xff, 0x7f]), Err("unexpected EOF".to_owned()));
    // JSON inside of a message counts too: stored objects must be readable again.
    let (_, ty) = kind("apps", "ControllerRevision");
    let deep = format!("{}{}", "[".repeat(119), "]".repeat(119));
    let mut message = deep.into_bytes();
    wrap(1, &mut message);
    wrap(2, &mut message);
    assert!(read(&ty, &message).is_ok());
    let deep = format!("{}{}", "[".repeat(120), "]".repeat(120));
    let mut message = deep.into_bytes();
    wrap(1, &mut message);
    wrap(2, &mut message);
    assert_eq!(read(&ty, &message), Err("exceeded max depth".to_owned()));
}

mod arbitrary {
    use proptest::prelude::*;

    use super::*;

    /// A vector and changes to it: bytes replaced, removed, inserted.
    fn damaged() -> impl Strategy<Value = (usize, Vec<(usize, u8, u8)>)> {
        (any::<usize>(), prop::collection::vec((any::<usize>(), any::<u8>(), 0..4u8), 1..6))
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]

        /// Decoding always ends, and accepted values can be encoded again.
        #[test]
        fn damaged_messages_are_read_or_refused((which, changes) in damaged()) {
            let all: Vec<_> = {
                static ALL: std::sync::OnceLock<Vec<(&'static str, Vec<u8>)>> = std::sync::OnceLock::new();
                ALL.get_or_init(|| vectors().map(|(name, _, binary)| (name, binary)).collect()).iter().collect()
            };
            let (name, binary) = all[which % all.len()];
            let Some((gvk, ty)) = kind_of(name) else { return Ok(()) };
            let mut bytes = binary.clone();
            for (at, byte, how) in changes {
                let at = 4 + at % (bytes.len() - 4).max(1);
                match how {
                    0 => bytes[at] = byte,
                    1 => bytes[at] = bytes[at].wrapping_add(1),
                    2 => bytes.truncate(at.max(8)),
                    _ => bytes.insert(at, byte),
                }
            }
            if let Ok(read) = decode(&ty, &gvk, &bytes, MediaType::Protobuf, FieldValidation::Strict, None) {
                let again = write(&ty, &read.value).unwrap();
                let sealed = envelope::seal(&gvk.group_version().to_string(), &gvk.kind, &again);
                let twice = decode(&ty, &gvk, &sealed, MediaType::Protobuf, FieldValidation::Strict, None).unwrap();
                prop_assert_eq!(read.value, twice.value);
            }
        }

        #[test]
        fn noise_does_not_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            for (group, name) in [("", "Pod"), ("", "Secret"), ("apiextensions.k8s.io", "CustomResourceDefinition")] {
                let (_, ty) = kind(group, name);
                let _ = read(&ty, &bytes);
            }
            let _ = envelope::open(&bytes);
            let _ = envelope::open(&[&envelope::MAGIC[..], &bytes].concat());
        }
    }
}
