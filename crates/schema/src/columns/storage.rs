//! Rows of volumes, claims, storage classes and drivers.

use machinery::json::Value;

use super::cells::{Cells, NONE, UNSET};
use crate::walk::Walk as _;

pub(super) fn row(group: &str, kind: &str, cells: &mut Cells<'_>) -> bool {
    let object = cells.object;
    let phase = if object.has("metadata.deletionTimestamp") { "Terminating" } else { object.text("status.phase") };
    match (group, kind) {
        ("", "PersistentVolume") => {
            let claim = object.at("spec.claimRef");
            let claim = match claim.is_object() {
                true => format!("{}/{}", claim.text("namespace"), claim.text("name")),
                false => String::new(),
            };
            cells
                .name()
                .text_or("spec.capacity.storage", "0")
                .push(access_modes(object.list("spec.accessModes")))
                .text("spec.persistentVolumeReclaimPolicy")
                .push(phase)
                .push(claim)
                .push(class(object))
                .text_or("spec.volumeAttributesClassName", UNSET)
                .text("status.reason")
                .age()
                .text_or("spec.volumeMode", UNSET);
        }
        ("", "PersistentVolumeClaim") => {
            cells.name().push(phase).text("spec.volumeName");
            if object.text("spec.volumeName").is_empty() {
                cells.push("").push("");
            } else {
                cells.text_or("status.capacity.storage", "0").push(access_modes(object.list("status.accessModes")));
            }
            cells
                .push(class(object))
                .text_or("spec.volumeAttributesClassName", UNSET)
                .age()
                .text_or("spec.volumeMode", UNSET);
        }
        ("storage.k8s.io", "StorageClass") => {
            let default =
                ["storageclass.kubernetes.io/is-default-class", "storageclass.beta.kubernetes.io/is-default-class"]
                    .into_iter()
                    .any(|name| annotation(object, name) == Some("true"));
            let mark = if default { " (default)" } else { "" };
            cells
                .push(format!("{}{mark}", object.text("metadata.name")))
                .text("provisioner")
                .text_or("reclaimPolicy", "Delete")
                .text_or("volumeBindingMode", "Immediate")
                .push(object.flag("allowVolumeExpansion").unwrap_or(false))
                .age();
        }
        ("storage.k8s.io", "VolumeAttributesClass") => {
            cells.name().text("driverName").age();
        }
        ("storage.k8s.io", "VolumeAttachment") => {
            cells
                .name()
                .text("spec.attacher")
                .text("spec.source.persistentVolumeName")
                .text("spec.nodeName")
                .push(object.flag("status.attached").unwrap_or(false))
                .age();
        }
        ("storage.k8s.io", "CSINode") => {
            cells.name().count("spec.drivers").age();
        }
        ("storage.k8s.io", "CSIDriver") => {
            let join = |items: Vec<&str>| items.join(",");
            let tokens = match object.at("spec.tokenRequests").as_array() {
                Some(requests) => join(requests.iter().map(|request| request.text("audience")).collect()),
                None => UNSET.to_owned(),
            };
            let modes = join(object.list("spec.volumeLifecycleModes").iter().filter_map(Value::as_str).collect());
            cells
                .name()
                .push(object.flag("spec.attachRequired").unwrap_or(true))
                .push(object.flag("spec.podInfoOnMount").unwrap_or(false))
                .push(object.flag("spec.storageCapacity").unwrap_or(false))
                .push(tokens)
                .push(object.flag("spec.requiresRepublish").unwrap_or(false))
                .push(if modes.is_empty() { NONE.to_owned() } else { modes })
                .age();
        }
        _ => return false,
    }
    true
}

fn annotation<'a>(object: &'a Value, name: &str) -> Option<&'a str> {
    object.map("metadata.annotations")?.get(name)?.as_str()
}

/// Returns the class, which old objects have in an annotation.
fn class(object: &Value) -> &str {
    annotation(object, "volume.beta.kubernetes.io/storage-class").unwrap_or(object.text("spec.storageClassName"))
}

/// Formats access modes as short forms, in a fixed order, without duplicates.
fn access_modes(modes: &[Value]) -> String {
    let short =
        [("ReadWriteOnce", "RWO"), ("ReadOnlyMany", "ROX"), ("ReadWriteMany", "RWX"), ("ReadWriteOncePod", "RWOP")];
    let present = short.into_iter().filter(|(long, _)| modes.iter().any(|mode| mode == long));
    present.map(|(_, short)| short).collect::<Vec<_>>().join(",")
}
