//! What is written and read, and what is refused.

use machinery::GroupVersionKind;
use serde_json::{Value, json};

use super::{envelope, read, write};
use crate::decode::{FieldValidation, Media, decode};
use crate::facts::{Type, Types};

fn kind(group: &str, kind: &str) -> (GroupVersionKind, Type) {
    let gvk = GroupVersionKind::new(group, "v1", kind);
    let ty = Types::get().kind(&gvk).unwrap();
    (gvk, ty)
}

fn body(group: &str, name: &str, bytes: &[u8]) -> Result<Value, String> {
    let (gvk, ty) = kind(group, name);
    decode(&ty, &gvk, bytes, Media::Protobuf, FieldValidation::Strict)
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
    assert_eq!(version, "the API version in the data (v2) does not match the expected API version (v1)");
}

#[test]
fn unknown_fields_are_passed_over() {
    let (_, ty) = kind("", "ConfigMap");
    // A number, a text, eight and four bytes, a group with a number in it; then `immutable`.
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
