//! Checks of the levels, in the order in which they are reported: those of the baseline by name, then those of the
//! restricted level, some of which replace a weaker one.

use std::collections::BTreeSet;

use machinery::json::Value;

use super::policy::{Level, Standard, Version};

/// The last version with a new check; later ones have the same.
const NEWEST: u32 = 35;

/// A violation: the reason in short, and in detail.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Violation {
    pub(super) reason: &'static str,
    pub(super) detail: String,
}

/// The violations of a standard by a pod or a pod template.
pub(super) fn violations(standard: &Standard, pod: &Value) -> Vec<Violation> {
    let since = match standard.version {
        Version::Minor(minor) => minor.min(NEWEST),
        Version::Latest => NEWEST,
    };
    if standard.level == Level::Privileged {
        return Vec::new();
    }
    let restricted = standard.level == Level::Restricted;
    let pod = Pod { pod, since };
    let mut found = vec![pod.app_armor()];
    if !(restricted && since >= 22) {
        found.push(pod.added_capabilities());
    }
    found.push(pod.host_namespaces());
    if !restricted {
        found.push(pod.host_paths());
    }
    found.push(pod.host_ports());
    if since >= 34 {
        found.push(pod.probe_hosts());
    }
    found.push(pod.privileged());
    if !(restricted && since >= 35) {
        found.push(pod.proc_mount(since >= 35));
    }
    found.push(pod.se_linux());
    if !(restricted && since >= 19) {
        found.push(pod.seccomp_baseline());
    }
    found.extend([pod.sysctls(), pod.host_process()]);
    if restricted {
        if since >= 8 {
            found.push(pod.privilege_escalation());
        }
        if since >= 22 {
            found.push(pod.restricted_capabilities());
        }
        if since >= 35 {
            found.push(pod.proc_mount(false));
        }
        found.extend([pod.volume_types(), pod.non_root()]);
        if since >= 23 {
            found.push(pod.user_zero());
        }
        if since >= 19 {
            found.push(pod.seccomp_restricted());
        }
    }
    found.into_iter().flatten().collect()
}

struct Pod<'a> {
    pod: &'a Value,
    /// The minor version whose checks apply.
    since: u32,
}

type Found = Option<Violation>;

fn found(reason: &'static str, detail: String) -> Found {
    Some(Violation { reason, detail })
}

fn quoted<S: AsRef<str>>(items: impl IntoIterator<Item = S>) -> String {
    let items: Vec<String> = items.into_iter().map(|item| format!("\"{}\"", item.as_ref())).collect();
    items.join(", ")
}

fn plural(one: &'static str, many: &'static str, count: usize) -> &'static str {
    if count == 1 { one } else { many }
}

fn containers_text(names: &[&str]) -> String {
    format!("{} {}", plural("container", "containers", names.len()), quoted(names))
}

impl<'a> Pod<'a> {
    fn spec(&self) -> &'a Value {
        &self.pod["spec"]
    }

    fn context(&self) -> &'a Value {
        &self.spec()["securityContext"]
    }

    fn containers(&self) -> impl Iterator<Item = &'a Value> {
        let spec = self.spec();
        let lists = ["initContainers", "containers", "ephemeralContainers"];
        lists.into_iter().flat_map(move |list| spec[list].as_array().into_iter().flatten())
    }

    /// The names of the containers of which `bad` is true.
    fn named(&self, mut bad: impl FnMut(&'a Value) -> bool) -> Vec<&'a str> {
        self.containers().filter(|container| bad(container)).map(|c| c["name"].as_str().unwrap_or_default()).collect()
    }

    fn annotations(&self) -> impl Iterator<Item = (&'a str, &'a str)> {
        let annotations = self.pod["metadata"]["annotations"].as_object().into_iter().flatten();
        annotations.map(|(name, value)| (name.as_str(), value.as_str().unwrap_or_default()))
    }

    fn on_windows(&self) -> bool {
        self.spec()["os"]["name"] == "windows"
    }

    /// Whether the pod has a user namespace of its own, outside of which its root has no rights.
    fn own_users(&self) -> bool {
        self.spec()["hostUsers"] == false
    }

    /// `pod and container "a"`: the offenders in a message.
    fn setters(pod: bool, containers: &[&str]) -> Option<String> {
        let mut setters = Vec::new();
        if pod {
            setters.push("pod".to_owned());
        }
        if !containers.is_empty() {
            setters.push(containers_text(containers));
        }
        (!setters.is_empty()).then(|| setters.join(" and "))
    }

    fn app_armor(&self) -> Found {
        let mut values = BTreeSet::new();
        let mut bad = |context: &'a Value| {
            let profile = &context["appArmorProfile"];
            let kind = profile["type"].as_str().unwrap_or_default();
            let bad = profile.is_object() && !matches!(kind, "RuntimeDefault" | "Localhost");
            if bad {
                values.insert(kind);
            }
            bad
        };
        let pod = bad(self.context());
        let containers = self.named(|container| bad(&container["securityContext"]));
        let mut setters: Vec<String> = Self::setters(pod, &containers).into_iter().collect();
        let prefix = "container.apparmor.security.beta.kubernetes.io/";
        let mut annotations: Vec<String> = self
            .annotations()
            .filter(|(name, value)| {
                let fine = value.is_empty() || *value == "runtime/default" || value.starts_with("localhost/");
                name.starts_with(prefix) && !fine
            })
            .map(|(name, value)| format!("{name}={value:?}"))
            .collect();
        annotations.sort();
        if !annotations.is_empty() {
            setters.push(plural("annotation", "annotations", annotations.len()).to_owned());
        }
        if setters.is_empty() {
            return None;
        }
        let values: Vec<String> = values.into_iter().map(str::to_owned).chain(annotations).collect();
        let detail = format!("{} must not set AppArmor profile type to {}", setters.join(" and "), quoted(&values));
        found(plural("forbidden AppArmor profile", "forbidden AppArmor profiles", values.len()), detail)
    }

    /// The containers that add capabilities other than `allowed`, and those capabilities.
    fn adding(&self, allowed: &[&str]) -> (Vec<&'a str>, BTreeSet<&'a str>) {
        let mut added = BTreeSet::new();
        let containers = self.named(|container| {
            let add = container["securityContext"]["capabilities"]["add"].as_array().into_iter().flatten();
            let bad: Vec<&str> = add.filter_map(Value::as_str).filter(|name| !allowed.contains(name)).collect();
            added.extend(&bad);
            !bad.is_empty()
        });
        (containers, added)
    }

    fn added_capabilities(&self) -> Found {
        const ALLOWED: [&str; 13] = [
            "AUDIT_WRITE",
            "CHOWN",
            "DAC_OVERRIDE",
            "FOWNER",
            "FSETID",
            "KILL",
            "MKNOD",
            "NET_BIND_SERVICE",
            "SETFCAP",
            "SETGID",
            "SETPCAP",
            "SETUID",
            "SYS_CHROOT",
        ];
        let (containers, added) = self.adding(&ALLOWED);
        if containers.is_empty() {
            return None;
        }
        let text = containers_text(&containers);
        let detail = format!("{text} must not include {} in securityContext.capabilities.add", quoted(added));
        found("non-default capabilities", detail)
    }

    fn restricted_capabilities(&self) -> Found {
        if self.since >= 25 && self.on_windows() {
            return None;
        }
        let keeping = self.named(|container| {
            let drop = container["securityContext"]["capabilities"]["drop"].as_array();
            !drop.is_some_and(|drop| drop.iter().any(|name| name == "ALL"))
        });
        let (adding, added) = self.adding(&["NET_BIND_SERVICE"]);
        let mut details = Vec::new();
        if !keeping.is_empty() {
            details.push(format!("{} must set securityContext.capabilities.drop=[\"ALL\"]", containers_text(&keeping)));
        }
        if !adding.is_empty() {
            let text = containers_text(&adding);
            details.push(format!("{text} must not include {} in securityContext.capabilities.add", quoted(added)));
        }
        if details.is_empty() { None } else { found("unrestricted capabilities", details.join("; ")) }
    }

    fn host_namespaces(&self) -> Found {
        let shared = ["hostNetwork", "hostPID", "hostIPC"].into_iter().filter(|name| self.spec()[*name] == true);
        let shared: Vec<String> = shared.map(|name| format!("{name}=true")).collect();
        if shared.is_empty() { None } else { found("host namespaces", shared.join(", ")) }
    }

    fn volumes(&self) -> impl Iterator<Item = &'a Value> {
        self.spec()["volumes"].as_array().into_iter().flatten()
    }

    fn host_paths(&self) -> Found {
        let paths = self.volumes().filter(|volume| volume["hostPath"].is_object());
        let names: Vec<&str> = paths.map(|volume| volume["name"].as_str().unwrap_or_default()).collect();
        if names.is_empty() {
            return None;
        }
        found("hostPath volumes", format!("{} {}", plural("volume", "volumes", names.len()), quoted(names)))
    }

    fn host_ports(&self) -> Found {
        let mut ports = BTreeSet::new();
        let containers = self.named(|container| {
            let own = container["ports"].as_array().into_iter().flatten();
            let own: Vec<i64> = own.filter_map(|port| port["hostPort"].as_i64()).filter(|port| *port != 0).collect();
            ports.extend(own.iter().map(i64::to_string));
            !own.is_empty()
        });
        if containers.is_empty() {
            return None;
        }
        let uses = plural("uses", "use", containers.len());
        let what = plural("hostPort", "hostPorts", ports.len());
        let ports: Vec<String> = ports.into_iter().collect();
        found("hostPort", format!("{} {uses} {what} {}", containers_text(&containers), ports.join(", ")))
    }

    fn probe_hosts(&self) -> Found {
        const HANDLERS: [(&str, &str); 5] = [
            ("livenessProbe", ""),
            ("readinessProbe", ""),
            ("startupProbe", ""),
            ("lifecycle", "postStart"),
            ("lifecycle", "preStop"),
        ];
        let mut hosts = BTreeSet::new();
        let mut containers = self.named(|container| {
            let before = hosts.len();
            let mut any = false;
            for (outer, inner) in HANDLERS {
                let handler = if inner.is_empty() { &container[outer] } else { &container[outer][inner] };
                for way in ["httpGet", "tcpSocket"] {
                    if let Some(host) = handler[way]["host"].as_str().filter(|host| !host.is_empty()) {
                        hosts.insert(host);
                        any = true;
                    }
                }
            }
            any || hosts.len() > before
        });
        if containers.is_empty() {
            return None;
        }
        containers.sort_unstable();
        containers.dedup();
        let uses = plural("uses", "use", containers.len());
        let what = plural("probe or lifecycle host", "probe or lifecycle hosts", hosts.len());
        let text = containers_text(&containers);
        found("probe or lifecycle host", format!("{text} {uses} {what} {}", quoted(hosts)))
    }

    fn privileged(&self) -> Found {
        let containers = self.named(|container| container["securityContext"]["privileged"] == true);
        if containers.is_empty() {
            return None;
        }
        found("privileged", format!("{} must not set securityContext.privileged=true", containers_text(&containers)))
    }

    fn proc_mount(&self, own_users_may: bool) -> Found {
        if own_users_may && self.own_users() {
            return None;
        }
        let mut kinds = BTreeSet::new();
        let containers = self.named(|container| {
            let kind = container["securityContext"]["procMount"].as_str().filter(|kind| *kind != "Default");
            kinds.extend(kind);
            kind.is_some()
        });
        if containers.is_empty() {
            return None;
        }
        let text = containers_text(&containers);
        found("procMount", format!("{text} must not set securityContext.procMount to {}", quoted(kinds)))
    }

    fn se_linux(&self) -> Found {
        let engine = self.since >= 31;
        let (mut kinds, mut user, mut role) = (BTreeSet::new(), false, false);
        let mut bad = |context: &'a Value| {
            let options = &context["seLinuxOptions"];
            let text = |name: &str| options[name].as_str().unwrap_or_default();
            let kind = text("type");
            let fine = matches!(kind, "" | "container_t" | "container_init_t" | "container_kvm_t")
                || (engine && kind == "container_engine_t");
            if !fine {
                kinds.insert(kind);
            }
            user |= !text("user").is_empty();
            role |= !text("role").is_empty();
            !fine || !text("user").is_empty() || !text("role").is_empty()
        };
        let pod = bad(self.context());
        let containers = self.named(|container| bad(&container["securityContext"]));
        let setters = Self::setters(pod, &containers)?;
        let mut data = Vec::new();
        if !kinds.is_empty() {
            data.push(format!("{} {}", plural("type", "types", kinds.len()), quoted(kinds)));
        }
        data.extend(user.then(|| "user may not be set".to_owned()));
        data.extend(role.then(|| "role may not be set".to_owned()));
        found("seLinuxOptions", format!("{setters} set forbidden securityContext.seLinuxOptions: {}", data.join("; ")))
    }

    fn seccomp_baseline(&self) -> Found {
        if self.since < 19 {
            return self.seccomp_annotations();
        }
        self.seccomp_setters().0
    }

    /// The annotations that preceded the field.
    fn seccomp_annotations(&self) -> Found {
        let of_pod = "seccomp.security.alpha.kubernetes.io/pod";
        let of_container = "container.seccomp.security.alpha.kubernetes.io/";
        let names: BTreeSet<&str> = self.named(|_| true).into_iter().collect();
        let mut bad: Vec<String> = self
            .annotations()
            .filter(|(name, _)| *name == of_pod || name.strip_prefix(of_container).is_some_and(|c| names.contains(c)))
            .filter(|(_, value)| {
                !matches!(*value, "runtime/default" | "docker/default") && !value.starts_with("localhost/")
            })
            .map(|(name, value)| format!("{name}={value:?}"))
            .collect();
        bad.sort();
        if bad.is_empty() {
            return None;
        }
        let what = plural("annotation", "annotations", bad.len());
        found("seccompProfile", format!("forbidden {what} {}", bad.join(", ")))
    }

    /// The offenders that set a forbidden profile, and the containers without one.
    fn seccomp_setters(&self) -> (Found, Vec<&'a str>) {
        let mut kinds = BTreeSet::new();
        let mut bad = |context: &'a Value| {
            let profile = &context["seccompProfile"];
            let kind = profile["type"].as_str().unwrap_or_default();
            let bad = profile.is_object() && !matches!(kind, "RuntimeDefault" | "Localhost");
            if bad {
                kinds.insert(kind);
            }
            bad
        };
        let pod = bad(self.context());
        let pod_sets = self.context()["seccompProfile"].is_object() && !pod;
        let containers = self.named(|container| bad(&container["securityContext"]));
        let open = self.named(|container| !pod_sets && !container["securityContext"]["seccompProfile"].is_object());
        let refused = Self::setters(pod, &containers).and_then(|setters| {
            let detail = format!("{setters} must not set securityContext.seccompProfile.type to {}", quoted(kinds));
            found("seccompProfile", detail)
        });
        (refused, open)
    }

    fn seccomp_restricted(&self) -> Found {
        if self.since >= 25 && self.on_windows() {
            return None;
        }
        let (refused, open) = self.seccomp_setters();
        if refused.is_some() || open.is_empty() {
            return refused;
        }
        let text = containers_text(&open);
        let must = r#"must set securityContext.seccompProfile.type to "RuntimeDefault" or "Localhost""#;
        found("seccompProfile", format!("pod or {text} {must}"))
    }

    fn sysctls(&self) -> Found {
        const ALLOWED: [(&str, u32); 12] = [
            ("kernel.shm_rmid_forced", 0),
            ("net.ipv4.ip_local_port_range", 0),
            ("net.ipv4.tcp_syncookies", 0),
            ("net.ipv4.ping_group_range", 0),
            ("net.ipv4.ip_unprivileged_port_start", 0),
            ("net.ipv4.ip_local_reserved_ports", 27),
            ("net.ipv4.tcp_keepalive_time", 29),
            ("net.ipv4.tcp_fin_timeout", 29),
            ("net.ipv4.tcp_keepalive_intvl", 29),
            ("net.ipv4.tcp_keepalive_probes", 29),
            ("net.ipv4.tcp_rmem", 32),
            ("net.ipv4.tcp_wmem", 32),
        ];
        let sysctls = self.context()["sysctls"].as_array().into_iter().flatten();
        let names = sysctls.map(|sysctl| sysctl["name"].as_str().unwrap_or_default());
        let allowed = |name: &str| ALLOWED.iter().any(|(known, since)| *known == name && self.since >= *since);
        let bad: Vec<&str> = names.filter(|name| !allowed(name)).collect();
        if bad.is_empty() { None } else { found("forbidden sysctls", bad.join(", ")) }
    }

    fn host_process(&self) -> Found {
        let bad = |context: &Value| context["windowsOptions"]["hostProcess"] == true;
        let containers = self.named(|container| bad(&container["securityContext"]));
        let setters = Self::setters(bad(self.context()), &containers)?;
        found("hostProcess", format!("{setters} must not set securityContext.windowsOptions.hostProcess=true"))
    }

    fn privilege_escalation(&self) -> Found {
        if self.since >= 25 && self.on_windows() {
            return None;
        }
        let containers = self.named(|container| container["securityContext"]["allowPrivilegeEscalation"] != false);
        if containers.is_empty() {
            return None;
        }
        let text = containers_text(&containers);
        let detail = format!("{text} must set securityContext.allowPrivilegeEscalation=false");
        found("allowPrivilegeEscalation != false", detail)
    }

    fn volume_types(&self) -> Found {
        const ALLOWED: [&str; 9] = [
            "configMap",
            "csi",
            "downwardAPI",
            "emptyDir",
            "ephemeral",
            "image",
            "persistentVolumeClaim",
            "projected",
            "secret",
        ];
        let (mut names, mut kinds) = (Vec::new(), BTreeSet::new());
        for volume in self.volumes() {
            let kind = volume.as_object().into_iter().flatten().find(|(_, source)| source.is_object());
            let kind = kind.map_or("unknown", |(kind, _)| kind.as_str());
            if !ALLOWED.contains(&kind) {
                names.push(volume["name"].as_str().unwrap_or_default());
                kinds.insert(kind);
            }
        }
        if names.is_empty() {
            return None;
        }
        let (volumes, uses) = (plural("volume", "volumes", names.len()), plural("uses", "use", names.len()));
        let what = plural("restricted volume type", "restricted volume types", kinds.len());
        found("restricted volume types", format!("{volumes} {} {uses} {what} {}", quoted(names), quoted(kinds)))
    }

    fn non_root(&self) -> Found {
        if self.since >= 35 && self.own_users() {
            return None;
        }
        let of_pod = self.context()["runAsNonRoot"].as_bool();
        let refusing = self.named(|container| container["securityContext"]["runAsNonRoot"] == false);
        if let Some(setters) = Self::setters(of_pod == Some(false), &refusing) {
            return found("runAsNonRoot != true", format!("{setters} must not set securityContext.runAsNonRoot=false"));
        }
        let open =
            self.named(|container| of_pod.is_none() && !container["securityContext"]["runAsNonRoot"].is_boolean());
        if open.is_empty() {
            return None;
        }
        let detail = format!("pod or {} must set securityContext.runAsNonRoot=true", containers_text(&open));
        found("runAsNonRoot != true", detail)
    }

    fn user_zero(&self) -> Found {
        if self.since >= 35 && self.own_users() {
            return None;
        }
        let bad = |context: &Value| context["runAsUser"] == 0;
        let containers = self.named(|container| bad(&container["securityContext"]));
        let setters = Self::setters(bad(self.context()), &containers)?;
        found("runAsUser=0", format!("{setters} must not set runAsUser=0"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use machinery::json::json;

    fn reasons(level: Level, version: Version, spec: Value) -> Vec<&'static str> {
        let found = violations(&Standard { level, version }, &json!({"spec": spec}));
        found.iter().map(|violation| violation.reason).collect()
    }

    #[test]
    fn a_plain_pod_is_baseline_and_not_restricted() {
        let spec = json!({"containers": [{"name": "c"}]});
        assert!(reasons(Level::Baseline, Version::Latest, spec.clone()).is_empty());
        assert!(reasons(Level::Privileged, Version::Latest, spec.clone()).is_empty());
        assert_eq!(
            reasons(Level::Restricted, Version::Latest, spec.clone()),
            [
                "allowPrivilegeEscalation != false",
                "unrestricted capabilities",
                "runAsNonRoot != true",
                "seccompProfile"
            ]
        );
        assert_eq!(reasons(Level::Restricted, Version::Minor(7), spec), ["runAsNonRoot != true"]);
    }

    #[test]
    fn a_restricted_pod_says_so_itself() {
        let container = json!({
            "name": "c",
            "securityContext": {"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}},
        });
        let context = json!({"runAsNonRoot": true, "seccompProfile": {"type": "RuntimeDefault"}});
        let spec = json!({"containers": [container], "securityContext": context});
        assert!(reasons(Level::Restricted, Version::Latest, spec).is_empty());
    }

    #[test]
    fn details_name_containers_and_values() {
        let standard = Standard { level: Level::Baseline, version: Version::Latest };
        let context = json!({"privileged": true, "capabilities": {"add": ["SYS_ADMIN", "CHOWN"]}});
        let pod = json!({"spec": {
            "hostNetwork": true,
            "hostPID": true,
            "initContainers": [{"name": "i", "securityContext": context, "ports": [{"hostPort": 80}]}],
            "containers": [{"name": "c", "securityContext": context, "livenessProbe": {"httpGet": {"host": "h"}}}],
            "volumes": [{"name": "v", "hostPath": {"path": "/"}}],
            "securityContext": {"sysctls": [{"name": "kernel.x"}], "seLinuxOptions": {"type": "t", "user": "u"}},
        }});
        let found = violations(&standard, &pod);
        let details: Vec<&str> = found.iter().map(|violation| violation.detail.as_str()).collect();
        assert_eq!(
            details,
            [
                "containers \"i\", \"c\" must not include \"SYS_ADMIN\" in securityContext.capabilities.add",
                "hostNetwork=true, hostPID=true",
                "volume \"v\"",
                "container \"i\" uses hostPort 80",
                "container \"c\" uses probe or lifecycle host \"h\"",
                "containers \"i\", \"c\" must not set securityContext.privileged=true",
                "pod set forbidden securityContext.seLinuxOptions: type \"t\"; user may not be set",
                "kernel.x",
            ]
        );
    }

    #[test]
    fn odd_pods_do_no_harm() {
        let standard = Standard { level: Level::Restricted, version: Version::Latest };
        for pod in [json!(null), json!({"spec": {"containers": {"a": 1}}}), json!({"spec": [{"containers": [3]}]})] {
            let _ = violations(&standard, &pod);
        }
    }
}
