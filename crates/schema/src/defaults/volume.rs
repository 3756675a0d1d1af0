//! Defaults of volume sources, in pods and in persistent volumes.

use machinery::json::json;

use crate::walk::{Fields, Fill as _};

const MODE: i64 = 0o644;

pub(super) fn pod_volume(volume: &mut Fields) {
    if volume.iter().all(|(name, source)| name == "name" || source.is_null()) {
        volume.insert("emptyDir", json!({}));
    }
    source(volume);
    for name in ["secret", "configMap", "projected"] {
        if let Some(source) = volume.child(name) {
            source.fill("defaultMode", MODE);
        }
    }
    if let Some(downward) = volume.child("downwardAPI") {
        downward.fill("defaultMode", MODE);
        downward_items(downward);
    }
    if let Some(projected) = volume.child("projected") {
        for source in projected.items("sources") {
            if let Some(token) = source.child("serviceAccountToken") {
                token.fill("expirationSeconds", 3600);
            }
            if let Some(downward) = source.child("downwardAPI") {
                downward_items(downward);
            }
            if let Some(certificate) = source.child("podCertificate") {
                certificate.fill("maxExpirationSeconds", 86400);
            }
        }
    }
    if let Some(spec) = volume
        .child("ephemeral")
        .and_then(|ephemeral| ephemeral.child("volumeClaimTemplate"))
        .and_then(|template| template.child("spec"))
    {
        spec.fill("volumeMode", "Filesystem");
    }
    if let Some(image) = volume.child("image") {
        let policy = if super::pod::always_pulled(image.word("reference")) { "Always" } else { "IfNotPresent" };
        image.fill_empty("pullPolicy", policy);
    }
}

/// Sets defaults of the sources that pods and persistent volumes share.
pub(super) fn source(volume: &mut Fields) {
    if let Some(path) = volume.child("hostPath") {
        path.fill("type", "");
    }
    if let Some(iscsi) = volume.child("iscsi") {
        iscsi.fill_empty("iscsiInterface", "default");
    }
    if let Some(rbd) = volume.child("rbd") {
        rbd.fill_empty("pool", "rbd");
        rbd.fill_empty("user", "admin");
        rbd.fill_empty("keyring", "/etc/ceph/keyring");
    }
    if let Some(disk) = volume.child("azureDisk") {
        disk.fill("cachingMode", "ReadWrite");
        disk.fill("kind", "Shared");
        disk.fill("fsType", "ext4");
        disk.fill("readOnly", false);
    }
    if let Some(scale) = volume.child("scaleIO") {
        scale.fill_empty("storageMode", "ThinProvisioned");
        scale.fill_empty("fsType", "xfs");
    }
}

fn downward_items(downward: &mut Fields) {
    for item in downward.items("items") {
        if let Some(field) = item.child("fieldRef") {
            field.fill_empty("apiVersion", "v1");
        }
        if let Some(resource) = item.child("resourceFieldRef") {
            resource.fill_empty("divisor", "0");
        }
    }
}
