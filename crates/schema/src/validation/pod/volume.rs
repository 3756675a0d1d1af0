//! Validation of the volumes of a pod, and of their mounts in containers.

use std::collections::HashSet;

use machinery::field_error::{FieldError, Path};
use machinery::json::{Text, Value};
use machinery::names;

use super::super::Errors;
use super::super::amount;
use super::super::rules::{
    descending, named, no_backsteps, objections, optional_word, required, template_meta, unreserved, word,
};
use super::super::storage;
use super::{Whole, container};
use crate::walk::Walk as _;

const MODE: &str = "must be a number between 0 and 0777 (octal), both inclusive";

/// The sources of a volume, in the order of checks: the first counts, a second one is an error.
const SOURCES: [&str; 30] = [
    "emptyDir",
    "hostPath",
    "gitRepo",
    "gcePersistentDisk",
    "awsElasticBlockStore",
    "secret",
    "nfs",
    "iscsi",
    "glusterfs",
    "flocker",
    "persistentVolumeClaim",
    "rbd",
    "cinder",
    "cephfs",
    "quobyte",
    "downwardAPI",
    "fc",
    "flexVolume",
    "configMap",
    "azureFile",
    "vsphereVolume",
    "photonPersistentDisk",
    "portworxVolume",
    "azureDisk",
    "storageos",
    "projected",
    "scaleIO",
    "csi",
    "ephemeral",
    "image",
];

pub(super) fn volumes<'a>(whole: &mut Whole<'a>, pod: &str, path: &Path<'_>, errors: &mut Errors) {
    let spec = whole.spec;
    let mut names = HashSet::new();
    let is_ephemeral = |volume: &&Value| volume.has("ephemeral");
    let created: HashSet<String> = match pod {
        "" => HashSet::new(),
        pod => spec.list("volumes").iter().filter(is_ephemeral).map(|v| format!("{pod}-{}", v.text("name"))).collect(),
    };
    for (i, volume) in spec.list("volumes").iter().enumerate() {
        let path = path.index(i);
        let before = errors.len();
        let name = volume.text("name");
        source(volume, &path, errors);
        named(errors, &path.child("name"), name, names::dns1123_label);
        if names.contains(name) {
            errors.push(FieldError::duplicate(path.child("name"), name));
        }
        if errors.len() == before {
            names.insert(name);
            whole.volumes.insert(name, volume);
        }
        let claim = volume.text("persistentVolumeClaim.claimName");
        if created.contains(claim) {
            let why = "must not reference a PVC that gets created for an ephemeral volume";
            errors.push(FieldError::invalid(path.child("persistentVolumeClaim.claimName"), claim, why));
        }
    }
}

fn source(volume: &Value, path: &Path<'_>, errors: &mut Errors) {
    // A volume has few fields: each is searched among the sources, not the other way round.
    let place = |(name, source): (&Text, _)| Some((SOURCES.iter().position(|known| known == name)?, source));
    let mut given: Vec<(usize, &Value)> =
        volume.as_object().into_iter().flatten().filter(|(_, source)| source.is_object()).filter_map(place).collect();
    given.sort_unstable_by_key(|(place, _)| *place);
    let mut found = false;
    for (place, source) in given {
        let (name, volume_path) = (SOURCES[place], path);
        let path = path.child(name);
        if found {
            // The reference misspells two of them.
            let named = match name {
                "downwardAPI" => "downwarAPI",
                "cephfs" => "cephFS",
                name => name,
            };
            let why = "may not specify more than 1 volume type";
            errors.push(FieldError::forbidden(volume_path.child(named), why));
            continue;
        }
        found = true;
        match name {
            "emptyDir" => {
                if amount::of(source.at("sizeLimit")).is_negative() {
                    let why = "SizeLimit field must be a valid resource quantity";
                    errors.push(FieldError::forbidden(path.child("sizeLimit"), why));
                }
            }
            "secret" => keyed(source, "secretName", &path, errors),
            "configMap" => keyed(source, "name", &path, errors),
            "persistentVolumeClaim" => need(source, "claimName", &path, errors),
            "downwardAPI" => {
                mode(source, "defaultMode", &path, errors);
                for item in source.list("items") {
                    downward_file(item, &path, errors);
                }
            }
            "projected" => projected(source, &path, errors),
            "csi" => {
                storage::driver_name(source.text("driver"), &path.child("driver"), errors);
                if source.has("nodePublishSecretRef") {
                    let name = source.text("nodePublishSecretRef.name");
                    named(errors, &path.child("nodePublishSecretRef.name"), name, names::dns1123_subdomain);
                }
            }
            "ephemeral" => {
                let template = source.at("volumeClaimTemplate");
                let path = path.child("volumeClaimTemplate");
                if template.is_object() {
                    template_meta(errors, &path.child("metadata"), template.at("metadata"));
                    storage::claim_spec(template.at("spec"), &path.child("spec"), errors);
                } else {
                    required(errors, &path);
                }
            }
            "image" => need(source, "reference", &path, errors),
            "gitRepo" => {
                need(source, "repository", &path, errors);
                descending(errors, &path.child("directory"), source.text("directory"));
            }
            shared => shared_source(shared, source, &path, errors),
        }
    }
    if !found {
        errors.push(FieldError::required(path, "must specify a volume type"));
    }
}

fn need(source: &Value, field: &str, path: &Path<'_>, errors: &mut Errors) {
    if source.text(field).is_empty() {
        required(errors, &path.child(field));
    }
}

/// Checks the sources that persistent volumes have too.
pub(in super::super) fn shared_source(name: &str, source: &Value, path: &Path<'_>, errors: &mut Errors) {
    match name {
        "hostPath" => {
            let host = source.text("path");
            if host.is_empty() {
                return required(errors, &path.child("path"));
            }
            no_backsteps(errors, &path.child("path"), host);
            let words =
                ["", "BlockDevice", "CharDevice", "Directory", "DirectoryOrCreate", "File", "FileOrCreate", "Socket"];
            optional_word(errors, &path.child("type"), source.at("type"), &words);
        }
        "nfs" => {
            need(source, "server", path, errors);
            need(source, "path", path, errors);
            let exported = source.text("path");
            if !exported.starts_with('/') {
                errors.push(FieldError::invalid(path.child("path"), exported, "must be an absolute path"));
            }
        }
        "iscsi" => {
            need(source, "targetPortal", path, errors);
            need(source, "iqn", path, errors);
            let lun = source.int("lun").unwrap_or(0);
            for why in names::in_range(lun, 0, 255) {
                errors.push(FieldError::invalid(path.child("lun"), lun, why));
            }
        }
        "rbd" => {
            if source.list("monitors").is_empty() {
                required(errors, &path.child("monitors"));
            }
            need(source, "image", path, errors);
        }
        "cephfs" if source.list("monitors").is_empty() => {
            required(errors, &path.child("monitors"));
        }
        "glusterfs" => {
            need(source, "endpoints", path, errors);
            need(source, "path", path, errors);
        }
        "gcePersistentDisk" => need(source, "pdName", path, errors),
        "awsElasticBlockStore" | "cinder" | "portworxVolume" => need(source, "volumeID", path, errors),
        "vsphereVolume" => need(source, "volumePath", path, errors),
        "photonPersistentDisk" => need(source, "pdID", path, errors),
        "azureFile" => {
            need(source, "secretName", path, errors);
            need(source, "shareName", path, errors);
        }
        "azureDisk" => {
            need(source, "diskName", path, errors);
            need(source, "diskURI", path, errors);
        }
        "flexVolume" => need(source, "driver", path, errors),
        "quobyte" => {
            need(source, "registry", path, errors);
            need(source, "volume", path, errors);
        }
        "scaleIO" => {
            for field in ["gateway", "system", "volumeName"] {
                need(source, field, path, errors);
            }
        }
        "local" => {
            if source.text("path").is_empty() {
                return required(errors, &path.child("path"));
            }
            no_backsteps(errors, &path.child("path"), source.text("path"));
        }
        _ => {}
    }
}

fn mode(source: &Value, field: &str, path: &Path<'_>, errors: &mut Errors) {
    if let Some(value) = source.int(field).filter(|mode| !(0..=0o777).contains(mode)) {
        errors.push(FieldError::invalid(path.child(field), value, MODE));
    }
}

/// Checks a secret or a config map that is mounted as files.
fn keyed(source: &Value, name: &str, path: &Path<'_>, errors: &mut Errors) {
    need(source, name, path, errors);
    mode(source, "defaultMode", path, errors);
    items(source, path, errors);
}

fn items(source: &Value, path: &Path<'_>, errors: &mut Errors) {
    let list = path.child("items");
    for (i, item) in source.list("items").iter().enumerate() {
        let path = list.index(i);
        need(item, "key", &path, errors);
        need(item, "path", &path, errors);
        unreserved(errors, &path.child("path"), item.text("path"));
        mode(item, "mode", &path, errors);
    }
}

fn downward_file(file: &Value, path: &Path<'_>, errors: &mut Errors) {
    need(file, "path", path, errors);
    unreserved(errors, &path.child("path"), file.text("path"));
    if file.has("fieldRef") {
        let known = ["metadata.annotations", "metadata.labels", "metadata.name", "metadata.namespace", "metadata.uid"];
        container::field_reference(file.at("fieldRef"), &known, &path.child("fieldRef"), errors);
        if file.has("resourceFieldRef") {
            let why = "fieldRef and resourceFieldRef can not be specified simultaneously";
            errors.push(FieldError::invalid(path, "resource", why));
        }
    } else if file.has("resourceFieldRef") {
        let reference = file.at("resourceFieldRef");
        container::resource_reference(reference, true, &path.child("resourceFieldRef"), errors);
    } else {
        errors.push(FieldError::required(path, "one of fieldRef and resourceFieldRef is required"));
    }
    mode(file, "mode", path, errors);
}

fn projected(projected: &Value, path: &Path<'_>, errors: &mut Errors) {
    mode(projected, "defaultMode", path, errors);
    let mut taken: HashSet<&str> = HashSet::new();
    let list = path.child("sources");
    for (i, source) in projected.list("sources").iter().enumerate() {
        let source_path = list.index(i);
        let mut count = 0;
        for name in ["secret", "configMap"] {
            let part = source.at(name);
            if !part.is_object() {
                continue;
            }
            count += 1;
            let part_path = source_path.child(name);
            need(part, "name", &part_path, errors);
            items(part, &part_path, errors);
            for item in part.list("items") {
                let file = item.text("path");
                if !file.is_empty() && !taken.insert(file) {
                    errors.push(FieldError::invalid(path, part.text("name"), "conflicting duplicate paths"));
                }
            }
        }
        if source.has("downwardAPI") {
            count += 1;
            for item in source.list("downwardAPI.items") {
                downward_file(item, &source_path.child("downwardAPI"), errors);
                let file = item.text("path");
                if !file.is_empty() && !taken.insert(file) {
                    errors.push(FieldError::invalid(path, file, "conflicting duplicate paths"));
                }
            }
        }
        let token = source.at("serviceAccountToken");
        if token.is_object() {
            count += 1;
            let seconds = token.int("expirationSeconds").unwrap_or(0);
            let expiry = source_path.child("serviceAccountToken.expirationSeconds");
            if seconds < 600 {
                errors.push(FieldError::invalid(expiry, seconds, "may not specify a duration less than 10 minutes"));
            }
            if seconds > 1 << 32 {
                errors.push(FieldError::invalid(
                    expiry,
                    seconds,
                    "may not specify a duration larger than 2^32 seconds",
                ));
            }
            match token.text("path") {
                "" => required(errors, &path.child("path")),
                file => unreserved(errors, &path.child("path"), file),
            }
        }
        count += ["clusterTrustBundle", "podCertificate"].into_iter().filter(|name| source.has(name)).count();
        if count > 1 {
            errors.push(FieldError::forbidden(source_path, "may not specify more than 1 volume type per source"));
        }
    }
}

pub(super) fn mounts(whole: &Whole<'_>, container: &Value, path: &Path<'_>, errors: &mut Errors) {
    let texts = |field: &str| -> HashSet<&str> {
        container.list("volumeDevices").iter().map(|device| device.text(field)).collect()
    };
    let (device_names, device_paths) = (texts("name"), texts("devicePath"));
    let mut taken = HashSet::new();
    for (i, mount) in container.list("volumeMounts").iter().enumerate() {
        let entry = path.index(i);
        let (name, target) = (mount.text("name"), mount.text("mountPath"));
        if name.is_empty() {
            required(errors, &entry.child("name"));
        }
        if !whole.volumes.contains_key(name) {
            errors.push(FieldError::not_found(entry.child("name"), name));
        }
        if target.is_empty() {
            required(errors, &entry.child("mountPath"));
        }
        if !taken.insert(target) {
            errors.push(FieldError::invalid(entry.child("mountPath"), target, "must be unique"));
        }
        if device_names.contains(name) {
            errors.push(FieldError::invalid(entry.child("name"), name, "must not already exist in volumeDevices"));
        }
        if device_paths.contains(target) {
            let why = "must not already exist as a path in volumeDevices";
            errors.push(FieldError::invalid(entry.child("mountPath"), target, why));
        }
        let (sub, expression) = (mount.text("subPath"), mount.text("subPathExpr"));
        if !sub.is_empty() {
            descending(errors, &path.child("subPath"), sub);
        }
        if !expression.is_empty() {
            if !sub.is_empty() {
                let why = "subPathExpr and subPath are mutually exclusive";
                errors.push(FieldError::invalid(entry.child("subPathExpr"), expression, why));
            }
            descending(errors, &path.child("subPathExpr"), expression);
        }
        propagation(mount, container, path, errors);
    }
}

fn propagation(mount: &Value, container: &Value, path: &Path<'_>, errors: &mut Errors) {
    let propagation = mount.at("mountPropagation").as_str();
    if let Some(way) = propagation {
        let path = path.child("mountPropagation");
        word(errors, &path, way, &["Bidirectional", "HostToContainer", "None"]);
        if way == "Bidirectional" && container.flag("securityContext.privileged") != Some(true) {
            let why = "Bidirectional mount propagation is available only to privileged containers";
            errors.push(FieldError::forbidden(path, why));
        }
    }
    let path = path.child("recursiveReadOnly");
    match mount.at("recursiveReadOnly").as_str() {
        None | Some("Disabled") => {}
        Some("Enabled" | "IfPossible") => {
            if mount.flag("readOnly") != Some(true) {
                errors.push(FieldError::forbidden(path, "may only be specified when readOnly is true"));
            }
            if propagation.is_some_and(|way| way != "None") {
                let why = "may only be specified when mountPropagation is None or not specified";
                errors.push(FieldError::forbidden(path, why));
            }
        }
        Some(other) => word(errors, &path, other, &["Disabled", "Enabled", "IfPossible"]),
    }
}

pub(super) fn devices(whole: &Whole<'_>, container: &Value, path: &Path<'_>, errors: &mut Errors) {
    let texts = |field: &str| -> HashSet<&str> {
        container.list("volumeMounts").iter().map(|mount| mount.text(field)).collect()
    };
    let (mount_names, mount_paths) = (texts("name"), texts("mountPath"));
    let (mut names, mut paths) = (HashSet::new(), HashSet::new());
    for (i, device) in container.list("volumeDevices").iter().enumerate() {
        let path = path.index(i);
        let (name, target) = (device.text("name"), device.text("devicePath"));
        let (name_path, target_path) = (path.child("name"), path.child("devicePath"));
        if name.is_empty() {
            required(errors, &name_path);
        }
        if !names.insert(name) {
            errors.push(FieldError::invalid(name_path, name, "must be unique"));
        }
        match whole.volumes.get(name) {
            None => errors.push(FieldError::not_found(name_path, name)),
            Some(volume) if !volume.has("persistentVolumeClaim") && !volume.has("ephemeral") => {
                let why = "can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode";
                errors.push(FieldError::invalid(name_path, name, why));
            }
            Some(_) => {}
        }
        if target.is_empty() {
            required(errors, &target_path);
        }
        if !paths.insert(target) {
            errors.push(FieldError::invalid(target_path, target, "must be unique"));
        }
        if target.split('/').any(|part| part == "..") {
            errors.push(FieldError::invalid(target_path, target, "can not contain backsteps ('..')"));
        }
        if mount_names.contains(name) {
            errors.push(FieldError::invalid(name_path, name, "must not already exist in volumeMounts"));
        }
        if mount_paths.contains(target) {
            let why = "must not already exist as a path in volumeMounts";
            errors.push(FieldError::invalid(target_path, target, why));
        }
    }
}

/// Checks a reference to a secret in another namespace.
pub(in super::super) fn secret_reference(reference: &Value, path: &Path<'_>, errors: &mut Errors) {
    if reference.is_object() {
        named(errors, &path.child("name"), reference.text("name"), |_| Vec::new());
        let namespace = reference.text("namespace");
        if namespace.is_empty() {
            required(errors, &path.child("namespace"));
        } else {
            objections(errors, &path.child("namespace"), namespace, names::dns1123_label(namespace));
        }
    }
}
