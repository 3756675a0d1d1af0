//! The environment of a container: its variables, its host name, its working directory.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, EnvVar, Pod};

use crate::nodes::shell::Environment;
use crate::nodes::shell::files::PATH_BYTES_MAX;

/// Bytes that the value of a variable may have after `$(NAME)` was replaced; references beyond it stay.
const VALUE_BYTES_MAX: usize = 64 * 1024;
/// Bytes of all values of a container after `$(NAME)` was replaced.
const VALUES_BYTES_MAX: usize = 1024 * 1024;
/// Bytes of a name in `$(NAME)`.
const NAME_BYTES_MAX: usize = 512;

/// What the processes of a container start with.
pub(in crate::nodes) fn of(pod: &Pod, container: &Container) -> Environment {
    let mut environment = Environment { hostname: hostname(pod), ..Environment::default() };
    environment.variables.insert("HOSTNAME".to_owned(), environment.hostname.clone());
    for (name, value) in variables(pod, container) {
        environment.variables.insert(name, value);
    }
    if let Some(directory) = container.working_dir.as_ref().filter(|d| !d.is_empty() && d.len() <= PATH_BYTES_MAX) {
        environment.directory.clone_from(directory);
    }
    let spec = pod.spec.as_ref();
    let user = container.security_context.as_ref().and_then(|context| context.run_as_user);
    let user = user.or_else(|| spec?.security_context.as_ref()?.run_as_user);
    environment.user = user.unwrap_or_default();
    let shared = spec.and_then(|spec| spec.share_process_namespace).unwrap_or_default();
    let host = spec.and_then(|spec| spec.host_pid).unwrap_or_default();
    environment.is_first_process = !shared && !host;
    let uid = pod.metadata.uid.as_deref().unwrap_or_default();
    environment.seed = seed(&[uid, &container.name]);
    environment
}

fn seed(words: &[&str]) -> u64 {
    let bytes = words.iter().flat_map(|word| word.bytes().chain([0]));
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

fn hostname(pod: &Pod) -> String {
    let given = pod.spec.as_ref().and_then(|spec| spec.hostname.clone()).filter(|name| !name.is_empty());
    given.or_else(|| pod.metadata.name.clone()).unwrap_or_default()
}

/// The variables of `env`. Values from ConfigMaps and Secrets are not read and stay unset.
fn variables(pod: &Pod, container: &Container) -> BTreeMap<String, String> {
    let mut known: BTreeMap<String, String> = BTreeMap::new();
    let mut room = VALUES_BYTES_MAX;
    for variable in container.env.iter().flatten() {
        if let Some(value) = value_of(pod, container, variable) {
            let value = expand(&value, &known, room);
            room = room.saturating_sub(value.len());
            known.insert(variable.name.clone(), value);
        }
    }
    known
}

fn value_of(pod: &Pod, container: &Container, variable: &EnvVar) -> Option<String> {
    if let Some(value) = &variable.value {
        return Some(value.clone());
    }
    let Some(source) = &variable.value_from else { return Some(String::new()) };
    if let Some(field) = &source.field_ref {
        return Some(field_of(pod, &field.field_path));
    }
    let resource = source.resource_field_ref.as_ref()?;
    let (list, name) = resource.resource.split_once('.')?;
    let resources = container.resources.as_ref()?;
    let amounts = if list == "limits" { &resources.limits } else { &resources.requests };
    amounts.as_ref()?.get(name).map(|amount| amount.0.clone())
}

/// A field of the pod, such as `metadata.annotations['key']`.
fn field_of(pod: &Pod, path: &str) -> String {
    let text = |value: Option<&String>| value.cloned().unwrap_or_default();
    if let Some((map, key)) = path.strip_suffix("']").and_then(|path| path.split_once("['")) {
        let map = if map == "metadata.labels" { &pod.metadata.labels } else { &pod.metadata.annotations };
        return text(map.as_ref().and_then(|map| map.get(key)));
    }
    let (spec, status) = (pod.spec.as_ref(), pod.status.as_ref());
    match path {
        "metadata.name" => text(pod.metadata.name.as_ref()),
        "metadata.namespace" => text(pod.metadata.namespace.as_ref()),
        "metadata.uid" => text(pod.metadata.uid.as_ref()),
        "spec.nodeName" => text(spec.and_then(|spec| spec.node_name.as_ref())),
        "spec.serviceAccountName" => text(spec.and_then(|spec| spec.service_account_name.as_ref())),
        "status.hostIP" | "status.hostIPs" => text(status.and_then(|status| status.host_ip.as_ref())),
        "status.podIP" | "status.podIPs" => text(status.and_then(|status| status.pod_ip.as_ref())),
        _ => String::new(),
    }
}

/// The words of a command with `$(NAME)` replaced, as the kubelet does.
pub(super) fn expanded(pod: &Pod, container: &Container, words: &[String]) -> Vec<String> {
    if !words.iter().any(|word| word.contains("$(")) {
        return words.to_vec();
    }
    let known = variables(pod, container);
    let mut room = VALUES_BYTES_MAX;
    let expand_next = |word: &String| {
        let text = expand(word, &known, room);
        room = room.saturating_sub(text.len());
        text
    };
    words.iter().map(expand_next).collect()
}

/// `$(NAME)` becomes the value, `$$` a dollar sign; an unknown name stays, and so does one for which there is no room.
fn expand(text: &str, known: &BTreeMap<String, String>, room: usize) -> String {
    let room = room.min(VALUE_BYTES_MAX);
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        out.push_str(&rest[..at]);
        rest = &rest[at + 1..];
        if let Some(after) = rest.strip_prefix('$') {
            out.push('$');
            rest = after;
            continue;
        }
        match reference(rest).and_then(|(name, after)| Some((known.get(name)?, after))) {
            Some((value, after)) if out.len() + value.len() + after.len() <= room => {
                out.push_str(value);
                rest = after;
            }
            _ => out.push('$'),
        }
    }
    out.push_str(rest);
    out
}

/// The name of `(NAME)` at the beginning of a text, and what follows.
fn reference(text: &str) -> Option<(&str, &str)> {
    let inner = text.strip_prefix('(')?;
    let end = inner.bytes().take(NAME_BYTES_MAX).position(|byte| byte == b')')?;
    Some((inner.get(..end)?, inner.get(end + 1..)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn cmd_7_variables_come_from_the_spec_and_the_pod() {
        let pod: Pod = serde_json::from_value(json!({
            "metadata": {"name": "p", "namespace": "d", "annotations": {"batch.kubernetes.io/job-completion-index": "3"}},
            "spec": {"nodeName": "n", "containers": [{"name": "c",
                "resources": {"limits": {"cpu": "2"}},
                "args": ["$(INDEX) $$(INDEX) $(none) $HOME"],
                "env": [
                    {"name": "A", "value": "1"}, {"name": "B", "value": "$(A)-$$(A)-$(C)"},
                    {"name": "INDEX", "valueFrom": {"fieldRef":
                        {"fieldPath": "metadata.annotations['batch.kubernetes.io/job-completion-index']"}}},
                    {"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
                    {"name": "CPU", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu"}}},
                ]}]},
        }))
        .unwrap();
        let container = &pod.spec.as_ref().unwrap().containers[0];
        let environment = of(&pod, container);
        let value = |name: &str| environment.variables.get(name).cloned().unwrap_or_default();
        assert_eq!((value("A"), value("B")), ("1".into(), "1-$(A)-$(C)".into()));
        assert_eq!((value("INDEX"), value("NODE"), value("CPU")), ("3".into(), "n".into(), "2".into()));
        assert_eq!(value("HOSTNAME"), "p");
        let args = expanded(&pod, container, container.args.as_ref().unwrap());
        assert_eq!(args, ["3 $(INDEX) $(none) $HOME"]);
    }

    #[test]
    fn variables_of_variables_are_bounded() {
        let mut env = vec![json!({"name": "V0", "value": "x".repeat(100)})];
        env.extend((1..200).map(|n| json!({"name": format!("V{n}"), "value": format!("$(V{0})$(V{0})", n - 1)})));
        let pod: Pod = serde_json::from_value(json!({"spec": {"containers": [{"name": "c", "env": env,
            "workingDir": "/a".repeat(10_000), "args": [format!("{}", "$(V9)".repeat(1_000)), "$(".repeat(100_000)]}]}}))
        .unwrap();
        let container = &pod.spec.as_ref().unwrap().containers[0];
        let environment = of(&pod, container);
        assert_eq!(environment.directory, "/");
        assert!(environment.variables.values().all(|value| value.len() <= VALUE_BYTES_MAX));
        assert!(environment.variables.values().map(String::len).sum::<usize>() <= 2 * VALUES_BYTES_MAX);
        let args = expanded(&pod, container, container.args.as_ref().unwrap());
        assert!(args[0].len() <= VALUE_BYTES_MAX && args[0].ends_with("$(V9)"));
    }
}
