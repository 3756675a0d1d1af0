//! Warnings about objects that are accepted: texts of `Warning` headers.

use std::collections::{HashMap, HashSet};

use base64::Engine as _;
use machinery::field_error::Path;
use machinery::json::Value;
use machinery::names;
use machinery::quantity::Quantity;

use crate::kind::Kind;
use crate::walk::Walk as _;

/// Returns the warnings of a create (`old` is `None`) or of an update of the object itself, after preparation. `spec_is_known` for a
/// new pod whose spec is that of another pod, which had no warnings.
#[must_use]
pub fn on_write(kind: &Kind, new: &Value, old: Option<&Value>, spec_is_known: bool) -> Vec<String> {
    let mut warnings = Vec::new();
    if spec_is_known {
        host_name(new, None, POD_HOST, &mut warnings);
        dead_annotations(new, &Path::root(), &mut warnings);
        return warnings;
    }
    if kind.custom {
        finalizers(new, old, &mut warnings);
        return warnings;
    }
    // Templates are checked when they are new, or when the spec changed.
    let changed = old.is_none_or(|old| old.at("metadata.generation") != new.at("metadata.generation"));
    let out = &mut warnings;
    match (kind.gvk.group.as_str(), kind.gvk.kind.as_str()) {
        ("apiextensions.k8s.io", _) => out.extend(crate::validation::unknown_formats(new, old)),
        // Pods are updated often and rarely by a person: the reference warns at their creation only.
        ("", "Pod") if old.is_none() => {
            host_name(new, None, POD_HOST, out);
            pod(new, &Path::root(), out);
        }
        ("", "PodTemplate") if changed => pod(new.at("template"), &Path::new("template"), out),
        ("", "Service") => service(new, out),
        ("", "Node") => node(new, out),
        ("storage.k8s.io", "CSIDriver")
            if !new.list("spec.tokenRequests").is_empty() && !new.has("spec.serviceAccountTokenInSecrets") =>
        {
            let why = "spec.serviceAccountTokenInSecrets is unset; if supported by this CSI driver, set to true to prevent \
                possible logging of tokens in volume attributes";
            out.push(why.to_owned());
        }
        ("", "Secret") => secret(new, out),
        ("", "Endpoints") => out.push(ENDPOINTS.to_owned()),
        ("", "PersistentVolume") => volume(new, out),
        ("", "PersistentVolumeClaim") => {
            storage_class_annotation(new, out);
            claim(new.at("spec"), &Path::new("spec"), out);
        }
        ("batch", "CronJob") => {
            let name = "this is used in Pod names and hostnames, which can result in surprising behavior";
            host_name(new, old, name, out);
            if changed {
                pod(new.at("spec.jobTemplate.spec.template"), &Path::new("spec.jobTemplate.spec.template"), out);
            }
        }
        ("", "ReplicationController") | ("apps" | "batch", _) if new.has("spec.template") => {
            if kind.gvk.kind != "StatefulSet" && kind.gvk.kind != "DaemonSet" {
                let name = "this is used in Pod names and hostnames, which can result in surprising behavior";
                host_name(new, old, name, out);
            }
            if changed {
                pod(new.at("spec.template"), &Path::new("spec.template"), out);
            }
            let list = Path::new("spec.volumeClaimTemplates");
            for (i, template) in new.list("spec.volumeClaimTemplates").iter().enumerate() {
                claim(template.at("spec"), &list.index(i), out);
            }
        }
        ("networking.k8s.io", "Ingress") if old.is_none() => {
            const CLASS: &str = "kubernetes.io/ingress.class";
            if has_annotation(new, CLASS) && !new.has("spec.ingressClassName") {
                out.push(format!("annotation {CLASS:?} is deprecated, please use 'spec.ingressClassName' instead"));
            }
        }
        ("discovery.k8s.io", "EndpointSlice") if old.is_none() && new.text("addressType") == "FQDN" => {
            out.push("spec.addressType: FQDN endpoints are deprecated".to_owned());
        }
        _ => {}
    }
    warnings
}

const POD_HOST: &str = "this is used in the Pod's hostname, which can result in surprising behavior";

/// Returns the warning of every request for a deprecated kind.
#[must_use]
pub fn deprecation(kind: &Kind) -> Option<&str> {
    if let Some(definition) = &kind.definition {
        return definition.deprecation.as_deref();
    }
    match (kind.gvk.group.as_str(), kind.gvk.kind.as_str()) {
        ("", "Endpoints") => Some(ENDPOINTS),
        ("", "ComponentStatus") => Some("v1 ComponentStatus is deprecated in v1.19+"),
        _ => None,
    }
}

/// Warns of finalizers of custom resources whose names may clash: any name is accepted.
fn finalizers(new: &Value, old: Option<&Value>, out: &mut Vec<String>) {
    const PATH: &str = "metadata.finalizers";
    let mut added: Vec<&str> = new.list(PATH).iter().filter_map(Value::as_str).collect();
    let before: HashSet<&str> = old.map(|old| old.list(PATH)).into_iter().flatten().filter_map(Value::as_str).collect();
    added.retain(|name| !before.contains(name));
    added.sort_unstable();
    for name in added {
        let quoted = machinery::go_text::quote(name);
        out.extend(names::qualified_name(name).iter().map(|why| format!("{PATH}: {quoted}: {why}")));
        if !name.contains('/') && !matches!(name, "orphan" | "foregroundDeletion" | "kubernetes") {
            let path = if name.contains('.') { " including a path (/)" } else { "" };
            out.push(format!(
                "{PATH}: {quoted}: prefer a domain-qualified finalizer name{path} to avoid accidental conflicts with other \
                 finalizer writers"
            ));
        }
    }
}

const ENDPOINTS: &str = "v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice";

fn has_annotation(object: &Value, name: &str) -> bool {
    object.map("metadata.annotations").is_some_and(|annotations| annotations.contains_key(name))
}

fn host_name(new: &Value, old: Option<&Value>, why: &str, out: &mut Vec<String>) {
    let objections = names::dns1123_label(new.text("metadata.name"));
    if old.is_none() && !objections.is_empty() {
        out.push(format!("metadata.name: {why}; a DNS label is recommended: [{}]", objections.join(" ")));
    }
}

/// Returns the replacement of a deprecated node label.
fn deprecated_label(label: &str) -> Option<&'static str> {
    Some(match label {
        "beta.kubernetes.io/arch" => r#"deprecated since v1.14; use "kubernetes.io/arch" instead"#,
        "beta.kubernetes.io/os" => r#"deprecated since v1.14; use "kubernetes.io/os" instead"#,
        "failure-domain.beta.kubernetes.io/region" => {
            r#"deprecated since v1.17; use "topology.kubernetes.io/region" instead"#
        }
        "failure-domain.beta.kubernetes.io/zone" => {
            r#"deprecated since v1.17; use "topology.kubernetes.io/zone" instead"#
        }
        "beta.kubernetes.io/instance-type" => {
            r#"deprecated since v1.17; use "node.kubernetes.io/instance-type" instead"#
        }
        "app.kubernetes.io/created-by" => "deprecated since v1.9",
        "scheduler.alpha.kubernetes.io/preferAvoidPods" => "deprecated since v1.22; use Taints and Tolerations instead",
        "node-role.kubernetes.io/master" => r#"use "node-role.kubernetes.io/control-plane" instead"#,
        _ => return None,
    })
}

/// Volumes that kubelets no longer support.
const UNSUPPORTED_VOLUMES: [(&str, &str, &str); 9] = [
    ("photonPersistentDisk", "photonPersistentDisk", "deprecated in v1.11, non-functional in v1.16+"),
    ("gitRepo", "gitRepo", "deprecated in v1.11, and disabled by default in v1.33+"),
    ("scaleIO", "scaleIO", "deprecated in v1.16, non-functional in v1.22+"),
    ("flocker", "flocker", "deprecated in v1.22, non-functional in v1.25+"),
    ("storageos", "storageOS", "deprecated in v1.22, non-functional in v1.25+"),
    ("quobyte", "quobyte", "deprecated in v1.22, non-functional in v1.25+"),
    ("glusterfs", "glusterfs", "deprecated in v1.25, non-functional in v1.26+"),
    ("cephfs", "cephfs", "deprecated in v1.28, non-functional in v1.31+"),
    ("rbd", "rbd", "deprecated in v1.28, non-functional in v1.31+"),
];

/// Warns of the fields of a pod or a pod template.
fn pod(pod: &Value, path: &Path<'_>, out: &mut Vec<String>) {
    let spec = pod.at("spec");
    let spec_path = path.child("spec");
    placement(spec, &spec_path, out);
    dead_annotations(pod, path, out);
    let list = spec_path.child("volumes");
    for (i, volume) in spec.list("volumes").iter().enumerate() {
        let path = list.index(i);
        for (field, shown, why) in UNSUPPORTED_VOLUMES {
            if volume.has(field) {
                out.push(format!("{}: {why}", path.child(shown)));
            }
        }
        if volume.has("ephemeral.volumeClaimTemplate") {
            let path = path.child("ephemeral.volumeClaimTemplate.spec");
            claim(volume.at("ephemeral.volumeClaimTemplate.spec"), &path, out);
        }
    }
    repeated(spec, "hostAliases", "ip", &spec_path, out);
    repeated(spec, "imagePullSecrets", "name", &spec_path, out);
    let list = spec_path.child("imagePullSecrets");
    for (i, _) in spec.list("imagePullSecrets").iter().enumerate().filter(|(_, s)| s.text("name").is_empty()) {
        out.push(format!("{}: invalid empty name \"\"", list.index(i).child("name")));
    }
    whole_bytes(spec, "overhead", &spec_path, out);
    let mut ports: HashMap<(i64, &str), SeenPorts<'_>> = HashMap::new();
    let mut named: HashMap<&str, String> = HashMap::new();
    let (mut clashes, mut same_names) = (Vec::new(), Vec::new());
    for field in ["initContainers", "containers", "ephemeralContainers"] {
        let list = spec_path.child(field);
        for (i, container) in spec.list(field).iter().enumerate() {
            let path = list.index(i);
            for part in ["limits", "requests"] {
                whole_bytes(container.at("resources"), part, &path.child("resources"), out);
            }
            variables(container, &path.child("env"), out);
            let list = path.child("ports");
            for (j, port) in container.list("ports").iter().enumerate() {
                let here = list.index(j).to_string();
                let key = (port.int("containerPort").unwrap_or(0), port.text("protocol"));
                let others = ports.entry(key).or_default();
                for (there, other) in others.clashes(port, CLASHES_MAX - clashes.len()) {
                    clashes.extend(
                        port_clash(port, other).map(|how| format!("{here}: {how} port definition with {there}")),
                    );
                }
                others.push(here.clone(), port);
                let name = port.text("name");
                if name.is_empty() {
                    continue;
                }
                match named.get(name) {
                    None => {
                        named.insert(name, here);
                    }
                    Some(there) => same_names.push(format!(
                        "{here}: duplicate port name {name:?} with {there}, services and probes that select ports by \
                         name will use {there}"
                    )),
                }
            }
        }
    }
    out.append(&mut clashes);
    out.append(&mut same_names);
    if spec.int("terminationGracePeriodSeconds").is_some_and(|seconds| seconds < 0) {
        let why = "must be >= 0; negative values are invalid and will be treated as 1";
        out.push(format!("{}: {why}", spec_path.child("terminationGracePeriodSeconds")));
    }
    affinity(spec, &spec_path.child("affinity"), out);
}

fn dead_annotations(pod: &Value, path: &Path<'_>, out: &mut Vec<String>) {
    let annotations = path.child("metadata.annotations");
    for (name, why) in [
        (
            "scheduler.alpha.kubernetes.io/critical-pod",
            r#"non-functional in v1.16+; use the "priorityClassName" field instead"#,
        ),
        ("security.alpha.kubernetes.io/sysctls", r#"non-functional in v1.11+; use the "sysctls" field instead"#),
        ("security.alpha.kubernetes.io/unsafe-sysctls", r#"non-functional in v1.11+; use the "sysctls" field instead"#),
    ] {
        if has_annotation(pod, name) {
            out.push(format!("{}: {why}", annotations.key(name)));
        }
    }
}

/// Most warnings of ports that clash: each pair of them is one, and a header holds a hundred at most.
const CLASHES_MAX: usize = 1000;

/// The ports of one number and protocol, by the port of the host, so that those that clash are found without comparing all.
#[derive(Default)]
struct SeenPorts<'v> {
    all: Vec<(String, &'v Value)>,
    /// Positions of ports without a port of the host.
    without_host: Vec<usize>,
    by_host: HashMap<(i64, &'v str), Vec<usize>>,
    /// Those with an address, by number.
    with_address: HashMap<i64, Vec<usize>>,
}

impl<'v> SeenPorts<'v> {
    /// Returns the first `max` ports for which [`port_clash`] finds a conflict, in order.
    fn clashes(&self, port: &Value, max: usize) -> impl Iterator<Item = (&str, &'v Value)> {
        let (ip, number) = (port.text("hostIP"), port.int("hostPort").unwrap_or(0));
        let mut found: Vec<usize> = if number == 0 {
            (0..self.all.len().min(max)).collect()
        } else {
            let ambiguous = match ip {
                "" => self.with_address.get(&number),
                _ => self.by_host.get(&(number, "")),
            };
            let lists = [Some(&self.without_host), self.by_host.get(&(number, ip)), ambiguous];
            lists.into_iter().flatten().flat_map(|list| list.iter().take(max).copied()).collect()
        };
        found.sort_unstable();
        found.truncate(max);
        found.into_iter().map(|at| (self.all[at].0.as_str(), self.all[at].1))
    }

    fn push(&mut self, here: String, port: &'v Value) {
        let (ip, number, at) = (port.text("hostIP"), port.int("hostPort").unwrap_or(0), self.all.len());
        match number {
            0 => self.without_host.push(at),
            _ => {
                self.by_host.entry((number, ip)).or_default().push(at);
                if !ip.is_empty() {
                    self.with_address.entry(number).or_default().push(at);
                }
            }
        }
        self.all.push((here, port));
    }
}

/// Returns the kind of conflict between two definitions of a port.
fn port_clash(port: &Value, other: &Value) -> Option<&'static str> {
    let (ip, number) = (port.text("hostIP"), port.int("hostPort").unwrap_or(0));
    let (other_ip, other_number) = (other.text("hostIP"), other.int("hostPort").unwrap_or(0));
    if ip == other_ip && number == other_number {
        Some("duplicate")
    } else if number == 0 || other_number == 0 {
        Some("overlapping")
    } else if number == other_number && ip.is_empty() != other_ip.is_empty() {
        Some("dangerously ambiguous")
    } else {
        None
    }
}

fn placement(spec: &Value, path: &Path<'_>, out: &mut Vec<String>) {
    for label in spec.map("nodeSelector").into_iter().flat_map(|map| map.keys()) {
        if let Some(why) = deprecated_label(label) {
            out.push(format!("{}: {why}", path.child("nodeSelector").key(label)));
        }
    }
    let nodes = spec.at("affinity.nodeAffinity");
    let node_path = path.child("affinity.nodeAffinity");
    let list = node_path.child("requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms");
    for (i, term) in nodes.list("requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms").iter().enumerate() {
        node_term(term, &list.index(i), out);
    }
    let list = node_path.child("preferredDuringSchedulingIgnoredDuringExecution");
    for (i, term) in nodes.list("preferredDuringSchedulingIgnoredDuringExecution").iter().enumerate() {
        node_term(term.at("preference"), &list.index(i).child("preference"), out);
    }
    let list = path.child("topologySpreadConstraints");
    for (i, constraint) in spec.list("topologySpreadConstraints").iter().enumerate() {
        let path = list.index(i);
        let key = constraint.text("topologyKey");
        if let Some(why) = deprecated_label(key) {
            out.push(format!("{}: {key} is {why}", path.child("topologyKey")));
        }
        if !constraint.has("labelSelector") {
            out.push(format!("{}: a null labelSelector results in matching no pod", path.child("labelSelector")));
        }
    }
}

fn node_term(term: &Value, path: &Path<'_>, out: &mut Vec<String>) {
    let list = path.child("matchExpressions");
    for (i, expression) in term.list("matchExpressions").iter().enumerate() {
        let key = expression.text("key");
        if let Some(why) = deprecated_label(key) {
            out.push(format!("{}: {key} is {why}", list.index(i).child("key")));
        }
    }
}

fn affinity(spec: &Value, path: &Path<'_>, out: &mut Vec<String>) {
    for field in ["podAffinity", "podAntiAffinity"] {
        for (when, inner) in [
            ("requiredDuringSchedulingIgnoredDuringExecution", ""),
            ("preferredDuringSchedulingIgnoredDuringExecution", "podAffinityTerm"),
        ] {
            let path = path.child(field);
            let list = path.child(when);
            for (i, term) in spec.at("affinity").at(field).list(when).iter().enumerate() {
                let (term, entry) = (if inner.is_empty() { term } else { term.at(inner) }, list.index(i));
                let place = if inner.is_empty() { entry } else { entry.child(inner) };
                if !term.has("labelSelector") {
                    let why = "a null labelSelector results in matching no pod";
                    out.push(format!("{}: {why}", place.child("labelSelector")));
                }
            }
        }
    }
}

/// Warns of duplicate entries in a list that clients merge by a key.
fn repeated(spec: &Value, field: &str, key: &str, path: &Path<'_>, out: &mut Vec<String>) {
    if spec.list(field).len() < 2 {
        return;
    }
    let list = path.child(field);
    let mut seen = HashSet::new();
    for (i, item) in spec.list(field).iter().enumerate() {
        let value = item.text(key);
        if !seen.insert(value) {
            out.push(format!("{}: duplicate {key} {value:?}", list.index(i).child(key)));
        }
    }
}

/// Warns of fractional bytes of memory and storage.
fn whole_bytes(holder: &Value, part: &str, path: &Path<'_>, out: &mut Vec<String>) {
    for name in ["memory", "ephemeral-storage"] {
        let Some(amount) = holder.map(part).and_then(|amounts| amounts.get(name)) else { continue };
        fraction(amount, &path.child(part).key(name), out);
    }
}

fn fraction(amount: &Value, path: &Path<'_>, out: &mut Vec<String>) {
    if let Ok(exact) = Quantity::from_value(amount)
        && !exact.is_integer()
    {
        out.push(format!("{path}: fractional byte value \"{exact}\" is invalid, must be an integer"));
    }
}

fn variables(container: &Value, path: &Path<'_>, out: &mut Vec<String>) {
    let list = container.list("env");
    let mut seen = HashSet::with_capacity(list.len());
    for (i, variable) in list.iter().enumerate() {
        let name = variable.text("name");
        if seen.insert(name) {
            continue;
        }
        // A second definition may refer to the first.
        let (value, reference) = (variable.text("value"), format!("$({name})"));
        if variable.has("valueFrom") || value == reference || !value.contains(&reference) {
            let why = "which may be dropped when using apply";
            out.push(format!("{}: hides previous definition of {name:?}, {why}", path.index(i)));
        }
    }
}

fn claim(spec: &Value, path: &Path<'_>, out: &mut Vec<String>) {
    for part in ["requests", "limits"] {
        let Some(amount) = spec.at("resources").map(part).and_then(|amounts| amounts.get("storage")) else { continue };
        let path = path.child("resources");
        fraction(amount, &path.child(part).key("storage"), out);
    }
}

fn storage_class_annotation(object: &Value, out: &mut Vec<String>) {
    const CLASS: &str = "volume.beta.kubernetes.io/storage-class";
    if has_annotation(object, CLASS) {
        let why = r#"deprecated since v1.8; use "storageClassName" attribute instead"#;
        out.push(format!("metadata.annotations[{CLASS}]: {why}"));
    }
}

fn volume(object: &Value, out: &mut Vec<String>) {
    storage_class_annotation(object, out);
    let spec = object.at("spec");
    if spec.text("persistentVolumeReclaimPolicy") == "Recycle" {
        let why = "The Recycle reclaim policy is deprecated. Instead, the recommended approach is to use dynamic provisioning.";
        out.push(format!("spec.persistentVolumeReclaimPolicy: {why}"));
    }
    let list = Path::new("spec.nodeAffinity.required.nodeSelectorTerms");
    for (i, term) in spec.list("nodeAffinity.required.nodeSelectorTerms").iter().enumerate() {
        node_term(term, &list.index(i), out);
    }
    for (field, shown, why) in UNSUPPORTED_VOLUMES {
        if spec.has(field) {
            out.push(format!("spec.{shown}: {why}"));
        }
    }
}

fn service(object: &Value, out: &mut Vec<String>) {
    let spec = object.at("spec");
    let headless = matches!(spec.list("clusterIPs"), [only] if only == "None");
    let external = !spec.list("externalIPs").is_empty();
    if headless {
        for (given, field) in [
            (!spec.text("loadBalancerIP").is_empty(), "loadBalancerIP"),
            (external, "externalIPs"),
            (spec.text("sessionAffinity") != "None", "SessionAffinity"),
        ] {
            if given {
                out.push(format!("spec.{field} is ignored for headless services"));
            }
        }
    } else if external && spec.text("type") == "ExternalName" {
        out.push("spec.externalIPs is ignored when spec.type is \"ExternalName\"".to_owned());
    } else if external {
        out.push("spec.externalIPs is deprecated and may no longer be implemented in some clusters".to_owned());
    }
    if spec.text("type") != "ExternalName" && !spec.text("externalName").is_empty() {
        out.push("spec.externalName is ignored when spec.type is not \"ExternalName\"".to_owned());
    }
    if spec.text("trafficDistribution") == "PreferClose" {
        out.push("spec.trafficDistribution: \"PreferClose\" is deprecated; use \"PreferSameZone\"".to_owned());
    }
}

/// Warns of fields of a node that nothing uses.
fn node(object: &Value, out: &mut Vec<String>) {
    for (field, use_instead) in [
        ("configSource", "the feature is removed"),
        ("externalID", "this field is deprecated, and is unused by Kubernetes"),
    ] {
        if object.at("spec").has(field) && object.at("spec").at(field) != "" {
            out.push(format!("spec.{field}: {use_instead}"));
        }
    }
}

fn secret(object: &Value, out: &mut Vec<String>) {
    if object.text("type") != "kubernetes.io/tls" {
        return;
    }
    for (key, what) in [("tls.crt", "certificate"), ("tls.key", "key")] {
        let encoded = object.map("data").and_then(|data| data.get(key)).and_then(Value::as_str).unwrap_or_default();
        let bytes = base64::engine::general_purpose::STANDARD.decode(encoded).unwrap_or_default();
        if !String::from_utf8_lossy(&bytes).contains("-----BEGIN ") {
            out.push(format!("tls: failed to find any PEM data in {what} input"));
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::builtin;
    use machinery::json::json;

    fn warned(group: &str, plural: &str, object: Value) -> Vec<String> {
        on_write(builtin().get(group, "v1", plural).unwrap(), &object, None, false)
    }

    #[test]
    fn a_variable_that_hides_another_one() {
        let pod = |value: &str| {
            let env = json!([{"name": "A", "value": "1"}, {"name": "A", "value": value}]);
            warned("", "pods", json!({"metadata": {"name": "a"}, "spec": {"containers": [{"env": env}]}}))
        };
        assert_eq!(
            pod("2"),
            ["spec.containers[0].env[1]: hides previous definition of \"A\", which may be dropped when using apply"]
        );
        assert!(pod("$(A) more").is_empty(), "a value may build on the one before");
    }

    #[test]
    fn clashing_ports_are_found_as_by_comparing_all() {
        let values: Vec<Value> = (0..60)
            .map(|at| {
                let (number, ip) = ([0, 80, 81][at % 3], ["", "1.1.1.1", "2.2.2.2"][at / 3 % 3]);
                json!({"hostPort": number, "hostIP": ip, "at": at})
            })
            .collect();
        let mut seen = SeenPorts::default();
        for (at, port) in values.iter().enumerate() {
            let wanted: Vec<&Value> =
                values[..at].iter().filter(|other| port_clash(port, other).is_some()).take(40).collect();
            let found: Vec<&Value> = seen.clashes(port, 40).map(|(_, other)| other).collect();
            assert_eq!(found, wanted);
            seen.push(at.to_string(), port);
        }
    }

    #[test]
    fn templates_are_warned_about_by_their_own_path() {
        let spec = json!({"template": {"spec": {"nodeSelector": {"beta.kubernetes.io/os": "linux"}}}});
        let warnings = warned("apps", "deployments", json!({"metadata": {"name": "a"}, "spec": spec}));
        assert!(
            warnings[0].starts_with("spec.template.spec.nodeSelector[beta.kubernetes.io/os]: deprecated since v1.14")
        );
    }

    #[test]
    fn pods_are_warned_about_when_they_are_new() {
        let pods = builtin().get("", "v1", "pods").unwrap();
        let old = json!({"metadata": {"name": "a", "generation": 1}, "spec": {"terminationGracePeriodSeconds": -1}});
        assert_eq!(on_write(pods, &old, None, false).len(), 1);
        let mut new = old.clone();
        new["metadata"]["generation"] = 2.into();
        new["spec"]["nodeSelector"] = json!({"beta.kubernetes.io/os": "linux"});
        assert!(on_write(pods, &new, Some(&old), false).is_empty());
    }

    #[test]
    fn updates_of_the_spec_alone_look_at_templates() {
        let deployments = builtin().get("apps", "v1", "deployments").unwrap();
        let old = json!({"metadata": {"name": "a.b", "generation": 1}, "spec": {"template": {"spec": {"terminationGracePeriodSeconds": -1}}}});
        assert!(on_write(deployments, &old, Some(&old), false).is_empty());
        let mut new = old.clone();
        new["metadata"]["generation"] = 2.into();
        assert_eq!(on_write(deployments, &new, Some(&old), false).len(), 1);
    }

    #[test]
    fn deprecated_kinds() {
        let warning = |plural: &str| deprecation(builtin().get("", "v1", plural).unwrap());
        assert!(warning("endpoints").unwrap().contains("EndpointSlice"));
        assert_eq!(warning("pods"), None);
    }

    #[test]
    fn odd_objects_do_not_panic() {
        for kind in builtin().iter() {
            for object in [json!(null), json!([]), json!({"metadata": 3, "spec": {"template": [], "volumes": {}}})] {
                let _ = (on_write(kind, &object, None, false), on_write(kind, &object, Some(&object), false));
            }
        }
    }
}
