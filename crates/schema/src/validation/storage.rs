//! Validation of volumes, claims, storage classes, drivers and attachments.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use machinery::field_error::{FieldError, Path};
use machinery::json::Value;
use machinery::names;

use super::Errors;
use super::amount;
use super::pod::scheduling::node_selector;
use super::pod::volume::{secret_reference, shared_source};
use super::rules::{
    caseless_qualified_name, immutable, objections, optional, optional_word, required, same, selector, word,
};
use crate::facts::internal;
use crate::walk::{Walk as _, is_empty};

const SPEC: Path<'static> = Path::new("spec");
const MODES: [&str; 4] = ["ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod"];
const SOURCES: [&str; 22] = [
    "hostPath",
    "gcePersistentDisk",
    "awsElasticBlockStore",
    "glusterfs",
    "flocker",
    "nfs",
    "rbd",
    "quobyte",
    "cephfs",
    "iscsi",
    "cinder",
    "fc",
    "flexVolume",
    "azureFile",
    "vsphereVolume",
    "photonPersistentDisk",
    "portworxVolume",
    "azureDisk",
    "scaleIO",
    "local",
    "storageos",
    "csi",
];

pub(super) fn validate(kind: &str, object: &Value, old: Option<&Value>, errors: &mut Errors) {
    match kind {
        "StorageClass" => storage_class(object, old, errors),
        "VolumeAttributesClass" => attributes_class(object, old, errors),
        "VolumeAttachment" => attachment(object, old, errors),
        "CSIDriver" => csi_driver(object, old, errors),
        "CSINode" => csi_node(object, errors),
        "CSIStorageCapacity" => capacity(object, old, errors),
        _ => {}
    }
}

/// Checks the name of a CSI driver, which is a case-insensitive domain.
pub(super) fn driver_name(name: &str, path: &Path<'_>, errors: &mut Errors) {
    if name.is_empty() {
        return required(errors, path);
    }
    if name.len() > 63 {
        errors.push(FieldError::too_long(path, 63));
    }
    objections(errors, path, name, names::dns1123_subdomain(&name.to_lowercase()));
}

fn access_modes(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    let modes = spec.list("accessModes");
    for mode in modes {
        word(errors, path, mode.as_str().unwrap_or_default(), &MODES);
    }
    let known = modes.iter().filter(|mode| MODES.iter().any(|known| mode == known));
    if modes.iter().any(|mode| mode == "ReadWriteOncePod") && known.into_iter().any(|mode| mode != "ReadWriteOncePod") {
        errors.push(FieldError::forbidden(path, "may not use ReadWriteOncePod with other access modes"));
    }
}

pub(super) fn volume(object: &Value, old: Option<&Value>, errors: &mut Errors) {
    let spec = object.at("spec");
    volume_spec(spec, &SPEC, errors);
    let Some(old) = old.map(|old| old.at("spec")) else { return };
    let source = |spec: &Value| -> Value {
        let given = SOURCES.iter().filter(|source| spec.has(source));
        given.map(|source| ((*source).to_owned(), spec.at(source).clone())).collect()
    };
    if !same(&source(spec), &source(old)) {
        let difference = internal::difference("core.PersistentVolumeSource", old, spec);
        let why = format!("spec.persistentvolumesource is immutable after creation\n{difference}");
        errors.push(FieldError::forbidden(SPEC.child("persistentvolumesource"), why));
    }
    immutable(errors, &Path::new("volumeMode"), spec.at("volumeMode"), old.at("volumeMode"));
    if old.has("nodeAffinity") && !same(spec.at("nodeAffinity"), old.at("nodeAffinity")) {
        let shown = match spec.at("nodeAffinity") {
            Value::Null => Value::Null.into(),
            affinity => internal::shown("core.VolumeNodeAffinity", affinity),
        };
        let why = "field is immutable, except for updating from beta label to GA";
        errors.push(FieldError::invalid("nodeAffinity", shown, why));
    }
    if old.has("volumeAttributesClassName") && !spec.has("volumeAttributesClassName") {
        let why = "update from non-nil value to nil is forbidden";
        errors.push(FieldError::forbidden(SPEC.child("volumeAttributesClassName"), why));
    }
}

fn volume_spec(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    let modes = path.child("accessModes");
    if spec.list("accessModes").is_empty() {
        required(errors, &modes);
    }
    access_modes(spec, &modes, errors);
    let (capacity, capacity_path) = (spec.at("capacity"), path.child("capacity"));
    let amounts = capacity.as_object();
    if amounts.is_none_or(|amounts| amounts.is_empty()) {
        required(errors, &capacity_path);
    }
    if amounts.is_none_or(|amounts| amounts.len() != 1 || !amounts.contains_key("storage")) {
        errors.push(FieldError::not_supported(capacity_path, capacity, ["storage"]));
    }
    for (name, value) in amounts.into_iter().flatten() {
        let path = capacity_path.key(name);
        let whole = amount::of(value).value();
        if whole < 0 {
            errors.push(FieldError::invalid(path, whole, "must be a valid resource quantity"));
        }
        amount::positive(errors, &path, value);
    }
    let policies = ["Delete", "Recycle", "Retain"];
    if !spec.text("persistentVolumeReclaimPolicy").is_empty() {
        let path = path.child("persistentVolumeReclaimPolicy");
        word(errors, &path, spec.text("persistentVolumeReclaimPolicy"), &policies);
    }
    let affinity = spec.at("nodeAffinity");
    if affinity.is_object() {
        let path = path.child("nodeAffinity.required");
        if affinity.has("required") {
            node_selector(affinity.at("required"), &path, errors);
        } else {
            errors.push(FieldError::required(path, "must specify required node constraints"));
        }
    }
    let mut found = false;
    for name in SOURCES {
        let source = spec.at(name);
        if !source.is_object() {
            continue;
        }
        let source_path = path.child(name);
        if found {
            errors.push(FieldError::forbidden(source_path, "may not specify more than 1 volume type"));
            continue;
        }
        found = true;
        match name {
            "csi" => {
                driver_name(source.text("driver"), &source_path.child("driver"), errors);
                if source.text("volumeHandle").is_empty() {
                    required(errors, &source_path.child("volumeHandle"));
                }
                for field in [
                    "controllerPublishSecretRef",
                    "controllerExpandSecretRef",
                    "nodePublishSecretRef",
                    "nodeExpandSecretRef",
                ] {
                    secret_reference(source.at(field), &source_path.child(field), errors);
                }
            }
            name => shared_source(name, source, &source_path, errors),
        }
        if name == "local" && !affinity.is_object() {
            errors.push(FieldError::required(path.child("nodeAffinity"), "Local volume requires node affinity"));
        }
    }
    if !found {
        errors.push(FieldError::required(path, "must specify a volume type"));
    }
    let whole_host = spec.has("hostPath") && spec.text("hostPath.path").trim_end_matches('/').is_empty();
    if whole_host && spec.text("persistentVolumeReclaimPolicy") == "Recycle" {
        let why = "may not be 'recycle' for a hostPath mount of '/'";
        errors.push(FieldError::forbidden(path.child("persistentVolumeReclaimPolicy"), why));
    }
    optional(errors, &path.child("storageClassName"), spec.text("storageClassName"), names::dns1123_subdomain);
    optional_word(errors, &path.child("volumeMode"), spec.at("volumeMode"), &["Block", "Filesystem"]);
    if let Some(class) = spec.at("volumeAttributesClassName").as_str() {
        let class_path = path.child("volumeAttributesClassName");
        if class.is_empty() {
            errors.push(FieldError::required(class_path, "an empty string is disallowed"));
        } else {
            objections(errors, &class_path, class, names::dns1123_subdomain(class));
        }
        if !spec.has("csi") {
            let why = "has to be specified when using volumeAttributesClassName";
            errors.push(FieldError::required(path.child("csi"), why));
        }
    }
}

pub(super) fn claim(object: &Value, old: Option<&Value>, errors: &mut Errors) {
    let spec = object.at("spec");
    claim_spec(spec, &SPEC, errors);
    let Some(old) = old else { return };
    let stored = old.at("spec");
    let mut kept = spec.clone();
    if let Some(fields) = kept.as_object_mut() {
        let mut put_back = |name: &str| {
            fields.insert(name.to_owned(), stored.at(name).clone());
        };
        // A class may be set later if there was none.
        if !stored.has("storageClassName") && spec.has("storageClassName") {
            put_back("storageClassName");
        }
        if object.text("status.phase") == "Bound" {
            put_back("volumeAttributesClassName");
            let size = stored.at("resources.requests.storage").clone();
            if let Some(requests) =
                fields.get_mut("resources").and_then(|r| r.get_mut("requests")).and_then(Value::as_object_mut)
            {
                requests.insert("storage", size);
            }
        }
        fields.retain(|_, value| !is_empty(Some(value)));
    }
    let mut before = stored.clone();
    if let Some(fields) = before.as_object_mut() {
        // The volume may be set once.
        if stored.text("volumeName").is_empty() && spec.has("volumeName") {
            fields.insert("volumeName", spec.at("volumeName").clone());
        }
        fields.retain(|_, value| !is_empty(Some(value)));
    }
    if !same(&kept, &before) {
        let difference = internal::difference("core.PersistentVolumeClaimSpec", &before, &kept);
        let why = format!(
            "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims\n{difference}"
        );
        errors.push(FieldError::forbidden(SPEC, why));
    }
    let size = |of: &Value| amount::of(of.at("resources.requests.storage"));
    if size(spec) < size(stored) && size(spec) <= amount::of(old.at("status.capacity.storage")) {
        let path = SPEC.child("resources.requests.storage");
        errors.push(FieldError::forbidden(path, "field can not be less than status.capacity"));
    }
    immutable(errors, &Path::new("volumeMode"), spec.at("volumeMode"), stored.at("volumeMode"));
    let class = spec.at("volumeAttributesClassName");
    if !same(class, stored.at("volumeAttributesClassName")) && old.has("status.currentVolumeAttributesClassName") {
        let to = match class.as_str() {
            None => "nil",
            Some("") => "empty string",
            Some(_) => return,
        };
        let why = format!("update to {to} is forbidden when status.currentVolumeAttributesClassName is not nil");
        errors.push(FieldError::forbidden(SPEC.child("volumeAttributesClassName"), why));
    }
}

pub(super) fn claim_spec(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    let modes = path.child("accessModes");
    if spec.list("accessModes").is_empty() {
        errors.push(FieldError::required(modes, "at least 1 access mode is required"));
    }
    selector(errors, &path.child("selector"), spec.at("selector"));
    access_modes(spec, &modes, errors);
    let resources = path.child("resources");
    let size_path = resources.key("storage");
    match spec.map("resources.requests").and_then(|requests| requests.get("storage")) {
        None => required(errors, &size_path),
        Some(size) => amount::positive(errors, &size_path, size),
    }
    optional(errors, &path.child("storageClassName"), spec.text("storageClassName"), names::dns1123_subdomain);
    optional_word(errors, &path.child("volumeMode"), spec.at("volumeMode"), &["Block", "Filesystem"]);
    for field in ["dataSource", "dataSourceRef"] {
        if spec.at(field).is_object() {
            data_source(spec.at(field), &path.child(field), errors);
        }
    }
    let (source, reference) = (spec.at("dataSource"), spec.at("dataSourceRef"));
    if source.is_object() && reference.is_object() {
        let equal = ["apiGroup", "kind", "name"].into_iter().all(|field| source.text(field) == reference.text(field));
        let why = match (reference.text("namespace"), equal) {
            ("", false) => "must match dataSourceRef",
            ("", true) => "",
            _ => "may not be specified when dataSourceRef.namespace is specified",
        };
        if !why.is_empty() {
            errors.push(FieldError::invalid(path, path.child("dataSource").to_string(), why));
        }
    }
    let class = spec.text("volumeAttributesClassName");
    optional(errors, &path.child("volumeAttributesClassName"), class, names::dns1123_subdomain);
}

fn data_source(source: &Value, path: &Path<'_>, errors: &mut Errors) {
    for field in ["name", "kind"] {
        if source.text(field).is_empty() {
            required(errors, &path.child(field));
        }
    }
    let (group, kind) = (source.text("apiGroup"), source.text("kind"));
    if group.is_empty() && kind != "PersistentVolumeClaim" {
        let why = "must be 'PersistentVolumeClaim' when referencing the default apiGroup";
        errors.push(FieldError::invalid(path, kind, why));
    }
    optional(errors, &path.child("apiGroup"), group, names::dns1123_subdomain);
    optional(errors, &path.child("namespace"), source.text("namespace"), names::dns1123_label);
}

pub(super) fn claim_status(object: &Value, errors: &mut Errors) {
    let path = Path::new("status.capacity");
    for (name, value) in object.map("status.capacity").into_iter().flatten() {
        let whole = amount::of(value).value();
        if whole < 0 {
            errors.push(FieldError::invalid(path.key(name), whole, "must be a valid resource quantity"));
        }
    }
}

fn provisioner(name: &str, path: &Path<'_>, errors: &mut Errors) {
    if name.is_empty() {
        return required(errors, path);
    }
    let name = name.to_lowercase();
    objections(errors, path, &name, caseless_qualified_name(&name));
}

fn parameters(object: &Value, may_be_empty: bool, errors: &mut Errors) {
    let path = Path::new("parameters");
    let parameters = object.map("parameters");
    let count = parameters.map_or(0, machinery::json::Map::len);
    if count > 512 {
        errors.push(FieldError::too_long(path, 512));
        return;
    }
    let mut size = 0;
    for (key, value) in parameters.into_iter().flatten() {
        if key.is_empty() {
            errors.push(FieldError::invalid(path, key, "field can not be empty."));
        }
        size += key.len() + value.as_str().map_or(0, str::len);
    }
    if size > 256 * 1024 {
        errors.push(FieldError::too_long(path, 256 * 1024));
    }
    if count == 0 && !may_be_empty {
        errors.push(FieldError::required(path, "must contain at least one key/value pair"));
    }
}

fn storage_class(object: &Value, old: Option<&Value>, errors: &mut Errors) {
    provisioner(object.text("provisioner"), &Path::new("provisioner"), errors);
    parameters(object, true, errors);
    optional_word(errors, &Path::new("reclaimPolicy"), object.at("reclaimPolicy"), &["Delete", "Retain"]);
    let path = Path::new("volumeBindingMode");
    if object.has("volumeBindingMode") {
        word(errors, &path, object.text("volumeBindingMode"), &["Immediate", "WaitForFirstConsumer"]);
    } else {
        required(errors, &path);
    }
    allowed_topologies(object, errors);
    if let Some(old) = old {
        for field in ["parameters", "provisioner", "reclaimPolicy", "volumeBindingMode"] {
            immutable(errors, &Path::new(field), object.at(field), old.at(field));
        }
    }
}

fn attributes_class(object: &Value, old: Option<&Value>, errors: &mut Errors) {
    if let Some(old) = old {
        for field in ["driverName", "parameters"] {
            if !same(object.at(field), old.at(field)) {
                errors.push(FieldError::forbidden(field, format!("updates to {field} are forbidden.")));
            }
        }
    }
    provisioner(object.text("driverName"), &Path::new("driverName"), errors);
    parameters(object, false, errors);
}

fn attachment(object: &Value, old: Option<&Value>, errors: &mut Errors) {
    let spec = object.at("spec");
    driver_name(spec.text("attacher"), &SPEC.child("attacher"), errors);
    let (source, path) = (spec.at("source"), SPEC.child("source"));
    let name = source.at("persistentVolumeName").as_str();
    let why = "must specify exactly one of inlineVolumeSpec and persistentVolumeName";
    match (source.has("inlineVolumeSpec"), name) {
        (false, None) => errors.push(FieldError::required(path, why)),
        (true, Some(_)) => errors.push(FieldError::forbidden(path, why)),
        (false, Some("")) => {
            let path = path.child("persistentVolumeName");
            errors.push(FieldError::required(path, "must specify non empty persistentVolumeName"));
        }
        _ => {}
    }
    let node = spec.text("nodeName");
    objections(errors, &SPEC.child("nodeName"), node, names::dns1123_subdomain(node));
    if let Some(name) = name {
        objections(errors, &Path::new("spec.source.persistentVolumeName"), name, names::dns1123_subdomain(name));
    }
    if let Some(old) = old
        && !same(spec, old.at("spec"))
    {
        let shown = internal::shown("storage.VolumeAttachmentSpec", spec);
        errors.push(FieldError::invalid(SPEC, shown, super::rules::IMMUTABLE));
    }
}

fn csi_driver(object: &Value, old: Option<&Value>, errors: &mut Errors) {
    let spec = object.at("spec");
    for (field, shown) in [
        ("attachRequired", "attachedRequired"),
        ("podInfoOnMount", "podInfoOnMount"),
        ("storageCapacity", "storageCapacity"),
    ] {
        if !spec.has(field) {
            required(errors, &SPEC.child(shown));
        }
    }
    let policies = ["File", "None", "ReadWriteOnceWithFSType"];
    optional_word(errors, &SPEC.child("fsGroupPolicy"), spec.at("fsGroupPolicy"), &policies);
    let list = SPEC.child("tokenRequests");
    let mut audiences = HashSet::new();
    for (i, request) in spec.list("tokenRequests").iter().enumerate() {
        let path = list.index(i);
        if !audiences.insert(request.text("audience")) {
            errors.push(FieldError::duplicate(path.child("audience"), request.text("audience")));
            continue;
        }
        if let Some(seconds) = request.int("expirationSeconds").filter(|seconds| *seconds < 600) {
            let why = "may not specify a duration less than 10 minutes";
            errors.push(FieldError::invalid(path.child("expirationSeconds"), seconds, why));
        }
        if let Some(seconds) = request.int("expirationSeconds").filter(|seconds| *seconds > 1 << 32) {
            let why = "may not specify a duration larger than 2^32 seconds";
            errors.push(FieldError::invalid(path.child("expirationSeconds"), seconds, why));
        }
    }
    for mode in spec.list("volumeLifecycleModes") {
        let mode = mode.as_str().unwrap_or_default();
        word(errors, &SPEC.child("volumeLifecycleModes"), mode, &["Persistent", "Ephemeral"]);
    }
    let period = "nodeAllocatableUpdatePeriodSeconds";
    if let Some(seconds) = spec.int(period).filter(|seconds| *seconds < 10) {
        let why = "must be greater than or equal to 10 seconds";
        errors.push(FieldError::invalid(SPEC.child(period), seconds, why));
    }
    if spec.has("serviceAccountTokenInSecrets") && spec.list("tokenRequests").is_empty() {
        let why = "serviceAccountTokenInSecrets is set but no tokenRequests are specified";
        let path = SPEC.child("serviceAccountTokenInSecrets");
        errors.push(FieldError::invalid(path, spec.at("serviceAccountTokenInSecrets"), why));
    }
    if let Some(old) = old.map(|old| old.at("spec")) {
        immutable(errors, &SPEC.child("attachedRequired"), spec.at("attachRequired"), old.at("attachRequired"));
        let path = SPEC.child("volumeLifecycleModes");
        immutable(errors, &path, spec.at("volumeLifecycleModes"), old.at("volumeLifecycleModes"));
    }
}

fn csi_node(object: &Value, errors: &mut Errors) {
    let list = SPEC.child("drivers");
    let mut seen = HashSet::new();
    for (i, driver) in object.list("spec.drivers").iter().enumerate() {
        let path = list.index(i);
        driver_name(driver.text("name"), &path.child("name"), errors);
        let id = driver.text("nodeID");
        if id.is_empty() {
            required(errors, &path.child("nodeID"));
        }
        if id.len() > 256 {
            errors.push(FieldError::invalid(path.child("nodeID"), id, "must be 256 characters or less"));
        }
        let count = path.child("allocatable");
        super::rules::not_negative(errors, &count.child("count"), driver.int("allocatable.count"));
        if !seen.insert(driver.text("name")) {
            errors.push(FieldError::duplicate(path.child("name"), driver.text("name")));
        }
        // The reference names the driver, not the key.
        let mut keys = HashSet::new();
        for key in driver.list("topologyKeys").iter().map(|key| key.as_str().unwrap_or_default()) {
            if key.is_empty() {
                required(errors, &path);
            }
            if !keys.insert(key) {
                errors.push(FieldError::duplicate(path, key));
            }
            objections(errors, &path, key, names::qualified_name(key));
        }
    }
}

/// Checks the terms of a class: each has a different set of keys and values.
fn allowed_topologies(object: &Value, errors: &mut Errors) {
    let list = Path::new("allowedTopologies");
    // An empty term is reported once for each term: the reference compares it with as many empty ones.
    let terms = object.list("allowedTopologies");
    let mut seen: Vec<BTreeMap<&str, BTreeSet<&str>>> = vec![BTreeMap::new(); terms.len()];
    for (i, term) in terms.iter().enumerate() {
        let path = list.index(i);
        let list = path.child("matchLabelExpressions");
        let mut keys: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        for (j, requirement) in term.list("matchLabelExpressions").iter().enumerate() {
            let path = list.index(j);
            let (key, values) = (requirement.text("key"), requirement.list("values"));
            let values_path = path.child("values");
            if values.is_empty() {
                required(errors, &values_path);
            }
            let mut set = BTreeSet::new();
            for (k, value) in values.iter().map(|value| value.as_str().unwrap_or_default()).enumerate() {
                if !set.insert(value) {
                    errors.push(FieldError::duplicate(values_path.index(k), value));
                }
            }
            objections(errors, &path.child("key"), key, names::qualified_name(key));
            if keys.insert(key, set).is_some() {
                errors.push(FieldError::duplicate(path.child("key"), key));
            }
        }
        for _ in seen.iter().filter(|other| **other == keys) {
            errors.push(FieldError::duplicate(list, ""));
        }
        seen.push(keys);
    }
}

fn capacity(object: &Value, old: Option<&Value>, errors: &mut Errors) {
    if let Some(old) = old {
        for field in ["nodeTopology", "storageClassName"] {
            immutable(errors, &Path::new(field), object.at(field), old.at(field));
        }
        return;
    }
    selector(errors, &Path::new("nodeTopology"), object.at("nodeTopology"));
    let class = object.text("storageClassName");
    objections(errors, &Path::new("storageClassName"), class, names::dns1123_subdomain(class));
    if object.has("capacity") {
        amount::not_negative(errors, &Path::new("capacity"), object.at("capacity"));
    }
}
