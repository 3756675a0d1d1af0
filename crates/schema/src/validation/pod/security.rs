//! Validation of security contexts, and of fields that an operating system does not support.

use std::collections::HashSet;

use machinery::field_error::{FieldError, Path};
use machinery::json::Value;

use super::super::Errors;
use super::super::rules::{descending, id, optional_word, required, word};
use super::{all_containers, ids};
use crate::facts::internal;
use crate::walk::Walk as _;

pub(super) fn pod(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    let context = spec.at("securityContext");
    for field in ["fsGroup", "runAsUser", "runAsGroup"] {
        id(errors, &path.child(field), context.int(field));
    }
    ids(context.list("supplementalGroups"), &path.child("supplementalGroups"), errors);
    if spec.flag("shareProcessNamespace") == Some(true) && spec.flag("hostPID") == Some(true) {
        let why = "ShareProcessNamespace and HostPID cannot both be enabled";
        errors.push(FieldError::invalid(path.child("shareProcessNamespace"), true, why));
    }
    sysctls(context, &path.child("sysctls"), errors);
    let policies = ["Always", "OnRootMismatch"];
    optional_word(errors, &path.child("fsGroupChangePolicy"), context.at("fsGroupChangePolicy"), &policies);
    seccomp(context.at("seccompProfile"), &path.child("seccompProfile"), errors);
    app_armor(context.at("appArmorProfile"), &path.child("appArmorProfile"), errors);
    let policy = context.at("supplementalGroupsPolicy");
    optional_word(errors, &path.child("supplementalGroupsPolicy"), policy, &["Merge", "Strict"]);
    let policy = context.at("seLinuxChangePolicy");
    optional_word(errors, &path.child("seLinuxChangePolicy"), policy, &["MountOption", "Recursive"]);
}

pub(super) fn container(context: &Value, host_users: bool, path: &Path<'_>, errors: &mut Errors) {
    if !context.is_object() {
        return;
    }
    id(errors, &path.child("runAsUser"), context.int("runAsUser"));
    id(errors, &path.child("runAsGroup"), context.int("runAsGroup"));
    if let Some(mount) = context.at("procMount").as_str() {
        word(errors, &path.child("procMount"), mount, &["Default", "Unmasked"]);
        if host_users && mount == "Unmasked" {
            let why = "`hostUsers` must be false to use `Unmasked`";
            errors.push(FieldError::invalid(path.child("procMount"), mount, why));
        }
    }
    seccomp(context.at("seccompProfile"), &path.child("seccompProfile"), errors);
    if context.flag("allowPrivilegeEscalation") == Some(false) {
        let mut refuse = |why: &str| {
            errors.push(FieldError::invalid(path, internal::shown("core.SecurityContext", context), why));
        };
        if context.flag("privileged") == Some(true) {
            refuse("cannot set `allowPrivilegeEscalation` to false and `privileged` to true");
        }
        if context.list("capabilities.add").iter().any(|capability| capability == "CAP_SYS_ADMIN") {
            refuse("cannot set `allowPrivilegeEscalation` to false and `capabilities.Add` CAP_SYS_ADMIN");
        }
    }
    app_armor(context.at("appArmorProfile"), &path.child("appArmorProfile"), errors);
}

fn sysctls(context: &Value, path: &Path<'_>, errors: &mut Errors) {
    const RULE: &str = "must have at most 253 characters and match regex \
        ^([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\\./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?$";
    let mut seen = HashSet::new();
    for (i, entry) in context.list("sysctls").iter().enumerate() {
        let entry_path = path.index(i);
        let path = entry_path.child("name");
        let name = entry.text("name");
        let part = |part: &str| {
            let inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
            part.starts_with(inner) && part.ends_with(inner) && part.chars().all(|c| inner(c) || "-_".contains(c))
        };
        if name.is_empty() {
            required(errors, &path);
        } else if name.len() > 253 || !name.split(['.', '/']).all(part) {
            errors.push(FieldError::invalid(path, name, RULE));
        } else if !seen.insert(name) {
            errors.push(FieldError::duplicate(path, name));
        }
    }
}

fn seccomp(profile: &Value, path: &Path<'_>, errors: &mut Errors) {
    if !profile.is_object() {
        return;
    }
    let (kind, local) = (profile.text("type"), profile.at("localhostProfile"));
    let kind_path = path.child("type");
    if kind.is_empty() {
        errors.push(FieldError::required(kind_path, "type is required when seccompProfile is set"));
    } else {
        word(errors, &kind_path, kind, &["Localhost", "RuntimeDefault", "Unconfined"]);
    }
    let path = path.child("localhostProfile");
    match (kind, local.as_str()) {
        ("Localhost", None) => {
            errors.push(FieldError::required(path, "must be set when seccomp type is Localhost"));
        }
        ("Localhost", Some(profile)) => descending(errors, &path, profile),
        (_, Some(_)) => {
            errors.push(FieldError::invalid(path, profile, "can only be set when seccomp type is Localhost"));
        }
        (_, None) => {}
    }
}

fn app_armor(profile: &Value, path: &Path<'_>, errors: &mut Errors) {
    if !profile.is_object() {
        return;
    }
    let local = profile.at("localhostProfile").as_str();
    let local_path = path.child("localhostProfile");
    match (profile.text("type"), local) {
        ("Localhost", None) | ("Localhost", Some("")) => {
            errors.push(FieldError::required(local_path, "must be set when AppArmor type is Localhost"));
        }
        ("Localhost", Some(name)) => {
            if name.trim() != name {
                errors.push(FieldError::invalid(local_path, name, "must not be padded with whitespace"));
            }
            if name.len() > 4095 {
                errors.push(FieldError::too_long(local_path, 4095));
            }
        }
        ("RuntimeDefault" | "Unconfined", Some(name)) => {
            errors.push(FieldError::invalid(local_path, name, "can only be set when AppArmor type is Localhost"));
        }
        ("RuntimeDefault" | "Unconfined", None) => {}
        ("", _) => {
            errors.push(FieldError::required(path.child("type"), "type is required when appArmorProfile is set"));
        }
        (other, _) => word(errors, &path.child("type"), other, &["Localhost", "RuntimeDefault", "Unconfined"]),
    }
}

/// Checks Windows containers that run directly on the host.
pub(super) fn host_process(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    let of_pod = spec.flag("securityContext.windowsOptions.hostProcess");
    let (mut all, mut on_host) = (0, 0);
    for (list, i, container) in all_containers(spec) {
        all += 1;
        let own = container.flag("securityContext.windowsOptions.hostProcess");
        if let (Some(of_pod), Some(own)) = (of_pod, own)
            && of_pod != own
        {
            let list = path.child(list);
            let entry = list.index(i);
            let why = format!("pod hostProcess value must be identical if both are specified, was {of_pod}");
            errors.push(FieldError::invalid(entry.child("securityContext.windowsOptions.hostProcess"), own, why));
        }
        on_host += usize::from(own.or(of_pod) == Some(true));
    }
    if on_host == 0 {
        return;
    }
    if on_host != all {
        let why = "If pod contains any hostProcess containers then all containers must be HostProcess containers";
        errors.push(FieldError::invalid(path, "", why));
    }
    if spec.flag("hostNetwork") != Some(true) {
        let why = "hostNetwork must be true if pod contains any hostProcess containers";
        errors.push(FieldError::invalid(path.child("hostNetwork"), false, why));
    }
}

pub(super) fn operating_system(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    if !spec.has("os") {
        return;
    }
    match spec.text("os.name") {
        "" => required(errors, &path.child("os.name")),
        "linux" => {
            let why = "windows options cannot be set for a linux pod";
            if spec.has("securityContext.windowsOptions") {
                errors.push(FieldError::forbidden(path.child("securityContext.windowsOptions"), why));
            }
            for (list, i, container) in all_containers(spec) {
                if container.has("securityContext.windowsOptions") {
                    let list = path.child(list);
                    errors.push(FieldError::forbidden(list.index(i).child("securityContext.windowsOptions"), why));
                }
            }
        }
        "windows" => windows(spec, path, errors),
        other => word(errors, &path.child("os"), other, &["linux", "windows"]),
    }
}

fn windows(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    const WHY: &str = "cannot be set for a windows pod";
    for field in [
        "securityContext.appArmorProfile",
        "securityContext.seLinuxOptions",
        "hostUsers",
        "hostPID",
        "hostIPC",
        "securityContext.seccompProfile",
        "securityContext.fsGroup",
        "securityContext.fsGroupChangePolicy",
        "securityContext.sysctls",
        "shareProcessNamespace",
        "securityContext.runAsUser",
        "securityContext.runAsGroup",
        "securityContext.supplementalGroups",
        "securityContext.supplementalGroupsPolicy",
        "securityContext.seLinuxChangePolicy",
    ] {
        let switched_off = matches!(field, "hostPID" | "hostIPC") && spec.flag(field) == Some(false);
        if spec.has(field) && !switched_off {
            errors.push(FieldError::forbidden(path.child(field), WHY));
        }
    }
    for (list, i, container) in all_containers(spec) {
        let list = path.child(list);
        let entry = list.index(i);
        let context_path = entry.child("securityContext");
        for field in [
            "appArmorProfile",
            "seLinuxOptions",
            "seccompProfile",
            "capabilities",
            "readOnlyRootFilesystem",
            "privileged",
            "allowPrivilegeEscalation",
            "procMount",
            "runAsUser",
            "runAsGroup",
        ] {
            if container.at("securityContext").has(field) {
                errors.push(FieldError::forbidden(context_path.child(field), WHY));
            }
        }
    }
}
